// Which triangle of a matrix is solved with, and how.
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

}  // namespace linalg
