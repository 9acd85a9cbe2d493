// Hessenberg form by Householder reflectors by a team of threads, with LAPACK's conventions: A = Q
// H Qᴴ. The reflectors leave the first row unchanged, and H's subdiagonal is real.
//
// Without its first row, A is reduced like the triangular form of kernels/team/qr.h. Each reflector
// is applied from the right too.
#pragma once

#include "kernels/team/qr.h"

namespace linalg::team {

// Multiplies columns [k + 1, n) by I - tau v vᴴ from the right. v is column k from row k + 1 on,
// and its first element is 1. `partial` has an element for each thread.
template <class Team, class E>
LINALG_TEAM void ReflectFromRight(const Team& team, int n, E* a, int ld, int k, E tau, E* partial) {
  const Grid grid(team.size(), n);
  const auto v = [&](int j) { return j == k + 1 ? FromReal<E>(RealElement<E>(1)) : a[j * ld + k]; };
  for (int first = 0; first < n; first += grid.width) {
    team.Phase([&](int thread) {
      const int i = first + grid.Across(thread);
      if (i >= n) return;
      E sum{};
      for (int j = k + 1 + grid.Group(thread); j < n; j += grid.groups) {
        sum = NegMulAdd(-a[i * ld + j], v(j), sum);
      }
      partial[thread] = sum;
    });
    team.Phase([&](int thread) {
      const int across = grid.Across(thread), i = first + across;
      if (i >= n) return;
      E sum = partial[across];
      for (int g = 1; g < grid.groups; ++g) sum = sum + partial[g * grid.width + across];
      sum = Mul(tau, sum);
      for (int j = k + 1 + grid.Group(thread); j < n; j += grid.groups) {
        a[i * ld + j] = NegMulAdd(sum, Conj(v(j)), a[i * ld + j]);
      }
    });
  }
}

// Replaces the n by n matrix by H, with the reflectors below it; taus has n - 1 elements.
template <class Team, class E>
LINALG_TEAM void Hessenberg(const Team& team, int n, E* a, int ld, E* taus, E* partial) {
  const Grid grid(team.size(), n);
  E* const below = a + ld;
  for (int k = 0; k + 1 < n; ++k) {
    const E tau = MakeReflector(team, n - 1, below, ld, k);
    ReflectFromRight(team, n, a, ld, k, tau, partial);
    Reflect<false>(team, grid, n - 1, n, below, ld, k, Conj(tau), partial);
    team.Phase([&](int thread) {
      if (thread == 0) taus[k] = tau;
    });
  }
}

// Replaces the reflectors by Q, one row down. Q's first row and column are the identity's and are
// left out.
template <class Team, class E>
LINALG_TEAM void HessenbergVectors(const Team& team, int n, E* a, int ld, const E* taus,
                                   E* partial) {
  HouseholderProduct(team, n - 1, n - 1, n - 1, a + ld, ld, taus, partial);
}

// H as Hessenberg leaves it in `a`, without the reflectors.
template <class E>
struct HessenbergForm {
  const E* a;
  int ld;

  LINALG_INLINE E operator()(int i, int j) const { return i > j + 1 ? E{} : a[i * ld + j]; }
};

// Q as HessenbergVectors leaves it in `a`.
template <class E>
struct HessenbergBasis {
  const E* a;
  int ld;

  LINALG_INLINE E operator()(int i, int j) const {
    return i == 0 || j == 0 ? FromReal<E>(RealElement<E>(i == j)) : a[i * ld + j - 1];
  }
};

}  // namespace linalg::team
