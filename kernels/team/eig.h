// Eigenvalues and eigenvectors of general matrices by a team of threads, from their Schur form.
#pragma once

#include "kernels/team/eigenvectors.h"
#include "kernels/team/schur.h"

namespace linalg::team {

// Computes the eigenvalues of work.Input(). If kVectors is true, it also computes the eigenvectors
// that are not null, row-major (n, n). Results are NaN where info is not 0. x is a workspace of (n,
// work.ld) for vectors. Returns Schur's info.
template <bool kVectors, class Team, class E, class Iteration>
LINALG_TEAM int Eig(const Team& team, int n, const SchurWork<E>& work, const Iteration& iteration,
                    Balanced<RealElement<E>> balanced, Complex<RealElement<E>>* x,
                    Complex<RealElement<E>>* values, Complex<RealElement<E>>* left,
                    Complex<RealElement<E>>* right) {
  using V = RealElement<E>;
  using C = Complex<V>;
  V unscale = V(1);
  const int info = Schur<kVectors>(team, n, work, iteration, balanced, unscale);
  const E* const t = kVectors ? work.t : work.Input();
  team.Phase([&](int thread) {
    for (int k = thread; k < n; k += team.size()) {
      values[k] = info != 0 ? NaN<C>() : unscale * Eigenvalue(n, t, work.ld, k);
    }
  });
  if constexpr (kVectors) {
    for (int side = 0; side < 2; ++side) {
      const bool is_left = side == 0;
      C* const vectors = is_left ? left : right;
      if (vectors == nullptr) continue;
      if (info == 0) {
        SchurEigenvectors(team, n, t, work.z, work.ld, balanced, is_left, x, work.ld, vectors);
      } else {
        team.Phase([&](int thread) {
          for (int64_t e = thread; e < int64_t{n} * n; e += team.size()) vectors[e] = NaN<C>();
        });
      }
    }
  }
  return info;
}

}  // namespace linalg::team
