// c -= a b for small row-major matrices, one per lane: the trailing update of the blocked
// algorithms. Products are summed separately, then subtracted. So rounding errors are in proportion
// to their sum, which is usually smaller than c.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/arithmetic/element.h"
#include "kernels/arithmetic/registers.h"

namespace linalg::small {

// Register blocking: the block of c that is kept in registers.
template <class E>
inline constexpr int kBlockRows = kComplexElement<E> ? 2 : 4;
template <class E>
inline constexpr int kBlockCols = kComplexElement<E> || !kManyRegisters ? 2 : 4;

template <int kRows, int kCols, class E>
LINALG_INLINE void MulSubBlock(int depth, const E* a, int a_stride, const E* b, int b_stride, E* c,
                               int c_stride) {
  E block[kRows][kCols] = {};
  for (int k = 0; k < depth; ++k) {
    E right[kCols];
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) right[j] = b[k * b_stride + j];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const E left = a[i * a_stride + k];
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) block[i][j] = NegMulAdd(left, right[j], block[i][j]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) c[i * c_stride + j] = c[i * c_stride + j] + block[i][j];
}

// c (kRows, cols) -= a (kRows, depth) b (depth, cols)
template <int kRows, class E>
LINALG_INLINE void MulSubRows(int cols, int depth, const E* a, int a_stride, const E* b,
                              int b_stride, E* c, int c_stride) {
  constexpr int kCols = kBlockCols<E>;
  int j = 0;
  for (; j + kCols <= cols; j += kCols) {
    MulSubBlock<kRows, kCols>(depth, a, a_stride, b + j, b_stride, c + j, c_stride);
  }
  for (; j < cols; ++j) {
    MulSubBlock<kRows, 1>(depth, a, a_stride, b + j, b_stride, c + j, c_stride);
  }
}

// c (rows, cols) -= a (rows, depth) b (depth, cols)
template <class E>
LINALG_ONCE void MulSubAll(int rows, int cols, int depth, const E* a, int a_stride, const E* b,
                           int b_stride, E* c, int c_stride) {
  constexpr int kRows = kBlockRows<E>;
  int i = 0;
  for (; i + kRows <= rows; i += kRows) {
    MulSubRows<kRows>(cols, depth, a + i * a_stride, a_stride, b, b_stride, c + i * c_stride,
                      c_stride);
  }
  for (; i < rows; ++i) {
    MulSubRows<1>(cols, depth, a + i * a_stride, a_stride, b, b_stride, c + i * c_stride, c_stride);
  }
}

// MulSubAll, without a call if there is nothing to do.
template <class E>
LINALG_INLINE void MulSub(int rows, int cols, int depth, const E* a, int a_stride, const E* b,
                          int b_stride, E* c, int c_stride) {
  if (rows <= 0 || cols <= 0 || depth <= 0) return;
  MulSubAll(rows, cols, depth, a, a_stride, b, b_stride, c, c_stride);
}

// c (kRows, kCols) -= aᴴ b with a (depth, kRows).
template <int kRows, int kCols, class E>
LINALG_INLINE void AdjointMulSubBlock(int depth, const E* a, int a_stride, const E* b, int b_stride,
                                      E* c, int c_stride) {
  E block[kRows][kCols] = {};
  for (int k = 0; k < depth; ++k) {
    E right[kCols];
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) right[j] = b[k * b_stride + j];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const E left = Conj(a[k * a_stride + i]);
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) block[i][j] = NegMulAdd(left, right[j], block[i][j]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) c[i * c_stride + j] = c[i * c_stride + j] + block[i][j];
}

// c (rows, cols) -= aᴴ b with a (depth, rows)
template <class E>
LINALG_INLINE void AdjointMulSub(int rows, int cols, int depth, const E* a, int a_stride,
                                 const E* b, int b_stride, E* c, int c_stride) {
  if (depth <= 0) return;
  constexpr int kRows = kBlockRows<E>, kCols = kBlockCols<E>;
  const auto block = [&]<int kHeight>(std::integral_constant<int, kHeight>, int i) {
    int j = 0;
    for (; j + kCols <= cols; j += kCols) {
      AdjointMulSubBlock<kHeight, kCols>(depth, a + i, a_stride, b + j, b_stride,
                                         c + i * c_stride + j, c_stride);
    }
    for (; j < cols; ++j) {
      AdjointMulSubBlock<kHeight, 1>(depth, a + i, a_stride, b + j, b_stride, c + i * c_stride + j,
                                     c_stride);
    }
  };
  int i = 0;
  for (; i + kRows <= rows; i += kRows) block(std::integral_constant<int, kRows>(), i);
  for (; i < rows; ++i) block(std::integral_constant<int, 1>(), i);
}

// c := -a b, all n by n.
template <class E>
LINALG_INLINE void NegativeProduct(int n, const E* a, const E* b, E* c) {
  std::fill(c, c + n * n, E{});
  MulSub(n, n, n, a, n, b, n, c, n);
}

}  // namespace linalg::small
