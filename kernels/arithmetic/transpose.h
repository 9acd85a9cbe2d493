// In-place transposition of contiguous matrices, one per lane or thread.
#pragma once

#include <utility>

#include "kernels/arithmetic/element.h"

namespace linalg {

template <class E>
LINALG_INLINE void TransposeSquare(int n, E* a) {
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < i; ++j) std::swap(a[i * n + j], a[j * n + i]);
  }
}

// Transposes a row-major (rows, cols) matrix by following the cycles of the permutation.
template <class E>
LINALG_INLINE void Transpose(int rows, int cols, E* a) {
  if (rows == cols) return TransposeSquare(rows, a);
  if (rows == 1 || cols == 1) return;
  const int last = rows * cols - 1;
  for (int start = 1; start < last; ++start) {
    int smallest = start;
    do {
      smallest = smallest % rows * cols + smallest / rows;
    } while (smallest > start);
    if (smallest < start) continue;
    for (int to = start, from;; to = from) {
      from = to % rows * cols + to / rows;
      if (from == start) break;
      std::swap(a[to], a[from]);
    }
  }
}

}  // namespace linalg
