// The Schur form of small matrices with its vectors, which eigenvectors are made of too: it is
// long, and compiled once, in schur.cc.
#pragma once

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/once.h"
#include "kernels/small/schur.h"

namespace linalg::small {

// `declare` is `extern` but in schur.cc, where it is nothing.
#define LINALG_SCHUR_IN(declare, T, Of)                   \
  declare template RealElement<Of<T>> Schur<true, Of<T>>( \
      const SchurWork<Of<T>>&, int, bool, Balanced<RealElement<Of<T>>>&, RealElement<Of<T>>&);
#define LINALG_SCHUR_ALL(declare) LINALG_EACH_ELEMENT(LINALG_SCHUR_IN, declare)

LINALG_SCHUR_ALL(extern)

}  // namespace linalg::small
