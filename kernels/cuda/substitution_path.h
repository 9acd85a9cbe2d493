// The path of substitution with given factors.
#pragma once

#include "kernels/cuda/path.h"

namespace linalg::cuda {

// Right-hand sides of one matrix that a team takes at a time, where its factors leave so many bytes
// of shared memory. Two columns are kept back: rows of the solution have an odd length.
template <class T>
int64_t RhsOfTeam(int64_t n, int64_t nrhs, int64_t free_bytes) {
  const int64_t row_bytes = std::max<int64_t>(n, 1) * static_cast<int64_t>(sizeof(T));
  const int64_t fitting = free_bytes / row_bytes - 2;
  return std::min({nrhs, kColumnsOfTeam, fitting});
}

// `size` is the number of elements of the right-hand sides. Column-major factors go to cuBLAS.
// `in_panels` is whether larger matrices are solved by panels. free_bytes() are those of shared
// memory that a team's factors leave.
template <class T, class FreeBytes>
GpuPath SubstitutionPath(int64_t n, int64_t nrhs, int64_t size, bool column_major, bool in_panels,
                         FreeBytes&& free_bytes) {
  if (column_major) return GpuPath::kVendor;
  const int64_t bytes = (n * n + size) * static_cast<int64_t>(sizeof(T));
  if (bytes <= kThreadTriangularBytes) return GpuPath::kThread;
  const int64_t least = std::min(nrhs, kLeastColumnsOfTeam);
  const bool team = n <= kTeamTriangular && RhsOfTeam<T>(n, nrhs, free_bytes()) >= least;
  if (team) return GpuPath::kTeam;
  return in_panels && n <= kPanelsSubstitution ? GpuPath::kPanels : GpuPath::kVendor;
}

// The last operand is b. Its shape tells the side of `a`, unless b is square: then both sides have
// the same number of systems.
struct SubstitutionCall {
  template <class T>
  static GpuPath Path(const TracedCall& call) {
    const int64_t n = call.Cols(), rows = call.operands.back().at(0),
                  cols = call.operands.back().at(1);
    return SubstitutionPath<T>(n, rows == n ? cols : rows, rows * cols, false, false,
                               [&] { return kTeamAnywhereBytes - PaddedBytes<T>(n, n); });
  }
};

}  // namespace linalg::cuda
