// The paths of LU factors and of determinants.
#pragma once

#include <limits>

#include "kernels/cuda/path.h"

namespace linalg::cuda {

// One thread works in `thread_bytes`. fits(bytes): whether a team's arrays, which take `bytes`, fit
// in shared memory.
template <class T, class Fits>
GpuPath EliminationPath(int64_t rows, int64_t cols, int64_t thread_bytes, Fits&& fits) {
  using E = Element<T>;
  if (thread_bytes <= kThreadBytes<E>) return GpuPath::kThread;
  if (std::max(rows, cols) <= kWarpLu<E>) return GpuPath::kWarp;
  const int64_t least = std::min(rows, cols), matrix = PaddedBytes<T>(rows, cols);
  const int64_t integers = rows + least;  // the permutation and the pivots
  const bool alone = least > kLuPanel<E> && matrix > kWholeMultiprocessorBytes;
  if (least <= kTeamLu && !alone && fits(matrix + integers * 4)) return GpuPath::kTeam;
  // Panels hold indices of a matrix in int.
  const bool panels = std::min(rows, cols) <= kPanelsLu && rows <= kPanelsLuRows &&
                      rows * cols <= std::numeric_limits<int>::max();
  return panels ? GpuPath::kPanels : GpuPath::kVendor;
}

template <class T, class Fits>
GpuPath LuPath(int64_t rows, int64_t cols, Fits&& fits) {
  const int64_t bytes = rows * cols * static_cast<int64_t>(sizeof(T)) + (rows + cols) * 4;
  return EliminationPath<T>(rows, cols, bytes, fits);
}

template <class T, class Fits>
GpuPath DeterminantPath(int64_t n, Fits&& fits) {
  return EliminationPath<T>(n, n, n * n * static_cast<int64_t>(sizeof(T)), fits);
}

// Determinants with the cofactors or the inverse. fits(bytes): whether a team's arrays fit in
// shared memory, with `bytes` for the matrix and its inverse.
template <class T, class Fits>
GpuPath CofactorsPath(int64_t n, Fits&& fits) {
  constexpr int64_t kBytes = kThreadCofactors * kThreadCofactors * 8;
  if (n <= kThreadCofactors && n * n * static_cast<int64_t>(sizeof(T)) <= kBytes) {
    return GpuPath::kThread;
  }
  const auto both_fit = [&](int64_t) { return fits(2 * PaddedBytes<T>(n, n)); };
  const GpuPath path = EliminationPath<T>(n, n, std::numeric_limits<int64_t>::max(), both_fit);
  const bool in_shared = path == GpuPath::kTeam || (path == GpuPath::kWarp && both_fit(0));
  return in_shared ? GpuPath::kTeam : GpuPath::kSteps;
}

struct LuCall {
  template <class T>
  static GpuPath Path(const TracedCall& call) {
    return LuPath<T>(call.Rows(), call.Cols(), FitsEveryGpu);
  }
};

struct DeterminantCall {
  template <class T>
  static GpuPath Path(const TracedCall& call) {
    return DeterminantPath<T>(call.Cols(), FitsEveryGpu);
  }
};

struct CofactorsCall {
  template <class T>
  static GpuPath Path(const TracedCall& call) {
    return CofactorsPath<T>(call.Cols(), FitsEveryGpu);
  }
};

}  // namespace linalg::cuda
