// Scalars for tridiagonal and bidiagonal matrices of a norm near 1. Reflectors reduce a Hermitian
// matrix (LAPACK's hetd2). Implicit QL uses Wilkinson's shift (Bowdler, Martin, Reinsch and
// Wilkinson, The QR and QL algorithms for symmetric matrices, 1968).
#pragma once

#include "kernels/arithmetic/element.h"
#include "kernels/arithmetic/reflector.h"

namespace linalg {

// Re(conj(a) b) + c
template <class E>
LINALG_INLINE RealElement<E> RealDotAdd(E a, E b, RealElement<E> c) {
  if constexpr (kComplexElement<E>) {
    return MulAdd(a.im, b.im, MulAdd(a.re, b.re, c));
  } else {
    return MulAdd(a, b, c);
  }
}

// The least accurate sum of squares. Elements below its root count as zero in a matrix of norm 1.
template <class V>
LINALG_INLINE V SmallSquare() {
  using Limits = std::numeric_limits<Lane<V>>;
  return Broadcast<V>(Limits::min() / Limits::epsilon());
}

// An off-diagonal element up to this modulus is negligible between the diagonal elements a and b.
// The matrix has a norm near 1, and relative rounding errors of `eps`.
template <class V>
LINALG_INLINE V NegligibleBeside(V a, V b, Lane<V> eps = std::numeric_limits<Lane<V>>::epsilon()) {
  // √min / ε: the squares of smaller elements are not accurate.
  constexpr Lane<V> kLeast = std::is_same_v<Lane<V>, float> ? 0x1p-40 : 0x1p-459;
  return MulAdd(Broadcast<V>(eps), Abs(a) + Abs(b), Broadcast<V>(kLeast));
}

// A complex matrix needs one reflector more, to make its last off-diagonal element real.
template <class E>
LINALG_INLINE constexpr int ReflectorCount(int n) {
  return kComplexElement<E> ? n - 1 : n - 2;
}

// The reflector I - tau v vᴴ, with v's first element 1, whose adjoint takes a column to a real
// `beside` and zeros. The other elements of v are `scale` times the column's.
template <class E>
struct TridiagonalScale {
  using V = RealElement<E>;
  V beside;
  E tau, scale;

  // `alpha` is the column's first element, `rest` the sum of squares of the others.
  LINALG_INLINE TridiagonalScale(E alpha, V rest) {
    const V zero{}, one = Broadcast<V>(1);
    const V square = NormAdd(alpha, rest);
    const V root = Sqrt(square);
    const V beta = Re(alpha) > zero ? -root : root;
    const auto tiny = square < SmallSquare<V>();
    auto done = tiny | (rest == zero);
    ReflectorScale<E> made(alpha, beta);
    if constexpr (kComplexElement<E>) {
      done = tiny | ((rest == zero) & (alpha.im == zero));
      // One quotient instead of two is accurate enough here.
      const V inverse = one / beta;
      made.tau = {(beta - alpha.re) * inverse, -alpha.im * inverse};
    }
    tau = Choose<E>(done, E{}, made.tau);
    scale = Choose<E>(done, E{}, made.inverse);
    beside = done ? (tiny ? zero : Re(alpha)) : beta;
  }
};

// A reflection I - tau u uᴴ from both sides is the update a - u wᴴ - w uᴴ with w = tau a u + c u.
// Returns c; `dot` is the real part of uᴴ a u.
template <class E>
LINALG_INLINE RealElement<E> ReflectedShare(E tau, RealElement<E> dot) {
  using V = RealElement<E>;
  return Number<V>(-0.5) * NormAdd(tau, V{}) * dot;
}

// LAPACK's limit of sweeps of a QL iteration, per row.
inline constexpr int kQlSweeps = 30;

// c minus Wilkinson's shift: the eigenvalue of [[a, b], [b, c]] that is closer to c. Takes a - c
// and b².
template <class V>
LINALG_INLINE V WilkinsonOffset(V gap, V square) {
  const V zero{}, two = Broadcast<V>(2), four = Broadcast<V>(4);
  const V root = Sqrt(MulAdd(gap, gap, four * square)), sum = gap + (gap < zero ? -root : root);
  return sum == zero ? zero : two * square / sum;
}

// The start of a sweep: the block's last diagonal element minus a shift. The shift is the
// eigenvalue of the first two rows that is closer to the first diagonal element.
template <class V>
LINALG_INLINE V QlStart(V d_low, V d_next, V e_low, V d_high) {
  return d_high - d_low + WilkinsonOffset(d_next - d_low, e_low * e_low);
}

// The square root with the sign of `like`, and its inverse. On a GPU, correctly rounded float64
// roots and quotients are too slow: both are accurate to two units in the last place there.
template <class V>
LINALG_INLINE void SignedRoot(V square, V like, V& root, V& inverse) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<V, double>) {
    const V size = rsqrt(square);
    inverse = like < 0 ? -size : size;
    root = square * inverse;
    return;
  }
#endif
  const V size = Sqrt(square);
  root = like < V{} ? -size : size;
  inverse = Broadcast<V>(1) / root;
}

// The rotation that takes (f, g) to (r, 0), by at most a right angle: r has the sign of f.
template <class V>
class PlaneRotation {
 public:
  V cosine, sine, r;

  LINALG_INLINE PlaneRotation(V f, V g) : f_(f), g_(g) {
    const V norm = MulAdd(f, f, g * g), one = Broadcast<V>(1);
    V root, inverse;
    SignedRoot(norm, f, root, inverse);
    lost_ = norm < SmallSquare<V>();
    cosine = lost_ ? one : f * inverse;
    sine = lost_ ? V{} : g * inverse;
    r = lost_ ? f : root;
  }

  // Minus the tangent of half the angle, for ShearedRotation.
  LINALG_INLINE V Shear() const { return lost_ ? V{} : -g_ / (r + f_); }

 private:
  V f_, g_;
  Mask<V> lost_;
};

// A step of a sweep: the rotation of rows i and i + 1. It takes the sine, cosine, g and p of the
// step before.
template <class V>
class QlStep {
 public:
  V sine, cosine;  // of the rotation
  V beside;        // the new element above row i + 1
  V diagonal;      // the new diagonal element of row i + 1
  V g, p;
  // Lanes where the vector to rotate is too small to have a direction: it counts as zero.
  Mask<V> lost;

  LINALG_INLINE QlStep(V sine_above, V cosine_above, V g_above, V p_above, V e, V d_here,
                       V d_above) {
    const V zero{}, one = Broadcast<V>(1), two = Broadcast<V>(2);
    f_ = sine_above * e;
    g_ = g_above;
    const V b = cosine_above * e;
    const V norm = MulAdd(f_, f_, g_ * g_);
    V inverse;
    // The sign of g keeps the angle within a right angle.
    SignedRoot(norm, g_, r_, inverse);
    lost = norm < SmallSquare<V>();
    sine = lost ? zero : f_ * inverse;
    cosine = lost ? one : g_ * inverse;
    beside = lost ? zero : r_;
    const V shifted = d_above - p_above;
    const V h = MulAdd(d_here - shifted, sine, two * cosine * b);
    p = sine * h;
    g = MulAdd(cosine, h, -b);
    diagonal = shifted + p;
  }

  // Minus the tangent of half the angle, for ShearedRotation.
  LINALG_INLINE V Shear() const { return lost ? V{} : -f_ / (r_ + g_); }

 private:
  V f_, r_, g_;
};

}  // namespace linalg
