// General block-tridiagonal systems: block elimination with pivoting inside the diagonal blocks.
//
// The first launch factors: each step leaves the LU factors of the eliminated diagonal block D, and
// G = D⁻¹ U with the block U on its right. The second launch sweeps forward and back over the
// right-hand sides.
#include "kernels/cuda/block_tridiagonal.h"
#include "kernels/handlers.h"
#include "kernels/team/solve.h"

namespace linalg::cuda {
namespace {

using Shape = BlockTridiagonalShape;

template <class E>
struct Elimination {
  Shape shape;
  Blocks<const E> lower, diagonal, upper;
  Blocks<E> factors, right;  // LU, and G
  // Rows that threads exchange, as numbers, or the order of rows that teams find.
  Blocks<RealElement<E>> pivots;
  Blocks<int32_t> permutations;
  int32_t* info;
};

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
      const auto at = [](const auto& blocks) {
        return [&blocks](int64_t i, int64_t t, unsigned k) { return blocks.At(i, t) + k; };
      };
      diagonals.Load(block, first, last, at(problem.diagonal));
      uppers.Load(block, first, last_upper, at(problem.upper));
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
      diagonals.Store(block, first, last, at(problem.factors));
      uppers.Store(block, first, last_upper, at(problem.right));
      pivots.Store(block, first, last, at(problem.pivots));
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

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int64_t steps = problem.shape.steps;
    const int n = static_cast<int>(problem.shape.d), ld = this->ld;
    E *const a = factor.In(slice), *const g = right.In(slice), *const l = beside.In(slice);
    int* const order = permutation.In(slice);
    FirstFailure failure;
    for (int64_t t = 0; t < steps; ++t) {
      LoadMatrix(team, problem.diagonal.At(i, t), n, n, a, ld);
      if (t > 0) {
        LoadMatrix(team, problem.lower.At(i, t - 1), n, n, l, ld);
        SubtractProduct(team, n, n, n, l, ld, g, ld, a, ld);
      }
      failure.Add(t, team::Lu(team, n, n, a, ld, pivots.In(slice), order));
      if (failure.row != 0) break;
      StoreMatrix(team, n, n, problem.factors.At(i, t),
                  [=](int row, int col) { return a[row * ld + col]; });
      StoreArray(team, n, order, problem.permutations.At(i, t));
      if (t + 1 == steps) break;
      const E* const u = problem.upper.At(i, t);
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
    StoreInfo(team, failure.Info(n), problem.info + i);
  }
};

// x = A⁻¹ b with the results of an elimination. Solutions of systems that failed are NaN.
template <class E>
struct Substitution {
  Elimination<E> known;
  ColumnUnits units;
  Columns<const E> b;
  Columns<E> x;
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
    const auto column = [&](auto* data) {
      return [=, this](int64_t unit, int64_t row, unsigned col) {
        const auto [system, first_col, left] = problem.units(unit);
        const bool is_there = static_cast<int>(col) < left;
        return is_there ? data + problem.x.Place(system, row, first_col + col) : nullptr;
      };
    };
    const auto at = [&](const auto& blocks) {
      return [&, this](int64_t unit, int64_t t, unsigned place) {
        return blocks.At(problem.units(unit).system, t) + place;
      };
    };
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
        diagonals.Load(block, first, last, at(known.factors));
        pivots.Load(block, first, last, at(known.pivots));
      }
      columns.Load(block, first * n, last * n,
                   column(back ? static_cast<const E*>(problem.x.data) : problem.b.data));
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
      columns.Store(block, first * n, last * n, column(problem.x.data));
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
    const int64_t steps = problem.shape.steps, pitch = problem.x.cols;
    const int n = static_cast<int>(problem.shape.d), ld = this->ld, ldy = ld_columns;
    const auto [system, col, k] = problem.units(unit);
    E *const a = factor.In(slice), *const b = beside.In(slice);
    E *y = columns.In(slice), *neighbour = neighbours.In(slice);
    const bool fails = known.info[system] != 0;
    const int64_t most = fails ? steps : 2 * steps;
    for (int64_t done = 0; done < most; ++done) {
      const bool back = done >= steps;
      const int64_t t = back ? 2 * steps - 1 - done : done;
      const int64_t place = problem.x.Place(system, t * n, col);
      E* const to = problem.x.data + place;
      if (!fails) {
        const E* const from = (back ? problem.x.data : problem.b.data) + place;
        team::Move<E>(
            team, n, k, [=](int row, int j) { return LoadGlobal(from + row * pitch + j); },
            [=](int row, int j, E x) { y[row * ldy + j] = x; });
        if (back ? t + 1 < steps : t > 0) {
          LoadMatrix(team, back ? known.right.At(system, t) : known.lower.At(system, t - 1), n, n,
                     b, ld);
          SubtractProduct(team, n, k, n, b, ld, neighbour, ldy, y, ldy);
        }
        if (!back) {
          LoadMatrix(team, known.factors.At(system, t), n, n, a, ld);
          const int32_t* const order = known.permutations.At(system, t);
          team::Move<E>(
              team, n, k, [=](int row, int j) { return y[LoadGlobal(order + row) * ldy + j]; },
              [=](int row, int j, E x) { neighbour[row * ldy + j] = x; });
          for (int pass = 0; pass < 2; ++pass) {
            const bool is_lower = pass == 0;
            team::Substitute(team, n, a, ld, is_lower, /*unit_diagonal=*/is_lower, k, neighbour,
                             ldy);
          }
        } else {
          E* const last = neighbour;
          neighbour = y;
          y = last;
        }
      }
      const E* const solved = neighbour;
      team::Move<E>(
          team, n, k, [=](int row, int j) { return fails ? NaN<E>() : solved[row * ldy + j]; },
          [=](int row, int j, E x) { StoreGlobal<E>(x, to + row * pitch + j); });
    }
  }
};

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
    const GpuPath path = BlockTridiagonalPath<E>(d);
    const bool by_threads = path == GpuPath::kThread;
    const int64_t rows = batch * steps * d;
    Real<T>* const pivots = by_threads ? scratch.Take<Real<T>>(rows) : nullptr;
    int32_t* const permutations = by_threads ? nullptr : scratch.Take<int32_t>(rows);
    const Elimination<E> known{
        .shape = shape,
        .lower = BlocksOf(lowers, below, size),
        .diagonal = BlocksOf(diagonals, steps, size),
        .upper = BlocksOf(uppers, below, size),
        .factors = BlocksOf(scratch.Take<T>(batch * steps * size), steps, size),
        .right = BlocksOf(scratch.Take<T>(batch * below * size), below, size),
        .pivots = {pivots, steps * d, ToInt(d)},
        .permutations = {permutations, steps * d, ToInt(d)},
        .info = Elements<int32_t>(info, batch, {}, "info")};
    LaunchUnits<ThreadEliminate<E>, TeamEliminate<E>>(stream, path, batch, sizeof(Real<T>), known);
    if (shape.steps == 0 || cols == 0) return;
    const ColumnUnits units(batch, cols, by_threads ? kColumnsOfThread : kLeastColumnsOfTeam);
    LaunchUnits<ThreadSubstitute<E>, TeamSubstitute<E>>(
        stream, path, units.count, sizeof(Real<T>),
        Substitution<E>{.known = known,
                        .units = units,
                        .b = {AsElements(rhs), steps * d, cols},
                        .x = {AsElements(solution), steps * d, cols}});
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_block_tridiagonal_solve, linalg::cuda::BlockTridiagonalSolve);
