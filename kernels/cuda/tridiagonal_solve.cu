// Tridiagonal systems.
//
// Many or short ones: one per thread, by elimination with partial pivoting, laid out so that
// neighbouring threads read neighbouring words. Few long ones: by orthogonal reduction, level by
// level, each thread joining neighbouring runs of rows, until one run is left; and back. Rotations
// round zero pivots away: a system with one that may be such is solved again by elimination, for
// info. So is, to begin with, what is to have its pivots perturbed.
#include <cmath>
#include <vector>

#include "kernels/small/tridiagonal_runs.h"
#include "kernels/small/tridiagonal_solve.h"

#include "kernels/cuda/launch.h"
#include "kernels/handlers.h"

namespace linalg::cuda {
namespace {

// The elements of one of many systems that lie between each other.
template <class E>
struct Strided {
  E* data;
  int64_t stride;

  __device__ __forceinline__ E& operator[](int64_t i) const { return data[i * stride]; }
  __device__ __forceinline__ Strided operator+(int64_t i) const {
    return {data + i * stride, stride};
  }
};

template <class E>
struct SolveSystems {
  int n, cols;
  bool perturb;
  int64_t batch;
  E* matrices;  // three diagonals, and room for the second upper one
  E* x;
  int32_t* info;

  __device__ void operator()(int64_t i) const {
    const auto diagonal = [&](int k) { return Strided<E>{matrices + k * n * batch + i, batch}; };
    info[i] = static_cast<int32_t>(small::SolveTridiagonal<E, Strided<E>>(
        n, {diagonal(0), diagonal(1), diagonal(2), diagonal(3)}, perturb, cols,
        Strided<E>{x + i, batch}));
  }
};

template <class E>
struct TridiagonalProblem {
  int64_t batch, n, cols;
  const E* lower;
  const E* diagonal;
  const E* upper;
  const E* b;
  E* x;
  int32_t* info;
};

template <class T>
void SolveShort(cudaStream_t stream, Scratch& scratch, const TridiagonalProblem<T>& systems,
                bool perturb) {
  const int64_t batch = systems.batch, n = systems.n;
  T* const matrices = scratch.Take<T>(4 * n * batch);
  T* const work = scratch.Take<T>(n * systems.cols * batch);
  const T* const diagonals[] = {systems.lower, systems.diagonal, systems.upper};
  for (int64_t k = 0; k < 3; ++k) {
    Transpose(stream, 1, batch, n, diagonals[k], 0, matrices + k * n * batch, 0);
  }
  Transpose(stream, 1, batch, n * systems.cols, systems.b, 0, work, 0);
  ForEach(stream, batch,
          SolveSystems<Element<T>>{ToInt(n), ToInt(systems.cols), perturb, batch,
                                   AsElements(matrices), AsElements(work), systems.info});
  Transpose(stream, 1, n * systems.cols, batch, static_cast<const T*>(work), 0, systems.x, 0);
}

// Long systems of an even number of rows: an odd one has a row x = 0 behind it. The right-hand side
// of a row that a run is left with, or that stands at a seam, lies in x at the unknown's place that
// it will be solved for.
template <class E>
struct LongSystems : TridiagonalProblem<E> {
  using V = RealElement<E>;

  __device__ __forceinline__ int64_t Rows() const { return this->n + this->n % 2; }

  __device__ __forceinline__ E Lower(int64_t system, int64_t row) const {
    if (row == 0 || row >= this->n) return E{};
    return LoadGlobal(this->lower + system * this->n + row);
  }
  __device__ __forceinline__ E Diagonal(int64_t system, int64_t row) const {
    if (row >= this->n) return FromReal<E>(V(1));
    return LoadGlobal(this->diagonal + system * this->n + row);
  }
  __device__ __forceinline__ E Upper(int64_t system, int64_t row) const {
    if (row + 1 >= this->n) return E{};
    return LoadGlobal(this->upper + system * this->n + row);
  }

  __device__ __forceinline__ E X(int64_t system, int64_t row, int64_t column) const {
    if (row < 0 || row >= this->n) return E{};
    return LoadGlobal(this->x + (system * this->n + row) * this->cols + column);
  }
  __device__ __forceinline__ void SetX(int64_t system, int64_t row, int64_t column, E value) const {
    if (row < this->n) StoreGlobal(value, this->x + (system * this->n + row) * this->cols + column);
  }

  // Threads that find a system suspect write the same.
  __device__ __forceinline__ void CheckPivot(int64_t system, E pivot, V negligible) const {
    if (!(Magnitude(pivot) > negligible)) this->info[system] = 1;
  }
};

// Runs of rows, and the seams between those that a thread joins.
template <class E>
struct Level {
  using V = RealElement<E>;
  static constexpr int kEnds = 8, kSeam = 11;

  int64_t batch;
  int64_t rows;          // of a run
  int64_t runs, groups;  // of a system
  E* ends;               // of runs; null at the lowest level, whose runs are pairs of rows of A
  E* seams;              // before runs
  V negligible;          // pivots at them, of rows whose largest element is near 1

  int64_t Seams() const { return kTridiagonalRuns * batch * groups; }

  __device__ __forceinline__ E* Ends(int64_t system, int run) const {
    return ends + (system * runs + run) * kEnds;
  }
  // Numbers of a kind lie together, those at the same place in their groups beside each other.
  __device__ __forceinline__ Strided<E> Seam(int64_t system, int run) const {
    const int64_t place = (run % kTridiagonalRuns * batch + system) * groups;
    return {seams + place + run / kTridiagonalRuns, kTridiagonalRuns * batch * groups};
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

// What a thread works on: a right-hand side with a group of runs, of one system. Threads of other
// right-hand sides repeat the work on the runs, which is less than to hand rotations on.
template <class E>
struct Group {
  const LongSystems<E>& systems;
  const Level<E>& level;
  int64_t system;
  int column, index, first, end;

  __device__ __forceinline__ Group(const LongSystems<E>& systems, const Level<E>& level,
                                   int64_t place)
      : systems(systems), level(level), system(place / systems.cols / level.groups) {
    column = static_cast<int>(place % systems.cols);
    index = static_cast<int>(place / systems.cols % level.groups);
    first = index * kTridiagonalRuns;
    const int runs = static_cast<int>(level.runs);
    end = first + kTridiagonalRuns < runs ? first + kTridiagonalRuns : runs;
  }

  __device__ __forceinline__ int64_t FirstRow(int run) const { return run * level.rows; }
  __device__ __forceinline__ int64_t LastRow(int run) const {
    const int64_t behind = FirstRow(run + 1), rows = systems.Rows();
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
    small::Run<E> joined = group.template Load<kLowest>(group.first);
    for (int run = group.first + 1; run < group.end; ++run) {
      const auto store = [&](int k, const small::SeamRow<E>& seam) {
        group.SetX(group.FirstRow(run) - 1 + k, seam.ends.rhs);
        if (group.column != 0) return;
        const Strided<E> to = level.Seam(group.system, run);
        if (k == 0) {
          StoreGlobal(seam.left, &to[0]);
          StoreGlobal(seam.right, &to[1]);
          StoreEnds(seam.ends, to + 2);
          systems.CheckPivot(group.system, seam.left, level.negligible);
        } else {
          StoreGlobal(seam.right, &to[6]);
          StoreEnds(seam.ends, to + 7);
          systems.CheckPivot(group.system, seam.right, level.negligible);
        }
      };
      small::JoinRuns(joined, group.template Load<kLowest>(run), store);
    }
    group.SetX(group.FirstRow(group.first), joined.row[0].rhs);
    group.SetX(group.LastRow(group.end - 1), joined.row[1].rhs);
    if (group.column != 0) return;
    E* const to = above.Ends(group.system, group.index);
    StoreEnds(joined.row[0], to);
    StoreEnds(joined.row[1], to + 4);
  }
};

// The highest level, of one run.
template <class E>
struct SolveEnds {
  LongSystems<E> systems;
  Level<E> level;

  __device__ void operator()(int64_t place) const {
    const Group<E> group(systems, level, place);
    small::SeamRow<E> seam[2];
    small::CloseRun(group.template Load<false>(0), seam);
    E left, right;
    small::SolveSeam(seam, E{}, E{}, E{}, E{}, left, right);
    group.SetX(group.LastRow(0), left);
    group.SetX(0, right);
    systems.CheckPivot(group.system, seam[0].left, level.negligible);
    systems.CheckPivot(group.system, seam[1].right, level.negligible);
  }
};

template <class E>
struct SolveSeams {
  LongSystems<E> systems;
  Level<E> level;

  __device__ void operator()(int64_t place) const {
    const Group<E> group(systems, level, place);
    const int64_t first_row = group.FirstRow(group.first), last_row = group.LastRow(group.end - 1);
    const E before = group.X(first_row - 1), first = group.X(first_row);
    E last = group.X(last_row), behind = group.X(last_row + 1);
    for (int run = group.end - 1; run > group.first; --run) {
      const int64_t row = group.FirstRow(run);
      const Strided<E> from = level.Seam(group.system, run);
      const small::SeamRow<E> seam[2] = {
          {LoadGlobal(&from[0]), LoadGlobal(&from[1]), LoadEnds(from + 2, group.X(row - 1))},
          {E{}, LoadGlobal(&from[6]), LoadEnds(from + 7, group.X(row))}};
      E left, right;
      small::SolveSeam(seam, before, first, last, behind, left, right);
      group.SetX(row - 1, left);
      group.SetX(row, right);
      last = left;
      behind = right;
    }
  }
};

// Suspect systems by elimination.
template <class E>
struct SolveSuspects {
  LongSystems<E> systems;
  E* work;  // four diagonals each

  __device__ void operator()(int64_t i) const {
    if (systems.info[i] == 0) return;
    const int64_t n = systems.n, size = n * systems.cols;
    E* const a = work + 4 * i * n;
    E* const x = systems.x + i * size;
    for (int64_t k = 0; k < n; ++k) {
      a[k] = systems.Lower(i, k);
      a[n + k] = systems.Diagonal(i, k);
      a[2 * n + k] = systems.Upper(i, k);
    }
    for (int64_t k = 0; k < size; ++k) x[k] = systems.b[i * size + k];
    systems.info[i] = static_cast<int32_t>(
        small::SolveTridiagonal<E>(static_cast<int>(n), {a, a + n, a + 2 * n, a + 3 * n}, false,
                                   static_cast<int>(systems.cols), x));
  }
};

// Pivots of joined runs of so many rows that may stand for zero. Where the matrix is singular, its
// roundings add up to that with the weights of a null vector, at worst all of one sign.
template <class V>
V Negligible(int64_t rows, int64_t n) {
  const auto joined = static_cast<double>(std::min(rows * kTridiagonalRuns, n));
  return static_cast<V>(2 * std::sqrt(joined)) * std::numeric_limits<V>::epsilon();
}

template <class T>
void SolveLong(cudaStream_t stream, Scratch& scratch, const TridiagonalProblem<T>& problem) {
  using E = Element<T>;
  using V = Real<T>;
  const int64_t batch = problem.batch, n = problem.n, cols = problem.cols;
  const LongSystems<E> systems{{batch, n, cols, AsElements(problem.lower),
                                AsElements(problem.diagonal), AsElements(problem.upper),
                                AsElements(problem.b), AsElements(problem.x), problem.info}};
  Check(cudaMemcpyAsync(systems.x, systems.b, batch * n * cols * sizeof(E),
                        cudaMemcpyDeviceToDevice, stream),
        "cudaMemcpyAsync");
  Check(cudaMemsetAsync(systems.info, 0, batch * sizeof(int32_t), stream), "cudaMemsetAsync");
  std::vector<Level<E>> levels;
  for (int64_t rows = 2, runs = (n + 1) / 2;; rows *= kTridiagonalRuns) {
    const int64_t groups = (runs + kTridiagonalRuns - 1) / kTridiagonalRuns;
    Level<E> level{batch, rows, runs, groups, nullptr, nullptr, Negligible<V>(rows, n)};
    if (!levels.empty()) level.ends = AsElements(scratch.Take<T>(Level<E>::kEnds * batch * runs));
    if (runs > 1) level.seams = AsElements(scratch.Take<T>(Level<E>::kSeam * level.Seams()));
    levels.push_back(level);
    if (runs == 1) break;
    runs = groups;
  }
  static_assert(kLongTridiagonal > 2);  // so that there is a level above the lowest
  const auto count = [&](const Level<E>& level) { return batch * level.groups * cols; };
  ForEach(stream, count(levels[0]), ReduceLevel<E, true>{systems, levels[0], levels[1]});
  for (size_t k = 1; k + 1 < levels.size(); ++k) {
    ForEach(stream, count(levels[k]), ReduceLevel<E, false>{systems, levels[k], levels[k + 1]});
  }
  ForEach(stream, count(levels.back()), SolveEnds<E>{systems, levels.back()});
  for (size_t k = levels.size() - 1; k-- > 0;) {
    ForEach(stream, count(levels[k]), SolveSeams<E>{systems, levels[k]});
  }
  // The lowest level's seams are no longer needed, and are more than four diagonals.
  ForEach(stream, batch, SolveSuspects<E>{systems, levels[0].seams});
}

void TridiagonalSolve(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer dl,
                      ffi::AnyBuffer d, ffi::AnyBuffer du, ffi::AnyBuffer b,
                      ffi::Result<ffi::AnyBuffer> x, ffi::Result<ffi::AnyBuffer> info,
                      bool perturb_singular) {
  const BatchShape shape = SplitBatch(b, 2, "b");
  const int64_t batch = shape.batch, n = shape.rows, cols = shape.cols;
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const TridiagonalProblem<T> systems{batch,
                                        n,
                                        cols,
                                        Elements<T>(dl, batch, {n}, "dl"),
                                        Elements<T>(d, batch, {n}, "d"),
                                        Elements<T>(du, batch, {n}, "du"),
                                        Elements<T>(b, batch, {n, cols}, "b"),
                                        Elements<T>(x, batch, {n, cols}, "x"),
                                        Elements<int32_t>(info, batch, {}, "info")};
    if (batch == 0) return;
    ToInt(n * cols);
    Scratch scratch(allocator);
    const bool is_long = n >= kLongTridiagonal && batch <= kFewTridiagonal && cols > 0;
    if (is_long && !perturb_singular) {
      SolveLong(stream, scratch, systems);
    } else {
      SolveShort(stream, scratch, systems, perturb_singular);
    }
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_tridiagonal_solve, linalg::cuda::TridiagonalSolve);
