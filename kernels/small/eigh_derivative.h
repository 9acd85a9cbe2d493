// Derivatives of eigenvalues and eigenvectors of small Hermitian matrices A = V diag(w) Vᴴ, one per
// lane. They are the tangents for dA, and the cotangent of A for those of w and V.
//
// C = Vᴴ dA V gives dw = diag C and dV = V (F ∘ C), where F are ReciprocalGaps. Source: Giles,
// Collected matrix derivative results for forward and reverse mode algorithmic differentiation
// (2008), 3.1. All row-major n by n operands are overwritten; `work` is a workspace of that size.
#pragma once

#include "kernels/arithmetic/hermitian.h"
#include "kernels/arithmetic/reciprocal_gaps.h"
#include "kernels/small/hermitian.h"
#include "kernels/small/mul_sub.h"
#include "kernels/small/triangular.h"

namespace linalg::small {

// x: dA; dw (n): := that of w; work: := dV.
template <class E>
LINALG_INLINE void EighJvp(int n, const RealElement<E>* w, E* v, HermitianPart part, E* x,
                           RealElement<E>* dw, E* work) {
  LowerHermitianPart(x, n, part);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < i; ++j) x[j * n + i] = Conj(x[i * n + j]);
  }
  NegativeProduct(n, x, v, work);
  AdjointSquare(n, v);
  NegativeProduct(n, v, work, x);  // C
  const ReciprocalGaps<RealElement<E>> f(n, w);
  for (int i = 0; i < n; ++i) {
    dw[i] = Re(x[i * n + i]);
    x[i * n + i] = E{};
    for (int j = 0; j < i; ++j) {
      const RealElement<E> below = f(i, j);
      x[i * n + j] = -below * x[i * n + j];
      x[j * n + i] = below * x[j * n + i];
    }
  }
  AdjointSquare(n, v);
  NegativeProduct(n, v, x, work);
}

// x: V's cotangent := A's; w_ct (n): that of w.
template <class E>
LINALG_INLINE void EighVjp(int n, const RealElement<E>* w, E* v, HermitianPart part,
                           const RealElement<E>* w_ct, E* x, E* work) {
  using V = RealElement<E>;
  // The Hermitian part of F ∘ (Vᴴ times the conjugate of V's cotangent), plus w's cotangent.
  Conjugate(n * n, x);
  AdjointSquare(n, v);
  NegativeProduct(n, v, x, work);
  const ReciprocalGaps<V> f(n, w);
  const V half = Broadcast<V>(0.5f);
  for (int i = 0; i < n; ++i) {
    work[i * n + i] = FromReal<E>(w_ct[i]);
    for (int j = 0; j < i; ++j) {
      E& below = work[i * n + j];
      E& above = work[j * n + i];
      below = half * f(i, j) * (Conj(above) - below);
      above = Conj(below);
    }
  }
  NegativeProduct(n, work, v, x);
  AdjointSquare(n, v);
  NegativeProduct(n, v, x, work);
  // The cotangent for the lower triangle alone: entries below the diagonal count twice.
  for (int i = 0; i < n; ++i) {
    x[i * n + i] = FromReal<E>(Re(work[i * n + i]));
    for (int j = 0; j < i; ++j) x[i * n + j] = Broadcast<V>(2) * Conj(work[i * n + j]);
  }
  HermitianPartCotangent(x, n, part);
}

}  // namespace linalg::small
