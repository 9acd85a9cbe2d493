// LU with partial pivoting of one matrix, in tiles, and what is made of the factors.
//
// Columns are halved until a panel is left, which is factored by itself with its columns in
// registers; the rest of the rows follows in tiles. Pivots are LAPACK's: the largest |re| + |im|,
// and the first of several.
//
// Of a large matrix the columns are taken some at a time; the rest of the rows follows in pieces of
// columns, and while it does the next columns are factored.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/blocked/tasks.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// The factors of one matrix, in memory that serves one matrix after another.
template <class T>
class LuFactors {
 public:
  LuFactors(int64_t rows, int64_t cols);

  // Factors the row-major `a`; returns 0, from 1 the first zero pivot, or kHoldsNaN.
  int Factor(const T* a, const RunTasks& run_tasks = RunInTurn);

  // What the factors of a square matrix are for: x (n, cols), in a workspace, = A⁻¹ x; and
  // inverse (n, n) = A⁻¹, with a workspace of that size.
  void Solve(int64_t cols, Rows<T> x, const RunTasks& run_tasks = RunInTurn) const;
  void Invert(Rows<T> work, T* inverse, const RunTasks& run_tasks = RunInTurn) const;

  Rows<T> lu() const { return workspace_.rows(); }
  // Counted from 0.
  const int32_t* pivots() const { return pivots_.get(); }
  int64_t pivot_count() const { return std::min(rows_, cols_); }

 private:
  using R = RealElement<T>;

  // Neighbouring columns.
  struct Columns {
    int64_t first, last;
  };

  void FactorPanel(int64_t first, int64_t width);
  void FactorColumns(int64_t first, int64_t width, Columns block);
  void Eliminate(Columns block, Columns others);
  void FactorBlocks(const RunTasks& run_tasks);
  void Exchange(int64_t first, int64_t last, Columns columns);
  bool HoldsNaN(const RunTasks& run_tasks) const;
  void SolveColumns(int64_t first, int64_t cols, Rows<T> x) const;

  int64_t rows_, cols_;
  Workspace<T> workspace_;
  Workspace<T> panel_;  // memory alone: a panel lies there in strips
  std::unique_ptr<int32_t[]> pivots_;
  int singular_ = 0;
};

}  // namespace linalg::blocked
