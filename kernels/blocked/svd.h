// Singular values and vectors of one matrix. A tall matrix is first reduced to its R. Then come
// bidiagonal form, divide and conquer, and the reflectors of the reduction, in blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/blocked/bidiagonal_svd.h"
#include "kernels/blocked/qr.h"
#include "kernels/blocked/tasks.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// The workspace serves one matrix after another. U and Vᴴ are square if `full`. Comments describe
// tall matrices; a wide matrix is handled as its adjoint.
template <class T>
class SingularValues {
  using R = RealElement<T>;

 public:
  SingularValues(int64_t rows, int64_t cols, bool full, bool vectors);

  // Computes the singular values of the row-major `a`, descending, and its singular vectors unless
  // `u` and `vh` are null. Returns kNotFinite if `a` is not finite, else the number of singular
  // values that did not converge (0 on success).
  int Solve(const T* a, R* values, T* u, T* vh, const RunTasks& run_tasks);

 private:
  R ReadScaled(const T* a, Rows<T> target);
  void MakeVectors(T* u, T* vh, const RunTasks& run_tasks);

  bool wide_;
  int64_t m_, n_, left_cols_;
  Workspace<T> square_, left_reflectors_, work_;
  std::optional<QrFactors<T>> qr_;  // for matrices that are not square
  // This is in double precision, because in float32 the deflation of divide and conquer would
  // dominate the error.
  BidiagonalSvd bidiagonal_;
  std::optional<QrFactors<T>> reflectors_;
  std::optional<Workspace<T>> left_vectors_;
  std::unique_ptr<T[]> right_taus_, left_taus_;
  std::unique_ptr<R[]> diagonal_, beside_;
  std::unique_ptr<double[]> wide_diagonal_, wide_beside_;
};

}  // namespace linalg::blocked
