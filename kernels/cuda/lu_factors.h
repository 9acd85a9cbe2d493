// LU factors, shared by the handlers.
#pragma once

#include "kernels/cuda/job.h"
#include "kernels/cuda/lu_path.h"

namespace linalg::cuda {

// Row-major matrices and their factors.
template <class E>
struct GpuLuProblem {
  int64_t batch;
  int rows, cols;
  const E* a;
  E* packed;             // where the factors go
  int32_t* pivots;       // Count() of them
  int32_t* permutation;  // `rows`
  int32_t* info;
  // Read by the vendor's LU alone: whether a substitution follows.
  bool substitutes = false;

  __host__ __device__ int Count() const { return rows < cols ? rows : cols; }
  __host__ __device__ int64_t Size() const { return static_cast<int64_t>(rows) * cols; }
};

// A problem of square matrices whose factors are intermediate. Factors and pivots go to scratch
// memory unless they are given a place.
template <class E>
GpuLuProblem<E> MakeProblem(DeviceScratch& scratch, int64_t batch, int64_t n, const E* a,
                            int32_t* info, bool substitutes, E* packed = nullptr,
                            int32_t* pivots = nullptr) {
  return {.batch = batch,
          .rows = ToInt(n),
          .cols = ToInt(n),
          .a = a,
          .packed = packed != nullptr ? packed : scratch.Take<E>(batch * n * n),
          .pivots = pivots != nullptr ? pivots : scratch.Take<int32_t>(batch * n),
          .permutation = scratch.Take<int32_t>(batch * n),
          .info = info,
          .substitutes = substitutes};
}

// The arrays of a matrix that a team factors, its rows `ld` apart.
template <class E>
struct LuOffsets {
  Offset<E> matrix;
  Offset<int32_t> pivots, permutation;
  int ld;

  LuOffsets(SharedLayout& layout, int rows, int cols)
      : matrix(layout.Take<E>(int64_t{rows} * (cols | 1))),
        pivots(layout.Take<int32_t>(std::min(rows, cols))),
        permutation(layout.Take<int32_t>(rows)),
        ld(cols | 1) {}
};

// The arrays of a matrix that threads of a warp factor.
template <class E>
struct WarpLuOffsets {
  RowsOfWarp rows;
  Offset<E> matrix;
  Offset<int32_t> permutation;

  WarpLuOffsets(SharedLayout& layout, int rows, int cols)
      : rows(rows, cols),
        matrix(layout.Take<E>(int64_t{rows} * this->rows.ld)),
        permutation(layout.Take<int32_t>(rows)) {}
};

// The vendor's path for panels that do not fit in shared memory.
inline GpuPath PanelsOrVendor(GpuPath path) {
  return path == GpuPath::kPanels && SharedBytes() < kPanelsBytes ? GpuPath::kVendor : path;
}

// The path of a factorisation. Factors are row-major, except the vendor's.
template <class E>
GpuPath ChooseFactors(int64_t rows, int64_t cols) {
  return PanelsOrVendor(LuPath<E>(rows, cols, [&](int64_t bytes) {
    // Checked before FitsInShared, which counts in int.
    return bytes <= SharedBytes() &&
           FitsInShared<LuOffsets<E>>(sizeof(RealElement<E>), ToInt(rows), ToInt(cols));
  }));
}

// Factors in shared memory: by a thread, threads of a warp, or a team. Pivots and permutation count
// from 0. info is 0, the 1-based index of the first zero pivot, or -1 where the factors hold NaN.
template <class E>
void FactorLu(cudaStream_t stream, const GpuLuProblem<E>& problem);

// Factors panel by panel, to results of the same kind, where shared memory cannot hold the matrix.
template <class T>
void PanelsLu(cudaStream_t stream, DeviceScratch& scratch, const GpuLuProblem<Element<T>>& problem);

// Factors by cuSOLVER or cuBLAS, column-major. A matrix with a pivot whose reciprocal overflows is
// factored again. If `substitutes`, that pivot is the info instead.
template <class T>
void VendorLu(cudaStream_t stream, DeviceScratch& scratch, const GpuLuProblem<Element<T>>& problem);

// The order of the rows after the exchanges, in one launch. A pivot outside the permutation is
// ignored.
void PivotsToPermutation(cudaStream_t stream, int64_t batch, int64_t count, int64_t size,
                         const int32_t* pivots, int32_t* permutation);

}  // namespace linalg::cuda
