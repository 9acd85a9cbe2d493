// Division of many elements by one number.
#pragma once

#include "kernels/arithmetic/element.h"

namespace linalg {

// Divides by multiplying with the reciprocal. A tiny number is scaled up first, since its
// reciprocal would overflow.
template <class E>
class Divisor {
  using V = RealElement<E>;
  using T = Lane<V>;

 public:
  // Below this the reciprocal may overflow.
  static constexpr T kTiny = 2 * std::numeric_limits<T>::min();

  Divisor() = default;
  LINALG_INLINE explicit Divisor(E x) {
    const V size = Magnitude(x);
    const auto tiny = (size < Broadcast<V>(kTiny)) & (size > V{});
    constexpr T kUp = 1 / (std::numeric_limits<T>::epsilon() * std::numeric_limits<T>::epsilon());
    scale_ = tiny ? Broadcast<V>(kUp) : Broadcast<V>(1);
    inverse_ = Reciprocal(scale_ * x);
  }

  LINALG_INLINE E Divide(E x) const { return Mul(inverse_, scale_ * x); }

  // x / number is inverse * (scale * x).
  LINALG_INLINE V scale() const { return scale_; }
  LINALG_INLINE E inverse() const { return inverse_; }

 private:
  static LINALG_INLINE E Reciprocal(E x) {
    if constexpr (kComplexElement<E>) {
      // Divides by the larger part first: |x|² may overflow where 1 / x does not.
      const V one = Broadcast<V>(1), larger = Larger(Abs(x.re), Abs(x.im)), scale = one / larger;
      // The reciprocal of infinity is 0. The reciprocal of NaN is NaN, also beside an infinite
      // part.
      const auto endless =
          (larger == Broadcast<V>(std::numeric_limits<T>::infinity())) & (x.re == x.re);
      const V p = endless ? one : x.re * scale, q = endless ? V{} : x.im * scale;
      const V inverse = scale / MulAdd(p, p, q * q);
      return {p * inverse, -q * inverse};
    } else {
      return Broadcast<V>(1) / x;
    }
  }

  V scale_;
  E inverse_;
};

}  // namespace linalg
