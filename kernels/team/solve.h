// Solutions of linear systems by a team of threads, with given factors or by factoring the matrix.
//
// The factors take the place of the matrix, the solution that of the right-hand sides: an n by
// `cols` matrix whose rows are `ldb` apart.
#pragma once

#include "kernels/arithmetic/triangle.h"
#include "kernels/team/lu.h"

namespace linalg::team {

// The steps of a solution by substitution: one or two passes.
struct Passes {
  int count;
  SubstitutionPass first, second = {};
  // Exchanges of rows: of b before the first pass or, with `back`, of x after the last one.
  const int* pivots = nullptr;
  bool back = false;
};

LINALG_INLINE Passes PassesWith(const TwoTriangles& triangles) {
  return {.count = 2,
          .first = PassWith(triangles.first),
          .second = PassAfter(triangles.first, triangles.second)};
}

LINALG_INLINE Passes TriangularPasses(const Triangle& triangle) {
  return {.count = 1, .first = PassWith(triangle)};
}

LINALG_INLINE Passes CholeskyPasses(bool lower) { return PassesWith(CholeskyTriangles(lower)); }

// `pivots` may be null if b's rows have been exchanged already.
LINALG_INLINE Passes LuPasses(const int* pivots, bool transpose, bool conjugate) {
  Passes passes = PassesWith(LuTriangles(transpose, conjugate, /*column_major=*/false));
  passes.pivots = pivots;
  passes.back = transpose;
  return passes;
}

template <class Team, class E>
LINALG_TEAM void SolveInPasses(const Team& team, const Passes& passes, int n, E* a, int ld,
                               int cols, E* b, int ldb) {
  const int* const pivots = passes.pivots;
  if (pivots != nullptr && !passes.back) ApplyPivots(team, n, pivots, false, cols, b, ldb);
  for (int i = 0; i < passes.count; ++i) {
    const SubstitutionPass pass = i == 0 ? passes.first : passes.second;
    ApplyOperation(team, n, a, ld, pass.transpose, pass.conjugate);
    Substitute(team, n, a, ld, pass.lower, pass.unit_diagonal, cols, b, ldb);
  }
  if (pivots != nullptr && passes.back) ApplyPivots(team, n, pivots, true, cols, b, ldb);
}

// Solves A x = b, where b(i, j) are the elements of b. If the matrix is singular or its factors
// hold NaN, x is all NaN: substitution would leave entries finite that meet no NaN.
template <class Team, class E, class Rhs>
LINALG_TEAM Outcome<E> Solve(const Team& team, int n, E* a, int ld, int* pivots, int* permutation,
                             int cols, Rhs&& b, E* x, int ldx) {
  const int info = Lu(team, n, n, a, ld, pivots, permutation);
  Move<E>(
      team, n, cols, [&](int i, int j) { return b(permutation[i], j); },
      [&](int i, int j, E y) { x[i * ldx + j] = y; });
  SolveInPasses(team, LuPasses(nullptr, false, false), n, a, ld, cols, x, ldx);
  return {.a = x, .ld = ldx, .info = info};
}

// A matrix whose columns are stored in another order.
template <class E>
struct ColumnsElsewhere {
  Outcome<E> outcome;
  const int* columns;
  int info;

  LINALG_INLINE E operator()(int i, int j) const { return outcome(i, columns[j]); }
};

// c A⁻¹ = (c U⁻¹ L⁻¹) P from LU factors, whose `info` is given. `inverse` receives the factor in
// parentheses, and `pivots` its columns' order.
template <class Team, class E>
LINALG_TEAM ColumnsElsewhere<E> InverseOfFactors(const Team& team, int n, const E* a, int ld,
                                                 int info, int* pivots, const int* permutation, E c,
                                                 E* inverse, int ld_inverse) {
  const Grid grid = RowGrid(team);
  team.Phase([&](int thread) {
    for (int i = thread; i < n; i += team.size()) pivots[permutation[i]] = i;
    ForEachElement(grid, thread, 0, n, 0, n,
                   [&](int i, int j) { inverse[i * ld_inverse + j] = i == j ? c : E{}; });
  });
  // L⁻¹ is lower triangular.
  for (int pass = 0; pass < 2; ++pass) {
    const bool lower = pass == 0;
    const auto width = [=](int solved) { return lower ? solved : n; };
    SubstitutePanels(team, n, a, ld, lower, lower, width, inverse, ld_inverse);
  }
  return {{.a = inverse, .ld = ld_inverse, .info = info}, pivots, info};
}

// A⁻¹ from A, which its factors overwrite.
template <class Team, class E>
LINALG_TEAM ColumnsElsewhere<E> Inverse(const Team& team, int n, E* a, int ld, int* pivots,
                                        int* permutation, E* inverse, int ld_inverse) {
  const int info = Lu(team, n, n, a, ld, pivots, permutation);
  const E one = FromReal<E>(RealElement<E>(1));
  return InverseOfFactors(team, n, a, ld, info, pivots, permutation, one, inverse, ld_inverse);
}

}  // namespace linalg::team
