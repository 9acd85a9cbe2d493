// Passes over a matrix in blocks that fit in the first-level cache. They transpose between the
// row-major operands of XLA and the column-major ones of LAPACK, take Hermitian parts, and
// conjugate. A pass over a large matrix is spread over the thread pool.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "kernels/arithmetic/hermitian.h"
#include "kernels/cpu/batch.h"
#include "kernels/cpu/tuning.h"
#include "kernels/ffi.h"

namespace linalg {

// Calls body(i0, i1, j0, j1) for the blocks of a rows-by-cols matrix.
template <class Body>
void ForEachCacheBlock(ffi::ThreadPool& pool, int64_t rows, int64_t cols, Body&& body) {
  if (rows <= kCacheBlock && cols <= kCacheBlock) return body(int64_t{0}, rows, int64_t{0}, cols);
  const int64_t strips = (rows + kCacheBlock - 1) / kCacheBlock;
  const double nanoseconds = static_cast<double>(kCacheBlock * std::max<int64_t>(cols, 1));
  ForEachRange(pool, strips, nanoseconds, [&](int64_t first, int64_t last) {
    for (int64_t i = first * kCacheBlock; i < std::min(rows, last * kCacheBlock);
         i += kCacheBlock) {
      for (int64_t j = 0; j < cols; j += kCacheBlock) {
        body(i, std::min(i + kCacheBlock, rows), j, std::min(j + kCacheBlock, cols));
      }
    }
  });
}

// target[j * target_stride + i] = source[i * source_stride + j]
template <class T>
void Transpose(ffi::ThreadPool& pool, int64_t rows, int64_t cols, const T* source,
               int64_t source_stride, T* target, int64_t target_stride) {
  ForEachCacheBlock(pool, rows, cols, [=](int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
    for (int64_t j = j0; j < j1; ++j) {
      for (int64_t i = i0; i < i1; ++i) {
        target[j * target_stride + i] = source[i * source_stride + j];
      }
    }
  });
}

template <class T>
void TransposeInPlace(ffi::ThreadPool& pool, int64_t n, T* a) {
  ForEachCacheBlock(pool, n, n, [=](int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
    if (j0 > i0) return;
    for (int64_t i = i0; i < i1; ++i) {
      for (int64_t j = j0; j < std::min(i, j1); ++j) std::swap(a[i * n + j], a[j * n + i]);
    }
  });
}

template <class T>
void Conjugate(int64_t size, T* x) {
  if constexpr (kIsComplex<T>) {
    for (int64_t i = 0; i < size; ++i) x[i] = std::conj(x[i]);
  }
}

// Calls body(i, j, element) for one triangle of the Hermitian part of `a`.
template <class T, class Body>
void ForEachInTriangle(ffi::ThreadPool& pool, int64_t n, HermitianPart part, const T* a,
                       Body&& body) {
  ForEachCacheBlock(pool, n, n, [&](int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
    if (part.lower ? j0 > i0 : j0 < i0) return;
    for (int64_t i = i0; i < i1; ++i) {
      const int64_t first = part.lower ? j0 : std::max(i, j0);
      const int64_t last = part.lower ? std::min(i + 1, j1) : j1;
      for (int64_t j = first; j < last; ++j) {
        const auto get = [=](int64_t k, int64_t l) {
          return std::bit_cast<Element<T>>(a[k * n + l]);
        };
        body(i, j, std::bit_cast<T>(part.At(i, j, get)));
      }
    }
  });
}

}  // namespace linalg
