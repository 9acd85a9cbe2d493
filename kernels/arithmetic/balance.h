// The ranges within which matrices are balanced and eigenvectors are held.
#pragma once

#include "kernels/arithmetic/element.h"

namespace linalg {

// Passes over all rows; three to five are usual.
inline constexpr int kBalancePasses = 40;

template <class T>
struct BalanceRange;
template <>
struct BalanceRange<float> {
  // Of D and its inverse, and of what eigenvectors hold before D multiplies them: the product of
  // both is in range.
  static constexpr float kMost = 0x1p100f, kMostOfVector = 0x1p20f;
  // Elements times this have squares that are in range, down to those of no account.
  static constexpr float kUp = 0x1p40f;
};
template <>
struct BalanceRange<double> {
  static constexpr double kMost = 0x1p800, kMostOfVector = 0x1p200;
  static constexpr double kUp = 0x1p300;
};

// The power of two by which a column is multiplied, and a row divided, that are about as long then,
// where `on` holds and their sum becomes so much smaller that it pays; else 1. `before` is what
// they have been multiplied by.
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
