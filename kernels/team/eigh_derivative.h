// Derivatives of eigenvalues and eigenvectors of Hermitian matrices A = V diag(w) Vᴴ by a team of
// threads. The formulas are in kernels/small/eigh_derivative.h.
#pragma once

#include "kernels/arithmetic/reciprocal_gaps.h"
#include "kernels/team/hermitian.h"
#include "kernels/team/product.h"

namespace linalg::team {

// n by n each, rows `ld` apart.
template <class E>
struct EighDerivativeWork {
  const RealElement<E>* w;  // n
  const E* v;
  E *x, *y;
  int ld;
};

// work.x holds dA and is overwritten. work.y becomes dV; a thread calls set(i, dw).
template <class Team, class E, class Set>
LINALG_TEAM void EighJvp(const Team& team, int n, const EighDerivativeWork<E>& work,
                         HermitianPart part, Set&& set) {
  E *const x = work.x, *const y = work.y;
  const E* const v = work.v;
  const int ld = work.ld;
  LowerHermitianPart(team, n, x, ld, part);
  Product<E>(
      team, n, [=](int i, int k) { return k <= i ? x[i * ld + k] : Conj(x[k * ld + i]); },
      [=](int k, int j) { return v[k * ld + j]; }, [=](int i, int j, E z) { y[i * ld + j] = z; });
  const ReciprocalGaps<RealElement<E>> f(n, work.w);
  // F ∘ C, where C = Vᴴ dA V
  Product<E>(
      team, n, [=](int i, int k) { return Conj(v[k * ld + i]); },
      [=](int k, int j) { return y[k * ld + j]; },
      [&](int i, int j, E c) {
        if (i == j) set(i, Re(c));
        x[i * ld + j] = i == j ? E{} : f(i, j) * c;
      });
  Product<E>(
      team, n, [=](int i, int k) { return v[i * ld + k]; },
      [=](int k, int j) { return x[k * ld + j]; }, [=](int i, int j, E z) { y[i * ld + j] = z; });
}

// The cotangent of A, element by element, from the lower triangle left in `a`. Entries below the
// diagonal count twice if A is a function of its lower triangle only.
template <class E>
struct HermitianCotangent {
  const E* a;
  int ld;
  HermitianPart part;

  LINALG_INLINE E operator()(int i, int j) const {
    if (i == j) return FromReal<E>(Re(a[i * ld + i]));
    if (!part.Reads(i, j)) return E{};
    const E entry = i > j ? Conj(a[i * ld + j]) : a[j * ld + i];
    return part.symmetrize ? entry : entry + entry;
  }
};

// work.x holds the cotangent of V and is overwritten. w_ct (n) is that of w.
template <class Team, class E>
LINALG_TEAM HermitianCotangent<E> EighVjp(const Team& team, int n,
                                          const EighDerivativeWork<E>& work, HermitianPart part,
                                          const RealElement<E>* w_ct) {
  using V = RealElement<E>;
  E *const x = work.x, *const y = work.y;
  const E* const v = work.v;
  const int ld = work.ld;
  Product<E>(
      team, n, [=](int i, int k) { return Conj(v[k * ld + i]); },
      [=](int k, int j) { return Conj(x[k * ld + j]); },
      [=](int i, int j, E z) { y[i * ld + j] = z; });
  // Computes the Hermitian part of F ∘ that product, and the cotangent of w.
  const ReciprocalGaps<V> f(n, work.w);
  const Grid grid = RowGrid(team);
  team.Phase([&](int thread) {
    ForEachElement(grid, thread, 0, n, 0, n, [&](int i, int j) {
      if (i == j) y[i * ld + i] = FromReal<E>(w_ct[i]);
      if (j >= i) return;
      const E below = V(0.5) * f(i, j) * (y[i * ld + j] - Conj(y[j * ld + i]));
      y[i * ld + j] = below;
      y[j * ld + i] = Conj(below);
    });
  });
  Product<E>(
      team, n, [=](int i, int k) { return y[i * ld + k]; },
      [=](int k, int j) { return Conj(v[j * ld + k]); },
      [=](int i, int j, E z) { x[i * ld + j] = z; });
  Product<E>(
      team, n, [=](int i, int k) { return v[i * ld + k]; },
      [=](int k, int j) { return x[k * ld + j]; }, [=](int i, int j, E z) { y[i * ld + j] = z; });
  return {.a = y, .ld = ld, .part = part};
}

}  // namespace linalg::team
