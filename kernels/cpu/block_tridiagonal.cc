// Cholesky factors of block-tridiagonal matrices, substitution with them, and the blocks of the
// inverse.
//
// One system per lane. Each handler streams over the steps, so that a group's working set is a few
// blocks whatever the number of steps.
#include "kernels/cpu/block_tridiagonal.h"

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
    return shape.steps * (2 * shape.block() + shape.d * (count + 1)) +
           BlocksOfRun(shape.d) * shape.block();
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
    const int64_t steps = shape.steps, below = shape.below(), block = n * n, size = n * k;
    const int64_t run = BlocksOfRun(n);
    E* const l = memory;
    E* const adjoints = l + steps * block;  // Bᴴ of each step
    E* const y = adjoints + steps * block;
    V* const reciprocals = reinterpret_cast<V*>(y + steps * size);
    E* const lower = y + steps * (size + n);  // of the steps of a run
    FactorState<V> state;
    for (int64_t first = 0; first < steps; first += run) {
      const int64_t last = std::min(steps, first + run);
      const auto load = [=](const T* source, int64_t stride, int64_t end, int64_t each, E* target) {
        const int64_t moved = std::max<int64_t>(end - first, 0) * each;
        Prefetch<E>(source + first * each + moved, stride * each, moved);
        LoadElements(source + first * each, stride * each, moved, target);
      };
      load(a.Diagonal(i), steps, last, block, l + first * block);
      load(a.Lower(i), below, std::min(below, last), block, lower);
      load(b + i * steps * size, steps, last, size, y + first * size);
      for (int64_t t = first; t < last; ++t) {
        const E* const previous = t > 0 ? adjoints + (t - 1) * block : nullptr;
        E *const own = l + t * block, *const own_y = y + t * size;
        V* const inverse = reciprocals + t * n;
        state.Add(n, t, small::FactorDiagonal(n, previous, own, inverse), own);
        if (t > 0) {
          small::AddProduct<false, true>(n, k, n, previous, n, own_y - size, k, own_y, k);
        }
        small::SolveTriangle<false>(n, k, own, inverse, own_y);
        if (t < below) {
          small::FactorLowerAdjoint(n, own, inverse, lower + (t - first) * block,
                                    adjoints + t * block);
        }
      }
    }
    for (int64_t t = steps - 1; t >= 0; --t) {
      E* const own = y + t * size;
      if (t < below) {
        small::AddProduct<false, false>(n, k, n, adjoints + t * block, n, own + size, k, own, k);
      }
      small::SolveTriangle<true>(n, k, l + t * block, reciprocals + t * n, own);
      if (t % run == 0) {
        const int64_t moved = std::min(steps - t, run) * size;
        StoreElements(own, moved, steps * size, x + (i * steps + t) * size);
      }
    }
    state.Store(n, results.logdet + i, results.info + i);
    if (!Any(state.failed())) return;
    for (int64_t system = i; system < i + kLanesOf<V>; ++system) {
      if (results.info[system] != 0) FillWithNaN(steps * size, x + system * steps * size);
    }
  }
};

void SolveLogdet(ffi::ThreadPool pool, ffi::AnyBuffer diagonal, ffi::AnyBuffer lower,
                 ffi::AnyBuffer b, Result x, Result logdet, Result info) {
  const Shape shape = ReadBlockTridiagonalShape(diagonal);
  const int64_t batch = shape.batch, cols = SplitBatch(b, 3, "b").cols;
  const CoreShape core = {shape.steps, shape.d, cols};
  DispatchDtype(diagonal.element_type(), [&]<class T>(std::type_identity<T>) {
    RunSystems<T>(pool, SolveLogdetProblem<T>{.shape = shape,
                                              .a = ReadBlocks<T>(shape, diagonal, lower),
                                              .count = cols,
                                              .b = Elements<T>(b, batch, core, "b"),
                                              .x = ResultElements<T>(x, batch, core, "x"),
                                              .results = ReadDeterminants<T>(batch, logdet, info)});
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
    for (int64_t last = steps; last > 0;) {
      const int64_t first = std::max<int64_t>(last - run, 0),
                    last_lower = std::min(last, steps - 1);
      blocks.Load(factor.Diagonal(i), first, last, /*back=*/true);
      others.Load(factor.Lower(i), first, last_lower, /*back=*/true);
      for (int64_t t = last - 1; t >= first; --t) {
        E* const l = blocks.At(t);
        small::InverseBlocksStep(n, l, t + 1 < steps ? others.At(t) : nullptr, own, work);
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
