// Products and triangular solves in tiles, for what is built on them.
#pragma once

#include "kernels/blocked/tile.h"

namespace linalg::blocked {

// Rows of the right operand that stay in the first-level cache while tiles pass over them.
inline constexpr int64_t kDepth = 128;

// c (rows, cols) -= a (rows, depth) b (depth, cols)
template <class T>
void MulSub(int64_t rows, int64_t cols, int64_t depth, Strided<T> a, Rows<T> b, Rows<T> c) {
  for (int64_t k = 0; k < depth; k += kDepth) {
    const int64_t count = std::min(kDepth, depth - k);
    ForEachGroupOfColumns<T>(0, cols,
                             [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
                               for (int64_t i = 0; i < rows; i += kTileRows) {
                                 Tile<T, kTileRows, kCols> tile(c.At(i, j));
                                 tile.template Subtract<false>(count, a.At(i, k), b.At(k, j));
                                 tile.Store(c.At(i, j));
                               }
                             });
  }
}

// x (n, kCols registers) = op(a)⁻¹ x with the lower triangle of a; divide(i, x) is x over the
// diagonal's element i.
template <bool kConjugate, int kCols, class T, class Divide>
LINALG_INLINE void SolveLowerColumns(int64_t n, Strided<T> a, Divide&& divide, Rows<T> x) {
  for (int64_t i = 0; i < n; i += kTileRows) {
    Tile<T, kTileRows, kCols> tile(x.At(i, 0));
    tile.template Subtract<kConjugate>(i, a.At(i, 0), x);
    const auto divide_row = [&](int k, Register<T> row) { return divide(i + k, row); };
    tile.template Solve<kConjugate>(a.At(i, i), divide_row, x.At(i, 0));
  }
}

// The same for any number of columns, by a unit triangle.
template <class T>
void SolveUnitLower(int64_t n, int64_t cols, Strided<T> a, Rows<T> x) {
  const auto divide = [](int64_t, Register<T> row) { return row; };
  ForEachGroupOfColumns<T>(0, cols, [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
    SolveLowerColumns<false, kCols>(n, a, divide, x.At(0, j));
  });
}

}  // namespace linalg::blocked
