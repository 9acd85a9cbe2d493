// Banded matrices, one per lane: elimination with partial pivoting (LAPACK's gbtf2), Cholesky
// factors (pbtf2), and substitution. A Pointer is an E* or a strided pointer.
#pragma once

#include <cstdint>

#include "kernels/arithmetic/divisor.h"
#include "kernels/arithmetic/info.h"

namespace linalg::small {

// The storage of a matrix for elimination. Each row begins at its own first column: the column that
// is eliminated when the window of `below` + 1 rows reaches the row. Zeros pad each row to Width()
// elements. Row exchanges never create more elements than that.
struct BandedRows {
  int n, below, above;

  LINALG_INLINE int Width() const { return below + above + 1; }
  LINALG_INLINE int First(int row) const { return row > below ? row - below : 0; }
  LINALG_INLINE int Last(int row) const { return row + above < n ? row + above : n - 1; }
};

// Replaces the row-major `x` (n, cols) by A⁻¹ x, and the rows of `a` by U's. Returns info: 0, the
// 1-based index of the first zero pivot, or kHoldsNaN where U holds NaN. x is NaN if info is not 0.
template <class E, class Pointer = E*>
LINALG_INLINE RealElement<E> SolveBanded(BandedRows shape, Pointer a, int cols, Pointer x) {
  using V = RealElement<E>;
  const int n = shape.n, below = shape.below, width = shape.Width();
  const E zero = FromReal<E>(V{});
  V info{};
  Mask<V> undefined = V{} != V{};
  for (int k = 0; k < n; ++k) {
    const int end = k + below < n ? k + below : n - 1;
    const Pointer top = a + static_cast<int64_t>(k) * width;
    const Pointer rhs = x + static_cast<int64_t>(k) * cols;
    // Partial pivoting: each lane exchanges row k with its own pivot row.
    V largest = Magnitude(top[0]), place{};
    for (int i = k + 1; i <= end; ++i) {
      const V size = Magnitude(a[static_cast<int64_t>(i) * width]);
      const auto larger = size > largest;
      largest = larger ? size : largest;
      place = larger ? Number<V>(i - k) : place;
    }
    info = (largest == V{}) & (info == V{}) ? Number<V>(k + 1) : info;
    for (int i = k + 1; i <= end; ++i) {
      const auto exchanged = place == Number<V>(i - k);
      if (!Any(exchanged)) continue;
      const Pointer row = a + static_cast<int64_t>(i) * width;
      for (int c = 0; c < width; ++c) ExchangeWhere(exchanged, top[c], row[c]);
      const Pointer other = x + static_cast<int64_t>(i) * cols;
      for (int j = 0; j < cols; ++j) ExchangeWhere(exchanged, rhs[j], other[j]);
    }
    const auto singular = largest == V{};
    const Divisor<E> pivot(top[0]);
    for (int i = k + 1; i <= end; ++i) {
      const Pointer row = a + static_cast<int64_t>(i) * width;
      const E factor = Choose(singular, zero, pivot.Divide(row[0]));
      for (int c = 1; c < width; ++c) row[c - 1] = NegMulAdd(factor, top[c], row[c]);
      row[width - 1] = zero;
      const Pointer other = x + static_cast<int64_t>(i) * cols;
      for (int j = 0; j < cols; ++j) other[j] = NegMulAdd(factor, rhs[j], other[j]);
    }
  }
  for (int k = n - 1; k >= 0; --k) {
    const Pointer row = a + static_cast<int64_t>(k) * width;
    const Pointer rhs = x + static_cast<int64_t>(k) * cols;
    const int count = width < n - k ? width : n - k;
    for (int c = 0; c < count; ++c) undefined |= IsNaN(row[c]);
    const Divisor<E> pivot(row[0]);
    for (int j = 0; j < cols; ++j) {
      E sum = rhs[j];
      for (int c = 1; c < count; ++c) {
        sum = NegMulAdd(row[c], rhs[static_cast<int64_t>(c) * cols + j], sum);
      }
      rhs[j] = pivot.Divide(sum);
    }
  }
  info = undefined ? Broadcast<V>(kHoldsNaN) : info;
  FillNaN(info != V{}, static_cast<int64_t>(n) * cols, x);
  return info;
}

// Overwrites the columns of a Hermitian matrix by those of L. A column has `width` elements from
// the diagonal down; elements below the last row are not read. Returns 0, or the order of the first
// leading minor that is not positive, in each lane.
template <class E, class Pointer = E*>
LINALG_INLINE RealElement<E> BandedCholesky(int n, int width, Pointer a) {
  using V = RealElement<E>;
  V failed{};
  for (int k = 0; k < n; ++k) {
    const int count = width < n - k ? width : n - k;
    const Pointer column = a + static_cast<int64_t>(k) * width;
    const V pivot = Re(column[0]);
    // NaN is not positive. Infinity is, as in LAPACK.
    failed = (pivot > V{}) | (failed > V{}) ? failed : Number<V>(k + 1);
    const V root = Sqrt(pivot), inverse = Broadcast<V>(1) / root;
    column[0] = FromReal<E>(root);
    for (int i = 1; i < count; ++i) column[i] = inverse * column[i];
    for (int j = 1; j < count; ++j) {
      const Pointer other = column + static_cast<int64_t>(j) * width;
      const E factor = Conj(column[j]);
      for (int i = j; i < count; ++i) other[i - j] = NegMulAdd(factor, column[i], other[i - j]);
    }
  }
  return failed;
}

// Replaces the row-major `x` (n, cols) by L⁻ᴴ L⁻¹ x. `a` holds L by columns.
template <class E, class Pointer = E*>
LINALG_INLINE void SolveBandedCholesky(int n, int width, Pointer a, int cols, Pointer x) {
  for (int k = 0; k < n; ++k) {
    const int count = width < n - k ? width : n - k;
    const Pointer column = a + static_cast<int64_t>(k) * width;
    const Pointer rhs = x + static_cast<int64_t>(k) * cols;
    const Divisor<E> diagonal(column[0]);
    for (int j = 0; j < cols; ++j) rhs[j] = diagonal.Divide(rhs[j]);
    for (int i = 1; i < count; ++i) {
      const Pointer other = rhs + static_cast<int64_t>(i) * cols;
      for (int j = 0; j < cols; ++j) other[j] = NegMulAdd(column[i], rhs[j], other[j]);
    }
  }
  for (int k = n - 1; k >= 0; --k) {
    const int count = width < n - k ? width : n - k;
    const Pointer column = a + static_cast<int64_t>(k) * width;
    const Pointer rhs = x + static_cast<int64_t>(k) * cols;
    const Divisor<E> diagonal(Conj(column[0]));
    for (int j = 0; j < cols; ++j) {
      E sum = rhs[j];
      // From the last row, in whose order a team adds.
      for (int i = count - 1; i > 0; --i) {
        sum = NegMulAdd(Conj(column[i]), rhs[static_cast<int64_t>(i) * cols + j], sum);
      }
      rhs[j] = diagonal.Divide(sum);
    }
  }
}

}  // namespace linalg::small
