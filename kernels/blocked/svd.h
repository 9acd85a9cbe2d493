// Singular values and vectors of one matrix: reduction to bidiagonal form, of a tall matrix's R;
// divide and conquer; and the reflectors of the reduction, in blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/blocked/bidiagonal_svd.h"
#include "kernels/blocked/qr.h"
#include "kernels/blocked/tasks.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// In memory that serves one matrix after another. U and Vᴴ are square if `full`. What is said here
// of a tall matrix is so of a wide one's adjoint.
template <class T>
class SingularValues {
  using R = RealElement<T>;

 public:
  SingularValues(int64_t rows, int64_t cols, bool full, bool vectors);

  // The singular values of the row-major `a`, descending, and the singular vectors unless `u` and
  // `vh` are null. Returns kNotFinite where `a` is not finite, else how many singular values did
  // not converge: 0.
  int Solve(const T* a, R* values, T* u, T* vh, const RunTasks& run_tasks);

 private:
  R ReadScaled(const T* a, Rows<T> target);
  void MakeVectors(T* u, T* vh, const RunTasks& run_tasks);

  bool wide_;
  int64_t m_, n_, left_cols_;
  Workspace<T> square_, left_reflectors_, work_;
  std::optional<QrFactors<T>> qr_;  // of a matrix that is not square
  // In double precision: what divide and conquer deflates would be most of the error of float32's.
  BidiagonalSvd bidiagonal_;
  std::optional<QrFactors<T>> reflectors_;
  std::optional<Workspace<T>> left_vectors_;
  std::unique_ptr<T[]> right_taus_, left_taus_;
  std::unique_ptr<R[]> diagonal_, beside_;
  std::unique_ptr<double[]> wide_diagonal_, wide_beside_;
};

}  // namespace linalg::blocked
