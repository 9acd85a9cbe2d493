// The paths of general eigenproblems, and of Hessenberg and Schur forms.
#pragma once

#include "kernels/cuda/path.h"

namespace linalg::cuda {

// Where LaunchTeamsAnywhere puts arrays of so many bytes.
inline GpuPath TeamOrBlock(int64_t bytes, int64_t shared) {
  return bytes <= shared ? GpuPath::kTeam : GpuPath::kBlock;
}

// `shared` are the bytes of shared memory for a team's larger arrays: one matrix of complex numbers
// and two of T, with kVectors or without. The vendor has no left eigenvectors.
template <class T>
GpuPath EigPath(int64_t n, bool left, int64_t batch, int64_t shared) {
  if (n <= kTeamEig) return TeamOrBlock(4 * PaddedBytes<T>(n, n), shared);
  return left || batch >= kGlobalBatch ? GpuPath::kBlock : GpuPath::kVendor;
}

template <bool kLeft>
struct EigCall {
  template <class T>
  static GpuPath Path(const TracedCall& call) {
    return EigPath<T>(call.Cols(), kLeft, /*batch=*/0, kTeamAnywhereBytes);
  }
};

// Forms that a team makes in `kMatrices` matrices. Their handlers have no other path.
template <int kMatrices>
struct FormCall {
  template <class T>
  static GpuPath Path(const TracedCall& call) {
    const int64_t n = call.Cols();
    return TeamOrBlock(kMatrices * PaddedBytes<T>(n, n), kTeamAnywhereBytes);
  }
};
using HessenbergCall = FormCall<1>;
using SchurCall = FormCall<2>;

}  // namespace linalg::cuda
