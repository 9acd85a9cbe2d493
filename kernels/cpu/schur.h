// The Schur form of small matrices with its vectors, which eigenvectors are made of too: it is
// long, and compiled once, in schur.cc.
#pragma once

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/once.h"
#include "kernels/small/schur.h"

namespace linalg::small {

#define LINALG_SCHUR(declare, E)                                                 \
  declare template RealElement<E> Schur<true, E>(const SchurWork<E>&, int, bool, \
                                                 Balanced<RealElement<E>>&, RealElement<E>&);

#define LINALG_SCHUR_IN(T, Of) LINALG_SCHUR(extern, Of<T>)
LINALG_EACH_ELEMENT(LINALG_SCHUR_IN)
#undef LINALG_SCHUR_IN

}  // namespace linalg::small
