// Derivatives of singular values and vectors of square matrices A = U diag(s) Vᴴ by a team of
// threads. The formulas are in kernels/small/svd_derivative.h.
#pragma once

#include "kernels/arithmetic/reciprocal_gaps.h"
#include "kernels/team/product.h"

namespace linalg::team {

// Matrices are n by n, with rows `ld` apart. s has n elements.
template <class E>
struct SvdDerivativeWork {
  const RealElement<E>* s;
  const E *u, *vh;
  E *x, *y;
  int ld;
};

// work.x holds dA and is overwritten. A thread calls set_s(i, ds), set_u(i, j, dU) and set_vh(i, j,
// dVᴴ). It may call the last two twice.
template <class Team, class E, class SetS, class SetU, class SetVh>
LINALG_TEAM void SvdJvp(const Team& team, int n, const SvdDerivativeWork<E>& work, SetS&& set_s,
                        SetU&& set_u, SetVh&& set_vh) {
  using V = RealElement<E>;
  E *const x = work.x, *const y = work.y;
  const E *const u = work.u, *const vh = work.vh;
  const int ld = work.ld;
  Product<E>(
      team, n, [=](int i, int k) { return x[i * ld + k]; },
      [=](int k, int j) { return Conj(vh[j * ld + k]); },
      [=](int i, int j, E z) { y[i * ld + j] = z; });
  Product<E>(
      team, n, [=](int i, int k) { return Conj(u[k * ld + i]); },
      [=](int k, int j) { return y[k * ld + j]; }, [=](int i, int j, E z) { x[i * ld + j] = z; });
  // Computes U's rotation in `y` and minus V's rotation in `x` from P in `x`.
  const ReciprocalGaps<V> gaps(n, work.s);
  const Grid grid = RowGrid(team);
  team.Phase([&](int thread) {
    ForEachElement(grid, thread, 0, n, 0, n, [&](int i, int j) {
      if (j > i) return;
      const E p = x[i * ld + j], other = Conj(x[j * ld + i]);
      if (i == j) set_s(i, Re(p));
      const E together = V(0.5) * gaps(i, j) * (p + other);
      const E apart = V(0.5) * gaps.OfSum(i, j) * (p - other);
      // Both rotations are skew-Hermitian.
      y[j * ld + i] = -Conj(together + apart);
      y[i * ld + j] = together + apart;
      x[j * ld + i] = Conj(together - apart);
      x[i * ld + j] = apart - together;
    });
  });
  Product<E>(
      team, n, [=](int i, int k) { return u[i * ld + k]; },
      [=](int k, int j) { return y[k * ld + j]; }, set_u);
  Product<E>(
      team, n, [=](int i, int k) { return x[i * ld + k]; },
      [=](int k, int j) { return vh[k * ld + j]; }, set_vh);
}

// work.x and work.y hold the cotangents of U and Vᴴ and are overwritten. s_ct (n) is the cotangent
// of s. z is a workspace of n by n. A thread calls set(i, j, A's cotangent), and may call it twice.
template <class Team, class E, class Set>
LINALG_TEAM void SvdVjp(const Team& team, int n, const SvdDerivativeWork<E>& work,
                        const RealElement<E>* s_ct, E* z, Set&& set) {
  using V = RealElement<E>;
  E *const x = work.x, *const y = work.y;
  const E *const u = work.u, *const vh = work.vh;
  const int ld = work.ld;
  // Uᴴ and Vᴴ times the gradients, which are conjugates of cotangents.
  Product<E>(
      team, n, [=](int i, int k) { return Conj(u[k * ld + i]); },
      [=](int k, int j) { return Conj(x[k * ld + j]); },
      [=](int i, int j, E w) { z[i * ld + j] = w; });
  Product<E>(
      team, n, [=](int i, int k) { return vh[i * ld + k]; },
      [=](int k, int j) { return y[j * ld + k]; }, [=](int i, int j, E w) { x[i * ld + j] = w; });
  const ReciprocalGaps<V> gaps(n, work.s);
  const Grid grid = RowGrid(team);
  team.Phase([&](int thread) {
    ForEachElement(grid, thread, 0, n, 0, n, [&](int i, int j) {
      if (j > i) return;
      const E of_u = z[i * ld + j] - Conj(z[j * ld + i]);
      const E of_v = x[i * ld + j] - Conj(x[j * ld + i]);
      const E together = V(0.5) * gaps(i, j) * (of_u + of_v);
      const E apart = V(0.5) * gaps.OfSum(i, j) * (of_u - of_v);
      z[j * ld + i] = Conj(together - apart);
      z[i * ld + j] = together + apart + FromReal<E>(i == j ? s_ct[i] : V(0));
    });
  });
  Product<E>(
      team, n, [=](int i, int k) { return z[i * ld + k]; },
      [=](int k, int j) { return vh[k * ld + j]; }, [=](int i, int j, E w) { y[i * ld + j] = w; });
  Product<E>(
      team, n, [=](int i, int k) { return u[i * ld + k]; },
      [=](int k, int j) { return y[k * ld + j]; }, [=](int i, int j, E w) { set(i, j, Conj(w)); });
}

}  // namespace linalg::team
