// Singular values and vectors of one matrix. A tall matrix is first reduced to its R. Then come
// bidiagonal form, divide and conquer, and the reflectors of the reduction, in blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/blocked/bidiagonal_svd.h"
#include "kernels/blocked/qr.h"
#include "kernels/blocked/tasks.h"
#include "kernels/blocked/tridiagonal_part.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// The workspace serves one matrix after another. U and Vᴴ are square if `full`. Comments describe
// tall matrices; a wide matrix is handled as its adjoint.
//
// A few chosen values that are not small are eigenvalues of the tridiagonal matrix of order 2 n
// with zero diagonal, beside which the elements of the bidiagonal matrix lie in turn (Golub and
// Kahan, Calculating the singular values and pseudo-inverse of a matrix, 1965).
template <class T>
class SingularValues {
  using R = RealElement<T>;

 public:
  SingularValues(int64_t rows, int64_t cols, bool full, bool vectors)
      : SingularValues(rows, cols, full, vectors, {0, std::min(rows, cols)}) {}
  // For chosen singular values, by their indices in descending order.
  SingularValues(int64_t rows, int64_t cols, bool full, bool vectors, Chosen chosen);

  // Computes the chosen singular values of the row-major `a`, descending, and their vectors unless
  // `u` and `vh` are null. Returns kNotFinite if `a` is not finite, else the number of singular
  // values that did not converge (0 on success).
  int Solve(const T* a, R* values, T* u, T* vh, const RunTasks& run_tasks);

 private:
  R ReadScaled(const T* a, Rows<T> target);
  bool IsFew() const;
  int64_t FewRows() const;
  void MakeDivide();
  bool SolveFew(R unscale, R* values, const RunTasks& run_tasks);
  void MakeVectors(T* u, T* vh, const RunTasks& run_tasks);

  bool wide_, vectors_;
  int64_t m_, n_;
  Chosen chosen_;
  int64_t left_cols_;
  Workspace<T> square_, left_reflectors_, work_;
  std::optional<QrFactors<T>> qr_;  // for matrices that are not square
  // This is in double precision, because in float32 the deflation of divide and conquer would
  // dominate the error.
  std::optional<BidiagonalSvd> bidiagonal_;
  std::optional<TridiagonalPart> few_;
  Workspace<double> few_vectors_;
  Rows<double> few_left_, few_right_;
  // The chosen vectors of the bidiagonal matrix's adjoint, in rows.
  Rows<double> left_rows_, right_rows_;
  std::optional<QrFactors<T>> reflectors_;
  std::optional<Workspace<T>> left_vectors_;
  std::unique_ptr<T[]> right_taus_, left_taus_;
  std::unique_ptr<R[]> diagonal_, beside_;
  std::unique_ptr<double[]> wide_diagonal_, wide_beside_, zeros_, in_turn_;
};

}  // namespace linalg::blocked
