// The row exchanges that pivots describe.
#pragma once

#include <cstdint>
#include <numeric>
#include <type_traits>
#include <utility>

#include "kernels/arithmetic/element.h"

namespace linalg {

// Calls exchange(k, i) for the pivots i of the steps k < count, in reverse with `back`. Skips a
// step whose rows are equal, or whose pivot lies outside the `size` rows.
template <class Index, class Exchange>
LINALG_INLINE void ForEachExchange(Index count, const int32_t* pivots, Index size, bool back,
                                   Exchange&& exchange) {
  for (Index step = 0; step < count; ++step) {
    const Index k = back ? count - 1 - step : step, i = pivots[k];
    if (i != k && i >= 0 && i < size) exchange(k, i);
  }
}

// Exchanges the rows of b (n, cols); rows are `ld` apart.
template <class Index, class E>
LINALG_INLINE void ExchangeRows(Index n, const int32_t* pivots, std::type_identity_t<Index> cols,
                                E* b, std::type_identity_t<Index> ld, bool back) {
  ForEachExchange(n, pivots, n, back, [=](Index k, Index i) {
    for (Index j = 0; j < cols; ++j) std::swap(b[k * ld + j], b[i * ld + j]);
  });
}

// permutation = the order of the rows after the exchanges.
inline void PivotsToPermutation(int64_t count, const int32_t* pivots, int64_t size,
                                int32_t* permutation) {
  std::iota(permutation, permutation + size, 0);
  ForEachExchange(count, pivots, size, /*back=*/false,
                  [=](int64_t k, int64_t i) { std::swap(permutation[k], permutation[i]); });
}

}  // namespace linalg
