// Passes over a batch around the vendor's routines.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/vendor.h"

namespace linalg::cuda {

template <class Body>
__global__ void __launch_bounds__(256) RunForEach(const Body body, int64_t count) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    body(i);
  }
}

// body(i) for i in [0, count)
template <class Body>
void ForEach(cudaStream_t stream, int64_t count, const Body& body) {
  if (count == 0) return;
  constexpr int kThreads = 256;
  constexpr int64_t kMostBlocks = 1 << 14;
  const int64_t blocks = std::min((count + kThreads - 1) / kThreads, kMostBlocks);
  RunForEach<Body><<<GridSize(blocks), kThreads, 0, stream>>>(body, count);
  Check(cudaGetLastError(), "launching a kernel");
}

template <class T>
struct WritePointers {
  T* base;
  int64_t stride;
  T** pointers;

  __device__ void operator()(int64_t i) const { pointers[i] = base + i * stride; }
};

// What batched routines take: an array of pointers to the matrices, in the device's memory.
template <class T>
T** MakePointers(cudaStream_t stream, Scratch& scratch, T* base, int64_t stride, int64_t batch) {
  T** const pointers = scratch.Take<T*>(batch);
  ForEach(stream, batch, WritePointers<T>{base, stride, pointers});
  return pointers;
}

inline constexpr int kTransposeTile = 32;

template <class E>
__global__ void __launch_bounds__(256)
    RunTranspose(int64_t batch, int64_t rows, int64_t cols, const E* source, int64_t source_size,
                 E* target, int64_t target_size) {
  __shared__ __align__(16) char memory[kTransposeTile * (kTransposeTile + 1) * sizeof(E)];
  E* const tile = reinterpret_cast<E*>(memory);
  constexpr int kPitch = kTransposeTile + 1;
  const int64_t row_tiles = (rows + kTransposeTile - 1) / kTransposeTile;
  const int64_t col_tiles = (cols + kTransposeTile - 1) / kTransposeTile;
  const int lane = threadIdx.x % kTransposeTile, step = blockDim.x / kTransposeTile;
  const int64_t count = batch * row_tiles * col_tiles;
  for (int64_t block = blockIdx.x; block < count; block += gridDim.x) {
    const int64_t i0 = block / col_tiles % row_tiles * kTransposeTile;
    const int64_t j0 = block % col_tiles * kTransposeTile;
    const E* const from = source + block / col_tiles / row_tiles * source_size;
    E* const to = target + block / col_tiles / row_tiles * target_size;
    for (int i = threadIdx.x / kTransposeTile; i < kTransposeTile; i += step) {
      if (i0 + i < rows && j0 + lane < cols) {
        tile[i * kPitch + lane] = LoadGlobal(from + (i0 + i) * cols + j0 + lane);
      }
    }
    __syncthreads();
    for (int j = threadIdx.x / kTransposeTile; j < kTransposeTile; j += step) {
      if (j0 + j < cols && i0 + lane < rows) {
        StoreGlobal<E>(tile[lane * kPitch + j], to + (j0 + j) * rows + i0 + lane);
      }
    }
    __syncthreads();
  }
}

// Row-major (rows, cols) matrices become (cols, rows) ones; `source_size` and `target_size`
// elements lie from one to the next.
template <class T>
void Transpose(cudaStream_t stream, int64_t batch, int64_t rows, int64_t cols, const T* source,
               int64_t source_size, T* target, int64_t target_size) {
  const int64_t tiles = batch * ((rows + kTransposeTile - 1) / kTransposeTile) *
                        ((cols + kTransposeTile - 1) / kTransposeTile);
  if (tiles == 0) return;
  RunTranspose<Element<T>><<<GridSize(tiles), 256, 0, stream>>>(
      batch, rows, cols, AsElements(source), source_size, AsElements(target), target_size);
  Check(cudaGetLastError(), "launching a kernel");
}

template <class T>
void Copy(cudaStream_t stream, int64_t count, const T* source, T* target) {
  if (count == 0 || source == target) return;
  Check(cudaMemcpyAsync(target, source, count * sizeof(T), cudaMemcpyDeviceToDevice, stream),
        "cudaMemcpyAsync");
}

// NaN in the matrices, `size` elements each, whose info is not 0.
template <class E>
struct FillFailed {
  E* x;
  int64_t size;
  const int32_t* info;

  __device__ void operator()(int64_t i) const {
    if (info[i / size] != 0) StoreGlobal<E>(NaN<E>(), x + i);
  }
};

}  // namespace linalg::cuda
