// The exchanges of rows that pivots stand for.
#pragma once

#include <cstdint>

#include "kernels/arithmetic/element.h"

namespace linalg {

// Calls exchange(k, i) for the pivots i of the steps k < count, in their order or with `back` in
// the opposite one; not where both are the same row, or i is none of the matrix's `size` rows.
template <class Index, class Exchange>
LINALG_INLINE void ForEachExchange(Index count, const int32_t* pivots, Index size, bool back,
                                   Exchange&& exchange) {
  for (Index step = 0; step < count; ++step) {
    const Index k = back ? count - 1 - step : step, i = pivots[k];
    if (i != k && i >= 0 && i < size) exchange(k, i);
  }
}

}  // namespace linalg
