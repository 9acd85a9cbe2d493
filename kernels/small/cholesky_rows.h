// Cholesky factorisation of one small Hermitian matrix, with its rows in the lanes of registers.
//
// The elements have the bits that cholesky.h computes for a matrix in one lane: the panels and the
// order of the sums are the same.
#pragma once

#include "kernels/arithmetic/columns.h"
#include "kernels/arithmetic/element.h"
#include "kernels/small/cholesky.h"

namespace linalg::small {

// Smaller matrices are faster by plain numbers.
inline constexpr int kLeastRowsInLanes = 8;

// The matrix: groups of kLanes rows, each by columns. Lanes beyond the last row hold anything. The
// upper triangle is overwritten.
template <class B>
struct RowsInLanes {
  using V = RealElement<B>;
  using E = Element<B, Lane<V>>;
  static constexpr int kLanes = kLanesOf<V>;

  B* groups;
  int n;

  LINALG_INLINE B* Group(int i) const { return groups + i / kLanes * n; }
  LINALG_INLINE Lane<V>* Parts(int i, int j) const {
    return reinterpret_cast<Lane<V>*>(Group(i) + j) + i % kLanes;
  }
  LINALG_INLINE E Get(int i, int j) const {
    const Lane<V>* const parts = Parts(i, j);
    if constexpr (kComplexElement<B>) {
      return {parts[0], parts[kLanes]};
    } else {
      return parts[0];
    }
  }
  LINALG_INLINE void Set(int i, int j, Lane<V> x) const {
    Lane<V>* const parts = Parts(i, j);
    parts[0] = x;
    if constexpr (kComplexElement<B>) parts[kLanes] = 0;
  }
};

// CholeskyBlock for the rows of one group. `inverse` and `failed` are as there.
template <bool kDiagonal, int kCols, class B>
LINALG_INLINE void CholeskyGroup(const RowsInLanes<B>& a, B* group, int j0,
                                 Lane<RealElement<B>>* inverse, int& failed) {
  using V = RealElement<B>;
  using R = Lane<V>;
  B block[kCols] = {};
  for (int k = 0; k < j0; ++k) {
    const B left = group[k];
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) {
      block[c] = NegMulAdd(left, Widen<V>(Conj(a.Get(j0 + c, k))), block[c]);
    }
  }
#pragma GCC unroll 4
  for (int c = 0; c < kCols; ++c) block[c] = group[j0 + c] + block[c];
#pragma GCC unroll 4
  for (int c = 0; c < kCols; ++c) {
#pragma GCC unroll 4
    for (int k = 0; k < c; ++k) {
      block[c] = NegMulAdd(block[k], Widen<V>(Conj(a.Get(j0 + c, j0 + k))), block[c]);
    }
    if constexpr (kDiagonal) {
      group[j0 + c] = block[c];
      const R pivot = Re(a.Get(j0 + c, j0 + c));
      if (!(pivot > 0) && failed == 0) failed = j0 + c + 1;  // also for NaN
      const R root = Sqrt(pivot);
      inverse[c] = 1 / root;
      block[c] = Widen<V>(inverse[c]) * block[c];
      group[j0 + c] = block[c];
      a.Set(j0 + c, j0 + c, root);
    } else {
      block[c] = Widen<V>(inverse[c]) * block[c];
      group[j0 + c] = block[c];
    }
  }
}

template <int kCols, class B>
LINALG_INLINE void CholeskyPanel(const RowsInLanes<B>& a, int j, int& failed) {
  Lane<RealElement<B>> inverse[kCols];
  B* group = a.Group(j);
  CholeskyGroup<true, kCols>(a, group, j, inverse, failed);
  for (group += a.n; group <= a.Group(a.n - 1); group += a.n) {
    CholeskyGroup<false, kCols>(a, group, j, inverse, failed);
  }
}

// Returns 0, or the order of the first leading minor that is not positive.
template <class B>
LINALG_INLINE int Cholesky(const RowsInLanes<B>& a) {
  static_assert(RowsInLanes<B>::kLanes % kCholeskyBlock<B> == 0, "a group holds whole panels");
  constexpr int kBlock = kCholeskyBlock<B>;
  int failed = 0, j = 0;
  for (; j + kBlock <= a.n; j += kBlock) CholeskyPanel<kBlock>(a, j, failed);
  if constexpr (kBlock > 2) {
    if (j + 2 <= a.n) {
      CholeskyPanel<2>(a, j, failed);
      j += 2;
    }
  }
  if (j < a.n) CholeskyPanel<1>(a, j, failed);
  return failed;
}

}  // namespace linalg::small
