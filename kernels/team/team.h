// Algorithms for one matrix by several threads, written in phases.
//
// A Team is a number of threads that share memory:
//
//   int size() const                what they are: a power of two, or a multiple of 32
//   void Phase(body) const          body(thread) on each of them, then a barrier
//   V Sum<V>(body) const            the sum of body(thread), in the same order on every team
//   Candidate<V> Best(body) const     the best of body(thread)
//   bool Any(body) const            whether body(thread) holds anywhere
//
// Sums and the like are barriers too. What stands between two phases is computed by every thread
// alike, from memory that the next phase does not write. Within a phase no thread reads what
// another one writes, so that the threads may run in any order, one after another too: tests do so
// on the CPU, and at the same time to find races. In CUDA a team is a part of a warp, a warp or a
// block (kernels/cuda/team.h).
//
// Matrices are row-major, rows `ld` apart; an odd `ld` spreads a column over the banks of shared
// memory. Elements and their arithmetic are those of kernels/arithmetic, in the same order for each
// element of a factor, so that a matrix has the same factors as there.
#pragma once

#include "kernels/arithmetic/element.h"

#if defined(__CUDACC__)
#define LINALG_TEAM __device__ __forceinline__
// Before loops over arrays that are to stay in registers; and before others, so many times.
#define LINALG_UNROLL _Pragma("unroll")
#define LINALG_PRAGMA(text) _Pragma(#text)
#define LINALG_UNROLL_BY(times) LINALG_PRAGMA(unroll times)
#else
#define LINALG_TEAM inline
#define LINALG_UNROLL
#define LINALG_UNROLL_BY(times)
#endif

namespace linalg::team {

// The same number, which the compiler cannot know to be the same: what is computed from it is
// computed again where it is needed next, rather than kept in registers until then.
LINALG_INLINE int Again(int x) {
#if defined(__CUDA_ARCH__)
  asm("" : "+r"(x));
#endif
  return x;
}

// A place and how much speaks for it; the better of two, the first if they are alike.
template <class V>
struct Candidate {
  V value;
  int index;

  LINALG_INLINE Candidate Better(Candidate other) const {
    const bool is_other = other.value > value || (other.value == value && other.index < index);
    return is_other ? other : *this;
  }
};

// What an algorithm has left in `a`, element by element, and its info: NaN where that is not 0.
template <class E>
struct Outcome {
  const E* a;
  int ld;
  int info;

  LINALG_INLINE E operator()(int i, int j) const { return info != 0 ? NaN<E>() : a[i * ld + j]; }
};

// A team as rows of `width` threads that take neighbouring rows, or columns, of a matrix, and
// `groups` such rows of threads that take turns in the other direction.
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

// put(i, j, get(i, j)) for the elements of a matrix: neighbouring threads take neighbouring
// columns, and a thread gets 32 bytes of several rows before it puts the first, so that it waits
// for memory once. Where it has not so many rows, it moves its first one again: that takes no
// condition.
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

// Whether a NaN stands anywhere in the matrix.
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
