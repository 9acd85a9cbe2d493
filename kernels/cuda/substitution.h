// Substitution with given factors, shared by every handler that solves.
#pragma once

#include "kernels/arithmetic/triangle.h"
#include "kernels/cuda/job.h"
#include "kernels/systems.h"

namespace linalg::cuda {

// What the row-major `a` holds, and what is solved with it.
struct GivenFactors {
  enum class With { kTriangle, kCholesky, kLu };

  With with = With::kTriangle;
  // Of a Cholesky factor only which triangle it is, of LU factors only the operation.
  Triangle triangle = {};
  // Of LU factors: their exchanges, `pivots_stride` apart from one system's to the next.
  const int32_t* pivots = nullptr;
  int64_t pivots_stride = 0;
  // Factors as the vendor's LU leaves them.
  bool column_major = false;
};

template <class T>
void Substitute(cudaStream_t stream, DeviceScratch& scratch, const GivenFactors& given,
                const Systems<T>& systems);

}  // namespace linalg::cuda
