// Long tridiagonal systems by many threads, level by level, in global memory.
//
// A thread joins neighbouring runs of rows into one at each level
// (kernels/small/tridiagonal_runs.h), until one run is left. Then the levels are solved back, to
// the unknowns at the interfaces.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cuda/job.h"
#include "kernels/small/tridiagonal_runs.h"
#include "kernels/small/tridiagonal_solve.h"
#include "kernels/systems.h"

namespace linalg::cuda {

// Long systems with an even number of rows. A system with an odd number gets a row x = 0 at its
// end. Rows that are left in a run or at an interface have their right-hand side in x, at the place
// of their unknown.
template <class E>
struct LongSystems {
  using V = RealElement<E>;
  TridiagonalSystems<E> problem;
  bool perturb;  // whether pivots are raised to eps, which is that of the scaled rows

  __device__ __forceinline__ int64_t EvenRows() const { return problem.n + problem.n % 2; }

  __device__ __forceinline__ E Lower(int64_t system, int64_t row) const {
    if (row == 0 || row >= problem.n) return E{};
    return LoadGlobal(problem.lower + system * problem.n + row);
  }
  __device__ __forceinline__ E Diagonal(int64_t system, int64_t row) const {
    if (row >= problem.n) return FromReal<E>(V(1));
    return LoadGlobal(problem.diagonal + system * problem.n + row);
  }
  __device__ __forceinline__ E Upper(int64_t system, int64_t row) const {
    if (row + 1 >= problem.n) return E{};
    return LoadGlobal(problem.upper + system * problem.n + row);
  }

  __device__ __forceinline__ E X(int64_t system, int64_t row, int64_t column) const {
    if (row < 0 || row >= problem.n) return E{};
    return LoadGlobal(problem.x + (system * problem.n + row) * problem.cols + column);
  }
  __device__ __forceinline__ void SetX(int64_t system, int64_t row, int64_t column, E value) const {
    if (row < problem.n)
      StoreGlobal(value, problem.x + (system * problem.n + row) * problem.cols + column);
  }

  // Several threads may mark a system as suspect. They write the same value.
  __device__ __forceinline__ void CheckPivot(int64_t system, E pivot, V negligible) const {
    if (perturb ? IsNaN(pivot) : !(Magnitude(pivot) > negligible)) problem.info[system] = 1;
  }

  // A row of zeros has no scale, so a perturbed pivot of it takes that of the matrix.
  __device__ __forceinline__ void CheckRow(int64_t system, const small::EndRow<E>& row) const {
    if (!perturb) return;
    const bool is_zero = Magnitude(row.before) == V(0) && Magnitude(row.first) == V(0) &&
                         Magnitude(row.last) == V(0) && Magnitude(row.behind) == V(0);
    if (is_zero) problem.info[system] = 1;
  }

  __device__ __forceinline__ E Raised(E pivot) const {
    const V least = std::numeric_limits<V>::epsilon();
    if (!perturb || !(Magnitude(pivot) < least)) return pivot;
    return FromReal<E>(Re(pivot) < V(0) ? -least : least);
  }
};

// Runs of rows, and the interfaces between those that a thread joins.
template <class E>
struct Level {
  using V = RealElement<E>;
  static constexpr int kEnds = 8, kInterface = 11;

  int64_t batch;
  int64_t rows;          // of a run
  int64_t runs, groups;  // of a system
  E* ends;               // of runs; null at the lowest level, whose runs are pairs of rows of A
  E* interfaces;         // before runs
  V negligible;          // pivots at them, of rows whose largest element is near 1

  int64_t Interfaces() const { return kTridiagonalRuns * batch * groups; }

  __device__ __forceinline__ E* Ends(int64_t system, int run) const {
    return ends + (system * runs + run) * kEnds;
  }
  // Numbers of a kind are contiguous, and so are those at the same position in their groups.
  __device__ __forceinline__ StridedVector<E> Interface(int64_t system, int run) const {
    const int64_t place = (run % kTridiagonalRuns * batch + system) * groups;
    return {interfaces + place + run / kTridiagonalRuns, kTridiagonalRuns * batch * groups};
  }
};

template <class E, class Pointer>
__device__ __forceinline__ small::EndRow<E> LoadEnds(Pointer from, E rhs) {
  return {LoadGlobal(&from[0]), LoadGlobal(&from[1]), LoadGlobal(&from[2]), LoadGlobal(&from[3]),
          rhs};
}
template <class E, class Pointer>
__device__ __forceinline__ void StoreEnds(const small::EndRow<E>& row, Pointer to) {
  StoreGlobal(row.before, &to[0]);
  StoreGlobal(row.first, &to[1]);
  StoreGlobal(row.last, &to[2]);
  StoreGlobal(row.behind, &to[3]);
}

// The two rows of an interface, in 11 numbers. The first row's last number takes the slot of the
// second row's `left`, which is zero.
template <class E>
__device__ __forceinline__ small::InterfaceRow<E> LoadInterface(int k, StridedVector<E> from,
                                                                E rhs) {
  const StridedVector<E> row = from + 5 * k;
  const E left = k == 0 ? LoadGlobal(&row[0]) : E{};
  return {left, LoadGlobal(&row[1]), LoadEnds(row + 2, rhs)};
}
template <class E>
__device__ __forceinline__ void StoreInterface(int k, const small::InterfaceRow<E>& interface,
                                               StridedVector<E> to) {
  const StridedVector<E> row = to + 5 * k;
  if (k == 0) StoreGlobal(interface.left, &row[0]);
  StoreGlobal(interface.right, &row[1]);
  StoreEnds(interface.ends, row + 2);
}

// A thread's work: one right-hand side with a group of runs of one system. Threads of other
// right-hand sides repeat the work on the runs, which costs less than passing rotations on.
template <class E>
struct Group {
  const LongSystems<E>& systems;
  const Level<E>& level;
  int64_t system;
  int column, index, first, end;

  __device__ __forceinline__ Group(const LongSystems<E>& systems, const Level<E>& level,
                                   int64_t place)
      : systems(systems), level(level), system(place / systems.problem.cols / level.groups) {
    column = static_cast<int>(place % systems.problem.cols);
    index = static_cast<int>(place / systems.problem.cols % level.groups);
    first = index * kTridiagonalRuns;
    const int runs = static_cast<int>(level.runs);
    end = first + kTridiagonalRuns < runs ? first + kTridiagonalRuns : runs;
  }

  __device__ __forceinline__ int64_t FirstRow(int run) const { return run * level.rows; }
  __device__ __forceinline__ int64_t LastRow(int run) const {
    const int64_t behind = FirstRow(run + 1), rows = systems.EvenRows();
    return (behind < rows ? behind : rows) - 1;
  }
  __device__ __forceinline__ E X(int64_t row) const { return systems.X(system, row, column); }
  __device__ __forceinline__ void SetX(int64_t row, E value) const {
    systems.SetX(system, row, column, value);
  }

  template <bool kLowest>
  __device__ __forceinline__ small::Run<E> Load(int run) const {
    const int64_t first_row = FirstRow(run), last_row = LastRow(run);
    const E first_rhs = X(first_row), last_rhs = X(last_row);
    if constexpr (kLowest) {
      return {{small::Equilibrate<E>({systems.Lower(system, first_row),
                                      systems.Diagonal(system, first_row),
                                      systems.Upper(system, first_row), E{}, first_rhs}),
               small::Equilibrate<E>({E{}, systems.Lower(system, last_row),
                                      systems.Diagonal(system, last_row),
                                      systems.Upper(system, last_row), last_rhs})}};
    } else {
      const E* const from = level.Ends(system, run);
      return {{LoadEnds(from, first_rhs), LoadEnds(from + 4, last_rhs)}};
    }
  }
};

template <class E, bool kLowest>
struct ReduceLevel {
  LongSystems<E> systems;
  Level<E> level, above;

  __device__ void operator()(int64_t place) const {
    const Group<E> group(systems, level, place);
    const auto load = [&](int run) {
      const small::Run<E> loaded = group.template Load<kLowest>(run);
      if constexpr (kLowest) {
        systems.CheckRow(group.system, loaded.row[0]);
        systems.CheckRow(group.system, loaded.row[1]);
      }
      return loaded;
    };
    small::Run<E> joined = load(group.first);
    for (int run = group.first + 1; run < group.end; ++run) {
      const auto store = [&](int k, small::InterfaceRow<E> interface) {
        group.SetX(group.FirstRow(run) - 1 + k, interface.ends.rhs);
        if (group.column != 0) return;
        E& pivot = k == 0 ? interface.left : interface.right;
        systems.CheckPivot(group.system, pivot, level.negligible);
        pivot = systems.Raised(pivot);
        StoreInterface(k, interface, level.Interface(group.system, run));
      };
      small::JoinRuns(joined, load(run), store);
    }
    group.SetX(group.FirstRow(group.first), joined.row[0].rhs);
    group.SetX(group.LastRow(group.end - 1), joined.row[1].rhs);
    if (group.column != 0) return;
    E* const to = above.Ends(group.system, group.index);
    StoreEnds(joined.row[0], to);
    StoreEnds(joined.row[1], to + 4);
  }
};

// The highest level, which has one run.
template <class E>
struct SolveEnds {
  LongSystems<E> systems;
  Level<E> level;

  __device__ void operator()(int64_t place) const {
    const Group<E> group(systems, level, place);
    small::InterfaceRow<E> interface[2];
    small::CloseRun(group.template Load<false>(0), interface);
    for (E* const pivot : {&interface[0].left, &interface[1].right}) {
      systems.CheckPivot(group.system, *pivot, level.negligible);
      *pivot = systems.Raised(*pivot);
    }
    E left, right;
    small::SolveInterface(interface, E{}, E{}, E{}, E{}, left, right);
    group.SetX(group.LastRow(0), left);
    group.SetX(0, right);
  }
};

template <class E>
struct SolveInterfaces {
  LongSystems<E> systems;
  Level<E> level;

  __device__ void operator()(int64_t place) const {
    const Group<E> group(systems, level, place);
    const int64_t first_row = group.FirstRow(group.first), last_row = group.LastRow(group.end - 1);
    const E before = group.X(first_row - 1), first = group.X(first_row);
    E last = group.X(last_row), behind = group.X(last_row + 1);
    for (int run = group.end - 1; run > group.first; --run) {
      const int64_t row = group.FirstRow(run);
      const StridedVector<E> from = level.Interface(group.system, run);
      const small::InterfaceRow<E> interface[2] = {LoadInterface(0, from, group.X(row - 1)),
                                                   LoadInterface(1, from, group.X(row))};
      E left, right;
      small::SolveInterface(interface, before, first, last, behind, left, right);
      group.SetX(row - 1, left);
      group.SetX(row, right);
      last = left;
      behind = right;
    }
  }
};

// Solves suspect systems by elimination.
template <class E>
struct SolveSuspects {
  LongSystems<E> systems;
  E* work;  // four diagonals each

  __device__ void operator()(int64_t i) const {
    const TridiagonalSystems<E>& problem = systems.problem;
    if (problem.info[i] == 0) return;
    const int64_t n = problem.n, size = n * problem.cols;
    E* const a = work + 4 * i * n;
    E* const x = problem.x + i * size;
    for (int64_t k = 0; k < n; ++k) {
      a[k] = systems.Lower(i, k);
      a[n + k] = systems.Diagonal(i, k);
      a[2 * n + k] = systems.Upper(i, k);
    }
    for (int64_t k = 0; k < size; ++k) x[k] = problem.b[i * size + k];
    problem.info[i] = static_cast<int32_t>(
        small::SolveTridiagonal<E>(static_cast<int>(n), {a, a + n, a + 2 * n, a + 3 * n},
                                   systems.perturb, static_cast<int>(problem.cols), x));
  }
};

// The size of pivots that may stand for zero, in joined runs of so many rows. In a singular matrix
// such a pivot is a sum of rounding errors, weighted by a null vector. At worst all of them have
// the same sign.
template <class V>
V Negligible(int64_t rows, int64_t n) {
  const auto joined = static_cast<double>(std::min(rows * kTridiagonalRuns, n));
  return static_cast<V>(2 * std::sqrt(joined)) * std::numeric_limits<V>::epsilon();
}

}  // namespace linalg::cuda
