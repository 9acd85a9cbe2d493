// Singular values and vectors of one real upper bidiagonal matrix, by divide and conquer (LAPACK's
// bdsdc).
//
// Removing a row leaves two matrices with one column more than rows. In the bases of their
// solutions, the whole matrix is diagonal except for one full row. Its singular values are the
// roots of a secular equation (Jessup and Sorensen, A parallel algorithm for computing the singular
// value decomposition of a matrix, 1994). Recomputed weights make its vectors orthogonal (Gu and
// Eisenstat, A divide-and-conquer algorithm for the bidiagonal SVD, 1995). Leaves are solved by
// implicit QR, one per lane. Each singular vector lies in a row, so whole rows are moved, rotated
// and multiplied.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/blocked/halves_merge.h"
#include "kernels/blocked/leaves.h"
#include "kernels/blocked/tasks.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// The workspace serves one matrix of order n after another. Without vectors, only the first and
// last elements of the right vectors are computed. The last merge makes the chosen vectors alone;
// it is three quarters of the work.
class BidiagonalSvd {
  using R = double;

 public:
  BidiagonalSvd(int64_t n, bool vectors) : BidiagonalSvd(n, vectors, {0, n}) {}
  BidiagonalSvd(int64_t n, bool vectors, Chosen chosen);

  // Replaces the diagonal d, of a matrix of norm about 1, by the ascending singular values. e has
  // the n - 1 elements above the diagonal, and space for one more. Returns how many singular values
  // did not converge.
  int Solve(R* d, R* e, const RunTasks& run_tasks);

  // A singular vector in each row, undefined in rows that are not chosen. Right vectors have one
  // more element, a zero.
  Rows<R> left() const { return left_.z; }
  Rows<R> right() const { return right_.z; }

 private:
  using V = Register<R>;

  // The vectors of one side. Without vectors, the first and last elements of the right vectors, in
  // a column for each. A half has `more` elements per vector than rows.
  struct Side {
    Rows<R> z;
    int64_t more;
  };

  R* Element(int64_t vector, int64_t i, bool is_last) const {
    return vectors_ ? right_.z.At(vector, i).data : right_.z.At(is_last, vector).data;
  }
  int SolveLeaves(R* d, const R* e);
  int Merge(Halves halves, R* d, const R* e, const RunTasks& run_tasks);
  R Couple(Halves halves, R alpha, R beta);
  void SetWeights(Halves halves, R alpha, R beta, R own);
  void RotateVectors(Halves halves, int64_t i, int64_t j, R cosine, R sine);
  void MakeLeftVectors(const RunTasks& run_tasks);
  void WriteVectors(const Side& side, Halves halves, const RunTasks& run_tasks);

  int64_t n_;
  Leaves leaves_;
  bool vectors_;
  Chosen chosen_;
  Workspace<R> memory_;
  RowArena<R> rows_;
  Side left_, right_;
  HalvesMerge<R> merge_;
  std::unique_ptr<V[]> leaf_;
};

}  // namespace linalg::blocked
