// Operands of the handlers of block-tridiagonal systems, the moves of blocks to lanes, and the
// state of a factorisation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/arithmetic/scaled_product.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/problem.h"
#include "kernels/ffi.h"
#include "kernels/small/block_tridiagonal.h"

namespace linalg {

// A batch of systems of `steps` diagonal blocks, each `d` by `d`.
struct BlockTridiagonalShape {
  int64_t batch, steps, d;

  int64_t block() const { return d * d; }
  int64_t below() const { return std::max<int64_t>(steps - 1, 0); }
  bool IsEmpty() const { return batch == 0 || steps == 0 || d == 0; }
};

inline BlockTridiagonalShape ReadBlockTridiagonalShape(const ffi::AnyBuffer& diagonal) {
  const BatchShape shape = SplitBatch(diagonal, 3, "diagonal");
  if (shape.rows != shape.cols) throw BadArgument("diagonal", "hold square blocks");
  const auto dimensions = diagonal.dimensions();
  return {.batch = shape.batch, .steps = dimensions[dimensions.size() - 3], .d = shape.rows};
}

// Blocks that move together: at least this many elements of each system, so that each memory access
// is of a whole cache line.
inline constexpr int64_t kElementsOfRun = 16;
inline int64_t BlocksOfRun(int64_t d) { return (kElementsOfRun + d * d - 1) / (d * d); }

// Consecutive blocks of each system of a group, in lanes. `stride` leads to the next system.
template <class E, class T>
class BlockRun {
 public:
  BlockRun(E* memory, int64_t size, int64_t stride)
      : memory_(memory), size_(size), stride_(stride) {}

  // Loads the blocks [first, last) of the systems whose first block 0 is at `source`.
  void Load(const T* source, int64_t first, int64_t last) {
    first_ = first;
    LoadElements(source + first * size_, stride_, std::max<int64_t>(last - first, 0) * size_,
                 memory_);
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

}  // namespace linalg
