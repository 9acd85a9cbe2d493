// Triangular solves on row-major matrices, shared by every handler that substitutes.
#pragma once

#include <cstdint>

#include "kernels/cpu/batch.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cpu/tuning.h"

namespace linalg {

// Which triangle of `a` is read, and what is solved with it: op(a) x = b, or x op(a) = b.
struct Triangle {
  bool lower;
  bool transpose = false;
  bool conjugate = false;
  bool unit_diagonal = false;
  bool left_side = true;
};

template <class T>
void Conjugate(int64_t size, T* x) {
  if constexpr (kIsComplex<T>) {
    for (int64_t i = 0; i < size; ++i) x[i] = std::conj(x[i]);
  }
}

// Replaces the row-major rows-by-cols `b` by the solution x.
//
// To BLAS a row-major matrix is its transpose: the triangle, the side and the order of `b` flip,
// the operation stays. What BLAS lacks, a conjugate without transposition, is the solve of conj(b).
template <class T>
void SolveTriangular(const Triangle& triangle, int64_t n, const T* a, int64_t rows, int64_t cols,
                     T* b) {
  if (rows == 0 || cols == 0) return;
  const bool vector = (triangle.left_side ? cols : rows) == 1;
  // A column vector is not transposed by being stored row-major, so op is applied to a transpose.
  const bool transpose = vector && triangle.left_side ? !triangle.transpose : triangle.transpose;
  const bool conjugate = kIsComplex<T> && triangle.conjugate;
  const bool conjugate_b = conjugate && !transpose;
  const char uplo = triangle.lower ? 'U' : 'L';
  const char trans = !transpose ? 'N' : conjugate ? 'C' : 'T';
  const char diag = triangle.unit_diagonal ? 'U' : 'N';
  if (conjugate_b) Conjugate(rows * cols, b);
  if (vector) {
    lapack::Trsv(uplo, trans, diag, ToInt(n), a, ToInt(n), b);
  } else {
    lapack::Trsm(triangle.left_side ? 'R' : 'L', uplo, trans, diag, ToInt(cols), ToInt(rows), a,
                 ToInt(n), b, ToInt(cols));
  }
  if (conjugate_b) Conjugate(rows * cols, b);
}

// Copies the batch `b` to `x` and calls solve(index, a, x) for each matrix, on the thread pool,
// with x ready to be solved in place. One `a` of rank 2 serves a whole batch.
template <class T, class Solve>
void ForEachRightHandSide(ffi::ThreadPool& pool, const ffi::AnyBuffer& a, const ffi::AnyBuffer& b,
                          ffi::Result<ffi::AnyBuffer>& x, bool left_side, Solve&& solve) {
  const BatchShape matrix = SplitSquareBatch(a, "a");
  const BatchShape rhs = SplitBatch(b, 2, "b");
  const int64_t n = matrix.rows;
  if ((left_side ? rhs.rows : rhs.cols) != n) {
    throw BadArgument("b", std::string("have as many ") + (left_side ? "rows" : "columns") +
                               " as the triangular matrix");
  }
  const bool shared = a.dimensions().size() == 2;
  if (!shared && matrix.batch != rhs.batch) throw BadArgument("b", "have the batch size of a");
  const T* a_data = Elements<T>(a, matrix.batch * n * n, "a");
  const T* b_data = Elements<T>(b, rhs.batch * rhs.size(), "b");
  T* x_data = Elements<T>(x, rhs.batch * rhs.size(), "x");
  const BlasThreads threads(ThreadsFor(rhs.batch, n));
  const double nanoseconds = LapackNanoseconds(static_cast<double>(n * rhs.size()));
  ForEachRange(pool, rhs.batch, nanoseconds, [&](int64_t first, int64_t last) {
    std::copy(b_data + first * rhs.size(), b_data + last * rhs.size(), x_data + first * rhs.size());
    for (int64_t i = first; i < last; ++i) {
      solve(i, a_data + (shared ? 0 : i * n * n), x_data + i * rhs.size());
    }
  });
}

}  // namespace linalg
