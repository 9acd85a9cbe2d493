// The path of systems that are factored and solved, and of inverses.
#pragma once

#include "kernels/cuda/lu_path.h"

namespace linalg::cuda {

// `cols` is the number of right-hand sides, or of columns of the inverse. A matrix that the whole
// batch shares is factored once, which takes several launches. fits(bytes): whether a team's arrays
// fit in shared memory, with `bytes` for the matrix and its solution.
template <class T, class Fits>
GpuPath SolvePath(int64_t n, int64_t cols, bool shared, Fits&& fits) {
  if (shared) return GpuPath::kSteps;
  const int64_t bytes = (n * n + n * cols) * static_cast<int64_t>(sizeof(T));
  if (bytes > kThreadBytes<Element<T>> && cols > kColumnsOfSolve) return GpuPath::kSteps;
  const GpuPath path = EliminationPath<T>(
      n, n, bytes, [&](int64_t) { return fits(PaddedBytes<T>(n, n) + PaddedBytes<T>(n, cols)); });
  const bool in_steps = path == GpuPath::kPanels || path == GpuPath::kVendor;
  return in_steps ? GpuPath::kSteps : path;
}

struct SolveCall {
  template <class T>
  static GpuPath Path(const TracedCall& call) {
    return SolvePath<T>(call.Cols(), call.operands.back().at(1), call.shared, FitsEveryGpu);
  }
};

}  // namespace linalg::cuda
