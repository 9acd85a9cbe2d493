// Plane rotations. Cosine and sine are real, applied by products or by shears. Givens rotations are
// complex.
#pragma once

#include "kernels/arithmetic/scale.h"

namespace linalg {

// (x, y) := (c x - s y, s x + c y)
template <class E>
LINALG_INLINE void Rotate(RealElement<E> cosine, RealElement<E> sine, E& x, E& y) {
  const E first = MulAdd(cosine, x, -sine * y);
  y = MulAdd(sine, x, cosine * y);
  x = first;
}

// A rotation as three shears: by `shear`, by `sine`, and by `shear` again. `shear` is minus the
// tangent of half the angle.
template <class V>
struct ShearedRotation {
  V sine, shear;

  LINALG_INLINE static ShearedRotation Of(V shear) {
    const V two = Broadcast<V>(2), one = Broadcast<V>(1);
    return {-two * shear / MulAdd(shear, shear, one), shear};
  }

  // Returns the new y. `y` receives the new x.
  template <class E>
  LINALG_INLINE E Rotate(E x, E& y) const {
    const E sheared = MulAdd(shear, y, x), rotated = MulAdd(sine, sheared, y);
    y = MulAdd(shear, rotated, sheared);
    return rotated;
  }
};

// The unitary matrix [[conj(p), conj(q)], [-q, p]] that takes (x, y) to (length, 0).
template <class E>
class GivensRotation {
  using V = RealElement<E>;

 public:
  LINALG_INLINE GivensRotation(E x, E y) {
    const V a = Magnitude(x), b = Magnitude(y);
    V unscale;
    const V scale = PowerOfTwoScale(Larger(a, b), unscale);
    const E u = scale * x, v = scale * y;
    const V length = Sqrt(NormAdd(u, NormAdd(v, V{}))), inverse = V(1) / length;
    p_ = length == V{} ? FromReal<E>(V(1)) : inverse * u;
    q_ = length == V{} ? E{} : inverse * v;
  }

  LINALG_INLINE void Apply(E& x, E& y) const {
    const E rotated = ConjMulAdd(q_, y, Mul(Conj(p_), x));
    y = NegMulAdd(q_, x, Mul(p_, y));
    x = rotated;
  }

 private:
  E p_, q_;
};

}  // namespace linalg
