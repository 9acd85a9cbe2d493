// Cotangents of long positive definite block-tridiagonal systems.
//
// The separators of block_tridiagonal_chunks.cc are a system of their own. Its solution and the
// blocks of its inverse are those of A there. Its factor also gives what all steps before a
// separator leave of it. So each chunk goes forward and back as in a system that is not divided,
// from a known state at both ends.
#include <limits>
#include <vector>

#include "kernels/cpu/block_tridiagonal_chunks.h"
#include "kernels/cpu/block_tridiagonal_cotangents.h"

namespace linalg {
namespace {

template <class T>
struct ChunkCotangents {
  BlockTridiagonalShape shape;
  TridiagonalBlocks<T> a;
  int64_t cols;
  const T* x;
  const T* x_ct;
  const Real<T>* logdet_ct;
  BlockResults<T> a_ct;
  T* b_ct;

  void Run(ffi::ThreadPool& pool) const {
    DispatchSizes<T>(shape.d, cols, [&](auto n, auto k) {
      for (int64_t system = 0; system < shape.batch; ++system) RunSystem(pool, n, k, system);
    });
  }

 private:
  // Each chunk takes these from the separator before it, and the first one takes zeros. Chunk i + 1
  // has the separator after chunk i.
  struct Borders {
    Borders(int64_t count, int64_t block, int64_t size)
        : start(count * block),
          map(count * block),
          inverse(count * block),
          start_y(count * size),
          y(count * size) {}

    std::vector<T> start, map, inverse;  // Bᴴ, E S⁻¹ with what is left of A, the block of A⁻¹
    std::vector<T> start_y, y;           // L⁻¹ b with what is left of b, the solution
  };

  int64_t At(int64_t system, int64_t step) const { return system * shape.steps + step; }

  template <class N, class M>
  void RunSystem(ffi::ThreadPool& pool, N n, M k, int64_t system) const {
    const Chunks chunks(shape.steps);
    const int64_t block = n * n, size = n * k;
    ChunkSums<T> sums(chunks, block, size);
    EliminateChunks(pool, a, system, cols, x_ct + At(system, 0) * size, /*conjugate=*/true, sums);
    Borders borders(chunks.full + 1, block, size);
    bool fails;
    {
      const SubnormalNumbers subnormal_numbers;
      fails = SolveSeparators(n, k, chunks, system, sums, borders);
    }
    if (!fails) {
      const BlockTridiagonalShape chunk{1, chunks.width, n};
      const int64_t memory = CotangentsInLanes<T>::Size(chunk, k) + 3 * block + 4 * size;
      ForEachChunk<T>(
          pool, chunks, memory, ChunkNanoseconds<T>(chunks, n, k, 6, 6),
          [&]<class V>(int64_t i, V* registers) {
            RunChunks(SizeInLanes<T, V, false>(n), SizeInLanes<T, V, false>(k), chunks, system, i,
                      borders, reinterpret_cast<Element<T, V>*>(registers));
          },
          /*in_place=*/false, std::numeric_limits<int64_t>::max());
      return;
    }
    a_ct.Fail(system);
    FillWithNaN(shape.steps * size, b_ct + At(system, 0) * size);
  }

  template <class E>
  CotangentsInLanes<E> Lanes(int n, int k, int64_t steps, std::vector<E>& memory) const {
    memory.resize(CotangentsInLanes<E>::Size({1, steps, n}, k));
    return {n, k, steps, memory.data()};
  }

  // Returns whether A is not positive definite.
  bool SolveSeparators(int n, int k, const Chunks& chunks, int64_t system, const ChunkSums<T>& sums,
                       Borders& borders) const {
    using E = Element<T>;
    const int64_t block = n * n, size = n * k, count = chunks.full;
    const auto elements = [](auto* x) { return reinterpret_cast<E*>(const_cast<T*>(x)); };
    const E* const columns = elements(x_ct) + At(system, 0) * size;
    // The chunks on both sides leave `diagonal` and `rest` of the separators. All steps before a
    // separator leave `left` and `left_rest`.
    std::vector<E> diagonal(count * block), left(count * block), rest(count * size),
        left_rest(count * size);
    for (int64_t q = 0; q < count; ++q) {
      const int64_t s = chunks.separator(q);
      const E* const own = elements(a.Diagonal(system)) + s * block;
      for (int64_t j = 0; j < block; ++j) {
        const int64_t at = q * block + j;
        left[at] = own[j] - elements(sums.square.data())[at];
        diagonal[at] = left[at] - elements(sums.gram.data())[at + block];
      }
      for (int64_t j = 0; j < size; ++j) {
        const int64_t at = q * size + j;
        left_rest[at] = Conj(columns[s * size + j]) - elements(sums.last.data())[at];
        rest[at] = left_rest[at] - elements(sums.sums.data())[at + size];
      }
    }
    std::vector<E> memory;
    const CotangentsInLanes<E> lanes = Lanes<E>(n, k, count, memory);
    const FactorsInLanes<E>& factors = lanes.factors;
    const auto numbers = [](std::vector<E>& x) { return reinterpret_cast<const T*>(x.data()); };
    FactorState<RealElement<E>> state;
    factors.template Forward<T>(
        n, k, StepsOfGroup<T>{numbers(diagonal), sums.cross.data() + block, numbers(rest), 0, 0, 0},
        lanes.lower, state);
    bool fails = Any(state.failed());
    for (const int32_t info : sums.info) fails |= info != 0;
    if (fails) return true;

    std::vector<RealElement<E>> reciprocals(n);
    for (int64_t q = 0; q < count; ++q) {
      const int64_t s = chunks.separator(q);
      if (s + 1 == shape.steps) break;
      E *const l = left.data() + q * block, *const start_y = left_rest.data() + q * size;
      const E* const before = q > 0 ? factors.adjoints + (q - 1) * block : nullptr;
      small::FactorDiagonal(n, before, l, reciprocals.data());
      if (q > 0) {
        small::AddProduct<false, true>(n, k, n, before, n, factors.y + (q - 1) * size, k, start_y,
                                       k);
      }
      small::SolveTriangle<false>(n, k, l, reciprocals.data(), start_y);
      std::copy_n(start_y, size, elements(borders.start_y.data()) + (q + 1) * size);
      E* const start = elements(borders.start.data()) + (q + 1) * block;
      small::FactorLowerAdjoint(n, l, reciprocals.data(), elements(a.Lower(system)) + s * block,
                                start);
      std::copy_n(start, block, lanes.work);
      small::SolveTriangle<true>(n, n, l, reciprocals.data(), lanes.work);
      small::AdjointTo(n, lanes.work, elements(borders.map.data()) + (q + 1) * block);
    }

    const RealElement<E> logdet = logdet_ct[system];
    for (int64_t q = count - 1; q >= 0; --q) {
      const int64_t s = chunks.separator(q);
      factors.Back(n, k, q);
      E* const y = factors.y + q * size;
      small::InverseBlocksStep</*kAdjoint=*/true>(
          n, factors.l + q * block, factors.reciprocals + q * n,
          q + 1 < count ? factors.adjoints + q * block : nullptr, lanes.inverse, lanes.work);
      lanes.Diagonal(n, k, logdet, y, elements(x) + At(system, s) * size,
                     elements(a_ct.Diagonal(system)) + s * block);
      std::copy_n(lanes.inverse, block, elements(borders.inverse.data()) + (q + 1) * block);
      std::copy_n(y, size, elements(borders.y.data()) + (q + 1) * size);
      E* const target = elements(b_ct) + At(system, s) * size;
      for (int64_t j = 0; j < size; ++j) target[j] = Conj(y[j]);
    }
    return false;
  }

  template <class E, class N, class M>
  void RunChunks(N n, M k, const Chunks& chunks, int64_t system, int64_t i, const Borders& borders,
                 E* memory) const {
    using V = RealElement<E>;
    const int64_t block = n * n, size = n * k, stride = chunks.width * block;
    const int64_t columns = chunks.width * size, inner = chunks.inner(i);
    const bool is_last = i == chunks.full;  // no separator follows
    const int64_t steps = is_last ? inner : inner + 1, first = i * chunks.width;
    const CotangentsInLanes<E> lanes(n, k, steps, memory);
    E* const start = lanes.end;
    E* const map = start + block;
    E* const lower = map + block;
    E* const start_y = lower + block;
    E* const before_y = start_y + size;
    E* const before_x = before_y + size;
    const auto load = [&](const std::vector<T>& source, int64_t place, int64_t count, E* target) {
      LoadElements(source.data() + place * count, count, count, target);
    };
    load(borders.start, i, block, start);
    load(borders.map, i, block, map);
    load(borders.start_y, i, size, start_y);
    load(borders.y, i, size, before_y);
    LoadBefore(chunks, i, x + At(system, 0) * size, size, before_x);
    LoadElements(x + At(system, first) * size, columns, steps * size, lanes.solution);
    FactorState<V> state;
    const StepsOfGroup<T> operands{a.Diagonal(system) + i * stride,
                                   a.Lower(system) + i * stride,
                                   x_ct + At(system, first) * size,
                                   stride,
                                   stride,
                                   columns};
    lanes.factors.template Forward<T, N, M, /*kConjugate=*/true>(n, k, operands, lanes.lower, state,
                                                                 inner, start, start_y);
    if (!is_last) {
      load(borders.inverse, i + 1, block, lanes.inverse);
      load(borders.y, i + 1, size, lanes.factors.y + inner * size);
    }
    const V logdet = Broadcast<V>(logdet_ct[system]);
    lanes.Back(
        n, k, logdet, inner,
        CotangentsOfGroup<T>{a_ct.Diagonal(system) + i * stride, a_ct.Lower(system) + i * stride,
                             b_ct + At(system, first) * size, stride, stride, columns});
    // The block between the chunk's first step and the separator before it.
    std::fill_n(lanes.work, block, E{});
    small::AddProduct<true, false>(n, n, n, lanes.inverse, n, map, n, lanes.work, n);
    lanes.Lower(n, k, logdet, lanes.work, before_y, lanes.factors.y, before_x, lanes.solution,
                lower);
    StoreBefore(chunks, i, lower, block, a_ct.Lower(system));
  }
};

}  // namespace

template <class T>
void SolveLogdetVjpInChunks(ffi::ThreadPool& pool, const TridiagonalBlocks<T>& a, int64_t cols,
                            const T* x, const T* x_ct, const Real<T>* logdet_ct,
                            const BlockResults<T>& a_ct, T* b_ct) {
  RunSystems<T>(pool, ChunkCotangents<T>{a.shape, a, cols, x, x_ct, logdet_ct, a_ct, b_ct});
}

#define LINALG_COTANGENTS_IN_CHUNKS(T)                                                             \
  template void SolveLogdetVjpInChunks(ffi::ThreadPool&, const TridiagonalBlocks<T>&, int64_t,     \
                                       const T*, const T*, const Real<T>*, const BlockResults<T>&, \
                                       T*);
LINALG_COTANGENTS_IN_CHUNKS(float)
LINALG_COTANGENTS_IN_CHUNKS(double)
LINALG_COTANGENTS_IN_CHUNKS(std::complex<float>)
LINALG_COTANGENTS_IN_CHUNKS(std::complex<double>)
#undef LINALG_COTANGENTS_IN_CHUNKS

}  // namespace linalg
