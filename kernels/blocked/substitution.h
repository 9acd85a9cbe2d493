// Tiled substitution with given triangles.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/arithmetic/divisor.h"
#include "kernels/arithmetic/triangle.h"
#include "kernels/blocked/tasks.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// Workspace for one triangle of order n after another.
template <class T>
class Substitution {
 public:
  explicit Substitution(int64_t n);

  // x (n, cols), in a workspace, = op(a)⁻¹ x. Reads one triangle of the row-major `a`. If the
  // triangle is on the right, x is the transpose.
  void Solve(const Triangle& triangle, const T* a, int64_t cols, Rows<T> x,
             const RunTasks& run_tasks = RunInTurn);
  void Solve(const TwoTriangles& triangles, const T* a, int64_t cols, Rows<T> x,
             const RunTasks& run_tasks = RunInTurn) {
    Solve(triangles.first, a, cols, x, run_tasks);
    Solve(triangles.second, a, cols, x, run_tasks);
  }

 private:
  template <bool kConjugate>
  void SolveLower(bool unit_diagonal, Strided<T> a, int64_t cols, Rows<T> x,
                  const RunTasks& run_tasks);

  int64_t n_;
  Workspace<T> edge_;  // the last rows, which fill no tile: tiles must not read beyond the operand
  std::unique_ptr<Divisor<Element<T>>[]> divisors_;
};

}  // namespace linalg::blocked
