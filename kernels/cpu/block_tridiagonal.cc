// Cholesky factors of block-tridiagonal matrices, substitution with them, and the blocks of the
// inverse.
//
// One system per lane. Each handler streams over the steps, so that a group's working set is a few
// blocks whatever the number of steps.
#include "kernels/cpu/block_tridiagonal.h"

#include "kernels/arithmetic/scaled_product.h"
#include "kernels/cpu/handler.h"
#include "kernels/small/block_tridiagonal.h"

namespace linalg {
namespace {

using Shape = BlockTridiagonalShape;

// Nanoseconds of a group, given its moved elements and multiply-adds per step.
template <class T>
double GroupNanoseconds(const Shape& shape, double moved, double operations) {
  constexpr int64_t kParts = kPartsOf<T>;
  const double steps = static_cast<double>(shape.steps);
  return SmallNanoseconds(kLanes<T>, static_cast<int64_t>(steps * moved) * kParts,
                          steps * operations * kParts * kParts);
}

// Calls body(n, k) for blocks of order d and `cols` right-hand sides. The sizes of tiny blocks are
// constants beside a single one. The bits do not depend on that.
template <class Body>
void DispatchSizes(int64_t d, int64_t cols, Body&& body) {
  if (cols != 1) return body(ToInt(d), ToInt(cols));
  DispatchSize(d, [&](auto n) {
    if constexpr (small::kIsConstant<decltype(n)>) {
      body(n, std::integral_constant<int, 1>());
    } else {
      body(n, 1);
    }
  });
}

// The log-determinant and the first failure of a factorisation, block by block.
template <class V>
class FactorState {
 public:
  // Takes block t of the factor, and what FactorDiagonalBlock returned.
  template <class E, class N>
  void Add(N n, int64_t t, V failed, const E* l) {
    const auto fails = (failed > V{}) & (row_ == V{});
    row_ = fails ? failed : row_;
    block_ = fails ? Number<V>(t) : block_;
    for (int k = 0; k < n; ++k) pivots_.Multiply(Re(l[k * n + k]));
  }

  auto failed() const { return row_ > V{}; }

  void Store(int64_t d, Lane<V>* logdet, int32_t* info) const {
    const V half = pivots_.InParts().logarithm;
    const V value = failed() ? NaN<V>() : half + half;
    StoreElements(&value, 1, logdet);
    StoreBlockInfo(d, block_, row_, info);
  }

 private:
  ScaledProduct<V> pivots_;
  V block_{}, row_{};
};

template <class T>
struct CholeskyProblem {
  Shape shape;
  const T* diagonal;
  const T* lower;
  T* factor;
  T* below;
  Real<T>* logdet;
  int32_t* info;

  bool IsEmpty() const { return shape.IsEmpty(); }
  void RunEmpty() const {
    std::fill_n(logdet, shape.batch, Real<T>(0));
    std::fill_n(info, shape.batch, 0);
  }

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const double d = static_cast<double>(shape.d);
    DispatchSize(shape.d, [&](auto n) {
      const int64_t run = BlocksOfRun(n);
      ForEachGroup<T>(pool, shape.batch, (2 * run + 2) * shape.block() * kPartsOf<T>,
                      GroupNanoseconds<T>(shape, 4 * d * d, 2 * d * d * d),
                      [&]<class V>(int64_t i, V* registers) {
                        RunGroup(n, i, reinterpret_cast<Element<T, V>*>(registers));
                      });
    });
  }

 private:
  template <class E, class N>
  void RunGroup(N n, int64_t i, E* memory) const {
    using V = RealElement<E>;
    const int64_t steps = shape.steps, block = n * n, run = BlocksOfRun(n);
    const int64_t first_diagonal = i * steps * block, first_lower = i * shape.below() * block;
    BlockRun<E, T> blocks(memory, block, steps * block);
    BlockRun<E, T> others(memory + run * block, block, shape.below() * block);
    E* const before = memory + 2 * run * block;  // B of the step before this run, then its adjoint
    E* const adjoint = before + block;
    const E* previous = nullptr;
    FactorState<V> state;
    for (int64_t first = 0; first < steps; first += run) {
      const int64_t last = std::min(steps, first + run), last_lower = std::min(steps - 1, last);
      blocks.Load(diagonal + first_diagonal, first, last);
      others.Load(lower + first_lower, first, last_lower);
      for (int64_t t = first; t < last; ++t) {
        E* const l = blocks.At(t);
        state.Add(n, t, small::FactorDiagonalBlock(n, previous, adjoint, l), l);
        if (t + 1 == steps) break;
        E* const b = others.At(t);
        small::FactorLowerBlock(n, l, b, adjoint);
        previous = b;
      }
      blocks.Store(factor + first_diagonal, first, last);
      others.Store(below + first_lower, first, last_lower);
      if (last < steps) {
        std::copy_n(previous, block, before);
        previous = before;
      }
    }
    state.Store(n, logdet + i, info + i);
    if (!Any(state.failed())) return;
    // The first blocks of a system that failed later are finite.
    for (int64_t k = i; k < i + kLanesOf<V>; ++k) {
      if (info[k] == 0) continue;
      FillWithNaN(steps * block, factor + k * steps * block);
      FillWithNaN(shape.below() * block, below + k * shape.below() * block);
    }
  }
};

void Cholesky(ffi::ThreadPool pool, ffi::AnyBuffer diagonal, ffi::AnyBuffer lower, Result factor,
              Result below, Result logdet, Result info) {
  const Shape shape = ReadBlockTridiagonalShape(diagonal);
  const int64_t batch = shape.batch, steps = shape.steps, d = shape.d;
  DispatchDtype(diagonal.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(
        pool,
        CholeskyProblem<T>{
            .shape = shape,
            .diagonal = Elements<T>(diagonal, batch, {steps, d, d}, "diagonal"),
            .lower = Elements<T>(lower, batch, {shape.below(), d, d}, "lower"),
            .factor = ResultElements<T>(factor, batch, {steps, d, d}, "the factor's diagonal"),
            .below = ResultElements<T>(below, batch, {shape.below(), d, d}, "the factor's lower"),
            .logdet = Elements<Real<T>>(logdet, batch, {}, "logdet"),
            .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

// Factors of rank 3 are shared by the whole batch.
template <class T>
struct CholeskySolveProblem {
  Shape shape;
  bool shared;
  int64_t cols;
  bool forward, back;
  const T* factor;
  const T* below;
  const T* b;
  T* x;

  bool IsEmpty() const { return shape.IsEmpty() || cols == 0; }
  void RunEmpty() const {}

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const double d = static_cast<double>(shape.d);
    const double passes = (forward ? 1 : 0) + (back ? 1 : 0);
    if (!forward && !back) {
      std::copy_n(b, shape.batch * shape.steps * shape.d * cols, x);
      return;
    }
    DispatchSizes(shape.d, cols, [&](auto n, auto k) {
      const int64_t run = BlocksOfRun(n);
      const int64_t size = 2 * run * shape.block() + (run + 1) * n * cols;
      ForEachGroup<T>(pool, shape.batch, size * kPartsOf<T>,
                      GroupNanoseconds<T>(shape, passes * 2 * d * (d + static_cast<double>(cols)),
                                          passes * 1.5 * d * d * static_cast<double>(cols)),
                      [&]<class V>(int64_t i, V* registers) {
                        RunGroup(n, k, i, reinterpret_cast<Element<T, V>*>(registers));
                      });
    });
  }

 private:
  template <class E, class N, class M>
  void RunGroup(N n, M k, int64_t i, E* memory) const {
    const int64_t steps = shape.steps, block = n * n, run = BlocksOfRun(n), size = n * k;
    const int64_t stride = shared ? 0 : steps * block,
                  below_stride = shared ? 0 : shape.below() * block;
    BlockRun<E, T> diagonal(memory, block, stride);
    BlockRun<E, T> lower(memory + run * block, block, below_stride);
    BlockRun<E, T> columns(memory + 2 * run * block, size, steps * size);
    E* const before = memory + 2 * run * block + run * size;  // x of the neighbouring step
    const T* const l = factor + i * stride;
    const T* const below_l = below + i * below_stride;
    const int64_t offset = i * steps * size;
    const T* source = b;
    if (forward) {
      for (int64_t first = 0; first < steps; first += run) {
        const int64_t last = std::min(steps, first + run);
        const int64_t first_lower = std::max<int64_t>(first - 1, 0);  // block t - 1 is beside t
        diagonal.Load(l, first, last);
        lower.Load(below_l, first_lower, last - 1);
        columns.Load(b + offset, first, last);
        for (int64_t t = first; t < last; ++t) {
          E* const y = columns.At(t);
          if (t > 0) {
            small::AddProduct<false, false>(n, k, n, lower.At(t - 1), n, before, k, y, k);
          }
          small::SolveTriangle<false>(n, k, diagonal.At(t), y);
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
      diagonal.Load(l, first, last);
      lower.Load(below_l, first, last_lower);
      columns.Load(source + offset, first, last);
      for (int64_t t = last - 1; t >= first; --t) {
        E* const y = columns.At(t);
        if (t + 1 < steps) {
          small::AddProduct<false, true>(n, k, n, lower.At(t), n, before, k, y, k);
        }
        small::SolveTriangle<true>(n, k, diagonal.At(t), y);
        std::copy_n(y, size, before);
      }
      columns.Store(x + offset, first, last);
      last = first;
    }
  }
};

void CholeskySolve(ffi::ThreadPool pool, ffi::AnyBuffer factor, ffi::AnyBuffer below,
                   ffi::AnyBuffer b, Result x, bool forward, bool back) {
  Shape shape = ReadBlockTridiagonalShape(factor);
  const bool shared = factor.dimensions().size() == 3;
  const int64_t cols = SplitBatch(b, 3, "b").cols, batch = SplitBatch(b, 3, "b").batch;
  if (!shared && shape.batch != batch) throw BadArgument("b", "have the batch size of the factor");
  const int64_t factors = shape.batch, steps = shape.steps, d = shape.d;
  shape.batch = batch;
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool,
              CholeskySolveProblem<T>{
                  .shape = shape,
                  .shared = shared,
                  .cols = cols,
                  .forward = forward,
                  .back = back,
                  .factor = Elements<T>(factor, factors, {steps, d, d}, "the factor's diagonal"),
                  .below = Elements<T>(below, factors, {shape.below(), d, d}, "the factor's lower"),
                  .b = Elements<T>(b, batch, {steps, d, cols}, "b"),
                  .x = ResultElements<T>(x, batch, {steps, d, cols}, "x")});
  });
}

// Factors and solves in one pass. The factors stay in lanes.
template <class T>
struct SolveLogdetProblem {
  Shape shape;
  int64_t cols;
  const T* diagonal;
  const T* lower;
  const T* b;
  T* x;
  Real<T>* logdet;
  int32_t* info;

  bool IsEmpty() const { return shape.IsEmpty(); }
  void RunEmpty() const {
    std::fill_n(logdet, shape.batch, Real<T>(0));
    std::fill_n(info, shape.batch, 0);
  }

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const double d = static_cast<double>(shape.d), count = static_cast<double>(cols);
    const int64_t size = (2 * shape.steps + 1) * shape.block() + (shape.steps + 1) * shape.d * cols;
    DispatchSizes(shape.d, cols, [&](auto n, auto k) {
      ForEachGroup<T>(
          pool, shape.batch, size * kPartsOf<T>,
          GroupNanoseconds<T>(shape, 2 * d * (d + count), 2 * d * d * (d + count)),
          [&]<class V>(int64_t i, V* registers) {
            RunGroup(n, k, i, reinterpret_cast<Element<T, V>*>(registers));
          },
          // The second-level cache holds the factors of most groups of full width.
          /*in_place=*/false, kWideGroupBytes + size * kPartsOf<T> * kRegisterBytes);
    });
  }

 private:
  template <class E, class N, class M>
  void RunGroup(N n, M k, int64_t i, E* memory) const {
    using V = RealElement<E>;
    const int64_t steps = shape.steps, below = shape.below(), block = n * n, size = n * k;
    const int64_t run = BlocksOfRun(n);
    E* const l = memory;
    E* const b_of_l = l + steps * block;
    E* const adjoint = b_of_l + steps * block;
    E* const y = adjoint + block;
    FactorState<V> state;
    for (int64_t first = 0; first < steps; first += run) {
      const int64_t last = std::min(steps, first + run), last_lower = std::min(below, last);
      const auto load = [&](const T* source, int64_t count, int64_t end, int64_t each, E* target) {
        LoadElements(source + (i * count + first) * each, count * each, (end - first) * each,
                     target + first * each);
      };
      load(diagonal, steps, last, block, l);
      if (first < last_lower) load(lower, below, last_lower, block, b_of_l);
      load(b, steps, last, size, y);
      for (int64_t t = first; t < last; ++t) {
        const E* const previous = t > 0 ? b_of_l + (t - 1) * block : nullptr;
        E* const own = l + t * block;
        state.Add(n, t, small::FactorDiagonalBlock(n, previous, adjoint, own), own);
        if (t > 0) {
          small::AddProduct<false, false>(n, k, n, previous, n, y + (t - 1) * size, k, y + t * size,
                                          k);
        }
        small::SolveTriangle<false>(n, k, own, y + t * size);
        if (t < below) small::FactorLowerBlock(n, own, b_of_l + t * block, adjoint);
      }
    }
    for (int64_t t = steps - 1; t >= 0; --t) {
      E* const own = y + t * size;
      if (t < below) {
        small::AddProduct<false, true>(n, k, n, b_of_l + t * block, n, own + size, k, own, k);
      }
      small::SolveTriangle<true>(n, k, l + t * block, own);
      if (t % run == 0) {
        const int64_t count = std::min(steps - t, run) * size;
        StoreElements(own, count, steps * size, x + (i * steps + t) * size);
      }
    }
    state.Store(n, logdet + i, info + i);
    if (!Any(state.failed())) return;
    for (int64_t system = i; system < i + kLanesOf<V>; ++system) {
      if (info[system] != 0) FillWithNaN(steps * size, x + system * steps * size);
    }
  }
};

void SolveLogdet(ffi::ThreadPool pool, ffi::AnyBuffer diagonal, ffi::AnyBuffer lower,
                 ffi::AnyBuffer b, Result x, Result logdet, Result info) {
  const Shape shape = ReadBlockTridiagonalShape(diagonal);
  const int64_t batch = shape.batch, steps = shape.steps, d = shape.d;
  const int64_t cols = SplitBatch(b, 3, "b").cols;
  DispatchDtype(diagonal.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool, SolveLogdetProblem<T>{
                        .shape = shape,
                        .cols = cols,
                        .diagonal = Elements<T>(diagonal, batch, {steps, d, d}, "diagonal"),
                        .lower = Elements<T>(lower, batch, {shape.below(), d, d}, "lower"),
                        .b = Elements<T>(b, batch, {steps, d, cols}, "b"),
                        .x = ResultElements<T>(x, batch, {steps, d, cols}, "x"),
                        .logdet = Elements<Real<T>>(logdet, batch, {}, "logdet"),
                        .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

template <class T>
struct InverseBlocksProblem {
  Shape shape;
  const T* factor;
  const T* below;
  T* diagonal;
  T* lower;

  bool IsEmpty() const { return shape.IsEmpty(); }
  void RunEmpty() const {}

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const double d = static_cast<double>(shape.d);
    DispatchSize(shape.d, [&](auto n) {
      const int64_t run = BlocksOfRun(n);
      ForEachGroup<T>(pool, shape.batch, (2 * run + 4) * shape.block() * kPartsOf<T>,
                      GroupNanoseconds<T>(shape, 4 * d * d, 4 * d * d * d),
                      [&]<class V>(int64_t i, V* registers) {
                        RunGroup(n, i, reinterpret_cast<Element<T, V>*>(registers));
                      });
    });
  }

 private:
  template <class E, class N>
  void RunGroup(N n, int64_t i, E* memory) const {
    const int64_t steps = shape.steps, block = n * n, run = BlocksOfRun(n);
    const int64_t first_diagonal = i * steps * block, first_lower = i * shape.below() * block;
    BlockRun<E, T> blocks(memory, block, steps * block);
    BlockRun<E, T> others(memory + run * block, block, shape.below() * block);
    E* const inverse = memory + 2 * run * block;
    E* const work = inverse + block;
    for (int64_t last = steps; last > 0;) {
      const int64_t first = std::max<int64_t>(last - run, 0),
                    last_lower = std::min(last, steps - 1);
      blocks.Load(factor + first_diagonal, first, last);
      others.Load(below + first_lower, first, last_lower);
      for (int64_t t = last - 1; t >= first; --t) {
        E* const l = blocks.At(t);
        small::InverseBlocksStep(n, l, t + 1 < steps ? others.At(t) : nullptr, inverse, work);
        std::copy_n(inverse, block, l);
      }
      blocks.Store(diagonal + first_diagonal, first, last);
      others.Store(lower + first_lower, first, last_lower);
      last = first;
    }
  }
};

void InverseBlocks(ffi::ThreadPool pool, ffi::AnyBuffer factor, ffi::AnyBuffer below,
                   Result diagonal, Result lower) {
  const Shape shape = ReadBlockTridiagonalShape(factor);
  const int64_t batch = shape.batch, steps = shape.steps, d = shape.d;
  DispatchDtype(factor.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool,
              InverseBlocksProblem<T>{
                  .shape = shape,
                  .factor = Elements<T>(factor, batch, {steps, d, d}, "the factor's diagonal"),
                  .below = Elements<T>(below, batch, {shape.below(), d, d}, "the factor's lower"),
                  .diagonal = ResultElements<T>(diagonal, batch, {steps, d, d}, "diagonal"),
                  .lower = ResultElements<T>(lower, batch, {shape.below(), d, d}, "lower")});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_block_tridiagonal_cholesky, linalg::Cholesky);
LINALG_CPU_HANDLER(linalg_block_tridiagonal_factor_solve, linalg::CholeskySolve);
LINALG_CPU_HANDLER(linalg_block_tridiagonal_inverse_blocks, linalg::InverseBlocks);
LINALG_CPU_HANDLER(linalg_block_tridiagonal_solve_logdet, linalg::SolveLogdet);
