// QR of a panel by a team of threads: a few columns, of as many rows as shared memory holds. The
// product of the panel's n reflectors is H = I - U Vᴴ, where V has their vectors as columns, and
// U = V T. T is upper triangular. So Hᴴ A = A - V (Uᴴ A) and H A = A - U (Vᴴ A) are matrix products
// (Bischof and Van Loan, SIAM J. Sci. Stat. Comput. 8, 1987; Schreiber and Van Loan, 10, 1989).
#pragma once

#include "kernels/arithmetic/norm.h"
#include "kernels/arithmetic/reflector.h"
#include "kernels/team/team.h"

namespace linalg::team {

// The workspace of a panel of n columns.
template <class E>
struct PanelWork {
  E* taus;                  // n
  E* inverses;              // n: the factor that makes v of a column below the diagonal
  E* partial;               // one for each thread
  RealElement<E>* squares;  // one for each thread
  E* t;                     // n by n, rows `ldt` apart
  int ldt;
};

// Products of v, column k times `inverse` below the diagonal, with other columns from `first` to
// `last`: each thread's share goes to work.partial.
template <class Team, class E>
LINALG_TEAM void PanelProducts(const Team& team, Grid grid, int m, int first, int last, const E* a,
                               int ld, int k, E inverse, const PanelWork<E>& work) {
  team.Phase([&](int thread) {
    const int j = grid.Across(thread);
    if (j < first || j >= last || j == k) return;
    E sum = grid.Group(thread) == 0 ? a[k * ld + j] : E{};
    LINALG_UNROLL_BY(4)
    for (int i = k + 1 + grid.Group(thread); i < m; i += grid.groups) {
      sum = ConjMulAdd(Mul(inverse, a[i * ld + k]), a[i * ld + j], sum);
    }
    work.partial[thread] = sum;
  });
}

template <class E>
LINALG_TEAM E PanelSum(Grid grid, int thread, const E* partial) {
  E sum = partial[grid.Across(thread)];
  for (int g = 1; g < grid.groups; ++g) sum = sum + partial[g * grid.width + grid.Across(thread)];
  return sum;
}

// Column k of a reflected panel. Elements below the diagonal are v once they are multiplied by
// `inverse`.
template <class E>
struct PanelColumn {
  E tau, inverse;
  RealElement<E> diagonal;
};

// The reflector of column k. work.squares has the sums of its elements' squares below the diagonal.
template <class Team, class E>
LINALG_TEAM PanelColumn<E> ReflectedColumn(const Team& team, Grid grid, int m, E* a, int ld, int k,
                                           const PanelWork<E>& work) {
  using V = RealElement<E>;
  E alpha = a[k * ld + k];
  V tail = work.squares[k];
  for (int g = 1; g < grid.groups; ++g) tail += work.squares[g * grid.width + k];
  V total = NormAdd(alpha, tail), unscale = V(1);
  bool nothing = false;
  if (SquareScale<V>::IsNeeded(total) || tail == V(0)) {
    const SquareScale<V> range(total);
    unscale = range.unscale;
    nothing = !team.Any([&](int thread) {
      bool something = false;
      for (int i = k + 1 + thread; i < m; i += team.size()) {
        something |= Magnitude(a[i * ld + k]) != V(0);
      }
      return something;
    });
    if constexpr (kComplexElement<E>) nothing = nothing && alpha.im == V(0);
    tail = team.template Sum<V>([&](int thread) {
      V sum{};
      for (int i = k + 1 + thread; i < m; i += team.size()) {
        E& x = a[i * ld + k];
        x = range.scale * x;
        sum = NormAdd(x, sum);
      }
      return sum;
    });
    alpha = range.scale * alpha;
    total = NormAdd(alpha, tail);
  }
  const V beta = ReflectedHead(alpha, total);
  const ReflectorScale<E> made(alpha, beta);
  if (nothing) return {.tau = E{}, .inverse = E{}, .diagonal = unscale * Re(alpha)};
  return {.tau = made.tau, .inverse = made.inverse, .diagonal = unscale * beta};
}

// Writes T from work.taus and from the products of the reflectors' vectors, which are below its
// diagonal. Row j needs its own elements and the products alone.
template <class Team, class E>
LINALG_TEAM void PanelTriangle(const Team& team, int n, const PanelWork<E>& work) {
  team.Phase([&](int thread) {
    for (int j = thread; j < n; j += team.size()) {
      E* const row = work.t + j * work.ldt;
      row[j] = work.taus[j];
      for (int k = j + 1; k < n; ++k) {
        const E* const products = work.t + k * work.ldt;
        E sum{};
        for (int l = j; l < k; ++l) sum = NegMulAdd(row[l], products[l], sum);
        row[k] = Mul(work.taus[k], sum);
      }
    }
  });
}

// Replaces the m by n panel, m >= n, by R with the reflectors below it, and writes taus and T.
template <class Team, class E>
LINALG_TEAM void FactorPanel(const Team& team, int m, int n, E* a, int ld,
                             const PanelWork<E>& work) {
  using V = RealElement<E>;
  const Grid grid(team.size(), n);
  team.Phase([&](int thread) {
    if (grid.Across(thread) != 0) return;
    V squares{};
    for (int i = 1 + grid.Group(thread); i < m; i += grid.groups) {
      squares = NormAdd(a[i * ld], squares);
    }
    work.squares[thread] = squares;
  });
  // Column k keeps its elements until the end, so two barriers a column are enough.
  for (int k = 0; k < n; ++k) {
    const PanelColumn<E> column = ReflectedColumn(team, grid, m, a, ld, k, work);
    PanelProducts(team, grid, m, 0, n, a, ld, k, column.inverse, work);
    team.Phase([&](int thread) {
      const int j = grid.Across(thread);
      const bool first = grid.Group(thread) == 0;
      if (j == k && first) {
        a[k * ld + k] = FromReal<E>(column.diagonal);
        work.taus[k] = column.tau;
        work.inverses[k] = column.inverse;
      }
      if (j < k && first) {
        const E product = PanelSum(grid, thread, work.partial);
        work.t[k * work.ldt + j] = Conj(Mul(work.inverses[j], product));
      }
      if (j <= k || j >= n) return;
      const E sum = Mul(Conj(column.tau), PanelSum(grid, thread, work.partial));
      if (first) a[k * ld + j] = a[k * ld + j] - sum;
      V squares{};
      int i = k + 1 + grid.Group(thread);
      const auto change = [&](int row) {
        E& x = a[row * ld + j];
        x = NegMulAdd(Mul(column.inverse, a[row * ld + k]), sum, x);
        return x;
      };
      // The next column's norm lacks its first element.
      if (i == k + 1 && i < m) {
        change(i);
        i += grid.groups;
      }
      LINALG_UNROLL_BY(4)
      for (; i < m; i += grid.groups) squares = NormAdd(change(i), squares);
      work.squares[thread] = squares;
    });
  }
  // T does not depend on this.
  team.Each([&](int thread) {
    const int k = grid.Across(thread);
    if (k >= n) return;
    const E inverse = work.inverses[k];
    for (int i = k + 1 + grid.Group(thread); i < m; i += grid.groups) {
      a[i * ld + k] = Mul(inverse, a[i * ld + k]);
    }
  });
  PanelTriangle(team, n, work);
}

// Writes T of reflectors that are given below the diagonal, with their work.taus.
template <class Team, class E>
LINALG_TEAM void GivenPanel(const Team& team, int m, int n, const E* a, int ld,
                            const PanelWork<E>& work) {
  const Grid grid(team.size(), n);
  const E one = FromReal<E>(RealElement<E>(1));
  for (int k = 1; k < n; ++k) {
    PanelProducts(team, grid, m, 0, k, a, ld, k, one, work);
    team.Phase([&](int thread) {
      const int j = grid.Across(thread);
      if (j >= k || grid.Group(thread) != 0) return;
      work.t[k * work.ldt + j] = Conj(PanelSum(grid, thread, work.partial));
    });
  }
  PanelTriangle(team, n, work);
}

// V's element (i, j).
template <class E>
LINALG_TEAM E PanelVector(const E* a, int ld, int i, int j) {
  if (i > j) return a[i * ld + j];
  return FromReal<E>(RealElement<E>(i == j));
}

// put(i, j, V's element, U's element) for every element of both.
template <class Team, class E, class Put>
LINALG_TEAM void StorePanel(const Team& team, int m, int n, const E* a, int ld,
                            const PanelWork<E>& work, Put&& put) {
  constexpr int kRows = 4;
  const Grid grid(team.size(), n);
  team.Phase([&](int thread) {
    const int j = grid.Across(thread);
    if (j >= n) return;
    for (int first = grid.Group(thread); first < m; first += kRows * grid.groups) {
      int row[kRows];
      E sum[kRows];
      LINALG_UNROLL
      for (int r = 0; r < kRows; ++r) {
        row[r] = first + r * grid.groups < m ? first + r * grid.groups : first;
        sum[r] = E{};
      }
      // V has neither ones nor zeros there.
      if (first >= n) {
        for (int l = 0; l <= j; ++l) {
          const E t = work.t[l * work.ldt + j];
          LINALG_UNROLL
          for (int r = 0; r < kRows; ++r) sum[r] = NegMulAdd(-a[row[r] * ld + l], t, sum[r]);
        }
      } else {
        for (int l = 0; l <= j; ++l) {
          const E t = work.t[l * work.ldt + j];
          LINALG_UNROLL
          for (int r = 0; r < kRows; ++r) {
            sum[r] = NegMulAdd(-PanelVector(a, ld, row[r], l), t, sum[r]);
          }
        }
      }
      LINALG_UNROLL
      for (int r = 0; r < kRows; ++r) put(row[r], j, PanelVector(a, ld, row[r], j), sum[r]);
    }
  });
}

}  // namespace linalg::team
