// Products of matrices that a team holds.
#pragma once

#include "kernels/team/update.h"

namespace linalg::team {

// A product of rows by depth and depth by cols elements.
struct ProductShape {
  int rows, cols, depth;
};

// Calls put(i, j, sum over k of a(i, k) b(k, j)) for rows i0, i0 + down, ... and columns j0, j0 +
// 1, ... Past the end, it repeats the first row or column.
template <int kRows, int kCols, class E, class A, class B, class Put>
LINALG_TEAM void ProductTile(const ProductShape& shape, int i0, int down, int j0, A&& a, B&& b,
                             Put&& put) {
  if (i0 >= shape.rows || j0 >= shape.cols) return;
  int row[kRows], col[kCols];
  LINALG_UNROLL
  for (int i = 0; i < kRows; ++i) row[i] = i0 + i * down < shape.rows ? i0 + i * down : i0;
  LINALG_UNROLL
  for (int j = 0; j < kCols; ++j) col[j] = j0 + j < shape.cols ? j0 + j : j0;
  E sum[kRows][kCols] = {};
  const auto add = [&](int k) {
    E right[kCols];
    LINALG_UNROLL
    for (int j = 0; j < kCols; ++j) right[j] = b(k, col[j]);
    LINALG_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const E left = -a(row[i], k);
      LINALG_UNROLL
      for (int j = 0; j < kCols; ++j) sum[i][j] = NegMulAdd(left, right[j], sum[i][j]);
    }
  };
  if constexpr (sizeof(E) > 8) {
    LINALG_UNROLL_BY(1)  // more would not fit in registers
    for (int k = 0; k < shape.depth; ++k) add(k);
  } else {
    for (int k = 0; k < shape.depth; ++k) add(k);
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
LINALG_TEAM void Product(const Team& team, const ProductShape& shape, A&& a, B&& b, Put&& put) {
  const Tiling tiling(team);
  const auto tiles = [&](int thread, auto rows, auto cols) {
    constexpr int kRows = decltype(rows)::value, kCols = decltype(cols)::value;
    int turn = tiling.Group(thread);
    for (int i0 = 0; i0 < shape.rows; i0 += tiling.down * kRows) {
      for (int j0 = 0; j0 < shape.cols; j0 += tiling.across * kCols) {
        if (turn == 0) {
          ProductTile<kRows, kCols, E>(shape, i0 + tiling.Row(thread), tiling.down,
                                       j0 + tiling.Column(thread) * kCols, a, b, put);
          turn = tiling.groups;
        }
        --turn;
      }
    }
  };
  team.Phase([&](int thread) {
    thread = Again(thread);
    if (shape.rows > 2 * tiling.down) {
      tiles(thread, std::integral_constant<int, kTileRows<E>>(),
            std::integral_constant<int, kTileCols<E>>());
    } else {
      tiles(thread, std::integral_constant<int, 2>(),
            std::integral_constant<int, kTileCols<E> / 2>());
    }
  });
}

// Product for matrices of n by n elements.
template <class E, class Team, class A, class B, class Put>
LINALG_TEAM void Product(const Team& team, int n, A&& a, B&& b, Put&& put) {
  Product<E>(team, ProductShape{.rows = n, .cols = n, .depth = n}, a, b, put);
}

}  // namespace linalg::team
