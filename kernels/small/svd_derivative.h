// Derivatives of singular values and vectors of small square matrices A = U diag(s) Vᴴ, one per
// lane. They are the tangents for dA, and the cotangent of A for those of U, s and Vᴴ.
//
// Let P = Uᴴ dA V, R = F ∘ (P + Pᴴ) and Q = G ∘ (P - Pᴴ), where F and G are ReciprocalGaps of
// differences and of sums. Then ds = Re diag P, dU = U (R + Q) / 2 and dV = V (R - Q) / 2. The
// source is Townsend, Differentiating the singular value decomposition (2016), with his F split in
// two. Row-major n by n operands that are not const are overwritten; `work` is a workspace of that
// size.
#pragma once

#include "kernels/arithmetic/reciprocal_gaps.h"
#include "kernels/small/hermitian.h"
#include "kernels/small/mul_sub.h"
#include "kernels/small/triangular.h"

namespace linalg::small {

// On entry x holds dA. On return x holds dVᴴ, ds (n) the tangent of s, and du dU.
template <class E>
LINALG_INLINE void SvdJvp(int n, E* u, const RealElement<E>* s, E* vh, E* x, RealElement<E>* ds,
                          E* du, E* work) {
  using V = RealElement<E>;
  AdjointSquare(n, vh);
  NegativeProduct(n, x, vh, work);
  AdjointSquare(n, u);
  NegativeProduct(n, u, work, x);  // P
  AdjointSquare(n, u);
  AdjointSquare(n, vh);
  const ReciprocalGaps<V> gaps(n, s);
  const V half = Broadcast<V>(0.5f);
  for (int i = 0; i < n; ++i) {
    ds[i] = Re(x[i * n + i]);
    for (int j = 0; j <= i; ++j) {
      // Both matrices are skew-Hermitian: U's, whose negative goes to `x`, and V's.
      const E p = x[i * n + j], other = Conj(x[j * n + i]);
      const E together = half * gaps(i, j) * (p + other);
      const E apart = half * gaps.OfSum(i, j) * (p - other);
      const E turn = together + apart;
      work[i * n + j] = together - apart;
      work[j * n + i] = Conj(apart - together);
      x[i * n + j] = -turn;
      x[j * n + i] = Conj(turn);
    }
  }
  NegativeProduct(n, u, x, du);
  NegativeProduct(n, work, vh, x);
}

// On entry x holds the cotangent of U, and on return that of A. s_ct (n) and y hold the cotangents
// of s and Vᴴ.
template <class E>
LINALG_INLINE void SvdVjp(int n, E* u, const RealElement<E>* s, const E* vh,
                          const RealElement<E>* s_ct, E* x, E* y, E* work) {
  using V = RealElement<E>;
  // The negatives of Uᴴ and Vᴴ times the gradients, which are conjugates of cotangents.
  Conjugate(n * n, x);
  AdjointSquare(n, u);
  NegativeProduct(n, u, x, work);
  TransposeSquare(n, y);
  NegativeProduct(n, vh, y, x);
  const ReciprocalGaps<V> gaps(n, s);
  const V half = Broadcast<V>(0.5f);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j <= i; ++j) {
      const E of_u = work[i * n + j] - Conj(work[j * n + i]);
      const E of_v = x[i * n + j] - Conj(x[j * n + i]);
      const E together = half * gaps(i, j) * (of_u + of_v);
      const E apart = half * gaps.OfSum(i, j) * (of_u - of_v);
      work[j * n + i] = Conj(apart - together);
      work[i * n + j] = -(together + apart);
    }
    work[i * n + i] = work[i * n + i] + FromReal<E>(s_ct[i]);
  }
  NegativeProduct(n, work, vh, y);
  AdjointSquare(n, u);
  NegativeProduct(n, u, y, x);
  Conjugate(n * n, x);
}

}  // namespace linalg::small
