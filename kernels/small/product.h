// c = op(a) op(b) for small row-major matrices, one after another. A row of c is a few registers,
// to which rows of b are added.
//
// Lanes hold neighbouring columns, complex numbers in pairs of lanes. So nothing is transposed
// except a transposed b. A row that does not fill its register is computed and stored together with
// the numbers after it. The next row overwrites these. Each element is one chain of fused products
// in the order of the depth. So its bits do not depend on the other sizes or on the place in a
// batch.
#pragma once

#include <algorithm>

#include "kernels/arithmetic/pack.h"
#include "kernels/arithmetic/pairs.h"
#include "kernels/arithmetic/strided.h"

namespace linalg::small {

// The right operand as rows of registers, `next` real numbers apart. It is either unchanged, or in
// panels: kLanes columns with their rows one after another.
template <class T>
struct RightOperand {
  const T* data;
  int64_t row, next;
  bool in_panels;
};

// The first column of a row's register. The last registers overlap rather than leave the row,
// unless the row is shorter than a register.
template <class V>
LINALG_INLINE int FirstColumn(int index, int cols) {
  constexpr int kWidth = kLanesOf<V>;
  return cols <= kWidth ? 0 : std::min(index * kWidth, cols - kWidth);
}

template <class V>
LINALG_INLINE int RegistersFor(int cols) {
  return (cols + kLanesOf<V> - 1) / kLanesOf<V>;
}

// Computes kRows rows and kCols registers of c. Conjugating b is equivalent to conjugating a and
// the product.
template <bool kComplex, int kRows, int kCols, class V>
LINALG_INLINE void ProductBlock(int depth, Strided<Lane<V>> a, const Lane<V>* b, int64_t b_row,
                                int64_t b_next, bool conjugate_a, bool conjugate_c,
                                Lane<V>* const (&c)[kCols], int64_t c_row) {
  V block[kRows][kCols] = {};
  for (int k = 0; k < depth; ++k) {
    V right[kCols], turned[kCols];
#pragma GCC unroll 2
    for (int j = 0; j < kCols; ++j) {
      right[j] = LoadUnaligned<V>(b + k * b_row + j * b_next);
      if constexpr (kComplex) {
        turned[j] = TimesI(right[j], conjugate_a);  // multiplied by the imaginary parts of a
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Lane<V>* const left = a.data + i * a.row + k * a.col;
#pragma GCC unroll 2
      for (int j = 0; j < kCols; ++j) {
        block[i][j] = MulAdd(Broadcast<V>(left[0]), right[j], block[i][j]);
        if constexpr (kComplex) {
          block[i][j] = MulAdd(Broadcast<V>(left[1]), turned[j], block[i][j]);
        }
      }
    }
  }
  if (kComplex && conjugate_c) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (int j = 0; j < kCols; ++j) block[i][j] = ConjugatePairs(block[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kCols; ++j) StoreUnaligned(block[i][j], c[j] + i * c_row);
  }
}

// c (rows, cols) = a (rows, depth) b (depth, cols). Complex a and c are conjugated on request.
// Needs rows >= kRows; `cols` and the strides count real numbers.
template <bool kComplex, int kRows, class V>
LINALG_INLINE void Product(int rows, int cols, int depth, Strided<Lane<V>> a,
                           RightOperand<Lane<V>> b, bool conjugate_a, bool conjugate_c,
                           Lane<V>* c) {
  const int registers = RegistersFor<V>(cols);
  for (int done = 0; done < rows; done += kRows) {
    const int i = std::min(done, rows - kRows);
    const Strided<Lane<V>> left = a.At(i, 0);
    Lane<V>* const target = c + i * cols;
    const auto right = [&](int j) {
      return b.data + (b.in_panels ? j * b.next : FirstColumn<V>(j, cols));
    };
    const auto first = [&](int j) { return target + FirstColumn<V>(j, cols); };
    int j = 0;
    for (; (j + 2) * kLanesOf<V> <= cols; j += 2) {
      ProductBlock<kComplex, kRows, 2, V>(depth, left, right(j), b.row, b.next, conjugate_a,
                                          conjugate_c, {first(j), first(j + 1)}, cols);
    }
    for (; j < registers; ++j) {
      ProductBlock<kComplex, kRows, 1, V>(depth, left, right(j), b.row, b.next, conjugate_a,
                                          conjugate_c, {first(j)}, cols);
    }
  }
}

// The transpose of the rows-by-cols matrix `b`, in panels.
template <bool kComplex, class V>
LINALG_INLINE void TransposeToPanels(int rows, int cols, const Lane<V>* b, Lane<V>* panels) {
  constexpr int kParts = kComplex ? 2 : 1, kWidth = kLanesOf<V> / kParts;
  for (int j = 0; j < RegistersFor<V>(rows * kParts); ++j) {
    const int first = FirstColumn<V>(j, rows * kParts) / kParts;
    const Lane<V>* const source = b + first * cols * kParts;
    Lane<V>* const panel = panels + j * cols * kLanesOf<V>;
    if constexpr (kComplex && sizeof(Lane<V>) == 8) {
      for (int k = 0; k < cols; ++k) {
        for (int i = 0; i < kWidth; ++i) {
          std::copy_n(source + (i * cols + k) * 2, 2, panel + k * kLanesOf<V> + i * 2);
        }
      }
    } else {
      using M = MoveType<kParts * sizeof(Lane<V>)>;
      Pack(reinterpret_cast<const M*>(source), cols, cols,
           reinterpret_cast<Vector<M, kWidth>*>(panel));
    }
  }
}

}  // namespace linalg::small
