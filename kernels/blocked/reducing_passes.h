// What the reductions of whole matrices to condensed forms share: passes over a matrix that update
// it by products of vectors and multiply it by others at once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/arithmetic/pairs.h"
#include "kernels/arithmetic/tridiagonal.h"
#include "kernels/blocked/strips.h"
#include "kernels/blocked/tasks.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// Rows that a pass works on at once: what there are registers for, and no more than a square on the
// diagonal has.
template <class T>
inline constexpr int kPassRows = std::min((kTileRows == 8 ? 4 : 2) / kPartsOf<T>, kWidth<T>);

// A pass over `count` elements is made in pieces of rows, each of which adds to a vector of its own
// what it has for columns, so that several threads can share it: so many pieces that each is worth
// a thread's while.
inline constexpr int64_t kMostPassPieces = 16;
template <class T>
int64_t PassPieces(int64_t count) {
  constexpr int64_t kPieceBytes = 1 << 18;
  return std::clamp<int64_t>(count * static_cast<int64_t>(sizeof(T)) / kPieceBytes, 1,
                             kMostPassPieces);
}

// A register of what the pieces have for columns, added up in their order; `row_of` gives the
// vector of each.
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

// Sums, over registers, of products of elements: a register of them, for complex ones those of like
// parts and those of unlike ones.
template <class T>
struct Dot {
  using V = Register<T>;
  V sums[kPartsOf<T>] = {};

  // Adds x y; `swapped` is y with its parts exchanged.
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

// The sum of squares of elements [first, last) of a row: in the registers at its ends the others
// are zeros.
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
