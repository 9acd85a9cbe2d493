// Hermitian matrices, of which the upper triangle alone is worked on.
#pragma once

#include <bit>

#include "kernels/arithmetic/hermitian.h"
#include "kernels/blocked/squares.h"

namespace linalg::blocked {

// Calls square(i, j) for the squares above the diagonal, and element(i, j) for what no square
// holds: where i <= j < n.
template <class T, class OfSquare, class OfElement>
void ForEachInUpper(int64_t n, OfSquare&& square, OfElement&& element) {
  constexpr int64_t kSize = Square<T>::kSize;
  const int64_t whole = n / kSize * kSize;
  for (int64_t i0 = 0; i0 < n; i0 += kSize) {
    const int64_t i1 = std::min(i0 + kSize, n);
    const int64_t j0 = std::min(i0 + kSize, n), j1 = i0 < whole ? std::max(j0, whole) : j0;
    for (int64_t i = i0; i < i1; ++i) {
      for (int64_t j = i; j < j0; ++j) element(i, j);
    }
    for (int64_t j = j0; j < j1; j += kSize) square(i0, j);
    for (int64_t i = i0; i < i1; ++i) {
      for (int64_t j = j1; j < n; ++j) element(i, j);
    }
  }
}

// u = the upper triangle of the part of `a`. What is below the diagonal stays as it is.
template <class T>
void ReadUpper(int64_t n, HermitianPart part, const T* a, Rows<T> u) {
  using S = Square<T>;
  using V = Register<T>;
  const auto square = [&](int64_t i, int64_t j) {
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
  };
  const auto get = [=](int64_t k, int64_t l) { return std::bit_cast<Element<T>>(a[k * n + l]); };
  ForEachInUpper<T>(n, square, [&](int64_t i, int64_t j) {
    *u.At(i, j).data = std::bit_cast<T>(part.At(i, j, get));
  });
}

}  // namespace linalg::blocked
