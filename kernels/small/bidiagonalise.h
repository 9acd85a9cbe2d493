// Reduction of small square matrices to real upper bidiagonal form, one per lane.
//
// Uses Householder reflectors (Golub and Kahan, Calculating the singular values and pseudo-inverse
// of a matrix, 1965).
#pragma once

#include "kernels/small/householder.h"

namespace linalg::small {

// The reflectors of n by n matrices, in HouseholderQr's layout. Left ones reflect columns. Right
// ones reflect the adjoints of rows, from the second column on. Without `left_taus` the reflectors
// are discarded, and `left` and `right` are workspaces of n elements.
template <class E>
struct BidiagonalReflectors {
  E *left, *right;
  E *left_taus = nullptr, *right_taus = nullptr;

  LINALG_INLINE E* LeftVector(int n, int k) const { return left_taus ? left + k * n + k : left; }
  LINALG_INLINE E* RightVector(int n, int k) const {
    return left_taus ? right + k * (n - 1) + k : right;
  }
  LINALG_INLINE void Keep(E* taus, int k, E tau) const {
    if (left_taus) taus[k] = tau;
  }
  // The last column of a real matrix has nothing to reflect.
  LINALG_INLINE static int LeftCount(int n) { return kComplexElement<E> ? n : n - 1; }
  LINALG_INLINE static int RightCount(int n) { return LeftCount(n) - 1; }
};

// Reduces the n by n matrix: the diagonal goes to d, the superdiagonal to e. Columns are updated in
// blocks B.
template <class B, class E>
LINALG_ONCE void Bidiagonalise(E* a, int n, const BidiagonalReflectors<E>& reflectors,
                               RealElement<E>* d, RealElement<E>* e) {
  for (int k = 0; k < n; ++k) {
    const int rows = n - k, cols = rows - 1;
    E* const corner = a + k * n + k;
    if (k < reflectors.LeftCount(n)) {
      E* const v = reflectors.LeftVector(n, k);
      const E tau = MakeReflector(corner, n, rows, v);
      reflectors.Keep(reflectors.left_taus, k, tau);
      ForEachColumnBlock<kColumns<E, B>, 1>(rows - 1, [&]<int, bool kMasked>(int j, int first) {
        ReflectColumns<kMasked, B>(corner + 1 + j, n, rows, v, Conj(tau), first);
      });
    }
    d[k] = Re(corner[0]);
    if (cols == 0) return;
    if (k < reflectors.RightCount(n)) {
      E* const v = reflectors.RightVector(n, k);
      // The reflector that takes the adjoint of the row to a multiple of e₁.
      for (int j = 1; j <= cols; ++j) corner[j] = Conj(corner[j]);
      const E tau = MakeReflector(corner + 1, 1, cols, v);
      reflectors.Keep(reflectors.right_taus, k, tau);
      ReflectFromRight(corner + n + 1, n, cols, cols, v, tau);
    }
    e[k] = Re(corner[1]);
  }
}

}  // namespace linalg::small
