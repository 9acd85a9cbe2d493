// Scalars of the QR iteration with implicit shifts, for Hessenberg matrices of a norm near 1. The
// criteria are LAPACK's (lahqr; Golub and Van Loan, Matrix Computations, 4th ed., 7.5). Real
// matrices take two shifts at a time, so their Schur form is real, with blocks of order 2.
#pragma once

#include "kernels/arithmetic/divisor.h"
#include "kernels/arithmetic/element.h"

namespace linalg {

// LAPACK's limit of steps, per row; n counts as at least 10.
inline constexpr int kSchurSteps = 30;
constexpr int SchurStepLimit(int n) { return kSchurSteps * (n > 10 ? n : 10); }
// After this many steps without deflation, an exceptional shift is used: from the start of the
// block, then from its end.
inline constexpr int kExceptionalStep = 10;

// The rows that a step of the bulge changes.
template <class E>
inline constexpr int kBulge = kComplexElement<E> ? 2 : 3;

// Anything at most this size below the diagonal is negligible, whatever its neighbours.
template <class V>
LINALG_INLINE V LeastBelowDiagonal(int n) {
  using Limits = std::numeric_limits<Lane<V>>;
  return Broadcast<V>(Limits::min() * (static_cast<Lane<V>>(n) / Limits::epsilon()));
}

// Whether `below` is negligible in the diagonal block [[before, above], [below, here]]. The
// criterion is by Ahues and Tisseur (A new deflation criterion for the QR algorithm, 1997).
// `further` is the size of the subdiagonal elements beside the block.
template <class E>
LINALG_INLINE auto IsNegligible(int n, E before, E above, E below, E here, RealElement<E> further) {
  using V = RealElement<E>;
  const V eps = Broadcast<V>(std::numeric_limits<Lane<V>>::epsilon());
  const V least = LeastBelowDiagonal<V>(n), zero{};
  const V size = Magnitude(below), size_above = Magnitude(above), size_here = Magnitude(here);
  const V diagonal = Magnitude(before) + size_here;
  const V beside = diagonal == zero ? further : diagonal;
  const V gap = Magnitude(before - here);
  const V more = Larger(size_above, size), less = Smaller(size, size_above);
  const V wide = Larger(size_here, gap), narrow = Smaller(gap, size_here);
  const V sum = wide + more;
  const V limit = Larger(eps * (narrow * (wide / sum)), least);
  return (size <= least) | ((size <= eps * beside) & (less * (more / sum) <= limit));
}

// The standard form of a real block [[a, b], [c, d]], and the rotation that makes it (LAPACK's
// lanv2). The form is upper triangular, or has a = d and b c < 0.
template <class V>
struct StandardBlock {
  V a, b, c, d, cosine, sine;

  LINALG_INLINE StandardBlock(V a0, V b0, V c0, V d0) {
    using T = Lane<V>;
    const V zero{}, one = Broadcast<V>(1), half_one = Number<V>(0.5);
    const V gap = a0 - d0, half = half_one * gap + zero, size_b = Abs(b0), size_c = Abs(c0);
    const auto done = (c0 == zero) | ((b0 != zero) & (gap == zero) & ((b0 < zero) != (c0 < zero)));
    const auto lower = (c0 != zero) & (b0 == zero);
    const V larger = Larger(size_b, size_c), smaller_size = Smaller(size_c, size_b);
    const V smaller = CopySign(smaller_size, b0) * CopySign(one, c0);
    const V scale = Larger(Abs(half), larger);
    const V square = (half / scale) * half + (larger / scale) * smaller;
    const auto apart = square >= Broadcast<V>(4 * std::numeric_limits<T>::epsilon());

    // Two real eigenvalues, well apart.
    const V z = half + CopySign(Sqrt(scale) * Sqrt(square), half);
    const V longer = Larger(Abs(z), size_c), p = z / longer, q = c0 / longer;
    const V length = Sqrt(MulAdd(p, p, q * q));
    a = d0 + z;
    d = d0 - (larger / z) * smaller;
    b = b0 - c0;
    c = zero;
    cosine = p / length;
    sine = q / length;

    // A conjugate pair, or nearly equal real eigenvalues: makes the diagonal elements equal.
    const V sum = b0 + c0 + zero, size = Larger(Abs(gap), Abs(sum));
    const V u = gap / size, v = sum / size, hypotenuse = Sqrt(MulAdd(u, u, v * v));
    const V cs = Sqrt(half_one * (one + Abs(v) / hypotenuse));
    const V sn = -(half_one * u / (hypotenuse * cs)) * CopySign(one, v);
    const V aa = a0 * cs + b0 * sn, bb = b0 * cs - a0 * sn;
    const V cc = c0 * cs + d0 * sn, dd = d0 * cs - c0 * sn;
    const V middle = half_one * ((aa * cs + cc * sn) + (dd * cs - bb * sn));
    const V beside = bb * cs + dd * sn, below = cc * cs - aa * sn;
    // Rounding may still leave real eigenvalues here, or a zero off the diagonal.
    const auto zero_beside = (below != zero) & (beside == zero);
    const auto real = (below != zero) & (beside != zero) & ((beside < zero) == (below < zero));
    const V root_b = Sqrt(Abs(beside)), root_c = Sqrt(Abs(below));
    const V shift = CopySign(root_b * root_c, below), over = one / Sqrt(Abs(beside + below));
    const V other_cs = root_b * over, other_sn = root_c * over;
    const V new_cosine = real ? cs * other_cs - sn * other_sn : zero_beside ? -sn : cs;
    const V new_sine = real ? cs * other_sn + sn * other_cs : zero_beside ? cs : sn;
    a = apart ? a : real ? middle + shift : middle;
    d = apart ? d : real ? middle - shift : middle;
    b = apart ? b : real ? beside - below : zero_beside ? -below : beside;
    c = apart | real | zero_beside ? zero : below;
    cosine = apart ? cosine : new_cosine;
    sine = apart ? sine : new_sine;

    a = done ? a0 : lower ? d0 : a;
    b = done ? b0 : lower ? -c0 : b;
    c = done ? c0 : lower ? zero : c;
    d = done ? d0 : lower ? a0 : d;
    cosine = done ? one : lower ? zero : cosine;
    sine = done ? zero : lower ? one : sine;
  }
};

// The imaginary part of the eigenvalues of a standard block, from its two off-diagonal elements. It
// is 0 if the block is triangular.
template <class V>
LINALG_INLINE V PairImaginary(V above, V below) {
  return Sqrt(Abs(above)) * Sqrt(Abs(below));
}

// The principal square root, for numbers whose squares are in range.
template <class V>
LINALG_INLINE Complex<V> ComplexSqrt(Complex<V> x) {
  const V zero{}, half = Number<V>(0.5);
  const V root = Sqrt(half * (Modulus(x) + Abs(x.re)));
  const auto something = root > zero;
  const V other = half * x.im / root;
  const auto right = x.re >= zero;
  const V re = right ? root : Abs(other), im = right ? other : CopySign(root, x.im + zero);
  return {something ? re : zero, something ? im : zero};
}

// The shift from the last block [[a, b], [c, d]]. For complex numbers it is the eigenvalue closer
// to d. For real ones it is the first of a conjugate pair, or a real eigenvalue that counts twice.
template <class E>
LINALG_INLINE Complex<RealElement<E>> ShiftOf(E a, E b, E c, E d) {
  using V = RealElement<E>;
  const V zero{}, one = Broadcast<V>(1), half_one = Number<V>(0.5);
  if constexpr (kComplexElement<E>) {
    const E half = half_one * (a - d);
    const V size = Larger(Larger(Magnitude(half), Magnitude(b)), Magnitude(c));
    const V scale = one / size;
    const E x = scale * half, product = Mul(scale * b, scale * c);
    E y = ComplexSqrt(Mul(x, x) + product);
    y = Choose(x.re * y.re + x.im * y.im < zero, -y, y);
    const E sum = x + y;
    const auto something = (size > zero) & (Magnitude(sum) > zero);
    return Choose(something, d - size * Divisor<E>(sum).Divide(product), d);
  } else {
    const V size = (Abs(a) + Abs(b)) + (Abs(c) + Abs(d));
    const auto something = size > zero;
    const V scale = something ? one / size : zero;
    const V p = scale * a, s = scale * d, middle = half_one * (p + s);
    const V determinant = (p - middle) * (s - middle) - (scale * b) * (scale * c);
    const V root = Sqrt(Abs(determinant)), low = middle - root, high = middle + root;
    const V closer = Abs(high - s) <= Abs(low - s) ? high : low;
    const auto pair = determinant >= zero;
    return {size * (pair ? middle : closer), pair ? size * root : zero};
  }
}

// The exceptional shift, from a diagonal element and the size of the subdiagonal elements beside
// it.
template <class E>
LINALG_INLINE Complex<RealElement<E>> ExceptionalShift(E diagonal, RealElement<E> size) {
  using V = RealElement<E>;
  const V moved = Number<V>(0.75) * size;
  if constexpr (kComplexElement<E>) {
    return {moved + diagonal.re, diagonal.im};
  } else {
    const V base = moved + diagonal;
    return ShiftOf<E>(base, Number<V>(-0.4375) * size, size, base);
  }
}

// The scaled first column of the shifted matrix, or of the product of both shifted matrices. Its
// leading block is [[a, b], [c, d]], where c is above LeastBelowDiagonal; `below` is the element
// below d.
template <class E>
LINALG_INLINE void StartVector(E a, E b, E c, E d, E below, Complex<RealElement<E>> shift, E* v) {
  using V = RealElement<E>;
  const V one = Broadcast<V>(1);
  if constexpr (kComplexElement<E>) {
    const E gap = a - shift;
    const V scale = one / (Magnitude(gap) + Magnitude(c));
    v[0] = scale * gap;
    v[1] = scale * c;
  } else {
    const V gap = a - shift.re;
    const V scale = one / (Abs(gap) + Abs(shift.im) + Abs(c));
    const V first = scale * c, wide = scale * gap, high = scale * shift.im;
    v[0] = scale * MulAdd(first, b, MulAdd(wide, gap, high * shift.im));
    v[1] = first * (scale * ((gap + d) - shift.re));
    v[2] = first * (scale * below);
  }
}

// Whether a bulge with the start vector v may start in this row. It disturbs the element left of
// the row's diagonal, of size `left`, which must be negligible. `beside` is the size of the
// neighbouring diagonal elements.
template <class E>
LINALG_INLINE auto MayStart(const E* v, RealElement<E> left, RealElement<E> beside) {
  using V = RealElement<E>;
  V rest = Magnitude(v[1]);
  if constexpr (!kComplexElement<E>) rest = rest + Magnitude(v[2]);
  const V eps = Broadcast<V>(std::numeric_limits<Lane<V>>::epsilon());
  return left * rest <= eps * Magnitude(v[0]) * beside;
}

// The reflector I - tau v vᴴ that moves the bulge; v's first element is 1.
template <class E>
class Bulge {
 public:
  LINALG_INLINE Bulge(const E* v, E tau) {
    scaled_[0] = tau;
    for (int i = 1; i < kBulge<E>; ++i) {
      adjoint_[i - 1] = -Conj(v[i]);
      scaled_[i] = Mul(tau, v[i]);
    }
  }

  // Applies it to `count` elements, `stride` apart. `count` is kBulge, or one less at the end.
  LINALG_INLINE void Apply(int count, E* x, int stride) const {
    E sum = x[0];
    for (int i = 1; i < kBulge<E>; ++i) {
      if (i < count) sum = NegMulAdd(adjoint_[i - 1], x[i * stride], sum);
    }
    for (int i = 0; i < kBulge<E>; ++i) {
      if (i < count) x[i * stride] = NegMulAdd(scaled_[i], sum, x[i * stride]);
    }
  }

 private:
  E adjoint_[kBulge<E> - 1], scaled_[kBulge<E>];
};

}  // namespace linalg
