// Tiled products and triangular solves, the building blocks of the factorisations.
#pragma once

#include "kernels/arithmetic/divisor.h"
#include "kernels/blocked/tile.h"

namespace linalg::blocked {

// The depth of a block: so many rows of the right operand stay in the first-level cache while tiles
// pass over them.
inline constexpr int64_t kDepth = 128;

// c (rows, kCols registers) -= op(a) (rows, depth) b (depth, kCols registers). kNew starts from c =
// 0.
template <bool kConjugate, int kCols, bool kNew = false, class T>
LINALG_INLINE void MulSubColumns(int64_t rows, int64_t depth, Strided<T> a, Rows<T> b, Rows<T> c) {
  int64_t k = 0;
  do {
    const int64_t count = std::min(kDepth, depth - k);
    for (int64_t i = 0; i < rows; i += kTileRows) {
      using ThisTile = Tile<T, kTileRows, kCols>;
      if (count == kDepth) Prefetch<kTileRows, kCols>(c.At(i + kTileRows, 0));
      ThisTile tile = kNew && k == 0 ? ThisTile() : ThisTile(c.At(i, 0));
      tile.template Subtract<kConjugate>(count, a.At(i, k), b.At(k, 0));
      tile.Store(c.At(i, 0));
    }
    k += count;
  } while (k < depth);
}

// c (rows, cols) -= op(a) (rows, depth) b (depth, cols)
template <bool kConjugate = false, class T>
void MulSub(int64_t rows, int64_t cols, int64_t depth, Strided<T> a, Rows<T> b, Rows<T> c);

// Divides rows by the elements of a triangle's diagonal. Without divisors the diagonal is one.
template <class T>
struct Diagonal {
  const Divisor<Element<T>>* divisors;

  Diagonal From(int64_t i) const { return {divisors == nullptr ? nullptr : divisors + i}; }
  // row over element i.
  LINALG_INLINE Register<T> Divide(int64_t i, Register<T> row) const {
    if (divisors == nullptr) return row;
    const Divisor<Element<T>>& divisor = divisors[i];
    return Product<T>(WidenElement<T>(divisor.inverse()),
                      Widen<Register<T>>(divisor.scale()) * row);
  }
};

// A diagonal of ones that the compiler knows.
template <class T>
struct UnitDiagonal {
  UnitDiagonal From(int64_t) const { return {}; }
  LINALG_INLINE Register<T> Divide(int64_t, Register<T> row) const { return row; }
};

// Solves for the tile that begins in row `i` of x (n, kCols registers) = op(a)⁻¹ x, with the lower
// triangle of a. `a` begins with the tile's rows of the triangle.
template <bool kConjugate, int kCols, class T, class D>
LINALG_INLINE void SolveLowerTile(int64_t i, Strided<T> a, D diagonal, Rows<T> x) {
  Tile<T, kTileRows, kCols> tile(x.At(i, 0));
  tile.template Subtract<kConjugate>(i, a, x);
  const auto divide_row = [&](int k, Register<T> row) { return diagonal.Divide(i + k, row); };
  tile.template Solve<kConjugate>(a.At(0, i), divide_row, x.At(i, 0));
}

// x (n, cols) = op(a)⁻¹ x, with the lower triangle of a. The divisors cover n, rounded up to whole
// tiles. Each block of kDepth rows is solved, then subtracted from all rows below, so each part of
// the triangle is read once.
template <bool kConjugate, class T, class D>
void SolveLower(int64_t n, int64_t cols, Strided<T> a, D diagonal, Rows<T> x);

// SolveLower with the diagonal of a, which it reads along the way.
template <bool kConjugate, class T>
void SolveGivenLower(int64_t n, int64_t cols, Strided<T> a, Rows<T> x);

template <class T>
void SolveUnitLower(int64_t n, int64_t cols, Strided<T> a, Rows<T> x) {
  SolveLower<false>(n, cols, a, UnitDiagonal<T>(), x);
}

// Views in reverse order: an upper triangle of order n > 0 becomes a lower one. The second reverses
// the right-hand sides.
template <class T>
Strided<T> Reversed(int64_t n, Strided<T> a) {
  return {a.At(n - 1, n - 1).data, -a.row, -a.col};
}
template <class T>
Rows<T> Reversed(int64_t n, Rows<T> x) {
  return {x.At(n - 1, 0).data, -x.ld};
}

}  // namespace linalg::blocked
