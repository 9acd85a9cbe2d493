// QR factors of one matrix by Householder reflectors, in tiles, with LAPACK's conventions.
//
// Panels are factored by themselves with their columns in registers. The product of a block's
// reflectors is I - V T Vᴴ with an upper triangle T, so that what stands to the right of a panel,
// and of a block of panels, is multiplied by it in tiles.
//
// Of a large matrix the blocks are wider, and are made of narrower ones in the same way; what
// stands to the right of a block follows in pieces of columns, and while it does the next block is
// factored.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/blocked/tasks.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// The reflectors of one matrix and the Q made from them, in memory that serves one matrix after
// another. Q has q_cols columns: 0 where it is not wanted.
template <class T>
class QrFactors {
 public:
  QrFactors(int64_t rows, int64_t cols, int64_t q_cols);

  // Factors the row-major `a`, or what has been written in matrix().
  void Factor(const T* a, const RunTasks& run_tasks = RunInTurn);
  void Factor(const RunTasks& run_tasks = RunInTurn);
  // Takes `count` reflectors from elsewhere: row-major, below the diagonal of `a`; or what has been
  // written there in matrix().
  void Set(const T* a, int64_t count, const T* taus, const RunTasks& run_tasks = RunInTurn);
  void Set(int64_t count, const T* taus);
  // c (rows, cols) = Q c, or Qᴴ c
  void MultiplyByQ(int64_t cols, Rows<T> c, const RunTasks& run_tasks = RunInTurn);
  void MultiplyByAdjoint(int64_t cols, Rows<T> c, const RunTasks& run_tasks = RunInTurn);
  // Replaces the factors by Q.
  void MakeQ(const RunTasks& run_tasks = RunInTurn);

  // R, and below it the vectors of the reflectors but for their first elements, 1; then Q.
  Rows<T> matrix() const { return workspace_.rows(); }
  const T* taus() const { return taus_.get(); }

 private:
  // Columns [first, last), whose reflectors are applied at once; V lies in memory of one of two
  // blocks, so that the next one can be made while this one is applied.
  struct Block {
    int64_t first, last;
    Rows<T> vectors;
  };

  // The reflectors of a block, or of some of its columns: V, with ones and zeros above, and T
  // transposed.
  struct Reflectors {
    Rows<T> vectors, triangle;
    int64_t count;
  };

  // Less than 0 if there is none.
  int64_t FirstOfLastBlock() const {
    return (count_ + block_size_ - 1) / block_size_ * block_size_ - block_size_;
  }
  Block BlockAt(int64_t first, int64_t end) const;
  Rows<T> Triangle(const Block& block) const { return triangles_.rows().At(block.first, 0); }
  Reflectors Part(const Block& block, int64_t first, int64_t last) const;
  Reflectors All(const Block& block) const { return Part(block, block.first, block.last); }

  void FactorPanel(int64_t first);
  void FactorBlock(const Block& block);
  void ReadPanel(const Block& block, int64_t first);
  void ReadBlock(const Block& block);
  void AddToTriangle(const Block& block, int64_t first);
  template <bool kAdjoint>
  void MultiplyByBlock(int64_t first, int64_t cols, Rows<T> c, const RunTasks& run_tasks);
  template <bool kAdjoint>
  void Reflect(const Reflectors& reflectors, int64_t rows, int64_t top, int64_t bottom,
               int64_t cols, Rows<T> c) const;

  int64_t rows_, cols_, q_cols_, count_;
  int64_t block_size_;
  Workspace<T> workspace_;
  Workspace<T> panel_;       // memory alone: a panel lies there in strips
  Workspace<T> vectors_[2];  // of a block, and of the next one
  Workspace<T> triangles_;   // of all blocks, one below the other
  Workspace<T> dots_;
  std::unique_ptr<T[]> taus_;
};

}  // namespace linalg::blocked
