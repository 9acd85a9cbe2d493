// Rows or columns that each lane picks for itself.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/arithmetic/element.h"

namespace linalg::small {

// The rows that some lane picked, a bit for each.
inline constexpr int kMaxPivotRows = 64;
template <class V>
LINALG_INLINE uint64_t PivotRows(V pivot) {
  alignas(V) Lane<V> rows[kLanesOf<V>];
  StoreUnaligned(pivot, rows);
  uint64_t picked = 0;
  for (int lane = 0; lane < kLanesOf<V>; ++lane) {
    picked |= uint64_t{1} << static_cast<int>(rows[lane]);
  }
  return picked;
}

// body(mask, i) for the rows or columns i of [first, last) but k that some lane picked, and where
// it did: of a single lane, as a CUDA thread is, the one that it picked, without a look at the
// others.
template <class V, class Body>
LINALG_INLINE void ForEachPivot(V pivot, int k, int first, int last, Body&& body) {
  if constexpr (kLanesOf<V> == 1) {
    const int i = static_cast<int>(pivot);
    if (i != k && i >= first && i < last) body(pivot == pivot, i);
  } else {
    for (int i = first; i < last; ++i) {
      const auto picked = pivot == Number<V>(i);
      if (i != k && Any(picked)) body(picked, i);
    }
  }
}

}  // namespace linalg::small
