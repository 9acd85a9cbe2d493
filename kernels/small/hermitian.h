// What goes into and comes out of an algorithm on Hermitian matrices, one per lane.
#pragma once

#include <utility>

#include "kernels/small/lanes.h"

namespace linalg::small {

// Replaces the lower triangle by that of the Hermitian part: the mean of `a` and its adjoint, or
// what the named triangle alone says. The diagonal's imaginary part becomes 0.
template <class E>
LINALG_INLINE void LowerHermitianPart(E* a, int n, bool lower, bool symmetrize) {
  using V = RealElement<E>;
  const V half = Broadcast<V>(Lane<V>(0.5));
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < i; ++j) {
      E& below = a[i * n + j];
      const E above = Conj(a[j * n + i]);
      // Halved first: the sum of two large elements could overflow.
      below = symmetrize ? half * below + half * above : lower ? below : above;
    }
    a[i * n + i] = FromReal<E>(Re(a[i * n + i]));
  }
}

// Leaves the lower triangle, or its adjoint in the upper one, and zeros in the other; NaN in the
// lanes where `failed` is not 0.
template <class E>
LINALG_INLINE void FinishTriangle(E* a, int n, bool lower, RealElement<E> failed) {
  using V = RealElement<E>;
  FillNaN(failed > V{}, n * n, a);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < i; ++j) {
      if (!lower) a[j * n + i] = Conj(a[i * n + j]);
      a[lower ? j * n + i : i * n + j] = E{};
    }
  }
}

}  // namespace linalg::small
