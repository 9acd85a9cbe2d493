// The largest element of a matrix by a team of threads.
#pragma once

#include "kernels/team/team.h"

namespace linalg::team {

// The largest real or imaginary part of element(i), i < count; infinity if one is not finite.
template <class V, class Team, class Count, class Element>
LINALG_TEAM V LargestPart(const Team& team, Count count, Element&& element) {
  constexpr V kMost = std::numeric_limits<V>::max();
  // NaN is not within the range either.
  const auto size_of = [](V x) {
    const V size = Abs(x);
    return size <= kMost ? size : std::numeric_limits<V>::infinity();
  };
  return team
      .template Best<V>([&](int thread) {
        Largest<V> best{V(0), 0};
        for (Count i = thread; i < count; i += team.size()) {
          const auto x = element(i);
          best = best.Better({size_of(Re(x)), 0});
          if constexpr (kComplexElement<std::remove_cvref_t<decltype(x)>>) {
            best = best.Better({size_of(x.im), 0});
          }
        }
        return best;
      })
      .value;
}

}  // namespace linalg::team
