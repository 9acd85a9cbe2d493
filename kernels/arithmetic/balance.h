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

}  // namespace linalg
