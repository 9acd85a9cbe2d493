// Singular values and vectors of one real upper bidiagonal matrix, by divide and conquer.
//
// As LAPACK's bdsdc: a row is taken out, and the two matrices that are left, each with a column
// more than rows, are solved; with that row they are a diagonal matrix but for one full row, whose
// singular values are the roots of a secular equation (Jessup and Sorensen, A parallel algorithm
// for computing the singular value decomposition of a matrix, 1994), and whose vectors are made
// from recomputed weights, by which they are orthogonal (Gu and Eisenstat, A divide-and-conquer
// algorithm for the bidiagonal SVD, 1995). Leaves are solved by implicit QR, one per lane. Each
// singular vector lies in a row, so that whole rows are moved, rotated and multiplied.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/blocked/halves_merge.h"
#include "kernels/blocked/leaves.h"
#include "kernels/blocked/tasks.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// In memory that serves one matrix of order n after another. Without vectors, the first and the
// last elements of those from the right are all that is computed of them.
class BidiagonalSvd {
  using R = double;

 public:
  BidiagonalSvd(int64_t n, bool vectors);

  // Replaces the diagonal d of a matrix of norm about 1 by the singular values, ascending; e has
  // the n - 1 elements above it, and room for one more. Returns how many did not converge.
  int Solve(R* d, R* e, const RunTasks& run_tasks);

  // A singular vector in each row. Those from the right have one more element, a zero.
  Rows<R> left() const { return left_.z; }
  Rows<R> right() const { return right_.z; }

 private:
  using V = Register<R>;

  // Vectors, or of those from the right the first and the last elements, in a column for each; and
  // how many more elements than rows half a matrix's have.
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
  Workspace<R> memory_;
  RowArena<R> rows_;
  Side left_, right_;
  HalvesMerge<R> merge_;
  std::unique_ptr<V[]> leaf_;
};

}  // namespace linalg::blocked
