// The largest element of a matrix by a team of threads, and the power of two that brings it near 1.
#pragma once

#include "kernels/team/team.h"

namespace linalg::team {

// The largest real or imaginary part of element(i), i < count; infinity if one is not finite.
template <class V, class Team, class Count, class Element>
LINALG_TEAM V LargestPart(const Team& team, Count count, Element&& element) {
  constexpr V kMost = std::numeric_limits<V>::max();
  // NaN is not within the range either.
  const auto size_of = [](V x) {
    const V size = small::Abs(x);
    return size <= kMost ? size : std::numeric_limits<V>::infinity();
  };
  return team
      .template Best<V>([&](int thread) {
        Largest<V> best{V(0), 0};
        for (Count i = thread; i < count; i += team.size()) {
          const auto x = element(i);
          best = best.Better({size_of(small::Re(x)), 0});
          if constexpr (small::kComplexElement<std::remove_cvref_t<decltype(x)>>) {
            best = best.Better({size_of(x.im), 0});
          }
        }
        return best;
      })
      .value;
}

// 2^-k for x of 2^k or a little more, and the `inverse` 2^k; 1 for what has no such power.
template <class V>
LINALG_TEAM V PowerOfTwoScale(V x, V& inverse) {
  V scale = inverse = V(1);
  if (!(x > V(0) && x < std::numeric_limits<V>::infinity())) return scale;
  // Neither overflows: the smallest normal number's inverse is in range.
  const V smallest = std::numeric_limits<V>::min();
  V y = x < smallest ? smallest : x;
  constexpr int kSteps = sizeof(V) == 4 ? 6 : 9;
  V powers[kSteps + 1];
  powers[0] = V(2);
  for (int i = 0; i < kSteps; ++i) powers[i + 1] = powers[i] * powers[i];
  for (int i = kSteps; i >= 0; --i) {
    if (y >= powers[i]) {
      y *= V(1) / powers[i];
      scale *= V(1) / powers[i];
      inverse *= powers[i];
    } else if (y * powers[i] <= V(1)) {
      y *= powers[i];
      scale *= powers[i];
      inverse *= V(1) / powers[i];
    }
  }
  return scale;
}

}  // namespace linalg::team
