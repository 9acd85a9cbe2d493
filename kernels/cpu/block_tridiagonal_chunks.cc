// Long positive definite block-tridiagonal systems in chunks, which lanes and threads share.
//
// One block after each chunk separates it from the next (Wang, A parallel method for tridiagonal
// equations, 1981). Chunks are eliminated side by side, then the separators in turn. L and B hold
// the blocks of the factor where A's blocks were. Beside a separator, B holds the blocks that
// couple it with the separator before. The fill holds L⁻¹ times the block on the left of each
// chunk.
#include <vector>

#include "kernels/cpu/block_tridiagonal.h"
#include "kernels/cpu/handler.h"

namespace linalg {
namespace {

// The chunks of a system.
struct Chunks {
  explicit Chunks(int64_t steps)
      : steps(steps), width(ChunkWidth(steps)), full(steps / width), tail(steps - full * width) {}

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
  TridiagonalBlocks<T> a;
  BlockResults<T> factor;
  T* fill;
  DeterminantResults<T> results;

  void RunEmpty() const { results.Clear(shape.batch); }
  void Run(ffi::ThreadPool& pool) const {
    DispatchSizes<T>(shape.d, 1, [&](auto n, auto) {
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
    ForEachChunk<T>(pool, chunks, (3 * run + 5) * block + n,
                    SmallNanoseconds(kLanes<T>, static_cast<int64_t>(5 * d * d * inner) * kParts,
                                     5 * d * d * d * inner * kParts * kParts),
                    [&]<class V>(int64_t i, V* registers) {
                      RunChunks(SizeInLanes<T, V, false>(n), chunks, system, i, work,
                                reinterpret_cast<Element<T, V>*>(registers));
                    });
    const SubnormalNumbers subnormal_numbers;
    RunSeparators(n, chunks, system, work);
    if (results.info[system] != 0) {
      factor.Fail(system);
      FillWithNaN(shape.steps * block, fill + system * shape.steps * block);
    }
  }

  template <class E, class N>
  void RunChunks(N n, const Chunks& chunks, int64_t system, int64_t i, Work& work,
                 E* memory) const {
    using V = RealElement<E>;
    const int64_t block = n * n, run = BlocksOfRun(n), stride = chunks.width * block;
    const int64_t inner = chunks.inner(i), coupled = i < chunks.full ? inner : inner - 1;
    T* const fill_of_system = fill + system * shape.steps * block;
    BlockRun<E, T> blocks(memory, block, stride);
    BlockRun<E, T> others(memory + run * block, block, stride);
    BlockRun<E, T> fills(memory + 2 * run * block, block, stride);
    E* const before = memory + 3 * run * block;
    E* const adjoint = before + block;
    E* const y = adjoint + block;  // the fill of the step before
    E* const gram = y + block;
    E* const cross = gram + block;
    V* const reciprocals = reinterpret_cast<V*>(cross + block);
    LoadBefore(chunks, i, a.Lower(system), block, y);
    std::fill_n(gram, block, E{});
    FactorState<V> state;
    const E* previous = nullptr;
    for (int64_t first = 0; first < inner; first += run) {
      const int64_t last = std::min(inner, first + run), last_lower = std::min(coupled, last);
      blocks.Load(a.Diagonal(system) + i * stride, first, last);
      others.Load(a.Lower(system) + i * stride, first, last_lower);
      fills.Begin(first);
      for (int64_t t = first; t < last; ++t) {
        E* const l = blocks.At(t);
        E* const own = fills.At(t);
        const E* const beside = previous == nullptr ? nullptr : adjoint;
        state.Add(n, t, small::FactorDiagonal(n, beside, l, reciprocals), l);
        small::ClearUpper(n, l);
        if (previous == nullptr) {
          std::copy_n(y, block, own);
        } else {
          std::fill_n(own, block, E{});
          small::AddProduct<false, false>(n, n, n, previous, n, y, n, own, n);
        }
        small::SolveTriangle<false>(n, n, l, reciprocals, own);
        small::AddProduct<true, true>(n, n, n, own, n, own, n, gram, n);
        std::copy_n(own, block, y);
        if (t == coupled) break;
        E* const b = others.At(t);
        small::FactorLowerBlock(n, l, reciprocals, b, adjoint);
        previous = b;
      }
      blocks.Store(factor.Diagonal(system) + i * stride, first, last);
      others.Store(factor.Lower(system) + i * stride, first, last_lower);
      fills.Store(fill_of_system + i * stride, first, last);
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

  void RunSeparators(int n, const Chunks& chunks, int64_t system, const Work& work) const {
    using E = Element<T>;
    const int64_t block = n * n;
    const auto elements = [](auto* x) { return reinterpret_cast<E*>(const_cast<T*>(x)); };
    const E* const diagonal = elements(a.Diagonal(system));
    E* const l = elements(factor.Diagonal(system));
    E* const b = elements(factor.Lower(system));
    E* const y = elements(fill + system * shape.steps * block);
    Real<T>& logdet = results.logdet[system];
    int32_t& info = results.info[system];
    FactorState<RealElement<E>> state;
    std::vector<E> work_of_blocks(2 * block + n);
    E* const coupling = work_of_blocks.data();
    E* const other = coupling + block;
    // The values belong to the separator before, until its own follow.
    auto* const reciprocals = reinterpret_cast<RealElement<E>*>(other + block);
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
      std::copy_n(diagonal + s * block, block, own);
      small::AdjointTo(n, b + (s - 1) * block, other);
      small::AddProduct<false, false>(n, n, n, b + (s - 1) * block, n, other, n, own, n);
      const E* const gram = elements(work.gram.data() + (chunk + 1) * block);
      for (int64_t k = 0; k < block; ++k) own[k] = own[k] - gram[k];
      E* previous = nullptr;
      if (chunk > 0) {
        previous = b + (s - chunks.width) * block;
        std::copy_n(elements(work.cross.data() + chunk * block), block, previous);
        small::FactorLowerBlock(n, l + (s - chunks.width) * block, reciprocals, previous, coupling);
      }
      const E* const beside = previous == nullptr ? nullptr : coupling;
      state.Add(n, s, small::FactorDiagonal(n, beside, own, reciprocals), own);
      small::ClearUpper(n, own);
      std::fill_n(y + s * block, block, E{});
    }
    // No separator follows the last one.
    const int64_t last = chunks.separator(chunks.full - 1);
    if (chunks.full > 0 && last + 1 < shape.steps) std::fill_n(b + last * block, block, E{});
    state.Store(n, &logdet, &info);
    logdet += total;
    if (failed != 0) {
      // A chunk that fails spoils the separators from the one before it on.
      const int32_t row = info;
      const bool is_first = row > 0 && (row - 1) / n / chunks.width + 1 < failed_chunk;
      if (!is_first) info = failed;
      logdet = NaN<Real<T>>();
    }
  }
};

void Factor(ffi::ThreadPool pool, ffi::AnyBuffer diagonal, ffi::AnyBuffer lower, Result factor,
            Result below, Result fill, Result logdet, Result info) {
  const BlockTridiagonalShape shape = ReadBlockTridiagonalShape(diagonal);
  const int64_t batch = shape.batch, d = shape.d;
  DispatchDtype(diagonal.element_type(), [&]<class T>(std::type_identity<T>) {
    RunSystems<T>(pool, FactorProblem<T>{
                            .shape = shape,
                            .a = ReadBlocks<T>(shape, diagonal, lower),
                            .factor = ReadBlockResults<T>(shape, factor, below),
                            .fill = ResultElements<T>(fill, batch, {shape.steps, d, d}, "the fill"),
                            .results = ReadDeterminants<T>(batch, logdet, info)});
  });
}

template <class T>
struct SolveProblem {
  BlockTridiagonalShape shape;
  TridiagonalBlocks<T> factor;
  const T* fill;
  int64_t cols;
  bool forward, back;
  const T* b;
  T* x;

  void Run(ffi::ThreadPool& pool) const {
    DispatchSizes<T>(shape.d, cols, [&](auto n, auto k) {
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
    const int64_t memory = 3 * run * block + (run + 3) * size + n;
    const double nanoseconds =
        SmallNanoseconds(kLanes<T>, static_cast<int64_t>((3 * d * d + 2 * d * k) * inner) * kParts,
                         2.5 * d * d * k * inner * kParts * kParts);
    const T* source = b + system * shape.steps * size;
    T* const target = x + system * shape.steps * size;
    if (forward) {
      std::vector<T> sums((chunks.full + 1) * size);
      ForEachChunk<T>(pool, chunks, memory, nanoseconds, [&]<class V>(int64_t i, V* registers) {
        Forward(SizeInLanes<T, V, false>(n), SizeInLanes<T, V, false>(k), chunks, system, i, source,
                target, sums.data(), reinterpret_cast<Element<T, V>*>(registers));
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
          Back(SizeInLanes<T, V, false>(n), SizeInLanes<T, V, false>(k), chunks, system, i, source,
               target, reinterpret_cast<Element<T, V>*>(registers));
        },
        /*in_place=*/source == target);
  }

  const T* Fill(int64_t system) const { return fill + system * factor.stride(); }

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
    auto* const reciprocals = reinterpret_cast<RealElement<E>*>(sum + size);
    std::fill_n(sum, size, E{});
    const int64_t at = i * stride, column = i * chunks.width * size;
    for (int64_t first = 0; first < inner; first += run) {
      const int64_t last = std::min(inner, first + run);
      diagonal.Load(factor.Diagonal(system) + at, first, last);
      lower.Load(factor.Lower(system) + at, std::max<int64_t>(first - 1, 0), last - 1);
      fills.Load(Fill(system) + at, first, last);
      columns.Load(source + column, first, last);
      for (int64_t t = first; t < last; ++t) {
        E* const y = columns.At(t);
        if (t > 0) small::AddProduct<false, false>(n, k, n, lower.At(t - 1), n, before, k, y, k);
        small::SolveTriangleAlone<false>(n, k, diagonal.At(t), reciprocals, y);
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
    auto* const reciprocals = reinterpret_cast<RealElement<E>*>(left + size);
    const int64_t at = i * stride, column = i * chunks.width * size;
    LoadBefore(chunks, i, target, size, left);
    if (coupled == inner) {
      LoadElements(target + column + inner * size, chunks.width * size, size, after);
    }
    for (int64_t last = inner; last > 0;) {
      const int64_t first = std::max<int64_t>(last - run, 0);
      diagonal.Load(factor.Diagonal(system) + at, first, last);
      lower.Load(factor.Lower(system) + at, first, std::min(coupled, last));
      fills.Load(Fill(system) + at, first, last);
      columns.Load(source + column, first, last);
      for (int64_t t = last - 1; t >= first; --t) {
        E* const y = columns.At(t);
        small::AddProduct<false, false>(n, k, n, fills.At(t), n, left, k, y, k);
        if (t < coupled) small::AddProduct<false, true>(n, k, n, lower.At(t), n, after, k, y, k);
        small::SolveTriangleAlone<true>(n, k, diagonal.At(t), reciprocals, y);
        std::copy_n(y, size, after);
      }
      columns.Store(target + column, first, last);
      last = first;
    }
  }

  void ForwardSeparators(int n, int k, const Chunks& chunks, int64_t system, const T* source,
                         T* target, const T* sums) const {
    using E = Element<T>;
    const int64_t block = n * n, size = n * k;
    std::vector<RealElement<E>> work(n);
    auto* const reciprocals = work.data();
    const auto elements = [](auto* x) { return reinterpret_cast<E*>(const_cast<T*>(x)); };
    const E* const l = elements(factor.Diagonal(system));
    const E* const b_of_l = elements(factor.Lower(system));
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
      small::SolveTriangleAlone<false>(n, k, l + s * block, reciprocals, own);
    }
  }

  void BackSeparators(int n, int k, const Chunks& chunks, int64_t system, const T* source,
                      T* target) const {
    using E = Element<T>;
    const int64_t block = n * n, size = n * k;
    std::vector<RealElement<E>> work(n);
    auto* const reciprocals = work.data();
    const auto elements = [](auto* x) { return reinterpret_cast<E*>(const_cast<T*>(x)); };
    const E* const l = elements(factor.Diagonal(system));
    const E* const b_of_l = elements(factor.Lower(system));
    E* const y = elements(target);
    for (int64_t chunk = chunks.full - 1; chunk >= 0; --chunk) {
      const int64_t s = chunks.separator(chunk);
      E* const own = y + s * size;
      if (source != target) std::copy_n(elements(source) + s * size, size, own);
      if (chunk + 1 < chunks.full) {
        small::AddProduct<false, true>(n, k, n, b_of_l + s * block, n, own + chunks.width * size, k,
                                       own, k);
      }
      small::SolveTriangleAlone<true>(n, k, l + s * block, reciprocals, own);
    }
  }
};

void Solve(ffi::ThreadPool pool, ffi::AnyBuffer factor, ffi::AnyBuffer below, ffi::AnyBuffer fill,
           ffi::AnyBuffer b, Result x, bool forward, bool back) {
  const auto [shape, shared, cols] = ReadFactorShape(factor, b);
  const int64_t batch = shape.batch, steps = shape.steps, d = shape.d;
  const CoreShape core = {steps, d, cols};
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    RunSystems<T>(pool, SolveProblem<T>{.shape = shape,
                                        .factor = ReadBlocks<T>(shape, factor, below, shared),
                                        .fill = Elements<T>(fill, shared ? 1 : batch, {steps, d, d},
                                                            "the fill"),
                                        .cols = cols,
                                        .forward = forward,
                                        .back = back,
                                        .b = Elements<T>(b, batch, core, "b"),
                                        .x = ResultElements<T>(x, batch, core, "x")});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_block_tridiagonal_chunks, linalg::Factor);
LINALG_CPU_HANDLER(linalg_block_tridiagonal_chunks_solve, linalg::Solve);
