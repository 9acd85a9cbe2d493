// The natural logarithm, in every lane; the same bits on any width.
//
// x = 2^k (1 + f) with 1 + f in [√½, √2); log(1 + f) = f - f²/2 + s (f²/2 + R(s²)), s = f / (2 +
// f), with the polynomials R of FreeBSD's msun (e_log.c and e_logf.c), within one unit in the last
// place.
#pragma once

#include <bit>

#include "kernels/small/lanes.h"

namespace linalg::small {

template <class T>
struct LogarithmOf;
template <>
struct LogarithmOf<double> {
  using Bits = int64_t;
  static constexpr int kMantissaBits = 52;
  static constexpr Bits kOne = 0x3ff0000000000000, kSqrtHalf = 0x3fe6a09e667f3bcd;
  static constexpr double kLn2High = 6.93147180369123816490e-01;
  static constexpr double kLn2Low = 1.90821492927058770002e-10;
  static constexpr double kEven[] = {3.999999999940941908e-01, 2.222219843214978396e-01,
                                     1.531383769920937332e-01};
  static constexpr double kOdd[] = {6.666666666666735130e-01, 2.857142874366239149e-01,
                                    1.818357216161805012e-01, 1.479819860511658591e-01};
};
template <>
struct LogarithmOf<float> {
  using Bits = int32_t;
  static constexpr int kMantissaBits = 23;
  static constexpr Bits kOne = 0x3f800000, kSqrtHalf = 0x3f3504f3;
  static constexpr float kLn2High = 6.9313812256e-01f, kLn2Low = 9.0580006145e-06f;
  static constexpr float kEven[] = {0x1.999c26p-2f, 0x1.f13c4cp-3f};
  static constexpr float kOdd[] = {0x1.555554p-1f, 0x1.23d3dcp-2f};
};

template <size_t kSize, class V, class T>
LINALG_INLINE V Polynomial(V x, const T (&coefficients)[kSize]) {
  V sum = Broadcast<V>(coefficients[kSize - 1]);
  for (int i = kSize - 2; i >= 0; --i) sum = MulAdd(sum, x, Broadcast<V>(coefficients[i]));
  return sum;
}

// log(x 2^exponent), for x >= 0 that is not subnormal.
template <class V>
LINALG_INLINE V Logarithm(V x, V exponent) {
  using T = Lane<V>;
  using Of = LogarithmOf<T>;
  using Bits = Vector<typename Of::Bits, kLanesOf<V>>;
  const Bits shifted = std::bit_cast<Bits>(x) + (Of::kOne - Of::kSqrtHalf);
  const Bits power = (shifted >> Of::kMantissaBits) - (Of::kOne >> Of::kMantissaBits);
  constexpr typename Of::Bits kMantissa = (typename Of::Bits{1} << Of::kMantissaBits) - 1;
  const V f = std::bit_cast<V>((shifted & kMantissa) + Of::kSqrtHalf) - Broadcast<V>(1);
  V k;
  if constexpr (kLanesOf<V> == 1) {
    k = static_cast<V>(power) + exponent;
  } else {
    k = __builtin_convertvector(power, V) + exponent;
  }
  const V half_square = Broadcast<V>(T(0.5)) * f * f;
  const V s = f / (Broadcast<V>(2) + f), z = s * s, w = z * z;
  const V r = MulAdd(w, Polynomial(w, Of::kEven), z * Polynomial(w, Of::kOdd));
  const V low = MulAdd(s, half_square + r, k * Broadcast<V>(Of::kLn2Low));
  const V log = MulAdd(k, Broadcast<V>(Of::kLn2High), f - (half_square - low));
  // Zero, infinity and NaN are what no power of two is taken from.
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const V special = x == V{} ? Broadcast<V>(-kInfinity) : x;
  return (x > V{}) & (x < Broadcast<V>(kInfinity)) ? log : special;
}

}  // namespace linalg::small
