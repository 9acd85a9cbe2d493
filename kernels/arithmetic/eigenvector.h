// The scalars of an eigenvector that is made by back substitution in a Schur form.
#pragma once

#include "kernels/arithmetic/divisor.h"
#include "kernels/arithmetic/scale.h"

namespace linalg {

// The system [[p, b], [c, q]] (x, y) = (first, second), b and c not zero, eliminated by the larger
// of p and c: y is bottom / below, and x then (rest - beside y) / pivot.
template <class V>
struct EliminatedBlock {
  using C = Complex<V>;
  C pivot, beside, below, rest, bottom;

  LINALG_INLINE EliminatedBlock(C p, V b, V c, C q, C first, C second) {
    const C above = FromReal<C>(b), left = FromReal<C>(c);
    const auto keep = Magnitude(p) >= Magnitude(left);
    pivot = Choose(keep, p, left);
    beside = Choose(keep, above, q);
    rest = Choose(keep, first, second);
    const C factor = Divisor<C>(pivot).Divide(Choose(keep, left, p));
    below = NegMulAdd(factor, beside, Choose(keep, q, above));
    bottom = NegMulAdd(factor, rest, Choose(keep, second, first));
  }
};

// Brings a vector of n elements at(i), the largest of a magnitude of `size`, to length 1, and to a
// real largest element where `turns` holds. Calls store(i, element) with what it becomes.
template <class V, class At, class Store>
LINALG_INLINE void NormaliseEigenvector(int n, V size, Mask<V> turns, At&& at, Store&& store) {
  using C = Complex<V>;
  const V zero{}, one = Broadcast<V>(1);
  V unscale;
  const V scale = PowerOfTwoScale(size, unscale);
  V squares = zero, largest = zero;
  C at_largest{one, zero};
  for (int i = 0; i < n; ++i) {
    C& place = at(i);
    const C x = scale * place;
    place = x;
    const V square = NormAdd(x, zero);
    squares = squares + square;
    const auto larger = square > largest;
    largest = larger ? square : largest;
    at_largest = Choose(larger, x, at_largest);
  }
  const V inverse = one / Sqrt(squares);
  const C phase = Choose(turns, (one / Sqrt(largest)) * Conj(at_largest), C{one, zero});
  for (int i = 0; i < n; ++i) {
    const C x = at(i);
    const auto real = turns & (x.re == at_largest.re) & (x.im == at_largest.im);
    C y = Mul(phase, inverse * x);
    y.im = real ? zero : y.im;
    store(i, y);
  }
}

}  // namespace linalg
