// Solutions of linear systems by a team of threads: with given factors, and by factors that are
// made on the way. What is solved with takes the place of the matrix, the solution that of the
// right-hand sides, an n by `cols` matrix whose rows are `ldb` apart.
#pragma once

#include "kernels/arithmetic/triangle.h"
#include "kernels/team/lu.h"
#include "kernels/team/triangular.h"

namespace linalg::team {

// op(A) x = b with a triangle of A; where that is x op(A) = b, `b` holds bᵀ.
template <class Team, class E>
LINALG_TEAM void TriangularSolve(const Team& team, const Triangle& triangle, int n, E* a, int ld,
                                 int cols, E* b, int ldb) {
  ApplyOperation(team, n, a, ld, triangle.Transposes(), triangle.conjugate);
  Substitute(team, n, a, ld, triangle.Forward(), triangle.unit_diagonal, cols, b, ldb);
}

// A x = b with A = L Lᴴ, given L, or Lᴴ if not `lower`.
template <class Team, class E>
LINALG_TEAM void CholeskySolve(const Team& team, int n, E* factor, int ld, bool lower, int cols,
                               E* b, int ldb) {
  if (!lower) ApplyOperation(team, n, factor, ld, true, true);
  Substitute(team, n, factor, ld, true, false, cols, b, ldb);
  ApplyOperation(team, n, factor, ld, true, true);
  Substitute(team, n, factor, ld, false, false, cols, b, ldb);
}

// op(A) x = b with A = Pᵀ L U, given its factors and pivots.
template <class Team, class E>
LINALG_TEAM void LuSolve(const Team& team, int n, E* lu, int ld, const int* pivots, bool transpose,
                         bool conjugate, int cols, E* b, int ldb) {
  ApplyOperation(team, n, lu, ld, transpose, conjugate);
  if (!transpose) ApplyPivots(team, n, pivots, false, cols, b, ldb);
  Substitute(team, n, lu, ld, true, !transpose, cols, b, ldb);
  Substitute(team, n, lu, ld, false, transpose, cols, b, ldb);
  if (transpose) ApplyPivots(team, n, pivots, true, cols, b, ldb);
}

// A x = b, b(i, j) being the elements of b. x is NaN throughout where the matrix is singular or its
// factors hold NaN: substitution would leave those entries finite that do not meet one.
template <class Team, class E, class Rhs>
LINALG_TEAM Outcome<E> Solve(const Team& team, int n, E* a, int ld, int* pivots, int* permutation,
                             int cols, Rhs&& b, E* x, int ldx) {
  const int info = Lu(team, n, n, a, ld, pivots, permutation);
  team.Phase([&](int thread) {
    for (int e = thread; e < n * cols; e += team.size()) {
      const int i = e / cols, j = e % cols;
      x[i * ldx + j] = b(permutation[i], j);
    }
  });
  Substitute(team, n, a, ld, true, true, cols, x, ldx);
  Substitute(team, n, a, ld, false, false, cols, x, ldx);
  return {x, ldx, info};
}

template <class Team, class E>
LINALG_TEAM Outcome<E> Inverse(const Team& team, int n, E* a, int ld, int* pivots, int* permutation,
                               E* inverse, int ld_inverse) {
  const auto identity = [](int i, int j) { return FromReal<E>(RealElement<E>(i == j)); };
  return Solve(team, n, a, ld, pivots, permutation, n, identity, inverse, ld_inverse);
}

}  // namespace linalg::team
