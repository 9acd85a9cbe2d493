// The exchanges of rows that pivots stand for.
#pragma once

#include <cstdint>

#include "kernels/arithmetic/element.h"

namespace linalg {

// Calls exchange(k, i) for each of `count` pivots i, from 0, in their order, or with `back` in the
// opposite one. Of a matrix of `size` rows; a pivot outside it is ignored.
template <class Index, class Exchange>
LINALG_INLINE void ForEachExchange(Index count, const int32_t* pivots, Index size, bool back,
                                   Exchange&& exchange) {
  for (Index step = 0; step < count; ++step) {
    const Index k = back ? count - 1 - step : step, i = pivots[k];
    if (i != k && i >= 0 && i < size) exchange(k, i);
  }
}

}  // namespace linalg
