// Tiled QR factorisation of one matrix by Householder reflectors, with LAPACK's conventions.
//
// A panel is factored with its columns in registers. The product of a block's reflectors is I - V T
// Vᴴ with an upper triangle T (compact WY). So the trailing update of a panel or block is a product
// in tiles.
//
// A large matrix has wider blocks, each made of narrower ones in the same way. The trailing update
// is split into tasks and overlaps the factorisation of the next block.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/blocked/tasks.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// The reflectors of one matrix and its Q. The workspace serves one matrix after another. Q has
// q_cols columns, 0 if it is not wanted.
template <class T>
class QrFactors {
 public:
  QrFactors(int64_t rows, int64_t cols, int64_t q_cols);

  // Factors the row-major `a`, or the content of matrix().
  void Factor(const T* a, const RunTasks& run_tasks = RunInTurn);
  void Factor(const RunTasks& run_tasks = RunInTurn);
  // Takes over `count` reflectors that lie below the diagonal of the row-major `a`, or of matrix().
  void Set(const T* a, int64_t count, const T* taus, const RunTasks& run_tasks = RunInTurn);
  void Set(int64_t count, const T* taus);
  // c (rows, cols) = Q c, or Qᴴ c
  void MultiplyByQ(int64_t cols, Rows<T> c, const RunTasks& run_tasks = RunInTurn);
  void MultiplyByAdjoint(int64_t cols, Rows<T> c, const RunTasks& run_tasks = RunInTurn);
  // Replaces the factors by Q.
  void MakeQ(const RunTasks& run_tasks = RunInTurn);

  // R with the reflectors' vectors below it, without their leading 1. After MakeQ: Q.
  Rows<T> matrix() const { return workspace_.rows(); }
  const T* taus() const { return taus_.get(); }

 private:
  // Columns [first, last), whose reflectors are applied together. V alternates between two buffers:
  // the next V is computed while this one is applied.
  struct Block {
    int64_t first, last;
    Rows<T> vectors;
  };

  // The reflectors of all or some of a block's columns: V, with its ones and the zeros above them,
  // and the transposed T.
  struct Reflectors {
    Rows<T> vectors, triangle;
    int64_t count;
  };

  // Negative if there is none.
  int64_t FirstOfLastBlock() const {
    return (count_ + block_size_ - 1) / block_size_ * block_size_ - block_size_;
  }
  Block BlockAt(int64_t first, int64_t end) const;
  Rows<T> Triangle(const Block& block) const { return triangles_.rows().At(block.first, 0); }
  Reflectors Between(const Block& block, int64_t first, int64_t last) const;
  Reflectors All(const Block& block) const { return Between(block, block.first, block.last); }

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
  Workspace<T> panel_;       // workspace for a panel in strips
  Workspace<T> vectors_[2];  // of a block and of the next one
  Workspace<T> triangles_;   // of all blocks, one below the other
  Workspace<T> dots_;
  std::unique_ptr<T[]> taus_;
};

}  // namespace linalg::blocked
