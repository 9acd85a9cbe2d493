// Register blocking: a tile is a few rows of a row-major matrix by a few registers of neighbouring
// columns.
//
// A tile is loaded once, updated by products of left factors with rows of the matrix, and stored
// once. Each element is one chain of fused products in the order of the depth, starting with the
// element itself. So its bits do not depend on the sizes, on the tile's place, or on how the depth
// is blocked. Complex numbers lie in pairs of lanes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/arithmetic/columns.h"
#include "kernels/arithmetic/element.h"
#include "kernels/arithmetic/pairs.h"
#include "kernels/arithmetic/registers.h"
#include "kernels/arithmetic/strided.h"

namespace linalg::blocked {

// A register of numbers T, and how many it holds.
template <class T>
using Register = Vector<RealElement<T>, kRegisterBytes / sizeof(RealElement<T>)>;
template <class T>
inline constexpr int kWidth = kRegisterBytes / sizeof(T);

// Rows and registers of a tile: enough independent chains to keep the FMA units busy, few enough
// for the register file.
inline constexpr int kTileRows = kManyRegisters ? 8 : 4;
#if defined(__FMA__) || defined(__aarch64__)
inline constexpr int kTileRegisters = 3;
#else
inline constexpr int kTileRegisters = 2;
#endif

// A row-major matrix whose rows are `ld` apart.
template <class T>
struct Rows {
  T* data;
  int64_t ld;

  Rows At(int64_t i, int64_t j) const { return {data + i * ld + j, ld}; }
  Strided<T> AsStrided() const { return {data, ld, 1}; }
  Strided<T> Transposed() const { return {data, 1, ld}; }
};

template <class T>
LINALG_INLINE Register<T> Load(const T* source) {
  return LoadUnaligned<Register<T>>(reinterpret_cast<const RealElement<T>*>(source));
}
template <class T>
LINALG_INLINE void Store(Register<T> x, T* target) {
  StoreUnaligned(x, reinterpret_cast<RealElement<T>*>(target));
}

// A number in every lane.
template <class T>
LINALG_INLINE Element<T, Register<T>> WidenElement(Element<T> x) {
  return Widen<Register<T>>(x);
}
template <class T>
LINALG_INLINE Element<T, Register<T>> WidenElement(const T* source) {
  return WidenElement<T>(std::bit_cast<Element<T>>(*source));
}

// The complex numbers times i: the factor of a left operand's imaginary part. Times -i if the left
// operand is conjugated.
template <class T, bool kConjugate = false>
LINALG_INLINE Register<T> Turn(Register<T> x) {
  if constexpr (kComplexElement<T>) {
    return TimesI(x, kConjugate);
  } else {
    return x;
  }
}

// left right + sum, and left right
template <class T>
LINALG_INLINE Register<T> AddProduct(Element<T, Register<T>> left, Register<T> right,
                                     Register<T> turned, Register<T> sum) {
  if constexpr (kComplexElement<T>) {
    return MulAdd(left.im, turned, MulAdd(left.re, right, sum));
  } else {
    return MulAdd(left, right, sum);
  }
}
template <class T>
LINALG_INLINE Register<T> Product(Element<T, Register<T>> left, Register<T> right) {
  if constexpr (kComplexElement<T>) {
    return MulAdd(left.im, Turn<T>(right), left.re * right);
  } else {
    return left * right;
  }
}

// A tile in registers. It holds the negative of the matrix, so that MulAdd subtracts a product.
template <class T, int kRows, int kCols>
struct Tile {
  using V = Register<T>;
  V x[kRows][kCols] = {};

  Tile() = default;
  LINALG_INLINE explicit Tile(Rows<T> c) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) x[i][j] = -Load<T>(c.At(i, j * kWidth<T>).data);
    }
  }

  LINALG_INLINE void Store(Rows<T> c) const {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) blocked::Store<T>(At(i, j), c.At(i, j * kWidth<T>).data);
    }
  }

  // The value for the matrix. Subtracted from 0, so that a zero sum is +0, as in the other paths.
  LINALG_INLINE V At(int i, int j) const { return V{} - x[i][j]; }

  // Subtracts op(a) b for one column of a and one row of b, from row `first` of the tile on.
  template <bool kConjugate>
  LINALG_INLINE void SubtractOne(int first, Strided<T> a, const V (&b)[kCols]) {
    V turned[kCols];
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) turned[j] = Turn<T, kConjugate>(b[j]);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      if (i < first) continue;
      const auto left = WidenElement(a.At(i, 0).data);
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) x[i][j] = AddProduct<T>(left, b[j], turned[j], x[i][j]);
    }
  }

  // Subtracts op(a) b, where b has `depth` rows.
  template <bool kConjugate>
  LINALG_INLINE void Subtract(int64_t depth, Strided<T> a, Rows<T> b) {
    for (int64_t k = 0; k < depth; ++k) {
      V right[kCols];
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) right[j] = Load<T>(b.At(k, j * kWidth<T>).data);
      SubtractOne<kConjugate>(0, a.At(0, k), right);
    }
  }

  // Solves op(a) x = tile with the lower triangle of a, row by row, and stores x. divide(i, x) is x
  // over diagonal element i.
  template <bool kConjugate, class Divide>
  LINALG_INLINE void Solve(Strided<T> a, Divide&& divide, Rows<T> target) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      V solved[kCols];
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) {
        solved[j] = divide(i, At(i, j));
        blocked::Store(solved[j], target.At(i, j * kWidth<T>).data);
      }
      SubtractOne<kConjugate>(i + 1, a.At(0, i), solved);
    }
  }
};

// Prefetches a tile to the first-level cache, for writing.
template <int kRows, int kCols, class T>
LINALG_INLINE void Prefetch(Rows<T> c) {
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) __builtin_prefetch(c.At(i, j * kWidth<T>).data, 1);
  }
}

// Calls body(j, count) for groups of registers that cover the columns from `first` to `last`. j is
// the group's first column. `count`, a constant, is its number of registers. Groups are as wide as
// a tile, but two and two rather than three and one at the end. The first group has at least kLeast
// registers and goes to `head`.
template <class T, int kLeast, class Head, class Body>
LINALG_INLINE void ForEachGroupOfColumns(int64_t first, int64_t last, Head&& head, Body&& body) {
  int64_t left = (last - first + kWidth<T> - 1) / kWidth<T>, j = first;
  const auto take = [&]<int kCount>(std::integral_constant<int, kCount> count, auto&& use) {
    use(j, count);
    j += kCount * kWidth<T>;
    left -= kCount;
  };
  const auto take_some = [&](auto&& use) {
    if (kTileRegisters == 3 && (left == 3 || left > 4)) {
      take(std::integral_constant<int, kTileRegisters>(), use);
    } else if (left >= 2) {
      take(std::integral_constant<int, 2>(), use);
    } else {
      take(std::integral_constant<int, 1>(), use);
    }
  };
  if constexpr (kLeast > kTileRegisters) {
    take(std::integral_constant<int, kLeast>(), head);
  } else {
    left = std::max<int64_t>(left, kLeast);
    take_some(head);
  }
  while (left > 0) take_some(body);
}

template <class T, class Body>
LINALG_INLINE void ForEachGroupOfColumns(int64_t first, int64_t last, Body&& body) {
  if (first < last) ForEachGroupOfColumns<T, 1>(first, last, body, body);
}

}  // namespace linalg::blocked
