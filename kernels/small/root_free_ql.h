// Eigenvalues of real symmetric tridiagonal matrices of float32, one per lane, in float32 or in
// float64.
//
// The QL iteration without square roots of Pal, Walker and Kahan (Parlett, The Symmetric Eigenvalue
// Problem, 8.15), as LAPACK's sterf; a step waits for one division and few products. Its sweeps,
// nearly two for each eigenvalue, all add their rounding errors to what they leave behind, which
// for larger matrices becomes many times the error of the reduction to tridiagonal form, unless
// they are made in float64.
#pragma once

#include "kernels/arithmetic/tridiagonal.h"
#include "kernels/small/open_block.h"

namespace linalg::small {

// A register V of floats is two of doubles.
template <class V>
using Wide = Vector<double, kLanesOf<V> == 1 ? 1 : kLanesOf<V> / 2>;

// Part `part` of a register that is to be in registers W.
template <class W, class V>
LINALG_INLINE W PartIn(const V& x, int part) {
  constexpr int kLanes = kLanesOf<W>;
  const auto* lanes = reinterpret_cast<const Lane<V>*>(&x) + part * kLanes;
  if constexpr (kLanes == 1) {
    return *lanes;
  } else {
    return __builtin_convertvector(LoadUnaligned<Vector<Lane<V>, kLanes>>(lanes), W);
  }
}

// And back.
template <class W, class V>
LINALG_INLINE void SetPart(W x, int part, V& target) {
  constexpr int kLanes = kLanesOf<W>;
  auto* lanes = reinterpret_cast<Lane<V>*>(&target) + part * kLanes;
  if constexpr (kLanes == 1) {
    *lanes = static_cast<Lane<V>>(x);
  } else {
    StoreUnaligned(__builtin_convertvector(x, Vector<Lane<V>, kLanes>), lanes);
  }
}

// Replaces the diagonal d, of n elements, of a matrix of norm about 1, and less than 128, by the
// eigenvalues; e has the n - 1 elements beside it. `work`, of as many numbers as 2 n registers V
// have, says what is computed in: V, or doubles. Returns how many elements beside the diagonal did
// not vanish.
template <class W, class V>
LINALG_ONCE V RootFreeQl(V* d, const V* e, int n, W* work) {
  using Limits = std::numeric_limits<Lane<V>>;
  constexpr int kParts = kLanesOf<V> / kLanesOf<W>;
  constexpr Lane<W> kEps = Limits::epsilon();
  // In floats numbers are that much larger, so that products of four of them stay in their range.
  constexpr bool kFloat = std::is_same_v<Lane<W>, float>;
  constexpr Lane<W> kUp = kFloat ? Lane<W>(0x1p24) : 1;
  const W zero{}, one = Number<W>(1), up = Broadcast<W>(kUp);
  // An element beside the diagonal is negligible if its square is below `relative` times that of
  // the sum around it: if it is below a quarter of its rounding errors, or of floats in doubles,
  // which converge to less, a sixteenth.
  const W relative = Broadcast<W>(kEps * kEps / (std::is_same_v<W, V> ? 16 : 256));
  const W absolute = Broadcast<W>(kUp * kUp * (Limits::min() / (kEps * kEps)));
  // The least size of a gamma, so that none of the quotients of their squares is 0 / 0; nothing
  // beside the square of a rounding error.
  const W least = Broadcast<W>(kFloat ? Lane<W>(0x1p-28) : 0x1p-120);
  W* const diagonal = work;
  W* const square = work + n * kParts;
  for (int i = 0; i < n; ++i) {
    for (int k = 0; k < kParts; ++k) {
      diagonal[i * kParts + k] = up * PartIn<W>(d[i], k);
      const W x = i < n - 1 ? up * PartIn<W>(e[i], k) : zero;
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
        // p, which is the square of gamma over that of the cosine, t² / (r p). Products are in the
        // order in which none leaves the range.
        const W r = p[k] + *square_here;
        const W inverse = one / (r * p[k]);
        const W t =
            at_least(least * r, MulAdd(p[k], *d_here - sigma[k], -(*square_here * gamma[k])));
        const W next = t * inverse * p[k];
        square_here[kParts] = on ? sine[k] * r : square_here[kParts];
        d_here[kParts] = on ? gamma[k] + (*d_here - next) : d_here[kParts];
        sine[k] = on ? *square_here * inverse * p[k] : sine[k];
        p[k] = on ? t * inverse * t : p[k];
        gamma[k] = on ? next : gamma[k];
        const auto stops = low[k] == Number<W>(i);
        *square_here = stops ? sine[k] * p[k] : *square_here;
        *d_here = stops ? sigma[k] + gamma[k] : *d_here;
      }
    }
  }
  const W down = Broadcast<W>(1 / kUp);
  V left{};
  for (int k = 0; k < kParts; ++k) {
    W count = zero;
    for (int i = 0; i < n; ++i) {
      if (i < n - 1) count = square[i * kParts + k] != zero ? count + one : count;
      SetPart(down * diagonal[i * kParts + k], k, d[i]);
    }
    SetPart(count, k, left);
  }
  return left;
}

}  // namespace linalg::small
