// Passes over a batch around the vendor's routines.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/vendor.h"

namespace linalg::cuda {

// Whether the vendor's batched LU is taken, rather than one matrix after another.
inline bool UseBatchedRoutine(int64_t batch, int64_t n) {
  return batch > 1 && n / batch <= kBatchedRoutineRatio;
}

template <class T>
struct WritePointers {
  T* base;
  int64_t stride;
  T** pointers;

  __device__ void operator()(int64_t i) const { pointers[i] = base + i * stride; }
};

// An array of pointers to the matrices, in the device's memory, for batched routines.
template <class T>
T** MakePointers(cudaStream_t stream, DeviceScratch& scratch, T* base, int64_t stride,
                 int64_t batch) {
  T** const pointers = scratch.Take<T*>(batch);
  ForEach(stream, batch, WritePointers<T>{.base = base, .stride = stride, .pointers = pointers});
  return pointers;
}

template <class T>
void Copy(cudaStream_t stream, int64_t count, const T* source, T* target) {
  if (count == 0 || source == target) return;
  Check(cudaMemcpyAsync(target, source, count * sizeof(T), cudaMemcpyDeviceToDevice, stream),
        "cudaMemcpyAsync");
}

// Writes NaN to the matrices whose info is not 0.
template <class E>
struct FillFailed {
  E* x;
  LongDivider by_size;
  const int32_t* info;

  __device__ void operator()(int64_t i) const {
    if (info[by_size(i)] != 0) StoreGlobal<E>(NaN<E>(), x + i);
  }
};

// Writes identity matrices.
template <class E>
struct WriteIdentity {
  MatrixElements elements;
  E* x;

  __device__ void operator()(int64_t place) const {
    using V = RealElement<E>;
    const auto [matrix, i, j] = elements(place);
    StoreGlobal<E>(FromReal<E>(V(i == j)), x + place);
  }
};

// Writes identity matrices with their rows permuted.
template <class E>
struct WritePermuted {
  MatrixElements elements;
  const int32_t* permutation;
  int64_t n;
  E* x;

  __device__ void operator()(int64_t place) const {
    using V = RealElement<E>;
    const auto [matrix, i, j] = elements(place);
    StoreGlobal<E>(FromReal<E>(V(permutation[matrix * n + i] == j)), x + place);
  }
};

}  // namespace linalg::cuda
