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
  // Keeps the rows [begin, end) of the matrix of eigenvectors, and their first and last elements,
  // which the merges need. The workspace is some 2 n (end - begin), and O(n).
  TridiagonalEigh(int64_t n, int64_t begin, int64_t end);

  // Replaces the diagonal d by the ascending eigenvalues. e has the n - 1 off-diagonal elements and
  // is overwritten. Returns kNotFinite, or how many eigenvalues did not converge.
  int Solve(R* d, R* e, const RunTasks& run_tasks);

  // An eigenvector in each row, or its kept elements. Rows that are not chosen are undefined.
  Rows<R> vectors() const { return z_.At(0, kept_ == Kept::kSome); }
  // Element i of eigenvector j.
  R VectorElement(int64_t i, int64_t j) const { return *z_.At(j, i).data; }

 private:
  using V = Register<R>;
  enum class Kept { kAll, kEnds, kSome };

  // The columns of z_ with the elements of two halves' vectors. If some elements are kept, the
  // halves' vectors have their first and last elements beside the kept ones. The upper half's last
  // element is then in the first column of the lower half, and the reverse: neither is kept.
  struct Columns {
    int64_t first, upper, lower;
    int64_t count() const { return upper + lower; }
  };
  Columns ColumnsOf(int64_t first, int64_t upper, int64_t lower) const;

  int SolveScaled(R* d, const R* e, const RunTasks& run_tasks);
  int SolveLeaves(R* d, const R* e);
  int Merge(Halves halves, R beside, R* d, const RunTasks& run_tasks);
  void SetWeights(Halves halves, R sign);
  void RotateVectors(Halves halves, int64_t i, int64_t j, R cosine, R sine);

  int64_t n_, begin_ = 0, end_ = 0;
  Leaves leaves_;
  Kept kept_;
  Chosen chosen_;
  Workspace<R> memory_;
  RowArena<R> rows_;
  // The memory of a merge in blocks, if some elements are kept.
  Workspace<R> blocks_memory_, single_memory_;
  RowArena<R> blocks_, single_;
  Rows<R> z_;  // the eigenvectors, their kept elements, or their first and last elements
  HalvesMerge<R> merge_;
  std::unique_ptr<V[]> leaf_;
};

}  // namespace linalg::blocked
