// The exchanges of rows that pivots stand for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

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

// The same of the rows of b (n, cols), `ld` apart.
template <class E>
void ExchangeRows(int64_t n, const int32_t* pivots, int64_t cols, E* b, int64_t ld, bool back) {
  ForEachExchange(n, pivots, n, back, [=](int64_t k, int64_t i) {
    std::swap_ranges(b + k * ld, b + k * ld + cols, b + i * ld);
  });
}

// permutation = the rows' order after the exchanges.
inline void PivotsToPermutation(int64_t count, const int32_t* pivots, int64_t size,
                                int32_t* permutation) {
  std::iota(permutation, permutation + size, 0);
  ForEachExchange(count, pivots, size, /*back=*/false,
                  [=](int64_t k, int64_t i) { std::swap(permutation[k], permutation[i]); });
}

}  // namespace linalg
