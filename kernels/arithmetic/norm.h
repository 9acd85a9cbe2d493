// Norms of columns whose squares may leave the range of the numbers.
#pragma once

#include "kernels/arithmetic/element.h"

namespace linalg {

template <class V>
LINALG_INLINE V CopySign(V magnitude, V sign) {
  if constexpr (std::is_same_v<V, Lane<V>>) {
    return std::copysign(magnitude, sign);
  } else {
    using Bits = Mask<V>;
    const Bits bit = (Bits)(-V{});
    return (V)(((Bits)magnitude & ~bit) | ((Bits)sign & bit));
  }
}

// What sums of squares are trusted in: between kLeast and kMost nothing that matters has under- or
// overflowed. Columns beyond are first multiplied by kUp or kDown, powers of two.
template <class T>
struct SquareRange;
template <>
struct SquareRange<float> {
  static constexpr float kLeast = 0x1p-100f, kMost = 0x1p100f, kUp = 0x1p105f, kDown = 0x1p-75f;
};
template <>
struct SquareRange<double> {
  static constexpr double kLeast = 0x1p-960, kMost = 0x1p1000, kUp = 0x1p600, kDown = 0x1p-600;
};

// The power of two by which columns of the sum of squares `total` are multiplied first, and its
// inverse: 1 within the range.
template <class V>
struct SquareScale {
  V scale, unscale;

  LINALG_INLINE explicit SquareScale(V total) {
    using Range = SquareRange<Lane<V>>;
    const auto large = total > Broadcast<V>(Range::kMost);
    const auto small = total < Broadcast<V>(Range::kLeast);
    const V one = Broadcast<V>(1);
    scale = large ? Broadcast<V>(Range::kDown) : small ? Broadcast<V>(Range::kUp) : one;
    unscale = large ? Broadcast<V>(1 / Range::kDown) : small ? Broadcast<V>(1 / Range::kUp) : one;
  }
};

// Squared norms of rows or columns of a matrix of norm 1: what is not above kNull is too small for
// squares and products of squares, and is taken to be of no direction; pairs of those below kShort
// are scaled.
template <class T>
struct JacobiRange;
template <>
struct JacobiRange<float> {
  static constexpr float kNull = 0x1p-70f, kShort = 0x1p-10f, kUp = 0x1p60f;
};
template <>
struct JacobiRange<double> {
  static constexpr double kNull = 0x1p-860, kShort = 0x1p-10, kUp = 0x1p600;
};

// Sweeps over all pairs that Jacobi's method is given; five to ten are usual.
inline constexpr int kJacobiSweeps = 40;

}  // namespace linalg
