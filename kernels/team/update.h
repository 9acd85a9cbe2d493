// The trailing update, in which blocked factorisations and substitution spend their time: C -= A B.
// A's columns and B's rows are those of a panel.
//
// A thread holds several rows and columns of C in registers. So an element of A or B that is loaded
// serves several products, and C is loaded and stored once per panel. That takes less than one word
// of shared memory for each product, rather than three.
#pragma once

#include "kernels/team/team.h"

namespace linalg::team {

// Columns of a panel. Every thread holds the panel's diagonal block in registers, so larger
// elements have fewer columns.
template <class E>
inline constexpr int kPanel = sizeof(E) > 8 ? 4 : 8;

// Rows and columns of C that a thread holds at most, in 32 registers.
template <class E>
inline constexpr int kTileRows = sizeof(E) > 8 ? 2 : 4;
template <class E>
inline constexpr int kTileCols = sizeof(E) > 4 ? 4 : 8;

// The layout of a team's threads in tiles of C. `down` rows by `across` columns of threads take a
// tile, and `groups` of them take turns.
//
// A thread's rows lie `down` apart, its columns side by side. So the threads of a warp load either
// from eight rows at once, or one word. An odd distance of rows spreads them over the banks of
// shared memory.
struct Tiling {
  int down, across, groups;
  int shift;  // down = 1 << shift

  template <class Team>
  LINALG_INLINE explicit Tiling(const Team& team) : down(1), shift(0) {
    while (down < 8 && down < team.size()) down *= 2, ++shift;
    across = team.size() < 32 ? team.size() >> shift : 4;
    groups = team.size() < 32 ? 1 : team.size() / 32;
  }

  LINALG_INLINE int Row(int thread) const { return thread & (down - 1); }
  LINALG_INLINE int Column(int thread) const { return (thread & 31) >> shift; }
  LINALG_INLINE int Group(int thread) const { return thread / 32; }
};

// A or B: the elements for row or column i of C are first[i * stride + k * step], k = 0, 1, ...
template <class E>
struct PanelFactor {
  const E* first;
  int stride, step;
};

// The part of C to update: rows [first_row, rows) and columns [first_col, cols). If `lower` is
// true, elements above the diagonal are not needed and hold garbage if updated.
template <class E>
struct Updated {
  E* c;
  int ld;
  int first_row, rows, first_col, cols;
  bool lower;
};

// C(i, j) -= A(i, k) B(k, j), or the conjugate of that B, for the k of a panel in their order. Rows
// are i0, i0 + down, ... and columns j0, j0 + 1, ...
//
// Past C's last row or column, a thread repeats its first ones. That writes the same result to the
// same place, and needs no condition.
template <int kRows, int kCols, bool kConjugate, class E>
LINALG_TEAM void UpdateTile(const Updated<E>& part, int i0, int down, int j0,
                            const PanelFactor<E>& a, const PanelFactor<E>& b) {
  if (i0 >= part.rows || j0 >= part.cols) return;
  const auto row = [&](int first, int i) {
    return first + i * down < part.rows ? first + i * down : first;
  };
  const auto col = [&](int first, int j) { return first + j < part.cols ? first + j : first; };
  const E *left[kRows], *right[kCols];
  LINALG_UNROLL
  for (int i = 0; i < kRows; ++i) left[i] = a.first + row(i0, i) * a.stride;
  LINALG_UNROLL
  for (int j = 0; j < kCols; ++j) right[j] = b.first + col(j0, j) * b.stride;
  E x[kRows][kCols];
  LINALG_UNROLL
  for (int i = 0; i < kRows; ++i) {
    E* const c = part.c + row(i0, i) * part.ld;
    LINALG_UNROLL
    for (int j = 0; j < kCols; ++j) x[i][j] = c[col(j0, j)];
  }
  LINALG_UNROLL_BY((kComplexElement<E> ? 2 : 4))  // more would not fit in registers
  for (int k = 0; k < kPanel<E>; ++k) {
    E y[kCols];
    LINALG_UNROLL
    for (int j = 0; j < kCols; ++j) {
      y[j] = kConjugate ? Conj(right[j][k * b.step]) : right[j][k * b.step];
    }
    LINALG_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const E z = left[i][k * a.step];
      LINALG_UNROLL
      for (int j = 0; j < kCols; ++j) x[i][j] = NegMulAdd(z, y[j], x[i][j]);
    }
  }
  i0 = Again(i0), j0 = Again(j0);
  LINALG_UNROLL
  for (int i = 0; i < kRows; ++i) {
    E* const c = part.c + row(i0, i) * part.ld;
    LINALG_UNROLL
    for (int j = 0; j < kCols; ++j) c[col(j0, j)] = x[i][j];
  }
}

template <int kRows, int kCols, bool kConjugate, class E>
LINALG_TEAM void UpdateTiles(const Tiling& tiling, int thread, const Updated<E>& part,
                             const PanelFactor<E>& a, const PanelFactor<E>& b) {
  const int height = tiling.down * kRows, width = tiling.across * kCols;
  thread = Again(thread);
  int turn = tiling.Group(thread);
  for (int i0 = part.first_row; i0 < part.rows; i0 += height) {
    const int end = part.lower && i0 + height < part.cols ? i0 + height : part.cols;
    for (int j0 = part.first_col; j0 < end; j0 += width) {
      if (turn == 0) {
        UpdateTile<kRows, kCols, kConjugate>(part, i0 + tiling.Row(thread), tiling.down,
                                             j0 + tiling.Column(thread) * kCols, a, b);
        turn = tiling.groups;
      }
      --turn;
    }
  }
}

// A thread's share. Small updates take smaller tiles, so that more threads have one.
template <bool kConjugate, class E>
LINALG_TEAM void Update(const Tiling& tiling, int thread, const Updated<E>& part,
                        const PanelFactor<E>& a, const PanelFactor<E>& b) {
  constexpr int kRows = kTileRows<E>, kCols = kTileCols<E>;
  const int elements = (part.rows - part.first_row) * (part.cols - part.first_col);
  const int tiles = tiling.groups * tiling.down * kRows * tiling.across * kCols;
  if (elements > tiles / 4) {
    UpdateTiles<kRows, kCols, kConjugate>(tiling, thread, part, a, b);
  } else if (elements > tiles / 16) {
    UpdateTiles<kRows / 2, kCols / 2, kConjugate>(tiling, thread, part, a, b);
  } else if (elements > 0) {
    UpdateTiles<(kRows + 3) / 4, kCols / 4, kConjugate>(tiling, thread, part, a, b);
  }
}

}  // namespace linalg::team
