// The path of eigenvalues and eigenvectors of Hermitian matrices.
#pragma once

#include "kernels/cuda/path.h"
#include "kernels/small/eigh.h"

namespace linalg::cuda {

// Eigenvalues without vectors take the same path, and so have the same bits. The iteration of a
// thread reads a last row, which an empty matrix lacks. fits(): whether the arrays of both kinds of
// teams fit in shared memory.
template <class T, class Fits>
GpuPath EighPath(int64_t n, Fits&& fits) {
  if (n > kTeamEigh) return GpuPath::kVendor;
  using Work = small::EigenWork<Element<T>, RealElement<Element<T>>>;
  const int64_t numbers = small::SizeOf<Work>(static_cast<int>(n), true);
  const int64_t bytes = numbers * static_cast<int64_t>(sizeof(RealElement<Element<T>>));
  if (n > 0 && bytes <= kThreadEighBytes) return GpuPath::kThread;
  return fits() ? GpuPath::kTeam : GpuPath::kVendor;
}

struct EighCall {
  // Teams take three launches, with scratch memory between them.
  template <class T>
  static GpuPath Path(const TracedCall& call) {
    const GpuPath path = EighPath<T>(call.Cols(), [] { return true; });
    return path == GpuPath::kTeam ? GpuPath::kSteps : path;
  }
};

}  // namespace linalg::cuda
