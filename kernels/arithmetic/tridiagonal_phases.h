// Hermitian tridiagonal matrices as real ones between diagonal matrices of phases.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>

#include "kernels/arithmetic/element.h"

namespace linalg {

// T = diag(phases) |T| diag(phases)ᴴ for the matrix T with `count` elements `beside` below the
// diagonal. `moduli` are the off-diagonal elements of |T|. Real elements keep their signs and have
// no phases.
template <class T>
void SplitPhases(int64_t count, const T* beside, RealElement<T>* moduli, Element<T>* phases) {
  if constexpr (kComplexElement<T>) {
    using R = RealElement<T>;
    phases[0] = {R(1), R(0)};
    for (int64_t i = 0; i < count; ++i) {
      moduli[i] = std::abs(beside[i]);
      const auto phase = std::bit_cast<Element<T>>(moduli[i] == 0 ? T(1) : beside[i] / moduli[i]);
      const Element<T> turned = Mul(phases[i], Conj(phase));
      phases[i + 1] = R(1) / Modulus(turned) * turned;
    }
  } else {
    std::copy_n(beside, count, moduli);
  }
}

}  // namespace linalg
