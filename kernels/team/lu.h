// LU with partial pivoting by a team of threads, in place: right-looking, a panel of columns at a
// time. Determinants and permutations follow from it.
#pragma once

#include "kernels/arithmetic/exchange.h"
#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/scaled_product.h"
#include "kernels/arithmetic/transpose.h"
#include "kernels/team/triangular.h"

namespace linalg::team {

// A thread's share of the exchange of two rows.
template <class E>
LINALG_TEAM void ExchangeRows(int thread, int threads, int cols, E* i, E* k) {
  constexpr int kBlock = 4;
  for (int j = Again(thread); j < cols; j += kBlock * threads) {
    int col[kBlock];
    E x[kBlock], y[kBlock];
    LINALG_UNROLL
    for (int c = 0; c < kBlock; ++c) {
      // Past the row's end, a thread takes the first element again. It writes the same value to the
      // same place.
      col[c] = j + c * threads < cols ? j + c * threads : j;
      x[c] = i[col[c]], y[c] = k[col[c]];
    }
    LINALG_UNROLL
    for (int c = 0; c < kBlock; ++c) i[col[c]] = y[c], k[col[c]] = x[c];
  }
}

// The element x in row i as a candidate for pivot k. NaN is chosen on the diagonal, and nowhere
// else.
template <class E>
LINALG_TEAM Candidate<RealElement<E>> PivotCandidate(E x, int i, int k) {
  using V = RealElement<E>;
  const V size = Magnitude(x);
  return {size == size ? size : i == k ? std::numeric_limits<V>::infinity() : V(-1), i};
}

// A step of elimination within a panel: row k is subtracted from those below.
template <class E>
class Elimination {
  using V = RealElement<E>;
  static constexpr int kRight = kPanel<E> - 1;
  static constexpr int kRows = 2;

 public:
  // Takes column k and `right` columns to the right of it, from row k on.
  LINALG_TEAM Elimination(const E* a, int ld, int right, bool is_zero)
      : ld_(ld), right_(right), divisor_(is_zero ? FromReal<E>(V(1)) : a[0]) {
    LINALG_UNROLL
    for (int c = 0; c < kRight; ++c) row_[c] = c < right ? a[1 + c] : E{};
  }

  // Updates every `step`-th of the rows [i, rows), counted from k. Returns the candidate for the
  // next pivot.
  LINALG_TEAM Candidate<V> Eliminate(int i, int rows, int step, E* a) const {
    Candidate<V> largest{V(-1), rows};
    for (; i < rows; i += kRows * step) {
      // If there is no second row, the first one is taken twice.
      int row[kRows];
      LINALG_UNROLL
      for (int r = 0; r < kRows; ++r) row[r] = i + r * step < rows ? i + r * step : i;
      E left[kRows], x[kRows][kRight];
      LINALG_UNROLL
      for (int r = 0; r < kRows; ++r) {
        left[r] = a[row[r] * ld_];
        LINALG_UNROLL
        for (int c = 0; c < kRight; ++c) x[r][c] = c < right_ ? a[row[r] * ld_ + 1 + c] : E{};
      }
      LINALG_UNROLL
      for (int r = 0; r < kRows; ++r) {
        left[r] = divisor_.Divide(left[r]);
        LINALG_UNROLL
        for (int c = 0; c < kRight; ++c) x[r][c] = NegMulAdd(left[r], row_[c], x[r][c]);
        largest = largest.Better(PivotCandidate(x[r][0], row[r], 1));
      }
      LINALG_UNROLL
      for (int r = 0; r < kRows; ++r) {
        a[row[r] * ld_] = left[r];
        LINALG_UNROLL
        for (int c = 0; c < kRight; ++c) {
          if (c < right_) a[row[r] * ld_ + 1 + c] = x[r][c];
        }
      }
    }
    return largest;
  }

 private:
  int ld_, right_;
  Divisor<E> divisor_;
  E row_[kRight];
};

// Factors a matrix; pivots (min(rows, cols)) and permutation (rows) count from 0. Returns 0, the
// 1-based index of the first zero pivot, or kHoldsNaN.
template <class Team, class E>
LINALG_TEAM int Lu(const Team& team, int rows, int cols, E* a, int ld, int* pivots,
                   int* permutation) {
  using V = RealElement<E>;
  const Tiling tiling(team);
  const int count = rows < cols ? rows : cols;
  int singular = 0;
  team.Phase([&](int thread) {
    for (int i = Again(thread); i < rows; i += team.size()) permutation[i] = i;
  });
  for (int first = 0; first < count; first += kPanel<E>) {
    const int end = first + kPanel<E> < count ? first + kPanel<E> : count;
    auto best = team.template Best<V>([&](int thread) {
      Candidate<V> largest{V(-1), rows};
      for (int i = first + Again(thread); i < rows; i += team.size()) {
        largest = largest.Better(PivotCandidate(a[i * ld + first], i, first));
      }
      return largest;
    });
    for (int k = first; k < end; ++k) {
      const int pivot = best.index;
      const bool is_zero = best.value == V(0);
      if (is_zero && singular == 0) singular = k + 1;
      team.Phase([&](int thread) {
        if (thread == 0) {
          pivots[k] = pivot;
          const int row = permutation[k];
          permutation[k] = permutation[pivot];
          permutation[pivot] = row;
        }
        if (pivot != k) ExchangeRows(thread, team.size(), cols, a + pivot * ld, a + k * ld);
      });
      E* const below = a + k * (ld + 1);
      const Elimination<E> step(below, ld, end - k - 1, is_zero);
      best = team.template Best<V>([&](int thread) {
        auto largest = step.Eliminate(1 + Again(thread), rows - k, team.size(), below);
        largest.index += k;
        return largest;
      });
    }
    if (end == cols) break;
    E* const corner = a + first * (ld + 1);
    const DiagonalBlock<E> block(end - first, corner, ld, 1, true);
    team.Phase([&](int thread) {
      block.SolveColumns(thread, team.size(), end, cols, a + first * ld, ld);
    });
    const Updated<E> rest{.c = a,
                          .ld = ld,
                          .first_row = end,
                          .rows = rows,
                          .first_col = end,
                          .cols = cols,
                          .lower = false};
    const PanelFactor<E> left{.first = a + first, .stride = ld, .step = 1};
    const PanelFactor<E> right{.first = a + first * ld, .stride = 1, .step = ld};
    team.Phase([&](int thread) { Update<false>(tiling, thread, rest, left, right); });
  }
  return HasNaN(team, rows, cols, a, ld) ? kHoldsNaN : singular;
}

// Factors a contiguous matrix with LAPACK's results: column-major factors, and pivots that count
// from 1.
template <class Team, class E>
LINALG_TEAM int LuAsLapack(const Team& team, int rows, int cols, E* a, int* pivots,
                           int* permutation) {
  const int info = Lu(team, rows, cols, a, cols, pivots, permutation);
  const int count = rows < cols ? rows : cols;
  team.Phase([&](int thread) {
    for (int k = thread; k < count; k += team.size()) ++pivots[k];
  });
  if (rows == cols) {
    ApplyOperation(team, rows, a, cols, /*transpose=*/true, /*conjugate=*/false);
  } else {
    team.Phase([&](int thread) {
      if (thread == 0) Transpose(rows, cols, a);
    });
  }
  return info;
}

// The determinant of the n by n matrix `a`, which its LU factors overwrite.
template <class Team, class E>
LINALG_TEAM ScaledProduct<E> Determinant(const Team& team, int n, E* a, int ld, int* pivots,
                                         int* permutation) {
  Lu(team, n, n, a, ld, pivots, permutation);
  return ProductOfPivots(n, a, ld, pivots);
}

// Makes the order of the rows after the exchanges. An index outside the permutation is ignored.
template <class Team>
LINALG_TEAM void PivotsToPermutation(const Team& team, int count, const int* pivots, int size,
                                     int* permutation) {
  team.Phase([&](int thread) {
    for (int i = thread; i < size; i += team.size()) permutation[i] = i;
  });
  team.Phase([&](int thread) {
    if (thread != 0) return;
    ForEachExchange(count, pivots, size, /*back=*/false,
                    [&](int k, int i) { std::swap(permutation[k], permutation[i]); });
  });
}

// Exchanges the rows of b (n, cols) in the order of the pivots, or back.
template <class Team, class E>
LINALG_TEAM void ApplyPivots(const Team& team, int n, const int* pivots, bool back, int cols, E* b,
                             int ldb) {
  team.Phase([&](int thread) {
    for (int j = thread; j < cols; j += team.size()) {
      linalg::ExchangeRows(n, pivots, 1, b + j, ldb, back);
    }
  });
}

}  // namespace linalg::team
