// General block-tridiagonal systems: block elimination with pivoting inside the diagonal blocks.
//
// The first launch factors: each step leaves the LU factors of the eliminated diagonal block D, and
// G = D⁻¹ U with the block U on its right. The second launch sweeps forward and back over the
// right-hand sides. Long systems do both in chunks: kernels/cuda/block_tridiagonal_chunks.h.
#include "kernels/cuda/block_tridiagonal_solve.h"

#include "kernels/handlers.h"
#include "kernels/team/solve.h"

namespace linalg::cuda {
namespace {

using Shape = BlockTridiagonalShape;

template <class E>
struct Elimination {
  Shape shape;
  StepRanges ranges;
  Blocks<const E> lower, diagonal, upper;
  Blocks<E> factors, right;  // LU, and G
  // Rows that threads exchange, as numbers, or the order of rows that teams find.
  Blocks<RealElement<E>> pivots;
  Blocks<int32_t> permutations;
  int32_t* info;
  // In chunks: the equations A x + B y = 0 before each, and the systems that have a pivot near
  // rounding, which are marked. Such systems are solved again, without chunks.
  Blocks<const E> joined;
  int32_t* suspects;

  __device__ __forceinline__ bool InChunks() const { return ranges.count > 1; }
  __device__ __forceinline__ bool Skips(int64_t system) const {
    return !InChunks() && suspects != nullptr && suspects[system] == 0;
  }
};

// The largest magnitude in a block, where NaN is none.
template <class E>
__device__ __forceinline__ RealElement<E> Largest(const Team& team, int n, const E* a, int ld) {
  using V = RealElement<E>;
  const team::Grid grid = team::RowGrid(team);
  return team
      .Best<V>([&](int thread) {
        V largest{};
        team::ForEachElement(grid, team::Again(thread), 0, n, 0, n, [&](int row, int j) {
          const V size = Magnitude(a[row * ld + j]);
          largest = size > largest ? size : largest;
        });
        return team::Candidate<V>{largest, 0};
      })
      .value;
}

template <class E>
struct ThreadEliminate {
  using V = RealElement<E>;
  Elimination<E> problem;
  int64_t run;
  RowsOfRun<E> lowers, diagonals, uppers;
  RowsOfRun<V> pivots;
  Offset<E> before;  // G of the step before a run
  Offset<V> permutation;

  ThreadEliminate(SharedLayout& layout, const Elimination<E>& problem)
      : problem(problem),
        run(BlocksOfRun(problem.shape.d)),
        lowers(layout, run, problem.shape.block()),
        diagonals(layout, run, problem.shape.block()),
        uppers(layout, run, problem.shape.block()),
        pivots(layout, run, problem.shape.d),
        before(layout.Take<E>(problem.shape.block())),
        permutation(layout.Take<V>(problem.shape.d)) {}

  __device__ void Load(const Block&) const {}
  __device__ void Store(const Block&) const {}

  // A singular block leaves the results of later steps undefined, but written.
  __device__ void Run(const Block& block) const {
    const Shape& shape = problem.shape;
    const int n = static_cast<int>(shape.d), size = n * n;
    const bool works = static_cast<int>(threadIdx.x) < block.count;
    char* const slice = block.Slice(works ? threadIdx.x : 0);
    const E* previous = nullptr;
    FirstFailure failure;
    for (int64_t first = 0; first < shape.steps; first += run) {
      const int64_t last = first + run < shape.steps ? first + run : shape.steps;
      const int64_t last_upper = last < shape.steps ? last : shape.steps - 1;
      diagonals.Load(block, first, last, problem.diagonal.Places());
      uppers.Load(block, first, last_upper, problem.upper.Places());
      // Slot t - first has the block beside step t, of index t - 1.
      lowers.Load(block, first, last, [&](int64_t i, int64_t t, unsigned k) {
        return t > 0 ? problem.lower.At(i, t - 1) + k : nullptr;
      });
      FinishCopies();
      __syncthreads();
      for (int64_t t = first; works && t < last; ++t) {
        const int slot = static_cast<int>(t - first);
        E *const a = diagonals.In(slice) + slot * size, *const u = uppers.In(slice) + slot * size;
        V* const steps = pivots.In(slice) + slot * n;
        if (t > 0) {
          SubtractProduct(OneThread(), n, n, n, lowers.In(slice) + slot * size, n, previous, n, a,
                          n);
        }
        failure.Add(t, static_cast<int>(small::Lu(n, n, a, steps, permutation.In(slice))));
        if (t + 1 == shape.steps) break;
        small::LuSolve(n, a, small::LanePivots<V>{.steps = steps, .from_factors = true},
                       /*transpose=*/false, /*conjugate=*/false, n, u);
        previous = u;
      }
      if (works && last < shape.steps) {
        E* const kept = before.In(slice);
        for (int k = 0; k < size; ++k) kept[k] = previous[k];
        previous = kept;
      }
      __syncthreads();
      diagonals.Store(block, first, last, problem.factors.Places());
      uppers.Store(block, first, last_upper, problem.right.Places());
      pivots.Store(block, first, last, problem.pivots.Places());
      __syncthreads();
    }
    if (works) problem.info[block.first + threadIdx.x] = failure.Info(n);
  }
};

template <class E>
struct TeamEliminate {
  static constexpr int kMostThreads = kBlockThreads;
  Elimination<E> problem;
  int ld;
  Offset<E> operand, factor, beside, right;
  Offset<int> pivots, permutation;

  TeamEliminate(SharedLayout& layout, const Elimination<E>& problem)
      : problem(problem),
        ld(ToInt(problem.shape.d | 1)),
        operand(layout.Take<E>(problem.shape.d * ld)),
        factor(layout.Take<E>(problem.shape.d * ld)),
        beside(layout.Take<E>(problem.shape.d * ld)),
        right(layout.Take<E>(problem.shape.d * ld)),
        pivots(layout.Take<int>(problem.shape.d)),
        permutation(layout.Take<int>(problem.shape.d)) {}

  __device__ void Run(const Team& team, int64_t place, char* slice) const {
    using V = RealElement<E>;
    const StepRanges::Range range = problem.ranges(place);
    const int64_t i = range.system, first = range.first, end = range.end;
    if (problem.Skips(i)) return;
    const bool in_chunks = problem.InChunks();
    const int n = static_cast<int>(problem.shape.d), ld = this->ld;
    E *const a = factor.In(slice), *const g = right.In(slice), *const l = beside.In(slice);
    int* const order = permutation.In(slice);
    FirstFailure failure;
    for (int64_t t = first > 0 ? first - 1 : 0; t < end; ++t) {
      // The step before a chunk has the equations that elimination of all steps before leaves.
      const bool is_before = t < first;
      LoadMatrix(team, is_before ? problem.joined.At(place, 0) : problem.diagonal.At(i, t), n, n, a,
                 ld);
      V scale = in_chunks ? Largest(team, n, a, ld) : V{};
      if (t > 0 && !is_before) {
        LoadMatrix(team, problem.lower.At(i, t - 1), n, n, l, ld);
        SubtractProduct(team, n, n, n, l, ld, g, ld, a, ld);
        if (in_chunks) {
          const V changed = Largest(team, n, a, ld);
          scale = changed > scale ? changed : scale;
        }
      }
      const int failed = team::Lu(team, n, n, a, ld, pivots.In(slice), order);
      failure.Add(t, failed);
      if (!in_chunks && failed != 0) break;
      if (in_chunks && !is_before) {
        const V least = V(kPivotOfChunks * n) * std::numeric_limits<V>::epsilon() * scale;
        failure.Add(t, team.Any([&](int thread) {
          bool is_small = false;
          for (int k = thread; k < n; k += team.size()) {
            is_small |= !(Magnitude(a[k * (ld + 1)]) > least);
          }
          return is_small;
        }));
      }
      if (!is_before) {
        StoreMatrix(team, n, n, problem.factors.At(i, t),
                    [=](int row, int col) { return a[row * ld + col]; });
        StoreArray(team, n, order, problem.permutations.At(i, t));
      }
      // The next chunk finds G of the last step.
      if (t + 1 == end) break;
      const E* const u = is_before ? problem.joined.At(place, 1) : problem.upper.At(i, t);
      team::Move<E>(
          team, n, n, [=](int row, int col) { return LoadGlobal(u + order[row] * n + col); },
          [=](int row, int col, E x) { g[row * ld + col] = x; });
      for (int pass = 0; pass < 2; ++pass) {
        const bool is_lower = pass == 0;
        team::SubstitutePanels(
            team, n, a, ld, is_lower, /*unit_diagonal=*/is_lower, [=](int) { return n; }, g, ld);
      }
      StoreMatrix(team, n, n, problem.right.At(i, t),
                  [=](int row, int col) { return g[row * ld + col]; });
    }
    if (!in_chunks) return StoreInfo(team, failure.Info(n), problem.info + i);
    team.Each([&](int thread) {
      if (thread == 0 && failure.row != 0) problem.suspects[i] = 1;
    });
  }
};

// x = A⁻¹ b with the results of an elimination. Solutions of systems that failed are NaN.
template <class E>
struct Substitution {
  Elimination<E> known;
  ColumnUnits units;  // of each range of steps
  Columns<const E> b{};
  Columns<E> x{};
  bool forward = true, back = true;
  // In chunks: the last solution of every chunk, and of the chunk before in the sweep. To compute
  // the map from one to the other, the solution before is minus the identity.
  const E* starts = nullptr;
  E* ends = nullptr;
  bool is_map = false;
  Shape shape = known.shape;
};

template <class E>
struct ThreadSubstitute {
  using V = RealElement<E>;
  Substitution<E> problem;
  int64_t run;
  RowsOfRun<E> diagonals, others, columns;
  RowsOfRun<V> pivots;
  Offset<E> neighbours;  // x of the neighbouring step

  ThreadSubstitute(SharedLayout& layout, const Substitution<E>& problem)
      : problem(problem),
        run(BlocksOfRun(problem.shape.d)),
        diagonals(layout, run, problem.shape.block()),
        others(layout, run, problem.shape.block()),
        columns(layout, run * problem.shape.d, problem.units.width),
        pivots(layout, run, problem.shape.d),
        neighbours(layout.Take<E>(problem.shape.d * problem.units.width)) {}

  __device__ void Load(const Block&) const {}
  __device__ void Store(const Block&) const {}

  __device__ void Run(const Block& block) const {
    const Shape& shape = problem.shape;
    const Elimination<E>& known = problem.known;
    const int n = static_cast<int>(shape.d), k = problem.units.width, size = n * n;
    const bool works = static_cast<int>(threadIdx.x) < block.count;
    char* const slice = block.Slice(works ? threadIdx.x : 0);
    E* const neighbour = neighbours.In(slice);
    const int64_t runs = (shape.steps + run - 1) / run;
    const bool fails = works && known.info[problem.units(block.first + threadIdx.x).system] != 0;
    for (int64_t turn = 0; turn < 2 * runs; ++turn) {
      const bool back = turn >= runs;
      const int64_t first = (back ? 2 * runs - 1 - turn : turn) * run;
      const int64_t last = first + run < shape.steps ? first + run : shape.steps;
      // Slot t - first has L of step t, of index t - 1, or G of step t.
      others.Load(block, first, last, [&](int64_t unit, int64_t t, unsigned place) -> const E* {
        const int64_t system = problem.units(unit).system;
        if (back) return t + 1 < shape.steps ? known.right.At(system, t) + place : nullptr;
        return t > 0 ? known.lower.At(system, t - 1) + place : nullptr;
      });
      if (!back) {
        diagonals.Load(block, first, last, known.factors.Places(problem.units));
        pivots.Load(block, first, last, known.pivots.Places(problem.units));
      }
      const Columns<const E> source{back ? problem.x.data : problem.b.data, problem.x.rows,
                                    problem.x.cols};
      columns.Load(block, first * n, last * n, source.Places(problem.units));
      FinishCopies();
      __syncthreads();
      for (int64_t done = 0; works && done < last - first; ++done) {
        const int64_t t = back ? last - 1 - done : first + done;
        const int slot = static_cast<int>(t - first);
        E* const y = columns.In(slice) + slot * n * k;
        if (back ? t + 1 < shape.steps : t > 0) {
          SubtractProduct(OneThread(), n, k, n, others.In(slice) + slot * size, n, neighbour, k, y,
                          k);
        }
        if (!back) {
          const small::LanePivots<V> steps{.steps = pivots.In(slice) + slot * n,
                                           .from_factors = true};
          small::LuSolve(n, diagonals.In(slice) + slot * size, steps, /*transpose=*/false,
                         /*conjugate=*/false, k, y);
        }
        for (int j = 0; j < n * k; ++j) {
          if (fails) y[j] = NaN<E>();
          neighbour[j] = y[j];
        }
      }
      __syncthreads();
      columns.Store(block, first * n, last * n, problem.x.Places(problem.units));
      __syncthreads();
    }
  }
};

template <class E>
struct TeamSubstitute {
  static constexpr int kMostThreads = kBlockThreads;
  Substitution<E> problem;
  int ld, ld_columns;
  Offset<E> factor, beside, columns, neighbours;

  TeamSubstitute(SharedLayout& layout, const Substitution<E>& problem)
      : problem(problem),
        ld(ToInt(problem.shape.d | 1)),
        ld_columns(problem.units.width | 1),
        factor(layout.Take<E>(problem.shape.d * ld)),
        beside(layout.Take<E>(problem.shape.d * ld)),
        columns(layout.Take<E>(problem.shape.d * ld_columns)),
        neighbours(layout.Take<E>(problem.shape.d * ld_columns)) {}

  __device__ void Run(const Team& team, int64_t unit, char* slice) const {
    const Elimination<E>& known = problem.known;
    const int64_t steps = problem.shape.steps;
    const int n = static_cast<int>(problem.shape.d), ld = this->ld, ldy = ld_columns;
    const auto [place, col, k] = problem.units(unit);
    const StepRanges::Range range = known.ranges(place);
    const int64_t system = range.system;
    if (known.Skips(system)) return;
    E *const a = factor.In(slice), *const b = beside.In(slice);
    E *y = columns.In(slice), *neighbour = neighbours.In(slice);
    const ColumnSweep sweep{.range = range,
                            .steps = steps,
                            .cols = problem.units.cols,
                            .col = col,
                            .n = n,
                            .width = k,
                            .ld = ldy};
    if (known.info != nullptr && known.info[system] != 0) {
      E* const to = problem.x.data + system * steps * n * sweep.cols + col;
      return team::Move<E>(
          team, static_cast<int>(steps) * n, k, [](int, int) { return NaN<E>(); },
          [=](int row, int j, E x) { StoreGlobal<E>(x, to + row * sweep.cols + j); });
    }
    const int64_t size = n * sweep.cols;
    if (known.InChunks()) {
      const int64_t other = range.chunk + (problem.forward ? -1 : 1);
      const bool is_known = problem.starts != nullptr && other >= 0 && other < known.ranges.count;
      const E* const start =
          is_known ? problem.starts + (place - range.chunk + other) * size + col : nullptr;
      const bool is_map = problem.is_map;
      team::Move<E>(
          team, n, k,
          [=](int row, int j) {
            if (start != nullptr) return LoadGlobal(start + row * sweep.cols + j);
            return FromReal<E>(is_map && row == col + j ? RealElement<E>(-1) : RealElement<E>(0));
          },
          [=](int row, int j, E x) { neighbour[row * ldy + j] = x; });
    }
    for (int pass = problem.forward ? 0 : 1; pass < (problem.back ? 2 : 1); ++pass) {
      const bool back = pass == 1;
      const E* const source = back && problem.forward ? problem.x.data : problem.b.data;
      const auto solve = [&](int64_t t, E* y, E* neighbour) {
        if (back ? t + 1 < steps : t > 0) {
          LoadMatrix(team, back ? known.right.At(system, t) : known.lower.At(system, t - 1), n, n,
                     b, ld);
          SubtractProduct(team, n, k, n, b, ld, neighbour, ldy, y, ldy);
        }
        if (back || known.factors.data == nullptr) return y;
        LoadMatrix(team, known.factors.At(system, t), n, n, a, ld);
        const int32_t* const order = known.permutations.At(system, t);
        team::Move<E>(
            team, n, k, [=](int row, int j) { return y[LoadGlobal(order + row) * ldy + j]; },
            [=](int row, int j, E x) { neighbour[row * ldy + j] = x; });
        for (int half = 0; half < 2; ++half) {
          const bool is_lower = half == 0;
          team::Substitute(team, n, a, ld, is_lower, /*unit_diagonal=*/is_lower, k, neighbour, ldy);
        }
        return neighbour;
      };
      E* const last = sweep.Run(team, back, source, problem.x.data, y, neighbour, solve);
      y = last == y ? neighbour : y;
      neighbour = last;
    }
    if (problem.ends == nullptr) return;
    E* const to = problem.ends + place * size + col;
    const E* const end = neighbour;
    team::Move<E>(
        team, n, k, [=](int row, int j) { return end[row * ldy + j]; },
        [=](int row, int j, E x) { StoreGlobal<E>(x, to + row * sweep.cols + j); });
  }
};

template <class E>
GpuPath BlockTridiagonalSolvePath(const Shape& shape) {
  return SolvesInChunks<E>(shape.steps, shape.d) ? GpuPath::kSteps
                                                 : BlockTridiagonalPath<E>(shape.d);
}

template <class Job, class Problem>
void LaunchTeamsOf(cudaStream_t stream, int64_t count, int64_t unit, const Problem& problem) {
  SharedLayout layout(unit);
  const Job job(layout, problem);
  LaunchTeams(stream, job, count, BlockTeamSize(problem.shape.d), layout);
}

// Solves in chunks, corrects the solution once, and marks the suspects: systems with a pivot near
// rounding, or with a residual that rounding does not explain. They are left to elimination without
// chunks, which finds info and failures.
template <class T>
void SolveInChunks(cudaStream_t stream, DeviceScratch& scratch,
                   const Elimination<Element<T>>& whole, int64_t cols, const T* b, T* x) {
  using E = Element<T>;
  constexpr int64_t kUnit = sizeof(Real<T>);
  const Shape& shape = whole.shape;
  const StepRanges ranges(shape.steps, ChunkWidth(shape.steps));
  const int64_t chunks = shape.batch * ranges.count, size = shape.block();
  const auto blocks = [&](int64_t systems, int64_t count) {
    return BlocksOf(scratch.Take<T>(systems * count * size), count, size);
  };
  const auto constant = [](const Blocks<E>& x) {
    return Blocks<const E>{x.data, x.stride, x.size};
  };
  const ChunkEquations<E> equations{.shape = shape,
                                    .ranges = ranges,
                                    .lower = whole.lower,
                                    .diagonal = whole.diagonal,
                                    .upper = whole.upper,
                                    .equations = blocks(2 * chunks, kFactorsOfEquation),
                                    .joined = blocks(chunks, 2),
                                    .suspects = whole.suspects,
                                    .info = whole.info};
  LaunchTeamsOf<TeamReduceChunk<E>>(stream, 2 * chunks, kUnit, equations);
  LaunchTeamsOf<TeamJoinChunks<E>>(stream, shape.batch, kUnit, equations);
  Elimination<E> known = whole;
  known.ranges = ranges;
  known.info = nullptr;
  known.joined = constant(equations.joined);
  LaunchTeamsOf<TeamEliminate<E>>(stream, chunks, kUnit, known);
  if (cols == 0) return;
  // Maps of the last solutions of neighbouring chunks, to which they are joined as steps are.
  const Blocks<E> onward = blocks(shape.batch, ranges.count);
  const Blocks<E> backward = blocks(shape.batch, ranges.count);
  for (const bool back : {false, true}) {
    const ColumnUnits units(chunks, shape.d, kLeastColumnsOfTeam);
    LaunchTeamsOf<TeamSubstitute<E>>(stream, units.count, kUnit,
                                     Substitution<E>{.known = known,
                                                     .units = units,
                                                     .forward = !back,
                                                     .back = back,
                                                     .ends = (back ? backward : onward).data,
                                                     .is_map = true});
  }
  Elimination<E> of_chunks{.shape = shape, .ranges = StepRanges(ranges.count)};
  of_chunks.shape.steps = ranges.count;
  of_chunks.lower = {onward.data + size, onward.stride, onward.size};
  of_chunks.right = backward;
  E* const ends = AsElements(scratch.Take<T>(chunks * shape.d * cols));
  const ColumnUnits units(chunks, cols, kLeastColumnsOfTeam);
  const ColumnUnits joint(shape.batch, cols, kLeastColumnsOfTeam);
  const auto columns_of = [](const E* data) { return Columns<const E>{data}; };
  const auto solve = [&](const E* source, E* target) {
    for (const bool back : {false, true}) {
      Substitution<E> sweep{.known = known,
                            .units = units,
                            .b = columns_of(back ? target : source),
                            .forward = !back,
                            .back = back,
                            .ends = ends};
      LaunchTeamsOf<TeamSubstitute<E>>(stream, units.count, kUnit, sweep);
      LaunchTeamsOf<TeamSubstitute<E>>(stream, joint.count, kUnit,
                                       Substitution<E>{.known = of_chunks,
                                                       .units = joint,
                                                       .b = columns_of(ends),
                                                       .x = {ends},
                                                       .forward = !back,
                                                       .back = back});
      sweep.x = {target};
      sweep.starts = std::exchange(sweep.ends, nullptr);
      LaunchTeamsOf<TeamSubstitute<E>>(stream, units.count, kUnit, sweep);
    }
  };
  const int64_t columns = shape.batch * shape.steps * cols;
  E* const correction = AsElements(scratch.Take<T>(columns * shape.d));
  Residual<E> residual{.problem = equations,
                       .places = MatrixElements(shape.steps, cols),
                       .cols = cols,
                       .b = AsElements(b),
                       .x = AsElements(x),
                       .residual = correction};
  solve(AsElements(b), AsElements(x));
  ForEach(stream, columns, residual);
  solve(correction, correction);
  ForEach(stream, columns * shape.d,
          AddCorrection<E>{.correction = correction, .x = AsElements(x)});
  residual.residual = nullptr;
  ForEach(stream, columns, residual);
}

void BlockTridiagonalSolve(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer lower,
                           ffi::AnyBuffer diagonal, ffi::AnyBuffer upper, ffi::AnyBuffer b,
                           Result x, Result info) {
  const BatchShape sides = SplitBatch(lower, 3, "lower");
  if (sides.rows != sides.cols) throw BadArgument("lower", "hold square blocks");
  const Shape given = ReadBlockTridiagonalShape(diagonal);
  const int64_t batch = given.batch, steps = given.steps, d = given.d, below = given.below();
  const int64_t cols = SplitBatch(b, 3, "b").cols, size = given.block();
  DispatchDtype(diagonal.element_type(), [&]<class T>(std::type_identity<T>) {
    using E = Element<T>;
    const T* const lowers = Elements<T>(lower, batch, {below, d, d}, "lower");
    const T* const diagonals = Elements<T>(diagonal, batch, {steps, d, d}, "diagonal");
    const T* const uppers = Elements<T>(upper, batch, {below, d, d}, "upper");
    const T* const rhs = Elements<T>(b, batch, {steps, d, cols}, "b");
    T* const solution = Elements<T>(x, batch, {steps, d, cols}, "x");
    const Shape shape = WithoutEmptySteps(given);
    const GpuPath path = BlockTridiagonalSolvePath<E>(shape);
    const bool by_threads = path == GpuPath::kThread, in_chunks = path == GpuPath::kSteps;
    const int64_t rows = batch * steps * d;
    Real<T>* const pivots = by_threads ? scratch.Take<Real<T>>(rows) : nullptr;
    int32_t* const permutations = by_threads ? nullptr : scratch.Take<int32_t>(rows);
    const Elimination<E> known{
        .shape = shape,
        .ranges = StepRanges(shape.steps),
        .lower = BlocksOf(lowers, below, size),
        .diagonal = BlocksOf(diagonals, steps, size),
        .upper = BlocksOf(uppers, below, size),
        .factors = BlocksOf(scratch.Take<T>(batch * steps * size), steps, size),
        .right = BlocksOf(scratch.Take<T>(batch * below * size), below, size),
        .pivots = {pivots, steps * d, ToInt(d)},
        .permutations = {permutations, steps * d, ToInt(d)},
        .info = Elements<int32_t>(info, batch, {}, "info"),
        .suspects = in_chunks ? scratch.Take<int32_t>(batch) : nullptr};
    if (in_chunks) SolveInChunks<T>(stream, scratch, known, cols, rhs, solution);
    const GpuPath rest = in_chunks ? GpuPath::kTeam : path;
    LaunchUnits<ThreadEliminate<E>, TeamEliminate<E>>(stream, rest, batch, sizeof(Real<T>), known);
    if (shape.steps == 0 || cols == 0) return;
    const ColumnUnits units(batch, cols, by_threads ? kColumnsOfThread : kLeastColumnsOfTeam);
    LaunchUnits<ThreadSubstitute<E>, TeamSubstitute<E>>(
        stream, rest, units.count, sizeof(Real<T>),
        Substitution<E>{.known = known,
                        .units = units,
                        .b = {AsElements(rhs), steps * d, cols},
                        .x = {AsElements(solution), steps * d, cols}});
  });
}

}  // namespace

template <class T>
void SolveLongBlockTridiagonal(cudaStream_t stream, DeviceScratch& scratch,
                               const LongBlockTridiagonal<T>& systems, int32_t* suspects) {
  using E = Element<T>;
  const Shape& shape = systems.shape;
  const int64_t batch = shape.batch, steps = shape.steps, size = shape.block();
  const Elimination<E> known{
      .shape = shape,
      .ranges = StepRanges(steps),
      .lower = BlocksOf(systems.lower, shape.below(), size),
      .diagonal = BlocksOf(systems.diagonal, steps, size),
      .upper = BlocksOf(systems.upper, shape.below(), size),
      .factors = BlocksOf(scratch.Take<T>(batch * steps * size), steps, size),
      .right = BlocksOf(scratch.Take<T>(batch * shape.below() * size), shape.below(), size),
      .permutations = {scratch.Take<int32_t>(batch * steps * shape.d), steps * shape.d,
                       ToInt(shape.d)},
      .info = scratch.Take<int32_t>(batch),
      .suspects = suspects};
  SolveInChunks<T>(stream, scratch, known, systems.cols, systems.b, systems.x);
}

#define LINALG_LONG_BLOCK_TRIDIAGONAL(T)                                   \
  template void SolveLongBlockTridiagonal<T>(cudaStream_t, DeviceScratch&, \
                                             const LongBlockTridiagonal<T>&, int32_t*);
LINALG_LONG_BLOCK_TRIDIAGONAL(float)
LINALG_LONG_BLOCK_TRIDIAGONAL(double)
LINALG_LONG_BLOCK_TRIDIAGONAL(std::complex<float>)
LINALG_LONG_BLOCK_TRIDIAGONAL(std::complex<double>)
#undef LINALG_LONG_BLOCK_TRIDIAGONAL

}  // namespace linalg::cuda

LINALG_HANDLER(linalg_block_tridiagonal_solve, linalg::cuda::BlockTridiagonalSolve);
