// Products between the panels of blocked factorisations, for a whole batch in one call of cuBLAS.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/handles.h"
#include "kernels/ffi.h"

namespace linalg::cuda {

// A submatrix of each row-major matrix of a batch. Rows are `ld` elements apart, matrices `stride`.
template <class T>
struct Submatrix {
  T* data;
  int64_t ld;
  int64_t stride;
  vendor::Transposition op = vendor::kPlain;

  Submatrix Transposed() const { return {data, ld, stride, vendor::kTranspose}; }
  Submatrix Adjoint() const { return {data, ld, stride, vendor::kAdjoint}; }
  Submatrix<const T> Read() const { return {data, ld, stride, op}; }
};

// The largest number of matrices in one call: a grid has at most 65,535 blocks in its third
// dimension.
inline constexpr int64_t kProductsInCall = 1 << 15;

// c = alpha op(a) op(b) + beta c, where c is (rows, cols) and op(a) is (rows, inner). The result is
// not read where beta is 0. A row-major matrix is the transpose of a column-major one, so cuBLAS
// computes cᵀ = op(b)ᵀ op(a)ᵀ.
template <class T>
void Multiply(vendor::Blas blas, int64_t batch, int64_t rows, int64_t cols, int64_t inner, T alpha,
              Submatrix<const T> a, Submatrix<const T> b, T beta, Submatrix<T> c) {
  if (rows == 0 || cols == 0) return;
  // Calls of about equal size: cuBLAS may compute the product of a single matrix in another way.
  const int64_t calls = (batch + kProductsInCall - 1) / kProductsInCall;
  const int64_t most = calls > 0 ? (batch + calls - 1) / calls : 0;
  for (int64_t first = 0; first < batch; first += most) {
    const int64_t count = std::min(batch - first, most);
    vendor::GemmStridedBatched(blas, b.op, a.op, ToInt(cols), ToInt(rows), ToInt(inner), alpha,
                               b.data + first * b.stride, ToInt(b.ld), b.stride,
                               a.data + first * a.stride, ToInt(a.ld), a.stride, beta,
                               c.data + first * c.stride, ToInt(c.ld), c.stride, ToInt(count));
  }
}

}  // namespace linalg::cuda
