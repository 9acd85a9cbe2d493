// QR factorisations of a batch, shared by the handlers.
#pragma once

#include "kernels/arithmetic/reflector.h"
#include "kernels/cuda/job.h"

namespace linalg::cuda {

// The problem for m by n matrices, `count` reflectors each: a QrShape in a kernel's integers, with
// its operands. Flags and sizes tell which results are requested, because a pointer may be null for
// a buffer without elements.
template <class E>
struct QrProblem {
  int64_t batch;
  int m, n, count;
  const E* a;
  bool factored = false;  // `a` and `taus_in` hold reflectors already
  const E* taus_in = nullptr;
  bool packed = false;  // R has the reflectors below it, and their taus are a result
  E* taus = nullptr;
  E* r = nullptr;  // its r_rows first rows
  int r_rows = 0;
  E* q = nullptr;  // its q_cols first columns
  int q_cols = 0;
  bool pivoted = false;  // the columns, to `order`
  int32_t* order = nullptr;

  __host__ __device__ int Columns() const { return n > q_cols ? n : q_cols; }

  // The element of `r`, where factors(i, j) is R with the reflectors below it.
  template <class Factors>
  __device__ __forceinline__ E RAt(int i, int j, Factors&& factors) const {
    return packed ? factors(i, j) : WithoutReflectors(i, j, factors);
  }
};

template <class T>
void SolveQr(cudaStream_t stream, DeviceScratch& scratch, const QrProblem<Element<T>>& problem);

}  // namespace linalg::cuda
