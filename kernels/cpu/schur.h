// The Schur form and vectors of small matrices. Eigenvectors need them too. They are long, so
// schur.cc compiles them once.
#pragma once

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/once.h"
#include "kernels/small/schur.h"

namespace linalg::small {

// `declare` is `extern`, and nothing in schur.cc.
#define LINALG_SCHUR_IN(declare, T, Of)                   \
  declare template RealElement<Of<T>> Schur<true, Of<T>>( \
      const SchurWork<Of<T>>&, int, bool, Balanced<RealElement<Of<T>>>&, RealElement<Of<T>>&);
#define LINALG_SCHUR_ALL(declare) LINALG_EACH_ELEMENT(LINALG_SCHUR_IN, declare)

LINALG_SCHUR_ALL(extern)

}  // namespace linalg::small
