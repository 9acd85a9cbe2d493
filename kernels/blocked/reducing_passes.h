// Shared parts of the reductions to tridiagonal and bidiagonal form. Each pass over the matrix
// applies the rank-2 update of one step and the products of the next.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/arithmetic/pairs.h"
#include "kernels/arithmetic/tridiagonal.h"
#include "kernels/blocked/strips.h"
#include "kernels/blocked/tasks.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// Rows of a pass that are handled together: as many as registers allow, and at most a diagonal
// square's.
template <class T>
inline constexpr int kPassRows = std::min((kTileRows == 8 ? 4 : 2) / kPartsOf<T>, kWidth<T>);

// A pass over `count` elements is split into pieces of rows for several threads. Each piece adds
// its column sums to its own vector. A piece is large enough to be worth a thread.
inline constexpr int64_t kMostPassPieces = 16;
template <class T>
int64_t PassPieces(int64_t count) {
  constexpr int64_t kPieceBytes = 1 << 18;
  return std::clamp<int64_t>(count * static_cast<int64_t>(sizeof(T)) / kPieceBytes, 1,
                             kMostPassPieces);
}

// Adds the pieces' vectors for one register of columns, in order. `row_of` gives the vector of a
// piece.
template <class T, class RowOf>
LINALG_INLINE Register<T> SumOfPieces(int64_t pieces, int64_t column, RowOf&& row_of) {
  Register<T> sum = Load<T>(row_of(0) + column);
  for (int64_t i = 1; i < pieces; ++i) sum = sum + Load<T>(row_of(i) + column);
  return sum;
}

template <class T>
LINALG_INLINE Register<T> ConjPairs(Register<T> x) {
  if constexpr (kComplexElement<T>) {
    return ConjugatePairs(x);
  } else {
    return x;
  }
}

// Dot products over registers. Complex products keep two sums: of like parts, and of unlike parts.
template <class T>
struct Dot {
  using V = Register<T>;
  V sums[kPartsOf<T>] = {};

  // Adds x y; `swapped` is y with real and imaginary parts swapped.
  LINALG_INLINE void Add(V x, V y, V swapped) {
    sums[0] = MulAdd(x, y, sums[0]);
    if constexpr (kComplexElement<T>) sums[1] = MulAdd(x, swapped, sums[1]);
  }
  LINALG_INLINE Element<T> Total() const {
    if constexpr (kComplexElement<T>) {
      return {SumOfLanes(ConjPairs<T>(sums[0])), SumOfLanes(sums[1])};
    } else {
      return SumOfLanes(sums[0]);
    }
  }
};

// The sum of squares of elements [first, last) of a row. The other elements of its first and last
// register must be zeros.
template <class T>
LINALG_INLINE RealElement<T> SumOfSquares(const T* x, int64_t first, int64_t last) {
  Register<T> squares[2] = {};
  int64_t j = first / kWidth<T> * kWidth<T>;
  for (; j + kWidth<T> < last; j += 2 * kWidth<T>) {
    const auto y = Load<T>(x + j), z = Load<T>(x + j + kWidth<T>);
    squares[0] = MulAdd(y, y, squares[0]);
    squares[1] = MulAdd(z, z, squares[1]);
  }
  if (j < last) squares[0] = MulAdd(Load<T>(x + j), Load<T>(x + j), squares[0]);
  return SumOfLanes(squares[0] + squares[1]);
}

}  // namespace linalg::blocked
