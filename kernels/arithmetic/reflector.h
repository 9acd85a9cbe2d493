// A Householder reflector I - tau v vᴴ, v's first element 1, with LAPACK's conventions.
#pragma once

#include "kernels/arithmetic/norm.h"

namespace linalg {

// Of the reflector that makes beta of alpha and zeros of what is below it: tau, and what that is
// multiplied by for v.
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

// What a reflector leaves of a column that begins with alpha and whose sum of squares is `total`.
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

// Makes the reflector of a column: its vector goes to elements [1, count) of `v`, beta and zeros to
// the column; returns tau. Lanes with nothing to reflect get tau = 0 and v = 0. kernels/team/qr.h
// and kernels/blocked/qr.cc do the same around sums of their own, of a team's threads and of
// strips: there a column is scaled, and looked through for anything to reflect, in as many ways.
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

// R's element at (i, j) of factors below whose diagonal the vectors of reflectors stand, get(i, j)
// being the factors'.
template <class Index, class Get>
LINALG_INLINE auto WithoutReflectors(Index i, Index j, Get&& get) {
  using E = std::remove_cvref_t<decltype(get(i, j))>;
  return i <= j ? get(i, j) : E{};
}

}  // namespace linalg
