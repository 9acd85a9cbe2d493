// Derivatives of the factors of small matrices A = Q R, one per lane. They are the tangents for dA,
// and the cotangent of A for those of Q and R.
//
// Q has the shape of A, m by n with m >= n, and R a real diagonal. Let X = dA R⁻¹ and C = Qᴴ X. W
// is upper triangular: C's upper triangle plus the adjoint of its lower one. Then dR = W R and dQ =
// X - Q W. The source is Roberts and Roberts, QR and LQ decomposition matrix backpropagation
// algorithms for square, wide, and deep matrices, arXiv:2009.10071. All operands are contiguous,
// row-major and overwritten; `w` is a workspace of n by n.
//
// A square Q has no complement, so X - Q W is Q S with S = C - W, which is skew-Hermitian and has
// C's lower triangle. If A is real, that does not read the last column of R⁻¹, which is large where
// A is nearly singular: there X - Q W would lose digits. W R would lose them too. So dR is the
// upper triangle of Qᴴ dA - S R.
#pragma once

#include <algorithm>

#include "kernels/small/mul_sub.h"
#include "kernels/small/triangular.h"

namespace linalg::small {

// Calls off(above, below) with the indices of each pair of elements that mirror each other across
// the diagonal, and on(index) for the diagonal.
template <class OffDiagonal, class OnDiagonal>
LINALG_INLINE void ForEachFacing(int n, OffDiagonal&& off, OnDiagonal&& on) {
  for (int i = 0; i < n; ++i) {
    on(i * n + i);
    for (int j = i + 1; j < n; ++j) off(i * n + j, j * n + i);
  }
}

// The part of R's tangents or cotangents that counts: the upper triangle with a real diagonal.
template <class E>
LINALG_INLINE void KeepTriangle(int n, E* dr) {
  ForEachFacing(
      n, [&](int, int below) { dr[below] = E{}; }, [&](int i) { dr[i] = FromReal<E>(Re(dr[i])); });
}

// The imaginary part as an element: 0 for a real element, also if it is not finite.
template <class E>
LINALG_INLINE E ImaginaryPart(const E& x) {
  if constexpr (kComplexElement<E>) {
    return x - FromReal<E>(Re(x));
  } else {
    return E{};
  }
}

// QrJvp of a square A.
template <class E>
LINALG_INLINE void SquareQrJvp(int n, E* q, E* r, E* x, E* w, E* dr) {
  TransposeSquare(n, x);
  std::fill(w, w + n * n, E{});
  Conjugate(n * n, q);
  MulSub(n, n, n, x, n, q, n, w, n);  // -(Qᴴ dA)ᵀ
  Conjugate(n * n, q);
  for (int i = 0; i < n * n; ++i) dr[i] = w[i];
  TransposeSquare(n, r);
  SolveLower(n, r, /*unit_diagonal=*/false, n, w);  // -Cᵀ
  // -Sᵀ
  ForEachFacing(
      n, [&](int above, int below) { w[below] = -Conj(w[above]); },
      [&](int i) { w[i] = ImaginaryPart(w[i]); });
  TransposeSquare(n, q);
  std::fill(x, x + n * n, E{});
  MulSub(n, n, n, w, n, q, n, x, n);
  TransposeSquare(n, x);
  MulSub(n, n, n, r, n, w, n, dr, n);
  TransposeSquare(n, dr);
  for (int i = 0; i < n * n; ++i) dr[i] = -dr[i];
  KeepTriangle(n, dr);
}

// x (m, n): dA := dQ; dr (n, n) := dR.
template <class E>
LINALG_INLINE void QrJvp(int m, int n, E* q, E* r, E* x, E* w, E* dr) {
  if (m == n) return SquareQrJvp(n, q, r, x, w, dr);
  Transpose(m, n, x);
  TransposeSquare(n, r);
  SolveLower(n, r, /*unit_diagonal=*/false, m, x);  // Xᵀ
  std::fill(w, w + n * n, E{});
  Conjugate(m * n, q);
  MulSub(n, n, m, x, m, q, n, w, n);  // -Cᵀ
  Conjugate(m * n, q);
  // Wᵀ
  ForEachFacing(
      n,
      [&](int above, int below) {
        w[below] = -(w[below] + Conj(w[above]));
        w[above] = E{};
      },
      [&](int i) { w[i] = FromReal<E>(-Re(w[i])); });
  Transpose(m, n, q);
  MulSub(n, m, n, w, n, q, m, x, m);
  Transpose(n, m, x);
  std::fill(dr, dr + n * n, E{});
  MulSub(n, n, n, r, n, w, n, dr, n);
  TransposeSquare(n, dr);
  for (int i = 0; i < n * n; ++i) dr[i] = -dr[i];
}

// QrVjp of a square A.
template <class E>
LINALG_INLINE void SquareQrVjp(int n, E* q, E* r, E* x, E* w, E* dr) {
  // S's cotangent, negative.
  std::fill(w, w + n * n, E{});
  TransposeSquare(n, q);
  MulSub(n, n, n, q, n, x, n, w, n);
  KeepTriangle(n, dr);
  for (int i = 0; i < n * n; ++i) dr[i] = -dr[i];
  TransposeSquare(n, r);
  MulSub(n, n, n, dr, n, r, n, w, n);
  TransposeSquare(n, r);
  // The transpose of C's cotangent.
  ForEachFacing(
      n,
      [&](int above, int below) {
        w[above] = Conj(w[above]) - w[below];
        w[below] = E{};
      },
      [&](int i) { w[i] = E{} - ImaginaryPart(w[i]); });
  // The last row is 0 if A is real. Then the last element of R does not count, which may be 0 too.
  if constexpr (!kComplexElement<E>) {
    if (n > 0) r[n * n - 1] = Broadcast<E>(1);
  }
  SolveUpper(n, r, /*unit_diagonal=*/false, n, w);
  // The transpose of that of Qᴴ dA, negative.
  TransposeSquare(n, dr);
  for (int i = 0; i < n * n; ++i) w[i] = dr[i] - w[i];
  Conjugate(n * n, q);
  std::fill(x, x + n * n, E{});
  MulSub(n, n, n, w, n, q, n, x, n);
  TransposeSquare(n, x);
}

// x (m, n): Q's cotangent := A's; dr (n, n): R's.
template <class E>
LINALG_INLINE void QrVjp(int m, int n, E* q, E* r, E* x, E* w, E* dr) {
  if (m == n) return SquareQrVjp(n, q, r, x, w, dr);
  // W's cotangent; only its upper triangle counts.
  std::fill(w, w + n * n, E{});
  Transpose(m, n, q);
  MulSub(n, n, m, q, m, x, n, w, n);
  TransposeSquare(n, r);
  for (int i = 0; i < n * n; ++i) dr[i] = -dr[i];
  MulSub(n, n, n, dr, n, r, n, w, n);
  TransposeSquare(n, r);
  // The negative transpose of C's cotangent, which is Hermitian.
  ForEachFacing(
      n,
      [&](int above, int below) {
        w[below] = -w[above];
        w[above] = Conj(w[below]);
      },
      [&](int i) { w[i] = FromReal<E>(-Re(w[i])); });
  Conjugate(m * n, q);
  Transpose(m, n, x);
  MulSub(n, m, n, w, n, q, m, x, m);
  SolveUpper(n, r, /*unit_diagonal=*/false, m, x);
  Transpose(n, m, x);
}

}  // namespace linalg::small
