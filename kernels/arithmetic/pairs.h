// Complex numbers in pairs of lanes, in their memory layout.
#pragma once

#include <utility>

#include "kernels/arithmetic/element.h"

namespace linalg {

template <class V, size_t... kIndex>
LINALG_INLINE V SwapPairs(V x, std::index_sequence<kIndex...>) {
  return Shuffle<(kIndex ^ 1)...>(x, x);
}
template <class V>
LINALG_INLINE V SwapPairs(V x) {
  return SwapPairs(x, std::make_index_sequence<kLanesOf<V>>());
}

// (even, odd, even, odd, …)
template <class V>
LINALG_INLINE V InPairs(Lane<V> even, Lane<V> odd) {
  V x{};
  for (int i = 0; i < kLanesOf<V>; ++i) x[i] = i & 1 ? odd : even;
  return x;
}

template <class V>
LINALG_INLINE V ConjugatePairs(V x) {
  return InPairs<V>(1, -1) * x;
}

// Complex numbers times i, or times -i with `minus`.
template <class V>
LINALG_INLINE V TimesI(V x, bool minus) {
  return (minus ? InPairs<V>(1, -1) : InPairs<V>(-1, 1)) * SwapPairs(x);
}

}  // namespace linalg
