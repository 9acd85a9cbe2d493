// Hessenberg form of small matrices by Householder reflectors, one per lane, with LAPACK's
// conventions. A = Q H Qᴴ, where Q leaves the first row alone and H has a real subdiagonal.
#pragma once

#include "kernels/small/householder.h"

namespace linalg::small {

// Replaces the n by n row-major matrix by H. Columns are updated in blocks B. The columns of `v`,
// of n - 1 elements, receive the reflectors' vectors without their leading 1. `taus`, of n - 1
// elements, receives their factors.
template <class B, class E>
LINALG_ONCE void Hessenberg(E* a, int n, E* v, E* taus) {
  const int m = n - 1;
  for (int k = 0; k < m; ++k) {
    const int rows = m - k;
    E* const below = a + (k + 1) * n + k;
    E* const top = v + k * m + k;
    const bool nothing = !kComplexElement<E> && rows == 1;
    const E tau = nothing ? E{} : MakeReflector(below, n, rows, top);
    taus[k] = tau;
    if (nothing) continue;
    ForEachColumnBlock<kColumns<E, B>, 1>(rows, [&]<int, bool kMasked>(int j, int first) {
      ReflectColumns<kMasked, B>(below + 1 + j, n, rows, top, Conj(tau), first);
    });
    ReflectFromRight(a + k + 1, n, n, rows, top, tau);
  }
}

// Makes Q from the reflectors.
template <class B, class E>
LINALG_INLINE void HessenbergVectors(E* q, int n, const E* v, const E* taus) {
  const E one = FromReal<E>(Broadcast<RealElement<E>>(1));
  for (int i = 0; i < n; ++i) q[i] = q[i * n] = E{};
  q[0] = one;
  if (n == 1) return;
  HouseholderProduct<B>(q + n + 1, n, n - 1, n - 1, n - 1, v, taus);
}

}  // namespace linalg::small
