// Blocked substitution with triangles of small matrices, one per lane.
#pragma once

#include "kernels/arithmetic/divisor.h"
#include "kernels/arithmetic/transpose.h"
#include "kernels/small/mul_sub.h"

namespace linalg::small {

// Rows or columns of a panel in the blocked algorithms.
inline constexpr int kPanel = 4;

template <class E>
LINALG_INLINE void Conjugate(int count, E* a) {
  if constexpr (kComplexElement<E>) {
    for (int i = 0; i < count; ++i) a[i] = Conj(a[i]);
  }
}

template <class E>
LINALG_INLINE void AdjointSquare(int n, E* a) {
  TransposeSquare(n, a);
  Conjugate(n * n, a);
}

template <class E>
LINALG_INLINE void DivideRow(E pivot, int cols, E* row) {
  const Divisor<E> divisor(pivot);
  for (int j = 0; j < cols; ++j) row[j] = divisor.Divide(row[j]);
}

// b (n, cols) = L⁻¹ b, with the lower triangle of `a`.
template <class E>
LINALG_INLINE void SolveLower(int n, const E* a, bool unit_diagonal, int cols, E* b) {
  for (int block = 0; block < n; block += kPanel) {
    const int end = block + kPanel < n ? block + kPanel : n;
    MulSub(end - block, cols, block, a + block * n, n, b, cols, b + block * cols, cols);
    for (int i = block; i < end; ++i) {
      MulSubRows<1>(cols, i - block, a + i * n + block, n, b + block * cols, cols, b + i * cols,
                    cols);
      if (!unit_diagonal) DivideRow(a[i * n + i], cols, b + i * cols);
    }
  }
}

// b (n, cols) = U⁻¹ b, with the upper triangle of `a`.
template <class E>
LINALG_INLINE void SolveUpper(int n, const E* a, bool unit_diagonal, int cols, E* b) {
  for (int end = n; end > 0; end -= kPanel) {
    const int block = end > kPanel ? end - kPanel : 0;
    MulSub(end - block, cols, n - end, a + block * n + end, n, b + end * cols, cols,
           b + block * cols, cols);
    for (int i = end - 1; i >= block; --i) {
      MulSubRows<1>(cols, end - i - 1, a + i * n + i + 1, n, b + (i + 1) * cols, cols, b + i * cols,
                    cols);
      if (!unit_diagonal) DivideRow(a[i * n + i], cols, b + i * cols);
    }
  }
}

}  // namespace linalg::small
