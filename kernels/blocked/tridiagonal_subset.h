// Some eigenvalues and eigenvectors of one real symmetric tridiagonal matrix.
//
// A few are found one by one: the values by bisection, and the vectors by inverse iteration
// (LAPACK's stebz and stein). Each vector is orthogonalised against all before it, so that a
// cluster needs no rule of its own. Where a residual stays large, and where more vectors are
// wanted, divide and conquer makes the chosen vectors in its last merge.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/blocked/leaves.h"
#include "kernels/blocked/tasks.h"
#include "kernels/blocked/tridiagonal_eigh.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// The eigenvalues next to the chosen ones, or infinities where there are none, and the largest
// magnitude of all eigenvalues.
struct Outside {
  double below, above, norm;
};

// The workspace serves one matrix of order n after another.
class TridiagonalSubset {
  using R = double;

 public:
  // Whether so few of n values are found one by one.
  static bool IsFew(int64_t count, int64_t n);

  TridiagonalSubset(int64_t n, Chosen chosen, bool vectors);

  // Finds the subset of the matrix with diagonal d and n - 1 elements e beside it. Returns
  // kNotFinite, or how many eigenvalues did not converge.
  int Solve(const R* d, const R* e, const RunTasks& run_tasks);
  // Finds the subset one by one, for finite matrices. Returns false where a vector does not
  // converge.
  bool SolveOneByOne(const R* d, const R* e, const RunTasks& run_tasks);

  // The chosen eigenvalues, ascending.
  R Value(int64_t i) const { return unscale_ * values_[i]; }
  Outside outside() const;
  // A chosen eigenvector in each row.
  Rows<R> vectors() const { return z_; }

  // Makes SolveInComplement leave out these `count` orthonormal rows, which span a space that T
  // maps to itself, the chosen vectors in it. They are padded with zeros to whole registers.
  void Exclude(Rows<R> rows, int64_t count) {
    z_ = rows;
    excluded_ = count;
  }

  // Replaces x by (λ - T)⁺ x, where λ is the chosen value j, in the complement of the chosen
  // vectors. Eigenvalues that differ from λ by less than `gap` times the norm count as equal: their
  // vectors' components of the result are zero. Follows a call of Solve with vectors, or of
  // Exclude. x is padded with zeros to whole registers.
  void SolveInComplement(int64_t j, R gap, R* x, const RunTasks& run_tasks);

 private:
  using V = Register<R>;

  bool ReadScaled(const R* d, const R* e);
  void Bisect(const RunTasks& run_tasks);
  bool Iterate();
  int Divide(const RunTasks& run_tasks);
  void ClearPadding(R* x) const;
  void SolveShifted(R shift, R* x);
  void Subtract(R shift, const R* x, R* target) const;
  void Project(R* x, int64_t count) const;
  bool Orthonormalise(int64_t j) const;

  int64_t n_;
  Chosen chosen_;
  int64_t excluded_;
  bool vectors_, iterates_;
  R unscale_ = 1;
  Workspace<R> memory_;
  Rows<R> iterated_, z_;
  R *diagonal_, *beside_, *lower_, *pivots_, *upper_, *second_, *residual_;
  // The chosen values, then four that Outside is made from.
  std::unique_ptr<R[]> values_;
  std::optional<TridiagonalEigh<R>> divide_, whole_;
  std::unique_ptr<R[]> all_, all_beside_;
};

}  // namespace linalg::blocked
