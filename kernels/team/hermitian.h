// The Hermitian part of an operand by a team of threads.
#pragma once

#include "kernels/arithmetic/hermitian.h"
#include "kernels/team/team.h"

namespace linalg::team {

// Replaces the lower triangle by that of the Hermitian part.
template <class Team, class E>
LINALG_TEAM void LowerHermitianPart(const Team& team, int n, E* a, int ld, HermitianPart part) {
  // The lower triangle is there already, except for the diagonal's imaginary parts.
  const bool diagonal_alone = part.lower && !part.symmetrize;
  if (diagonal_alone && !kComplexElement<E>) return;
  const Grid grid = RowGrid(team);
  const auto get = [&](int k, int l) { return a[k * ld + l]; };
  team.Phase([&](int thread) {
    for (int i = grid.Across(thread); i < n; i += grid.width) {
      const int first = diagonal_alone ? i : 0;
      // A few at a time, so that no load waits for an unrelated store.
      constexpr int kBlock = 4;
      for (int j = first + grid.Group(thread); j <= i; j += kBlock * grid.groups) {
        E x[kBlock];
        LINALG_UNROLL
        for (int c = 0; c < kBlock; ++c) {
          const int col = j + c * grid.groups;
          x[c] = col <= i ? part.At(i, col, get) : E{};
        }
        LINALG_UNROLL
        for (int c = 0; c < kBlock; ++c) {
          const int col = j + c * grid.groups;
          if (col <= i) a[i * ld + col] = x[c];
        }
      }
    }
  });
}

}  // namespace linalg::team
