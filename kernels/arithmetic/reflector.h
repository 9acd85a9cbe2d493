// Householder reflectors I - tau v vᴴ with v's first element 1: LAPACK's conventions.
#pragma once

#include "kernels/arithmetic/norm.h"

namespace linalg {

// tau of the reflector that takes alpha to beta, and the factor that makes v of the elements below
// alpha.
template <class E>
struct ReflectorScale {
  E tau, inverse;

  LINALG_INLINE ReflectorScale(E alpha, RealElement<E> beta) {
    using V = RealElement<E>;
    const V one = Broadcast<V>(1);
    if constexpr (kComplexElement<E>) {
      tau = {(beta - alpha.re) / beta, -alpha.im / beta};
      const V re = alpha.re - beta;
      const V square = one / MulAdd(alpha.im, alpha.im, re * re);
      inverse = {re * square, -alpha.im * square};
    } else {
      tau = (beta - alpha) / beta;
      inverse = one / (alpha - beta);
    }
  }
};

// The first element of a reflected column. The column begins with alpha and has the sum of squares
// `total`.
template <class E>
LINALG_INLINE RealElement<E> ReflectedHead(E alpha, RealElement<E> total) {
  return -CopySign(Sqrt(total), Re(alpha));
}

// The sum of |a|² over elements [1, count) of a column, in four chains.
template <class E>
LINALG_INLINE RealElement<E> TailSquares(const E* a, int ld, int count) {
  RealElement<E> sums[4] = {};
  int i = 1;
  for (; i + 4 <= count; i += 4) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) sums[c] = NormAdd(a[(i + c) * ld], sums[c]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 3; ++c) {
    if (i + c < count) sums[c] = NormAdd(a[(i + c) * ld], sums[c]);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Makes the reflector of a column and returns tau. Elements [1, count) of `v` receive its vector;
// the column becomes beta and zeros. Lanes with nothing to reflect get tau = 0 and v = 0.
// kernels/team/qr.h and kernels/blocked/qr.cc repeat these steps with other sums: over a team's
// threads, and over strips.
template <class E>
LINALG_INLINE E MakeReflector(E* a, int ld, int count, E* v) {
  using V = RealElement<E>;
  const V one = Broadcast<V>(1);
  E alpha = a[0];
  V tail = TailSquares(a, ld, count), total = NormAdd(alpha, tail), unscale = one;
  Mask<V> nothing{};
  const Mask<V> rare = SquareScale<V>::IsNeeded(total) | (tail == V{});
  if (Any(rare)) [[unlikely]] {
    const SquareScale<V> range(total);
    const V scale = range.scale;
    unscale = range.unscale;
    Mask<V> something{};
    if constexpr (kComplexElement<E>) something = alpha.im != V{};
    for (int i = 1; i < count; ++i) {
      E& x = a[i * ld];
      if constexpr (kComplexElement<E>) {
        something = something | (x.re != V{}) | (x.im != V{});
      } else {
        something = something | (x != V{});
      }
      x = scale * x;
    }
    nothing = something ? Mask<V>{} : (one == one);
    alpha = scale * alpha;
    tail = TailSquares(a, ld, count);
    total = NormAdd(alpha, tail);
  }
  const V beta = ReflectedHead(alpha, total);
  const ReflectorScale<E> made(alpha, beta);
  const E tau = Choose(nothing, E{}, made.tau), inverse = Choose(nothing, E{}, made.inverse);
  a[0] = FromReal<E>(unscale * (nothing ? Re(alpha) : beta));
  for (int i = 1; i < count; ++i) {
    v[i] = Mul(inverse, a[i * ld]);
    a[i * ld] = E{};
  }
  return tau;
}

// R's element at (i, j), from factors that hold reflectors below the diagonal. get(i, j) reads the
// factors.
template <class Index, class Get>
LINALG_INLINE auto WithoutReflectors(Index i, Index j, Get&& get) {
  using E = std::remove_cvref_t<decltype(get(i, j))>;
  return i <= j ? get(i, j) : E{};
}

}  // namespace linalg
