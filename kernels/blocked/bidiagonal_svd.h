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
  // The rows [begin, end) of a matrix.
  struct RowRange {
    int64_t begin, end;
  };

  BidiagonalSvd(int64_t n, bool vectors) : BidiagonalSvd(n, vectors, {0, n}) {}
  BidiagonalSvd(int64_t n, bool vectors, Chosen chosen);
  // Keeps some rows of the matrices of left and right vectors, and the first and last elements of
  // right vectors, which the merges need. The workspace is some
  // 3 n max(left, right), and O(n).
  BidiagonalSvd(int64_t n, RowRange left, RowRange right);

  // Replaces the diagonal d, of a matrix of norm about 1, by the ascending singular values. e has
  // the n - 1 elements above the diagonal, and space for one more. Returns how many singular values
  // did not converge.
  int Solve(R* d, R* e, const RunTasks& run_tasks);

  // A singular vector in each row, or its kept elements. Rows that are not chosen are undefined. If
  // all elements are kept, right vectors have one more, a zero.
  Rows<R> left() const { return left_.z; }
  Rows<R> right() const { return right_.z.At(0, kept_ == Kept::kSome); }

 private:
  using V = Register<R>;
  enum class Kept { kAll, kEnds, kSome };

  // The vectors of one side. Without vectors, the first and last elements of the right vectors, in
  // a column for each. A half has `more` elements per vector than rows. If some elements are kept,
  // they are those of `range`; those of right vectors have the ends beside them.
  struct Side {
    Rows<R> z;
    int64_t more;
    RowRange range;
  };

  // The columns of a side's z with the elements of two halves' vectors. The left vectors have
  // `between` elements for the row between the halves. If some elements are kept, each half's right
  // vectors have their first and last elements beside the kept ones. The upper half's last element
  // is then in the first column of the lower half, and the reverse: neither is kept.
  struct Columns {
    int64_t first, upper, between, lower;
    int64_t count() const { return upper + between + lower; }
    int64_t lower_begin() const { return upper + between; }
  };
  Columns ColumnsOf(const Side& side, Halves halves) const;
  // The element of a half's right vector that is next to the other half.
  R* Inner(Halves halves, int64_t vector, bool is_upper) const;
  int SolveLeaves(R* d, const R* e);
  int Merge(Halves halves, R* d, const R* e, const RunTasks& run_tasks);
  R Couple(Halves halves, R alpha, R beta);
  void SetWeights(Halves halves, R alpha, R beta, R own);
  void RotateVectors(Halves halves, int64_t i, int64_t j, R cosine, R sine);
  void MakeLeftVectors(int64_t begin, int64_t end, const RunTasks& run_tasks);
  void WriteVectors(const Side& side, Halves halves, const RunTasks& run_tasks);

  int64_t n_;
  Leaves leaves_;
  Kept kept_;
  Chosen chosen_;
  Workspace<R> memory_;
  RowArena<R> rows_;
  // The memory of a merge in blocks, if some elements are kept.
  Workspace<R> blocks_memory_, single_memory_;
  RowArena<R> blocks_, single_;
  Side left_, right_;
  HalvesMerge<R> merge_;
  std::unique_ptr<R[]> between_;  // the left vectors' elements for the row between two halves
  std::unique_ptr<V[]> leaf_;
};

}  // namespace linalg::blocked
