// Eigenvalues and eigenvectors of one Hermitian matrix: reduction to tridiagonal form, divide and
// conquer, and the reflectors of the reduction, in blocks.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/arithmetic/hermitian.h"
#include "kernels/blocked/qr.h"
#include "kernels/blocked/tasks.h"
#include "kernels/blocked/tridiagonal_eigh.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// The workspace serves one matrix of order n after another.
template <class T>
class HermitianEigen {
  using R = RealElement<T>;

 public:
  HermitianEigen(int64_t n, bool vectors);

  // Computes the eigenvalues of the Hermitian part of the row-major `a`, ascending. Computes the
  // eigenvectors, in columns, unless `vectors` is null. Returns kNotFinite if the part is not
  // finite, else the number of eigenvalues that did not converge (0 on success).
  int Solve(HermitianPart part, const T* a, R* values, T* vectors, const RunTasks& run_tasks);

 private:
  void MakeVectors(T* vectors, const RunTasks& run_tasks);

  int64_t n_;
  Workspace<T> workspace_, work_;
  // This is in double precision, because in float32 the deflation of divide and conquer would
  // dominate the error.
  TridiagonalEigh<double> tridiagonal_;
  QrFactors<T> reflectors_;
  std::unique_ptr<T[]> taus_;
  std::unique_ptr<R[]> beside_;
  std::unique_ptr<double[]> wide_diagonal_, wide_beside_;
};

}  // namespace linalg::blocked
