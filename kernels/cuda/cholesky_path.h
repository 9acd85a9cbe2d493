// The path of Cholesky factors.
#pragma once

#include "kernels/cuda/path.h"

namespace linalg::cuda {

// fits(bytes): whether a team's arrays fit in shared memory, with `bytes` for the matrix.
template <class T, class Fits>
GpuPath CholeskyPath(int64_t n, int64_t batch, Fits&& fits) {
  using E = Element<T>;
  if (n * n * static_cast<int64_t>(sizeof(E)) <= kThreadCholeskyBytes<E>) return GpuPath::kThread;
  if (n <= kWarpCholesky<E>) return GpuPath::kWarp;
  if (n <= kTeamCholesky && fits(PaddedBytes<T>(n, n))) {
    return PaddedBytes<T>(n, n) <= kWholeMultiprocessorBytes ? GpuPath::kTeam : GpuPath::kPanels;
  }
  return batch > 1 && n / batch <= kPanelsCholeskyRatio ? GpuPath::kPanels : GpuPath::kVendor;
}

struct CholeskyCall {
  template <class T>
  static GpuPath Path(const TracedCall& call) {
    return CholeskyPath<T>(call.Cols(), /*batch=*/1, FitsEveryGpu);
  }
};

}  // namespace linalg::cuda
