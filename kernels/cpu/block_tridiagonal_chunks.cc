// Long positive definite block-tridiagonal systems in chunks, which lanes and threads share.
//
// One block after each chunk separates it from the next (Wang, A parallel method for tridiagonal
// equations, 1981). Chunks are eliminated side by side, then the separators in turn. L and B hold
// the blocks of the factor where A's blocks were. Beside a separator, B holds the blocks that
// couple it with the separator before. The fill holds L⁻¹ times the block on the left of each
// chunk.
#include <bit>
#include <vector>

#include "kernels/cpu/block_tridiagonal.h"
#include "kernels/cpu/handler.h"

namespace linalg {
namespace {

// The chunks of a system. linalg/structured/_partition.py has the same rule: it depends on the
// number of steps alone.
struct Chunks {
  explicit Chunks(int64_t steps)
      : steps(steps),
        width(1 + steps / (int64_t{1} << (std::bit_width(static_cast<uint64_t>(steps)) / 2))),
        full(steps / width),
        tail(steps - full * width) {}

  // The blocks of chunk i without its separator; the chunk after the full ones is the tail.
  int64_t inner(int64_t i) const { return i < full ? width - 1 : tail; }
  int64_t separator(int64_t i) const { return i * width + width - 1; }

  int64_t steps, width, full, tail;
};

// Calls run.template operator()<V>(chunk, memory) for groups of full chunks, then for the tail.
template <class T, class Run>
void ForEachChunk(ffi::ThreadPool& pool, const Chunks& chunks, int64_t size, double nanoseconds,
                  Run&& run, bool in_place = false) {
  ForEachGroup<T>(pool, chunks.full, size * kPartsOf<T>, nanoseconds, run, in_place);
  if (chunks.tail == 0) return;
  const SubnormalNumbers subnormal_numbers;
  const Registers<Real<T>> memory(size * kPartsOf<T>);
  run.template operator()<Real<T>>(chunks.full, memory.get());
}

// The block before each of a group of chunks, in a stack of `count` elements a step: zero for the
// first chunk.
template <class E, class T>
void LoadBefore(const Chunks& chunks, int64_t i, const T* source, int64_t count, E* target) {
  using V = RealElement<E>;
  const int64_t parts = count * kPartsOf<T>;
  auto* const to = reinterpret_cast<Lane<V>*>(target);
  const auto* const from = reinterpret_cast<const Real<T>*>(source);
  for (int lane = 0; lane < kLanesOf<V>; ++lane) {
    const int64_t chunk = i + lane;
    for (int64_t k = 0; k < parts; ++k) {
      to[k * kLanesOf<V> + lane] =
          chunk == 0 ? Real<T>(0) : from[(chunk * chunks.width - 1) * parts + k];
    }
  }
}

template <class T>
struct FactorProblem {
  BlockTridiagonalShape shape;
  const T* diagonal;
  const T* lower;
  T* factor;
  T* below;
  T* fill;
  Real<T>* logdet;
  int32_t* info;

  bool IsEmpty() const { return shape.IsEmpty(); }
  void RunEmpty() const {
    std::fill_n(logdet, shape.batch, Real<T>(0));
    std::fill_n(info, shape.batch, 0);
  }

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    DispatchSize(shape.d, [&](auto n) {
      for (int64_t system = 0; system < shape.batch; ++system) RunSystem(pool, n, system);
    });
  }

 private:
  // The results of a system's chunks that its separators need.
  struct Work {
    std::vector<T> gram, cross;
    std::vector<Real<T>> logdet;
    std::vector<int32_t> info;
  };

  template <class N>
  void RunSystem(ffi::ThreadPool& pool, N n, int64_t system) const {
    const Chunks chunks(shape.steps);
    const int64_t block = n * n, run = BlocksOfRun(n), count = chunks.full + 1;
    Work work{.gram = std::vector<T>(count * block),
              .cross = std::vector<T>(count * block),
              .logdet = std::vector<Real<T>>(count),
              .info = std::vector<int32_t>(count)};
    const double d = static_cast<double>(n), inner = static_cast<double>(chunks.width);
    constexpr int64_t kParts = kPartsOf<T>;
    ForEachChunk<T>(pool, chunks, (3 * run + 5) * block,
                    SmallNanoseconds(kLanes<T>, static_cast<int64_t>(5 * d * d * inner) * kParts,
                                     5 * d * d * d * inner * kParts * kParts),
                    [&]<class V>(int64_t i, V* registers) {
                      RunChunks(n, chunks, system, i, work,
                                reinterpret_cast<Element<T, V>*>(registers));
                    });
    const SubnormalNumbers subnormal_numbers;
    RunSeparators(n, chunks, system, work);
    if (info[system] != 0) {
      FillWithNaN(shape.steps * block, factor + system * shape.steps * block);
      FillWithNaN(shape.below() * block, below + system * shape.below() * block);
      FillWithNaN(shape.steps * block, fill + system * shape.steps * block);
    }
  }

  template <class E, class N>
  void RunChunks(N n, const Chunks& chunks, int64_t system, int64_t i, Work& work,
                 E* memory) const {
    using V = RealElement<E>;
    const int64_t block = n * n, run = BlocksOfRun(n), stride = chunks.width * block;
    const int64_t inner = chunks.inner(i), coupled = i < chunks.full ? inner : inner - 1;
    const int64_t offset = system * shape.steps * block + i * stride;
    const int64_t below_offset = system * shape.below() * block + i * stride;
    BlockRun<E, T> blocks(memory, block, stride);
    BlockRun<E, T> others(memory + run * block, block, stride);
    BlockRun<E, T> fills(memory + 2 * run * block, block, stride);
    E* const before = memory + 3 * run * block;
    E* const adjoint = before + block;
    E* const y = adjoint + block;  // the fill of the step before
    E* const gram = y + block;
    E* const cross = gram + block;
    LoadBefore(chunks, i, lower + system * shape.below() * block, block, y);
    std::fill_n(gram, block, E{});
    FactorState<V> state;
    const E* previous = nullptr;
    for (int64_t first = 0; first < inner; first += run) {
      const int64_t last = std::min(inner, first + run), last_lower = std::min(coupled, last);
      blocks.Load(diagonal + offset, first, last);
      others.Load(lower + below_offset, first, last_lower);
      fills.Begin(first);
      for (int64_t t = first; t < last; ++t) {
        E* const l = blocks.At(t);
        E* const own = fills.At(t);
        state.Add(n, t, small::FactorDiagonalBlock(n, previous, adjoint, l), l);
        if (previous == nullptr) {
          std::copy_n(y, block, own);
        } else {
          std::fill_n(own, block, E{});
          small::AddProduct<false, false>(n, n, n, previous, n, y, n, own, n);
        }
        small::SolveTriangle<false>(n, n, l, own);
        small::AddProduct<true, true>(n, n, n, own, n, own, n, gram, n);
        std::copy_n(own, block, y);
        if (t == coupled) break;
        E* const b = others.At(t);
        small::FactorLowerBlock(n, l, b, adjoint);
        previous = b;
      }
      blocks.Store(factor + offset, first, last);
      others.Store(below + below_offset, first, last_lower);
      fills.Store(fill + offset, first, last);
      if (previous != nullptr) {
        std::copy_n(previous, block, before);
        previous = before;
      }
    }
    std::fill_n(cross, block, E{});
    if (coupled == inner) {
      small::AddProduct<false, false>(n, n, n, previous, n, y, n, cross, n);
    }
    StoreElements(gram, block, work.gram.data() + i * block);
    StoreElements(cross, block, work.cross.data() + i * block);
    state.Store(n, work.logdet.data() + i, work.info.data() + i);
  }

  template <class N>
  void RunSeparators(N n, const Chunks& chunks, int64_t system, const Work& work) const {
    using E = Element<T>;
    const int64_t block = n * n, offset = system * shape.steps * block;
    const auto elements = [](auto* x) { return reinterpret_cast<E*>(const_cast<T*>(x)); };
    const E* const a = elements(diagonal + offset);
    E* const l = elements(factor + offset);
    E* const b = elements(below + system * shape.below() * block);
    E* const y = elements(fill + offset);
    FactorState<RealElement<E>> state;
    std::vector<E> adjoint(2 * block);
    E* const coupling = adjoint.data();
    E* const other = coupling + block;
    int32_t failed = 0;
    int64_t failed_chunk = 0;
    Real<T> total = 0;
    for (int64_t q = 0; q <= chunks.full; ++q) {
      if (q == chunks.full && chunks.tail == 0) break;
      total += work.logdet[q];
      if (failed == 0 && work.info[q] != 0) {
        failed = static_cast<int32_t>(q * chunks.width * n + work.info[q]);
        failed_chunk = q;
      }
    }
    for (int64_t chunk = 0; chunk < chunks.full; ++chunk) {
      const int64_t s = chunks.separator(chunk);
      E* const own = l + s * block;
      std::copy_n(a + s * block, block, own);
      small::AdjointTo(n, b + (s - 1) * block, other);
      small::AddProduct<false, false>(n, n, n, b + (s - 1) * block, n, other, n, own, n);
      const E* const gram = elements(work.gram.data() + (chunk + 1) * block);
      for (int64_t k = 0; k < block; ++k) own[k] = own[k] - gram[k];
      E* previous = nullptr;
      if (chunk > 0) {
        previous = b + (s - chunks.width) * block;
        std::copy_n(elements(work.cross.data() + chunk * block), block, previous);
        small::FactorLowerBlock(n, l + (s - chunks.width) * block, previous, coupling);
      }
      state.Add(n, s, small::FactorDiagonalBlock(n, previous, coupling, own), own);
      std::fill_n(y + s * block, block, E{});
    }
    // No separator follows the last one.
    const int64_t last = chunks.separator(chunks.full - 1);
    if (chunks.full > 0 && last + 1 < shape.steps) std::fill_n(b + last * block, block, E{});
    state.Store(n, logdet + system, info + system);
    logdet[system] += total;
    if (failed != 0) {
      // A chunk that fails spoils the separators from the one before it on.
      const int32_t row = info[system];
      const bool is_first = row > 0 && (row - 1) / n / chunks.width + 1 < failed_chunk;
      if (!is_first) info[system] = failed;
      logdet[system] = NaN<Real<T>>();
    }
  }
};

void Factor(ffi::ThreadPool pool, ffi::AnyBuffer diagonal, ffi::AnyBuffer lower, Result factor,
            Result below, Result fill, Result logdet, Result info) {
  const BlockTridiagonalShape shape = ReadBlockTridiagonalShape(diagonal);
  const int64_t batch = shape.batch, steps = shape.steps, d = shape.d;
  DispatchDtype(diagonal.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(
        pool,
        FactorProblem<T>{
            .shape = shape,
            .diagonal = Elements<T>(diagonal, batch, {steps, d, d}, "diagonal"),
            .lower = Elements<T>(lower, batch, {shape.below(), d, d}, "lower"),
            .factor = ResultElements<T>(factor, batch, {steps, d, d}, "the factor's diagonal"),
            .below = ResultElements<T>(below, batch, {shape.below(), d, d}, "the factor's lower"),
            .fill = ResultElements<T>(fill, batch, {steps, d, d}, "the fill"),
            .logdet = Elements<Real<T>>(logdet, batch, {}, "logdet"),
            .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

template <class T>
struct SolveProblem {
  BlockTridiagonalShape shape;
  bool shared;
  int64_t cols;
  bool forward, back;
  const T* factor;
  const T* below;
  const T* fill;
  const T* b;
  T* x;

  bool IsEmpty() const { return shape.IsEmpty() || cols == 0; }
  void RunEmpty() const {}

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    DispatchSizes(shape.d, cols, [&](auto n, auto k) {
      for (int64_t system = 0; system < shape.batch; ++system) RunSystem(pool, n, k, system);
    });
  }

 private:
  template <class N, class M>
  void RunSystem(ffi::ThreadPool& pool, N n, M k, int64_t system) const {
    const Chunks chunks(shape.steps);
    const int64_t block = n * n, size = n * k, run = BlocksOfRun(n);
    const double d = static_cast<double>(n), inner = static_cast<double>(chunks.width);
    constexpr int64_t kParts = kPartsOf<T>;
    const int64_t memory = 3 * run * block + (run + 3) * size;
    const double nanoseconds =
        SmallNanoseconds(kLanes<T>, static_cast<int64_t>((3 * d * d + 2 * d * k) * inner) * kParts,
                         2.5 * d * d * k * inner * kParts * kParts);
    const T* source = b + system * shape.steps * size;
    T* const target = x + system * shape.steps * size;
    if (forward) {
      std::vector<T> sums((chunks.full + 1) * size);
      ForEachChunk<T>(pool, chunks, memory, nanoseconds, [&]<class V>(int64_t i, V* registers) {
        Forward(n, k, chunks, system, i, source, target, sums.data(),
                reinterpret_cast<Element<T, V>*>(registers));
      });
      const SubnormalNumbers subnormal_numbers;
      ForwardSeparators(n, k, chunks, system, source, target, sums.data());
      source = target;
    }
    if (!back) {
      if (!forward) std::copy_n(source, shape.steps * size, target);
      return;
    }
    {
      const SubnormalNumbers subnormal_numbers;
      BackSeparators(n, k, chunks, system, source, target);
    }
    ForEachChunk<T>(
        pool, chunks, memory, nanoseconds,
        [&]<class V>(int64_t i, V* registers) {
          Back(n, k, chunks, system, i, source, target,
               reinterpret_cast<Element<T, V>*>(registers));
        },
        /*in_place=*/source == target);
  }

  const T* Factor(int64_t system) const {
    return factor + (shared ? 0 : system * shape.steps * shape.block());
  }
  const T* Below(int64_t system) const {
    return below + (shared ? 0 : system * shape.below() * shape.block());
  }
  const T* Fill(int64_t system) const {
    return fill + (shared ? 0 : system * shape.steps * shape.block());
  }

  template <class E, class N, class M>
  void Forward(N n, M k, const Chunks& chunks, int64_t system, int64_t i, const T* source,
               T* target, T* sums, E* memory) const {
    const int64_t block = n * n, size = n * k, run = BlocksOfRun(n);
    const int64_t stride = chunks.width * block, inner = chunks.inner(i);
    BlockRun<E, T> diagonal(memory, block, stride);
    BlockRun<E, T> lower(memory + run * block, block, stride);
    BlockRun<E, T> fills(memory + 2 * run * block, block, stride);
    BlockRun<E, T> columns(memory + 3 * run * block, size, chunks.width * size);
    E* const before = memory + 3 * run * block + run * size;
    E* const sum = before + size;
    std::fill_n(sum, size, E{});
    const int64_t at = i * stride, column = i * chunks.width * size;
    for (int64_t first = 0; first < inner; first += run) {
      const int64_t last = std::min(inner, first + run);
      diagonal.Load(Factor(system) + at, first, last);
      lower.Load(Below(system) + at, std::max<int64_t>(first - 1, 0), last - 1);
      fills.Load(Fill(system) + at, first, last);
      columns.Load(source + column, first, last);
      for (int64_t t = first; t < last; ++t) {
        E* const y = columns.At(t);
        if (t > 0) small::AddProduct<false, false>(n, k, n, lower.At(t - 1), n, before, k, y, k);
        small::SolveTriangle<false>(n, k, diagonal.At(t), y);
        small::AddProduct<true, true>(n, k, n, fills.At(t), n, y, k, sum, k);
        std::copy_n(y, size, before);
      }
      columns.Store(target + column, first, last);
    }
    StoreElements(sum, size, sums + i * size);
  }

  template <class E, class N, class M>
  void Back(N n, M k, const Chunks& chunks, int64_t system, int64_t i, const T* source, T* target,
            E* memory) const {
    const int64_t block = n * n, size = n * k, run = BlocksOfRun(n);
    const int64_t stride = chunks.width * block, inner = chunks.inner(i);
    const int64_t coupled = i < chunks.full ? inner : inner - 1;
    BlockRun<E, T> diagonal(memory, block, stride);
    BlockRun<E, T> lower(memory + run * block, block, stride);
    BlockRun<E, T> fills(memory + 2 * run * block, block, stride);
    BlockRun<E, T> columns(memory + 3 * run * block, size, chunks.width * size);
    E* const after = memory + 3 * run * block + run * size;
    E* const left = after + size;
    const int64_t at = i * stride, column = i * chunks.width * size;
    LoadBefore(chunks, i, target, size, left);
    if (coupled == inner) {
      LoadElements(target + column + inner * size, chunks.width * size, size, after);
    }
    for (int64_t last = inner; last > 0;) {
      const int64_t first = std::max<int64_t>(last - run, 0);
      diagonal.Load(Factor(system) + at, first, last);
      lower.Load(Below(system) + at, first, std::min(coupled, last));
      fills.Load(Fill(system) + at, first, last);
      columns.Load(source + column, first, last);
      for (int64_t t = last - 1; t >= first; --t) {
        E* const y = columns.At(t);
        small::AddProduct<false, false>(n, k, n, fills.At(t), n, left, k, y, k);
        if (t < coupled) small::AddProduct<false, true>(n, k, n, lower.At(t), n, after, k, y, k);
        small::SolveTriangle<true>(n, k, diagonal.At(t), y);
        std::copy_n(y, size, after);
      }
      columns.Store(target + column, first, last);
      last = first;
    }
  }

  template <class N, class M>
  void ForwardSeparators(N n, M k, const Chunks& chunks, int64_t system, const T* source, T* target,
                         const T* sums) const {
    using E = Element<T>;
    const int64_t block = n * n, size = n * k;
    const auto elements = [](auto* x) { return reinterpret_cast<E*>(const_cast<T*>(x)); };
    const E* const l = elements(Factor(system));
    const E* const b_of_l = elements(Below(system));
    E* const y = elements(target);
    for (int64_t chunk = 0; chunk < chunks.full; ++chunk) {
      const int64_t s = chunks.separator(chunk);
      E* const own = y + s * size;
      std::copy_n(elements(source) + s * size, size, own);
      small::AddProduct<false, false>(n, k, n, b_of_l + (s - 1) * block, n, own - size, k, own, k);
      const E* const sum = elements(sums + (chunk + 1) * size);
      for (int64_t j = 0; j < size; ++j) own[j] = own[j] - sum[j];
      if (chunk > 0) {
        small::AddProduct<false, false>(n, k, n, b_of_l + (s - chunks.width) * block, n,
                                        own - chunks.width * size, k, own, k);
      }
      small::SolveTriangle<false>(n, k, l + s * block, own);
    }
  }

  template <class N, class M>
  void BackSeparators(N n, M k, const Chunks& chunks, int64_t system, const T* source,
                      T* target) const {
    using E = Element<T>;
    const int64_t block = n * n, size = n * k;
    const auto elements = [](auto* x) { return reinterpret_cast<E*>(const_cast<T*>(x)); };
    const E* const l = elements(Factor(system));
    const E* const b_of_l = elements(Below(system));
    E* const y = elements(target);
    for (int64_t chunk = chunks.full - 1; chunk >= 0; --chunk) {
      const int64_t s = chunks.separator(chunk);
      E* const own = y + s * size;
      if (source != target) std::copy_n(elements(source) + s * size, size, own);
      if (chunk + 1 < chunks.full) {
        small::AddProduct<false, true>(n, k, n, b_of_l + s * block, n, own + chunks.width * size, k,
                                       own, k);
      }
      small::SolveTriangle<true>(n, k, l + s * block, own);
    }
  }
};

void Solve(ffi::ThreadPool pool, ffi::AnyBuffer factor, ffi::AnyBuffer below, ffi::AnyBuffer fill,
           ffi::AnyBuffer b, Result x, bool forward, bool back) {
  BlockTridiagonalShape shape = ReadBlockTridiagonalShape(factor);
  const bool shared = factor.dimensions().size() == 3;
  const int64_t cols = SplitBatch(b, 3, "b").cols, batch = SplitBatch(b, 3, "b").batch;
  if (!shared && shape.batch != batch) throw BadArgument("b", "have the batch size of the factor");
  const int64_t factors = shape.batch, steps = shape.steps, d = shape.d;
  shape.batch = batch;
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool,
              SolveProblem<T>{
                  .shape = shape,
                  .shared = shared,
                  .cols = cols,
                  .forward = forward,
                  .back = back,
                  .factor = Elements<T>(factor, factors, {steps, d, d}, "the factor's diagonal"),
                  .below = Elements<T>(below, factors, {shape.below(), d, d}, "the factor's lower"),
                  .fill = Elements<T>(fill, factors, {steps, d, d}, "the fill"),
                  .b = Elements<T>(b, batch, {steps, d, cols}, "b"),
                  .x = ResultElements<T>(x, batch, {steps, d, cols}, "x")});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_block_tridiagonal_chunks, linalg::Factor);
LINALG_CPU_HANDLER(linalg_block_tridiagonal_chunks_solve, linalg::Solve);
