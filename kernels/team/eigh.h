// Eigenvalues and eigenvectors of Hermitian matrices by a team of threads: Jacobi's method with the
// two-sided rotations of a round-robin tournament, n / 2 at a time (Golub and Van Loan, Matrix
// Computations, 4th ed., 8.5). Matrices are scaled by a power of two to a norm near 1.
#pragma once

#include "kernels/arithmetic/hermitian.h"
#include "kernels/arithmetic/rotation.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/team/hermitian.h"
#include "kernels/team/largest.h"

namespace linalg::team {

// Sweeps over all pairs; five to ten are usual.
inline constexpr int kJacobiSweeps = 40;

// The two that meet at table `pair` in round `round`, i < j; j is n where one of an odd number
// rests.
struct Pair {
  int i, j;

  LINALG_INLINE Pair(int n, int round, int pair) {
    const int seats = n + n % 2;  // seat 0 stays, the others move on
    const auto player = [&](int seat) {
      return seat == 0 ? 0 : 1 + (seat - 1 + round) % (seats - 1);
    };
    const int x = player(pair), y = player(seats - 1 - pair);
    i = x < y ? x : y;
    j = x < y ? y : x;
  }
};

LINALG_INLINE int PairsOf(int n) { return (n + 1) / 2; }

// Diagonalises the Hermitian part of `a`, whose diagonal becomes the eigenvalues, not sorted; the
// columns of v, if wanted (kVectors), their vectors. `rotations` has PairsOf(n) elements. Returns
// 0, -1 for a matrix that is not finite, or 1 if it did not converge.
template <bool kVectors, class Team, class E>
LINALG_TEAM int Jacobi(const Team& team, int n, HermitianPart part, E* a, int ld, E* v,
                       Rotation<E>* rotations, RealElement<E>& unscale) {
  using V = RealElement<E>;
  const Grid grid = RowGrid(team);
  LowerHermitianPart(team, n, a, ld, part);
  const V largest = LargestPart<V>(team, n * n, [&](int e) {
    const int i = e / n, j = e % n;
    return j > i ? E{} : a[i * ld + j];
  });
  if (largest == std::numeric_limits<V>::infinity()) return -1;
  const V scale = PowerOfTwoScale(largest, unscale);
  team.Phase([&](int thread) {
    ForEachElement(grid, thread, 0, n, 0, n, [&](int i, int j) {
      if constexpr (kVectors) v[i * ld + j] = FromReal<E>(V(i == j));
      if (j > i) return;
      const E x = scale * a[i * ld + j];
      a[i * ld + j] = x;
      if (j < i) a[j * ld + i] = Conj(x);
    });
  });
  // Relative to the norm, as every error of the method.
  const V negligible = std::numeric_limits<V>::epsilon() / V(4);
  const int pairs = PairsOf(n), rounds = n + n % 2 - 1;
  for (int sweep = 0; sweep < kJacobiSweeps; ++sweep) {
    const bool open = team.Any([&](int thread) {
      bool found = false;
      ForEachElement(grid, thread, 0, n, 0, n, [&](int i, int j) {
        if (j < i) found |= Magnitude(a[i * ld + j]) > V(2) * negligible;
      });
      return found;
    });
    if (!open) return 0;
    for (int round = 0; round < rounds; ++round) {
      team.Phase([&](int thread) {
        for (int p = thread; p < pairs; p += team.size()) {
          const auto [i, j] = Pair(n, round, p);
          if (j >= n) continue;
          rotations[p] =
              MakeRotation(Re(a[i * ld + i]), Re(a[j * ld + j]), a[i * ld + j], negligible);
        }
      });
      team.Phase([&](int thread) {  // rows
        for (int p = grid.Group(thread); p < pairs; p += grid.groups) {
          const auto [i, j] = Pair(n, round, p);
          if (j >= n) continue;
          const Rotation<E> rotation = rotations[p];
          if (rotation.sine == V(0)) continue;
          for (int k = grid.Lane(thread); k < n; k += grid.lanes) {
            E x = a[i * ld + k], y = Mul(rotation.phase, a[j * ld + k]);
            Rotate(rotation.cosine, rotation.sine, x, y);
            a[i * ld + k] = x;
            a[j * ld + k] = y;
          }
        }
      });
      team.Phase([&](int thread) {  // columns
        for (int p = grid.Group(thread); p < pairs; p += grid.groups) {
          const auto [i, j] = Pair(n, round, p);
          if (j >= n) continue;
          const Rotation<E> rotation = rotations[p];
          if (rotation.sine == V(0)) continue;
          const E phase = Conj(rotation.phase);
          for (int k = grid.Lane(thread); k < n; k += grid.lanes) {
            E x = a[k * ld + i], y = Mul(phase, a[k * ld + j]);
            Rotate(rotation.cosine, rotation.sine, x, y);
            a[k * ld + i] = k == j ? E{} : k == i ? FromReal<E>(Re(x)) : x;
            a[k * ld + j] = k == i ? E{} : k == j ? FromReal<E>(Re(y)) : y;
            if constexpr (kVectors) {
              x = v[k * ld + i], y = Mul(phase, v[k * ld + j]);
              Rotate(rotation.cosine, rotation.sine, x, y);
              v[k * ld + i] = x;
              v[k * ld + j] = y;
            }
          }
        }
      });
    }
  }
  return 1;
}

// order[r] = the place on the diagonal of the eigenvalue that comes at r in ascending order.
template <class Team, class E>
LINALG_TEAM void SortDiagonal(const Team& team, int n, const E* a, int ld, int* order) {
  team.Phase([&](int thread) {
    for (int i = thread; i < n; i += team.size()) {
      const RealElement<E> w = Re(a[i * ld + i]);
      int rank = 0;
      for (int j = 0; j < n; ++j) {
        const RealElement<E> other = Re(a[j * ld + j]);
        rank += other < w || (other == w && j < i);
      }
      order[rank] = i;
    }
  });
}

// What EigenHermitian works in.
template <class E>
struct EighWork {
  E* a;  // n by n; the operand
  int ld;
  E* v;                    // n by n, if vectors are wanted
  Rotation<E>* rotations;  // PairsOf(n)
  int* order;              // n
};

// Eigenvectors, column by column in the order of the eigenvalues.
template <class E>
struct Eigenvectors {
  const E* v;
  int ld;
  const int* order;
  int info;

  LINALG_INLINE E operator()(int i, int j) const {
    return info != 0 ? NaN<E>() : v[i * ld + order[j]];
  }
};

// Eigenvalues of the Hermitian part of work.a in `values`, ascending, and with kVectors their
// vectors; NaN where info is not 0. It is that of Jacobi.
template <bool kVectors, class Team, class E>
LINALG_TEAM Eigenvectors<E> EigenHermitian(const Team& team, int n, HermitianPart part,
                                           const EighWork<E>& work, RealElement<E>* values) {
  using V = RealElement<E>;
  V unscale = V(1);
  const int info =
      Jacobi<kVectors>(team, n, part, work.a, work.ld, work.v, work.rotations, unscale);
  if (info == 0) SortDiagonal(team, n, work.a, work.ld, work.order);
  team.Phase([&](int thread) {
    for (int k = thread; k < n; k += team.size()) {
      const int i = info != 0 ? 0 : work.order[k];
      values[k] = info != 0 ? NaN<V>() : unscale * Re(work.a[i * work.ld + i]);
    }
  });
  return {work.v, work.ld, work.order, info};
}

}  // namespace linalg::team
