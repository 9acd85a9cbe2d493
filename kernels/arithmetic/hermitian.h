// The Hermitian part of an operand, element by element. Every path of every backend uses this rule.
#pragma once

#include "kernels/arithmetic/element.h"

namespace linalg {

// How a Hermitian operand is read: as the mean of the operand and its adjoint, or from one
// triangle. The other triangle and the imaginary part of the diagonal are ignored.
struct HermitianPart {
  bool lower;
  bool symmetrize;

  LINALG_INLINE bool Reads(int64_t i, int64_t j) const {
    return i == j || symmetrize || lower == (j < i);
  }

  // Takes single elements or registers of them. Halves each first: the sum of two large elements
  // could overflow.
  template <class E>
  LINALG_INLINE static E Mean(E x, E adjoint) {
    const auto half = Number<RealElement<E>>(0.5);
    return half * x + half * adjoint;
  }

  // The element at (i, j); get(i, j) reads the operand.
  template <class Get>
  LINALG_INLINE auto At(int64_t i, int64_t j, Get&& get) const {
    using E = std::remove_cvref_t<decltype(get(i, j))>;
    if (i == j) return FromReal<E>(Re(get(i, i)));
    if (symmetrize) return Mean(get(i, j), Conj(get(j, i)));
    return lower == (j < i) ? get(i, j) : Conj(get(j, i));
  }
};

}  // namespace linalg
