// Eigenvalues and eigenvectors of one real symmetric tridiagonal matrix, by divide and conquer.
//
// Cuppen's method (A divide and conquer method for the symmetric tridiagonal eigenproblem, 1981) as
// LAPACK's stedc has it, with eigenvectors made from recomputed weights (Gu and Eisenstat, A
// divide-and-conquer algorithm for the symmetric tridiagonal eigenproblem, 1995), by which they are
// orthogonal. Leaves are solved by implicit QL, one per lane; a register of roots of the secular
// equation is found at a time; and the vectors of two halves are multiplied in tiles. Each
// eigenvector lies in a row, so that whole rows are moved, rotated and multiplied.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/blocked/halves_merge.h"
#include "kernels/blocked/leaves.h"
#include "kernels/blocked/tasks.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// In memory that serves one matrix of order n after another. Without vectors, the first and the
// last elements of those are all that is computed of them.
template <class R>
class TridiagonalEigh {
 public:
  TridiagonalEigh(int64_t n, bool vectors);

  // Replaces the diagonal d of a matrix by the eigenvalues, ascending; e has the n - 1 elements
  // beside it, and is overwritten. Returns kNotFinite, or how many did not converge.
  int Solve(R* d, R* e, const RunTasks& run_tasks);

  // An eigenvector in each row.
  Rows<R> vectors() const { return z_; }
  // Element i of eigenvector j.
  R VectorElement(int64_t i, int64_t j) const { return *z_.At(j, i).data; }

 private:
  using V = Register<R>;

  int SolveScaled(R* d, const R* e, const RunTasks& run_tasks);
  int SolveLeaves(R* d, const R* e);
  int Merge(Halves halves, R beside, R* d, const RunTasks& run_tasks);
  void SetWeights(Halves halves, R sign);
  void RotateVectors(Halves halves, int64_t i, int64_t j, R cosine, R sine);

  int64_t n_;
  Leaves leaves_;
  bool vectors_;
  Workspace<R> memory_;
  RowArena<R> rows_;
  Rows<R> z_;  // the eigenvectors, or the first and the last elements of each
  HalvesMerge<R> merge_;
  std::unique_ptr<V[]> leaf_;
};

}  // namespace linalg::blocked
