// Products of many factors, with their exponent kept apart: they overflow only if they must.
#pragma once

#include "kernels/arithmetic/logarithm.h"

namespace linalg {

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

  // The same number, the square of whose product is in range.
  LINALG_INLINE void Normalise() { product = Normalise(Normalise(product)); }

  // Zero, or what remains of the normalised product without its magnitude.
  LINALG_INLINE E Sign() const {
    const V one = Broadcast<V>(1);
    if constexpr (kComplexElement<E>) {
      const V size = Modulus(product);
      return (one / (size == V{} ? one : size)) * product;
    } else {
      return product > V{} ? one : product < V{} ? -one : product;
    }
  }

  LINALG_INLINE V LogarithmOfMagnitude() const {
    return Logarithm(Modulus(product), Broadcast<V>(kExponentStep) * exponent);
  }

  LINALG_INLINE E Value() const {
    E value = product;
    if (!Any(exponent != V{})) return value;
    // The product is within half a step of 1, so three steps are out of range.
    for (int i = 0; i < 3; ++i) {
      const V step = Broadcast<V>(static_cast<T>(i));
      value = (exponent > step    ? Broadcast<V>(kUp)
               : exponent < -step ? Broadcast<V>(1 / kUp)
                                  : Broadcast<V>(1)) *
              value;
    }
    return value;
  }

 private:
  // Moves a power of two to the exponent where x is far from 1.
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

}  // namespace linalg
