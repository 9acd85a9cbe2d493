// Operations on Hermitian matrices that use only the upper triangle.
#pragma once

#include <bit>

#include "kernels/arithmetic/hermitian.h"
#include "kernels/blocked/squares.h"

namespace linalg::blocked {

// Calls square(i, j) for squares that cover rows [first, last) of the upper triangle. `first` must
// be the first row of a square, and so must `last` unless it is n. Squares on the diagonal extend
// below it. The last squares of a row or column overlap the ones before.
template <class T, class OfSquare>
void ForEachSquareInUpper(int64_t n, int64_t first, int64_t last, OfSquare&& square) {
  constexpr int64_t kSize = Square<T>::kSize;
  for (int64_t j = first; j < n; j += kSize) {
    for (int64_t i = first; i < std::min(last, j + 1); i += kSize) {
      square(std::min(i, n - kSize), std::min(j, n - kSize));
    }
  }
}

// u = rows [first, last) of the upper triangle of the Hermitian part of `a`. The conditions of
// ForEachSquareInUpper apply. Elements below the diagonal may be overwritten.
template <class T>
void ReadUpper(int64_t n, int64_t first, int64_t last, HermitianPart part, const T* a, Rows<T> u) {
  using S = Square<T>;
  using V = Register<T>;
  const auto get = [=](int64_t k, int64_t l) { return std::bit_cast<Element<T>>(a[k * n + l]); };
  const auto read = [&](int64_t i, int64_t j) {
    *u.At(i, j).data = std::bit_cast<T>(part.At(i, j, get));
  };
  if (n < S::kSize) {
    for (int64_t i = first; i < last; ++i) {
      for (int64_t j = i; j < n; ++j) read(i, j);
    }
    return;
  }
  ForEachSquareInUpper<T>(n, first, last, [&](int64_t i, int64_t j) {
    const T *above = a + i * n + j, *below = a + j * n + i;
    S x;
    if (!part.symmetrize && !part.lower) {
      x = S::Read(above, n);
    } else {
      x = S::ReadTransposed(below, n);
#pragma GCC unroll 16
      for (V& row : x.x) row = S::Conj(row);
      if (part.symmetrize) {
        const S other = S::Read(above, n);
#pragma GCC unroll 16
        for (int k = 0; k < S::kSize; ++k) x.x[k] = HermitianPart::Mean(other.x[k], x.x[k]);
      }
    }
    x.Write(u.At(i, j).data, u.ld);
  });
  for (int64_t i = first; i < last; ++i) read(i, i);
}

template <class T>
void ReadUpper(int64_t n, HermitianPart part, const T* a, Rows<T> u) {
  ReadUpper(n, 0, n, part, a, u);
}

}  // namespace linalg::blocked
