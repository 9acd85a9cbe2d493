// The steps of block-tridiagonal factorisations and substitutions, one system per lane.
//
// Blocks are row-major and contiguous, `d` by `d`; right-hand sides are `d` by `cols`. Sizes may be
// integral constants, so that tiny blocks stay in registers. Triangles are divided by through the
// reciprocals of their diagonals: divisions would take most of the time of small blocks.
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
  if constexpr (kIsConstant<N>) {
    AddProductInline<kAdd, kAdjoint>(rows, cols, depth, a, lda, b, ldb, c, ldc, lower);
  } else {
    AddAnyProduct<kAdd, kAdjoint>(rows, cols, depth, a, lda, b, ldb, c, ldc, lower);
  }
}

// The rows that SolveTriangle reads: those of b itself, or of the adjoint of a square block.
template <class E>
struct RightHandSide {
  const E* data;
  int stride;
  bool adjoint;

  LINALG_INLINE E operator()(int i, int j) const {
    return adjoint ? Conj(data[j * stride + i]) : data[i * stride + j];
  }
};

// Rows [first, first + kRows) and columns [j, j + kCols) of SolveTriangle, after `depth` rows from
// `before` on. All stay in registers.
template <bool kAdjoint, int kRows, int kCols, class E>
LINALG_INLINE void SolveInRegisters(int first, int before, int depth, int d, int j, int cols,
                                    const E* l, const RealElement<E>* reciprocals,
                                    const RightHandSide<E>& source, E* b) {
  const auto left = [=](int i, int k) { return kAdjoint ? l[k * d + i] : Conj(l[i * d + k]); };
  E x[kRows][kCols] = {};
  for (int k = before; k < before + depth; ++k) {
    E right[kCols];
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) right[c] = b[k * cols + j + c];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const E factor = left(first + r, k);
#pragma GCC unroll 4
      for (int c = 0; c < kCols; ++c) x[r][c] = ConjMulAdd(factor, right[c], x[r][c]);
    }
  }
#pragma GCC unroll 4
  for (int done = 0; done < kRows; ++done) {
    const int r = kAdjoint ? kRows - 1 - done : done, i = first + r;
    const RealElement<E> inverse = reciprocals[i];
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) {
      E sum{};
#pragma GCC unroll 4
      for (int k = 0; k < done; ++k) {
        const int other = kAdjoint ? r + 1 + k : k;
        sum = ConjMulAdd(left(i, first + other), x[other][c], sum);
      }
      x[r][c] = inverse * ((source(i, j + c) - x[r][c]) - sum);
      b[i * cols + j + c] = x[r][c];
    }
  }
}

// If `is_lower`, b is lower triangular. Zeros above its diagonal are neither read nor written,
// but for those in a panel on it.
template <bool kAdjoint, int kRows, class M, class E>
LINALG_INLINE void SolveRows(int first, int before, int depth, int d, M cols, const E* l,
                             const RealElement<E>* reciprocals, const RightHandSide<E>& source,
                             E* b, bool is_lower = false) {
  constexpr int kCols = kBlockCols<E>;
  const auto solve = [&]<int kCount>(std::integral_constant<int, kCount>, int j) {
    const int zeros = is_lower ? std::min(j, first) : 0;
    SolveInRegisters<kAdjoint, kRows, kCount>(first, before + zeros, depth - zeros, d, j, cols, l,
                                              reciprocals, source, b);
  };
  const int width = is_lower ? std::min<int>(cols, first + kRows) : static_cast<int>(cols);
  int j = 0;
  for (; j + kCols <= width; j += kCols) solve(std::integral_constant<int, kCols>(), j);
  for (; j < width; ++j) solve(std::integral_constant<int, 1>(), j);
}

// Rows [first, end) of a single system, whose columns share registers. The bits are those of a
// lane.
template <bool kAdjoint, class E>
LINALG_INLINE void SolvePanel(int first, int end, int before, int depth, int d, int cols,
                              const E* l, const RealElement<E>* reciprocals,
                              const RightHandSide<E>& source, E* b) {
  for (int i = first; i < end; ++i) {
    for (int j = 0; j < cols; ++j) b[i * cols + j] = source(i, j);
  }
  const int row = kAdjoint ? 1 : d;
  AddProduct<false, kAdjoint>(end - first, cols, depth,
                              kAdjoint ? l + before * d + first : l + first * d + before, d,
                              b + before * cols, cols, b + first * cols, cols);
  for (int done = 0; done < end - first; ++done) {
    const int i = kAdjoint ? end - 1 - done : first + done, other = kAdjoint ? i + 1 : first;
    E* const x = b + i * cols;
    RowsOfProduct<false, kAdjoint, 1>(cols, done, l + i * row + other * (kAdjoint ? d : 1), d,
                                      b + other * cols, cols, x, cols);
    for (int j = 0; j < cols; ++j) x[j] = reciprocals[i] * x[j];
  }
}

template <bool kAdjoint, class E>
LINALG_ONCE void SolveAnyTriangle(int d, int cols, const E* l, const RealElement<E>* reciprocals,
                                  const RightHandSide<E>& source, E* b, bool is_lower) {
  const int blocks = (d + kPanel - 1) / kPanel;
  for (int step = 0; step < blocks; ++step) {
    const int first = (kAdjoint ? blocks - 1 - step : step) * kPanel;
    const int end = std::min(d, first + kPanel);
    const int before = kAdjoint ? end : 0, depth = kAdjoint ? d - end : first;
    const auto solve = [&]<int kRows>(std::integral_constant<int, kRows>) {
      SolveRows<kAdjoint, kRows>(first, before, depth, d, cols, l, reciprocals, source, b,
                                 is_lower);
    };
    if constexpr (kLanesOf<RealElement<E>> > 1) {
      if (end - first == kPanel) {
        solve(std::integral_constant<int, kPanel>());
        continue;
      }
    }
    SolvePanel<kAdjoint>(first, end, before, depth, d, cols, l, reciprocals, source, b);
  }
}

// b (d, cols) := op(L)⁻¹ of the right-hand sides, given the lower triangle of `l` and the
// reciprocals of its diagonal, which is real. `is_lower` says that b holds lower triangular
// right-hand sides, if op is nothing.
template <bool kAdjoint, class N, class M, class E>
LINALG_INLINE void SolveTriangle(N d, M cols, const E* l, const RealElement<E>* reciprocals,
                                 const RightHandSide<E>& source, E* b, bool is_lower = false) {
  if constexpr (kIsConstant<N>) {
    static_assert(N() <= kPanel);
    SolveRows<kAdjoint, N::value>(0, 0, 0, d, cols, l, reciprocals, source, b);
  } else {
    SolveAnyTriangle<kAdjoint, E>(d, cols, l, reciprocals, source, b, is_lower);
  }
}

// b (d, cols) := op(L)⁻¹ b
template <bool kAdjoint, class N, class M, class E>
LINALG_INLINE void SolveTriangle(N d, M cols, const E* l, const RealElement<E>* reciprocals, E* b) {
  SolveTriangle<kAdjoint>(d, cols, l, reciprocals, RightHandSide<E>{b, cols, false}, b);
}

// The reciprocals of a factor's diagonal are in range: a square root is never subnormal.
template <class N, class E>
LINALG_INLINE void ReciprocalsOfDiagonal(N d, const E* l, RealElement<E>* reciprocals) {
  for (int i = 0; i < d; ++i) reciprocals[i] = Broadcast<RealElement<E>>(1) / Re(l[i * (d + 1)]);
}

// b (d, cols) := op(L)⁻¹ b. `work` receives the reciprocals of the diagonal.
template <bool kAdjoint, class N, class M, class E>
LINALG_INLINE void SolveTriangleAlone(N d, M cols, const E* l, RealElement<E>* work, E* b) {
  ReciprocalsOfDiagonal(d, l, work);
  SolveTriangle<kAdjoint>(d, cols, l, work, b);
}

template <class N, class E>
LINALG_INLINE void AdjointTo(N d, const E* a, E* target) {
  for (int i = 0; i < d; ++i) {
    for (int j = 0; j < d; ++j) target[j * d + i] = Conj(a[i * d + j]);
  }
}

// The Hermitian part of a - B Bᴴ, a block of a factor at a time. `adjoint` is Bᴴ, or null. The bits
// are those of LowerHermitianPart and AddProduct, without their passes over memory.
template <class N, class E>
struct HermitianPartLess {
  N d;
  const E* adjoint;

  template <bool kDiagonal, int kRows, int kCols>
  LINALG_INLINE void Load(const E* a, int, int i0, int j0, E (&block)[kRows][kCols]) const {
    constexpr auto kIsRead = [](int r, int c) { return !kDiagonal || c <= r; };
    E sum[kRows][kCols] = {};
    for (int k = 0; k < d && adjoint != nullptr; ++k) {
      E right[kCols];
#pragma GCC unroll 4
      for (int c = 0; c < kCols; ++c) right[c] = adjoint[k * d + j0 + c];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const E left = adjoint[k * d + i0 + r];
#pragma GCC unroll 4
        for (int c = 0; c < kCols; ++c) {
          if (kIsRead(r, c)) sum[r][c] = ConjMulAdd(left, right[c], sum[r][c]);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < kCols; ++c) {
        const E own = a[(i0 + r) * d + j0 + c];
        if (kDiagonal && r == c) {
          block[r][c] = FromReal<E>(Re(own)) - sum[r][c];
        } else if (kIsRead(r, c)) {
          block[r][c] = HermitianPart::Mean(own, Conj(a[(j0 + c) * d + i0 + r])) - sum[r][c];
        } else {
          block[r][c] = E{};
        }
      }
    }
  }
};

template <class N, class E>
LINALG_INLINE RealElement<E> FactorDiagonalInline(N d, const E* adjoint, E* a,
                                                  RealElement<E>* reciprocals) {
  if constexpr (kLanesOf<RealElement<E>> > 1) {
    return Cholesky(a, d, reciprocals, HermitianPartLess<N, E>{d, adjoint});
  } else {  // products of neighbouring columns share registers
    LowerHermitianPart(a, d, {.lower = true, .symmetrize = true});
    if (adjoint != nullptr) AddProduct<false, true>(d, d, d, adjoint, d, adjoint, d, a, d, true);
    return Cholesky(a, d, reciprocals);
  }
}
template <class E>
LINALG_ONCE RealElement<E> FactorAnyDiagonal(int d, const E* adjoint, E* a,
                                             RealElement<E>* reciprocals) {
  return FactorDiagonalInline(d, adjoint, a, reciprocals);
}

// Replaces the lower triangle of `a` by that of the factor of the Hermitian part of a - B Bᴴ. The
// triangle above it is undefined. `adjoint` is Bᴴ, or null for the first block. Returns 0, or the
// order of the first leading minor of the block that is not positive. `reciprocals`, if it is not
// null, receives those of the factor's diagonal.
template <class N, class E>
LINALG_INLINE RealElement<E> FactorDiagonal(N d, const E* adjoint, E* a,
                                            RealElement<E>* reciprocals) {
  if constexpr (kIsConstant<N>) {
    return FactorDiagonalInline(d, adjoint, a, reciprocals);
  } else {
    return FactorAnyDiagonal(d, adjoint, a, reciprocals);
  }
}

// Sets the elements above the diagonal to zero.
template <class N, class E>
LINALG_INLINE void ClearUpper(N d, E* a) {
  for (int i = 0; i < d; ++i) {
    for (int j = i + 1; j < d; ++j) a[i * d + j] = E{};
  }
}

// Writes Bᴴ = L⁻¹ aᴴ, for the block `a` below L.
template <class N, class E>
LINALG_INLINE void FactorLowerAdjoint(N d, const E* l, const RealElement<E>* reciprocals,
                                      const E* a, E* adjoint) {
  SolveTriangle<false>(d, d, l, reciprocals, RightHandSide<E>{a, d, true}, adjoint);
}

// Replaces the block `a` below L by B = a L⁻ᴴ, and writes Bᴴ to `adjoint`.
template <class N, class E>
LINALG_INLINE void FactorLowerBlock(N d, const E* l, const RealElement<E>* reciprocals, E* a,
                                    E* adjoint) {
  FactorLowerAdjoint(d, l, reciprocals, a, adjoint);
  AdjointTo(d, adjoint, a);
}

// a (d, d) := the Hermitian matrix of its lower triangle.
template <class N, class E>
LINALG_INLINE void MirrorLower(N d, E* a) {
  for (int i = 0; i < d; ++i) {
    a[i * d + i] = FromReal<E>(Re(a[i * d + i]));
    for (int j = 0; j < i; ++j) a[j * d + i] = Conj(a[i * d + j]);
  }
}

// The blocks of A⁻¹ at one step of the backward recursion (Takahashi, Fagan and Chen, 1973).
// `inverse` holds the diagonal block of A⁻¹ of the next step, and receives that of this one. `b` is
// the block B beside L, or Bᴴ if kAdjoint; it is null in the last step. `reciprocals` are those of
// L's diagonal. `work` holds 3 blocks. The last one receives minus the block of A⁻¹ below the
// diagonal.
template <bool kAdjoint, class N, class E>
LINALG_INLINE void InverseBlocksStep(N d, const E* l, const RealElement<E>* reciprocals, const E* b,
                                     E* inverse, E* work) {
  // L⁻¹ is lower triangular. In lanes, products leave out its panels of zeros.
  constexpr bool kPanels = !kIsConstant<N> && kLanesOf<RealElement<E>> > 1;
  E* const w = work;
  E* const g = w + d * d;
  E* const product = g + d * d;
  std::fill_n(w, d * d, E{});
  for (int i = 0; i < d; ++i) w[i * d + i] = FromReal<E>(Broadcast<RealElement<E>>(1));
  SolveTriangle<false>(d, d, l, reciprocals, RightHandSide<E>{w, d, false}, w, kPanels);
  if (b != nullptr) {
    std::fill_n(g, d * d, E{});
    if constexpr (kPanels) {
      for (int j = 0; j < d; j += kPanel) {
        AddProduct<true, kAdjoint>(d, std::min(kPanel, d - j), d - j, b + j * (kAdjoint ? d : 1), d,
                                   w + j * (d + 1), d, g + j, d);
      }
    } else {
      AddProduct<true, kAdjoint>(d, d, d, b, d, w, d, g, d);
    }
    std::fill_n(product, d * d, E{});
    AddProduct<true, false>(d, d, d, inverse, d, g, d, product, d);
  }
  std::fill_n(inverse, d * d, E{});
  if constexpr (kPanels) {
    for (int i = 0; i < d; i += kPanel) {
      const int rows = std::min(kPanel, d - i);
      AddProduct<true, true>(rows, i + rows, d - i, w + i * (d + 1), d, w + i * d, d,
                             inverse + i * d, d);
    }
  } else {
    AddProduct<true, true>(d, d, d, w, d, w, d, inverse, d, true);
  }
  if (b != nullptr) AddProduct<true, true>(d, d, d, g, d, product, d, inverse, d, true);
  MirrorLower(d, inverse);
}

// target (d, d) := the conjugate of factor block - (x uᴴ + v yᴴ), with `cols` columns in each. If
// kLower, only the lower triangle is written.
template <bool kLower, class N, class M, class E>
LINALG_INLINE void OuterProductsCotangent(N d, M cols, RealElement<E> factor, const E* block,
                                          const E* x, const E* u, const E* v, const E* y,
                                          E* target) {
  for (int i = 0; i < d; ++i) {
    E* const row = target + i * d;
    const E* const own = block + i * d;
    const int width = kLower ? i + 1 : static_cast<int>(d);
    for (int j = 0; cols == 0 && j < width; ++j) row[j] = Conj(factor * own[j]);
    for (int k = 0; k < cols; ++k) {
      const E left = x[i * cols + k], right = v[i * cols + k];
      for (int j = 0; j < width; ++j) {
        const E sum = ConjMulAdd(u[j * cols + k], left, ConjMulAdd(y[j * cols + k], right, E{}));
        row[j] = (k == 0 ? Conj(factor * own[j]) : row[j]) - Conj(sum);
      }
    }
  }
}

// Blocks of one row. A = L P Lᴴ with pivots P and a unit triangle L needs no square roots.

template <class E>
LINALG_INLINE E Quotient(E a, RealElement<E> p) {
  if constexpr (kComplexElement<E>) {
    return E{a.re / p, a.im / p};
  } else {
    return a / p;
  }
}

// Replaces `lower` by the elements of L below its diagonal, and b by P⁻¹ L⁻¹ b. Calls use(t, p)
// with each pivot.
template <class E, class Use>
LINALG_INLINE void EliminateScalars(int64_t steps, const E* diagonal, E* lower, E* b, Use&& use) {
  RealElement<E> pivot = Re(diagonal[0]);
  E y = b[0];
  for (int64_t t = 0;; ++t) {
    use(t, pivot);
    b[t] = Quotient(y, pivot);
    if (t + 1 == steps) return;
    const E beside = lower[t], multiplier = Quotient(beside, pivot);
    lower[t] = multiplier;
    pivot = Re(diagonal[t + 1]) - Re(ConjMulAdd(beside, multiplier, E{}));
    y = NegMulAdd(multiplier, y, b[t + 1]);
  }
}

// The solution at step t, after that of the next one, given what EliminateScalars left.
template <class E>
LINALG_INLINE E BackScalar(E multiplier, E next, E b) {
  return b - ConjMulAdd(multiplier, next, E{});
}

}  // namespace linalg::small
