// Operands of the handlers that solve systems, on any backend. The matrix is a triangle, factors,
// tridiagonal or banded. Shapes of tridiagonal and banded matrices alone are here too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/ffi.h"

namespace linalg {

// A batch of systems. An `a` of rank 2 is shared by the whole batch.
template <class T>
struct Systems {
  const T* a;
  const T* b;
  T* x;
  int64_t batch, n, rows, cols;
  int64_t a_stride;       // distance to the next system's matrix: 0 if all systems share one
  bool left_side = true;  // whether the matrix is on the left of x

  // The number of right-hand sides of a system.
  int64_t nrhs() const { return left_side ? cols : rows; }
  int64_t size() const { return rows * cols; }
  double Operations() const { return static_cast<double>(n * size()); }
  // Matrices without elements have no stride either.
  bool SharesMatrix() const { return a_stride == 0 && n > 0 && batch > 1; }
};

template <class T>
Systems<T> ReadSystems(const ffi::AnyBuffer& a, const ffi::AnyBuffer& b, Result& x,
                       bool left_side) {
  const BatchShape matrix = SplitSquareBatch(a, "a");
  const BatchShape rhs = SplitBatch(b, 2, "b");
  const int64_t n = matrix.rows;
  if ((left_side ? rhs.rows : rhs.cols) != n) {
    throw BadArgument(
        "b", std::string("have as many ") + (left_side ? "rows" : "columns") + " as the matrix");
  }
  const bool shared = a.dimensions().size() == 2;
  if (!shared && matrix.batch != rhs.batch) throw BadArgument("b", "have the batch size of a");
  return {.a = Elements<T>(a, matrix.batch, {n, n}, "a"),
          .b = Elements<T>(b, rhs.batch, {rhs.rows, rhs.cols}, "b"),
          .x = Elements<T>(x, rhs.batch, {rhs.rows, rhs.cols}, "x"),
          .batch = rhs.batch,
          .n = n,
          .rows = rhs.rows,
          .cols = rhs.cols,
          .a_stride = shared ? 0 : n * n,
          .left_side = left_side};
}

// The row swaps of LU factors of order n. `stride` leads to the next system's, and is 0 if all
// systems share them.
struct Pivots {
  const int32_t* data;
  int64_t stride;
};

inline Pivots ReadPivots(const ffi::AnyBuffer& pivots, int64_t batch, int64_t n) {
  const bool shared = pivots.dimensions().size() == 1;
  return {.data = Elements<int32_t>(pivots, shared ? 1 : batch, {n}, "pivots"),
          .stride = shared ? 0 : n};
}

// The row swaps `pivots`, `count` per matrix, and the permutation of its `size` rows that they
// make.
struct PermutationOperands {
  int64_t batch, count, size;
  const int32_t* pivots;
  int32_t* permutation;
};

inline PermutationOperands ReadPermutationOperands(const ffi::AnyBuffer& pivots,
                                                   Result& permutation) {
  const BatchShape shape = SplitBatch(pivots, 1, "pivots");
  const int64_t count = shape.cols, size = SplitBatch(*permutation, 1, "permutation").cols;
  if (size < count) throw BadArgument("permutation_size", "be at least the number of pivots");
  return {.batch = shape.batch,
          .count = count,
          .size = size,
          .pivots = Elements<int32_t>(pivots, shape.batch, {count}, "pivots"),
          .permutation = Elements<int32_t>(permutation, shape.batch, {size}, "permutation")};
}

// A batch of tridiagonal matrices: their diagonals (…, n), and the elements beside them (…, n - 1).
struct TridiagonalShape {
  int64_t batch, n, beside;
};

inline TridiagonalShape SplitTridiagonalBatch(const ffi::AnyBuffer& diagonal,
                                              const ffi::AnyBuffer& beside) {
  const BatchShape shape = SplitBatch(diagonal, 1, "d");
  const int64_t count = std::max<int64_t>(shape.cols - 1, 0);
  if (SplitBatch(beside, 1, "e").cols != count) {
    throw BadArgument("e", "have an element less than d");
  }
  return {.batch = shape.batch, .n = shape.cols, .beside = count};
}

// A batch of tridiagonal systems by their diagonals, each of n elements. info is that of
// linalg_tridiagonal_solve.
template <class T>
struct TridiagonalSystems {
  int64_t batch, n, cols;
  const T* lower;
  const T* diagonal;
  const T* upper;
  const T* b;
  T* x;
  int32_t* info;
};

template <class T>
TridiagonalSystems<T> ReadTridiagonalSystems(const ffi::AnyBuffer& dl, const ffi::AnyBuffer& d,
                                             const ffi::AnyBuffer& du, const ffi::AnyBuffer& b,
                                             Result& x, Result& info) {
  const BatchShape shape = SplitBatch(b, 2, "b");
  const int64_t batch = shape.batch, n = shape.rows, cols = shape.cols;
  return {.batch = batch,
          .n = n,
          .cols = cols,
          .lower = Elements<T>(dl, batch, {n}, "dl"),
          .diagonal = Elements<T>(d, batch, {n}, "d"),
          .upper = Elements<T>(du, batch, {n}, "du"),
          .b = Elements<T>(b, batch, {n, cols}, "b"),
          .x = Elements<T>(x, batch, {n, cols}, "x"),
          .info = Elements<int32_t>(info, batch, {}, "info")};
}

// A batch of banded systems by their diagonals (…, n). `upper` holds those from the uppermost down
// to the main one, `lower` the `below` others. Element j of a diagonal is in column j of the
// matrix. info is that of linalg_banded_solve.
template <class T>
struct BandedSystems {
  int64_t batch, n, below, above, cols;
  const T* upper;
  const T* lower;
  const T* b;
  T* x;
  int32_t* info;

  constexpr int64_t Width() const { return below + 1 + above; }
  // The first matrix's diagonal `place` below the uppermost, and the distance to the next matrix's.
  constexpr const T* Diagonal(int64_t place) const {
    return place <= above ? upper + place * n : lower + (place - above - 1) * n;
  }
  constexpr int64_t Stride(int64_t place) const { return (place <= above ? above + 1 : below) * n; }
};

template <class T>
BandedSystems<T> ReadBandedSystems(const ffi::AnyBuffer& upper, const ffi::AnyBuffer& lower,
                                   const ffi::AnyBuffer& b, Result& x, Result& info) {
  const BatchShape shape = SplitBatch(b, 2, "b");
  const int64_t batch = shape.batch, n = shape.rows, cols = shape.cols;
  const int64_t rows = SplitBatch(upper, 2, "upper").rows;
  const int64_t below = SplitBatch(lower, 2, "lower").rows;
  if (rows < 1) throw BadArgument("upper", "have the main diagonal");
  return {.batch = batch,
          .n = n,
          .below = below,
          .above = rows - 1,
          .cols = cols,
          .upper = Elements<T>(upper, batch, {rows, n}, "upper"),
          .lower = Elements<T>(lower, batch, {below, n}, "lower"),
          .b = Elements<T>(b, batch, {n, cols}, "b"),
          .x = Elements<T>(x, batch, {n, cols}, "x"),
          .info = Elements<int32_t>(info, batch, {}, "info")};
}

// A batch of banded triangles by their diagonals (…, width, n). Lower triangles begin with the main
// diagonal, upper ones end with it.
struct BandedTriangles {
  int64_t batch, n, width;
  bool lower;

  constexpr int64_t size() const { return width * n; }
  // The diagonal `place` beside the main one: its elements, the rest of its row, and where both
  // begin.
  constexpr int64_t Count(int64_t place) const { return std::max<int64_t>(n - place, 0); }
  constexpr int64_t Corner(int64_t place) const { return n - Count(place); }
  constexpr int64_t Begin(int64_t place) const {
    return lower ? place * n : Row(place) + Corner(place);
  }
  constexpr int64_t CornerBegin(int64_t place) const {
    return lower ? place * n + Count(place) : Row(place);
  }

 private:
  constexpr int64_t Row(int64_t place) const { return (width - 1 - place) * n; }
};

inline BandedTriangles ReadBandedTriangles(const ffi::AnyBuffer& diagonals, bool lower,
                                           std::string_view name) {
  const BatchShape shape = SplitBatch(diagonals, 2, name);
  if (shape.rows < 1) throw BadArgument(name, "have the main diagonal");
  return {.batch = shape.batch, .n = shape.cols, .width = shape.rows, .lower = lower};
}

}  // namespace linalg
