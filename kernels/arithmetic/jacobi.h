// One-sided Jacobi: rotation angles, and the limits for zero, short and infinite vectors.
#pragma once

#include "kernels/arithmetic/element.h"

namespace linalg {

// Limits of squared norms, for rows or columns of a matrix of norm 1. A vector up to kNull counts
// as zero, because its squares and their products would underflow. Pairs below kShort are scaled.
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

// Limit of sweeps over all pairs. Five to ten are usual.
inline constexpr int kJacobiSweeps = 40;

// Two vectors of `length` elements count as orthogonal if their product, over their norms, is at
// most this.
template <class T>
LINALG_INLINE T JacobiTolerance(int length) {
  return std::numeric_limits<T>::epsilon() * (T(2) + Sqrt(static_cast<T>(length)));
}

// The smaller angle that diagonalises a Hermitian matrix of order 2. `half` is half the difference
// of the diagonal elements and not negative. `length` and `square` are the modulus of the
// off-diagonal element and its square. Where `turn` does not hold, the angle is 0.
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

// A rotation of rows and columns i and j by cosine, sine and phase. The new columns are c i - s
// conj(e) j and s i + c conj(e) j.
template <class E>
struct JacobiRotation {
  RealElement<E> cosine = 1, sine = 0;
  E phase = FromReal<E>(RealElement<E>(1));
};

// The rotation that annihilates the off-diagonal element z between the diagonal elements x and y.
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
