// The steps of block-tridiagonal factorisations and substitutions, one system per lane.
//
// Blocks are row-major and contiguous, `d` by `d`; right-hand sides are `d` by `cols`. Sizes may be
// integral constants, so that tiny blocks stay in registers.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/small/solve.h"

namespace linalg::small {

// c (kRows, kCols) ±= op(a) b. Products are summed separately, as in mul_sub.h.
template <bool kAdd, bool kAdjoint, int kRows, int kCols, class N, class E>
LINALG_INLINE void BlockProduct(N depth, const E* a, int lda, const E* b, int ldb, E* c, int ldc) {
  E sum[kRows][kCols] = {};
  for (int k = 0; k < depth; ++k) {
    E right[kCols];
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) right[j] = b[k * ldb + j];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const E left = kAdjoint ? a[k * lda + i] : Conj(a[i * lda + k]);
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) sum[i][j] = ConjMulAdd(left, right[j], sum[i][j]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) {
      E& target = c[i * ldc + j];
      target = kAdd ? target + sum[i][j] : target - sum[i][j];
    }
  }
}

// BlockProduct for a single system, whose neighbouring columns share a register W. Each element has
// the bits that it has in a lane.
template <bool kAdd, bool kAdjoint, int kRows, class W, class N>
LINALG_INLINE void WideProduct(N depth, const Lane<W>* a, int lda, const Lane<W>* b, int ldb,
                               Lane<W>* c, int ldc) {
  W sum[kRows] = {};
  for (int k = 0; k < depth; ++k) {
    const W right = LoadUnaligned<W>(b + k * ldb);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const Lane<W> left = kAdjoint ? a[k * lda + i] : a[i * lda + k];
      sum[i] = MulAdd(Broadcast<W>(left), right, sum[i]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
    const W old = LoadUnaligned<W>(c + i * ldc);
    StoreUnaligned(kAdd ? old + sum[i] : old - sum[i], c + i * ldc);
  }
}

template <bool kAdd, bool kAdjoint, int kRows, class N, class E>
LINALG_INLINE void RowsOfProduct(int cols, N depth, const E* a, int lda, const E* b, int ldb, E* c,
                                 int ldc) {
  constexpr int kCols = kBlockCols<E>;
  int j = 0;
  if constexpr (std::is_floating_point_v<E>) {
    constexpr int kWide = kRegisterBytes / sizeof(E);
    const auto wide = [&]<int kLanes>(std::integral_constant<int, kLanes>) {
      for (; j + kLanes <= cols; j += kLanes) {
        WideProduct<kAdd, kAdjoint, kRows, Vector<E, kLanes>>(depth, a, lda, b + j, ldb, c + j,
                                                              ldc);
      }
    };
    wide(std::integral_constant<int, kWide>());
    if constexpr (kWide > 4) wide(std::integral_constant<int, kWide / 2>());
  }
  for (; j + kCols <= cols; j += kCols) {
    BlockProduct<kAdd, kAdjoint, kRows, kCols>(depth, a, lda, b + j, ldb, c + j, ldc);
  }
  for (; j < cols; ++j) {
    BlockProduct<kAdd, kAdjoint, kRows, 1>(depth, a, lda, b + j, ldb, c + j, ldc);
  }
}

// Whether a size is a constant. Code for other sizes is compiled once and called: it is long.
template <class N>
inline constexpr bool kIsConstant = !std::is_same_v<N, int>;

template <bool kAdd, bool kAdjoint, class N, class M, class E>
LINALG_INLINE void AddProductInline(N rows, M cols, N depth, const E* a, int lda, const E* b,
                                    int ldb, E* c, int ldc, bool lower) {
  constexpr int kRows = kBlockRows<E>;
  const int row = kAdjoint ? 1 : lda;
  int i = 0;
  for (; i + kRows <= rows; i += kRows) {
    const int width = lower ? std::min<int>(cols, i + kRows) : static_cast<int>(cols);
    RowsOfProduct<kAdd, kAdjoint, kRows>(width, depth, a + i * row, lda, b, ldb, c + i * ldc, ldc);
  }
  for (; i < rows; ++i) {
    const int width = lower ? std::min<int>(cols, i + 1) : static_cast<int>(cols);
    RowsOfProduct<kAdd, kAdjoint, 1>(width, depth, a + i * row, lda, b, ldb, c + i * ldc, ldc);
  }
}
template <bool kAdd, bool kAdjoint, class E>
LINALG_ONCE void AddAnyProduct(int rows, int cols, int depth, const E* a, int lda, const E* b,
                               int ldb, E* c, int ldc, bool lower) {
  AddProductInline<kAdd, kAdjoint>(rows, cols, depth, a, lda, b, ldb, c, ldc, lower);
}

// c (rows, cols) ±= op(a) b, where op(a) is (rows, depth) and op is the adjoint or nothing. If
// `lower`, elements of c that are right of its diagonal by a block or more are left alone.
template <bool kAdd, bool kAdjoint, class N, class M, class E>
LINALG_INLINE void AddProduct(N rows, M cols, N depth, const E* a, int lda, const E* b, int ldb,
                              E* c, int ldc, bool lower = false) {
  if constexpr (kIsConstant<N> || kLanesOf<RealElement<E>> == 1) {
    AddProductInline<kAdd, kAdjoint>(rows, cols, depth, a, lda, b, ldb, c, ldc, lower);
  } else {
    AddAnyProduct<kAdd, kAdjoint>(rows, cols, depth, a, lda, b, ldb, c, ldc, lower);
  }
}

// Rows [first, end) of SolveTriangle, when those before them are done.
template <bool kAdjoint, class M, class E>
LINALG_INLINE void SolvePanel(int first, int end, int d, M cols, const E* l, E* b) {
  for (int done = 0; done < end - first; ++done) {
    const int i = kAdjoint ? end - 1 - done : first + done;
    const int before = kAdjoint ? i + 1 : first;
    RowsOfProduct<false, kAdjoint, 1>(cols, done,
                                      kAdjoint ? l + before * d + i : l + i * d + before, d,
                                      b + before * cols, cols, b + i * cols, cols);
    DivideRow(l[i * d + i], cols, b + i * cols);
  }
}
template <bool kAdjoint, class E>
LINALG_ONCE void SolveAnyTriangle(int d, int cols, const E* l, E* b) {
  const int blocks = (d + kPanel - 1) / kPanel;
  for (int step = 0; step < blocks; ++step) {
    const int first = (kAdjoint ? blocks - 1 - step : step) * kPanel;
    const int end = std::min(d, first + kPanel);
    if (kAdjoint) {
      AddProduct<false, true>(end - first, cols, d - end, l + end * d + first, d, b + end * cols,
                              cols, b + first * cols, cols);
    } else {
      AddProduct<false, false>(end - first, cols, first, l + first * d, d, b, cols,
                               b + first * cols, cols);
    }
    SolvePanel<kAdjoint>(first, end, d, cols, l, b);
  }
}

// b (d, cols) := op(L)⁻¹ b, with the lower triangle of `l`.
template <bool kAdjoint, class N, class M, class E>
LINALG_INLINE void SolveTriangle(N d, M cols, const E* l, E* b) {
  if constexpr (kIsConstant<N>) {
    static_assert(N() <= kPanel);
    SolvePanel<kAdjoint>(0, d, d, cols, l, b);
  } else {
    SolveAnyTriangle<kAdjoint, E>(d, cols, l, b);
  }
}

template <class E>
LINALG_ONCE RealElement<E> AnyCholesky(E* a, int n) {
  return Cholesky(a, n);
}

template <class N, class E>
LINALG_INLINE void AdjointTo(N d, const E* a, E* target) {
  for (int i = 0; i < d; ++i) {
    for (int j = 0; j < d; ++j) target[j * d + i] = Conj(a[i * d + j]);
  }
}

// Replaces the diagonal block `a` by the factor of the Hermitian part of a - B Bᴴ, where `below`
// is B and `adjoint` is Bᴴ; both are null for the first block. Returns 0, or the order of the first
// leading minor of the block that is not positive.
template <class N, class E>
LINALG_INLINE RealElement<E> FactorDiagonalBlock(N d, const E* below, const E* adjoint, E* a) {
  LowerHermitianPart(a, d, {.lower = true, .symmetrize = true});
  if (below != nullptr) AddProduct<false, false>(d, d, d, below, d, adjoint, d, a, d, true);
  RealElement<E> failed;
  if constexpr (kIsConstant<N>) {
    failed = Cholesky(a, d);
  } else {
    failed = AnyCholesky(a, d);
  }
  for (int i = 0; i < d; ++i) {
    for (int j = i + 1; j < d; ++j) a[i * d + j] = E{};
  }
  return failed;
}

// Replaces the block `a` below L by B = a L⁻ᴴ, and writes Bᴴ to `adjoint`.
template <class N, class E>
LINALG_INLINE void FactorLowerBlock(N d, const E* l, E* a, E* adjoint) {
  AdjointTo(d, a, adjoint);
  SolveTriangle<false>(d, d, l, adjoint);
  AdjointTo(d, adjoint, a);
}

// The blocks of A⁻¹ at one step of the backward recursion (Takahashi, Fagan and Chen, 1973).
// `inverse` holds the diagonal block of A⁻¹ of the next step, and receives that of this one.
// `below` is B beside L, and receives the block below the diagonal; it is null in the last step.
// `work` holds 3 blocks.
template <class N, class E>
LINALG_INLINE void InverseBlocksStep(N d, const E* l, E* below, E* inverse, E* work) {
  E* const w = work;
  E* const g = w + d * d;
  E* const product = g + d * d;
  std::fill_n(w, d * d, E{});
  for (int i = 0; i < d; ++i) w[i * d + i] = FromReal<E>(Broadcast<RealElement<E>>(1));
  SolveTriangle<false>(d, d, l, w);
  if (below != nullptr) {
    std::fill_n(g, d * d, E{});
    AddProduct<true, false>(d, d, d, below, d, w, d, g, d);
    std::fill_n(product, d * d, E{});
    AddProduct<true, false>(d, d, d, inverse, d, g, d, product, d);
  }
  std::fill_n(inverse, d * d, E{});
  AddProduct<true, true>(d, d, d, w, d, w, d, inverse, d, true);
  if (below != nullptr) {
    AddProduct<true, true>(d, d, d, g, d, product, d, inverse, d, true);
    for (int i = 0; i < d * d; ++i) below[i] = -product[i];
  }
  for (int i = 0; i < d; ++i) {
    inverse[i * d + i] = FromReal<E>(Re(inverse[i * d + i]));
    for (int j = 0; j < i; ++j) inverse[j * d + i] = Conj(inverse[i * d + j]);
  }
}

}  // namespace linalg::small
