// Numbers that LAPACK and BLAS cannot take. Iterations need finite matrices of an ordinary norm.
// Divisions need numbers that have reciprocals.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>

#include "kernels/arithmetic/element.h"
#include "kernels/arithmetic/info.h"
#include "kernels/ffi.h"

namespace linalg {

// Whether no element is NaN or Inf: iterations may not end on them.
template <class T>
bool AllFinite(const T* a, int64_t count) {
  const auto* parts = reinterpret_cast<const Real<T>*>(a);
  bool finite = true;
  for (int64_t i = 0; i < count * kPartsOf<T>; ++i) {
    finite &= std::abs(parts[i]) <= std::numeric_limits<Real<T>>::max();
  }
  return finite;
}

// The info of iterate(), which runs on finite matrices only.
template <class Iterate>
int IterateIf(bool finite, Iterate&& iterate) {
  return finite ? iterate() : kNotFinite;
}

// Whether 1 / x, or an intermediate number, is out of range where x is neither 0 nor Inf. BLAS
// divides by multiplying with reciprocals.
template <class T>
bool HasNoReciprocal(T x) {
  using Limits = std::numeric_limits<Real<T>>;
  const Real<T> size = std::max(std::abs(std::real(x)), std::abs(std::imag(x)));
  return (size > 0 && size < 4 * Limits::min()) ||
         (size > Limits::max() / 4 && size <= Limits::max());
}

// The exponent of the largest real or imaginary part, or 0 where all are zero.
template <class T>
int LargestExponent(const T* a, int64_t count) {
  const auto* parts = reinterpret_cast<const Real<T>*>(a);
  Real<T> largest = 0;
  for (int64_t i = 0; i < count * kPartsOf<T>; ++i) largest = std::max(largest, std::abs(parts[i]));
  return largest == 0 ? 0 : std::ilogb(largest);
}

// Between this exponent and its negative, geev and gees do not scale a matrix. Where they do, the
// OpenBLAS 0.3.30 of SciPy 1.17 does not scale the eigenvalues back: the eigenvalue of the matrix
// 1e300 is 1.5e138.
template <class T>
inline constexpr int kUnscaledExponents =
    std::numeric_limits<Real<T>>::max_exponent / 2 - std::numeric_limits<Real<T>>::digits - 2;

// The exponent of the largest element if geev and gees would scale it, else 0.
template <class T>
int ExponentOutOfRange(const T* a, int64_t count) {
  const int exponent = LargestExponent(a, count);
  return std::abs(exponent) < kUnscaledExponents<T> ? 0 : exponent;
}

template <class T>
void MultiplyByPowerOfTwo(int exponent, int64_t count, T* a) {
  if (exponent == 0) return;
  auto* parts = reinterpret_cast<Real<T>*>(a);
  for (int64_t i = 0; i < count * kPartsOf<T>; ++i) parts[i] = std::scalbn(parts[i], exponent);
}

}  // namespace linalg
