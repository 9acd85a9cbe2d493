// Sorting eigenvalues or singular values with their vectors.
#pragma once

#include "kernels/arithmetic/element.h"
#include "kernels/arithmetic/scale.h"

namespace linalg::small {

// Sorts d, ascending or descending. `order` receives the original indices.
template <bool kDescending, class V>
LINALG_INLINE void SortOrdered(V* d, int n, V* order) {
  for (int i = 0; i < n; ++i) order[i] = Number<V>(i);
  SortLanes(
      n, [&](int j) { return kDescending ? d[j] > d[j - 1] : d[j] < d[j - 1]; },
      [&](int j, auto lanes) {
        ExchangeWhere(lanes, d[j], d[j - 1]);
        ExchangeWhere(lanes, order[j], order[j - 1]);
      });
}

// target := the transpose of `source` with its rows in the order `order`, lane by lane. If `target`
// is complex, only its real parts are written.
template <class V, class E>
LINALG_INLINE void TransposeOrdered(const V* source, int n, int stride, const V* order, E* target,
                                    int target_stride) {
  constexpr int kLanes = kLanesOf<V>, kStep = kPartsOf<E> * kLanes;
  const auto* from = reinterpret_cast<const Lane<V>*>(source);
  const auto* places = reinterpret_cast<const Lane<V>*>(order);
  auto* to = reinterpret_cast<Lane<V>*>(target);
  for (int j = 0; j < n; ++j) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto* row = from + static_cast<int>(places[j * kLanes + lane]) * stride * kLanes + lane;
      for (int i = 0; i < n; ++i) {
        to[(i * target_stride + j) * kStep + lane] = row[i * kLanes];
      }
    }
  }
}

}  // namespace linalg::small
