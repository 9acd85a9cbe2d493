// Norms of columns whose squares may be out of range.
#pragma once

#include "kernels/arithmetic/element.h"

namespace linalg {

// A sum of squares between kLeast and kMost is accurate. Outside that range, the column is first
// scaled by kUp or kDown, powers of two.
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

// The scale for columns whose sum of squares is `total`, and its inverse. Both are 1 within the
// range.
template <class V>
struct SquareScale {
  V scale, unscale;

  LINALG_INLINE static Mask<V> IsNeeded(V total) {
    using Range = SquareRange<Lane<V>>;
    return (total > Broadcast<V>(Range::kMost)) | (total < Broadcast<V>(Range::kLeast));
  }

  LINALG_INLINE explicit SquareScale(V total) {
    using Range = SquareRange<Lane<V>>;
    const auto large = total > Broadcast<V>(Range::kMost);
    const auto small = total < Broadcast<V>(Range::kLeast);
    const V one = Broadcast<V>(1);
    scale = large ? Broadcast<V>(Range::kDown) : small ? Broadcast<V>(Range::kUp) : one;
    unscale = large ? Broadcast<V>(1 / Range::kDown) : small ? Broadcast<V>(1 / Range::kUp) : one;
  }
};

}  // namespace linalg
