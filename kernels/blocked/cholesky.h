// Cholesky factors of one Hermitian matrix, A = Uᴴ U, in tiles.
//
// Only the upper triangle is worked on, row by row of tiles: each is loaded once, has the products
// of the rows above it subtracted, and is divided by the triangle on the diagonal. A lower factor
// is the adjoint of the upper one, transposed where the operand is read and the factor is written.
//
// Of a large matrix some rows at a time are factored so, piece by piece of its columns; then their
// products are subtracted from all rows below, and while that is done the next triangle is
// factored.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/arithmetic/hermitian.h"
#include "kernels/blocked/tasks.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

template <class T>
struct DiagonalTile;

// Memory for matrices of order n, one after another.
template <class T>
class CholeskyFactor {
 public:
  explicit CholeskyFactor(int64_t n);
  ~CholeskyFactor();
  CholeskyFactor(CholeskyFactor&&) noexcept;

  // factor (n, n) = the factor of the part of `a`, with zeros in its other triangle; returns 0, or
  // from 1 the first pivot that is not positive, and then the factor is not written.
  int Factor(HermitianPart part, const T* a, T* factor, const RunTasks& run_tasks = RunInTurn);

 private:
  // Some rows, and what they leave for those below.
  struct Block {
    int64_t first = 0, last = 0;
    std::vector<DiagonalTile<T>> diagonal;
    AlignedMemory left;  // the columns of these rows, as left factors: a tile's rows side by side

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
