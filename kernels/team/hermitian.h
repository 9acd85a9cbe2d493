// The Hermitian part of an operand by a team of threads.
#pragma once

#include "kernels/arithmetic/hermitian.h"
#include "kernels/team/team.h"

namespace linalg::team {

// Replaces the lower triangle by that of the Hermitian part.
template <class Team, class E>
LINALG_TEAM void LowerHermitianPart(const Team& team, int n, E* a, int ld, HermitianPart part) {
  const Grid grid = RowGrid(team);
  team.Phase([&](int thread) {
    ForEachElement(grid, thread, 0, n, 0, n, [&](int i, int j) {
      if (j <= i) a[i * ld + j] = part.At(i, j, [&](int k, int l) { return a[k * ld + l]; });
    });
  });
}

}  // namespace linalg::team
