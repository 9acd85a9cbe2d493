// The paths of CUDA handlers: what works on a matrix, and how a handler runs the path it has
// chosen.
//
// Each operation chooses its path in one function, from the shapes of a matrix. The function stands
// in a header beside the handler. kernels/cuda/captured.cc asks the same function whether a call
// takes one launch, before the batch and the GPU are known.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "kernels/arithmetic/element.h"
#include "kernels/cuda/tuning.h"

namespace linalg::cuda {

enum class GpuPath {
  kThread,  // one thread per matrix
  kWarp,    // threads of a warp, which hold a matrix's rows in registers
  kTeam,    // a team of threads, in shared memory
  kBlock,   // a thread block, in global memory
  kPanels,  // panel by panel: our kernels for a panel, cuBLAS for products with it
  kVendor,  // cuSOLVER and cuBLAS
  kSteps,   // several launches, of our kernels and perhaps of the vendor's
};

template <class Body>
struct On {
  GpuPath path;
  Body run;
};
template <class Body>
On(GpuPath, Body) -> On<Body>;

// Runs the body of that path. An operation names only the paths that it has.
template <class... Bodies>
void LaunchOnPath(GpuPath path, const On<Bodies>&... bodies) {
  const auto take = [&](const auto& body) {
    if (body.path != path) return false;
    body.run();
    return true;
  };
  if (!(take(bodies) || ...)) throw std::logic_error("there are no kernels for this path");
}

// Bytes of a matrix in shared memory, where rows have an odd length.
template <class T>
constexpr int64_t PaddedBytes(int64_t rows, int64_t cols) {
  return rows * (cols | 1) * static_cast<int64_t>(sizeof(T));
}

// The shapes of one matrix of each operand or result, without the batch.
using Shapes = std::vector<std::vector<int64_t>>;

// The shapes of a call, which are known when its program is traced.
struct TracedCall {
  const Shapes& operands;
  const Shapes& results;
  bool shared;  // whether an operand serves the whole batch

  int64_t Rows() const { return operands.at(0).at(0); }
  int64_t Cols() const { return operands.at(0).at(1); }
};

// Whether a team's larger arrays leave space for its smaller ones on every GPU.
inline bool FitsEveryGpu(int64_t bytes) { return bytes <= kTeamAnywhereBytes; }

}  // namespace linalg::cuda
