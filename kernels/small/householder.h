// QR factors of small matrices by Householder reflectors, with LAPACK's conventions.
//
// A reflector is H = I - tau v vᴴ, v's first element 1, chosen so that Hᴴ makes a column
// (beta, 0, ..., 0) with a real beta. Matrices are row-major, rows `ld` apart. An element E holds one
// matrix, or one per lane; columns are updated in blocks B, which are elements, or, where E is one
// matrix's, registers of neighbouring columns. Either way each column sees the same operations.
#pragma once

#include <type_traits>
#include <utility>

#include "kernels/small/lanes.h"
#include "kernels/small/pack.h"

namespace linalg::small {

// How many elements E a block B holds.
template <class B, class E>
inline constexpr int kColumnsOf = sizeof(B) / sizeof(E);

template <class B, class E, size_t... kIndex>
LINALG_INLINE B LoadColumns(const E* source, std::index_sequence<kIndex...>) {
  if constexpr (std::is_same_v<B, E>) {
    return *source;
  } else if constexpr (kComplexElement<E>) {
    using V = RealElement<B>;
    const auto* parts = reinterpret_cast<const Lane<V>*>(source);
    const V low = LoadUnaligned<V>(parts), high = LoadUnaligned<V>(parts + kLanesOf<V>);
    return {__builtin_shufflevector(low, high, (2 * kIndex)...),
            __builtin_shufflevector(low, high, (2 * kIndex + 1)...)};
  } else {
    return LoadUnaligned<B>(source);
  }
}
template <class B, class E>
LINALG_INLINE B LoadColumns(const E* source) {
  return LoadColumns<B>(source, std::make_index_sequence<kColumnsOf<B, E>>());
}

template <class B, class E, size_t... kIndex>
LINALG_INLINE void StoreColumns(B x, E* target, std::index_sequence<kIndex...>) {
  if constexpr (std::is_same_v<B, E>) {
    *target = x;
  } else if constexpr (kComplexElement<E>) {
    using V = RealElement<B>;
    constexpr size_t kLanes = kLanesOf<V>;
    auto* parts = reinterpret_cast<Lane<V>*>(target);
    StoreUnaligned<V>(
        __builtin_shufflevector(x.re, x.im, (kIndex / 2 + (kIndex % 2) * kLanes)...), parts);
    StoreUnaligned<V>(__builtin_shufflevector(
                          x.re, x.im, (kLanes / 2 + kIndex / 2 + (kIndex % 2) * kLanes)...),
                      parts + kLanes);
  } else {
    StoreUnaligned(x, target);
  }
}
template <class B, class E>
LINALG_INLINE void StoreColumns(B x, E* target) {
  StoreColumns(x, target, std::make_index_sequence<kColumnsOf<B, E>>());
}

// The element in every column of a block, its sign of zero included.
template <class B, class E>
LINALG_INLINE B Spread(E x) {
  if constexpr (std::is_same_v<B, E>) {
    return x;
  } else if constexpr (kComplexElement<E>) {
    return {Spread<RealElement<B>>(x.re), Spread<RealElement<B>>(x.im)};
  } else {
    return x - B{};
  }
}

template <class E>
LINALG_INLINE E Product(E a, E b) {
  if constexpr (kComplexElement<E>) {
    return {MulAdd(-a.im, b.im, a.re * b.re), MulAdd(a.im, b.re, a.re * b.im)};
  } else {
    return a * b;
  }
}

template <class V>
LINALG_INLINE V CopySign(V magnitude, V sign) {
  if constexpr (std::is_same_v<V, Lane<V>>) {
    return std::copysign(magnitude, sign);
  } else {
    using Bits = Mask<V>;
    const Bits bit = (Bits)(-V{});
    return (V)(((Bits)magnitude & ~bit) | ((Bits)sign & bit));
  }
}

// What sums of squares are trusted in: between kLeast and kMost nothing that matters has under- or
// overflowed. Columns beyond are first multiplied by kUp or kDown, powers of two.
template <class T>
struct SquareRange;
template <>
struct SquareRange<float> {
  static constexpr float kLeast = 0x1p-100f, kMost = 0x1p100f, kUp = 0x1p105f, kDown = 0x1p-75f;
};
template <>
struct SquareRange<double> {
  static constexpr double kLeast = 0x1p-960, kMost = 0x1p1000, kUp = 0x1p600, kDown = 0x1p-600;
};

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
// the column; returns tau. Lanes with nothing to reflect get tau = 0 and v = 0.
template <class E>
LINALG_INLINE E MakeReflector(E* a, int ld, int count, E* v) {
  using V = RealElement<E>;
  using Range = SquareRange<Lane<V>>;
  const V one = Broadcast<V>(1), most = Broadcast<V>(Range::kMost),
          least = Broadcast<V>(Range::kLeast);
  E alpha = a[0];
  V tail = TailSquares(a, ld, count), total = NormAdd(alpha, tail), unscale = one;
  Mask<V> nothing{};
  const Mask<V> rare = (total > most) | (total < least) | (tail == V{});
  if (Any(rare)) [[unlikely]] {
    const V scale = total > most    ? Broadcast<V>(Range::kDown)
                    : total < least ? Broadcast<V>(Range::kUp)
                                    : one;
    unscale = total > most    ? Broadcast<V>(1 / Range::kDown)
              : total < least ? Broadcast<V>(1 / Range::kUp)
                              : one;
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
  const V beta = -CopySign(Sqrt(total), Re(alpha));
  E tau, inverse;
  if constexpr (kComplexElement<E>) {
    tau = {(beta - alpha.re) / beta, -alpha.im / beta};
    const V re = alpha.re - beta;
    const V square = one / MulAdd(alpha.im, alpha.im, re * re);
    inverse = {re * square, -alpha.im * square};
  } else {
    tau = (beta - alpha) / beta;
    inverse = one / (alpha - beta);
  }
  tau = Choose(nothing, E{}, tau);
  inverse = Choose(nothing, E{}, inverse);
  a[0] = FromReal<E>(unscale * (nothing ? Re(alpha) : beta));
  for (int i = 1; i < count; ++i) {
    v[i] = Product(inverse, a[i * ld]);
    a[i * ld] = E{};
  }
  return tau;
}

// Multiplies kBlocks blocks of columns, `count` rows at `a`, by I - tau v vᴴ. With kNewRow the first
// row counts as zero and is only written. With kMasked only columns from `first` on change.
template <int kBlocks, bool kNewRow, bool kMasked, class B, class E>
LINALG_INLINE void ReflectBlocks(E* a, int ld, int count, const E* v, E tau, int first) {
  using V = RealElement<B>;
  constexpr int kWidth = kColumnsOf<B, E>;
  Mask<V> keep{};
  if constexpr (kMasked) {
    V order;
    for (int i = 0; i < kWidth; ++i) order[i] = static_cast<Lane<V>>(i);
    keep = order < Broadcast<V>(static_cast<Lane<V>>(first));
  }
  const auto store = [&](B x, B old, E* target) {
    if constexpr (kMasked) x = Choose(keep, old, x);
    StoreColumns(x, target);
  };
  B sums[kBlocks];
#pragma GCC unroll 8
  for (int c = 0; c < kBlocks; ++c) sums[c] = kNewRow ? B{} : LoadColumns<B>(a + c * kWidth);
  for (int i = 1; i < count; ++i) {
    const B left = Spread<B>(-Conj(v[i]));
#pragma GCC unroll 8
    for (int c = 0; c < kBlocks; ++c)
      sums[c] = NegMulAdd(left, LoadColumns<B>(a + i * ld + c * kWidth), sums[c]);
  }
  const B factor = Spread<B>(tau);
#pragma GCC unroll 8
  for (int c = 0; c < kBlocks; ++c) {
    sums[c] = Product(factor, sums[c]);
    E* target = a + c * kWidth;
    const B old = kNewRow && !kMasked ? B{} : LoadColumns<B>(target);
    store((kNewRow ? B{} : old) - sums[c], old, target);
  }
  for (int i = 1; i < count; ++i) {
    const B left = Spread<B>(v[i]);
#pragma GCC unroll 8
    for (int c = 0; c < kBlocks; ++c) {
      E* target = a + i * ld + c * kWidth;
      const B old = LoadColumns<B>(target);
      store(NegMulAdd(left, sums[c], old), old, target);
    }
  }
}

// The same for `cols` columns at `a`. What is left of them before the first full block lies in a
// block that begins before them.
template <bool kNewRow, class B, class E>
LINALG_INLINE void Reflect(E* a, int ld, int count, int cols, const E* v, E tau) {
  constexpr int kWidth = kColumnsOf<B, E>;
  constexpr int kMost = kComplexElement<E> ? 4 : 8;
  int j = 0;
  if constexpr (kWidth > 1) {
    j = cols % kWidth;
    if (j > 0)
      ReflectBlocks<1, kNewRow, true, B>(a + j - kWidth, ld, count, v, tau, kWidth - j);
  }
  for (; j + kMost * kWidth <= cols; j += kMost * kWidth)
    ReflectBlocks<kMost, kNewRow, false, B>(a + j, ld, count, v, tau, 0);
  if constexpr (kMost > 4) {
    if (j + 4 * kWidth <= cols) {
      ReflectBlocks<4, kNewRow, false, B>(a + j, ld, count, v, tau, 0);
      j += 4 * kWidth;
    }
  }
  if (j + 2 * kWidth <= cols) {
    ReflectBlocks<2, kNewRow, false, B>(a + j, ld, count, v, tau, 0);
    j += 2 * kWidth;
  }
  if (j < cols) ReflectBlocks<1, kNewRow, false, B>(a + j, ld, count, v, tau, 0);
}

// Replaces the m by n matrix by R, zeros below the diagonal; the reflectors' vectors go to columns
// of `v`, m elements each, their first elements, 1, left out, and their scales to `taus`.
template <class B, class E>
LINALG_INLINE void HouseholderQr(E* a, int ld, int m, int n, E* v, E* taus) {
  for (int k = 0; k < m && k < n; ++k) {
    if (!kComplexElement<E> && k == m - 1) {
      taus[k] = E{};
      break;
    }
    taus[k] = MakeReflector(a + k * ld + k, ld, m - k, v + k * m + k);
    Reflect<false, B>(a + k * ld + k + 1, ld, m - k, n - k - 1, v + k * m + k, Conj(taus[k]));
  }
}

// The first `cols` columns of the product of `count` reflectors; count <= cols <= m.
template <class B, class E>
LINALG_INLINE void HouseholderProduct(E* q, int ld, int m, int cols, int count, const E* v,
                                      const E* taus) {
  for (int i = count; i < m; ++i)
    for (int j = count; j < cols; ++j)
      q[i * ld + j] = i == j ? FromReal<E>(Broadcast<RealElement<E>>(1)) : E{};
  for (int k = count - 1; k >= 0; --k) {
    const E* reflector = v + k * m;
    Reflect<true, B>(q + k * ld + k + 1, ld, m - k, cols - k - 1, reflector + k, taus[k]);
    q[k * ld + k] = FromReal<E>(Broadcast<RealElement<E>>(1)) - taus[k];
    for (int i = k + 1; i < m; ++i) q[i * ld + k] = NegMulAdd(taus[k], reflector[i], E{});
  }
}

// Puts the reflectors' vectors below R, as LAPACK stores them.
template <class E>
LINALG_INLINE void PackReflectors(E* a, int ld, int m, int n, const E* v) {
  const int steps = kComplexElement<E> || m > n ? n : m - 1;
  for (int i = 1; i < m; ++i)
    for (int j = 0; j < i && j < steps; ++j) a[i * ld + j] = v[j * m + i];
}

}  // namespace linalg::small
