// Operands of the handlers of block-tridiagonal systems, the moves of blocks to lanes, and the
// state of a factorisation.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/arithmetic/logarithm.h"
#include "kernels/block_tridiagonal_shape.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/once.h"
#include "kernels/cpu/problem.h"
#include "kernels/ffi.h"
#include "kernels/small/block_tridiagonal.h"

namespace linalg {
namespace small {

// Steps for blocks of any size, which block_tridiagonal_once.cc compiles for all handlers.
#define LINALG_BLOCK_PRODUCT(declare, E, add, adjoint)                                           \
  declare template void AddAnyProduct<add, adjoint>(int, int, int, const E*, int, const E*, int, \
                                                    E*, int, bool);
#define LINALG_BLOCK_TRIANGLE(declare, E, adjoint)                                           \
  declare template void SolveAnyTriangle<adjoint>(int, int, const E*, const RealElement<E>*, \
                                                  const RightHandSide<E>&, E*, bool);
#define LINALG_BLOCK_STEPS(declare, T, Of)                                         \
  LINALG_BLOCK_PRODUCT(declare, Of<T>, false, false)                               \
  LINALG_BLOCK_PRODUCT(declare, Of<T>, false, true)                                \
  LINALG_BLOCK_PRODUCT(declare, Of<T>, true, false)                                \
  LINALG_BLOCK_PRODUCT(declare, Of<T>, true, true)                                 \
  LINALG_BLOCK_TRIANGLE(declare, Of<T>, false)                                     \
  LINALG_BLOCK_TRIANGLE(declare, Of<T>, true)                                      \
  declare template RealElement<Of<T>> FactorAnyDiagonal(int, const Of<T>*, Of<T>*, \
                                                        RealElement<Of<T>>*);

LINALG_EACH_ELEMENT(LINALG_BLOCK_STEPS, extern)

}  // namespace small

// The blocks of matrices, or of factors, on the diagonal and below it. They may serve all systems.
template <class T>
struct TridiagonalBlocks {
  BlockTridiagonalShape shape;
  bool shared;
  const T* diagonal;
  const T* lower;

  int64_t stride() const { return shared ? 0 : shape.steps * shape.block(); }
  int64_t lower_stride() const { return shared ? 0 : shape.below() * shape.block(); }
  const T* Diagonal(int64_t system) const { return diagonal + system * stride(); }
  const T* Lower(int64_t system) const { return lower + system * lower_stride(); }
};

template <class T>
TridiagonalBlocks<T> ReadBlocks(const BlockTridiagonalShape& shape, const ffi::AnyBuffer& diagonal,
                                const ffi::AnyBuffer& lower, bool shared = false) {
  const int64_t batch = shared ? 1 : shape.batch, d = shape.d;
  return {shape, shared, Elements<T>(diagonal, batch, {shape.steps, d, d}, "diagonal"),
          Elements<T>(lower, batch, {shape.below(), d, d}, "lower")};
}

// Right-hand sides of factors. Factors of rank 3 serve the whole batch.
struct FactorShape {
  BlockTridiagonalShape shape;
  bool shared;
  int64_t cols;
};

inline FactorShape ReadFactorShape(const ffi::AnyBuffer& factor, const ffi::AnyBuffer& b) {
  BlockTridiagonalShape shape = ReadBlockTridiagonalShape(factor);
  const BatchShape rhs = SplitBatch(b, 3, "b");
  const bool shared = factor.dimensions().size() == 3;
  if (!shared && shape.batch != rhs.batch) {
    throw BadArgument("b", "have the batch size of the factor");
  }
  shape.batch = rhs.batch;
  return {shape, shared, rhs.cols};
}

// The results of a factorisation for each system.
template <class T>
struct DeterminantResults {
  Real<T>* logdet;
  int32_t* info;

  void Clear(int64_t batch) const {
    std::fill_n(logdet, batch, Real<T>(0));
    std::fill_n(info, batch, 0);
  }
};

template <class T>
DeterminantResults<T> ReadDeterminants(int64_t batch, Result& logdet, Result& info) {
  return {Elements<Real<T>>(logdet, batch, {}, "logdet"),
          Elements<int32_t>(info, batch, {}, "info")};
}

// Solves long systems in chunks, in two passes over A.
template <class T>
void SolveLogdetInChunks(ffi::ThreadPool& pool, const TridiagonalBlocks<T>& a, int64_t cols,
                         const T* b, T* x, const DeterminantResults<T>& results);

// Results with the blocks of each system. All become NaN for a system that failed: its first blocks
// are finite.
template <class T>
struct BlockResults {
  BlockTridiagonalShape shape;
  T* diagonal;
  T* lower;

  T* Diagonal(int64_t system) const { return diagonal + system * shape.steps * shape.block(); }
  T* Lower(int64_t system) const { return lower + system * shape.below() * shape.block(); }
  void Fail(int64_t system) const {
    FillWithNaN(shape.steps * shape.block(), Diagonal(system));
    FillWithNaN(shape.below() * shape.block(), Lower(system));
  }
};

template <class T>
BlockResults<T> ReadBlockResults(const BlockTridiagonalShape& shape, Result& diagonal,
                                 Result& lower) {
  const int64_t steps = shape.steps, d = shape.d;
  return {shape,
          ResultElements<T>(diagonal, shape.batch, {steps, d, d}, "the diagonal of the result"),
          ResultElements<T>(lower, shape.batch, {shape.below(), d, d},
                            "the lower blocks of the result")};
}

// Requests `count` elements of each system of a group. A processor alone follows few streams, and
// each lane is one. They come to the second-level cache: so many requests at once would wait for
// the few that the first level takes.
template <class E, bool kWrite = false, class T>
LINALG_INLINE void Prefetch(const T* source, int64_t stride, int64_t count) {
  const auto first = reinterpret_cast<uintptr_t>(source);
  const auto bytes = static_cast<uintptr_t>(count) * sizeof(T);
  for (int lane = 0; lane < kLanesOf<RealElement<E>>; ++lane) {
    const uintptr_t begin = first + static_cast<uintptr_t>(lane * stride) * sizeof(T);
    for (uintptr_t at = begin & ~uintptr_t{kCacheLine - 1}; at < begin + bytes; at += kCacheLine) {
      __builtin_prefetch(reinterpret_cast<const void*>(at), kWrite, 2);
    }
  }
}

// Consecutive blocks of each system of a group, in lanes. `stride` leads to the next system.
template <class E, class T>
class BlockRun {
 public:
  BlockRun(E* memory, int64_t size, int64_t stride)
      : memory_(memory), size_(size), stride_(stride) {}

  // Loads the blocks [first, last) of the systems whose first block 0 is at `source`, and requests
  // as many on the side to which the recursion goes: the next ones, or those before.
  void Load(const T* source, int64_t first, int64_t last, bool back = false) {
    first_ = first;
    const int64_t count = std::max<int64_t>(last - first, 0);
    Prefetch<E>(source + (back ? first - count : last) * size_, stride_, count * size_);
    LoadElements(source + first * size_, stride_, count * size_, memory_);
  }
  void Begin(int64_t first) { first_ = first; }
  void Store(T* target, int64_t first, int64_t last) const {
    StoreElements(At(first), std::max<int64_t>(last - first, 0) * size_, stride_,
                  target + first * size_);
  }
  E* At(int64_t step) const { return memory_ + (step - first_) * size_; }

 private:
  E* memory_;
  int64_t size_, stride_, first_ = 0;
};

// The 1-based index of a row of the matrix, given its block and its 1-based index there, or a
// negative info; 0 where `row` is 0.
template <class V>
void StoreBlockInfo(int64_t d, V block, V row, int32_t* info) {
  int32_t blocks[kLanesOf<V>], rows[kLanesOf<V>];
  StoreIntegers(&block, 1, blocks);
  StoreIntegers(&row, 1, rows);
  for (int lane = 0; lane < kLanesOf<V>; ++lane) {
    info[lane] = rows[lane] > 0 ? static_cast<int32_t>(blocks[lane] * d + rows[lane]) : rows[lane];
  }
}

// Calls body(n, k) for blocks of order d and `cols` right-hand sides. The sizes of tiny real blocks
// are constants beside a single one. The bits do not depend on that.
template <class T, class Body>
void DispatchSizes(int64_t d, int64_t cols, Body&& body) {
  if constexpr (!kIsComplex<T>) {
    const auto run = [&]<int kSize>(std::integral_constant<int, kSize> n) {
      body(n, std::integral_constant<int, 1>());
    };
    if (cols == 1 && d == 2) return run(std::integral_constant<int, 2>());
    if (cols == 1 && d == 3) return run(std::integral_constant<int, 3>());
    if (cols == 1 && d == 4) return run(std::integral_constant<int, 4>());
  }
  body(ToInt(d), ToInt(cols));
}

// The size of DispatchSizes for groups in lanes of V. Few groups have half the width, so these have
// no code of their own for constants. Neither do single systems unless `kAlone`.
template <class T, class V, bool kAlone = true, class N>
auto SizeInLanes(N n) {
  if constexpr ((kAlone && kLanesOf<V> == 1) || kLanesOf<V> == kLanes<T>) {
    return n;
  } else {
    return ToInt(n);
  }
}

// A problem with a system in each lane. `Problem` has its shape, RunEmpty() if results remain, and
//   int64_t cols() const                        right-hand sides; 1 if there are none
//   int64_t size() const                        elements of a group's workspace
//   int64_t most_bytes() const                  of a group of full width
//   double moved() const, operations() const    elements and multiply-adds of a step
//   void RunGroup(n, k, i, E* memory) const     systems from i on, with the sizes of DispatchSizes
// or, if it divides its systems, void Run(pool) const instead of the last six.
template <class T, class Problem>
class SystemsInLanes {
 public:
  explicit SystemsInLanes(const Problem& problem) : problem_(problem) {}

  CpuPath path() const { return CpuPath::kLane; }
  bool IsEmpty() const { return problem_.shape.IsEmpty(); }
  void RunEmpty() const {
    if constexpr (requires { problem_.RunEmpty(); }) problem_.RunEmpty();
  }

  void RunInLanes(ffi::ThreadPool& pool) const {
    if constexpr (requires { problem_.Run(pool); }) {
      problem_.Run(pool);
    } else {
      RunGroups(pool);
    }
  }

 private:
  void RunGroups(ffi::ThreadPool& pool) const {
    const BlockTridiagonalShape& shape = problem_.shape;
    constexpr int64_t kParts = kPartsOf<T>;
    const double steps = static_cast<double>(shape.steps);
    const double nanoseconds =
        SmallNanoseconds(kLanes<T>, static_cast<int64_t>(steps * problem_.moved()) * kParts,
                         steps * problem_.operations() * kParts * kParts);
    DispatchSizes<T>(shape.d, problem_.cols(), [&](auto n, auto k) {
      ForEachGroup<T>(
          pool, shape.batch, problem_.size() * kParts, nanoseconds,
          [&]<class V>(int64_t i, V* registers) {
            problem_.RunGroup(SizeInLanes<T, V>(n), SizeInLanes<T, V>(k), i,
                              reinterpret_cast<Element<T, V>*>(registers));
          },
          /*in_place=*/false, problem_.most_bytes());
    });
  }

  const Problem& problem_;
};

template <class T, class Problem>
void RunSystems(ffi::ThreadPool& pool, const Problem& problem) {
  RunOnPath(pool, SystemsInLanes<T, Problem>(problem));
}

// The log-determinant and the first failure of a factorisation, block by block.
template <class V>
class FactorState {
 public:
  // Takes block t of the factor, and what FactorDiagonal returned.
  template <class E, class N>
  void Add(N n, int64_t t, V failed, const E* l) {
    const auto fails = (failed > V{}) & (row_ == V{});
    row_ = fails ? failed : row_;
    block_ = fails ? Number<V>(t) : block_;
    for (int k = 0; k < n; ++k) pivots_.Multiply(Re(l[k * (n + 1)]));
  }

  // Takes the pivot of step t of a matrix with blocks of one row.
  void AddPivot(int64_t t, V pivot) {
    const auto fails = ((pivot <= V{}) | IsNaN(pivot)) & (row_ == V{});
    row_ = fails ? Broadcast<V>(1) : row_;
    block_ = fails ? Number<V>(t) : block_;
    pivots_.Multiply(pivot);
  }

  auto failed() const { return row_ > V{}; }

  void Store(int64_t d, Lane<V>* logdet, int32_t* info) const {
    const V half = pivots_.Value();
    StoreLogarithm(d, half + half, logdet, info);
  }
  // After AddPivot.
  void StorePivots(Lane<V>* logdet, int32_t* info) const {
    StoreLogarithm(1, pivots_.Value(), logdet, info);
  }
  void StoreInfo(int64_t d, int32_t* info) const { StoreBlockInfo(d, block_, row_, info); }

 private:
  void StoreLogarithm(int64_t d, V logarithm, Lane<V>* logdet, int32_t* info) const {
    const V value = failed() ? NaN<V>() : logarithm;
    StoreElements(&value, 1, logdet);
    StoreInfo(d, info);
  }

  LogarithmOfProduct<V> pivots_;
  V block_{}, row_{};
};

}  // namespace linalg
