// One-sided Jacobi: the angle of a rotation, and what counts as zero, as short and as endless.
#pragma once

#include "kernels/arithmetic/element.h"

namespace linalg {

// Squared norms of rows or columns of a matrix of norm 1: what is not above kNull is too small for
// squares and products of squares, and is taken to be of no direction; pairs of those below kShort
// are scaled.
template <class T>
struct JacobiRange;
template <>
struct JacobiRange<float> {
  static constexpr float kNull = 0x1p-70f, kShort = 0x1p-10f, kUp = 0x1p60f;
};
template <>
struct JacobiRange<double> {
  static constexpr double kNull = 0x1p-860, kShort = 0x1p-10, kUp = 0x1p600;
};

// Sweeps over all pairs that Jacobi's method is given; five to ten are usual.
inline constexpr int kJacobiSweeps = 40;

// Vectors of `length` elements are orthogonal whose product, over their lengths, is at most this.
template <class T>
LINALG_INLINE T JacobiTolerance(int length) {
  return std::numeric_limits<T>::epsilon() * (T(2) + Sqrt(static_cast<T>(length)));
}

// The smaller angle by which a Hermitian matrix of order 2 is turned to be diagonal, given half the
// difference of its diagonal elements, not negative, and of the element beside them the modulus and
// its square. None where `turn` does not hold.
template <class V>
struct JacobiAngle {
  V tangent, cosine, sine;

  LINALG_INLINE JacobiAngle(V half, V length, V square, Mask<V> turn) {
    const V one = Broadcast<V>(1);
    tangent = KeepIf<V>(turn, length / (half + Sqrt(MulAdd(half, half, square))));
    cosine = one / Sqrt(MulAdd(tangent, tangent, one));
    sine = cosine * tangent;
  }
};

// A rotation of rows and columns i and j, as cosine, sine and phase: the new columns are
// c i - s conj(e) j and s i + c conj(e) j.
template <class E>
struct JacobiRotation {
  RealElement<E> cosine = 1, sine = 0;
  E phase = FromReal<E>(RealElement<E>(1));
};

// Of one matrix: the rotation that makes the element z beside the diagonal elements x and y zero.
template <class E>
LINALG_INLINE JacobiRotation<E> MakeJacobiRotation(RealElement<E> x, RealElement<E> y, E z,
                                                   RealElement<E> negligible) {
  using V = RealElement<E>;
  const V size = Modulus(z);
  if (!(size > negligible)) return {};
  const V half = V(0.5) * (y - x);
  const JacobiAngle<V> angle(Abs(half), size, size * size, true);
  return {.cosine = angle.cosine,
          .sine = half < V(0) ? -angle.sine : angle.sine,
          .phase = (V(1) / size) * z};
}

}  // namespace linalg
