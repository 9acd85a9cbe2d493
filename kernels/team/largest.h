// Searches of a team of threads among the elements of a matrix: the largest, and the first pivot of
// some kind.
#pragma once

#include <limits>

#include "kernels/team/team.h"

namespace linalg::team {

// The larger magnitude of x's parts; infinity if one is not finite.
template <class E>
LINALG_INLINE RealElement<E> LargerComponent(E x) {
  using V = RealElement<E>;
  const auto size_of = [](V part) {
    const V size = Abs(part);  // NaN is not within the range either
    return size <= std::numeric_limits<V>::max() ? size : std::numeric_limits<V>::infinity();
  };
  if constexpr (kComplexElement<E>) {
    const V re = size_of(x.re), im = size_of(x.im);
    return Larger(re, im);
  } else {
    return size_of(x);
  }
}

// Whether all elements are finite, given the largest of their LargerComponents.
template <class V>
LINALG_INLINE bool IsFinite(V largest) {
  return largest < std::numeric_limits<V>::infinity();
}

// The largest real or imaginary part of element(i), i < count; infinity if one is not finite.
template <class V, class Team, class Count, class Element>
LINALG_TEAM V LargestComponent(const Team& team, Count count, Element&& element) {
  return team
      .template Best<V>([&](int thread) {
        Candidate<V> best{V(0), 0};
        for (Count i = thread; i < count; i += team.size()) {
          best = best.Better({LargerComponent(element(i)), 0});
        }
        return best;
      })
      .value;
}

// The 1-based index of the first of `count` diagonal elements for which is(element) holds, or 0.
template <class Team, class E, class Is>
LINALG_TEAM int FirstPivot(const Team& team, int count, const E* factors, int64_t ld, Is&& is) {
  using V = RealElement<E>;
  const auto first = team.template Best<V>([&](int thread) {
    Candidate<V> best{V(0), -1};
    for (int k = thread; k < count; k += team.size()) {
      if (is(factors[k * ld + k])) best = best.Better({V(1), k});
    }
    return best;
  });
  return first.index + 1;
}

}  // namespace linalg::team
