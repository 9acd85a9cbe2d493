// Long positive definite block-tridiagonal systems in chunks: what the handlers that divide them
// share.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/block_tridiagonal.h"

namespace linalg {

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
                  Run&& run, bool in_place = false, int64_t most_bytes = kWideGroupBytes) {
  ForEachGroup<T>(pool, chunks.full, size * kPartsOf<T>, nanoseconds, run, in_place, most_bytes);
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

// Writes such blocks, but for the first chunk.
template <class E, class T>
void StoreBefore(const Chunks& chunks, int64_t i, const E* source, int64_t count, T* target) {
  using V = RealElement<E>;
  const int64_t parts = count * kPartsOf<T>;
  const auto* const from = reinterpret_cast<const Lane<V>*>(source);
  auto* const to = reinterpret_cast<Real<T>*>(target);
  for (int lane = 0; lane < kLanesOf<V>; ++lane) {
    const int64_t chunk = i + lane;
    for (int64_t k = 0; k < parts && chunk > 0; ++k) {
      to[(chunk * chunks.width - 1) * parts + k] = from[k * kLanesOf<V> + lane];
    }
  }
}

// Adds log-determinants of chunks to that of the separators. `info` is that of the separators, and
// becomes that of the first row whose pivot is not positive. `infos` count rows of a chunk.
template <class T>
void AddChunks(const Chunks& chunks, int64_t n, const std::vector<T>& logdets,
               const std::vector<int32_t>& infos, T& logdet, int32_t& info) {
  int64_t failed_chunk = -1;
  for (int64_t q = 0; q <= chunks.full; ++q) {
    if (q == chunks.full && chunks.tail == 0) break;
    logdet += logdets[q];
    if (failed_chunk < 0 && infos[q] != 0) failed_chunk = q;
  }
  if (failed_chunk < 0) return;
  // A chunk that fails spoils the separators from the one before it on.
  const int32_t row = info;
  const bool is_first = row > 0 && (row - 1) / n / chunks.width + 1 < failed_chunk;
  if (!is_first) {
    info = static_cast<int32_t>(failed_chunk * chunks.width * n + infos[failed_chunk]);
  }
  logdet = NaN<T>();
}

// Chunks subtract `gram` from A and `sums` from b at the separator before them, and `square` and
// `last` at the one after. `cross` couples both.
template <class T>
struct ChunkSums {
  ChunkSums(const Chunks& chunks, int64_t block, int64_t size)
      : gram((chunks.full + 1) * block),
        square((chunks.full + 1) * block),
        cross((chunks.full + 1) * block),
        sums((chunks.full + 1) * size),
        last((chunks.full + 1) * size),
        logdet(chunks.full + 1),
        info(chunks.full + 1) {}

  std::vector<T> gram, square, cross, sums, last;
  std::vector<Real<T>> logdet;
  std::vector<int32_t> info;
};

// The estimated time of a chunk with multiply-adds of so many cubes of d, and of so many times d²
// for each right-hand side.
template <class T>
double ChunkNanoseconds(const Chunks& chunks, int64_t n, int64_t k, double cubes, double squares) {
  constexpr int64_t kParts = kPartsOf<T>;
  const double d = static_cast<double>(n), rhs = static_cast<double>(k);
  return SmallNanoseconds(
      kLanes<T>, (2 * n * n + 2 * n * k) * chunks.width * kParts,
      d * d * (cubes * d + squares * rhs) * static_cast<double>(chunks.width) * kParts * kParts);
}

// Eliminates the chunks of a system with the right-hand sides b, or their conjugates. Keeps only
// what the separators need.
template <class T>
void EliminateChunks(ffi::ThreadPool& pool, const TridiagonalBlocks<T>& a, int64_t system,
                     int64_t cols, const T* b, bool conjugate, ChunkSums<T>& work);

}  // namespace linalg
