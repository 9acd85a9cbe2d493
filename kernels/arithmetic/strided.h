// A view of a matrix by strides.
#pragma once

#include <cstdint>

namespace linalg {

// Element (i, j) is data[i row + j col].
template <class T>
struct Strided {
  const T* data;
  int64_t row, col;

  Strided At(int64_t i, int64_t j) const { return {data + i * row + j * col, row, col}; }
  const T& operator()(int64_t i, int64_t j) const { return data[i * row + j * col]; }
};

}  // namespace linalg
