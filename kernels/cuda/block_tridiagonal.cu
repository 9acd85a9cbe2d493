// Cholesky factors of block-tridiagonal matrices, substitution with them, and the blocks of the
// inverse: kernels/cuda/block_tridiagonal.h.
#include "kernels/cuda/block_tridiagonal.h"

#include "kernels/cuda/passes.h"
#include "kernels/handlers.h"
#include "kernels/team/hermitian.h"
#include "kernels/team/product.h"
#include "kernels/team/triangular.h"

namespace linalg::cuda {
namespace {

using Shape = BlockTridiagonalShape;

template <class E>
struct Factorisation {
  Shape shape;
  Blocks<const E> diagonal, lower;
  Blocks<E> factor, below;
  RealElement<E>* logdet;
  int32_t* info;

  // The first blocks of a system that failed later are finite. All its stores must have ended.
  __device__ __forceinline__ void FillNaN(int thread, int threads, int64_t i) const {
    StoreNaN(thread, threads, shape.steps * shape.block(), factor.At(i, 0));
    StoreNaN(thread, threads, shape.below() * shape.block(), below.At(i, 0));
  }
};

// Replaces the lower triangle by the Cholesky factor. Returns 0, or the order of the first leading
// minor that is not positive. The panels of kernels/team/cholesky.h take more registers than a
// thread has left here.
template <class Team, class E>
__device__ __forceinline__ int CholeskyByColumns(const Team& team, int n, E* a, int ld) {
  using V = RealElement<E>;
  for (int k = 0; k < n; ++k) {
    const V pivot = Re(a[k * (ld + 1)]);
    if (!(pivot > V(0))) return k + 1;  // NaN is not positive
    const V root = Sqrt(pivot), inverse = V(1) / root;
    team.Phase([&](int thread) {
      for (int i = k + 1 + thread; i < n; i += team.size()) {
        a[i * ld + k] = inverse * a[i * ld + k];
      }
    });
    team.Phase([&](int thread) {
      if (thread == 0) a[k * (ld + 1)] = FromReal<E>(root);
      for (int i = k + 1 + thread; i < n; i += team.size()) {
        const E left = a[i * ld + k];
        for (int j = k + 1; j <= i; ++j) {
          a[i * ld + j] = NegMulAdd(left, Conj(a[j * ld + k]), a[i * ld + j]);
        }
      }
    });
  }
  return 0;
}

// b (n, cols) := op(L)⁻¹ b by a thread, where op is the adjoint or nothing.
template <bool kAdjoint, class E>
__device__ __forceinline__ void SolveTriangle(int n, int cols, const E* l, E* b) {
  for (int done = 0; done < n; ++done) {
    const int i = kAdjoint ? n - 1 - done : done, first = kAdjoint ? i + 1 : 0;
    SubtractProduct<kAdjoint>(OneThread(), 1, cols, done, l + (kAdjoint ? first * n + i : i * n), n,
                              b + first * cols, cols, b + i * cols, cols);
    small::DivideRow(l[i * (n + 1)], cols, b + i * cols);
  }
}

template <class E>
__device__ __forceinline__ void AdjointTo(int n, const E* a, E* target) {
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) target[j * n + i] = Conj(a[i * n + j]);
  }
}

template <class E>
struct ThreadFactor {
  Factorisation<E> problem;
  int64_t run;
  RowsOfRun<E> diagonals, lowers;
  Offset<E> before, adjoints;  // B of the step before a run, and Bᴴ

  ThreadFactor(SharedLayout& layout, const Factorisation<E>& problem)
      : problem(problem),
        run(BlocksOfRun(problem.shape.d)),
        diagonals(layout, run, problem.shape.block()),
        lowers(layout, run, problem.shape.block()),
        before(layout.Take<E>(problem.shape.block())),
        adjoints(layout.Take<E>(problem.shape.block())) {}

  __device__ void Load(const Block&) const {}
  __device__ void Store(const Block&) const {}

  __device__ void Run(const Block& block) const {
    using V = RealElement<E>;
    const Shape& shape = problem.shape;
    const int n = static_cast<int>(shape.d), size = n * n;
    const bool works = static_cast<int>(threadIdx.x) < block.count;
    char* const slice = block.Slice(works ? threadIdx.x : 0);
    E* const adjoint = adjoints.In(slice);
    const E* previous = nullptr;
    ScaledProduct<V> pivots;
    FirstFailure failure;
    for (int64_t first = 0; first < shape.steps; first += run) {
      const int64_t last = first + run < shape.steps ? first + run : shape.steps;
      const int64_t last_lower = last < shape.steps ? last : shape.steps - 1;
      diagonals.Load(block, first, last, problem.diagonal.Places());
      lowers.Load(block, first, last_lower, problem.lower.Places());
      FinishCopies();
      __syncthreads();
      for (int64_t t = first; works && t < last; ++t) {
        E* const l = diagonals.In(slice) + (t - first) * size;
        small::LowerHermitianPart(l, n, {.lower = true, .symmetrize = true});
        if (previous != nullptr) {
          SubtractProduct(OneThread(), n, n, n, previous, n, adjoint, n, l, n);
        }
        failure.Add(t, CholeskyByColumns(OneThread(), n, l, n));
        for (int k = 0; k < n; ++k) {
          pivots.Multiply(Re(l[k * (n + 1)]));
          for (int j = k + 1; j < n; ++j) l[k * n + j] = E{};
        }
        if (t + 1 == shape.steps) break;
        E* const b = lowers.In(slice) + (t - first) * size;
        AdjointTo(n, b, adjoint);
        SolveTriangle<false>(n, n, l, adjoint);
        AdjointTo(n, adjoint, b);
        previous = b;
      }
      if (works && last < shape.steps) {
        E* const kept = before.In(slice);
        for (int k = 0; k < size; ++k) kept[k] = previous[k];
        previous = kept;
      }
      __syncthreads();
      diagonals.Store(block, first, last, problem.factor.Places());
      lowers.Store(block, first, last_lower, problem.below.Places());
      __syncthreads();
    }
    if (!works) return;
    const int64_t i = block.first + threadIdx.x;
    const V half = pivots.InParts().logarithm;
    problem.logdet[i] = failure.row != 0 ? NaN<V>() : half + half;
    problem.info[i] = failure.Info(n);
    if (failure.row != 0) problem.FillNaN(0, 1, i);
  }
};

template <class E>
struct TeamFactor {
  static constexpr int kMostThreads = kBlockThreads;
  Factorisation<E> problem;
  int ld;
  Offset<E> operand, factor, adjoint;  // D, L and Bᴴ
  Offset<ScaledProduct<RealElement<E>>> pivots;

  TeamFactor(SharedLayout& layout, const Factorisation<E>& problem)
      : problem(problem),
        ld(ToInt(problem.shape.d | 1)),
        operand(layout.Take<E>(problem.shape.d * ld)),
        factor(layout.Take<E>(problem.shape.d * ld)),
        adjoint(layout.Take<E>(problem.shape.d * ld)),
        pivots(layout.Take<ScaledProduct<RealElement<E>>>(BlockTeamSize(problem.shape.d))) {}

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    using V = RealElement<E>;
    const Shape& shape = problem.shape;
    const int n = static_cast<int>(shape.d), ld = this->ld;
    E *const d = operand.In(slice), *const l = factor.In(slice), *const b = adjoint.In(slice);
    // Registers are few: each thread keeps the product of its rows' pivots in shared memory.
    ScaledProduct<V>* const products = pivots.In(slice);
    team.Each([&](int thread) { products[thread] = ScaledProduct<V>(); });
    int failed = 0;
    int64_t t = 0;
    for (; t < shape.steps; ++t) {
      E* const target = t == 0 ? l : d;
      LoadMatrix(team, problem.diagonal.At(i, t), n, n, target, ld);
      team::LowerHermitianPart(team, n, target, ld, {.lower = true, .symmetrize = true});
      if (t > 0) {
        team::Product<E>(
            team, n, [=](int row, int k) { return Conj(b[k * ld + row]); },
            [=](int k, int col) { return b[k * ld + col]; },
            [=](int row, int col, E x) { l[row * ld + col] = d[row * ld + col] - x; });
      }
      failed = CholeskyByColumns(team, n, l, ld);
      if (failed != 0) break;
      team.Each([&](int thread) {
        for (int k = thread; k < n; k += team.size()) products[thread].Multiply(Re(l[k * ld + k]));
      });
      StoreMatrix(team, n, n, problem.factor.At(i, t),
                  [=](int row, int col) { return col > row ? E{} : l[row * ld + col]; });
      if (t + 1 == shape.steps) break;
      const E* const source = problem.lower.At(i, t);
      team::Move<E>(
          team, n, n, [=](int row, int col) { return LoadGlobal(source + row * n + col); },
          [=](int row, int col, E x) { b[col * ld + row] = Conj(x); });
      team::SubstitutePanels(
          team, n, l, ld, /*lower=*/true, /*unit_diagonal=*/false, [=](int) { return n; }, b, ld);
      StoreMatrix(team, n, n, problem.below.At(i, t),
                  [=](int row, int col) { return Conj(b[col * ld + row]); });
    }
    const V half =
        team.template Sum<V>([&](int thread) { return products[thread].InParts().logarithm; });
    team.Each([&](int thread) {
      if (failed != 0) problem.FillNaN(thread, team.size(), i);
      if (thread != 0) return;
      problem.logdet[i] = failed != 0 ? NaN<V>() : half + half;
      problem.info[i] = failed != 0 ? static_cast<int32_t>(t * n + failed) : 0;
    });
  }
};

template <class E>
struct Substitution {
  Shape shape;
  Blocks<const E> factor, below;
  ColumnUnits units;
  Columns<const E> b;
  Columns<E> x;
  bool forward, back;
};

template <class E>
struct ThreadSubstitute {
  Substitution<E> problem;
  int64_t run;
  RowsOfRun<E> diagonals, lowers, columns;
  Offset<E> neighbours;  // x of the neighbouring step

  ThreadSubstitute(SharedLayout& layout, const Substitution<E>& problem)
      : problem(problem),
        run(BlocksOfRun(problem.shape.d)),
        diagonals(layout, run, problem.shape.block()),
        lowers(layout, run, problem.shape.block()),
        columns(layout, run * problem.shape.d, problem.units.width),
        neighbours(layout.Take<E>(problem.shape.d * problem.units.width)) {}

  __device__ void Load(const Block&) const {}
  __device__ void Store(const Block&) const {}

  __device__ void Run(const Block& block) const {
    if (problem.forward) Sweep<false>(block, problem.b.data);
    if (problem.back) Sweep<true>(block, problem.forward ? problem.x.data : problem.b.data);
  }

 private:
  template <bool kBack>
  __device__ __forceinline__ void Sweep(const Block& block, const E* source) const {
    const Shape& shape = problem.shape;
    const int n = static_cast<int>(shape.d), k = problem.units.width, size = n * n;
    const bool works = static_cast<int>(threadIdx.x) < block.count;
    char* const slice = block.Slice(works ? threadIdx.x : 0);
    E* const neighbour = neighbours.In(slice);
    const int64_t runs = (shape.steps + run - 1) / run;
    for (int64_t turn = 0; turn < runs; ++turn) {
      const int64_t first = (kBack ? runs - 1 - turn : turn) * run;
      const int64_t last = first + run < shape.steps ? first + run : shape.steps;
      // Slot t - first has the block that joins step t to its neighbour: B of t or of t - 1.
      const int64_t shift = kBack ? 0 : 1;
      diagonals.Load(block, first, last, problem.factor.Places(problem.units));
      lowers.Load(block, first, last, [&](int64_t unit, int64_t t, unsigned place) {
        const int64_t from = t - shift;
        const bool is_there = from >= 0 && from < shape.below();
        return is_there ? problem.below.At(problem.units(unit).system, from) + place : nullptr;
      });
      const Columns<const E> right{source, problem.x.rows, problem.x.cols};
      columns.Load(block, first * n, last * n, right.Places(problem.units));
      FinishCopies();
      __syncthreads();
      for (int64_t done = 0; works && done < last - first; ++done) {
        const int64_t t = kBack ? last - 1 - done : first + done;
        E* const y = columns.In(slice) + (t - first) * n * k;
        if (kBack ? t + 1 < shape.steps : t > 0) {
          SubtractProduct<kBack>(OneThread(), n, k, n, lowers.In(slice) + (t - first) * size, n,
                                 neighbour, k, y, k);
        }
        SolveTriangle<kBack>(n, k, diagonals.In(slice) + (t - first) * size, y);
        for (int j = 0; j < n * k; ++j) neighbour[j] = y[j];
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
  Offset<E> factor, below, columns, neighbours;

  TeamSubstitute(SharedLayout& layout, const Substitution<E>& problem)
      : problem(problem),
        ld(ToInt(problem.shape.d | 1)),
        ld_columns(problem.units.width | 1),
        factor(layout.Take<E>(problem.shape.d * ld)),
        below(layout.Take<E>(problem.shape.d * ld)),
        columns(layout.Take<E>(problem.shape.d * ld_columns)),
        neighbours(layout.Take<E>(problem.shape.d * ld_columns)) {}

  __device__ void Run(const Team& team, int64_t unit, char* slice) const {
    const int64_t steps = problem.shape.steps;
    const int n = static_cast<int>(problem.shape.d), ld = this->ld, ldy = ld_columns;
    const auto [system, col, k] = problem.units(unit);
    E *const l = factor.In(slice), *const b = below.In(slice);
    const ColumnSweep sweep{.range = {system, 0, 0, static_cast<int>(steps)},
                            .steps = steps,
                            .cols = problem.units.cols,
                            .col = col,
                            .n = n,
                            .width = k,
                            .ld = ldy};
    for (int pass = problem.forward ? 0 : 1; pass < (problem.back ? 2 : 1); ++pass) {
      const bool back = pass == 1;
      // The block, or its adjoint.
      const auto load = [&](const E* block, E* target) {
        team::Move<E>(
            team, n, n, [=](int row, int j) { return LoadGlobal(block + row * n + j); },
            [=](int row, int j, E x) {
              target[back ? j * ld + row : row * ld + j] = back ? Conj(x) : x;
            });
      };
      const auto solve = [&](int64_t t, E* y, E* neighbour) {
        load(problem.factor.At(system, t), l);
        if (back ? t + 1 < steps : t > 0) {
          load(problem.below.At(system, back ? t : t - 1), b);
          SubtractProduct(team, n, k, n, b, ld, neighbour, ldy, y, ldy);
        }
        team::Substitute(team, n, l, ld, /*lower=*/!back, /*unit_diagonal=*/false, k, y, ldy);
        return y;
      };
      sweep.Run(team, back, back && problem.forward ? problem.x.data : problem.b.data,
                problem.x.data, columns.In(slice), neighbours.In(slice), solve);
    }
  }
};

template <class E>
struct InverseProblem {
  Shape shape;
  Blocks<const E> factor, below;
  Blocks<E> diagonal, lower;
};

template <class E>
struct ThreadInverse {
  InverseProblem<E> problem;
  int64_t run;
  RowsOfRun<E> diagonals, lowers;
  Offset<E> inverses, works;

  ThreadInverse(SharedLayout& layout, const InverseProblem<E>& problem)
      : problem(problem),
        run(BlocksOfRun(problem.shape.d)),
        diagonals(layout, run, problem.shape.block()),
        lowers(layout, run, problem.shape.block()),
        inverses(layout.Take<E>(problem.shape.block())),
        works(layout.Take<E>(3 * problem.shape.block())) {}

  __device__ void Load(const Block&) const {}
  __device__ void Store(const Block&) const {}

  __device__ void Run(const Block& block) const {
    const Shape& shape = problem.shape;
    const int n = static_cast<int>(shape.d), size = n * n;
    const bool works_here = static_cast<int>(threadIdx.x) < block.count;
    char* const slice = block.Slice(works_here ? threadIdx.x : 0);
    E* const inverse = inverses.In(slice);
    const int64_t runs = (shape.steps + run - 1) / run;
    for (int64_t turn = runs - 1; turn >= 0; --turn) {
      const int64_t first = turn * run;
      const int64_t last = first + run < shape.steps ? first + run : shape.steps;
      const int64_t last_lower = last < shape.steps ? last : shape.steps - 1;
      diagonals.Load(block, first, last, problem.factor.Places());
      lowers.Load(block, first, last_lower, problem.below.Places());
      FinishCopies();
      __syncthreads();
      for (int64_t t = last - 1; works_here && t >= first; --t) {
        E* const l = diagonals.In(slice) + (t - first) * size;
        E* const b = t + 1 < shape.steps ? lowers.In(slice) + (t - first) * size : nullptr;
        Step(n, l, b, inverse, works.In(slice));
        for (int k = 0; k < size; ++k) l[k] = inverse[k];
      }
      __syncthreads();
      diagonals.Store(block, first, last, problem.diagonal.Places());
      lowers.Store(block, first, last_lower, problem.lower.Places());
      __syncthreads();
    }
  }

 private:
  // Replaces the block S of the inverse's next step by that of this one, and B by the block below.
  // Computes W = L⁻¹, -G = -B W, P = S G and Wᴴ W + Gᴴ P.
  __device__ __forceinline__ static void Step(int n, const E* l, E* b, E* s, E* work) {
    const OneThread alone;
    const int size = n * n;
    E *const w = work, *const g = w + size, *const p = g + size;
    for (int k = 0; k < 3 * size; ++k) work[k] = E{};
    for (int k = 0; k < n; ++k) w[k * (n + 1)] = FromReal<E>(RealElement<E>(1));
    SolveTriangle<false>(n, n, l, w);
    if (b != nullptr) {
      SubtractProduct(alone, n, n, n, b, n, w, n, g, n);
      SubtractProduct(alone, n, n, n, s, n, g, n, p, n);
      for (int k = 0; k < size; ++k) b[k] = -p[k];
    }
    for (int k = 0; k < size; ++k) s[k] = E{};
    SubtractProduct<true>(alone, n, n, n, w, n, w, n, s, n);
    for (int k = 0; k < size; ++k) s[k] = -s[k];
    if (b != nullptr) SubtractProduct<true>(alone, n, n, n, g, n, p, n, s, n);
    for (int i = 0; i < n; ++i) {
      s[i * (n + 1)] = FromReal<E>(Re(s[i * (n + 1)]));
      for (int j = 0; j < i; ++j) s[j * n + i] = Conj(s[i * n + j]);
    }
  }
};

template <class E>
struct TeamInverse {
  static constexpr int kMostThreads = kBlockThreads;
  InverseProblem<E> problem;
  int ld;
  Offset<E> arrays[4];

  TeamInverse(SharedLayout& layout, const InverseProblem<E>& problem)
      : problem(problem), ld(ToInt(problem.shape.d | 1)) {
    for (auto& array : arrays) array = layout.Take<E>(problem.shape.d * ld);
  }

  // Each step computes W = L⁻¹, G = B W, P = S G with the inverse's block S of the next step, and
  // its own, Wᴴ W + Gᴴ P. The block below is -P.
  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const Shape& shape = problem.shape;
    const int n = static_cast<int>(shape.d), ld = this->ld;
    E *const first = arrays[0].In(slice), *const second = arrays[1].In(slice);
    E *w = arrays[2].In(slice), *s = arrays[3].In(slice);
    const auto plain = [ld](const E* a) {
      return [=](int row, int col) { return a[row * ld + col]; };
    };
    const auto adjoint = [ld](const E* a) {
      return [=](int row, int col) { return Conj(a[col * ld + row]); };
    };
    const team::Grid grid = team::RowGrid(team);
    for (int64_t t = shape.steps - 1; t >= 0; --t) {
      LoadMatrix(team, problem.factor.At(i, t), n, n, first, ld);
      team.Phase([&](int thread) {
        team::ForEachElement(grid, thread, 0, n, 0, n, [&](int row, int col) {
          w[row * ld + col] = FromReal<E>(RealElement<E>(row == col));
        });
      });
      team::SubstitutePanels(
          team, n, first, ld, /*lower=*/true, /*unit_diagonal=*/false,
          [](int solved) { return solved; }, w, ld);
      if (t + 1 < shape.steps) {
        LoadMatrix(team, problem.below.At(i, t), n, n, second, ld);
        team::Product<E>(team, n, plain(second), plain(w),
                         [=](int row, int col, E x) { first[row * ld + col] = x; });
        team::Product<E>(team, n, plain(s), plain(first),
                         [=](int row, int col, E x) { second[row * ld + col] = x; });
        StoreMatrix(team, n, n, problem.lower.At(i, t),
                    [=](int row, int col) { return -second[row * ld + col]; });
      }
      team::Product<E>(team, n, adjoint(w), plain(w),
                       [=](int row, int col, E x) { s[row * ld + col] = x; });
      if (t + 1 < shape.steps) {
        team::Product<E>(team, n, adjoint(first), plain(second),
                         [=](int row, int col, E x) { w[row * ld + col] = s[row * ld + col] + x; });
        E* const sum = w;
        w = s;
        s = sum;
      }
      team.Phase([&](int thread) {
        team::ForEachElement(grid, thread, 0, n, 0, n, [&](int row, int col) {
          if (row == col) s[row * ld + row] = FromReal<E>(Re(s[row * ld + row]));
          if (row > col) s[col * ld + row] = Conj(s[row * ld + col]);
        });
      });
      StoreMatrix(team, n, n, problem.diagonal.At(i, t), plain(s));
    }
  }
};

template <class T>
void LaunchFactor(cudaStream_t stream, const Shape& shape, const T* diagonal, const T* lower,
                  T* factor, T* below, Real<T>* logdet, int32_t* info) {
  using E = Element<T>;
  const int64_t steps = shape.steps, size = shape.block();
  LaunchUnits<ThreadFactor<E>, TeamFactor<E>>(
      stream, BlockTridiagonalPath<E>(shape.d), shape.batch, sizeof(Real<T>),
      Factorisation<E>{.shape = shape,
                       .diagonal = BlocksOf(diagonal, steps, size),
                       .lower = BlocksOf(lower, shape.below(), size),
                       .factor = BlocksOf(factor, steps, size),
                       .below = BlocksOf(below, shape.below(), size),
                       .logdet = logdet,
                       .info = info});
}

template <class T>
void LaunchSubstitute(cudaStream_t stream, const Shape& shape, bool shared, const T* factor,
                      const T* below, int64_t cols, const T* b, T* x, bool forward, bool back) {
  using E = Element<T>;
  const int64_t rows = shape.steps * shape.d, size = shape.block();
  if (rows == 0 || cols == 0) return;
  const GpuPath path = BlockTridiagonalPath<E>(shape.d);
  const ColumnUnits units(shape.batch, cols,
                          path == GpuPath::kThread ? kColumnsOfThread : kLeastColumnsOfTeam);
  LaunchUnits<ThreadSubstitute<E>, TeamSubstitute<E>>(
      stream, path, units.count, sizeof(Real<T>),
      Substitution<E>{.shape = shape,
                      .factor = BlocksOf(factor, shape.steps, size, shared),
                      .below = BlocksOf(below, shape.below(), size, shared),
                      .units = units,
                      .b = {AsElements(b), rows, cols},
                      .x = {AsElements(x), rows, cols},
                      .forward = forward,
                      .back = back});
}

void Cholesky(cudaStream_t stream, ffi::AnyBuffer diagonal, ffi::AnyBuffer lower, Result factor,
              Result below, Result logdet, Result info) {
  const Shape shape = ReadBlockTridiagonalShape(diagonal);
  const int64_t batch = shape.batch, steps = shape.steps, d = shape.d;
  DispatchDtype(diagonal.element_type(), [&]<class T>(std::type_identity<T>) {
    LaunchFactor<T>(
        stream, WithoutEmptySteps(shape), Elements<T>(diagonal, batch, {steps, d, d}, "diagonal"),
        Elements<T>(lower, batch, {shape.below(), d, d}, "lower"),
        Elements<T>(factor, batch, {steps, d, d}, "the factor's diagonal"),
        Elements<T>(below, batch, {shape.below(), d, d}, "the factor's lower"),
        Elements<Real<T>>(logdet, batch, {}, "logdet"), Elements<int32_t>(info, batch, {}, "info"));
  });
}

void FactorSolve(cudaStream_t stream, ffi::AnyBuffer factor, ffi::AnyBuffer below, ffi::AnyBuffer b,
                 Result x, bool forward, bool back) {
  Shape shape = ReadBlockTridiagonalShape(factor);
  const bool shared = factor.dimensions().size() == 3;
  const auto [batch, rows, cols] = SplitBatch(b, 3, "b");
  if (!shared && shape.batch != batch) throw BadArgument("b", "have the batch size of the factor");
  const int64_t factors = shape.batch, steps = shape.steps, d = shape.d, count = cols;
  shape.batch = batch;
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const T* const source = Elements<T>(b, shape.batch, {steps, d, count}, "b");
    T* const target = Elements<T>(x, shape.batch, {steps, d, count}, "x");
    if (!forward && !back) return Copy(stream, shape.batch * steps * d * count, source, target);
    LaunchSubstitute<T>(stream, WithoutEmptySteps(shape), shared,
                        Elements<T>(factor, factors, {steps, d, d}, "the factor's diagonal"),
                        Elements<T>(below, factors, {shape.below(), d, d}, "the factor's lower"),
                        count, source, target, forward, back);
  });
}

// The factors of systems that fail are NaN, and so are their solutions.
void SolveLogdet(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer diagonal,
                 ffi::AnyBuffer lower, ffi::AnyBuffer b, Result x, Result logdet, Result info) {
  const Shape shape = ReadBlockTridiagonalShape(diagonal);
  const int64_t batch = shape.batch, steps = shape.steps, d = shape.d;
  const int64_t cols = SplitBatch(b, 3, "b").cols;
  DispatchDtype(diagonal.element_type(), [&]<class T>(std::type_identity<T>) {
    const T* const blocks = Elements<T>(diagonal, batch, {steps, d, d}, "diagonal");
    const T* const others = Elements<T>(lower, batch, {shape.below(), d, d}, "lower");
    const T* const rhs = Elements<T>(b, batch, {steps, d, cols}, "b");
    T* const solution = Elements<T>(x, batch, {steps, d, cols}, "x");
    Real<T>* const value = Elements<Real<T>>(logdet, batch, {}, "logdet");
    int32_t* const failed = Elements<int32_t>(info, batch, {}, "info");
    T* const factor = scratch.Take<T>(batch * steps * shape.block());
    T* const below = scratch.Take<T>(batch * shape.below() * shape.block());
    const Shape known = WithoutEmptySteps(shape);
    LaunchFactor<T>(stream, known, blocks, others, factor, below, value, failed);
    LaunchSubstitute<T>(stream, known, /*shared=*/false, factor, below, cols, rhs, solution,
                        /*forward=*/true, /*back=*/true);
  });
}

void InverseBlocks(cudaStream_t stream, ffi::AnyBuffer factor, ffi::AnyBuffer below,
                   Result diagonal, Result lower) {
  const Shape shape = ReadBlockTridiagonalShape(factor);
  const int64_t batch = shape.batch, steps = shape.steps, d = shape.d, size = shape.block();
  DispatchDtype(factor.element_type(), [&]<class T>(std::type_identity<T>) {
    using E = Element<T>;
    const T* const blocks = Elements<T>(factor, batch, {steps, d, d}, "the factor's diagonal");
    const T* const others = Elements<T>(below, batch, {shape.below(), d, d}, "the factor's lower");
    T* const target = Elements<T>(diagonal, batch, {steps, d, d}, "diagonal");
    T* const beside = Elements<T>(lower, batch, {shape.below(), d, d}, "lower");
    if (shape.IsEmpty()) return;
    LaunchUnits<ThreadInverse<E>, TeamInverse<E>>(
        stream, BlockTridiagonalPath<E>(d), batch, sizeof(Real<T>),
        InverseProblem<E>{.shape = shape,
                          .factor = BlocksOf(blocks, steps, size),
                          .below = BlocksOf(others, shape.below(), size),
                          .diagonal = BlocksOf(target, steps, size),
                          .lower = BlocksOf(beside, shape.below(), size)});
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_block_tridiagonal_cholesky, linalg::cuda::Cholesky, LINALG_CAPTURED);
LINALG_HANDLER(linalg_block_tridiagonal_factor_solve, linalg::cuda::FactorSolve, LINALG_CAPTURED);
LINALG_HANDLER(linalg_block_tridiagonal_inverse_blocks, linalg::cuda::InverseBlocks,
               LINALG_CAPTURED);
LINALG_HANDLER(linalg_block_tridiagonal_solve_logdet, linalg::cuda::SolveLogdet);
