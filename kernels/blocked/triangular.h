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
void MulSub(int64_t rows, int64_t cols, int64_t depth, Strided<T> a, Rows<T> b, Rows<T> c) {
  for (int64_t k = 0; k < depth; k += kDepth) {
    const int64_t count = std::min(kDepth, depth - k);
    ForEachGroupOfColumns<T>(
        0, cols, [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
          MulSubColumns<kConjugate, kCols>(rows, count, a.At(0, k), b.At(k, j), c.At(0, j));
        });
  }
}

// Solves for the tile that begins in row `i` of x (n, kCols registers) = op(a)⁻¹ x, with the lower
// triangle of a. `a` begins with the tile's rows of the triangle. divide(i, x) is x over diagonal
// element i.
template <bool kConjugate, int kCols, class T, class Divide>
LINALG_INLINE void SolveLowerTile(int64_t i, Strided<T> a, Divide&& divide, Rows<T> x) {
  Tile<T, kTileRows, kCols> tile(x.At(i, 0));
  tile.template Subtract<kConjugate>(i, a, x);
  const auto divide_row = [&](int k, Register<T> row) { return divide(i + k, row); };
  tile.template Solve<kConjugate>(a.At(0, i), divide_row, x.At(i, 0));
}

template <bool kConjugate, int kCols, class T, class Divide>
LINALG_INLINE void SolveLowerColumns(int64_t n, Strided<T> a, Divide&& divide, Rows<T> x) {
  for (int64_t i = 0; i < n; i += kTileRows) {
    SolveLowerTile<kConjugate, kCols>(i, a.At(i, 0), divide, x);
  }
}

// Solves for any number of columns. Each block of kDepth rows is solved, then subtracted from all
// rows below, so each part of the triangle is read once. divide_from(first, count) returns a
// function that divides the rows from `first` on by the diagonal. It must cover `count` rows,
// rounded up to whole tiles.
template <bool kConjugate, class T, class DivideFrom>
void SolveLower(int64_t n, int64_t cols, Strided<T> a, DivideFrom&& divide_from, Rows<T> x) {
  for (int64_t first = 0; first < n; first += kDepth) {
    const int64_t count = std::min(kDepth, n - first), next = first + count;
    const auto divide_row = divide_from(first, count);
    ForEachGroupOfColumns<T>(0, cols,
                             [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
                               SolveLowerColumns<kConjugate, kCols>(count, a.At(first, first),
                                                                    divide_row, x.At(first, j));
                             });
    MulSub<kConjugate>(n - next, cols, count, a.At(next, first), x.At(first, 0), x.At(next, 0));
  }
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

// A row divided by an element of the diagonal.
template <class T>
LINALG_INLINE Register<T> Divide(Register<T> row, const Divisor<Element<T>>& divisor) {
  return Product<T>(WidenElement<T>(divisor.inverse()), Widen<Register<T>>(divisor.scale()) * row);
}

// Solves with a lower triangle, reading its diagonal along the way.
template <bool kConjugate, class T>
void SolveGivenLower(int64_t n, int64_t cols, Strided<T> a, Rows<T> x) {
  Divisor<Element<T>> divisors[kDepth];
  const auto divide_from = [&](int64_t first, int64_t count) {
    const int64_t rows = (count + kTileRows - 1) / kTileRows * kTileRows;
    for (int64_t i = first; i < first + rows; ++i) {
      const auto pivot = *reinterpret_cast<const Element<T>*>(&a(i, i));
      divisors[i - first] = Divisor<Element<T>>(kConjugate ? Conj(pivot) : pivot);
    }
    return [&](int64_t i, Register<T> row) { return Divide<T>(row, divisors[i]); };
  };
  SolveLower<kConjugate>(n, cols, a, divide_from, x);
}

template <class T>
void SolveUnitLower(int64_t n, int64_t cols, Strided<T> a, Rows<T> x) {
  const auto unit = [](int64_t, Register<T> row) { return row; };
  SolveLower<false>(n, cols, a, [=](int64_t, int64_t) { return unit; }, x);
}

}  // namespace linalg::blocked
