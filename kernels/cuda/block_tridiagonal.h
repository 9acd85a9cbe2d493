// Parts of the kernels for block-tridiagonal systems.
//
// A thread works on a system of tiny blocks, a team of at most a warp on one of larger blocks. Both
// stream over the steps, so that their shared memory holds a few blocks whatever the number of
// steps. Only the order of the steps decides the bits: neither the batch nor the launch does.
#pragma once

#include "kernels/arithmetic/scaled_product.h"
#include "kernels/block_tridiagonal_shape.h"
#include "kernels/cuda/launch.h"
#include "kernels/small/solve.h"
#include "kernels/team/team.h"

namespace linalg::cuda {

template <class E>
GpuPath BlockTridiagonalPath(int64_t d) {
  return d * d * static_cast<int64_t>(sizeof(E)) <= kThreadBlockTridiagonalBytes ? GpuPath::kThread
                                                                                 : GpuPath::kTeam;
}

// Systems without elements have no steps.
inline BlockTridiagonalShape WithoutEmptySteps(BlockTridiagonalShape shape) {
  if (shape.d == 0) shape.steps = 0;
  ToInt(shape.block());
  return shape;
}

// Threads of a team for blocks of order d.
inline int BlockTeamSize(int64_t d) { return std::min(TeamSize(d), 32); }

// The right-hand sides of a batch of systems, in units of `width` neighbouring columns.
class ColumnUnits {
 public:
  ColumnUnits(int64_t batch, int64_t cols, int64_t most)
      : cols(cols),
        width(ToInt(std::min(cols, most))),
        count(batch * ((cols + width - 1) / width)),
        by_system_((cols + width - 1) / width) {}

  int64_t cols;
  int width;
  int64_t count;

  struct Position {
    int64_t system, col;  // the first column
    int left;             // columns, fewer than `width` in the last unit of a system
  };
  __device__ __forceinline__ Position operator()(int64_t unit) const {
    const int64_t system = by_system_(unit), col = (unit - system * by_system_.divisor()) * width;
    return {system, col, cols - col < width ? static_cast<int>(cols - col) : width};
  }

 private:
  LongDivider by_system_;
};

// The steps of each system: all of them, or chunks of neighbouring ones.
class StepRanges {
 public:
  explicit StepRanges(int64_t steps) : StepRanges(steps, std::max<int64_t>(steps, 1)) {}
  StepRanges(int64_t steps, int64_t width)
      : steps(steps),
        width(width),
        count(std::max<int64_t>((steps + width - 1) / width, 1)),
        by_count_(count) {
    ToInt(steps);
  }

  int64_t steps, width;
  int64_t count;  // of each system

  struct Range {
    int64_t system;
    int chunk, first, end;
  };
  __device__ __forceinline__ Range operator()(int64_t place) const {
    const int64_t system = by_count_(place);
    const int chunk = static_cast<int>(place - system * count);
    const int64_t first = chunk * width, end = first + width < steps ? first + width : steps;
    return {system, chunk, static_cast<int>(first), static_cast<int>(end)};
  }

 private:
  LongDivider by_count_;
};

// Neighbouring rows of each system that a block of threads works on, in an array of each slice.
// Neighbouring threads move neighbouring elements of a row.
template <class E>
class RowsOfRun {
 public:
  RowsOfRun(SharedLayout& layout, int64_t rows, int64_t width)
      : offset_(layout.Take<E>(rows * width)),
        size_(static_cast<unsigned>(rows * width)),
        width_(static_cast<unsigned>(width)),
        by_size_(size_),
        by_width_(width_) {}

  __device__ __forceinline__ E* In(char* slice) const { return offset_.In(slice); }

  // Starts to copy the rows [first, end). at(i, row, col) is the place of an element of the i-th
  // of the batch, or null for a zero.
  template <class At>
  __device__ __forceinline__ void Load(const Block& block, int64_t first, int64_t end,
                                       At&& at) const {
    ForEach(block, first, end, [&](int64_t i, int64_t row, unsigned col, E* here) {
      const E* const source = at(i, row, col);
      if (source != nullptr) {
        CopyGlobal(source, here);
      } else {
        *here = E{};
      }
    });
  }

  template <class At>
  __device__ __forceinline__ void Store(const Block& block, int64_t first, int64_t end,
                                        At&& at) const {
    ForEach(block, first, end, [&](int64_t i, int64_t row, unsigned col, const E* here) {
      E* const target = at(i, row, col);
      if (target != nullptr) StoreGlobal<E>(*here, target);
    });
  }

 private:
  template <class Body>
  __device__ __forceinline__ void ForEach(const Block& block, int64_t first, int64_t end,
                                          Body&& body) const {
    const unsigned count = static_cast<unsigned>(block.count) * size_;
    for (unsigned e = threadIdx.x; e < count; e += blockDim.x) {
      const unsigned matrix = by_size_(e), place = e - matrix * size_, row = by_width_(place);
      if (first + row >= end) continue;
      body(block.first + matrix, first + row, place - row * width_,
           In(block.Slice(matrix)) + place);
    }
  }

  Offset<E> offset_;
  unsigned size_, width_;
  Divider by_size_, by_width_;
};

// The stacks of blocks of a batch: `count` contiguous blocks for each system, or for all systems.
template <class E>
struct Blocks {
  E* data;
  int64_t stride;  // 0 if all systems share them
  int size;        // elements of a block

  __device__ __forceinline__ E* At(int64_t system, int64_t step) const {
    return data + system * stride + step * size;
  }

  // The places of elements, as RowsOfRun asks for them, of systems or of units of their columns.
  __device__ __forceinline__ auto Places() const {
    return [this](int64_t i, int64_t t, unsigned k) { return At(i, t) + k; };
  }
  __device__ __forceinline__ auto Places(const ColumnUnits& units) const {
    return [this, &units](int64_t unit, int64_t t, unsigned k) {
      return At(units(unit).system, t) + k;
    };
  }
};

template <class T>
auto BlocksOf(T* data, int64_t count, int64_t size, bool shared = false) {
  auto* const elements = AsElements(data);
  return Blocks<std::remove_pointer_t<decltype(elements)>>{elements, shared ? 0 : count * size,
                                                           ToInt(size)};
}

// Right-hand sides or solutions: `rows` rows of each system.
template <class E>
struct Columns {
  E* data;
  int64_t rows, cols;

  __device__ __forceinline__ int64_t Place(int64_t system, int64_t row, int64_t col) const {
    return (system * rows + row) * cols + col;
  }

  // The places of the elements of units, or null beyond the last column.
  __device__ __forceinline__ auto Places(const ColumnUnits& units) const {
    return [this, &units](int64_t unit, int64_t row, unsigned col) {
      const auto [system, first_col, left] = units(unit);
      return static_cast<int>(col) < left ? data + Place(system, row, first_col + col) : nullptr;
    };
  }
};

// The first block of a factorisation that failed.
struct FirstFailure {
  int64_t step = 0;
  int row = 0;

  // `failed` is the 1-based row in block t, or a negative info; 0 if there is none.
  __device__ __forceinline__ void Add(int64_t t, int failed) {
    if (row != 0 || failed == 0) return;
    row = failed;
    step = t;
  }

  __device__ __forceinline__ int32_t Info(int64_t d) const {
    return row > 0 ? static_cast<int32_t>(step * d + row) : row;
  }
};

// A thread's share of NaN for `count` elements.
template <class E>
__device__ __forceinline__ void StoreNaN(int thread, int threads, int64_t count, E* target) {
  for (int64_t k = thread; k < count; k += threads) StoreGlobal<E>(NaN<E>(), target + k);
}

// A thread as a team of its own, which needs no barrier.
struct OneThread {
  __device__ __forceinline__ static constexpr int size() { return 1; }

  template <class Body>
  __device__ __forceinline__ void Phase(Body&& body) const {
    body(0);
  }
};

// c (rows, cols) -= a b, or aᴴ b if kAdjoint. Products are summed separately.
template <bool kAdjoint = false, class Team, class E>
__device__ __forceinline__ void SubtractProduct(const Team& team, int rows, int cols, int depth,
                                                const E* a, int lda, const E* b, int ldb, E* c,
                                                int ldc) {
  const team::Grid grid = team::RowGrid(team);
  team.Phase([&](int thread) {
    team::ForEachElement(grid, team::Again(thread), 0, rows, 0, cols, [&](int i, int j) {
      E sum{};
      for (int k = 0; k < depth; ++k) {
        const E left = kAdjoint ? Conj(a[k * lda + i]) : a[i * lda + k];
        sum = NegMulAdd(left, b[k * ldb + j], sum);
      }
      c[i * ldc + j] = c[i * ldc + j] + sum;
    });
  });
}

// A team's sweeps over steps of a system for some of its right-hand sides, which are `cols` columns
// in memory. The team has `width` of them from `col` on, in rows that are `ld` apart.
struct ColumnSweep {
  StepRanges::Range range;
  int64_t steps, cols, col;
  int n, width, ld;

  // solve(t, y, neighbour) solves step t for the right-hand sides y, given the solution of the step
  // before it in the sweep. It returns the one of both arrays that has the solution then. Without
  // a source the right-hand sides are zero, and without a target no solution is stored. Returns the
  // array of the last solution.
  template <class E, class Solve>
  __device__ __forceinline__ E* Run(const Team& team, bool back, const E* source, E* target, E* y,
                                    E* neighbour, Solve&& solve) const {
    const int64_t pitch = cols;
    const int ldy = ld;
    for (int done = range.first; done < range.end; ++done) {
      const int64_t t = back ? range.first + (range.end - 1 - done) : done;
      const int64_t place = (range.system * steps + t) * n * cols + col;
      team::Move<E>(
          team, n, width,
          [=](int row, int j) {
            return source == nullptr ? E{} : LoadGlobal(source + place + row * pitch + j);
          },
          [=](int row, int j, E x) { y[row * ldy + j] = x; });
      E* const solved = solve(t, y, neighbour);
      if (target != nullptr) {
        E* const to = target + place;
        team::Move<E>(
            team, n, width, [=](int row, int j) { return solved[row * ldy + j]; },
            [=](int row, int j, E x) { StoreGlobal<E>(x, to + row * pitch + j); });
      }
      if (solved == y) {
        y = neighbour;
        neighbour = solved;
      }
    }
    return neighbour;
  }
};

// Launches a thread or a team for each of `count` units of a problem.
template <class ThreadJob, class TeamJob, class Problem>
void LaunchUnits(cudaStream_t stream, GpuPath path, int64_t count, int64_t unit,
                 const Problem& problem) {
  LaunchOnPath(path,
               On{GpuPath::kThread,
                  [&] {
                    SharedLayout layout(unit);
                    const ThreadJob job(layout, problem);
                    LaunchThreads(stream, job, count, layout);
                  }},
               On{GpuPath::kTeam, [&] {
                    SharedLayout layout(unit);
                    const TeamJob job(layout, problem);
                    LaunchTeams(stream, job, count, BlockTeamSize(problem.shape.d), layout);
                  }});
}

}  // namespace linalg::cuda
