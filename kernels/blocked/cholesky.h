// Cholesky factors of one Hermitian matrix, A = Uᴴ U, in tiles.
//
// Only the upper triangle is worked on, row by row of tiles: each is loaded once, has the products
// of all rows above it subtracted, and is divided by the triangle on the diagonal. A lower factor
// is the adjoint of the upper one, transposed where the operand is read and the factor is written.
#pragma once

#include <cstdint>

#include "kernels/arithmetic/hermitian.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// factor (n, n) = the factor of the part of `a`, with zeros in its other triangle; returns 0, or
// from 1 the first pivot that is not positive, and then the factor is not written. The workspace is
// one of n by n.
template <class T>
int Cholesky(int64_t n, HermitianPart part, const T* a, T* factor, const Workspace<T>& workspace);

}  // namespace linalg::blocked
