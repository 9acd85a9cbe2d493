// The order of Jacobi's rotations, as rounds of a tournament. Each of n columns meets each other
// once in a sweep, n / 2 pairs at a time.
#pragma once

#include "kernels/team/team.h"

namespace linalg::team {

LINALG_INLINE int PairsOf(int n) { return (n + 1) / 2; }
LINALG_INLINE int RoundsOf(int n) { return n + n % 2 - 1; }

// The two that meet at table `pair` in round `round`, i < j. j is n where one of an odd number
// rests.
struct Pair {
  int i, j;

  LINALG_INLINE Pair(int n, int round, int pair) {
    const int movers = RoundsOf(n);  // seat 0 stays, the others move on
    const auto player = [&](int seat) {
      const int moved = seat - 1 + round;
      return seat == 0 ? 0 : 1 + (moved < movers ? moved : moved - movers);
    };
    const int x = player(pair), y = player(movers - pair);
    i = x < y ? x : y;
    j = x < y ? y : x;
  }
};

}  // namespace linalg::team
