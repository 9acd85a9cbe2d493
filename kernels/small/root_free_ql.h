// Eigenvalues of real symmetric tridiagonal matrices of float32, one per lane, in float64.
//
// The QL iteration without square roots of Pal, Walker and Kahan (Parlett, The Symmetric Eigenvalue
// Problem, 8.15), as LAPACK's sterf. Its sweeps, nearly two for each eigenvalue, all add their
// rounding errors to what they leave behind, which in float32 becomes many times the error of the
// reduction to tridiagonal form: here they are made in float64. A step waits for one division and
// few products, so that this takes no longer than square roots in float32.
#pragma once

#include "kernels/arithmetic/tridiagonal.h"
#include "kernels/small/open_block.h"

namespace linalg::small {

// A register V of floats as kWideParts<V> registers of doubles.
template <class V>
inline constexpr int kWideParts = kLanesOf<V> == 1 ? 1 : 2;
template <class V>
using Wide = Vector<double, kLanesOf<V> / kWideParts<V>>;

template <class V>
LINALG_INLINE Wide<V> WidePart(const V& x, int part) {
  constexpr int kLanes = kLanesOf<Wide<V>>;
  const auto* lanes = reinterpret_cast<const float*>(&x) + part * kLanes;
  if constexpr (kLanes == 1) {
    return *lanes;
  } else {
    return __builtin_convertvector(LoadUnaligned<Vector<float, kLanes>>(lanes), Wide<V>);
  }
}

template <class V>
LINALG_INLINE void NarrowPart(Wide<V> x, int part, V& target) {
  constexpr int kLanes = kLanesOf<Wide<V>>;
  auto* lanes = reinterpret_cast<float*>(&target) + part * kLanes;
  if constexpr (kLanes == 1) {
    *lanes = static_cast<float>(x);
  } else {
    StoreUnaligned(__builtin_convertvector(x, Vector<float, kLanes>), lanes);
  }
}

// Replaces the diagonal d, of n elements, of a matrix of norm about 1 by the eigenvalues; e has the
// n - 1 elements beside it. `work` has 2 n kWideParts<V> elements. Returns how many elements beside
// the diagonal did not vanish.
template <class V>
LINALG_INLINE V RootFreeQl(V* d, const V* e, int n, Wide<V>* work) {
  using W = Wide<V>;
  using Limits = std::numeric_limits<float>;
  constexpr int kParts = kWideParts<V>;
  const W zero{}, one = Number<W>(1);
  // An element beside the diagonal is negligible if its square is below `relative` times that of
  // the elements around it: far below what a float can tell.
  const W relative = Number<W>(0x1p-20 * Limits::epsilon() * Limits::epsilon());
  const W absolute = Number<W>(Limits::min() / (double{Limits::epsilon()} * Limits::epsilon()));
  // The least size of a gamma, so that none of the quotients of their squares is 0 / 0.
  const W least = Number<W>(0x1p-120);
  W* const diagonal = work;
  W* const square = work + n * kParts;
  for (int i = 0; i < n; ++i) {
    for (int k = 0; k < kParts; ++k) {
      diagonal[i * kParts + k] = WidePart(d[i], k);
      const W x = i < n - 1 ? WidePart(e[i], k) : zero;
      square[i * kParts + k] = x * x;
    }
  }
  const auto at_least = [](W bound, W x) { return Abs(x) < bound ? bound : x; };
  int first = 0;
  for (int sweep = 0; first < n - 1 && sweep <= kQlSweeps * n; ++sweep) {
    // Each lane's block.
    W low[kParts], high[kParts], sigma[kParts], gamma[kParts], p[kParts], sine[kParts] = {};
    int open_first = n;
    for (int k = 0; k < kParts; ++k) {
      OpenBlock<W> block(n, open_first);
      W d_low = zero, d_next = zero, square_low = one, d_high = diagonal[(n - 1) * kParts + k];
      W here = diagonal[first * kParts + k];
      for (int i = first; i < n - 1; ++i) {
        const W next = diagonal[(i + 1) * kParts + k];
        const W size = Abs(here) + Abs(next);
        W& x = square[i * kParts + k];
        x = x <= MulAdd(relative * size, size, absolute) ? zero : x;
        const auto [begins, ends] = block.Add(i, x);
        d_low = begins ? here : d_low;
        d_next = begins ? next : d_next;
        square_low = begins ? x : square_low;
        d_high = ends ? here : d_high;
        here = next;
      }
      open_first = block.First();
      low[k] = block.low;
      high[k] = block.high;
      sigma[k] = d_low - WilkinsonOffset(d_next - d_low, square_low);
      gamma[k] = at_least(least, d_high - sigma[k]);
      p[k] = gamma[k] * gamma[k];
    }
    first = open_first;
    for (int i = n - 2; i >= first; --i) {
#pragma GCC unroll 2
      for (int k = 0; k < kParts; ++k) {
        W* const d_here = diagonal + i * kParts + k;
        W* const square_here = square + i * kParts + k;
        const auto on = (low[k] <= Number<W>(i)) & (high[k] > Number<W>(i));
        // The rotation's squared cosine and sine are p / r and square / r; gamma becomes t / r and
        // p, which is the square of gamma over that of the cosine, t² / (r p).
        const W r = p[k] + *square_here;
        const W inverse = one / (r * p[k]);
        const W t =
            at_least(least * r, MulAdd(p[k], *d_here - sigma[k], -(*square_here * gamma[k])));
        const W next = t * p[k] * inverse;
        square_here[kParts] = on ? sine[k] * r : square_here[kParts];
        d_here[kParts] = on ? gamma[k] + (*d_here - next) : d_here[kParts];
        sine[k] = on ? *square_here * p[k] * inverse : sine[k];
        p[k] = on ? t * t * inverse : p[k];
        gamma[k] = on ? next : gamma[k];
        const auto stops = low[k] == Number<W>(i);
        *square_here = stops ? sine[k] * p[k] : *square_here;
        *d_here = stops ? sigma[k] + gamma[k] : *d_here;
      }
    }
  }
  V left{};
  for (int k = 0; k < kParts; ++k) {
    W count = zero;
    for (int i = 0; i < n; ++i) {
      if (i < n - 1) count = square[i * kParts + k] != zero ? count + one : count;
      NarrowPart(diagonal[i * kParts + k], k, d[i]);
    }
    NarrowPart(count, k, left);
  }
  return left;
}

}  // namespace linalg::small
