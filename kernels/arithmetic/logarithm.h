// The natural logarithm in every lane. The bits are equal for every register width.
//
// Reduces to x = 2^k (1 + f) with 1 + f in [√½, √2). Then log(1 + f) = f - f²/2 + s (f²/2 + R(s²))
// with s = f / (2 + f). The polynomials R are from FreeBSD's msun (e_log.c and e_logf.c). The error
// is within one unit in the last place.
#pragma once

#include <bit>
#include <type_traits>

#include "kernels/arithmetic/element.h"

namespace linalg {

// first + x (second + x (...))
template <class V>
LINALG_INLINE V Polynomial(V, Lane<V> last) {
  return Broadcast<V>(last);
}
template <class V, class... Rest>
LINALG_INLINE V Polynomial(V x, Lane<V> first, Lane<V> second, Rest... rest) {
  return MulAdd(Polynomial(x, second, rest...), x, Broadcast<V>(first));
}

template <class T>
struct LogarithmOf;
template <>
struct LogarithmOf<double> {
  using Bits = int64_t;
  static constexpr int kMantissaBits = 52;
  static constexpr Bits kOne = 0x3ff0000000000000, kSqrtHalf = 0x3fe6a09e667f3bcd;
  static constexpr double kLn2High = 6.93147180369123816490e-01;
  static constexpr double kLn2Low = 1.90821492927058770002e-10;

  template <class V>
  static LINALG_INLINE V Even(V x) {
    return Polynomial(x, 3.999999999940941908e-01, 2.222219843214978396e-01,
                      1.531383769920937332e-01);
  }
  template <class V>
  static LINALG_INLINE V Odd(V x) {
    return Polynomial(x, 6.666666666666735130e-01, 2.857142874366239149e-01,
                      1.818357216161805012e-01, 1.479819860511658591e-01);
  }
};
template <>
struct LogarithmOf<float> {
  using Bits = int32_t;
  static constexpr int kMantissaBits = 23;
  static constexpr Bits kOne = 0x3f800000, kSqrtHalf = 0x3f3504f3;
  static constexpr float kLn2High = 6.9313812256e-01f, kLn2Low = 9.0580006145e-06f;

  template <class V>
  static LINALG_INLINE V Even(V x) {
    return Polynomial(x, 0x1.999c26p-2f, 0x1.f13c4cp-3f);
  }
  template <class V>
  static LINALG_INLINE V Odd(V x) {
    return Polynomial(x, 0x1.555554p-1f, 0x1.23d3dcp-2f);
  }
};

// log(x 2^exponent), for x >= 0 that is not subnormal.
template <class V>
LINALG_INLINE V Logarithm(V x, V exponent) {
  using T = Lane<V>;
  using Of = LogarithmOf<T>;
  using Bits = Vector<typename Of::Bits, kLanesOf<V>>;
  // Unsigned: the sum wraps for a NaN with the largest bit pattern.
  using Wrapping = std::make_unsigned_t<typename Of::Bits>;
  using WrappingBits = Vector<Wrapping, kLanesOf<V>>;
  const Bits shifted = std::bit_cast<Bits>(std::bit_cast<WrappingBits>(x) +
                                           static_cast<Wrapping>(Of::kOne - Of::kSqrtHalf));
  const Bits power = (shifted >> Of::kMantissaBits) - (Of::kOne >> Of::kMantissaBits);
  constexpr typename Of::Bits kMantissa = (typename Of::Bits{1} << Of::kMantissaBits) - 1;
  const V f = std::bit_cast<V>((shifted & kMantissa) + Of::kSqrtHalf) - Broadcast<V>(1);
  V k;
  if constexpr (kLanesOf<V> == 1) {
    k = static_cast<V>(power) + exponent;
  } else {
    k = __builtin_convertvector(power, V) + exponent;
  }
  const V half_square = Number<V>(0.5) * f * f;
  const V s = f / (Broadcast<V>(2) + f), z = s * s, w = z * z;
  const V r = MulAdd(w, Of::Even(w), z * Of::Odd(w));
  const V low = MulAdd(s, half_square + r, k * Broadcast<V>(Of::kLn2Low));
  const V log = MulAdd(k, Broadcast<V>(Of::kLn2High), f - (half_square - low));
  // Zero, infinity and NaN have no such reduction.
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const V special = x == V{} ? Broadcast<V>(-kInfinity) : x;
  return (x > V{}) & (x < Broadcast<V>(kInfinity)) ? log : special;
}

// The logarithm of a product of positive numbers that are not subnormal, or infinite. Exponents are
// summed apart, so that the product stays in range and takes one logarithm.
template <class V>
class LogarithmOfProduct {
  using T = Lane<V>;
  using Of = LogarithmOf<T>;
  using Bits = Vector<typename Of::Bits, kLanesOf<V>>;

 public:
  LINALG_INLINE void Multiply(V x) {
    largest_ = Larger(x, largest_);
    product_ = product_ * TakeExponent(x);
    // The product of so many numbers below 2 is in range.
    if (++count_ % 64 == 0) product_ = TakeExponent(product_);
  }

  LINALG_INLINE V Value() const {
    V exponent;
    if constexpr (kLanesOf<V> == 1) {
      exponent = static_cast<V>(exponent_);
    } else {
      exponent = __builtin_convertvector(exponent_, V);
    }
    const V infinity = Broadcast<V>(std::numeric_limits<T>::infinity());
    return largest_ == infinity ? infinity : Logarithm(product_, exponent);
  }

 private:
  // Adds the exponent of x to the sum, and returns the rest, in [1, 2).
  LINALG_INLINE V TakeExponent(V x) {
    const Bits bits = std::bit_cast<Bits>(x);
    constexpr typename Of::Bits kMantissa = (typename Of::Bits{1} << Of::kMantissaBits) - 1;
    exponent_ += (bits >> Of::kMantissaBits) - (Of::kOne >> Of::kMantissaBits);
    return std::bit_cast<V>((bits & kMantissa) | Of::kOne);
  }

  V product_ = Broadcast<V>(1), largest_{};
  Bits exponent_{};
  int64_t count_ = 0;
};

}  // namespace linalg
