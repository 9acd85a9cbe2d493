// In-place Cholesky factorisation of small Hermitian matrices, one per lane.
//
// Row-major n by n elements. Left-looking over panels of up to kBlock columns, with register
// blocking. Reads and writes only the lower triangle.
#pragma once

#include "kernels/arithmetic/element.h"

namespace linalg::small {

template <class E>
inline constexpr int kCholeskyBlock = kComplexElement<E> ? 2 : 4;

// The matrix to factor, if it is stored where its factor will be.
struct StoredElements {
  template <bool kDiagonal, int kRows, int kCols, class E>
  LINALG_INLINE void Load(const E* a, int n, int i0, int j0, E (&block)[kRows][kCols]) const {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < kCols; ++c) block[r][c] = a[(i0 + r) * n + j0 + c];
  }
};

// Factors kRows rows from i0 of the panel of kCols columns at j0. All columns to the left are
// factored. `source` gives the elements of the matrix, on the diagonal only the lower ones. On the
// diagonal (kDiagonal), `failed` receives the 1-based index of the first pivot that is not
// positive. `inverse` receives the reciprocals of the factor's diagonal. The rows below are scaled
// by these.
template <bool kDiagonal, int kRows, int kCols, class E, class Source>
LINALG_INLINE void CholeskyBlock(E* a, int n, int i0, int j0, RealElement<E>* inverse,
                                 RealElement<E>& failed, const Source& source) {
  using V = RealElement<E>;
  // Products are summed separately, as in mul_sub.h, for a smaller rounding error.
  E block[kRows][kCols] = {};
  for (int k = 0; k < j0; ++k) {
    E left[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) left[r] = a[(i0 + r) * n + k];
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) {
      const E right = Conj(a[(j0 + c) * n + k]);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) block[r][c] = NegMulAdd(left[r], right, block[r][c]);
    }
  }
  E own[kRows][kCols];
  source.template Load<kDiagonal>(a, n, i0, j0, own);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) block[r][c] = own[r][c] + block[r][c];
#pragma GCC unroll 4
  for (int c = 0; c < kCols; ++c) {
#pragma GCC unroll 4
    for (int k = 0; k < c; ++k) {
      E right;
      if constexpr (kDiagonal) {
        right = Conj(block[c][k]);
      } else {
        right = Conj(a[(j0 + c) * n + j0 + k]);
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) block[r][c] = NegMulAdd(block[r][k], right, block[r][c]);
    }
    if constexpr (kDiagonal) {
      const V pivot = Re(block[c][c]);
      const V order = Number<V>(j0 + c + 1);
      // NaN is not positive. Infinity is, as in LAPACK: the column below it becomes 0.
      failed = (pivot > V{}) | (failed > V{}) ? failed : order;
      const V root = Sqrt(pivot);
      inverse[c] = Broadcast<V>(1) / root;
      block[c][c] = FromReal<E>(root);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      if (!kDiagonal || r > c) block[r][c] = inverse[c] * block[r][c];
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) {
      if (!kDiagonal || r >= c) a[(i0 + r) * n + j0 + c] = block[r][c];
    }
}

template <int kCols, class E, class Source>
LINALG_INLINE void CholeskyPanel(E* a, int n, int j0, RealElement<E>& failed,
                                 RealElement<E>* reciprocals, const Source& source) {
  constexpr int kBlock = kCholeskyBlock<E>;
  RealElement<E> inverse[kCols];
  CholeskyBlock<true, kCols, kCols>(a, n, j0, j0, inverse, failed, source);
  if (reciprocals != nullptr) {
    for (int c = 0; c < kCols; ++c) reciprocals[j0 + c] = inverse[c];
  }
  int i = j0 + kCols;
  for (; i + kBlock <= n; i += kBlock)
    CholeskyBlock<false, kBlock, kCols>(a, n, i, j0, inverse, failed, source);
  if constexpr (kBlock > 2) {
    if (i + 2 <= n) {
      CholeskyBlock<false, 2, kCols>(a, n, i, j0, inverse, failed, source);
      i += 2;
    }
  }
  if (i < n) CholeskyBlock<false, 1, kCols>(a, n, i, j0, inverse, failed, source);
}

// Returns 0, or the order of the first leading minor that is not positive, in each lane. The
// `reciprocals` of the factor's diagonal are written if they are not null.
template <class E, class Source = StoredElements>
LINALG_INLINE RealElement<E> Cholesky(E* a, int n, RealElement<E>* reciprocals = nullptr,
                                      const Source& source = {}) {
  constexpr int kBlock = kCholeskyBlock<E>;
  RealElement<E> failed{};
  int j = 0;
  for (; j + kBlock <= n; j += kBlock) CholeskyPanel<kBlock>(a, n, j, failed, reciprocals, source);
  if constexpr (kBlock > 2) {
    if (j + 2 <= n) {
      CholeskyPanel<2>(a, n, j, failed, reciprocals, source);
      j += 2;
    }
  }
  if (j < n) CholeskyPanel<1>(a, n, j, failed, reciprocals, source);
  return failed;
}

}  // namespace linalg::small
