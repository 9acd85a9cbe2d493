// Tiled Cholesky factorisation of one Hermitian matrix, A = Uᴴ U.
//
// Works on the upper triangle, one row of tiles at a time. A tile is loaded once, updated by the
// rows above it, and divided by the triangle on the diagonal. A lower factor is the adjoint of the
// upper one: it is transposed while the operand is read and the factor is written.
//
// A large matrix is factored in blocks of rows, whose columns are split into tasks. The trailing
// update of a block overlaps the factorisation of the next triangle.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/arithmetic/hermitian.h"
#include "kernels/blocked/tasks.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

template <class T>
struct DiagonalTile;

// Workspace for one matrix of order n after another.
template <class T>
class CholeskyFactor {
 public:
  explicit CholeskyFactor(int64_t n);
  ~CholeskyFactor();
  CholeskyFactor(CholeskyFactor&&) noexcept;

  // factor (n, n) = the factor of the Hermitian part of `a`, with zeros in its other triangle.
  // Returns 0, or the 1-based index of the first pivot that is not positive. Then the factor is not
  // written.
  int Factor(HermitianPart part, const T* a, T* factor, const RunTasks& run_tasks = RunInTurn);

 private:
  // A block of rows, and the left factors for the rows below it.
  struct Block {
    int64_t first = 0, last = 0;
    std::vector<DiagonalTile<T>> diagonal;
    AlignedMemory left;  // the block's columns as left factors, packed by tiles' rows

    T* Left(int64_t j) const { return static_cast<T*>(left.get()) + j * (last - first); }
  };

  int FactorBlocks(const RunTasks& run_tasks);
  int FactorTriangle(int64_t first, int64_t last, Block& block);
  void DivideColumns(int64_t first, int64_t last, Block& block);
  void SubtractProducts(int64_t rows_end, int64_t first, int64_t last, const Block& block);

  int64_t n_;
  Workspace<T> workspace_;
  Block blocks_[2];
};

}  // namespace linalg::blocked
