// Ranges for balancing matrices and for the eigenvectors of balanced ones.
#pragma once

#include "kernels/arithmetic/element.h"

namespace linalg {

// Limit of passes over all rows. Three to five are usual.
inline constexpr int kBalancePasses = 40;

template <class T>
struct BalanceRange;
template <>
struct BalanceRange<float> {
  // kMost bounds the diagonal D and its inverse, kMostOfVector the eigenvectors before D scales
  // them. The product of both bounds is in range.
  static constexpr float kMost = 0x1p100f, kMostOfVector = 0x1p20f;
  // Scaled by kUp, every element that matters has a square in range.
  static constexpr float kUp = 0x1p40f;
};
template <>
struct BalanceRange<double> {
  static constexpr double kMost = 0x1p800, kMostOfVector = 0x1p200;
  static constexpr double kUp = 0x1p300;
};

// The power of two that scales a column, and divides its row, to make their norms nearly equal. It
// is 1 outside the mask `on`, and where the sum of both norms shrinks too little to pay. `before`
// is the product of the earlier factors.
template <class V>
LINALG_INLINE V BalancingFactor(Mask<V> on, V column, V row, V before) {
  using Range = BalanceRange<Lane<V>>;
  const V one = Broadcast<V>(1), two = Broadcast<V>(2), half = Number<V>(0.5),
          most = Broadcast<V>(Range::kMost), least = Broadcast<V>(1 / Range::kMost);
  V factor = one, c = column, r = row;
  for (;;) {
    const auto grows = on & (c < half * r) & (factor * before < most);
    const auto shrinks = on & (half * c >= r) & (factor * before > least);
    if (!Any(grows | shrinks)) break;
    const V step = grows ? two : shrinks ? half : one;
    const V back = grows ? half : shrinks ? two : one;
    factor = factor * step;
    c = c * step;
    r = r * back;
  }
  return on & (c + r < Number<V>(0.95) * (column + row)) ? factor : one;
}

}  // namespace linalg
