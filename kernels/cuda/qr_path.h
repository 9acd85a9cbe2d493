// The path of QR, plain and pivoted, and of products of reflectors.
#pragma once

#include "kernels/cuda/path.h"

namespace linalg::cuda {

// m by n matrices, with `count` reflectors and `q_cols` columns of Q.
struct QrSizes {
  int64_t m, n, q_cols, count;
  bool pivoted;

  int64_t Columns() const { return std::max(n, q_cols); }
};

// Bytes of the matrix in shared memory, where Q takes its place.
inline int64_t TeamQrBytes(const QrSizes& sizes, int64_t element_bytes) {
  return sizes.m * (sizes.Columns() | 1) * element_bytes;
}

// Bytes of a panel of QR in shared memory, with its workspace: kernels/team/qr_panel.h. Two more
// numbers keep the arrays apart.
inline int64_t QrPanelBytes(int64_t rows, int64_t cols, int64_t element_bytes) {
  return ((rows + cols) * (cols | 1) + 2 * cols + 2 * kGlobalThreads + 2) * element_bytes;
}

// The columns of a panel of so many rows, a power of two, or 0 if too few fit. They depend neither
// on the batch nor on what else runs, so a matrix has the same panels in any batch.
inline int QrPanelColumns(int64_t rows, int64_t element_bytes, int64_t shared) {
  const int64_t most = std::min(kPanelQrBytes, shared);
  for (int cols = kPanelQrColumns; cols >= kLeastPanelQrColumns; cols /= 2) {
    if (QrPanelBytes(rows, cols, element_bytes) <= most) return cols;
  }
  return 0;
}

// `shared` are the bytes of shared memory for the matrix. The vendor has no column pivoting.
inline GpuPath QrPath(const QrSizes& sizes, int64_t element_bytes, int64_t batch, int64_t shared) {
  const auto& [m, n, q_cols, count, pivoted] = sizes;
  const int64_t elements = m * sizes.Columns() + m * n + count;
  if (!pivoted && elements * element_bytes <= kThreadQrBytes) return GpuPath::kThread;
  const int64_t bytes = TeamQrBytes(sizes, element_bytes);
  const bool fits = bytes <= std::min(kTeamQrBytes, shared);
  if (fits && (pivoted || std::min(m, n) <= kTeamQr)) return GpuPath::kTeam;
  const bool many =
      batch >= kGlobalBatch && bytes <= std::min(batch * kGlobalQrBytesOfBatch, kGlobalQrBytes);
  const bool panels = many || m <= std::min(batch * kPanelQrRowsOfBatch, kPanelQrRows);
  if (panels && !pivoted && count > 0 && QrPanelColumns(m, element_bytes, shared) > 0) {
    return GpuPath::kPanels;
  }
  return pivoted || count == 0 || many ? GpuPath::kBlock : GpuPath::kVendor;
}

enum class QrResults { kQ, kPivotedQ, kNoQ, kProduct };

template <QrResults kResults>
struct QrCall {
  template <class T>
  static GpuPath Path(const TracedCall& call) {
    constexpr bool kHasQ = kResults == QrResults::kQ || kResults == QrResults::kPivotedQ;
    const int64_t m = call.Rows(), n = call.Cols();
    const QrSizes sizes{
        .m = m,
        .n = n,
        .q_cols = kHasQ ? call.results.at(0).at(1) : 0,
        .count = kResults == QrResults::kProduct ? call.operands.at(1).at(0) : std::min(m, n),
        .pivoted = kResults == QrResults::kPivotedQ};
    constexpr int64_t kBytes = sizeof(T);
    const int64_t smaller_arrays = (m + n) * kBytes;
    return QrPath(sizes, kBytes, /*batch=*/0, kTeamAnywhereBytes - smaller_arrays);
  }
};

}  // namespace linalg::cuda
