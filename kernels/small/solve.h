// The steps of the handlers for small matrices: factor, substitute, solve, invert. Lanes, and
// threads with a matrix each, share them.
//
// Matrices are row-major and contiguous. Operands are overwritten.
#pragma once

#include "kernels/arithmetic/hermitian.h"
#include "kernels/arithmetic/triangle.h"
#include "kernels/small/cholesky.h"
#include "kernels/small/hermitian.h"
#include "kernels/small/lu.h"
#include "kernels/small/triangular.h"

namespace linalg::small {

// Computes the Cholesky factor in the requested triangle, with zeros in the other. It is NaN where
// it fails. Returns 0 or the order of the first leading minor that is not positive.
template <class E>
LINALG_INLINE RealElement<E> CholeskyFactor(E* a, int n, HermitianPart part) {
  LowerHermitianPart(a, n, part);
  const RealElement<E> failed = Cholesky(a, n);
  FinishTriangle(a, n, part.lower, failed);
  return failed;
}

// Transforms `a` into the matrix of the pass.
template <class E>
LINALG_INLINE void ApplyOperation(const SubstitutionPass& pass, int n, E* a) {
  if (pass.transpose) TransposeSquare(n, a);
  if (pass.conjugate) Conjugate(n * n, a);
}

// x (rows, cols) := op(a)⁻¹ x, or x op(a)⁻¹.
template <class E>
LINALG_INLINE void TriangularSolve(const Triangle& triangle, int n, E* a, int rows, int cols,
                                   E* x) {
  const SubstitutionPass pass = PassWith(triangle);
  const int count = triangle.left_side ? cols : rows;
  if (!triangle.left_side) Transpose(rows, cols, x);
  ApplyOperation(pass, n, a);
  if (pass.lower) {
    SolveLower(n, a, pass.unit_diagonal, count, x);
  } else {
    SolveUpper(n, a, pass.unit_diagonal, count, x);
  }
  if (!triangle.left_side) Transpose(cols, rows, x);
}

// Solves with both triangles of `a`. The first pass must use a lower triangle, the second an upper
// one.
template <class E>
LINALG_INLINE void TriangularSolve(const TwoTriangles& triangles, int n, E* a, int cols, E* x) {
  const SubstitutionPass first = PassWith(triangles.first);
  const SubstitutionPass second = PassAfter(triangles.first, triangles.second);
  ApplyOperation(first, n, a);
  SolveLower(n, a, first.unit_diagonal, cols, x);
  ApplyOperation(second, n, a);
  SolveUpper(n, a, second.unit_diagonal, cols, x);
}

// x (n, cols) := A⁻¹ x, given A's Cholesky factor.
template <class E>
LINALG_INLINE void CholeskySolve(int n, E* factor, bool lower, int cols, E* x) {
  TriangularSolve(CholeskyTriangles(lower), n, factor, cols, x);
}

// x (n, cols) := op(A)⁻¹ x, given A's LU factors. Pivots are numbers in lanes, or the integers of
// one matrix.
template <class E, class Pivots>
LINALG_INLINE void LuSolve(int n, E* lu, Pivots pivots, bool transpose, bool conjugate, int cols,
                           E* x) {
  if (!transpose) ApplyPivots(n, pivots, /*back=*/false, cols, x);
  TriangularSolve(LuTriangles(transpose, conjugate, /*column_major=*/false), n, lu, cols, x);
  if (transpose) ApplyPivots(n, pivots, /*back=*/true, cols, x);
}

// x (n, cols) := A⁻¹ x, given A's LU factors and the result of Lu. All of x is NaN if the matrix is
// singular or its factors hold NaN: substitution alone would leave some entries finite.
template <class E>
LINALG_INLINE void SolveFactored(int n, E* lu, const RealElement<E>* pivots,
                                 RealElement<E> singular, int cols, E* x) {
  const LanePivots<RealElement<E>> steps{.steps = pivots, .from_factors = true};
  LuSolve(n, lu, steps, /*transpose=*/false, /*conjugate=*/false, cols, x);
  FillNaN(singular != RealElement<E>{}, static_cast<int64_t>(n) * cols, x);
}

// x (n, cols) := A⁻¹ x, given A. The result is NaN where that of SolveFactored is. `pivots` and
// `permutation` are workspaces of n each. Returns the result of Lu.
template <class E>
LINALG_INLINE RealElement<E> Solve(int n, E* a, RealElement<E>* pivots, RealElement<E>* permutation,
                                   int cols, E* x) {
  const RealElement<E> singular = Lu(n, n, a, pivots, permutation);
  SolveFactored(n, a, pivots, singular, cols, x);
  return singular;
}

// inverse (n, n) := A⁻¹, given A's LU factors and the result of Lu. The inverse is NaN where the
// result of SolveFactored is.
template <class E>
LINALG_INLINE void InverseOfFactors(int n, const E* lu, const RealElement<E>* permutation,
                                    RealElement<E> singular, E* inverse) {
  Invert(n, lu, permutation, FromReal<E>(Broadcast<RealElement<E>>(1)), inverse);
  FillNaN(singular != RealElement<E>{}, static_cast<int64_t>(n) * n, inverse);
}

// inverse (n, n) := A⁻¹, given A. Workspaces and the returned value are those of Solve.
template <class E>
LINALG_INLINE RealElement<E> Inverse(int n, E* a, RealElement<E>* pivots,
                                     RealElement<E>* permutation, E* inverse) {
  const RealElement<E> singular = Lu(n, n, a, pivots, permutation);
  InverseOfFactors(n, a, permutation, singular, inverse);
  return singular;
}

}  // namespace linalg::small
