// Shapes of the handlers for block-tridiagonal systems, on any backend.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/ffi.h"

namespace linalg {

// A batch of systems of `steps` diagonal blocks, each `d` by `d`.
struct BlockTridiagonalShape {
  int64_t batch, steps, d;

  double rows() const { return static_cast<double>(d); }
  constexpr int64_t block() const { return d * d; }
  constexpr int64_t below() const { return steps > 1 ? steps - 1 : 0; }
  bool IsEmpty() const { return batch == 0 || steps == 0 || d == 0; }
};

inline BlockTridiagonalShape ReadBlockTridiagonalShape(const ffi::AnyBuffer& diagonal) {
  const BatchShape shape = SplitBatch(diagonal, 3, "diagonal");
  if (shape.rows != shape.cols) throw BadArgument("diagonal", "hold square blocks");
  const auto dimensions = diagonal.dimensions();
  return {.batch = shape.batch, .steps = dimensions[dimensions.size() - 3], .d = shape.rows};
}

// The steps from which a system is divided in chunks. linalg/structured/_partition.py has the same
// number.
inline constexpr int64_t kLongSteps = 4096;

// The steps of a chunk of a long system, about √steps. linalg/structured/_partition.py has the same
// rule. It depends on the number of steps alone, and so do the bits.
inline int64_t ChunkWidth(int64_t steps) {
  return 1 + steps / (int64_t{1} << (std::bit_width(static_cast<uint64_t>(steps)) / 2));
}

// Blocks that move together: at least this many elements of each system, so that each memory access
// is of a whole cache line, or of whole sectors of one.
inline constexpr int64_t kElementsOfRun = 16;
inline int64_t BlocksOfRun(int64_t d) {
  return (kElementsOfRun + d * d - 1) / std::max<int64_t>(d * d, 1);
}

}  // namespace linalg
