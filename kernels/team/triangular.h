// Substitution by a team of threads: solves for a panel of rows, then subtracts its part from all
// later rows.
#pragma once

#include "kernels/arithmetic/divisor.h"
#include "kernels/team/update.h"

namespace linalg::team {

// A diagonal block of a triangle in substitution. Its row 0 and column 0 are the triangle's first
// ones, or its last ones, from which it goes backward. The block has `count` of kPanel rows.
template <class E>
class DiagonalBlock {
  static constexpr int kSize = kPanel<E>;

 public:
  // `a` is the element in row 0 and column 0; `step` is 1, or backward -1.
  LINALG_TEAM DiagonalBlock(int count, const E* a, int ld, int step, bool unit_diagonal)
      : count_(count), a_(a), ld_(ld), step_(step), unit_diagonal_(unit_diagonal) {}

  // Solves kCols systems, where x[i][j] is row i of the j-th. Missing rows are 0.
  template <int kCols>
  LINALG_TEAM void Solve(E (&x)[kSize][kCols]) const {
    const int ld = Again(ld_), step = Again(step_);
    LINALG_UNROLL
    for (int c = 0; c < kSize; ++c) {
      if (!unit_diagonal_ && c < count_) {
        const Divisor<E> divisor(a_[step * c * (ld + 1)]);
        LINALG_UNROLL
        for (int j = 0; j < kCols; ++j) x[c][j] = divisor.Divide(x[c][j]);
      }
      LINALG_UNROLL
      for (int r = c + 1; r < kSize; ++r) {
        const E left = r < count_ ? a_[step * (r * ld + c)] : E{};
        LINALG_UNROLL
        for (int j = 0; j < kCols; ++j) x[r][j] = NegMulAdd(left, x[c][j], x[r][j]);
      }
    }
  }

  // Solves in place for columns [first_col, cols) of b, given row 0 of b.
  LINALG_TEAM void SolveColumns(int thread, int threads, int first_col, int cols, E* b,
                                int ldb) const {
    constexpr int kCols = sizeof(E) > 4 ? 1 : 2;  // as many as fit in registers
    for (int j0 = first_col + Again(thread); j0 < cols; j0 += kCols * threads) {
      // Threads past the last column take the first one again.
      int col[kCols];
      LINALG_UNROLL
      for (int j = 0; j < kCols; ++j) col[j] = j0 + j * threads < cols ? j0 + j * threads : j0;
      const int down = step_ * Again(ldb);
      E x[kSize][kCols];
      LINALG_UNROLL
      for (int r = 0; r < kSize; ++r) {
        LINALG_UNROLL
        for (int j = 0; j < kCols; ++j) x[r][j] = r < count_ ? b[r * down + col[j]] : E{};
      }
      Solve(x);
      LINALG_UNROLL
      for (int r = 0; r < kSize; ++r) {
        LINALG_UNROLL
        for (int j = 0; j < kCols; ++j) {
          if (r < count_) b[r * down + col[j]] = x[r][j];
        }
      }
    }
  }

 private:
  int count_;
  const E* a_;
  int ld_, step_;
  bool unit_diagonal_;
};

// One column. Every thread solves for the rows of the panel, rather than wait for one that does,
// and updates rows of its own.
template <class Team, class E>
LINALG_TEAM void SubstituteVector(const Team& team, int n, const E* a, int ld, bool lower,
                                  bool unit_diagonal, E* b, int ldb) {
  constexpr int kSize = kPanel<E>;
  for (int done = 0; done < n; done += kSize) {
    const int step = Again(lower ? 1 : -1);
    const int first = lower ? done : n - 1 - done;
    const int left = n - done, count = left < kSize ? left : kSize;
    E* const panel = b + first * ldb;
    E x[kSize][1];
    LINALG_UNROLL
    for (int r = 0; r < kSize; ++r) x[r][0] = r < count ? panel[step * r * ldb] : E{};
    DiagonalBlock<E>(count, a + first * (ld + 1), ld, step, unit_diagonal).Solve(x);
    team.Phase([&](int thread) {
      for (int i = count + Again(thread); i < left; i += team.size()) {
        const E* const row = a + (first + step * i) * ld + first;
        E y = panel[step * i * ldb];
        LINALG_UNROLL
        for (int k = 0; k < kSize; ++k) y = NegMulAdd(row[step * k], x[k][0], y);
        panel[step * i * ldb] = y;
      }
    });
    // This is a phase of its own, because in the one before another thread may still read them.
    team.Phase([&](int thread) {
      if (thread != 0) return;
      LINALG_UNROLL
      for (int r = 0; r < kSize; ++r) {
        if (r < count) panel[step * r * ldb] = x[r][0];
      }
    });
  }
}

// Solves for several columns. After k rows are solved, only the first width(k) columns are not 0.
template <class Team, class E, class Width>
LINALG_TEAM void SubstitutePanels(const Team& team, int n, const E* a, int ld, bool lower,
                                  bool unit_diagonal, Width&& width, E* b, int ldb) {
  const Tiling tiling(team);
  for (int done = 0; done < n; done += kPanel<E>) {
    const int step = Again(lower ? 1 : -1);
    const int first = lower ? done : n - 1 - done;
    const int left = n - done, count = left < kPanel<E> ? left : kPanel<E>;
    const int cols = width(done + count);
    const DiagonalBlock<E> block(count, a + first * (ld + 1), ld, step, unit_diagonal);
    team.Phase([&](int thread) {
      block.SolveColumns(thread, team.size(), 0, cols, b + first * ldb, ldb);
    });
    const int first_row = lower ? done + count : 0, rows = lower ? n : left - count;
    const Updated<E> rest{.c = b,
                          .ld = ldb,
                          .first_row = first_row,
                          .rows = rows,
                          .first_col = 0,
                          .cols = cols,
                          .lower = false};
    const PanelFactor<E> triangle{.first = a + first, .stride = ld, .step = step};
    const PanelFactor<E> solution{.first = b + first * ldb, .stride = 1, .step = step * ldb};
    team.Phase([&](int thread) { Update<false>(tiling, thread, rest, triangle, solution); });
  }
}

// b (n, cols) = L⁻¹ b with the lower triangle of `a`, or U⁻¹ b with the upper one.
template <class Team, class E>
LINALG_TEAM void Substitute(const Team& team, int n, const E* a, int ld, bool lower,
                            bool unit_diagonal, int cols, E* b, int ldb) {
  if (cols == 1) return SubstituteVector(team, n, a, ld, lower, unit_diagonal, b, ldb);
  SubstitutePanels(team, n, a, ld, lower, unit_diagonal, [=](int) { return cols; }, b, ldb);
}

// Replaces the n by n matrix by op(a).
template <class Team, class E>
LINALG_TEAM void ApplyOperation(const Team& team, int n, E* a, int ld, bool transpose,
                                bool conjugate) {
  if (!transpose && !(conjugate && kComplexElement<E>)) return;
  const Grid grid = RowGrid(team);
  const auto op = [&](E x) { return conjugate ? Conj(x) : x; };
  team.Phase([&](int thread) {
    ForEachElement(grid, Again(thread), 0, n, 0, n, [&](int i, int j) {
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
