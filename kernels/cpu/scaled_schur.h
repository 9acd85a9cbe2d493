// LAPACK's Schur factors of one matrix, at a scale at which its routine is accurate.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/range.h"

namespace linalg {

// How far the squared lengths of the columns of the n by n matrix `z` are from 1.
template <class T>
Real<T> DeviationFromUnitary(int64_t n, const T* z) {
  Real<T> deviation = 0;
  for (int64_t j = 0; j < n; ++j) {
    Real<T> square = 0;
    for (int64_t i = 0; i < n; ++i) square += std::norm(z[j * n + i]);
    deviation = std::max(deviation, std::abs(square - 1));
  }
  return deviation;
}

// The complex iteration divides subdiagonal elements by their modulus to make them real. Where they
// are subnormal, the quotient is no phase, and Z is not unitary; SciPy returns it. An element that
// is subnormal at one scale of the matrix is normal or zero at another.
template <class T>
int ComplexSchur(lapack::Gees<T>& gees, ffi::ThreadPool& pool, int64_t n, const T* a, T* t, T* z) {
  constexpr int kMost = kUnscaledExponents<T> - 1;
  const Real<T> limit = static_cast<Real<T>>(32 + 2 * n) * std::numeric_limits<Real<T>>::epsilon();
  const int exponent = LargestExponent(a, n * n);
  int info = 0;
  for (const int target : {kMost, 0, -kMost}) {
    Transpose(pool, n, n, a, n, t, n);
    MultiplyByPowerOfTwo(target - exponent, n * n, t);
    info = gees(t, z);
    MultiplyByPowerOfTwo(exponent - target, n * n, t);
    const Real<T> deviation = DeviationFromUnitary(n, z);
    if (info == 0 && deviation <= limit) return 0;
    // Slow convergence costs digits too, which no scale mends.
    if (target == -kMost && info == 0 && deviation > 16 * limit) info = ToInt(n);
  }
  return info;
}

template <class T>
int RealSchur(lapack::Gees<T>& gees, ffi::ThreadPool& pool, int64_t n, const T* a, T* t, T* z) {
  const int exponent = ExponentOutOfRange(a, n * n);
  Transpose(pool, n, n, a, n, t, n);
  MultiplyByPowerOfTwo(-exponent, n * n, t);
  const int info = gees(t, z);
  MultiplyByPowerOfTwo(exponent, n * n, t);
  return info;
}

// The column-major factors of the row-major `a`. Returns LAPACK's info.
template <class T>
int ScaledSchur(lapack::Gees<T>& gees, ffi::ThreadPool& pool, int64_t n, const T* a, T* t, T* z) {
  if constexpr (kIsComplex<T>) {
    return ComplexSchur(gees, pool, n, a, t, z);
  } else {
    return RealSchur(gees, pool, n, a, t, z);
  }
}

}  // namespace linalg
