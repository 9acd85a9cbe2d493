// Single eigenvalues of real symmetric tridiagonal matrices by bisection (LAPACK's stebz).
//
// The number of negative pivots of T - x I changes at an eigenvalue (Sturm counts; Golub and Van
// Loan, Matrix Computations, 4th ed., 8.4). The counts are exact for a matrix whose elements differ
// by a few roundings (Demmel, Dhillon and Ren, ETNA 3, 1995).
#pragma once

#include "kernels/arithmetic/element.h"

namespace linalg::small {

// A row of a scaled matrix. Its elements, or their real and imaginary parts if the off-diagonal
// ones were complex, are less than 2. So |d| < 2 and |e|² < 8, and all eigenvalues lie within (-8,
// 8).
template <class T>
struct alignas(2 * sizeof(T)) SturmRow {
  T diagonal, square;  // the square of the superdiagonal element, 0 in the first row
};

// The row of a Hermitian matrix times `scale`, given its diagonal element and the element above
// that.
template <class E>
LINALG_INLINE SturmRow<RealElement<E>> ScaledSturmRow(RealElement<E> scale, RealElement<E> diagonal,
                                                      E above) {
  return {scale * diagonal, NormAdd(scale * above, RealElement<E>{})};
}

// The number of eigenvalues that are at most x.
template <class T>
LINALG_INLINE int64_t SturmCount(int64_t n, const SturmRow<T>* rows, T x) {
  constexpr T kLeastPivot = 8 * std::numeric_limits<T>::min();  // 8 / kLeastPivot is in range
  T pivot = T(1);
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    pivot = rows[i].diagonal - rows[i].square / pivot - x;
    if (Abs(pivot) < kLeastPivot) pivot = -kLeastPivot;
    count += pivot < T(0);
  }
  return count;
}

// The least x at which more than k eigenvalues are counted, to the next number above or to a
// fraction of eps. Eigenvalues ascend with k for any counts. Two k follow the same bisection until
// the smaller goes left and the larger right.
template <class T>
LINALG_INLINE T BisectEigenvalue(int64_t n, const SturmRow<T>* rows, int64_t k) {
  constexpr int kSteps = std::numeric_limits<T>::digits + 6;  // 16 / 2^kSteps is eps / 8
  T low = T(-8), high = T(8);
  for (int step = 0; step < kSteps; ++step) {
    const T middle = T(0.5) * (low + high);
    if (middle == low || middle == high) break;
    if (SturmCount(n, rows, middle) > k) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return high;
}

}  // namespace linalg::small
