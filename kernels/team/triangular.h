// Substitution by a team of threads: a row of the solution, then its part in all rows to come.
#pragma once

#include "kernels/arithmetic/divisor.h"
#include "kernels/team/team.h"

namespace linalg::team {

// b (n, cols) = L⁻¹ b with the lower triangle of `a`, or U⁻¹ b with the upper one.
template <class Team, class E>
LINALG_TEAM void Substitute(const Team& team, int n, const E* a, int ld, bool lower,
                            bool unit_diagonal, int cols, E* b, int ldb) {
  const Grid grid = RowGrid(team);
  for (int step = 0; step < n; ++step) {
    const int k = lower ? step : n - 1 - step;
    if (!unit_diagonal) {
      const Divisor<E> divisor(a[k * ld + k]);
      team.Phase([&](int thread) {
        for (int j = thread; j < cols; j += team.size()) {
          b[k * ldb + j] = divisor.Divide(b[k * ldb + j]);
        }
      });
    }
    team.Phase([&](int thread) {
      const int last = lower ? n : k;
      for (int i = (lower ? k + 1 : 0) + grid.Lane(thread); i < last; i += grid.lanes) {
        SubtractFromRow(a[i * ld + k], b + i * ldb, grid.Group(thread), cols, grid.groups,
                        [&](int j) { return b[k * ldb + j]; });
      }
    });
  }
}

// Replaces the n by n matrix by op(a).
template <class Team, class E>
LINALG_TEAM void ApplyOperation(const Team& team, int n, E* a, int ld, bool transpose,
                                bool conjugate) {
  if (!transpose && !(conjugate && kComplexElement<E>)) return;
  const Grid grid = RowGrid(team);
  const auto op = [&](E x) { return conjugate ? Conj(x) : x; };
  team.Phase([&](int thread) {
    ForEachElement(grid, thread, 0, n, 0, n, [&](int i, int j) {
      if (!transpose) {
        a[i * ld + j] = op(a[i * ld + j]);
      } else if (j <= i) {
        const E x = a[i * ld + j];
        a[i * ld + j] = op(a[j * ld + i]);
        a[j * ld + i] = op(x);
      }
    });
  });
}

}  // namespace linalg::team
