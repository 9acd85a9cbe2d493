// Eigenvalues of real symmetric tridiagonal float32 matrices, one per lane, computed in float32 or
// in float64.
//
// This is the QL iteration without square roots by Pal, Walker and Kahan (Parlett, The Symmetric
// Eigenvalue Problem, 8.15), as in LAPACK's sterf. The critical path of a step is one division and
// few products. There are nearly two sweeps per eigenvalue, and each adds its rounding errors to
// the rest. For larger matrices they exceed the error of the reduction many times, unless the
// sweeps run in float64.
#pragma once

#include "kernels/arithmetic/tridiagonal.h"
#include "kernels/small/open_block.h"

namespace linalg::small {

// A register V of floats corresponds to two registers of doubles.
template <class V>
using Wide = Vector<double, kLanesOf<V> == 1 ? 1 : kLanesOf<V> / 2>;

// Piece `piece` of a register, converted to a register W.
template <class W, class V>
LINALG_INLINE W PieceIn(const V& x, int piece) {
  constexpr int kLanes = kLanesOf<W>;
  const auto* lanes = reinterpret_cast<const Lane<V>*>(&x) + piece * kLanes;
  if constexpr (kLanes == 1) {
    return *lanes;
  } else {
    return __builtin_convertvector(LoadUnaligned<Vector<Lane<V>, kLanes>>(lanes), W);
  }
}

// The inverse of PieceIn.
template <class W, class V>
LINALG_INLINE void SetPiece(W x, int piece, V& target) {
  constexpr int kLanes = kLanesOf<W>;
  auto* lanes = reinterpret_cast<Lane<V>*>(&target) + piece * kLanes;
  if constexpr (kLanes == 1) {
    *lanes = static_cast<Lane<V>>(x);
  } else {
    StoreUnaligned(__builtin_convertvector(x, Vector<Lane<V>, kLanes>), lanes);
  }
}

// RootFreeSweeps neglects squares of off-diagonal elements below `relative` times that of the sum
// around them plus `absolute`. `least` is the least size of a gamma, to avoid 0 / 0 in the
// quotients of their squares. It is negligible compared with the square of a rounding error.
template <class W>
struct RootFreeLimits {
  W relative, absolute, least;
};

// Replaces diagonals of n elements of matrices of norm about 1 by the eigenvalues, given the
// squares of the off-diagonal elements and a zero. Squares that did not vanish are left. Both have
// kPieces registers for each element.
template <int kPieces, class W>
LINALG_ONCE void RootFreeSweeps(W* diagonal, W* square, int n, const RootFreeLimits<W>& limits) {
  const W zero{}, one = Number<W>(1);
  const auto [relative, absolute, least] = limits;
  const auto at_least = [](W bound, W x) { return Abs(x) < bound ? bound : x; };
  int first = 0;
  for (int sweep = 0; first < n - 1 && sweep <= kQlSweeps * n; ++sweep) {
    W low[kPieces], high[kPieces], sigma[kPieces], gamma[kPieces], p[kPieces], sine[kPieces] = {};
    int open_first = n;
    for (int k = 0; k < kPieces; ++k) {
      OpenBlock<W> block(n, open_first);
      W d_low = zero, d_next = zero, square_low = one, d_high = diagonal[(n - 1) * kPieces + k];
      W here = diagonal[first * kPieces + k];
      for (int i = first; i < n - 1; ++i) {
        const W next = diagonal[(i + 1) * kPieces + k];
        const W size = Abs(here) + Abs(next);
        W& x = square[i * kPieces + k];
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
      for (int k = 0; k < kPieces; ++k) {
        W* const d_here = diagonal + i * kPieces + k;
        W* const square_here = square + i * kPieces + k;
        const auto on = (low[k] <= Number<W>(i)) & (high[k] > Number<W>(i));
        // The rotation's squared cosine and sine are p / r and square / r. gamma becomes t / r. p
        // is the square of gamma over that of the cosine, so it becomes t² / (r p). The order of
        // the products keeps all of them in range.
        const W r = p[k] + *square_here;
        const W inverse = one / (r * p[k]);
        const W t =
            at_least(least * r, MulAdd(p[k], *d_here - sigma[k], -(*square_here * gamma[k])));
        const W next = t * inverse * p[k];
        square_here[kPieces] = on ? sine[k] * r : square_here[kPieces];
        d_here[kPieces] = on ? gamma[k] + (*d_here - next) : d_here[kPieces];
        sine[k] = on ? *square_here * inverse * p[k] : sine[k];
        p[k] = on ? t * inverse * t : p[k];
        gamma[k] = on ? next : gamma[k];
        const auto stops = low[k] == Number<W>(i);
        *square_here = stops ? sine[k] * p[k] : *square_here;
        *d_here = stops ? sigma[k] + gamma[k] : *d_here;
      }
    }
  }
}

// Replaces the diagonal d, of n elements, of a matrix of norm about 1, and less than 128, by the
// eigenvalues. e has the n - 1 off-diagonal elements. The type of `work`, V or doubles, is that of
// the computation; it needs the numbers of 2 n registers V. Returns how many off-diagonal elements
// did not vanish.
template <class W, class V>
LINALG_ONCE V RootFreeQl(V* d, const V* e, int n, W* work) {
  using Limits = std::numeric_limits<Lane<V>>;
  constexpr int kPieces = kLanesOf<V> / kLanesOf<W>;
  constexpr Lane<W> kEps = Limits::epsilon();
  // In float32, numbers are scaled up so that products of four of them stay in range.
  constexpr bool kFloat = std::is_same_v<Lane<W>, float>;
  constexpr Lane<W> kUp = kFloat ? Lane<W>(0x1p24) : 1;
  const W zero{}, one = Number<W>(1), up = Broadcast<W>(kUp);
  // An element is negligible at a quarter of its rounding errors. For floats computed in doubles,
  // which converge further, it is a sixteenth.
  const RootFreeLimits<W> limits{
      .relative = Broadcast<W>(kEps * kEps / (std::is_same_v<W, V> ? 16 : 256)),
      .absolute = Broadcast<W>(kUp * kUp * (Limits::min() / (kEps * kEps))),
      .least = Broadcast<W>(kFloat ? Lane<W>(0x1p-28) : 0x1p-120)};
  W* const diagonal = work;
  W* const square = work + n * kPieces;
  for (int i = 0; i < n; ++i) {
    for (int k = 0; k < kPieces; ++k) {
      diagonal[i * kPieces + k] = up * PieceIn<W>(d[i], k);
      const W x = i < n - 1 ? up * PieceIn<W>(e[i], k) : zero;
      square[i * kPieces + k] = x * x;
    }
  }
  RootFreeSweeps<kPieces>(diagonal, square, n, limits);
  const W down = Broadcast<W>(1 / kUp);
  V left{};
  for (int k = 0; k < kPieces; ++k) {
    W count = zero;
    for (int i = 0; i < n; ++i) {
      if (i < n - 1) count = square[i * kPieces + k] != zero ? count + one : count;
      SetPiece(down * diagonal[i * kPieces + k], k, d[i]);
    }
    SetPiece(count, k, left);
  }
  return left;
}

}  // namespace linalg::small
