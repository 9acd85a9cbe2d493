// QR by Householder reflectors by a team of threads, in place, with LAPACK's conventions: plain,
// with column pivoting, and the product of the reflectors.
//
// A reflector is H = I - tau v vᴴ. v's first element is 1, and the others are below the diagonal.
// The threads that hold a column's rows sum its product with v; each then changes its own rows.
#pragma once

#include "kernels/arithmetic/norm.h"
#include "kernels/arithmetic/reflector.h"
#include "kernels/team/team.h"

namespace linalg::team {

// Makes the reflector of column k, in place; returns tau.
template <class Team, class E>
LINALG_TEAM E MakeReflector(const Team& team, int m, E* a, int ld, int k) {
  using V = RealElement<E>;
  const E alpha = a[k * ld + k];
  const auto tail_squares = [&](V scale) {
    return team.template Sum<V>([&](int thread) {
      V sum{};
      for (int i = k + 1 + thread; i < m; i += team.size()) {
        sum = NormAdd(scale * a[i * ld + k], sum);
      }
      return sum;
    });
  };
  V scale = V(1), unscale = V(1);
  V tail = tail_squares(scale), total = NormAdd(alpha, tail);
  bool nothing = false;
  if (SquareScale<V>::IsNeeded(total) || tail == V(0)) {
    const SquareScale<V> range(total);
    scale = range.scale;
    unscale = range.unscale;
    nothing = !team.Any([&](int thread) {
      bool something = false;
      for (int i = k + 1 + thread; i < m; i += team.size()) {
        something |= Magnitude(a[i * ld + k]) != V(0);
      }
      return something;
    });
    if constexpr (kComplexElement<E>) nothing = nothing && alpha.im == V(0);
    tail = tail_squares(scale);
    total = NormAdd(scale * alpha, tail);
  }
  const E head = scale * alpha;
  const V beta = ReflectedHead(head, total);
  ReflectorScale<E> made(head, beta);
  if (nothing) made.tau = made.inverse = E{};
  team.Phase([&](int thread) {
    if (thread == 0) a[k * ld + k] = FromReal<E>(unscale * (nothing ? Re(head) : beta));
    for (int i = k + 1 + thread; i < m; i += team.size()) {
      a[i * ld + k] = Mul(made.inverse, scale * a[i * ld + k]);
    }
  });
  return made.tau;
}

// Multiplies columns [first, last), from row k on, by I - tau v vᴴ, where v is column k. They are
// at most as many as the grid is wide. If kNewRow is true, their row k counts as zero. `partial`
// has an element for each thread. changed(thread, squares) gets the sum of squares of the thread's
// new elements below row k.
template <bool kNewRow, class Team, class E, class Changed>
LINALG_TEAM void ReflectBlock(const Team& team, Grid grid, int m, int first, int last, E* a, int ld,
                              int k, E tau, E* partial, Changed&& changed) {
  team.Phase([&](int thread) {
    const int j = first + grid.Across(thread);
    if (j >= last) return;
    E sum{};
    if (!kNewRow && grid.Group(thread) == 0) sum = a[k * ld + j];
    for (int i = k + 1 + grid.Group(thread); i < m; i += grid.groups) {
      sum = NegMulAdd(-Conj(a[i * ld + k]), a[i * ld + j], sum);
    }
    partial[thread] = sum;
  });
  team.Phase([&](int thread) {
    const int across = grid.Across(thread), j = first + across;
    if (j >= last) return;
    E sum = partial[across];
    for (int g = 1; g < grid.groups; ++g) sum = sum + partial[g * grid.width + across];
    sum = Mul(tau, sum);
    if (grid.Group(thread) == 0) a[k * ld + j] = (kNewRow ? E{} : a[k * ld + j]) - sum;
    RealElement<E> squares{};
    constexpr int kBlock = 4;
    int i = k + 1 + grid.Group(thread);
    for (; i + (kBlock - 1) * grid.groups < m; i += kBlock * grid.groups) {
      E x[kBlock];
      for (int c = 0; c < kBlock; ++c) {
        const int row = (i + c * grid.groups) * ld;
        x[c] = NegMulAdd(a[row + k], sum, a[row + j]);
      }
      for (int c = 0; c < kBlock; ++c) {
        a[(i + c * grid.groups) * ld + j] = x[c];
        squares = NormAdd(x[c], squares);
      }
    }
    for (; i < m; i += grid.groups) {
      const E x = NegMulAdd(a[i * ld + k], sum, a[i * ld + j]);
      a[i * ld + j] = x;
      squares = NormAdd(x, squares);
    }
    changed(thread, squares);
  });
}

// Multiplies all columns [k + 1, cols).
template <bool kNewRow, class Team, class E>
LINALG_TEAM void Reflect(const Team& team, Grid grid, int m, int cols, E* a, int ld, int k, E tau,
                         E* partial) {
  for (int first = k + 1; first < cols; first += grid.width) {
    const int last = first + grid.width < cols ? first + grid.width : cols;
    ReflectBlock<kNewRow>(team, grid, m, first, last, a, ld, k, tau, partial,
                          [](int, RealElement<E>) {});
  }
}

// Replaces the m by n matrix by R, with the reflectors below it.
template <class Team, class E>
LINALG_TEAM void HouseholderQr(const Team& team, int m, int n, E* a, int ld, E* taus, E* partial) {
  const int count = m < n ? m : n;
  const Grid grid(team.size(), n);
  for (int k = 0; k < count; ++k) {
    const E tau = MakeReflector(team, m, a, ld, k);
    Reflect<false>(team, grid, m, n, a, ld, k, Conj(tau), partial);
    team.Phase([&](int thread) {
      if (thread == 0) taus[k] = tau;
    });
  }
}

// Replaces `count` reflectors by the first `cols` columns of their product; count <= cols <= m.
template <class Team, class E>
LINALG_TEAM void HouseholderProduct(const Team& team, int m, int cols, int count, E* a, int ld,
                                    const E* taus, E* partial) {
  using V = RealElement<E>;
  const Grid grid(team.size(), cols);
  team.Phase([&](int thread) {
    for (int j = count + grid.Across(thread); j < cols; j += grid.width) {
      for (int i = grid.Group(thread); i < m; i += grid.groups) {
        a[i * ld + j] = FromReal<E>(V(i == j));
      }
    }
  });
  for (int k = count - 1; k >= 0; --k) {
    const E tau = taus[k];
    Reflect<true>(team, grid, m, cols, a, ld, k, tau, partial);
    team.Phase([&](int thread) {
      for (int i = thread; i < m; i += team.size()) {
        E& x = a[i * ld + k];
        x = i < k ? E{} : i == k ? FromReal<E>(V(1)) - tau : NegMulAdd(tau, x, E{});
      }
    });
  }
}

// The norm of a column from row `first` on, given its sum of squares.
template <class E>
LINALG_TEAM RealElement<E> ColumnNorm(int first, int m, const E* column, int ld,
                                      RealElement<E> squares) {
  using V = RealElement<E>;
  if (!SquareScale<V>::IsNeeded(squares)) return Sqrt(squares);
  const SquareScale<V> range(squares);
  V sum{};
  for (int i = first; i < m; ++i) sum = NormAdd(range.scale * column[i * ld], sum);
  return range.unscale * Sqrt(sum);
}

// HouseholderQr with column pivoting: each step moves the column of the largest remaining norm to
// the front. `order` (n) receives the columns' original indices. `norms` has n elements, `squares`
// one for each thread. Each step sums the norms anew, from the elements that the threads have just
// computed.
template <class Team, class E>
LINALG_TEAM void PivotedQr(const Team& team, int m, int n, E* a, int ld, E* taus, E* partial,
                           RealElement<E>* norms, RealElement<E>* squares, int* order) {
  using V = RealElement<E>;
  const int count = m < n ? m : n;
  const Grid grid(team.size(), n);
  team.Phase([&](int thread) {
    for (int j = thread; j < n; j += team.size()) {
      V sum{};
      for (int i = 0; i < m; ++i) sum = NormAdd(a[i * ld + j], sum);
      norms[j] = ColumnNorm(0, m, a + j, ld, sum);
      order[j] = j;
    }
  });
  for (int k = 0; k < count; ++k) {
    const auto best = team.template Best<V>([&](int thread) {
      Candidate<V> largest{V(-1), n};
      for (int j = k + thread; j < n; j += team.size()) {
        const V norm = norms[j];
        largest = largest.Better({norm == norm ? norm : std::numeric_limits<V>::infinity(), j});
      }
      return largest;
    });
    const int pivot = best.index;
    if (pivot != k) {
      team.Phase([&](int thread) {
        if (thread == 0) {
          norms[pivot] = norms[k];
          const int column = order[k];
          order[k] = order[pivot];
          order[pivot] = column;
        }
        for (int i = thread; i < m; i += team.size()) {
          const E x = a[i * ld + k];
          a[i * ld + k] = a[i * ld + pivot];
          a[i * ld + pivot] = x;
        }
      });
    }
    const E tau = MakeReflector(team, m, a, ld, k);
    for (int first = k + 1; first < n; first += grid.width) {
      const int last = first + grid.width < n ? first + grid.width : n;
      ReflectBlock<false>(team, grid, m, first, last, a, ld, k, Conj(tau), partial,
                          [&](int thread, V sum) { squares[thread] = sum; });
      team.Phase([&](int thread) {
        const int j = first + grid.Across(thread);
        if (grid.Group(thread) != 0 || j >= last) return;
        V sum = squares[grid.Across(thread)];
        for (int g = 1; g < grid.groups; ++g) sum += squares[g * grid.width + grid.Across(thread)];
        norms[j] = ColumnNorm(k + 1, m, a + j, ld, sum);
      });
    }
    team.Phase([&](int thread) {
      if (thread == 0) taus[k] = tau;
    });
  }
}

// The workspace of Qr.
template <class E>
struct QrWork {
  E* taus;                  // min(m, n)
  E* partial;               // one for each thread
  RealElement<E>* norms;    // n, if there are pivots
  RealElement<E>* squares;  // one for each thread, if there are pivots
};

// Replaces the m by n matrix `a` by R and `count` reflectors, with an `order` (n) by columns of
// decreasing norm if that is given. If `factored`, the reflectors are given, below the diagonal of
// `a`. Then take() may read them before the first q_cols columns of their product take their place.
template <class Team, class E, class Take>
LINALG_TEAM void Qr(const Team& team, int m, int n, int count, bool factored, int* order,
                    int q_cols, E* a, int ld, const QrWork<E>& work, Take&& take) {
  if (!factored && order == nullptr) {
    HouseholderQr(team, m, n, a, ld, work.taus, work.partial);
  } else if (!factored) {
    PivotedQr(team, m, n, a, ld, work.taus, work.partial, work.norms, work.squares, order);
  }
  take();
  if (q_cols > 0) HouseholderProduct(team, m, q_cols, count, a, ld, work.taus, work.partial);
}

}  // namespace linalg::team
