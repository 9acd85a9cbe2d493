// What makes a real matrix of a Hermitian tridiagonal one, which LAPACK has no routines for.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>

#include "kernels/arithmetic/element.h"
#include "kernels/ffi.h"

namespace linalg {

// |e|, and the phases that make T of it: T = diag(phases) |T| diag(phases)ᴴ.
template <class T>
LINALG_INLINE void SplitPhases(int64_t count, const T* beside, Real<T>* size, T* phases) {
  if constexpr (kIsComplex<T>) {
    phases[0] = T(1);
    for (int64_t i = 0; i < count; ++i) {
      size[i] = std::abs(beside[i]);
      const T turned = size[i] == 0 ? phases[i] : phases[i] * std::conj(beside[i] / size[i]);
      phases[i + 1] = turned / std::abs(turned);
    }
  } else {
    std::copy_n(beside, count, size);
  }
}

}  // namespace linalg
