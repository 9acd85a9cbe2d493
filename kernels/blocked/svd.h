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
#include "kernels/blocked/tridiagonal_subset.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// The bidiagonal form of a matrix as arrays, k = min(m, n). Reflectors of either side (k, k) lie in
// rows, with their factors; d (k) is the diagonal of a lower bidiagonal matrix, and e (k) lies
// below it, with a zero at its end. `tall` (m, n) and its factors (k) are the QR factors of a
// matrix that is not square, or of its adjoint, row-major; otherwise zeros.
template <class T, class R>
struct BidiagonalArrays {
  T *left, *left_taus, *right, *right_taus, *tall, *tall_taus;
  R *d, *e;
};

// Chosen singular values and vectors of one upper bidiagonal matrix of order n after another, by
// their indices in descending order.
//
// A few that are not small are eigenvalues of the tridiagonal matrix of order 2 n with zero
// diagonal, beside which the elements of the bidiagonal matrix lie in turn (Golub and Kahan,
// Calculating the singular values and pseudo-inverse of a matrix, 1965). Others are found by divide
// and conquer.
class BidiagonalSubset {
 public:
  BidiagonalSubset(int64_t n, Chosen chosen, bool vectors);

  // Takes the diagonal d and n - 1 elements e above it, of a matrix of norm about 1. Overwrites
  // them, and one element behind e. Returns how many values did not converge.
  int Solve(double* d, double* e, const RunTasks& run_tasks);

  // The chosen values, descending.
  double Value(int64_t i) const { return values_[i]; }
  // The values next to them, which mean nothing where there are none, and the largest.
  Outside outside() const { return outside_; }
  // The chosen vectors in rows.
  Rows<double> left() const { return left_; }
  Rows<double> right() const { return right_; }

 private:
  bool IsFew() const;
  int64_t FewRows() const;
  void MakeDivide();
  bool SolveFew(const double* d, const double* e, const RunTasks& run_tasks);

  int64_t n_;
  Chosen chosen_;
  bool vectors_;
  std::optional<BidiagonalSvd> divide_;
  std::optional<TridiagonalSubset> few_;
  Workspace<double> few_vectors_;
  Rows<double> few_left_, few_right_, left_, right_;
  std::unique_ptr<double[]> zeros_, in_turn_, values_;
  Outside outside_{};
};

// The workspace serves one matrix after another. U and Vᴴ are square if `full`. Comments describe
// tall matrices; a wide matrix is handled as its adjoint.
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
  int Solve(const T* a, R* values, T* u, T* vh, const RunTasks& run_tasks) {
    return Solve(a, values, u, vh, nullptr, {}, run_tasks);
  }
  // Also writes the three numbers of Outside, of all singular values, and of 0 if `a` is not
  // square, and the form, unless they are null.
  int Solve(const T* a, R* values, T* u, T* vh, R* outside, BidiagonalArrays<T, R> form,
            const RunTasks& run_tasks);

 private:
  R ReadScaled(const T* a, Rows<T> target);
  void MakeVectors(T* u, T* vh, const RunTasks& run_tasks);
  void WriteOutside(R unscale, R* outside) const;
  void WriteForm(R unscale, BidiagonalArrays<T, R> form, const RunTasks& run_tasks);

  bool wide_, vectors_;
  int64_t m_, n_;
  Chosen chosen_;
  int64_t left_cols_;
  Workspace<T> square_, left_reflectors_, work_;
  std::optional<QrFactors<T>> qr_;  // for matrices that are not square
  // This is in double precision, because in float32 the deflation of divide and conquer would
  // dominate the error.
  BidiagonalSubset bidiagonal_;
  std::optional<QrFactors<T>> reflectors_;
  std::optional<Workspace<T>> left_vectors_;
  std::unique_ptr<T[]> right_taus_, left_taus_;
  std::unique_ptr<R[]> diagonal_, beside_;
  std::unique_ptr<double[]> wide_diagonal_, wide_beside_;
};

// Solves beside the chosen singular vectors U and V of one matrix after another.
template <class T>
class SingularComplement {
  using R = RealElement<T>;

 public:
  SingularComplement(int64_t rows, int64_t cols, Chosen chosen);

  // Column j of x (m, count) and y (n, count) solves s x - A y = b and s y - Aᴴ x = c in the
  // complements of U and V, given columns j of b and c; s is the chosen value j. Where s, or its
  // distance to another value, is zero to rounding in the precision of T, the components are zero.
  // Returns false, and leaves x and y, if the form is not finite.
  bool Solve(BidiagonalArrays<const T, const R> form, const T* b, const T* c, T* x, T* y,
             const RunTasks& run_tasks);

 private:
  template <bool kConjugate>
  void ReadReflectors(const T* vectors, const T* taus, const RunTasks& run_tasks);

  bool wide_;
  int64_t m_, n_;
  Chosen chosen_;
  BidiagonalSubset bidiagonal_;
  TridiagonalSubset tridiagonal_;  // of order 2 n, as in BidiagonalSubset
  QrFactors<T> reflectors_;
  std::optional<QrFactors<T>> qr_;
  Workspace<T> square_, whole_, left_, right_;
  Workspace<double> excluded_, row_;
  std::unique_ptr<double[]> wide_diagonal_, wide_beside_, zeros_, in_turn_;
};

}  // namespace linalg::blocked
