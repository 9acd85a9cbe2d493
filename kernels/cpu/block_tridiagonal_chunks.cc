// Long positive definite block-tridiagonal systems in chunks, which lanes and threads share.
//
// One block after each chunk separates it from the next (Wang, A parallel method for tridiagonal
// equations, 1981). Chunks are eliminated side by side, then the separators in turn. L and B hold
// the blocks of the factor where A's blocks were. Beside a separator, B holds the blocks that
// couple it with the separator before. The fill holds L⁻¹ times the block on the left of each
// chunk.
#include "kernels/cpu/block_tridiagonal_chunks.h"

#include <limits>
#include <vector>

#include "kernels/cpu/block_tridiagonal_factors.h"
#include "kernels/cpu/handler.h"

namespace linalg {
namespace {

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
    AddChunks(chunks, n, work.logdet, work.info, logdet, info);
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

template <class T>
struct ChunkElimination {
  TridiagonalBlocks<T> a;
  Chunks chunks;
  int64_t system;
  const T* b;
  bool conjugate;

  template <class E, class N, class M>
  void Run(N n, M k, int64_t i, ChunkSums<T>& work, E* memory) const {
    using V = RealElement<E>;
    const int64_t block = n * n, size = n * k, run = BlocksOfRun(n), stride = chunks.width * block;
    const int64_t inner = chunks.inner(i), coupled = i < chunks.full ? inner : inner - 1;
    BlockRun<E, T> blocks(memory, block, stride);
    BlockRun<E, T> others(memory + run * block, block, stride);
    BlockRun<E, T> columns(memory + 2 * run * block, size, chunks.width * size);
    E* fill = memory + 2 * run * block + run * size;  // L⁻¹ times the block on the left, at a step
    E* other = fill + block;
    E* const adjoint = other + block;  // Bᴴ of the step before
    E* const gram = adjoint + block;
    E* const product = gram + block;
    E* const y = product + block;  // of the step before
    E* const sum = y + size;
    E* const last_sum = sum + size;
    V* const reciprocals = reinterpret_cast<V*>(last_sum + size);
    const T* const column = b + i * chunks.width * size;
    LoadBefore(chunks, i, a.Lower(system), block, fill);
    std::fill_n(gram, block, E{});
    std::fill_n(sum, size, E{});
    FactorState<V> state;
    for (int64_t first = 0; first < inner; first += run) {
      const int64_t last = std::min(inner, first + run);
      blocks.Load(a.Diagonal(system) + i * stride, first, last);
      others.Load(a.Lower(system) + i * stride, first, std::min(coupled, last));
      columns.Load(column, first, last);
      if constexpr (kIsComplex<T>) {
        E* const loaded = columns.At(first);
        for (int64_t j = 0; conjugate && j < (last - first) * size; ++j) {
          loaded[j] = Conj(loaded[j]);
        }
      }
      for (int64_t t = first; t < last; ++t) {
        E *const l = blocks.At(t), *const own = columns.At(t);
        state.Add(n, t, small::FactorDiagonal(n, t > 0 ? adjoint : nullptr, l, reciprocals), l);
        if (t > 0) {
          std::fill_n(other, block, E{});
          small::AddProduct<false, true>(n, n, n, adjoint, n, fill, n, other, n);
          std::swap(fill, other);
          small::AddProduct<false, true>(n, k, n, adjoint, n, y, k, own, k);
        }
        small::SolveTriangle<false>(n, n, l, reciprocals, fill);
        small::AddProduct<true, true>(n, n, n, fill, n, fill, n, gram, n, true);
        small::SolveTriangle<false>(n, k, l, reciprocals, own);
        small::AddProduct<true, true>(n, k, n, fill, n, own, k, sum, k);
        std::copy_n(own, size, y);
        if (t < coupled) small::FactorLowerAdjoint(n, l, reciprocals, others.At(t), adjoint);
      }
    }
    const auto store = [&](E* matrix, std::vector<T>& target) {
      StoreElements(matrix, block, target.data() + i * block);
    };
    small::MirrorLower(n, gram);
    store(gram, work.gram);
    StoreElements(sum, size, work.sums.data() + i * size);
    state.Store(n, work.logdet.data() + i, work.info.data() + i);
    if (coupled != inner) return;
    std::fill_n(product, block, E{});
    small::AddProduct<true, true>(n, n, n, adjoint, n, adjoint, n, product, n, true);
    small::MirrorLower(n, product);
    store(product, work.square);
    std::fill_n(product, block, E{});
    small::AddProduct<false, true>(n, n, n, adjoint, n, fill, n, product, n);
    store(product, work.cross);
    std::fill_n(last_sum, size, E{});
    small::AddProduct<true, true>(n, k, n, adjoint, n, y, k, last_sum, k);
    StoreElements(last_sum, size, work.last.data() + i * size);
  }
};

// A solution and log det A in two passes, which keep no factor in memory: to write and read it
// takes longer than to factor twice. The first pass eliminates the chunks, for what is left of A
// and b at the separators. The second one solves for each chunk between known separators.
template <class T>
struct SolveLogdetProblem {
  BlockTridiagonalShape shape;
  TridiagonalBlocks<T> a;
  int64_t cols;
  const T* b;
  T* x;
  DeterminantResults<T> results;

  void RunEmpty() const { results.Clear(shape.batch); }
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
    ChunkSums<T> work(chunks, block, size);
    EliminateChunks(pool, a, system, cols, b + system * shape.steps * size, /*conjugate=*/false,
                    work);
    {
      const SubnormalNumbers subnormal_numbers;
      SolveSeparators(n, k, chunks, system, work);
    }
    const BlockTridiagonalShape chunk{1, chunks.width, n};
    const int64_t memory = FactorsInLanes<T>::Size(chunk, k) + run * block;
    ForEachChunk<T>(
        pool, chunks, memory, ChunkNanoseconds<T>(chunks, n, k, 2, 3),
        [&]<class V>(int64_t i, V* registers) {
          SolveChunks(SizeInLanes<T, V, false>(n), SizeInLanes<T, V, false>(k), chunks, system, i,
                      reinterpret_cast<Element<T, V>*>(registers));
        },
        /*in_place=*/true, std::numeric_limits<int64_t>::max());
    if (results.info[system] != 0) FillWithNaN(shape.steps * size, x + system * shape.steps * size);
  }

  // Solves for the separators, and subtracts from b what they add to the chunks beside them. Both
  // are left in x.
  void SolveSeparators(int n, int k, const Chunks& chunks, int64_t system,
                       const ChunkSums<T>& work) const {
    using E = Element<T>;
    const int64_t block = n * n, size = n * k, count = chunks.full;
    const T* const column = b + system * shape.steps * size;
    std::vector<T> diagonal(count * block), columns(count * size);
    const auto subtract = [](int64_t count, const T* x, const T* y, const T* z, T* target) {
      for (int64_t j = 0; j < count; ++j) target[j] = (x[j] - y[j]) - z[j];
    };
    for (int64_t q = 0; q < count; ++q) {
      const int64_t s = chunks.separator(q);
      subtract(block, a.Diagonal(system) + s * block, work.square.data() + q * block,
               work.gram.data() + (q + 1) * block, diagonal.data() + q * block);
      subtract(size, column + s * size, work.last.data() + q * size,
               work.sums.data() + (q + 1) * size, columns.data() + q * size);
    }
    const BlockTridiagonalShape separators{1, count, n};
    std::vector<E> memory(FactorsInLanes<E>::Size(separators, k) + BlocksOfRun(n) * block);
    const FactorsInLanes<E> factors(n, k, count, memory.data());
    const StepsOfGroup<T> operands{
        diagonal.data(), work.cross.data() + block, columns.data(), 0, 0, 0};
    FactorState<RealElement<E>> state;
    factors.Solve(n, k, operands, columns.data(), state);

    T* const target = x + system * shape.steps * size;
    std::copy_n(column, shape.steps * size, target);
    const auto elements = [](const T* x) { return reinterpret_cast<const E*>(x); };
    auto* const rows = reinterpret_cast<E*>(target);
    const E* const lower = elements(a.Lower(system));
    for (int64_t q = 0; q < count; ++q) {
      const int64_t s = chunks.separator(q);
      std::copy_n(columns.data() + q * size, size, target + s * size);
      const E* const own = rows + s * size;
      small::AddProduct<false, true>(n, k, n, lower + (s - 1) * block, n, own, k,
                                     rows + (s - 1) * size, k);
      if (s + 1 == shape.steps) continue;
      small::AddProduct<false, false>(n, k, n, lower + s * block, n, own, k, rows + (s + 1) * size,
                                      k);
    }
    Real<T>& logdet = results.logdet[system];
    int32_t& info = results.info[system];
    state.Store(n, &logdet, &info);
    if (info > 0) {  // a row of the separators
      const int64_t row = info - 1;
      info = static_cast<int32_t>(chunks.separator(row / n) * n + row % n + 1);
    }
    AddChunks(chunks, n, work.logdet, work.info, logdet, info);
  }

  template <class E, class N, class M>
  void SolveChunks(N n, M k, const Chunks& chunks, int64_t system, int64_t i, E* memory) const {
    const int64_t block = n * n, size = n * k, stride = chunks.width * block;
    const FactorsInLanes<E> factors(n, k, chunks.inner(i), memory);
    T* const target = x + (system * shape.steps + i * chunks.width) * size;
    FactorState<RealElement<E>> state;
    factors.Solve(n, k,
                  StepsOfGroup<T>{a.Diagonal(system) + i * stride, a.Lower(system) + i * stride,
                                  target, stride, stride, chunks.width * size},
                  target, state);
  }
};

}  // namespace

template <class T>
void EliminateChunks(ffi::ThreadPool& pool, const TridiagonalBlocks<T>& a, int64_t system,
                     int64_t cols, const T* b, bool conjugate, ChunkSums<T>& work) {
  const Chunks chunks(a.shape.steps);
  const ChunkElimination<T> elimination{a, chunks, system, b, conjugate};
  DispatchSizes<T>(a.shape.d, cols, [&](auto n, auto k) {
    const int64_t block = n * n, size = n * k, run = BlocksOfRun(n);
    ForEachChunk<T>(pool, chunks, (2 * run + 5) * block + (run + 3) * size + n,
                    ChunkNanoseconds<T>(chunks, n, k, 4.5, 3),
                    [&]<class V>(int64_t i, V* registers) {
                      elimination.Run(SizeInLanes<T, V, false>(n), SizeInLanes<T, V, false>(k), i,
                                      work, reinterpret_cast<Element<T, V>*>(registers));
                    });
  });
}

template <class T>
void SolveLogdetInChunks(ffi::ThreadPool& pool, const TridiagonalBlocks<T>& a, int64_t cols,
                         const T* b, T* x, const DeterminantResults<T>& results) {
  RunSystems<T>(pool, SolveLogdetProblem<T>{a.shape, a, cols, b, x, results});
}

#define LINALG_SOLVE_IN_CHUNKS(T)                                                                \
  template void EliminateChunks(ffi::ThreadPool&, const TridiagonalBlocks<T>&, int64_t, int64_t, \
                                const T*, bool, ChunkSums<T>&);                                  \
  template void SolveLogdetInChunks(ffi::ThreadPool&, const TridiagonalBlocks<T>&, int64_t,      \
                                    const T*, T*, const DeterminantResults<T>&);
LINALG_SOLVE_IN_CHUNKS(float)
LINALG_SOLVE_IN_CHUNKS(double)
LINALG_SOLVE_IN_CHUNKS(std::complex<float>)
LINALG_SOLVE_IN_CHUNKS(std::complex<double>)
#undef LINALG_SOLVE_IN_CHUNKS

}  // namespace linalg

LINALG_CPU_HANDLER(linalg_block_tridiagonal_chunks, linalg::Factor);
LINALG_CPU_HANDLER(linalg_block_tridiagonal_chunks_solve, linalg::Solve);
