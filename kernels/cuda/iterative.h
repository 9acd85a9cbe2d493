// Wrappers of the vendor's iterations, which may not end on NaN. They get finite matrices of a norm
// near 1, and their info is merged with ours.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/cuda/passes.h"
#include "kernels/team/largest.h"

namespace linalg::cuda {

// The workspace of a cuSOLVER routine, on the device and on the host.
class VendorWorkspace {
 public:
  template <class Routine>
  VendorWorkspace(cudaStream_t stream, DeviceScratch& scratch, const Routine& routine)
      : stream_(stream),
        device_(scratch.Take<char>(static_cast<int64_t>(routine.device_bytes))),
        host_(std::max<size_t>(routine.host_bytes, 1)),
        uses_host_(routine.host_bytes > 0) {}
  ~VendorWorkspace() {
    if (lent_) static_cast<void>(cudaStreamSynchronize(stream_));
  }
  VendorWorkspace(const VendorWorkspace&) = delete;
  VendorWorkspace& operator=(const VendorWorkspace&) = delete;

  void* device() { return device_; }
  void* host() {
    lent_ = uses_host_;
    return host_.data();
  }

  // The stream may still use the host's memory, so wait before it is reused.
  void Release() {
    if (lent_) Wait();
  }
  void Wait() {
    Check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    lent_ = false;
  }

 private:
  cudaStream_t stream_;
  char* device_;
  std::vector<char> host_;
  bool uses_host_;
  bool lent_ = false;
};

// Our info takes precedence over the vendor's.
struct MergeInfo {
  int32_t* info;
  const int32_t* vendors;

  __device__ void operator()(int64_t i) const {
    if (info[i] == 0) info[i] = vendors[i];
  }
};

// The elements of matrices of `size` elements each, one after another.
template <class E>
struct WholeMatrix {
  const E* a;
  int64_t size;

  __device__ E operator()(int64_t matrix, int64_t i) const {
    return LoadGlobal(a + matrix * size + i);
  }
};

// Measures each matrix by its elements counted(matrix, i), i < size. info is 0 or kNotFinite. The
// scales are powers of two that bring the largest element near 1, and back.
template <class E, class Counted = WholeMatrix<E>>
struct FindScales {
  static constexpr int kMostThreads = kGlobalThreads;
  using V = RealElement<E>;
  Counted counted;
  int64_t size;
  int32_t* info;
  V* scales;
  V* inverses;

  __device__ void Run(const Team& team, int64_t matrix, char*) const {
    const V largest =
        team::LargestComponent<V>(team, size, [&](int64_t i) { return counted(matrix, i); });
    team.Phase([&](int thread) {
      if (thread != 0) return;
      info[matrix] = team::IsFinite(largest) ? 0 : kNotFinite;
      V inverse;
      scales[matrix] = PowerOfTwoScale(largest, inverse);
      inverses[matrix] = inverse;
    });
  }
};

template <class E, class Counted>
FindScales<E, Counted> MeasureBatch(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
                                    int64_t size, const Counted& counted, int32_t* info) {
  using V = RealElement<E>;
  const FindScales<E, Counted> job{.counted = counted,
                                   .size = size,
                                   .info = info,
                                   .scales = scratch.Take<V>(batch),
                                   .inverses = scratch.Take<V>(batch)};
  LaunchTeams(stream, job, batch, job.kMostThreads, SharedLayout(sizeof(V)));
  return job;
}

// Copies one row-major matrix, scaled, perhaps transposed. A matrix that is not finite is replaced
// by the identity.
template <class E>
struct CopyScaled {
  FindScales<E> measured;
  int64_t matrix, rows;
  LongDivider by_cols;
  bool transpose;
  E* target;

  __device__ void operator()(int64_t place) const {
    using V = RealElement<E>;
    const int64_t i = by_cols(place), j = place - i * by_cols.divisor();
    const E x = measured.info[matrix] != 0
                    ? FromReal<E>(V(i == j))
                    : measured.scales[matrix] * measured.counted(matrix, place);
    StoreGlobal<E>(x, target + (transpose ? j * rows + i : place));
  }
};

// Calls routine(i, info) for one matrix after another, which CopyScaled puts in `matrix`. Returns
// the scales for the results; info is complete.
template <class T, class Routine>
FindScales<Element<T>> ForEachScaled(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
                                     int64_t rows, int64_t cols, const Element<T>* a,
                                     bool transpose, T* matrix, int32_t* info, Routine&& routine) {
  const int64_t size = rows * cols;
  const auto scales = MeasureBatch<Element<T>>(stream, scratch, batch, size,
                                               WholeMatrix<Element<T>>{.a = a, .size = size}, info);
  int32_t* const vendors_info = scratch.Take<int32_t>(batch);
  for (int64_t i = 0; i < batch; ++i) {
    ForEach(stream, size,
            CopyScaled<Element<T>>{.measured = scales,
                                   .matrix = i,
                                   .rows = rows,
                                   .by_cols = LongDivider(cols),
                                   .transpose = transpose,
                                   .target = AsElements(matrix)});
    routine(i, vendors_info + i);
  }
  ForEach(stream, batch, MergeInfo{.info = info, .vendors = vendors_info});
  return scales;
}

// Scales back results that are proportional to the matrices, `count` numbers for each. They become
// NaN where info is not 0.
template <class E>
struct ScaleBack {
  E* x;
  LongDivider by_count;
  const RealElement<E>* inverses;
  const int32_t* info;

  __device__ void operator()(int64_t i) const {
    const int64_t matrix = by_count(i);
    const E value = info[matrix] != 0 ? NaN<E>() : inverses[matrix] * LoadGlobal(x + i);
    StoreGlobal<E>(value, x + i);
  }
};

}  // namespace linalg::cuda
