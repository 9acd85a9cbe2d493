// Hermitian matrices, of which the upper triangle alone is worked on.
#pragma once

#include <bit>

#include "kernels/arithmetic/hermitian.h"
#include "kernels/blocked/squares.h"

namespace linalg::blocked {

// Calls square(i, j) for the squares that cover the diagonal and what is above it. They reach below
// it, and the last of a row and of a column overlap those before.
template <class T, class OfSquare>
void ForEachSquareInUpper(int64_t n, OfSquare&& square) {
  constexpr int64_t kSize = Square<T>::kSize;
  for (int64_t i = 0; i < n; i += kSize) {
    for (int64_t j = i; j < n; j += kSize) {
      square(std::min(i, n - kSize), std::min(j, n - kSize));
    }
  }
}

// u = the upper triangle of the part of `a`. What is below the diagonal may be overwritten.
template <class T>
void ReadUpper(int64_t n, HermitianPart part, const T* a, Rows<T> u) {
  using S = Square<T>;
  using V = Register<T>;
  const auto get = [=](int64_t k, int64_t l) { return std::bit_cast<Element<T>>(a[k * n + l]); };
  const auto read = [&](int64_t i, int64_t j) {
    *u.At(i, j).data = std::bit_cast<T>(part.At(i, j, get));
  };
  if (n < S::kSize) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i; j < n; ++j) read(i, j);
    }
    return;
  }
  ForEachSquareInUpper<T>(n, [&](int64_t i, int64_t j) {
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
  for (int64_t i = 0; i < n; ++i) read(i, i);
}

}  // namespace linalg::blocked
