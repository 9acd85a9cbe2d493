// Inputs and outputs of algorithms for Hermitian matrices, one per lane.
#pragma once

#include "kernels/arithmetic/hermitian.h"

namespace linalg::small {

// Replaces the lower triangle by that of the Hermitian part.
template <class E>
LINALG_INLINE void LowerHermitianPart(E* a, int n, HermitianPart part) {
  const auto element = [=](int i, int j) {
    return part.At(i, j, [=](int k, int l) { return a[k * n + l]; });
  };
  for (int i = 0; i < n; ++i) {
    // The diagonal is separate so that this loop vectorises.
    for (int j = 0; j < i; ++j) a[i * n + j] = element(i, j);
    a[i * n + i] = element(i, i);
  }
}

// The transpose of LowerHermitianPart, for cotangents: the whole matrix from a lower triangle.
template <class E>
LINALG_INLINE void HermitianPartCotangent(E* x, int n, HermitianPart part) {
  using V = RealElement<E>;
  const V half = Broadcast<V>(0.5f);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < i; ++j) {
      const E entry = x[i * n + j], other = Conj(entry);
      if (part.symmetrize) {
        x[i * n + j] = half * entry;
        x[j * n + i] = half * other;
      } else {
        x[i * n + j] = part.lower ? entry : E{};
        x[j * n + i] = part.lower ? E{} : other;
      }
    }
  }
}

// Keeps the lower triangle, or writes its adjoint to the upper one, and zeros the other. Lanes
// where `failed` is not 0 become NaN.
template <class E>
LINALG_INLINE void FinishTriangle(E* a, int n, bool lower, RealElement<E> failed) {
  using V = RealElement<E>;
  FillNaN(failed > V{}, n * n, a);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < i; ++j) {
      if (!lower) a[j * n + i] = Conj(a[i * n + j]);
      a[lower ? j * n + i : i * n + j] = E{};
    }
  }
}

}  // namespace linalg::small
