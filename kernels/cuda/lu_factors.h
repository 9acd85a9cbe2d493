// LU factors as the handlers share them.
#pragma once

#include "kernels/cuda/job.h"

namespace linalg::cuda {

// Row-major matrices and what becomes of them; `packed` is where the factors go.
template <class T>
struct LuProblem {
  int64_t batch, rows, cols;
  const T* a;
  T* packed;
  int32_t* pivots;
  int32_t* permutation;
  int32_t* info;
  // Of the vendor's LU: whether its substitution follows.
  bool substitutes = false;

  int64_t size() const { return rows * cols; }
};

// Square matrices whose factors are only needed on the way.
template <class T>
LuProblem<T> MakeProblem(Scratch& scratch, int64_t batch, int64_t n, const T* a, int32_t* info,
                         bool substitutes) {
  return {batch,
          n,
          n,
          a,
          scratch.Take<T>(batch * n * n),
          scratch.Take<int32_t>(batch * n),
          scratch.Take<int32_t>(batch * n),
          info,
          substitutes};
}

// Whether matrices are factored in shared memory, to row-major factors.
template <class T>
bool UseOwnLu(int64_t rows, int64_t cols) {
  const int64_t ld = cols | 1, ints = 2 * std::max(rows, cols);
  return std::min(rows, cols) <= kTeamLu &&
         rows * ld * static_cast<int64_t>(sizeof(T)) + ints * 4 <= kTeamLuBytes;
}

// Factors in shared memory. pivots (min(rows, cols)) and permutation (rows) count from 0; info is
// 0, from 1 the first pivot that is 0, or -1 where the factors hold NaN.
template <class T>
void OwnLu(cudaStream_t stream, const LuProblem<T>& problem);

// The same by cuSOLVER or cuBLAS, but the factors are column-major. What they do with a pivot whose
// reciprocal overflows is made good, or, with `substitutes`, is the info.
template <class T>
void VendorLu(cudaStream_t stream, Scratch& scratch, const LuProblem<T>& problem);

// The rows' order after the exchanges, in one launch; a pivot outside the permutation is ignored.
void PivotsToPermutation(cudaStream_t stream, int64_t batch, int64_t count, int64_t size,
                         const int32_t* pivots, int32_t* permutation);

}  // namespace linalg::cuda
