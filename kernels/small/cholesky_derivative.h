// Derivatives of Cholesky factors of small matrices, one per lane: the tangent of L for dA, and the
// cotangent of A for that of L.
//
// Differentiates the column-by-column factorisation line by line, and runs the same lines backward
// for the cotangent: Murray, Differentiation of the Cholesky decomposition, arXiv:1602.07527,
// section 4. Each costs about twice the factorisation and forms no inverse. Elements are row-major,
// n by n; only the lower triangles are used.
//
// jax 0.10 also allows a dA that is not Hermitian. For that, CholeskyFullJvp and CholeskyFullVjp
// implement Murray's equation 8 and its transpose, at three times the work.
#pragma once

#include "kernels/arithmetic/element.h"
#include "kernels/arithmetic/hermitian.h"
#include "kernels/small/hermitian.h"
#include "kernels/small/triangular.h"

namespace linalg::small {

// Rows i0.. of column j of dL before the division by the diagonal: dA - sum over k < j of (dL_ik
// conj(L_jk) + L_ik conj(dL_jk)).
template <int kRows, class E>
LINALG_INLINE void CholeskyTangentRows(int n, int i0, int j, const E* l, const E* x,
                                       E (&sum)[kRows]) {
  E moved[kRows] = {}, kept[kRows] = {};
  for (int k = 0; k < j; ++k) {
    const E factor = Conj(l[j * n + k]), tangent = Conj(x[j * n + k]);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      moved[r] = NegMulAdd(x[(i0 + r) * n + k], factor, moved[r]);
      kept[r] = NegMulAdd(l[(i0 + r) * n + k], tangent, kept[r]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) sum[r] = x[(i0 + r) * n + j] + (moved[r] + kept[r]);
}

// On entry x holds the lower triangle of dA, and on return that of dL.
template <class E>
LINALG_INLINE void CholeskyTangent(int n, const E* l, E* x) {
  using V = RealElement<E>;
  for (int j = 0; j < n; ++j) {
    const V inverse = Broadcast<V>(1) / Re(l[j * n + j]);
    V diagonal;
    const auto rows = [&]<int kRows>(std::integral_constant<int, kRows>, int i) {
      E sum[kRows];
      CholeskyTangentRows(n, i, j, l, x, sum);
      for (int r = 0; r < kRows; ++r) {
        x[(i + r) * n + j] = inverse * (sum[r] - diagonal * l[(i + r) * n + j]);
      }
    };
    E sum[1];
    CholeskyTangentRows(n, j, j, l, x, sum);
    diagonal = Broadcast<V>(0.5f) * (inverse * Re(sum[0]));
    x[j * n + j] = FromReal<E>(diagonal);
    int i = j + 1;
    for (; i + 4 <= n; i += 4) rows(std::integral_constant<int, 4>(), i);
    for (; i < n; ++i) rows(std::integral_constant<int, 1>(), i);
  }
}

// Propagates the entries of column j of x, from the diagonal down, to kCols columns at k0.
template <int kCols, class E>
LINALG_INLINE void CholeskyCotangentColumns(int n, int j, int k0, const E* l, E* x) {
  using V = RealElement<E>;
  const V twice = Broadcast<V>(2) * Re(x[j * n + j]);
  E factor[kCols], sum[kCols];
#pragma GCC unroll 4
  for (int c = 0; c < kCols; ++c) {
    factor[c] = Conj(l[j * n + k0 + c]);
    sum[c] = twice * l[j * n + k0 + c];
  }
  for (int i = j + 1; i < n; ++i) {
    const E entry = x[i * n + j], negative = -entry;
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) {
      x[i * n + k0 + c] = NegMulAdd(entry, factor[c], x[i * n + k0 + c]);
      sum[c] = NegMulAdd(negative, l[i * n + k0 + c], sum[c]);
    }
  }
#pragma GCC unroll 4
  for (int c = 0; c < kCols; ++c) x[j * n + k0 + c] = x[j * n + k0 + c] - Conj(sum[c]);
}

// On entry x holds the lower triangle of the cotangent of L, and on return that of A. A counts as a
// function of that triangle alone.
template <class E>
LINALG_INLINE void CholeskyCotangent(int n, const E* l, E* x) {
  using V = RealElement<E>;
  for (int j = n - 1; j >= 0; --j) {
    const V inverse = Broadcast<V>(1) / Re(l[j * n + j]);
    V diagonal = Re(x[j * n + j]);
    for (int i = j + 1; i < n; ++i) {
      const E entry = inverse * x[i * n + j];
      x[i * n + j] = entry;
      diagonal = diagonal - Re(Mul(entry, l[i * n + j]));
    }
    x[j * n + j] = FromReal<E>(Broadcast<V>(0.5f) * (inverse * diagonal));
    int k = 0;
    for (; k + 4 <= j; k += 4) CholeskyCotangentColumns<4>(n, j, k, l, x);
    for (; k < j; ++k) CholeskyCotangentColumns<1>(n, j, k, l, x);
  }
}

// x (n, n): L Φ(L⁻¹ x L⁻ᴴ), where Φ keeps the lower triangle and halves the diagonal. Reads the
// lower triangle of `l` and overwrites `l`.
template <class E>
LINALG_INLINE void CholeskyFullJvp(int n, E* l, E* x) {
  for (int side = 0; side < 2; ++side) {
    SolveLower(n, l, false, n, x);
    TransposeSquare(n, x);
    Conjugate(n * n, l);
  }
  for (int i = n - 1; i >= 0; --i) {
    x[i * n + i] = Broadcast<RealElement<E>>(0.5f) * x[i * n + i];
    for (int j = i + 1; j < n; ++j) x[i * n + j] = E{};
  }
  for (int i = n - 1; i >= 0; --i) {
    // Computes columns j.. of row i of L Φ. The rows go from the last one up, so the rows of Φ
    // above are still intact.
    const auto columns = [&]<int kCols>(std::integral_constant<int, kCols>, int j) {
      E sum[kCols] = {};
      for (int k = j; k <= i; ++k) {
#pragma GCC unroll 4
        for (int c = 0; c < kCols; ++c) sum[c] = NegMulAdd(l[i * n + k], x[k * n + j + c], sum[c]);
      }
      for (int c = 0; c < kCols; ++c) x[i * n + j + c] = -sum[c];
    };
    int j = 0;
    for (; j + 4 <= i + 1; j += 4) columns(std::integral_constant<int, 4>(), j);
    for (; j <= i; ++j) columns(std::integral_constant<int, 1>(), j);
  }
}

// Applies the transpose of that map, without conjugation: x := L⁻ᵀ Φ(Lᵀ x) conj(L)⁻¹. Reads the
// lower triangle of x.
template <class E>
LINALG_INLINE void CholeskyFullVjp(int n, E* l, E* x) {
  for (int i = 0; i < n; ++i) {
    // Computes row i of Φ(Lᵀ x). The rows go from the first one down, so the rows of x below are
    // still intact.
    const auto columns = [&]<int kCols>(std::integral_constant<int, kCols>, int j) {
      E sum[kCols] = {};
      for (int k = i; k < n; ++k) {
#pragma GCC unroll 4
        for (int c = 0; c < kCols; ++c) sum[c] = NegMulAdd(l[k * n + i], x[k * n + j + c], sum[c]);
      }
      for (int c = 0; c < kCols; ++c) x[i * n + j + c] = -sum[c];
    };
    int j = 0;
    for (; j + 4 <= i + 1; j += 4) columns(std::integral_constant<int, 4>(), j);
    for (; j <= i; ++j) columns(std::integral_constant<int, 1>(), j);
    x[i * n + i] = Broadcast<RealElement<E>>(0.5f) * x[i * n + i];
    for (; j < n; ++j) x[i * n + j] = E{};
  }
  TransposeSquare(n, l);
  for (int side = 0; side < 2; ++side) {
    SolveUpper(n, l, false, n, x);
    TransposeSquare(n, x);
    Conjugate(n * n, l);
  }
}

// `l` holds the lower factor, or U = Lᴴ, which becomes L. On entry x holds A's tangent, and on
// return the factor's.
template <class E>
LINALG_INLINE void CholeskyJvp(int n, E* l, HermitianPart part, E* x) {
  if (!part.lower) AdjointSquare(n, l);
  LowerHermitianPart(x, n, part);
  CholeskyTangent(n, l, x);
  FinishTriangle(x, n, part.lower, RealElement<E>{});
}

// The transpose of CholeskyJvp. On entry x holds the factor's cotangent, and on return A's.
template <class E>
LINALG_INLINE void CholeskyVjp(int n, E* l, HermitianPart part, E* x) {
  if (!part.lower) {
    AdjointSquare(n, l);
    AdjointSquare(n, x);
  }
  CholeskyCotangent(n, l, x);
  HermitianPartCotangent(x, n, part);
}

}  // namespace linalg::small
