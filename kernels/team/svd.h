// Singular values and vectors by a team of threads: one-sided Jacobi (Hestenes, 1958).
//
// Rotations of pairs of columns make the columns of W = A V orthogonal. The pairs of a round of a
// tournament are rotated at a time. The norms of the columns are the singular values. The columns
// divided by their norms are U. Matrices are scaled by a power of two to a norm near 1. Reflectors
// complete the U of a rank-deficient or rectangular matrix to an orthonormal basis.
#pragma once

#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/jacobi.h"
#include "kernels/arithmetic/rotation.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/team/largest.h"
#include "kernels/team/qr.h"
#include "kernels/team/tournament.h"

namespace linalg::team {

// A thread's part of pᴴ p, qᴴ q and pᴴ q of two columns.
template <class E>
struct ColumnSums {
  RealElement<E> first, second;
  E product;
};

// The workspace of JacobiSvd, for an m by n matrix, m >= n.
template <class E>
struct SvdWork {
  using V = RealElement<E>;
  E* a;  // the matrix, then U; rows are `ld` apart
  int ld;
  E* v;  // n by n, rows `ldv` apart, if vectors are wanted
  int ldv;
  ColumnSums<E>* sums;  // one for each thread
  V* values;            // n
  V* norms;             // n
  int* order;           // n
  E* taus;              // n, if vectors are wanted
  E* partial;           // one for each thread, if vectors are wanted
};

// Columns of a smaller norm have no direction, in a matrix of norm 1.
template <class V>
LINALG_TEAM bool IsNull(V norm) {
  return !(norm * norm > JacobiRange<V>::kNull);
}

// The rotation that makes two columns orthogonal, given their sums. No rotation is returned if they
// already are.
template <class E>
LINALG_TEAM JacobiRotation<E> OrthogonalRotation(ColumnSums<E> sums, RealElement<E> tolerance) {
  using V = RealElement<E>;
  using Range = JacobiRange<V>;
  const bool swap = sums.second > sums.first;
  const V larger = swap ? sums.second : sums.first, smaller = swap ? sums.first : sums.second;
  if (!(smaller > Range::kNull)) return {};
  const V scale = larger < Range::kShort ? V(1) / larger : V(1);
  const V negligible = tolerance * Sqrt((scale * larger) * (scale * smaller));
  return MakeJacobiRotation(scale * sums.first, scale * sums.second, scale * sums.product,
                            negligible);
}

// Makes the columns of `a` orthogonal. If kVectors is true, also rotates those of v. Returns
// whether the last sweep found nothing to rotate.
template <bool kVectors, class Team, class E>
LINALG_TEAM bool OrthogonaliseColumns(const Team& team, int m, int n, const SvdWork<E>& work) {
  using V = RealElement<E>;
  const int pairs = PairsOf(n), rounds = RoundsOf(n);
  const Grid grid(team.size(), pairs);
  const V tolerance = JacobiTolerance<V>(m);
  E* const a = work.a;
  const int ld = work.ld;
  bool turned = true;
  for (int sweep = 0; turned && sweep < kJacobiSweeps; ++sweep) {
    turned = false;
    for (int round = 0; round < rounds; ++round) {
      for (int first = 0; first < pairs; first += grid.width) {
        team.Phase([&](int thread) {
          const auto [i, j] = Pair(n, round, first + grid.Across(thread));
          if (first + grid.Across(thread) >= pairs || j >= n) return;
          ColumnSums<E> sums{};
          for (int k = grid.Group(thread); k < m; k += grid.groups) {
            const E p = a[k * ld + i], q = a[k * ld + j];
            sums.first = NormAdd(p, sums.first);
            sums.second = NormAdd(q, sums.second);
            sums.product = NegMulAdd(-Conj(p), q, sums.product);
          }
          work.sums[thread] = sums;
        });
        turned |= team.Any([&](int thread) {
          const int across = grid.Across(thread);
          const auto [i, j] = Pair(n, round, first + across);
          if (first + across >= pairs || j >= n) return false;
          ColumnSums<E> sums = work.sums[across];
          for (int g = 1; g < grid.groups; ++g) {
            const ColumnSums<E> other = work.sums[g * grid.width + across];
            sums.first = sums.first + other.first;
            sums.second = sums.second + other.second;
            sums.product = sums.product + other.product;
          }
          const JacobiRotation<E> rotation = OrthogonalRotation(sums, tolerance);
          if (rotation.sine == V(0)) return false;
          const E phase = Conj(rotation.phase);
          const auto rotate = [&](int rows, E* x, int stride) {
            for (int k = grid.Group(thread); k < rows; k += grid.groups) {
              E p = x[k * stride + i], q = Mul(phase, x[k * stride + j]);
              Rotate(rotation.cosine, rotation.sine, p, q);
              x[k * stride + i] = p;
              x[k * stride + j] = q;
            }
          };
          rotate(m, a, ld);
          if constexpr (kVectors) rotate(n, work.v, work.ldv);
          return true;
        });
      }
    }
  }
  return !turned;
}

// row[k] = row[order[k]], cycle by cycle.
template <class E>
LINALG_TEAM void PermuteRow(int n, const int* order, E* row) {
  for (int start = 0; start < n; ++start) {
    int k = order[start];
    while (k > start) k = order[k];
    if (k < start) continue;  // this cycle is done
    const E first = row[start];
    int to = start;
    for (int from = order[to]; from != start; to = from, from = order[to]) row[to] = row[from];
    row[to] = first;
  }
}

// Replaces unit columns by `width` orthonormal ones. Columns from `rank` on are zero before; those
// before it are unchanged up to rounding.
template <class Team, class E>
LINALG_TEAM void CompleteColumns(const Team& team, int m, int n, int width, int rank,
                                 const SvdWork<E>& work) {
  using V = RealElement<E>;
  E* const a = work.a;
  const int ld = work.ld;
  // R of orthonormal columns is diagonal, with signs as elements.
  HouseholderQr(team, m, n, a, ld, work.taus, work.partial);
  team.Phase([&](int thread) {
    for (int j = thread; j < rank; j += team.size()) {
      work.norms[j] = CopySign(V(1), Re(a[j * ld + j]));
    }
  });
  HouseholderProduct(team, m, width, n, a, ld, work.taus, work.partial);
  team.Phase([&](int thread) {
    for (int i = thread; i < m; i += team.size()) {
      for (int j = 0; j < rank; ++j) a[i * ld + j] = work.norms[j] * a[i * ld + j];
    }
  });
}

// Computes the singular values of work.a in work.values, descending. If kVectors is true, also
// computes the first `width` columns of U in work.a, n <= width <= m, and V in work.v. Returns 0,
// -1 for a matrix that is not finite, or 1 if it did not converge.
template <bool kVectors, class Team, class E>
LINALG_TEAM int JacobiSvd(const Team& team, int m, int n, int width, const SvdWork<E>& work) {
  using V = RealElement<E>;
  using Range = JacobiRange<V>;
  E* const a = work.a;
  const int ld = work.ld;
  const V largest = LargestComponent<V>(team, m * n, [&](int e) { return a[e / n * ld + e % n]; });
  if (!IsFinite(largest)) return kNotFinite;
  V unscale;
  const V scale = PowerOfTwoScale(largest, unscale);
  const Grid rows = RowGrid(team);
  team.Phase([&](int thread) {
    ForEachElement(rows, thread, 0, m, 0, n,
                   [&](int i, int j) { a[i * ld + j] = scale * a[i * ld + j]; });
    if constexpr (kVectors) {
      ForEachElement(rows, thread, 0, n, 0, n,
                     [&](int i, int j) { work.v[i * work.ldv + j] = FromReal<E>(V(i == j)); });
    }
  });
  if (!OrthogonaliseColumns<kVectors>(team, m, n, work)) return 1;
  team.Phase([&](int thread) {
    for (int j = thread; j < n; j += team.size()) {
      V square{}, raised{};
      for (int i = 0; i < m; ++i) {
        square = NormAdd(a[i * ld + j], square);
        raised = NormAdd(Range::kUp * a[i * ld + j], raised);
      }
      work.norms[j] = square > Range::kNull ? Sqrt(square) : V(1) / Range::kUp * Sqrt(raised);
    }
  });
  team.Phase([&](int thread) {
    for (int j = thread; j < n; j += team.size()) {
      const V norm = work.norms[j];
      int place = 0;
      for (int k = 0; k < n; ++k) {
        const V other = work.norms[k];
        place += other > norm || (other == norm && k < j);
      }
      work.order[place] = j;
      work.values[place] = norm;
    }
  });
  if constexpr (kVectors) {
    int rank = n;
    while (rank > 0 && IsNull(work.values[rank - 1])) --rank;
    team.Phase([&](int thread) {
      for (int j = thread; j < n; j += team.size()) {
        work.norms[j] = j < rank ? V(1) / work.values[j] : V(0);
      }
    });
    team.Phase([&](int thread) {
      for (int i = thread; i < m; i += team.size()) {
        PermuteRow(n, work.order, a + i * ld);
        for (int j = 0; j < n; ++j) a[i * ld + j] = work.norms[j] * a[i * ld + j];
      }
      for (int i = thread; i < n; i += team.size())
        PermuteRow(n, work.order, work.v + i * work.ldv);
    });
    if (rank < n || n < width) CompleteColumns(team, m, n, width, rank, work);
  }
  team.Phase([&](int thread) {
    for (int j = thread; j < n; j += team.size()) work.values[j] = unscale * work.values[j];
  });
  return 0;
}

// Gives elements of U and V of m by n matrices. They are NaN where info is not 0.
template <class E>
struct SvdOutcome {
  Outcome<E> u, v;
  int info;
};

// Extends JacobiSvd to m by n matrices of any shape. work.a holds a tall matrix itself, and the
// adjoint of a wide one. `width` is the number of columns of the longer factor. Singular values are
// NaN where info is not 0.
template <bool kVectors, class Team, class E>
LINALG_TEAM SvdOutcome<E> Svd(const Team& team, int m, int n, int width, const SvdWork<E>& work) {
  const bool tall = m >= n;
  const int values = tall ? n : m;
  const int info = JacobiSvd<kVectors>(team, tall ? m : n, values, width, work);
  if (info != 0) {
    team.Phase([&](int thread) {
      for (int k = thread; k < values; k += team.size()) work.values[k] = NaN<RealElement<E>>();
    });
  }
  const Outcome<E> longer{.a = work.a, .ld = work.ld, .info = info},
      shorter{.a = work.v, .ld = work.ldv, .info = info};
  return {.u = tall ? longer : shorter, .v = tall ? shorter : longer, .info = info};
}

}  // namespace linalg::team
