// Algorithms for one matrix by several threads, written in phases.
//
// A Team is a number of threads that share memory:
//
//   int size() const                their number: a power of two, or a multiple of 32
//   void Phase(body) const          body(thread) on each of them, then a barrier
//   V Sum<V>(body) const            the sum of body(thread), in the same order on every team
//   Candidate<V> Best(body) const   the best of body(thread)
//   bool Any(body) const            whether body(thread) holds anywhere
//
// Sum, Best and Any are barriers too. Between two phases every thread computes the same, from
// memory that the next phase does not write. Within a phase no thread reads what another one
// writes. So the threads may run in any order, even one after another. Tests do so on the CPU, and
// run them at the same time to find races. In CUDA a team is a part of a warp, a warp or a block
// (kernels/cuda/team.h).
//
// Matrices are row-major, rows `ld` apart. An odd `ld` spreads a column over the banks of shared
// memory. Elements and their arithmetic are those of kernels/arithmetic, in the same order for each
// element of a factor. So a matrix has the same factors there and here.
#pragma once

#include "kernels/arithmetic/element.h"

#if defined(__CUDACC__)
#define LINALG_TEAM __device__ __forceinline__
// Unroll loops over arrays that must stay in registers, fully or so many times.
#define LINALG_UNROLL _Pragma("unroll")
#define LINALG_PRAGMA(text) _Pragma(#text)
#define LINALG_UNROLL_BY(times) LINALG_PRAGMA(unroll times)
#else
#define LINALG_TEAM inline
#define LINALG_UNROLL
#define LINALG_UNROLL_BY(times)
#endif

namespace linalg::team {

// Returns x, but hides that from the compiler. Values computed from it are computed again where
// they are needed, rather than kept in registers.
LINALG_INLINE int Again(int x) {
#if defined(__CUDA_ARCH__)
  asm("" : "+r"(x));
#endif
  return x;
}

// A value and its index. The larger value is better. Among equal values, the one of the lower index
// is better.
template <class V>
struct Candidate {
  V value;
  int index;

  LINALG_INLINE Candidate Better(Candidate other) const {
    const bool is_other = other.value > value || (other.value == value && other.index < index);
    return is_other ? other : *this;
  }
};

// Whether x of index i comes before y of index j in ascending order. Equal numbers are in the order
// of their indices, and NaN comes last. So the places of any numbers are a permutation.
template <class V>
LINALG_INLINE bool ComesBefore(V x, int i, V y, int j) {
  const bool x_is_nan = IsNaN(x), y_is_nan = IsNaN(y);
  return x < y || (y_is_nan && !x_is_nan) || ((x == y || (x_is_nan && y_is_nan)) && i < j);
}

// The result of an algorithm in `a`, element by element, and its info: NaN where that is not 0.
template <class E>
struct Outcome {
  const E* a;
  int ld;
  int info;

  LINALG_INLINE E operator()(int i, int j) const { return info != 0 ? NaN<E>() : a[i * ld + j]; }
};

// A team as a grid: `width` threads take neighbouring rows, or columns, of a matrix, and `groups`
// of them take turns in the other direction.
struct Grid {
  int width;  // 1 << shift
  int shift;
  int groups;

  LINALG_INLINE Grid(int team_size, int wanted) : width(1), shift(0) {
    while (width < wanted && width < team_size) width *= 2, ++shift;
    groups = team_size >> shift;
  }

  LINALG_INLINE int Across(int thread) const { return thread & (width - 1); }
  LINALG_INLINE int Group(int thread) const { return thread >> shift; }
};

// Threads that share a column take the rows of a matrix.
template <class Team>
LINALG_TEAM Grid RowGrid(const Team& team) {
  return Grid(team.size(), 32);
}

// body(i, j) for the elements of rows [first_row, rows) and columns [first_col, cols).
template <class Body>
LINALG_TEAM void ForEachElement(Grid grid, int thread, int first_row, int rows, int first_col,
                                int cols, Body&& body) {
  for (int i = first_row + grid.Across(thread); i < rows; i += grid.width) {
    for (int j = first_col + grid.Group(thread); j < cols; j += grid.groups) body(i, j);
  }
}

// put(i, j, get(i, j)) for the elements of a matrix. Neighbouring threads take neighbouring
// columns. A thread gets 32 bytes of several rows before it puts the first, so it waits for memory
// once. Past the last row, it moves its first one again, which needs no condition.
template <class E, class Team, class Get, class Put>
LINALG_TEAM void Move(const Team& team, int rows, int cols, Get&& get, Put&& put) {
  constexpr int kRows = 32 / sizeof(E);
  // Half a warp, where a warp would be half idle at the end of a row.
  const Grid grid(team.size(), (cols - 1) % 32 < 16 && cols > 16 ? 16 : cols < 32 ? cols : 32);
  team.Phase([&](int thread) {
    for (int first = grid.Group(Again(thread)); first < rows; first += kRows * grid.groups) {
      int row[kRows];
      LINALG_UNROLL
      for (int k = 0; k < kRows; ++k) {
        const int i = first + k * grid.groups;
        row[k] = i < rows ? i : first;
      }
      for (int j = grid.Across(thread); j < cols; j += grid.width) {
        E x[kRows];
        LINALG_UNROLL
        for (int k = 0; k < kRows; ++k) x[k] = get(row[k], j);
        LINALG_UNROLL
        for (int k = 0; k < kRows; ++k) put(row[k], j, x[k]);
      }
    }
  });
}

// Whether any element is NaN.
template <class Team, class E>
LINALG_TEAM bool HasNaN(const Team& team, int rows, int cols, const E* a, int ld) {
  const Grid grid = RowGrid(team);
  return team.Any([&](int thread) {
    bool found = false;
    ForEachElement(grid, Again(thread), 0, rows, 0, cols,
                   [&](int i, int j) { found |= IsNaN(a[i * ld + j]); });
    return found;
  });
}

}  // namespace linalg::team
