// Singular values and vectors of a batch, shared by the files that compute them.
#pragma once

#include <vector>

#include "kernels/cuda/job.h"

namespace linalg::cuda {

template <class E>
struct SvdProblem {
  using V = RealElement<E>;
  int m, n;
  bool vectors, full;
  int u_cols, vh_rows;  // as of SvdShape
  const E* a;
  E* u;  // used, with vh, if vectors are wanted
  V* s;
  E* vh;
  int32_t* info;

  __host__ __device__ bool Tall() const { return m >= n; }
  __host__ __device__ int Longer() const { return m > n ? m : n; }
  __host__ __device__ int Shorter() const { return m > n ? n : m; }
  // The number of columns of U for a tall matrix, or of V for a wide one.
  __host__ __device__ int Width() const { return Tall() ? u_cols : vh_rows; }
  // The distance of rows in a slice, of the longer factor, or of the matrix without vectors.
  __host__ __device__ int Ld() const { return (vectors ? Width() : Shorter()) | 1; }
  __host__ __device__ int64_t LeftSize() const { return static_cast<int64_t>(m) * u_cols; }
  __host__ __device__ int64_t RightSize() const { return static_cast<int64_t>(n) * vh_rows; }
};

// Factors matrices by one-sided Jacobi with blocks of columns, many matrices at a time:
// svd_blocks.cu. U and Vᴴ have as many columns and rows as there are singular values. Returns the
// matrices that it leaves to another routine: their results are undefined.
template <class T>
std::vector<int64_t> BlockJacobiSvd(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
                                    const SvdProblem<Element<T>>& problem);

}  // namespace linalg::cuda
