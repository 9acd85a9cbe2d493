// What handlers do with small matrices, one per lane: factor, substitute, solve, invert. The order
// of the steps stands here, for lanes and for threads that have a matrix each.
//
// Matrices are row-major and without gaps. Operands are overwritten.
#pragma once

#include "kernels/arithmetic/hermitian.h"
#include "kernels/arithmetic/triangle.h"
#include "kernels/small/cholesky.h"
#include "kernels/small/hermitian.h"
#include "kernels/small/lu.h"
#include "kernels/small/triangular.h"

namespace linalg::small {

// The Cholesky factor in the triangle that is named, zeros in the other; NaN where it fails.
// Returns 0 or the order of the first leading minor that is not positive.
template <class E>
LINALG_INLINE RealElement<E> CholeskyFactor(E* a, int n, HermitianPart part) {
  LowerHermitianPart(a, n, part);
  const RealElement<E> failed = Cholesky(a, n);
  FinishTriangle(a, n, part.lower, failed);
  return failed;
}

// x (n, cols) := A⁻¹ x, given A's factor: A = L Lᴴ with a lower one, A = Uᴴ U with an upper one.
template <class E>
LINALG_INLINE void CholeskySolve(int n, E* factor, bool lower, int cols, E* x) {
  if (!lower) AdjointSquare(n, factor);
  SolveLower(n, factor, /*unit_diagonal=*/false, cols, x);
  AdjointSquare(n, factor);
  SolveUpper(n, factor, /*unit_diagonal=*/false, cols, x);
}

// x (rows, cols) := op(a)⁻¹ x, or x op(a)⁻¹.
template <class E>
LINALG_INLINE void TriangularSolve(const Triangle& triangle, int n, E* a, int rows, int cols,
                                   E* x) {
  if (!triangle.left_side) Transpose(rows, cols, x);
  if (triangle.conjugate) Conjugate(n * n, a);
  if (triangle.Transposes()) TransposeSquare(n, a);
  const int count = triangle.left_side ? cols : rows;
  if (triangle.Forward()) {
    SolveLower(n, a, triangle.unit_diagonal, count, x);
  } else {
    SolveUpper(n, a, triangle.unit_diagonal, count, x);
  }
  if (!triangle.left_side) Transpose(cols, rows, x);
}

// x (n, cols) := op(A)⁻¹ x, given A's LU factors. Pivots are numbers in lanes, or the integers of
// one matrix; `from_factors` says that no pivot stands above its step.
template <class E, class Pivot>
LINALG_INLINE void LuSolve(int n, E* lu, const Pivot* pivots, bool from_factors, bool transpose,
                           bool conjugate, int cols, E* x) {
  if (conjugate) Conjugate(n * n, lu);
  if (transpose) TransposeSquare(n, lu);
  if (!transpose) ApplyPivots(n, pivots, from_factors, /*back=*/false, cols, x);
  SolveLower(n, lu, /*unit_diagonal=*/!transpose, cols, x);
  SolveUpper(n, lu, /*unit_diagonal=*/transpose, cols, x);
  if (transpose) ApplyPivots(n, pivots, from_factors, /*back=*/true, cols, x);
}

// x (n, cols) := A⁻¹ x, given A's LU factors and what Lu returned. NaN throughout where the matrix
// is singular or its factors hold NaN: substitution would leave those entries finite that do not
// meet one.
template <class E>
LINALG_INLINE void SolveFactored(int n, E* lu, const RealElement<E>* pivots,
                                 RealElement<E> singular, int cols, E* x) {
  LuSolve(n, lu, pivots, /*from_factors=*/true, false, false, cols, x);
  FillNaN(singular != RealElement<E>{}, static_cast<int64_t>(n) * cols, x);
}

// The same, given A; `pivots` and `permutation` are room for n each. Returns what Lu returned.
template <class E>
LINALG_INLINE RealElement<E> Solve(int n, E* a, RealElement<E>* pivots, RealElement<E>* permutation,
                                   int cols, E* x) {
  const RealElement<E> singular = Lu(n, n, a, pivots, permutation);
  SolveFactored(n, a, pivots, singular, cols, x);
  return singular;
}

// inverse (n, n) := A⁻¹; the rest as in Solve.
template <class E>
LINALG_INLINE RealElement<E> Inverse(int n, E* a, RealElement<E>* pivots,
                                     RealElement<E>* permutation, E* inverse) {
  const RealElement<E> singular = Lu(n, n, a, pivots, permutation);
  Invert(n, a, permutation, FromReal<E>(Broadcast<RealElement<E>>(1)), inverse);
  FillNaN(singular != RealElement<E>{}, static_cast<int64_t>(n) * n, inverse);
  return singular;
}

}  // namespace linalg::small
