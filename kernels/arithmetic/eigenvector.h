// Scalars for eigenvectors by back substitution in a Schur form.
#pragma once

#include "kernels/arithmetic/divisor.h"
#include "kernels/arithmetic/scale.h"

namespace linalg {

// The system [[p, b], [c, q]] (x, y) = (first, second), where b and c are not zero. The larger of p
// and c is the pivot. The solution is y = bottom / below, then x = (rest - beside y) / pivot.
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

// Scales the n elements at(i) to a vector of length 1. `size` is the largest magnitude among them.
// Where `turns` holds, the largest element becomes real. Calls store(i, element) with each result.
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
