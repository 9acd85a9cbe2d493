// Products of many factors with a separate exponent: they overflow only if the result does.
#pragma once

#include "kernels/arithmetic/logarithm.h"

namespace linalg {

template <class E>
struct SignAndLogarithm {
  E sign;
  RealElement<E> logarithm;
};

// The number product * 2^(kExponentStep exponent).
template <class E>
struct ScaledProduct {
  using V = RealElement<E>;
  using T = Lane<V>;
  static constexpr int kExponentStep = sizeof(T) == 4 ? 80 : 512;
  static constexpr T kUp = sizeof(T) == 4 ? T(0x1p80) : T(0x1p512);

  E product = FromReal<E>(Broadcast<V>(1));
  V exponent{};

  LINALG_INLINE void Multiply(E x) {
    product = Mul(product, Normalise(Normalise(x)));
    product = Normalise(product);
  }

  // The sign and the logarithm of the magnitude. The sign of zero is zero.
  LINALG_INLINE SignAndLogarithm<E> InParts() const {
    ScaledProduct normal = *this;  // The modulus squares the product, so that must be in range.
    normal.product = normal.Normalise(normal.Normalise(product));
    const E x = normal.product;
    const V one = Broadcast<V>(1), size = Modulus(x);
    E sign;
    if constexpr (kComplexElement<E>) {
      sign = (one / (size == V{} ? one : size)) * x;
    } else {
      sign = x > V{} ? one : x < V{} ? -one : x;
    }
    return {sign, Logarithm(size, Broadcast<V>(kExponentStep) * normal.exponent)};
  }

  LINALG_INLINE E Value() const {
    E value = product;
    if (!Any(exponent != V{})) return value;
    // The product is within half a step of 1, so three steps are out of range.
    for (int i = 0; i < 3; ++i) {
      const V step = Number<V>(i);
      value = (exponent > step    ? Broadcast<V>(kUp)
               : exponent < -step ? Broadcast<V>(1 / kUp)
                                  : Broadcast<V>(1)) *
              value;
    }
    return value;
  }

 private:
  // Moves a power of two to the exponent if x is far from 1.
  LINALG_INLINE E Normalise(E x) {
    constexpr T kLarge = sizeof(T) == 4 ? T(0x1p40) : T(0x1p256);
    const V size = Magnitude(x);
    const auto large = size > Broadcast<V>(kLarge);
    const auto small = (size < Broadcast<V>(1 / kLarge)) & (size > V{});
    const V one = Broadcast<V>(1);
    exponent += large ? one : small ? -one : V{};
    return (large ? Broadcast<V>(1 / kUp) : small ? Broadcast<V>(kUp) : one) * x;
  }
};

// Moves the exponent one step towards 0. Returns the power of two of that step: 2^kExponentStep or
// its inverse, both safe to multiply by, or 1 if the exponent was 0.
template <class E>
LINALG_INLINE RealElement<E> TakeStep(ScaledProduct<E>& x) {
  using V = RealElement<E>;
  const V one = Broadcast<V>(1), up = Broadcast<V>(ScaledProduct<E>::kUp);
  const V turn = x.exponent > V{} ? one : x.exponent < V{} ? -one : V{};
  x.exponent -= turn;
  return turn > V{} ? up : turn < V{} ? one / up : one;
}

// Scales the identity before substitution, since the inverse alone might overflow. The scale is the
// determinant as far as it is in range. The exponent keeps the remaining factor.
template <class E>
LINALG_INLINE E TakePower(ScaledProduct<E>& det) {
  return TakeStep(det) * det.product;
}

// Multiplies by the remaining factor. After at most eight steps, the result is 0 or infinite.
template <class E>
LINALG_INLINE void MultiplyByPower(int64_t count, ScaledProduct<E> det, E* cofactors) {
  using V = RealElement<E>;
  for (int step = 0; step < 8 && Any(det.exponent != V{}); ++step) {
    const V power = TakeStep(det);
    for (int64_t i = 0; i < count; ++i) cofactors[i] = power * cofactors[i];
  }
}

// The determinant from LU factors: the product of the pivots, negated for every exchange. The rows
// or columns of `lu` are `ld` apart. Pivots count from 0, as integers or as numbers in lanes.
template <class E, class Pivot>
LINALG_INLINE ScaledProduct<E> ProductOfPivots(int64_t n, const E* lu, int64_t ld,
                                               const Pivot* pivots) {
  using V = RealElement<E>;
  ScaledProduct<E> det;
  for (int64_t i = 0; i < n; ++i) {
    const E pivot = lu[i * (ld + 1)];
    Mask<V> kept;
    if constexpr (std::is_same_v<Pivot, int32_t>) {
      kept = pivots[i] == i;
    } else {
      kept = pivots[i] == Number<V>(i);
    }
    det.Multiply(Choose(kept, pivot, -pivot));
  }
  return det;
}

}  // namespace linalg
