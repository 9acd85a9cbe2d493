// Which triangles of a matrix are solved with, how, and in which order.
#pragma once

#include "kernels/arithmetic/element.h"

namespace linalg {

// The triangle of `a` that is read, and what is solved with it: op(a) x = b, or x op(a) = b.
struct Triangle {
  bool lower = false;
  bool transpose = false;
  bool conjugate = false;
  bool unit_diagonal = false;
  bool left_side = true;

  // Whether `a` is transposed for substitution, which is from the left: x op(a) = b is
  // op(a)ᵀ xᵀ = bᵀ.
  LINALG_INLINE bool Transposes() const { return transpose == left_side; }

  // Whether substitution then goes from the first row to the last.
  LINALG_INLINE bool Forward() const { return lower != Transposes(); }
};

// What substitution with a triangle does: the matrix becomes op of itself, and one of its triangles
// is substituted with.
struct SubstitutionPass {
  bool transpose = false;
  bool conjugate = false;
  bool lower = false;
  bool unit_diagonal = false;
};

// With a triangle of a matrix as it lies; where that is x op(A) = b, `b` holds bᵀ.
LINALG_INLINE SubstitutionPass PassWith(const Triangle& triangle) {
  return {.transpose = triangle.Transposes(),
          .conjugate = triangle.conjugate,
          .lower = triangle.Forward(),
          .unit_diagonal = triangle.unit_diagonal};
}

// With a triangle of what the pass with another one has made of the matrix.
LINALG_INLINE SubstitutionPass PassAfter(const Triangle& other, const Triangle& triangle) {
  SubstitutionPass pass = PassWith(triangle);
  pass.transpose = pass.transpose != other.Transposes();
  pass.conjugate = pass.conjugate != other.conjugate;
  return pass;
}

// The triangles of a matrix's two factors: with `first`, and then with `second`.
struct TwoTriangles {
  Triangle first, second;
};

// A x = b, given the Cholesky factor: A = L Lᴴ with a lower one, A = Uᴴ U with an upper one.
LINALG_INLINE TwoTriangles CholeskyTriangles(bool lower) {
  const Triangle plain{.lower = lower};
  const Triangle adjoint{.lower = lower, .transpose = true, .conjugate = true};
  return lower ? TwoTriangles{plain, adjoint} : TwoTriangles{adjoint, plain};
}

// op(A) x = b, given A = Pᵀ L U: the rows of b are exchanged before, or, with `transpose`, those of
// x back afterward. `column_major` factors are row-major ones of the transpose.
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
