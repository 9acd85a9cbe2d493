// The path of eigenvalues and eigenvectors of Hermitian matrices.
#pragma once

#include "kernels/cuda/path.h"
#include "kernels/small/eigh.h"

namespace linalg::cuda {

// Eigenvalues without vectors take the same path. By threads and teams they have the same bits. The
// iteration of a thread reads a last row, which an empty matrix lacks. fits(): whether the arrays
// of both kinds of teams fit in shared memory; panels_fit(): whether those of panels do.
template <class T, class Fits, class PanelsFit>
GpuPath EighPath(int64_t n, int64_t batch, Fits&& fits, PanelsFit&& panels_fit) {
  const auto larger = [&] {
    const bool panels = n <= kPanelsEigh && n <= batch * kPanelsEighRatio && panels_fit();
    return panels ? GpuPath::kPanels : GpuPath::kVendor;
  };
  if (n > kTeamEigh) return larger();
  using Work = small::EigenWork<Element<T>, RealElement<Element<T>>>;
  const int64_t numbers = small::SizeOf<Work>(static_cast<int>(n), true);
  const int64_t bytes = numbers * static_cast<int64_t>(sizeof(RealElement<Element<T>>));
  if (n > 0 && bytes <= kThreadEighBytes) return GpuPath::kThread;
  return fits() ? GpuPath::kTeam : larger();
}

struct EighCall {
  // Teams take three launches, with scratch memory between them.
  template <class T>
  static GpuPath Path(const TracedCall& call) {
    const GpuPath path =
        EighPath<T>(call.Cols(), /*batch=*/0, [] { return true; }, [] { return false; });
    return path == GpuPath::kTeam ? GpuPath::kSteps : path;
  }
};

}  // namespace linalg::cuda
