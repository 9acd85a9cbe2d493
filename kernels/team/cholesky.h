// Cholesky factors by a team of threads, in place, right-looking. Only the lower triangle is read
// and written.
#pragma once

#include "kernels/team/team.h"

namespace linalg::team {

// Replaces the lower triangle by that of the Hermitian part: the mean of `a` and its adjoint, or
// what the named triangle alone says.
template <class Team, class E>
LINALG_TEAM void LowerHermitianPart(const Team& team, int n, E* a, int ld, bool lower,
                                    bool symmetrize) {
  using V = RealElement<E>;
  const Grid grid = RowGrid(team);
  team.Phase([&](int thread) {
    ForEachElement(grid, thread, 0, n, 0, n, [&](int i, int j) {
      if (j > i) return;
      E& below = a[i * ld + j];
      if (i == j) {
        below = small::FromReal<E>(small::Re(below));
        return;
      }
      const E above = small::Conj(a[j * ld + i]);
      // Halved first: the sum of two large elements could overflow.
      below = symmetrize ? V(0.5) * below + V(0.5) * above : lower ? below : above;
    });
  });
}

// Returns 0, or the order of the first leading minor that is not positive; then the factor is
// unfinished.
template <class Team, class E>
LINALG_TEAM int Cholesky(const Team& team, int n, E* a, int ld) {
  using V = RealElement<E>;
  const Grid grid = RowGrid(team);
  for (int k = 0; k < n; ++k) {
    const V pivot = small::Re(a[k * ld + k]);
    // NaN is neither.
    if (!(pivot > V(0) && pivot < std::numeric_limits<V>::infinity())) return k + 1;
    const V root = small::Sqrt(pivot), inverse = V(1) / root;
    team.Phase([&](int thread) {
      for (int i = k + 1 + thread; i < n; i += team.size()) {
        a[i * ld + k] = inverse * a[i * ld + k];
      }
    });
    team.Phase([&](int thread) {
      if (thread == 0) a[k * ld + k] = small::FromReal<E>(root);
      for (int i = k + 1 + grid.Lane(thread); i < n; i += grid.lanes) {
        SubtractFromRow(a[i * ld + k], a + i * ld, k + 1 + grid.Group(thread), i + 1, grid.groups,
                        [&](int j) { return small::Conj(a[j * ld + k]); });
      }
    });
  }
  return 0;
}

}  // namespace linalg::team
