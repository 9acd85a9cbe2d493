// Tiled derivatives of the Cholesky factor of one matrix: the tangent of L for dA, and the
// cotangent of A for that of L.
//
// Follows Murray, Differentiation of the Cholesky decomposition, arXiv:1602.07527, equation 8 and
// its transpose: two solves with L and a product. The operands of one solve and of the product are
// triangles, whose zeros are skipped. That takes 5 n³ / 6 fused multiply-adds instead of 2 n³.
#pragma once

#include <cstdint>

#include "kernels/arithmetic/hermitian.h"
#include "kernels/blocked/tasks.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// Workspace for one matrix of order n after another. n must be at least the width of a register.
template <class T>
class CholeskyDerivative {
 public:
  explicit CholeskyDerivative(int64_t n) : n_(n), l_(n, n), x_(n, n), y_(n, n) {}

  // result (n, n) = L Φ(L⁻¹ x L⁻ᴴ). Φ keeps the lower triangle and halves the diagonal. Reads the
  // lower triangle of `l`.
  void FullJvp(const T* l, const T* x, T* result, const RunTasks& run_tasks = RunInTurn);

  // The transpose of that map, without conjugation: L⁻ᵀ Φ(Lᵀ x) conj(L)⁻¹. Reads the lower triangle
  // of x.
  void FullVjp(const T* l, const T* x, T* result, const RunTasks& run_tasks = RunInTurn);

  // The tangent of a lower factor, or of U = Lᴴ, along the Hermitian part of x.
  void Jvp(HermitianPart part, const T* factor, const T* x, T* result,
           const RunTasks& run_tasks = RunInTurn);

  // Its transpose, for a cotangent x of the factor.
  void Vjp(HermitianPart part, const T* factor, const T* x, T* result,
           const RunTasks& run_tasks = RunInTurn);

 private:
  template <bool kNegate>
  void ReadLower(bool lower, const T* source, Rows<T> target, const RunTasks& run_tasks) const;
  template <class Get>
  void ReadNegatives(Get&& get, const RunTasks& run_tasks) const;
  void WriteTangent(bool lower, T* result, const RunTasks& run_tasks) const;
  void WriteCotangent(HermitianPart part, T* result, const RunTasks& run_tasks) const;

  template <class Use>
  void ForEachPiece(const RunTasks& run_tasks, Use&& use) const;
  void Transpose(Rows<T> source, Rows<T> target, const RunTasks& run_tasks) const;
  void TakeUpper(int64_t first, int64_t last) const;
  void Tangent(const RunTasks& run_tasks) const;
  void Cotangent(const RunTasks& run_tasks) const;

  int64_t n_;
  Workspace<T> l_, x_, y_;
};

}  // namespace linalg::blocked
