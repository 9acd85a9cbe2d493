// What the tests run of kernels/team. `teams` is a SerialTeam, or the Threads of
// tests/cuda/thread_team.h; what it runs may be run by several threads at once, and writes what
// they share in phases alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/team/cholesky.h"
#include "kernels/team/eigenvectors.h"
#include "kernels/team/eigh.h"
#include "kernels/team/hermitian.h"
#include "kernels/team/hessenberg.h"
#include "kernels/team/lu.h"
#include "kernels/team/schur.h"
#include "kernels/team/svd.h"
#include "kernels/team/triangular.h"

namespace linalg::team {

template <class Team, class E>
void Copy(const Team& team, int count, const E* from, E* to) {
  team.Phase([&](int thread) {
    for (int i = thread; i < count; i += team.size()) to[i] = from[i];
  });
}

template <class Teams, class E>
int RunCholesky(const Teams& teams, int n, E* a, int ld, bool lower, bool symmetrize) {
  return teams.Run([&](const auto& team) {
    LowerHermitianPart(team, n, a, ld, HermitianPart{lower, symmetrize});
    return Cholesky(team, n, a, ld);
  });
}

template <class Teams, class E>
int RunLu(const Teams& teams, int rows, int cols, E* a, int ld, int* pivots, int* permutation,
          int* again) {
  return teams.Run([&](const auto& team) {
    const int info = Lu(team, rows, cols, a, ld, pivots, permutation);
    PivotsToPermutation(team, rows < cols ? rows : cols, pivots, rows, again);
    return info;
  });
}

template <class Teams, class E>
int RunSolve(const Teams& teams, int n, E* a, int ld, bool lower, bool transpose, bool conjugate,
             bool unit_diagonal, int cols, E* b, int ldb, const int* pivots, bool back) {
  return teams.Run([&](const auto& team) {
    ApplyOperation(team, n, a, ld, transpose, conjugate);
    if (pivots != nullptr && !back) ApplyPivots(team, n, pivots, false, cols, b, ldb);
    Substitute(team, n, a, ld, lower != transpose, unit_diagonal, cols, b, ldb);
    if (pivots != nullptr && back) ApplyPivots(team, n, pivots, true, cols, b, ldb);
    return 0;
  });
}

// R stands in `r` before Q, of q_cols columns, takes its place in `a`. With `order`, pivoted.
template <class Teams, class E>
int RunQr(const Teams& teams, int m, int n, int q_cols, E* a, int ld, E* r, E* taus, int* order) {
  using V = RealElement<E>;
  std::vector<E> partial(teams.size());
  std::vector<V> norms(n), squares(teams.size());
  return teams.Run([&](const auto& team) {
    if (order != nullptr) {
      PivotedQr(team, m, n, a, ld, taus, partial.data(), norms.data(), squares.data(), order);
    } else {
      HouseholderQr(team, m, n, a, ld, taus, partial.data());
    }
    Copy(team, m * ld, a, r);
    HouseholderProduct(team, m, q_cols, m < n ? m : n, a, ld, taus, partial.data());
    return 0;
  });
}

template <class Teams, class E>
int RunEigh(const Teams& teams, int n, E* a, int ld, bool lower, bool symmetrize, bool vectors,
            E* v, RealElement<E>* values, int* order) {
  using V = RealElement<E>;
  std::vector<Rotation<E>> rotations(PairsOf(n));
  return teams.Run([&](const auto& team) {
    V unscale = V(1);
    const int info =
        vectors ? Jacobi<true>(team, n, {lower, symmetrize}, a, ld, v, rotations.data(), unscale)
                : Jacobi<false>(team, n, {lower, symmetrize}, a, ld, v, rotations.data(), unscale);
    if (info != 0) return info;
    SortDiagonal(team, n, a, ld, order);
    team.Phase([&](int thread) {
      for (int i = thread; i < n; i += team.size()) {
        values[i] = unscale * Re(a[order[i] * ld + order[i]]);
      }
    });
    return info;
  });
}

// H stands in `h` before the vectors take its place in `a`.
template <class Teams, class E>
int RunHessenberg(const Teams& teams, int n, E* a, int ld, E* h) {
  std::vector<E> taus(n), partial(teams.size());
  return teams.Run([&](const auto& team) {
    Hessenberg(team, n, a, ld, taus.data(), partial.data());
    Copy(team, n * ld, a, h);
    HessenbergVectors(team, n, a, ld, taus.data(), partial.data());
    return 0;
  });
}

// U takes the place of `a`, in its first `width` columns; v is n by n.
template <class Teams, class E>
int RunSvd(const Teams& teams, int m, int n, int width, bool vectors, E* a, int ld, E* v,
           RealElement<E>* values) {
  std::vector<ColumnSums<E>> sums(teams.size());
  std::vector<RealElement<E>> norms(n);
  std::vector<int> order(n);
  std::vector<E> taus(n), partial(teams.size());
  const SvdWork<E> work{
      a, ld, v, n, sums.data(), values, norms.data(), order.data(), taus.data(), partial.data()};
  return teams.Run([&](const auto& team) {
    return vectors ? JacobiSvd<true>(team, m, n, width, work)
                   : JacobiSvd<false>(team, m, n, width, work);
  });
}

// T and Z, of a matrix that is balanced first if there is a `diagonal`, and what T is to be
// multiplied by. `values` too, and with a diagonal the vectors.
template <class Teams, class E>
int RunSchur(const Teams& teams, int n, const E* a, int ld, bool vectors, E* t, E* z,
             RealElement<E>* diagonal, RealElement<E>* unscale, Complex<RealElement<E>>* values,
             Complex<RealElement<E>>* left, Complex<RealElement<E>>* right) {
  using V = RealElement<E>;
  std::vector<E> taus(n), partial(teams.size()), shifted(n * ld + 1), form(n * ld);
  std::vector<Complex<V>> x(n * ld);
  std::vector<int> places(n);
  const Balanced<V> balanced{diagonal, places.data()};
  const SchurWork<E> work{shifted.data(), form.data(), ld, taus.data(), partial.data()};
  std::copy(a, a + n * ld, work.Operand());
  return teams.Run([&](const auto& team) {
    V power = V(1);
    const int info = vectors ? Schur<true>(team, n, work, balanced, power)
                             : Schur<false>(team, n, work, balanced, power);
    if (info != 0) return info;
    const E* const made = vectors ? work.t : work.Operand();
    team.Phase([&](int thread) {
      if (thread == 0) *unscale = power;
      for (int k = thread; k < n; k += team.size()) values[k] = power * Eigenvalue(n, made, ld, k);
    });
    if (!vectors) return info;
    Copy(team, n * ld, work.t, t);
    Copy(team, n * ld, work.z, z);
    if (diagonal == nullptr) return info;
    SchurEigenvectors(team, n, t, z, ld, balanced, true, x.data(), ld, left);
    SchurEigenvectors(team, n, t, z, ld, balanced, false, x.data(), ld, right);
    return info;
  });
}

}  // namespace linalg::team
