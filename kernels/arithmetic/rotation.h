// Plane rotations: of Jacobi's method, with a real cosine and sine, and Givens's, of complex ones.
#pragma once

#include "kernels/arithmetic/scale.h"

namespace linalg {

// A rotation of rows and columns i and j, as cosine, sine and phase: the new columns are
// c i - s conj(e) j and s i + c conj(e) j.
template <class E>
struct Rotation {
  RealElement<E> cosine, sine;
  E phase;
};

// The rotation that makes the element z beside the diagonal elements x and y zero.
template <class E>
LINALG_INLINE Rotation<E> MakeRotation(RealElement<E> x, RealElement<E> y, E z,
                                       RealElement<E> negligible) {
  using V = RealElement<E>;
  const V size = Modulus(z);
  if (!(size > negligible)) return {V(1), V(0), FromReal<E>(V(1))};
  const V ratio = (y - x) / (V(2) * size), length = Sqrt(MulAdd(ratio, ratio, V(1)));
  const V tangent = V(1) / (ratio < V(0) ? ratio - length : ratio + length);
  const V cosine = V(1) / Sqrt(MulAdd(tangent, tangent, V(1)));
  return {cosine, tangent * cosine, (V(1) / size) * z};
}

// a - b and so on with real factors: (c x - s y, s x + c y).
template <class E>
LINALG_INLINE void Rotate(RealElement<E> cosine, RealElement<E> sine, E& x, E& y) {
  const auto combine = [](RealElement<E> p, E a, RealElement<E> q, E b) {
    if constexpr (kComplexElement<E>) {
      return E{MulAdd(p, a.re, q * b.re), MulAdd(p, a.im, q * b.im)};
    } else {
      return MulAdd(p, a, q * b);
    }
  };
  const E first = combine(cosine, x, -sine, y);
  y = combine(sine, x, cosine, y);
  x = first;
}

// The unitary (conj(p) conj(q); -q p) that takes (x, y) to (length, 0).
template <class E>
class GivensRotation {
  using V = RealElement<E>;

 public:
  LINALG_INLINE GivensRotation(E x, E y) {
    const V a = Magnitude(x), b = Magnitude(y);
    V unscale;
    const V scale = PowerOfTwoScale(a > b ? a : b, unscale);
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
