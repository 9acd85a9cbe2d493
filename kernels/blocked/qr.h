// QR factors of one matrix by Householder reflectors, in tiles, with LAPACK's conventions.
//
// Panels are factored by themselves with their columns in registers. The product of a block's
// reflectors is I - V T Vᴴ with an upper triangle T, so that what stands to the right of a panel,
// and of a block of panels, is multiplied by it in tiles.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// The reflectors of one matrix and the Q made from them, in memory that serves one matrix after
// another. Q has q_cols columns: 0 where it is not wanted.
template <class T>
class QrFactors {
 public:
  QrFactors(int64_t rows, int64_t cols, int64_t q_cols);

  // Factors the row-major `a`, or what has been written in matrix().
  void Factor(const T* a);
  void Factor();
  // Takes `count` reflectors from elsewhere: row-major, below the diagonal of `a`; or what has been
  // written there in matrix().
  void Set(const T* a, int64_t count, const T* taus);
  void Set(int64_t count, const T* taus);
  // c (rows, cols) = Q c
  void MultiplyByQ(int64_t cols, Rows<T> c);
  // Replaces the factors by Q.
  void MakeQ();

  // R, and below it the vectors of the reflectors but for their first elements, 1; then Q.
  Rows<T> matrix() const { return workspace_.rows(); }
  const T* taus() const { return taus_.get(); }

 private:
  // Reflectors that are applied at once.
  static constexpr int64_t kBlock = 16;

  // The reflectors of a block, or of some of its panels: V, with ones and zeros above, and T
  // transposed.
  struct Reflectors {
    Rows<T> vectors, triangle;
    int64_t count;
  };

  int64_t BlockSize(int64_t first) const { return std::min(kBlock, count_ - first); }
  Rows<T> Triangle(int64_t first) const { return triangles_.rows().At(first, 0); }

  void Read(const T* a);
  void FactorPanel(int64_t first);
  Reflectors ReadPanel(int64_t block, int64_t first);
  void AddToTriangle(int64_t block, int64_t first);
  template <bool kAdjoint>
  void Reflect(const Reflectors& reflectors, int64_t rows, int64_t top, int64_t bottom,
               int64_t cols, Rows<T> c);

  int64_t rows_, cols_, q_cols_, count_;
  Workspace<T> workspace_;
  Workspace<T> panel_;      // memory alone: a panel lies there in strips
  Workspace<T> vectors_;    // of a block
  Workspace<T> triangles_;  // of all blocks, one below the other
  Workspace<T> products_, sums_;
  std::unique_ptr<T[]> taus_;
};

}  // namespace linalg::blocked
