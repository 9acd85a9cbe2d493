// Tiled LU factorisation with partial pivoting of one matrix, and its uses.
//
// Columns are halved recursively down to a panel, which is factored with its columns in registers.
// The trailing update uses tiles. Pivots are LAPACK's: the first row with the largest |re| + |im|.
//
// A large matrix is factored in blocks of columns. The trailing update is split into tasks and
// overlaps the factorisation of the next block.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/blocked/tasks.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// The factors of one matrix; the workspace serves one matrix after another.
template <class T>
class LuFactors {
 public:
  LuFactors(int64_t rows, int64_t cols);

  // Factors the row-major `a`. Returns 0, the 1-based index of the first zero pivot, or kHoldsNaN.
  int Factor(const T* a, const RunTasks& run_tasks = RunInTurn);

  // Matrices are square. x (n, cols), in a workspace, = A⁻¹ x. inverse (n, n) = A⁻¹, with an n by n
  // workspace.
  void Solve(int64_t cols, Rows<T> x, const RunTasks& run_tasks = RunInTurn) const;
  void Invert(Rows<T> work, T* inverse, const RunTasks& run_tasks = RunInTurn) const;

  Rows<T> lu() const { return workspace_.rows(); }
  // Counted from 0.
  const int32_t* pivots() const { return pivots_.get(); }
  int64_t pivot_count() const { return std::min(rows_, cols_); }

 private:
  using R = RealElement<T>;

  // Columns [first, last).
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
  Workspace<T> panel_;  // workspace for a panel in strips
  std::unique_ptr<int32_t[]> pivots_;
  int singular_ = 0;
};

}  // namespace linalg::blocked
