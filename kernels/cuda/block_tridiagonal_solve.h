// Long general block-tridiagonal systems in chunks, which banded systems are solved as too.
#pragma once

#include "kernels/block_tridiagonal_shape.h"
#include "kernels/cuda/block_tridiagonal_chunks.h"

namespace linalg::cuda {

template <class T>
struct LongBlockTridiagonal {
  BlockTridiagonalShape shape;
  const T *lower, *diagonal, *upper;
  int64_t cols;
  const T* b;
  T* x;
};

// Whether chunks share systems of so many steps with blocks of order d. A team's blocks fit on
// every GPU.
template <class E>
bool SolvesInChunks(int64_t steps, int64_t d) {
  return steps >= kLongBlockTridiagonal &&
         FitsEveryGpu(kBlocksOfElimination * PaddedBytes<E>(d, d));
}

// Solves in chunks. `suspects` become 1 for systems with a pivot near rounding, or with a residual
// that rounding does not explain, else 0. Other ways must solve the suspects, whose x is arbitrary.
template <class T>
void SolveLongBlockTridiagonal(cudaStream_t stream, DeviceScratch& scratch,
                               const LongBlockTridiagonal<T>& systems, int32_t* suspects);

}  // namespace linalg::cuda
