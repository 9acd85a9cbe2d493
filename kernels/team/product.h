// Products of square matrices that a team holds, n by n.
#pragma once

#include "kernels/team/update.h"

namespace linalg::team {

// Calls put(i, j, sum over k of a(i, k) b(k, j)) for rows i0, i0 + down, ... and columns j0, j0 +
// 1, ... Past the end, it repeats the first row or column.
template <int kRows, int kCols, class E, class A, class B, class Put>
LINALG_TEAM void ProductTile(int n, int i0, int down, int j0, A&& a, B&& b, Put&& put) {
  if (i0 >= n || j0 >= n) return;
  int row[kRows], col[kCols];
  LINALG_UNROLL
  for (int i = 0; i < kRows; ++i) row[i] = i0 + i * down < n ? i0 + i * down : i0;
  LINALG_UNROLL
  for (int j = 0; j < kCols; ++j) col[j] = j0 + j < n ? j0 + j : j0;
  E sum[kRows][kCols] = {};
  for (int k = 0; k < n; ++k) {
    E right[kCols];
    LINALG_UNROLL
    for (int j = 0; j < kCols; ++j) right[j] = b(k, col[j]);
    LINALG_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const E left = -a(row[i], k);
      LINALG_UNROLL
      for (int j = 0; j < kCols; ++j) sum[i][j] = NegMulAdd(left, right[j], sum[i][j]);
    }
  }
  LINALG_UNROLL
  for (int i = 0; i < kRows; ++i) {
    LINALG_UNROLL
    for (int j = 0; j < kCols; ++j) put(row[i], col[j], sum[i][j]);
  }
}

// A phase that calls put(i, j, x) with each element of A B. Some elements come twice. put must
// write neither what a(i, k) nor what b(k, j) reads.
template <class E, class Team, class A, class B, class Put>
LINALG_TEAM void Product(const Team& team, int n, A&& a, B&& b, Put&& put) {
  const Tiling tiling(team);
  const auto tiles = [&](int thread, auto rows, auto cols) {
    constexpr int kRows = decltype(rows)::value, kCols = decltype(cols)::value;
    int turn = tiling.Group(thread);
    for (int i0 = 0; i0 < n; i0 += tiling.down * kRows) {
      for (int j0 = 0; j0 < n; j0 += tiling.across * kCols) {
        if (turn == 0) {
          ProductTile<kRows, kCols, E>(n, i0 + tiling.Row(thread), tiling.down,
                                       j0 + tiling.Column(thread) * kCols, a, b, put);
          turn = tiling.groups;
        }
        --turn;
      }
    }
  };
  team.Phase([&](int thread) {
    thread = Again(thread);
    if (n > 2 * tiling.down) {
      tiles(thread, std::integral_constant<int, kTileRows<E>>(),
            std::integral_constant<int, kTileCols<E>>());
    } else {
      tiles(thread, std::integral_constant<int, 2>(),
            std::integral_constant<int, kTileCols<E> / 2>());
    }
  });
}

}  // namespace linalg::team
