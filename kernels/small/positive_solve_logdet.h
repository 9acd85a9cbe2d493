// The solution x of A x = b and log det A of small positive definite matrices, one per lane, from
// one Cholesky factorisation. Also their derivatives.
//
// dx = A⁻¹ (db - dA x), and d log det A = tr(A⁻¹ dA). For the cotangents x̄ of x and t of log det A,
// the transpose is t A⁻¹ - y xᴴ with y = A⁻¹ x̄, to which the two triangles of A add. All but the
// inverse takes n² operations, so one pass over A⁻¹ = L⁻ᴴ L⁻¹ does everything.
//
// Elements are row-major. `l` holds L in the lower triangle, A = L Lᴴ, and `reciprocals` those of
// its diagonal, which are in range: a square root is never subnormal. Operands count by their
// Hermitian part.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/arithmetic/hermitian.h"
#include "kernels/arithmetic/logarithm.h"
#include "kernels/small/cholesky.h"
#include "kernels/small/hermitian.h"
#include "kernels/small/triangular.h"

namespace linalg::small {

inline constexpr HermitianPart kSymmetrized{.lower = true, .symmetrize = true};

// log det A
template <class E>
LINALG_INLINE RealElement<E> LogarithmOfDeterminant(int n, const E* l) {
  using V = RealElement<E>;
  LogarithmOfProduct<V> product;
  for (int i = 0; i < n; ++i) product.Multiply(Re(l[i * n + i]));
  return Broadcast<V>(2) * product.Value();
}

template <class E>
LINALG_INLINE void ReciprocalDiagonal(int n, const E* l, RealElement<E>* reciprocals) {
  using V = RealElement<E>;
  for (int i = 0; i < n; ++i) reciprocals[i] = Broadcast<V>(1) / Re(l[i * n + i]);
}

template <class E>
LINALG_INLINE void ScaleRow(RealElement<E> factor, int cols, E* row) {
  for (int j = 0; j < cols; ++j) row[j] = factor * row[j];
}

// x (n, cols) := A⁻¹ x
template <class E>
LINALG_INLINE void SolvePositive(int n, const E* l, const RealElement<E>* reciprocals, int cols,
                                 E* x) {
  for (int block = 0; block < n; block += kPanel) {
    const int end = block + kPanel < n ? block + kPanel : n;
    MulSub(end - block, cols, block, l + block * n, n, x, cols, x + block * cols, cols);
    for (int i = block; i < end; ++i) {
      MulSubRows<1>(cols, i - block, l + i * n + block, n, x + block * cols, cols, x + i * cols,
                    cols);
      ScaleRow(reciprocals[i], cols, x + i * cols);
    }
  }
  for (int end = n; end > 0; end -= kPanel) {
    const int block = end > kPanel ? end - kPanel : 0;
    AdjointMulSub(end - block, cols, n - end, l + end * n + block, n, x + end * cols, cols,
                  x + block * cols, cols);
    for (int i = end - 1; i >= block; --i) {
      AdjointMulSub(1, cols, end - i - 1, l + (i + 1) * n + i, n, x + (i + 1) * cols, cols,
                    x + i * cols, cols);
      ScaleRow(reciprocals[i], cols, x + i * cols);
    }
  }
}

// Replaces the lower triangle of `a` by L, and x (n, cols) by A⁻¹ x. Returns 0, or the order of the
// first leading minor that is not positive. Then x and the logarithm are NaN. `reciprocals` is a
// workspace of n.
template <class E>
LINALG_INLINE RealElement<E> PositiveSolveLogdet(int n, E* a, int cols, E* x,
                                                 RealElement<E>& logdet,
                                                 RealElement<E>* reciprocals) {
  using V = RealElement<E>;
  LowerHermitianPart(a, n, kSymmetrized);
  const V failed = Cholesky(a, n, reciprocals);
  logdet = LogarithmOfDeterminant(n, a);
  SolvePositive(n, a, reciprocals, cols, x);
  FillNaN(failed > V{}, 1, &logdet);
  FillNaN(failed > V{}, static_cast<int64_t>(n) * cols, x);
  return failed;
}

// w (n, n): L⁻¹ in the lower triangle. Panels of kPanel columns on the diagonal have zeros above
// it. The rest is not written.
template <class E>
LINALG_INLINE void InvertLower(int n, const E* l, const RealElement<E>* reciprocals, E* w) {
  for (int block = 0; block < n; block += kPanel) {
    const int end = block + kPanel < n ? block + kPanel : n;
    for (int i = block; i < end; ++i) {
      std::fill(w + i * n, w + i * n + end, E{});
      w[i * n + i] = FromReal<E>(Broadcast<RealElement<E>>(1));
    }
    for (int j = 0; j < block; j += kPanel) {
      MulSub(end - block, kPanel, block - j, l + block * n + j, n, w + j * n + j, n,
             w + block * n + j, n);
    }
    for (int i = block; i < end; ++i) {
      MulSubRows<1>(end, i - block, l + i * n + block, n, w + block * n, n, w + i * n, n);
      ScaleRow(reciprocals[i], i + 1, w + i * n);
    }
  }
}

// Calls use(i, j, rows, cols, block) with blocks of -A⁻¹ that cover its lower triangle, given the
// result of InvertLower. Blocks on the diagonal reach above it.
template <class E, class Use>
LINALG_INLINE void ForEachBlockOfInverse(int n, const E* w, Use&& use) {
  constexpr int kBlock = kComplexElement<E> ? 2 : 4;
  static_assert(kPanel % kBlock == 0, "blocks read zeros above the diagonal");
  const auto at = [&]<int kRows, int kCols>(std::integral_constant<int, kRows>,
                                            std::integral_constant<int, kCols>, int i, int j) {
    E block[kRows][kCols] = {};
    for (int k = i; k < n; ++k) {
      E right[kCols];
#pragma GCC unroll 4
      for (int c = 0; c < kCols; ++c) right[c] = w[k * n + j + c];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const E left = Conj(w[k * n + i + r]);
#pragma GCC unroll 4
        for (int c = 0; c < kCols; ++c) block[r][c] = NegMulAdd(left, right[c], block[r][c]);
      }
    }
    use(i, j, block);
  };
  using One = std::integral_constant<int, 1>;
  using Block = std::integral_constant<int, kBlock>;
  int i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    for (int j = 0; j <= i; j += kBlock) at(Block(), Block(), i, j);
  }
  for (; i < n; ++i) {
    int j = 0;
    for (; j + kBlock <= i + 1; j += kBlock) at(One(), Block(), i, j);
    for (; j <= i; ++j) at(One(), One(), i, j);
  }
}

// Tangents of x and of log det A. On entry `da` holds A's tangent, and dx (n, cols) that of b. On
// return dx holds that of x. `w` is a workspace of n by n, and `reciprocals` of n.
template <class E>
LINALG_INLINE RealElement<E> PositiveSolveLogdetJvp(int n, const E* l, int cols, const E* x, E* da,
                                                    E* dx, E* w, RealElement<E>* reciprocals) {
  using V = RealElement<E>;
  ReciprocalDiagonal(n, l, reciprocals);
  LowerHermitianPart(da, n, kSymmetrized);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < i; ++j) da[j * n + i] = Conj(da[i * n + j]);
  }
  MulSub(n, cols, n, da, n, x, cols, dx, cols);
  SolvePositive(n, l, reciprocals, cols, dx);
  InvertLower(n, l, reciprocals, w);
  V diagonal{}, below{};
  ForEachBlockOfInverse(n, w, [&]<int kRows, int kCols>(int i, int j, E(&block)[kRows][kCols]) {
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kCols && j + c <= i + r; ++c) {
        const V term = Re(Mul(Conj(block[r][c]), da[(i + r) * n + j + c]));
        (i + r == j + c ? diagonal : below) -= term;
      }
    }
  });
  return diagonal + Broadcast<V>(2) * below;
}

// The transpose of PositiveSolveLogdetJvp. On entry y (n, cols) holds the cotangent of x, and
// `logdet` that of log det A. On return `l` holds A's cotangent, and y that of b. Workspaces are
// those of PositiveSolveLogdetJvp.
template <class E>
LINALG_INLINE void PositiveSolveLogdetVjp(int n, E* l, int cols, const E* x, E* y,
                                          RealElement<E> logdet, E* w,
                                          RealElement<E>* reciprocals) {
  using V = RealElement<E>;
  ReciprocalDiagonal(n, l, reciprocals);
  Conjugate(n * cols, y);
  SolvePositive(n, l, reciprocals, cols, y);
  InvertLower(n, l, reciprocals, w);
  const V twice = Broadcast<V>(-2) * logdet, half = Broadcast<V>(0.5f);
  ForEachBlockOfInverse(n, w, [&]<int kRows, int kCols>(int i, int j, E(&block)[kRows][kCols]) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < kCols; ++c) block[r][c] = twice * block[r][c];
    for (int k = 0; k < cols; ++k) {
      E x_right[kCols], y_right[kCols];
#pragma GCC unroll 4
      for (int c = 0; c < kCols; ++c) {
        x_right[c] = Conj(x[(j + c) * cols + k]);
        y_right[c] = Conj(y[(j + c) * cols + k]);
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const E x_left = x[(i + r) * cols + k], y_left = y[(i + r) * cols + k];
#pragma GCC unroll 4
        for (int c = 0; c < kCols; ++c) {
          block[r][c] = NegMulAdd(x_left, y_right[c], NegMulAdd(y_left, x_right[c], block[r][c]));
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kCols && j + c <= i + r; ++c) {
        const E entry = Conj(block[r][c]);
        l[(i + r) * n + j + c] = i + r == j + c ? FromReal<E>(half * Re(entry)) : entry;
      }
    }
  });
  HermitianPartCotangent(l, n, kSymmetrized);
  Conjugate(n * cols, y);
}

}  // namespace linalg::small
