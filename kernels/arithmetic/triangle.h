// Which triangle of a matrix is solved with, and how.
#pragma once

namespace linalg {

// The triangle of `a` that is read, and what is solved with it: op(a) x = b, or x op(a) = b.
struct Triangle {
  bool lower;
  bool transpose = false;
  bool conjugate = false;
  bool unit_diagonal = false;
  bool left_side = true;
};

}  // namespace linalg
