// The path of singular values and vectors.
#pragma once

#include "kernels/cuda/path.h"
#include "kernels/small/jacobi_svd.h"
#include "kernels/small/svd.h"

namespace linalg::cuda {

// The sides of a matrix. U of a tall matrix, or V of a wide one, has `width` columns. Without
// vectors the matrix itself takes the place of U.
struct SvdSizes {
  int64_t longer, shorter, width;
  bool vectors;

  int64_t LongerFactor() const { return longer * ((vectors ? width : shorter) | 1); }
  int64_t ShorterFactor() const { return vectors ? shorter * (shorter | 1) : 0; }
};

// The workspace of one thread, for square matrices.
template <class E>
using ThreadSvdWork = small::SvdWork<small::JacobiSvd<E, RealElement<E>>, true>;

// Bytes of a team's larger arrays.
template <class T>
int64_t TeamSvdBytes(const SvdSizes& sizes) {
  return (sizes.LongerFactor() + sizes.ShorterFactor()) * static_cast<int64_t>(sizeof(T));
}

// Rows of a block of Jacobi's method. They depend neither on the batch nor on the GPU, so a matrix
// has the same rotations in any batch.
template <class T>
int64_t JacobiBlockRows(int64_t n) {
  return n <= 192 || sizeof(T) > 8 ? 16 : 32;
}

// Bytes of shared memory of a pair of blocks: products, rotations, and a round's angles.
template <class T>
int64_t JacobiPairBytes(int64_t n) {
  const int64_t rows = 2 * JacobiBlockRows<T>(n);
  return (2 * rows * (rows | 1) + 2 * rows) * static_cast<int64_t>(sizeof(T));
}

// `shared` are the bytes of shared memory that a block may have.
template <class T>
GpuPath SvdPath(const SvdSizes& sizes, int64_t batch, int64_t shared) {
  const bool is_small = sizes.shorter <= kTeamSvd;
  if (is_small && sizes.longer == sizes.shorter) {
    const int n = static_cast<int>(sizes.shorter);
    const int64_t numbers = small::SizeOf<ThreadSvdWork<Element<T>>>(n, n, false);
    if (numbers * static_cast<int64_t>(sizeof(RealElement<Element<T>>)) <= kThreadSvdBytes)
      return GpuPath::kThread;
  }
  if (is_small && TeamSvdBytes<T>(sizes) <= std::min(kTeamSvdBytes, shared)) return GpuPath::kTeam;
  // Not for more vectors than singular values.
  const bool panels = !is_small && sizes.shorter <= kJacobiBlocksSvd &&
                      batch >= kJacobiBlocksBatch &&
                      (!sizes.vectors || sizes.width == sizes.shorter) &&
                      JacobiPairBytes<T>(sizes.shorter) <= shared;
  if (panels) return GpuPath::kPanels;
  const bool block = batch >= kGlobalBatch && sizes.LongerFactor() <= kGlobalSvdElements;
  return block ? GpuPath::kBlock : GpuPath::kVendor;
}

enum class SvdRoutine {
  kJacobi,  // gesvdj
  kPolar,   // Xgesvdp
  kQr,      // Xgesvd
};

// The vendor's fastest routine: cuda_svd_routines.json.
template <class T>
SvdRoutine VendorSvdRoutine(const SvdSizes& sizes) {
  if (sizes.shorter >= (sizes.vectors ? kPolarSvd<T> : kPolarSvdvals)) return SvdRoutine::kPolar;
  return sizes.longer <= kVendorJacobiSvd ? SvdRoutine::kJacobi : SvdRoutine::kQr;
}

template <bool kVectors>
struct SvdCall {
  template <class T>
  static GpuPath Path(const TracedCall& call) {
    const int64_t m = call.Rows(), n = call.Cols();
    SvdSizes sizes{
        .longer = std::max(m, n), .shorter = std::min(m, n), .width = 0, .vectors = kVectors};
    if (kVectors) sizes.width = m >= n ? call.results.at(0).at(1) : call.results.at(2).at(0);
    return SvdPath<T>(sizes, /*batch=*/0, kTeamAnywhereBytes);
  }
};

}  // namespace linalg::cuda
