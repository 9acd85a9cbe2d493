// The drivers of cholesky.h, lu.h, solve.h and of determinants, for threads of a warp.
//
// Each thread holds kRows rows or columns of a matrix of at most kSize rows and columns. Results
// have the same bits.
#pragma once

#include "kernels/arithmetic/scaled_product.h"
#include "kernels/team/rows.h"

namespace linalg::team {

template <int kRows, int kSize, class Team, class E>
LINALG_TEAM TriangularFactor<E> CholeskyFactorByRows(const Team& team, int n, E* a, int ld,
                                                     HermitianPart part) {
  RowCholesky<Team, E, kRows, kSize> rows(team, n, a, ld, part);
  return {.a = a, .ld = ld, .lower = part.lower, .info = rows.Factor()};
}

// Packed LU factors whose rows are stored in another order.
template <class E>
struct RowsElsewhere {
  const E* a;
  int ld;
  const int* rows;
  int info;

  LINALG_INLINE E operator()(int i, int j) const { return a[rows[i] * ld + j]; }
};

template <int kRows, int kSize, class Team, class E>
LINALG_TEAM RowsElsewhere<E> LuByRows(const Team& team, int rows, int cols, E* a, int ld,
                                      int* pivots, int* permutation) {
  RowLu<Team, E, kRows, kSize> lu(team, rows, cols, a, ld);
  const int info = lu.Factor(permutation, [&](int k, int place, E) {
    team.Each([&](int thread) {
      if (thread == 0) pivots[k] = place;
    });
  });
  return {a, ld, permutation, info};
}

// Every thread returns the determinant.
template <int kRows, int kSize, class Team, class E>
LINALG_TEAM ScaledProduct<E> DeterminantByRows(const Team& team, int n, E* a, int ld,
                                               int* permutation) {
  RowLu<Team, E, kRows, kSize> lu(team, n, n, a, ld);
  ScaledProduct<E> det;
  lu.Factor(permutation,
            [&](int k, int place, E pivot) { det.Multiply(place == k ? pivot : -pivot); });
  return det;
}

// Solves A x = b for one right-hand side. A thread calls put(i, x), with NaN where a pivot is 0 or
// NaN. Returns LU's info.
template <int kRows, int kSize, class Team, class E, class Rhs, class Put>
LINALG_TEAM int SolveByRows(const Team& team, int n, E* a, int ld, int* permutation, Rhs&& b,
                            Put&& put) {
  RowLu<Team, E, kRows, kSize, true> lu(team, n, n, a, ld, b);
  const int info = lu.Factor(permutation, [](int, int, E) {});
  lu.SolveUpper(permutation, [&](int i, E x) { put(i, info != 0 ? NaN<E>() : x); });
  return info;
}

// Solves for several right-hand sides, whose elements are b(i, j): put(i, j, x). `work` holds n
// rows of as many columns as the team holds. Every thread calls on_pivot as in RowLu::Factor, and
// factored(RowsElsewhere) when the factors are complete.
template <int kColumns, int kSize, class Team, class E, class OnPivot, class Factored, class Rhs,
          class Put>
LINALG_TEAM int SolveByColumns(const Team& team, int n, E* a, int ld, int* permutation,
                               OnPivot&& on_pivot, Factored&& factored, Divisor<E>* divisors,
                               E* work, int cols, Rhs&& b, Put&& put) {
  RowLu<Team, E, kColumns, kSize> lu(team, n, n, a, ld);
  const int info = lu.Factor(permutation, on_pivot);
  factored(RowsElsewhere<E>{a, ld, permutation, info});
  lu.TransposeFactors(divisors);
  ColumnSolve<Team, E, kColumns, kSize> solve(team, n, a, ld, divisors, work);
  solve.Solve(
      cols, [&](int i, int j) { return b(permutation[i], j); },
      [&](int i, int j, E x) { put(i, j, info != 0 ? NaN<E>() : x); });
  return info;
}

// The first `cols` columns of the inverse: put(i, j, x).
template <int kColumns, int kSize, class Team, class E, class Put>
LINALG_TEAM int InverseByColumns(const Team& team, int n, E* a, int ld, int* permutation,
                                 Divisor<E>* divisors, E* work, int cols, Put&& put) {
  const auto identity = [](int i, int j) { return FromReal<E>(RealElement<E>(i == j)); };
  return SolveByColumns<kColumns, kSize>(
      team, n, a, ld, permutation, [](int, int, E) {}, [](const RowsElsewhere<E>&) {}, divisors,
      work, cols, identity, put);
}

}  // namespace linalg::team
