// Eigenvalues and eigenvectors of one Hermitian matrix: reduction to tridiagonal form, divide and
// conquer, and the reflectors of the reduction, in blocks.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/arithmetic/hermitian.h"
#include "kernels/blocked/qr.h"
#include "kernels/blocked/tasks.h"
#include "kernels/blocked/tridiagonal_eigh.h"
#include "kernels/blocked/tridiagonal_subset.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// The tridiagonal form Qᴴ A Q of one Hermitian matrix after another, of order n.
template <class T>
class TridiagonalForm {
  using R = RealElement<T>;

 public:
  TridiagonalForm(int64_t n, bool reflectors);

  // Reduces the Hermitian part of the row-major `a` times a power of two, 1 / unscale, to diagonal
  // d and n - 1 elements e beside it. Returns false if the part is not finite.
  bool Reduce(HermitianPart part, const T* a, R* d, R* e, R& unscale, const RunTasks& run_tasks);

  // The reflectors lie in rows of matrix() until PackReflectors, after which it is free.
  Rows<T> matrix() const { return workspace_.rows(); }
  T* taus() const { return taus_.get(); }
  void PackReflectors(const RunTasks& run_tasks);
  // c (n, cols) = Q c, or Qᴴ c
  void MultiplyByQ(int64_t cols, Rows<T> c, const RunTasks& run_tasks);
  void MultiplyByAdjoint(int64_t cols, Rows<T> c, const RunTasks& run_tasks);

 private:
  int64_t n_;
  Workspace<T> workspace_, work_;
  QrFactors<T> reflectors_;
  std::unique_ptr<T[]> taus_;
};

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
  int64_t n_;
  TridiagonalForm<T> form_;
  // This is in double precision, because in float32 the deflation of divide and conquer would
  // dominate the error.
  TridiagonalEigh<double> tridiagonal_;
  std::unique_ptr<R[]> beside_;
  std::unique_ptr<double[]> wide_diagonal_, wide_beside_;
};

// The tridiagonal form of a matrix as arrays: reflectors (n, n) in rows, their factors taus (n),
// the diagonal d (n), and e (n) beside it, with a zero at its end.
template <class T, class R>
struct FormArrays {
  T *reflectors, *taus;
  R *d, *e;
};

// Chosen eigenvalues and eigenvectors. The workspace serves one matrix of order n after another.
template <class T>
class ChosenEigen {
  using R = RealElement<T>;

 public:
  ChosenEigen(int64_t n, Chosen chosen, bool vectors);

  // Does the work of HermitianEigen::Solve for the chosen values. `outside` receives the three
  // numbers of Outside. Also writes the form, if its arrays are not null.
  int Solve(HermitianPart part, const T* a, R* values, R* outside, T* vectors,
            FormArrays<T, R> form, const RunTasks& run_tasks);

  // Column j of x (n, count) = (λ - A)⁺ times column j of b, in the complement of the chosen
  // vectors; λ is the chosen value j. Eigenvalues that are equal to rounding in the precision of T
  // do not count. Returns false, and leaves x, if the form is not finite.
  bool SolveInComplement(FormArrays<const T, const R> form, const T* b, T* x,
                         const RunTasks& run_tasks);

 private:
  int64_t n_;
  Chosen chosen_;
  TridiagonalForm<T> form_;
  TridiagonalSubset tridiagonal_;  // in double precision, as in HermitianEigen
  Workspace<T> columns_;
  Workspace<double> row_;
  std::unique_ptr<R[]> d_, e_;
  std::unique_ptr<double[]> wide_diagonal_, wide_beside_;
};

}  // namespace linalg::blocked
