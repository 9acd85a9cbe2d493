// Cholesky factors of banded matrices, and substitution with them, by a team of threads. A window
// of columns moves along the diagonal in shared memory. Every step waits for the one before, so
// there is one barrier for each. Elements take the operations of kernels/small/banded.h in the same
// order, so a matrix has the same factor and the same solutions.
#pragma once

#include "kernels/arithmetic/divisor.h"
#include "kernels/team/team.h"

namespace linalg::team {

// The least columns of a ring for bands of `width` diagonals: a power of two, and at least 16 more
// than a step needs, so that a team seldom waits for global memory.
LINALG_INLINE int RingColumns(int64_t width) {
  int64_t columns = 32;
  while (columns < width + 15) columns *= 2;
  return static_cast<int>(columns);
}

// The window: columns from the diagonal down, `ld` elements apart. Column k takes the place of
// column k - columns.
template <class E>
struct ColumnRing {
  E* data;
  int width, columns, ld;

  LINALG_INLINE E* operator()(int k) const { return data + (k & (columns - 1)) * ld; }
  // Columns that are finished before others are loaded.
  LINALG_INLINE int Run() const { return columns - width + 1; }
  // The elements of column k in a matrix of order n.
  LINALG_INLINE int Count(int k, int n) const { return width < n - k ? width : n - k; }
};

// Threads that take neighbouring elements of a column.
template <class Team>
LINALG_TEAM Grid BandGrid(const Team& team, int width) {
  return Grid(team.size(), width > 1 ? width - 1 : 1);
}

// get(i, k) is element i of column k of a Hermitian matrix from the diagonal down, and 0 below the
// last row. put(i, k, x) stores the factor's. The ring holds columns without the scale of their
// pivots, which each thread applies. Returns 0, or the order of the first leading minor that is not
// positive. Then the factor is NaN.
template <class Team, class E, class Get, class Put>
LINALG_TEAM int BandedCholesky(const Team& team, int n, const ColumnRing<E>& ring, Get&& get,
                               Put&& put) {
  using V = RealElement<E>;
  const int width = ring.width;
  const Grid grid = BandGrid(team, width);
  int failed = 0;
  for (int first = 0, loaded = 0; first < n && failed == 0; first += ring.Run()) {
    const int end = first + ring.Run() < n ? first + ring.Run() : n;
    const int next = first + ring.columns < n ? first + ring.columns : n;
    Move<E>(
        team, width, next - loaded, [&](int i, int k) { return get(i, loaded + k); },
        [&](int i, int k, E x) { ring(loaded + k)[i] = x; });
    loaded = next;
    for (int k = first; k < end; ++k) {
      const E* const column = ring(k);
      const int count = ring.Count(k, n);
      const V pivot = Re(column[0]);
      // NaN is not positive. Infinity is, as in LAPACK.
      if (!(pivot > V(0))) {
        failed = k + 1;
        break;
      }
      const V inverse = V(1) / Sqrt(pivot);
      team.Phase([&](int thread) {
        for (int i = 1 + grid.Across(thread); i < count; i += grid.width) {
          const E x = inverse * column[i];
          for (int j = 1 + grid.Group(thread); j <= i; j += grid.groups) {
            E& other = ring(k + j)[i - j];
            other = NegMulAdd(Conj(inverse * column[j]), x, other);
          }
        }
      });
    }
    if (failed != 0) break;
    Move<E>(
        team, width, end - first,
        [&](int i, int k) {
          const E* const column = ring(first + k);
          const V root = Sqrt(Re(column[0]));
          return i == 0 ? FromReal<E>(root) : V(1) / root * column[i];
        },
        [&](int i, int k, E x) { put(i, first + k, x); });
  }
  if (failed != 0) {
    Move<E>(team, width, n, [](int, int) { return NaN<E>(); }, put);
  }
  return failed;
}

// Right-hand sides in a window of rows that moves with the ring: `cols` columns, rows `ld` apart.
template <class E>
struct RowRing {
  E* data;
  int cols, rows, ld;

  LINALG_INLINE E* operator()(int k) const { return data + (k & (rows - 1)) * ld; }
};

// x = L⁻ᴴ L⁻¹ b. get(i, k) is element i of column k of L, load(k, j) an element of b, and store(k,
// j, x) stores one of x. While it sweeps forward, it stores L⁻¹ b, which reload(k, j) returns.
template <class Team, class E, class Get, class Load, class Store, class Reload>
LINALG_TEAM void SolveBandedCholesky(const Team& team, int n, const ColumnRing<E>& ring,
                                     const RowRing<E>& rows, Get&& get, Load&& load, Store&& store,
                                     Reload&& reload) {
  const int width = ring.width, run = ring.Run(), cols = rows.cols;
  const Grid grid = BandGrid(team, width);
  const auto take = [&](int first, int end) {
    Move<E>(
        team, width, end - first, [&](int i, int k) { return get(i, first + k); },
        [&](int i, int k, E x) { ring(first + k)[i] = x; });
  };
  const auto take_rows = [&](int first, int end, const auto& from) {
    Move<E>(
        team, end - first, cols, [&](int k, int j) { return from(first + k, j); },
        [&](int k, int j, E x) { rows(first + k)[j] = x; });
  };
  // Divides rows by the diagonal, or by its conjugate.
  const auto put = [&](int first, int end, bool conjugate) {
    Move<E>(
        team, end - first, cols,
        [&](int k, int j) {
          const E diagonal = ring(first + k)[0];
          return Divisor<E>(conjugate ? Conj(diagonal) : diagonal).Divide(rows(first + k)[j]);
        },
        [&](int k, int j, E x) { store(first + k, j, x); });
  };
  for (int first = 0, loaded = 0; first < n; first += run) {
    const int end = first + run < n ? first + run : n;
    const int next = first + ring.columns < n ? first + ring.columns : n;
    take(first, end);
    take_rows(loaded, next, load);
    loaded = next;
    for (int k = first; k < end; ++k) {
      const E *const column = ring(k), *const row = rows(k);
      const int count = ring.Count(k, n);
      const Divisor<E> diagonal(column[0]);
      team.Phase([&](int thread) {
        for (int i = 1 + grid.Across(thread); i < count; i += grid.width) {
          for (int j = grid.Group(thread); j < cols; j += grid.groups) {
            E& other = rows(k + i)[j];
            other = NegMulAdd(column[i], diagonal.Divide(row[j]), other);
          }
        }
      });
    }
    put(first, end, false);
  }
  for (int end = n, loaded = n; end > 0; end -= run) {
    const int first = end > run ? end - run : 0;
    const int next = first > width - 1 ? first - (width - 1) : 0;
    take(next, loaded);
    take_rows(next, loaded, reload);
    loaded = next;
    for (int k = end - 1; k >= first; --k) {
      const E* const row = rows(k);
      const int count = width < k + 1 ? width : k + 1;
      const Divisor<E> diagonal(Conj(ring(k)[0]));
      team.Phase([&](int thread) {
        for (int i = 1 + grid.Across(thread); i < count; i += grid.width) {
          const E factor = Conj(ring(k - i)[i]);
          for (int j = grid.Group(thread); j < cols; j += grid.groups) {
            E& other = rows(k - i)[j];
            other = NegMulAdd(factor, diagonal.Divide(row[j]), other);
          }
        }
      });
    }
    put(first, end, true);
  }
}

}  // namespace linalg::team
