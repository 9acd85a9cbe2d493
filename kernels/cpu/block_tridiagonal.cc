// Cholesky factors of block-tridiagonal matrices, substitution with them, and the blocks of the
// inverse.
//
// One system per lane. Each handler streams over the steps, so that a group's working set is a few
// blocks whatever the number of steps.
#include "kernels/cpu/block_tridiagonal.h"

#include "kernels/cpu/block_tridiagonal_cotangents.h"
#include "kernels/cpu/block_tridiagonal_factors.h"
#include "kernels/cpu/handler.h"

namespace linalg {
namespace {

using Shape = BlockTridiagonalShape;

template <class T>
struct CholeskyProblem {
  Shape shape;
  TridiagonalBlocks<T> a;
  BlockResults<T> factor;
  DeterminantResults<T> results;

  void RunEmpty() const { results.Clear(shape.batch); }

  int64_t cols() const { return 1; }
  int64_t size() const { return (2 * BlocksOfRun(shape.d) + 2) * shape.block() + shape.d; }
  int64_t most_bytes() const { return kWideGroupBytes; }
  double moved() const { return 4 * shape.rows() * shape.rows(); }
  double operations() const { return 2 * shape.rows() * shape.rows() * shape.rows(); }

  template <class E, class N, class M>
  void RunGroup(N n, M, int64_t i, E* memory) const {
    using V = RealElement<E>;
    const int64_t steps = shape.steps, block = n * n, run = BlocksOfRun(n);
    BlockRun<E, T> blocks(memory, block, a.stride());
    BlockRun<E, T> others(memory + run * block, block, a.lower_stride());
    E* const before = memory + 2 * run * block;  // B of the step before this run, then its adjoint
    E* const adjoint = before + block;
    V* const reciprocals = reinterpret_cast<V*>(adjoint + block);
    const E* previous = nullptr;
    FactorState<V> state;
    for (int64_t first = 0; first < steps; first += run) {
      const int64_t last = std::min(steps, first + run), last_lower = std::min(steps - 1, last);
      blocks.Load(a.Diagonal(i), first, last);
      others.Load(a.Lower(i), first, last_lower);
      for (int64_t t = first; t < last; ++t) {
        E* const l = blocks.At(t);
        const E* const beside = previous == nullptr ? nullptr : adjoint;
        state.Add(n, t, small::FactorDiagonal(n, beside, l, reciprocals), l);
        small::ClearUpper(n, l);
        if (t + 1 == steps) break;
        E* const b = others.At(t);
        small::FactorLowerBlock(n, l, reciprocals, b, adjoint);
        previous = b;
      }
      blocks.Store(factor.Diagonal(i), first, last);
      others.Store(factor.Lower(i), first, last_lower);
      if (last < steps) {
        std::copy_n(previous, block, before);
        previous = before;
      }
    }
    state.Store(n, results.logdet + i, results.info + i);
    if (!Any(state.failed())) return;
    for (int64_t k = i; k < i + kLanesOf<V>; ++k) {
      if (results.info[k] != 0) factor.Fail(k);
    }
  }
};

void Cholesky(ffi::ThreadPool pool, ffi::AnyBuffer diagonal, ffi::AnyBuffer lower, Result factor,
              Result below, Result logdet, Result info) {
  const Shape shape = ReadBlockTridiagonalShape(diagonal);
  DispatchDtype(diagonal.element_type(), [&]<class T>(std::type_identity<T>) {
    RunSystems<T>(pool,
                  CholeskyProblem<T>{.shape = shape,
                                     .a = ReadBlocks<T>(shape, diagonal, lower),
                                     .factor = ReadBlockResults<T>(shape, factor, below),
                                     .results = ReadDeterminants<T>(shape.batch, logdet, info)});
  });
}

template <class T>
struct CholeskySolveProblem {
  Shape shape;
  TridiagonalBlocks<T> factor;
  bool forward, back;
  const T* b;
  T* x;
  int64_t count;  // right-hand sides

  int64_t cols() const { return count; }
  int64_t size() const {
    const int64_t run = BlocksOfRun(shape.d);
    return 2 * run * shape.block() + (run + 1) * shape.d * count + shape.d;
  }
  int64_t most_bytes() const { return kWideGroupBytes; }
  double passes() const { return (forward ? 1 : 0) + (back ? 1 : 0); }
  double moved() const {
    return passes() * 2 * shape.rows() * (shape.rows() + static_cast<double>(count));
  }
  double operations() const {
    return passes() * 1.5 * shape.rows() * shape.rows() * static_cast<double>(count);
  }

  template <class E, class N, class M>
  void RunGroup(N n, M k, int64_t i, E* memory) const {
    const int64_t steps = shape.steps, block = n * n, run = BlocksOfRun(n), size = n * k;
    BlockRun<E, T> diagonal(memory, block, factor.stride());
    BlockRun<E, T> lower(memory + run * block, block, factor.lower_stride());
    BlockRun<E, T> columns(memory + 2 * run * block, size, steps * size);
    E* const before = memory + 2 * run * block + run * size;  // x of the neighbouring step
    auto* const reciprocals = reinterpret_cast<RealElement<E>*>(before + size);
    const int64_t offset = i * steps * size;
    const T* source = b;
    if (forward) {
      for (int64_t first = 0; first < steps; first += run) {
        const int64_t last = std::min(steps, first + run);
        const int64_t first_lower = std::max<int64_t>(first - 1, 0);  // block t - 1 is beside t
        diagonal.Load(factor.Diagonal(i), first, last);
        lower.Load(factor.Lower(i), first_lower, last - 1);
        columns.Load(b + offset, first, last);
        for (int64_t t = first; t < last; ++t) {
          E* const y = columns.At(t);
          if (t > 0) {
            small::AddProduct<false, false>(n, k, n, lower.At(t - 1), n, before, k, y, k);
          }
          small::SolveTriangleAlone<false>(n, k, diagonal.At(t), reciprocals, y);
          std::copy_n(y, size, before);
        }
        columns.Store(x + offset, first, last);
      }
      source = x;
    }
    if (!back) return;
    for (int64_t last = steps; last > 0;) {
      const int64_t first = std::max<int64_t>(last - run, 0);
      const int64_t last_lower = std::min(last, steps - 1);  // block t is below t
      diagonal.Load(factor.Diagonal(i), first, last, /*back=*/true);
      lower.Load(factor.Lower(i), first, last_lower, /*back=*/true);
      columns.Load(source + offset, first, last, /*back=*/true);
      for (int64_t t = last - 1; t >= first; --t) {
        E* const y = columns.At(t);
        if (t + 1 < steps) {
          small::AddProduct<false, true>(n, k, n, lower.At(t), n, before, k, y, k);
        }
        small::SolveTriangleAlone<true>(n, k, diagonal.At(t), reciprocals, y);
        std::copy_n(y, size, before);
      }
      columns.Store(x + offset, first, last);
      last = first;
    }
  }
};

void CholeskySolve(ffi::ThreadPool pool, ffi::AnyBuffer factor, ffi::AnyBuffer below,
                   ffi::AnyBuffer b, Result x, bool forward, bool back) {
  const auto [shape, shared, cols] = ReadFactorShape(factor, b);
  const CoreShape core = {shape.steps, shape.d, cols};
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const T* const source = Elements<T>(b, shape.batch, core, "b");
    T* const target = ResultElements<T>(x, shape.batch, core, "x");
    if (!forward && !back) {
      std::copy_n(source, shape.batch * shape.steps * shape.d * cols, target);
      return;
    }
    RunSystems<T>(pool,
                  CholeskySolveProblem<T>{.shape = shape,
                                          .factor = ReadBlocks<T>(shape, factor, below, shared),
                                          .forward = forward,
                                          .back = back,
                                          .b = source,
                                          .x = target,
                                          .count = cols});
  });
}

// Whether a system is tridiagonal with one right-hand side, which has a recursion of its own. Sizes
// that are constants are larger.
template <class N, class M>
constexpr bool IsScalar(N n, M k) {
  if constexpr (small::kIsConstant<N>) {
    return false;
  } else {
    return n == 1 && k == 1;
  }
}

// Factors and solves in one pass. The factors stay in lanes.
template <class T>
struct SolveLogdetProblem {
  Shape shape;
  TridiagonalBlocks<T> a;
  int64_t count;  // right-hand sides
  const T* b;
  T* x;
  DeterminantResults<T> results;

  void RunEmpty() const { results.Clear(shape.batch); }

  int64_t cols() const { return count; }
  int64_t size() const {
    return FactorsInLanes<T>::Size(shape, count) + BlocksOfRun(shape.d) * shape.block();
  }
  // The second-level cache holds the factors of most groups of full width.
  int64_t most_bytes() const { return kWideGroupBytes + size() * kPartsOf<T> * kRegisterBytes; }
  double moved() const { return 2 * shape.rows() * (shape.rows() + static_cast<double>(count)); }
  double operations() const {
    return 2 * shape.rows() * shape.rows() * (shape.rows() + static_cast<double>(count));
  }

  template <class E, class N, class M>
  void RunGroup(N n, M k, int64_t i, E* memory) const {
    using V = RealElement<E>;
    const int64_t steps = shape.steps, size = n * k;
    const FactorsInLanes<E> factors(n, k, steps, memory);
    FactorState<V> state;
    if (IsScalar(n, k)) {
      RunScalars(factors, i, state);
      return Fail<V>(i);
    }
    factors.Solve(n, k, AllSteps(a, i, b, size), x + i * steps * size, state);
    state.Store(n, results.logdet + i, results.info + i);
    Fail<V>(i);
  }

 private:
  template <class E>
  void RunScalars(const FactorsInLanes<E>& factors, int64_t i,
                  FactorState<RealElement<E>>& state) const {
    const int64_t steps = shape.steps;
    factors.template ForwardScalars<false>(AllSteps(a, i, b, 1), state);
    E* const y = factors.y;
    for (int64_t t = steps - 2; t >= 0; --t) {
      y[t] = small::BackScalar(factors.adjoints[t], y[t + 1], y[t]);
    }
    StoreElements(y, steps, steps, x + i * steps);
    state.StorePivots(results.logdet + i, results.info + i);
  }

  template <class V>
  void Fail(int64_t i) const {
    const int64_t size = shape.steps * shape.d * count;
    for (int64_t system = i; system < i + kLanesOf<V>; ++system) {
      if (results.info[system] != 0) FillWithNaN(size, x + system * size);
    }
  }
};

// The steps from which a system with blocks of one row is divided in chunks. Its recursion takes a
// few operations a step, and chunks take more than twice as many.
constexpr int64_t kLongScalars = 1 << 17;

bool IsDivided(const Shape& shape, int64_t cols) {
  return shape.steps >= (IsScalar(ToInt(shape.d), ToInt(cols)) ? kLongScalars : kLongSteps);
}

void SolveLogdet(ffi::ThreadPool pool, ffi::AnyBuffer diagonal, ffi::AnyBuffer lower,
                 ffi::AnyBuffer b, Result x, Result logdet, Result info) {
  const Shape shape = ReadBlockTridiagonalShape(diagonal);
  const int64_t batch = shape.batch, cols = SplitBatch(b, 3, "b").cols;
  const CoreShape core = {shape.steps, shape.d, cols};
  DispatchDtype(diagonal.element_type(), [&]<class T>(std::type_identity<T>) {
    const SolveLogdetProblem<T> problem{.shape = shape,
                                        .a = ReadBlocks<T>(shape, diagonal, lower),
                                        .count = cols,
                                        .b = Elements<T>(b, batch, core, "b"),
                                        .x = ResultElements<T>(x, batch, core, "x"),
                                        .results = ReadDeterminants<T>(batch, logdet, info)};
    if (!IsDivided(shape, cols)) return RunSystems<T>(pool, problem);
    SolveLogdetInChunks(pool, problem.a, cols, problem.b, problem.x, problem.results);
  });
}

// kernels/cpu/block_tridiagonal_cotangents.h
template <class T>
struct SolveLogdetVjpProblem {
  Shape shape;
  TridiagonalBlocks<T> a;
  int64_t count;  // right-hand sides
  const T* x;
  const T* x_ct;
  const Real<T>* logdet_ct;
  BlockResults<T> a_ct;
  T* b_ct;

  int64_t cols() const { return count; }
  int64_t size() const { return CotangentsInLanes<T>::Size(shape, count); }
  int64_t most_bytes() const { return kWideGroupBytes + size() * kPartsOf<T> * kRegisterBytes; }
  double moved() const {
    return 4 * shape.rows() * shape.rows() + 3 * shape.rows() * static_cast<double>(count);
  }
  double operations() const {
    return 6 * shape.rows() * shape.rows() * (shape.rows() + static_cast<double>(count));
  }

  template <class E, class N, class M>
  void RunGroup(N n, M k, int64_t i, E* memory) const {
    using V = RealElement<E>;
    const int64_t steps = shape.steps, below = shape.below(), block = n * n, size = n * k;
    const int64_t columns = i * steps * size;
    const CotangentsInLanes<E> lanes(n, k, steps, memory);
    LoadElements(x + columns, steps * size, steps * size, lanes.solution);
    V logdet;
    LoadElements(logdet_ct + i, 1, 1, &logdet);
    FactorState<V> state;
    if (IsScalar(n, k)) {
      RunScalars(lanes.factors, i, lanes.solution, logdet, state);
      return Fail(i, state);
    }
    lanes.factors.template Forward<T, N, M, /*kConjugate=*/true>(n, k, AllSteps(a, i, x_ct, size),
                                                                 lanes.lower, state);
    lanes.Back(n, k, logdet, steps,
               CotangentsOfGroup<T>{a_ct.Diagonal(i), a_ct.Lower(i), b_ct + columns, steps * block,
                                    below * block, steps * size});
    Fail(i, state);
  }

 private:
  template <class E, class V>
  void RunScalars(const FactorsInLanes<E>& factors, int64_t i, const E* solution, V logdet,
                  FactorState<V>& state) const {
    const int64_t steps = shape.steps;
    factors.template ForwardScalars<true>(AllSteps(a, i, x_ct, 1), state);
    E *const y = factors.y, *const own = factors.l, *const beside = factors.adjoints;
    const V one = Broadcast<V>(1), twice = logdet + logdet;
    V inverse = one / factors.reciprocals[steps - 1];
    for (int64_t t = steps - 1;; --t) {
      const E x = solution[t];
      own[t] = FromReal<E>(logdet * inverse - Re(ConjMulAdd(x, y[t], E{})));
      if (t == 0) break;
      const E multiplier = beside[t - 1], next = y[t], previous = solution[t - 1];
      y[t - 1] = small::BackScalar(multiplier, next, y[t - 1]);
      const E outer = ConjMulAdd(previous, next, ConjMulAdd(y[t - 1], x, E{}));
      beside[t - 1] = Conj(-(twice * (inverse * multiplier)) - outer);
      inverse =
          one / factors.reciprocals[t - 1] + inverse * Re(ConjMulAdd(multiplier, multiplier, E{}));
    }
    if constexpr (kIsComplex<T>) {
      for (int64_t t = 0; t < steps; ++t) y[t] = Conj(y[t]);
    }
    StoreElements(y, steps, steps, b_ct + i * steps);
    StoreElements(own, steps, steps, a_ct.Diagonal(i));
    StoreElements(beside, steps - 1, steps - 1, a_ct.Lower(i));
  }

  template <class V>
  void Fail(int64_t i, const FactorState<V>& state) const {
    if (!Any(state.failed())) return;
    const int64_t size = shape.steps * shape.d * count;
    int32_t info[kLanesOf<V>];
    state.StoreInfo(shape.d, info);
    for (int lane = 0; lane < kLanesOf<V>; ++lane) {
      if (info[lane] == 0) continue;
      a_ct.Fail(i + lane);
      FillWithNaN(size, b_ct + (i + lane) * size);
    }
  }
};

void SolveLogdetVjp(ffi::ThreadPool pool, ffi::AnyBuffer diagonal, ffi::AnyBuffer lower,
                    ffi::AnyBuffer x, ffi::AnyBuffer x_ct, ffi::AnyBuffer logdet_ct,
                    Result diagonal_ct, Result lower_ct, Result b_ct) {
  const Shape shape = ReadBlockTridiagonalShape(diagonal);
  const int64_t batch = shape.batch, cols = SplitBatch(x, 3, "x").cols;
  const CoreShape core = {shape.steps, shape.d, cols};
  DispatchDtype(diagonal.element_type(), [&]<class T>(std::type_identity<T>) {
    const SolveLogdetVjpProblem<T> problem{
        .shape = shape,
        .a = ReadBlocks<T>(shape, diagonal, lower),
        .count = cols,
        .x = Elements<T>(x, batch, core, "x"),
        .x_ct = Elements<T>(x_ct, batch, core, "the cotangent of x"),
        .logdet_ct = Elements<Real<T>>(logdet_ct, batch, {}, "the cotangent of logdet"),
        .a_ct = ReadBlockResults<T>(shape, diagonal_ct, lower_ct),
        .b_ct = ResultElements<T>(b_ct, batch, core, "the cotangent of b")};
    if (!IsDivided(shape, cols)) return RunSystems<T>(pool, problem);
    SolveLogdetVjpInChunks(pool, problem.a, cols, problem.x, problem.x_ct, problem.logdet_ct,
                           problem.a_ct, problem.b_ct);
  });
}

template <class T>
struct InverseBlocksProblem {
  Shape shape;
  TridiagonalBlocks<T> factor;
  BlockResults<T> inverse;

  int64_t cols() const { return 1; }
  int64_t size() const { return (2 * BlocksOfRun(shape.d) + 4) * shape.block() + shape.d; }
  int64_t most_bytes() const { return kWideGroupBytes; }
  double moved() const { return 4 * shape.rows() * shape.rows(); }
  double operations() const { return 4 * shape.rows() * shape.rows() * shape.rows(); }

  template <class E, class N, class M>
  void RunGroup(N n, M, int64_t i, E* memory) const {
    const int64_t steps = shape.steps, block = n * n, run = BlocksOfRun(n);
    BlockRun<E, T> blocks(memory, block, factor.stride());
    BlockRun<E, T> others(memory + run * block, block, factor.lower_stride());
    E* const own = memory + 2 * run * block;
    E* const work = own + block;
    auto* const reciprocals = reinterpret_cast<RealElement<E>*>(work + 3 * block);
    for (int64_t last = steps; last > 0;) {
      const int64_t first = std::max<int64_t>(last - run, 0),
                    last_lower = std::min(last, steps - 1);
      blocks.Load(factor.Diagonal(i), first, last, /*back=*/true);
      others.Load(factor.Lower(i), first, last_lower, /*back=*/true);
      for (int64_t t = last - 1; t >= first; --t) {
        E* const l = blocks.At(t);
        small::ReciprocalsOfDiagonal(n, l, reciprocals);
        E* const b = t + 1 < steps ? others.At(t) : nullptr;
        small::InverseBlocksStep</*kAdjoint=*/false>(n, l, reciprocals, b, own, work);
        for (int j = 0; b != nullptr && j < block; ++j) b[j] = -work[2 * block + j];
        std::copy_n(own, block, l);
      }
      blocks.Store(inverse.Diagonal(i), first, last);
      others.Store(inverse.Lower(i), first, last_lower);
      last = first;
    }
  }
};

void InverseBlocks(ffi::ThreadPool pool, ffi::AnyBuffer factor, ffi::AnyBuffer below,
                   Result diagonal, Result lower) {
  const Shape shape = ReadBlockTridiagonalShape(factor);
  DispatchDtype(factor.element_type(), [&]<class T>(std::type_identity<T>) {
    RunSystems<T>(pool,
                  InverseBlocksProblem<T>{.shape = shape,
                                          .factor = ReadBlocks<T>(shape, factor, below),
                                          .inverse = ReadBlockResults<T>(shape, diagonal, lower)});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_block_tridiagonal_cholesky, linalg::Cholesky);
LINALG_CPU_HANDLER(linalg_block_tridiagonal_factor_solve, linalg::CholeskySolve);
LINALG_CPU_HANDLER(linalg_block_tridiagonal_inverse_blocks, linalg::InverseBlocks);
LINALG_CPU_HANDLER(linalg_block_tridiagonal_solve_logdet, linalg::SolveLogdet);
LINALG_CPU_HANDLER(linalg_block_tridiagonal_solve_logdet_vjp, linalg::SolveLogdetVjp);
