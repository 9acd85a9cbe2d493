// Substitution with given factors, shared by every handler that solves.
#pragma once

#include "kernels/arithmetic/triangle.h"
#include "kernels/cuda/job.h"
#include "kernels/systems.h"

namespace linalg::cuda {

// The contents of the row-major `a`, and the operation to solve with.
struct GivenFactors {
  enum class With { kTriangle, kCholesky, kLu };

  With with = With::kTriangle;
  // For a Cholesky factor only `lower` counts, for LU factors only the operation.
  Triangle triangle = {};
  // The exchanges of LU factors, `pivots_stride` apart from one system to the next. They are null
  // if the rows of b are exchanged already.
  const int32_t* pivots = nullptr;
  int64_t pivots_stride = 0;
  // The order of the rows after the exchanges, if it is known: as far apart as the pivots.
  const int32_t* permutation = nullptr;
  // The vendor's LU leaves column-major factors.
  bool column_major = false;
  // Whether pivots may be subnormal. cuBLAS multiplies by their reciprocals, which overflow.
  bool any_pivots = false;
};

template <class T>
void Substitute(cudaStream_t stream, DeviceScratch& scratch, const GivenFactors& given,
                const Systems<T>& systems);

}  // namespace linalg::cuda
