// The scalars of a Householder reflector I - tau v vᴴ, v's first element 1, with LAPACK's
// conventions.
#pragma once

#include "kernels/arithmetic/element.h"

namespace linalg {

// Of the reflector that makes beta of alpha and zeros of what is below it: tau, and what that is
// multiplied by for v.
template <class E>
struct ReflectorScale {
  E tau, inverse;

  LINALG_INLINE ReflectorScale(E alpha, RealElement<E> beta) {
    using V = RealElement<E>;
    const V one = Broadcast<V>(1);
    if constexpr (kComplexElement<E>) {
      tau = {(beta - alpha.re) / beta, -alpha.im / beta};
      const V re = alpha.re - beta;
      const V square = one / MulAdd(alpha.im, alpha.im, re * re);
      inverse = {re * square, -alpha.im * square};
    } else {
      tau = (beta - alpha) / beta;
      inverse = one / (alpha - beta);
    }
  }
};

}  // namespace linalg
