// Pivot rows or columns that each lane chooses for itself.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/arithmetic/element.h"

namespace linalg::small {

// The pivot rows of all lanes as a bit set.
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

// Calls body(mask, i) for the pivots i != k of any lane within [first, last). The mask marks the
// lanes with that pivot. A single lane, such as a CUDA thread, goes straight to its own pivot.
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
