// Which triangle a solve uses, how, and in which order two of them are applied.
#pragma once

#include "kernels/arithmetic/element.h"

namespace linalg {

// The triangle of `a` that is read, and the equation: op(a) x = b, or x op(a) = b.
struct Triangle {
  bool lower = false;
  bool transpose = false;
  bool conjugate = false;
  bool unit_diagonal = false;
  bool left_side = true;

  // Whether substitution transposes `a`. It always solves from the left: x op(a) = b becomes op(a)ᵀ
  // xᵀ = bᵀ.
  LINALG_INLINE bool Transposes() const { return transpose == left_side; }

  // Whether substitution goes from the first row to the last.
  LINALG_INLINE bool Forward() const { return lower != Transposes(); }
};

// One pass of substitution: transforms the matrix by op, then substitutes with one of its
// triangles.
struct SubstitutionPass {
  bool transpose = false;
  bool conjugate = false;
  bool lower = false;
  bool unit_diagonal = false;
};

// The pass for a triangle of the matrix as given. For x op(A) = b, `b` holds bᵀ.
LINALG_INLINE SubstitutionPass PassWith(const Triangle& triangle) {
  return {.transpose = triangle.Transposes(),
          .conjugate = triangle.conjugate,
          .lower = triangle.Forward(),
          .unit_diagonal = triangle.unit_diagonal};
}

// The pass for a second triangle, after the pass for `other` has transformed the matrix.
LINALG_INLINE SubstitutionPass PassAfter(const Triangle& other, const Triangle& triangle) {
  SubstitutionPass pass = PassWith(triangle);
  pass.transpose = pass.transpose != other.Transposes();
  pass.conjugate = pass.conjugate != other.conjugate;
  return pass;
}

// The triangles of a matrix's two factors, in the order of their passes.
struct TwoTriangles {
  Triangle first, second;
};

// A x = b with the Cholesky factor: A = L Lᴴ (lower) or A = Uᴴ U (upper).
LINALG_INLINE TwoTriangles CholeskyTriangles(bool lower) {
  const Triangle plain{.lower = lower};
  const Triangle adjoint{.lower = lower, .transpose = true, .conjugate = true};
  return lower ? TwoTriangles{plain, adjoint} : TwoTriangles{adjoint, plain};
}

// op(A) x = b with A = Pᵀ L U. The rows of b are exchanged before the passes; with `transpose`, the
// rows of x are exchanged back after them. `column_major` factors are row-major factors of the
// transpose.
LINALG_INLINE TwoTriangles LuTriangles(bool transpose, bool conjugate, bool column_major) {
  const Triangle l{.lower = !column_major,
                   .transpose = transpose != column_major,
                   .conjugate = conjugate,
                   .unit_diagonal = true};
  const Triangle u{
      .lower = column_major, .transpose = transpose != column_major, .conjugate = conjugate};
  return transpose ? TwoTriangles{u, l} : TwoTriangles{l, u};
}

}  // namespace linalg
