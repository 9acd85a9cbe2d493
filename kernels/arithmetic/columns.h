// Neighbouring columns of one matrix in a register, for algorithms that also run with one matrix
// per lane.
//
// A Row is a register of one matrix's numbers, or V itself. Code written for SplitRows does the
// same operations on each element for both kinds of Row.
#pragma once

#include "kernels/arithmetic/element.h"

namespace linalg {

// E for all columns of a Row.
template <class E, class Row>
using RowElement = std::conditional_t<kComplexElement<E>, Complex<Row>, Row>;

// The columns in a Row, or in a block B of elements E.
template <class E, class B>
inline constexpr int kColumns = sizeof(B) / sizeof(E);

// The element in every column. Keeps the sign of zero.
template <class Row, class E>
LINALG_INLINE RowElement<E, Row> Widen(E x) {
  if constexpr (kComplexElement<E>) {
    return {Widen<Row>(x.re), Widen<Row>(x.im)};
  } else if constexpr (std::is_same_v<E, Row>) {
    return x;
  } else {
    return x - Row{};
  }
}

// Loads neighbouring elements of a row as a block B. Complex elements lie in memory part by part.
template <class B, class E, size_t... kIndex>
LINALG_INLINE B LoadColumns(const E* source, std::index_sequence<kIndex...>) {
  if constexpr (std::is_same_v<B, E>) {
    return *source;
  } else if constexpr (kComplexElement<E>) {
    using V = RealElement<B>;
    const auto* parts = reinterpret_cast<const Lane<V>*>(source);
    const V low = LoadUnaligned<V>(parts), high = LoadUnaligned<V>(parts + kLanesOf<V>);
    return {Shuffle<(2 * kIndex)...>(low, high), Shuffle<(2 * kIndex + 1)...>(low, high)};
  } else {
    return LoadUnaligned<B>(source);
  }
}
template <class B, class E>
LINALG_INLINE B LoadColumns(const E* source) {
  return LoadColumns<B>(source, std::make_index_sequence<kColumns<E, B>>());
}

template <class B, class E, size_t... kIndex>
LINALG_INLINE void StoreColumns(B x, E* target, std::index_sequence<kIndex...>) {
  if constexpr (std::is_same_v<B, E>) {
    *target = x;
  } else if constexpr (kComplexElement<E>) {
    using V = RealElement<B>;
    constexpr size_t kLanes = kLanesOf<V>;
    auto* parts = reinterpret_cast<Lane<V>*>(target);
    StoreUnaligned<V>(Shuffle<(kIndex / 2 + (kIndex % 2) * kLanes)...>(x.re, x.im), parts);
    StoreUnaligned<V>(Shuffle<(kLanes / 2 + kIndex / 2 + (kIndex % 2) * kLanes)...>(x.re, x.im),
                      parts + kLanes);
  } else {
    StoreUnaligned(x, target);
  }
}
template <class B, class E>
LINALG_INLINE void StoreColumns(B x, E* target) {
  StoreColumns(x, target, std::make_index_sequence<kColumns<E, B>>());
}

template <class V, class Row>
constexpr int PaddedColumns(int n) {
  return (n + kColumns<V, Row> - 1) / kColumns<V, Row> * kColumns<V, Row>;
}

// The distance of rows in registers V. Rows a power of two apart would compete for few cache sets.
template <class V, class Row>
constexpr int RowStride(int n) {
  return PaddedColumns<V, Row>(n) + (kColumns<V, Row> == 1 && n % 16 == 0);
}

// A matrix with separate real and imaginary parts, and rows padded to whole Rows.
template <class E, class Row>
struct SplitRows {
  using V = RealElement<E>;

  V* re;
  V* im;
  int stride;

  LINALG_INLINE SplitRows Below(int i) const { return {re + i * stride, im + i * stride, stride}; }

  LINALG_INLINE E Get(int i) const {
    if constexpr (kComplexElement<E>) {
      return {re[i], im[i]};
    } else {
      return re[i];
    }
  }
  LINALG_INLINE void Set(int i, E x) const {
    re[i] = Re(x);
    if constexpr (kComplexElement<E>) im[i] = x.im;
  }
  LINALG_INLINE RowElement<E, Row> Load(int i) const {
    const auto load = [&](const V* part) {
      return LoadUnaligned<Row>(reinterpret_cast<const Lane<V>*>(part + i));
    };
    if constexpr (kComplexElement<E>) {
      return {load(re), load(im)};
    } else {
      return load(re);
    }
  }
  LINALG_INLINE void Store(int i, RowElement<E, Row> x) const {
    StoreUnaligned(Re(x), reinterpret_cast<Lane<V>*>(re + i));
    if constexpr (kComplexElement<E>) StoreUnaligned(x.im, reinterpret_cast<Lane<V>*>(im + i));
  }
};

}  // namespace linalg
