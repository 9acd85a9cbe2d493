// Eigenvalues and eigenvectors of one real symmetric tridiagonal matrix, by divide and conquer.
//
// The method is Cuppen's (A divide and conquer method for the symmetric tridiagonal eigenproblem,
// 1981) as in LAPACK's stedc. Recomputed weights make the eigenvectors orthogonal (Gu and
// Eisenstat, A divide-and-conquer algorithm for the symmetric tridiagonal eigenproblem, 1995).
// Leaves are solved by implicit QL, one per lane. Roots of the secular equation are found a
// register at a time. Each eigenvector lies in a row, so whole rows are moved, rotated and
// multiplied in tiles.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/blocked/halves_merge.h"
#include "kernels/blocked/leaves.h"
#include "kernels/blocked/tasks.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// The workspace serves one matrix of order n after another. Without vectors, only their first and
// last elements are computed. The last merge makes the chosen vectors alone; it is three quarters
// of the work.
template <class R>
class TridiagonalEigh {
 public:
  TridiagonalEigh(int64_t n, bool vectors) : TridiagonalEigh(n, vectors, {0, n}) {}
  TridiagonalEigh(int64_t n, bool vectors, Chosen chosen);

  // Replaces the diagonal d by the ascending eigenvalues. e has the n - 1 off-diagonal elements and
  // is overwritten. Returns kNotFinite, or how many eigenvalues did not converge.
  int Solve(R* d, R* e, const RunTasks& run_tasks);

  // An eigenvector in each row, undefined in rows that are not chosen.
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
  Chosen chosen_;
  Workspace<R> memory_;
  RowArena<R> rows_;
  Rows<R> z_;  // the eigenvectors, or their first and last elements
  HalvesMerge<R> merge_;
  std::unique_ptr<V[]> leaf_;
};

}  // namespace linalg::blocked
