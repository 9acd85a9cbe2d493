// Singular values and vectors of small square matrices of a norm near 1, one per lane.
//
// One-sided Jacobi (Hestenes, 1958) rotates pairs of rows until the rows of W = G A are orthogonal.
// Their norms are the singular values, the normalised rows are Vᴴ, and Gᴴ is U. A rotation puts the
// longer row first, so the rows get sorted on the way (de Rijk, SIAM J. Sci. Stat. Comput. 10,
// 1989). Sweeps continue until no lane rotates; other lanes get identity rotations. If a matrix is
// rank-deficient, Vᴴ is completed to an orthonormal basis.
#pragma once

#include <cstring>

#include "kernels/arithmetic/columns.h"
#include "kernels/arithmetic/jacobi.h"
#include "kernels/small/arena.h"

namespace linalg::small {

// Sums along a row have this many chains, both with one matrix per lane and with columns of one
// matrix in a register. So both give the same bits.
#if defined(__AVX512F__)
inline constexpr int kJacobiChains = 8;
#else
inline constexpr int kJacobiChains = 4;
#endif
// A register of columns of a single matrix.
template <class T>
using JacobiRow = Vector<T, kJacobiChains>;

template <class V, class Row, int kCount>
LINALG_INLINE V SumChains(const Row (&chains)[kCount]) {
  static_assert(sizeof(chains) == kJacobiChains * sizeof(V));
  V sums[kJacobiChains];
  std::memcpy(sums, chains, sizeof(sums));
#pragma GCC unroll 3
  for (int step = kJacobiChains / 2; step > 0; step /= 2) {
#pragma GCC unroll 4
    for (int c = 0; c < step; ++c) sums[c] = sums[c] + sums[c + step];
  }
  return sums[0];
}

// p qᴴ and |q|²
template <class E, class Row>
LINALG_INLINE E DotRows(SplitRows<E, Row> p, SplitRows<E, Row> q, int n, RealElement<E>& square) {
  using V = RealElement<E>;
  using F = RowElement<E, Row>;
  constexpr int kStep = kColumns<V, Row>, kCount = kJacobiChains / kStep;
  Row re[kCount] = {}, im[kCount] = {}, squares[kCount] = {};
  const auto add = [&](int j, int c) {
    const F x = p.Load(j), y = q.Load(j);
    if constexpr (kComplexElement<E>) {
      const F sum = ConjMulAdd(y, x, F{re[c], im[c]});
      re[c] = sum.re;
      im[c] = sum.im;
    } else {
      re[c] = MulAdd(y, x, re[c]);
    }
    squares[c] = NormAdd(y, squares[c]);
  };
  const int columns = PaddedColumns<V, Row>(n);
  int j = 0;
  for (; j + kJacobiChains <= columns; j += kJacobiChains) {
#pragma GCC unroll 8
    for (int c = 0; c < kCount; ++c) add(j + c * kStep, c);
  }
#pragma GCC unroll 8
  for (int c = 0; c < kCount - 1; ++c) {
    if (j + c * kStep < columns) add(j + c * kStep, c);
  }
  square = SumChains<V>(squares);
  if constexpr (kComplexElement<E>) {
    return {SumChains<V>(re), SumChains<V>(im)};
  } else {
    return SumChains<V>(re);
  }
}

template <class E, class Row>
LINALG_INLINE RealElement<E> SquareOfRow(SplitRows<E, Row> p, int n) {
  RealElement<E> square;
  DotRows(p, p, n, square);
  return square;
}

// p := x p + y q and q := x q - ȳ p
template <class E, class Row>
LINALG_INLINE void JacobiRotate(SplitRows<E, Row> p, SplitRows<E, Row> q, int n, RealElement<E> x,
                                E y) {
  using V = RealElement<E>;
  using F = RowElement<E, Row>;
  constexpr int kStep = kColumns<V, Row>;
  const Row keep = Widen<Row>(x);
  const F minus = Widen<Row>(-y);
  for (int j = 0; j < PaddedColumns<V, Row>(n); j += kStep) {
    const F a = p.Load(j), b = q.Load(j);
    p.Store(j, NegMulAdd(minus, b, keep * a));
    q.Store(j, ConjMulAdd(minus, a, keep * b));
  }
}

// p := p - x q
template <class E, class Row>
LINALG_INLINE void SubtractRow(SplitRows<E, Row> p, SplitRows<E, Row> q, int n, E x) {
  using V = RealElement<E>;
  for (int j = 0; j < PaddedColumns<V, Row>(n); j += kColumns<V, Row>) {
    p.Store(j, NegMulAdd(Widen<Row>(x), q.Load(j), p.Load(j)));
  }
}

template <class E, class Row>
LINALG_INLINE void ScaleRow(SplitRows<E, Row> p, int n, RealElement<E> x) {
  using V = RealElement<E>;
  for (int j = 0; j < PaddedColumns<V, Row>(n); j += kColumns<V, Row>) {
    p.Store(j, Widen<Row>(x) * p.Load(j));
  }
}

// Makes the n rows of `a` orthogonal; kVectors also rotates the rows of `g`. Returns 1 in the lanes
// that still rotated in the last sweep.
template <bool kVectors, class E, class Row>
LINALG_INLINE RealElement<E> OrthogonaliseRows(SplitRows<E, Row> a, SplitRows<E, Row> g, int n) {
  using V = RealElement<E>;
  using T = Lane<V>;
  using Range = JacobiRange<T>;
  const V zero{}, one = Broadcast<V>(1);
  const T tolerance = JacobiTolerance<T>(n);
  const V limit = Broadcast<V>(tolerance * tolerance);
  V turning = zero;
  for (int sweep = 0; sweep < kJacobiSweeps; ++sweep) {
    turning = zero;
    for (int i = 0; i + 1 < n; ++i) {
      const SplitRows<E, Row> p = a.Below(i);
      V p_square = SquareOfRow(p, n);
      for (int j = i + 1; j < n; ++j) {
        const SplitRows<E, Row> q = a.Below(j);
        V q_square;
        const E dot = DotRows(p, q, n, q_square);
        const auto swap = q_square > p_square;
        const V larger = swap ? q_square : p_square, smaller = swap ? p_square : q_square;
        const V unit = larger < Broadcast<V>(Range::kShort) ? larger : one;
        const V scale = one / unit;
        const E scaled = scale * dot;
        const V size = NormAdd(scaled, zero);
        const auto turn = (size > limit * (scale * larger) * (scale * smaller)) &
                          (smaller > Broadcast<V>(Range::kNull));
        const Mask<V> acts(turn | swap);
        if (!Any(acts)) continue;
        turning = turn ? one : turning;
        // The rotation's angle, and the phase that makes the product real and positive.
        const V length = Sqrt(size);
        const V half = Number<V>(0.5) * (scale * larger - scale * smaller);
        const JacobiAngle<V> angle(half, length, size, turn);
        const auto moves = turn & (length > zero);
        const E phase = Choose(moves, (one / length) * scaled, FromReal<E>(one));
        const V x = swap ? angle.sine : angle.cosine;
        const E y = (swap ? angle.cosine : angle.sine) * phase;
        JacobiRotate(p, q, n, x, y);
        if constexpr (kVectors) JacobiRotate(g.Below(i), g.Below(j), n, x, y);
        // Idle lanes keep their value: scaling and unscaling might change it.
        const V square = unit * MulAdd(angle.tangent, length, scale * larger);
        p_square = acts ? square : p_square;
      }
    }
    if (!Any(turning != zero)) break;
  }
  return turning;
}

// Replaces row `i` of `a`, in the lanes where `missing` holds, by a unit vector orthogonal to the
// other rows. Each of these is a unit vector or zero. `fresh` is a workspace of one row.
template <class E, class Row>
LINALG_ONCE void CompleteRow(SplitRows<E, Row> a, int n, int i, Mask<RealElement<E>> missing,
                             SplitRows<E, Row> fresh) {
  using V = RealElement<E>;
  // Starts from the coordinate vector that is farthest from the other rows.
  V least = Number<V>(2), place = V{};
  for (int k = 0; k < n; ++k) {
    V sum{};
    for (int j = 0; j < n; ++j) sum = NormAdd(a.Below(j).Get(k), sum);
    const auto less = sum < least;
    least = less ? sum : least;
    place = less ? Number<V>(k) : place;
  }
  for (int j = 0; j < PaddedColumns<V, Row>(n); ++j) {
    fresh.Set(j, FromReal<E>(KeepIf<V>(place == Number<V>(j), Number<V>(1))));
  }
  for (int pass = 0; pass < 2; ++pass) {
    for (int j = 0; j < n; ++j) {
      if (j == i) continue;
      V unused;
      SubtractRow(fresh, a.Below(j), n, DotRows(fresh, a.Below(j), n, unused));
    }
  }
  ScaleRow(fresh, n, Number<V>(1) / Sqrt(SquareOfRow(fresh, n)));
  for (int j = 0; j < n; ++j) a.Below(i).Set(j, Choose(missing, fresh.Get(j), a.Below(i).Get(j)));
}

// Normalises orthogonal rows, and returns their norms in `s`.
template <bool kVectors, class E, class Row>
LINALG_INLINE void NormaliseRows(SplitRows<E, Row> a, int n, RealElement<E>* s,
                                 SplitRows<E, Row> fresh) {
  using V = RealElement<E>;
  using Range = JacobiRange<Lane<V>>;
  const V zero{}, one = Broadcast<V>(1), null = Broadcast<V>(Range::kNull);
  Mask<V> missing{};
  for (int i = 0; i < n; ++i) {
    const SplitRows<E, Row> row = a.Below(i);
    const V square = SquareOfRow(row, n);
    const auto lost = square <= null;
    s[i] = Sqrt(square);
    if (Any(lost)) {
      ScaleRow(row, n, lost ? Broadcast<V>(Range::kUp) : one);
      const V norm = Sqrt(SquareOfRow(row, n));
      s[i] = lost ? norm * Broadcast<V>(1 / Range::kUp) : s[i];
      missing = missing | lost;
    }
    if constexpr (kVectors) ScaleRow(row, n, lost ? zero : one / s[i]);
  }
  if constexpr (kVectors) {
    if (!Any(missing)) return;
    for (int i = 0; i < n; ++i) {
      const auto lost = SquareOfRow(a.Below(i), n) == zero;
      if (Any(lost)) CompleteRow(a, n, i, lost, fresh);
    }
  }
}

template <class E, class Row>
LINALG_INLINE void SwapRows(SplitRows<E, Row> a, int n, int i, Mask<RealElement<E>> swap) {
  const SplitRows<E, Row> p = a.Below(i - 1), q = a.Below(i);
  for (int j = 0; j < n; ++j) {
    E x = p.Get(j), y = q.Get(j);
    ExchangeWhere(swap, x, y);
    p.Set(j, x);
    q.Set(j, y);
  }
}

// Sorts s in descending order, and the rows with it.
template <bool kVectors, class E, class Row>
LINALG_INLINE void SortRows(RealElement<E>* s, SplitRows<E, Row> a, SplitRows<E, Row> g, int n) {
  SortLanes(
      n, [&](int j) { return s[j] > s[j - 1]; },
      [&](int j, auto lanes) {
        ExchangeWhere(lanes, s[j], s[j - 1]);
        if constexpr (kVectors) {
          SwapRows(a, n, j, lanes);
          SwapRows(g, n, j, lanes);
        }
      });
}

// The interface that Svd of svd.h expects.
template <class E_, class Row>
class JacobiSvd {
 public:
  using E = E_;
  using V = RealElement<E>;
  // Elements before the matrix that are read and written.
  static constexpr int kMargin = 0;

  LINALG_INLINE JacobiSvd(Arena<V>& arena, E*, int n) : n_(n) {
    const int stride = RowStride<V, Row>(n);
    a_ = arena.template TakeRows<E, Row>(n, stride);
    g_ = arena.template TakeRows<E, Row>(n, stride);
    fresh_ = arena.template TakeRows<E, Row>(1, stride);
  }

  LINALG_INLINE void Set(int i, int j, E x) const { a_.Below(i).Set(j, x); }

  template <bool kVectors>
  LINALG_INLINE V Solve(V* s) const {
    const V one = Broadcast<V>(1);
    for (int i = 0; i < n_; ++i) {
      for (int j = 0; j < n_; ++j) g_.Below(i).Set(j, FromReal<E>(i == j ? one : V{}));
      for (int j = n_; j < PaddedColumns<V, Row>(n_); ++j) {
        a_.Below(i).Set(j, E{});
        g_.Below(i).Set(j, E{});
      }
    }
    const V failed = OrthogonaliseRows<kVectors>(a_, g_, n_);
    NormaliseRows<kVectors>(a_, n_, s, fresh_);
    SortRows<kVectors>(s, a_, g_, n_);
    return failed;
  }

  LINALG_INLINE E U(int i, int j) const { return Conj(g_.Below(j).Get(i)); }
  LINALG_INLINE E Vh(int i, int j) const { return a_.Below(i).Get(j); }

 private:
  int n_;
  SplitRows<E, Row> a_, g_, fresh_;
};

}  // namespace linalg::small
