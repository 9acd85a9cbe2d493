// Cofactors of small matrices, and the determinant. Cofactors are det(A) A⁻ᵀ as a polynomial:
// finite even if A is singular, and the derivative of the determinant.
#pragma once

#include <algorithm>
#include <utility>

#include "kernels/arithmetic/divisor.h"
#include "kernels/arithmetic/scaled_product.h"
#include "kernels/arithmetic/transpose.h"
#include "kernels/small/lu.h"

namespace linalg::small {

// The largest order whose cofactors are computed as minors: entries, or differences of two
// products.
inline constexpr int kMinorsUpTo = 3;

// The cofactors (n, n) of an `a` of order up to kMinorsUpTo.
template <class E>
LINALG_INLINE void SmallestCofactors(int n, const E* a, E* cofactors) {
  if (n == 1) {
    cofactors[0] = FromReal<E>(Broadcast<RealElement<E>>(1));
  } else if (n == 2) {
    cofactors[0] = a[3];
    cofactors[1] = -a[2];
    cofactors[2] = -a[1];
    cofactors[3] = a[0];
  } else if (n == 3) {
    for (int i = 0; i < 3; ++i) {
      const E* const next = a + (i + 1) % 3 * 3;
      const E* const last = a + (i + 2) % 3 * 3;
      for (int j = 0; j < 3; ++j) {
        const int k = (j + 1) % 3, l = (j + 2) % 3;
        cofactors[i * 3 + j] = NegMulAdd(next[l], last[k], Mul(next[k], last[l]));
      }
    }
  }
}

// Cofactors (n, n) and determinants of the n by n matrices `a`, one per lane, which are overwritten
// by their LU factors. `pivots` and `permutation` are workspaces of n. Returns 0, kHoldsNaN, or a
// positive number in the lanes that need CofactorsOfSingular.
template <class Order, class E>
LINALG_INLINE RealElement<E> Cofactors(Order n, E* a, RealElement<E>* pivots,
                                       RealElement<E>* permutation, E* cofactors,
                                       ScaledProduct<E>& det) {
  using V = RealElement<E>;
  if (n <= kMinorsUpTo) {
    SmallestCofactors(n, a, cofactors);
    const V holds_nan = HoldsNaN(n * n, a) ? Broadcast<V>(kHoldsNaN) : V{};
    FillNaN(holds_nan < V{}, n * n, cofactors);
    det = Determinant(n, a, pivots);
    return holds_nan;
  }
  const V singular = SquareLu(n, a, pivots, permutation);
  det = ProductOfPivots(n, a, n, pivots);
  ScaledProduct<E> rest = det;
  const E before = TakePower(rest);
  Invert(n, a, permutation, before, cofactors);
  TransposeSquare(n, cofactors);
  MultiplyByPower(int64_t{n} * n, rest, cofactors);
  FillNaN(singular < V{}, n * n, cofactors);
  return singular;
}

// Cofactors of one singular matrix, by elimination with complete pivoting, P A Q = L U. A U of rank
// n - 1 has the cofactors d eₙ zᵀ. d is the product of its pivots, and z spans its null space, zₙ =
// 1. A matrix of full rank whose last pivot is below the rounding of the others is treated as
// singular. `places` and `vectors` are workspaces of 2 n.
template <class T>
LINALG_INLINE void CofactorsOfSingular(int n, T* a, int* places, T* vectors, T* cofactors) {
  int* const rows = places;
  int* const cols = places + n;
  for (int i = 0; i < n; ++i) rows[i] = cols[i] = i;
  std::fill(cofactors, cofactors + n * n, T{});
  ScaledProduct<T> product;
  bool odd = false;
  for (int k = 0; k < n - 1; ++k) {
    int row = k, col = k;
    for (int i = k; i < n; ++i) {
      for (int j = k; j < n; ++j) {
        if (Magnitude(a[i * n + j]) > Magnitude(a[row * n + col])) row = i, col = j;
      }
    }
    const T pivot = a[row * n + col];
    if (Magnitude(pivot) == 0) return;  // rank below n - 1: all cofactors are 0
    product.Multiply(pivot);
    odd ^= (row != k) != (col != k);
    std::swap(rows[k], rows[row]);
    std::swap(cols[k], cols[col]);
    for (int j = 0; j < n; ++j) std::swap(a[k * n + j], a[row * n + j]);
    for (int i = 0; i < n; ++i) std::swap(a[i * n + k], a[i * n + col]);
    const Divisor<T> divisor(pivot);
    for (int i = k + 1; i < n; ++i) {
      const T factor = divisor.Divide(a[i * n + k]);
      a[i * n + k] = factor;
      for (int j = k + 1; j < n; ++j) a[i * n + j] = NegMulAdd(factor, a[k * n + j], a[i * n + j]);
    }
  }
  // U z = 0 and w L = eₙᵀ.
  T* const z = vectors;
  T* const w = vectors + n;
  z[n - 1] = w[n - 1] = FromReal<T>(RealElement<T>(1));
  for (int i = n - 2; i >= 0; --i) {
    T right{}, left{};
    for (int j = i + 1; j < n; ++j) {
      right = NegMulAdd(a[i * n + j], z[j], right);
      left = NegMulAdd(a[j * n + i], w[j], left);
    }
    z[i] = Divisor<T>(a[i * n + i]).Divide(right);
    w[i] = left;
  }
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      // The product of the pivots alone may be out of range.
      ScaledProduct<T> entry = product;
      entry.Multiply(odd ? -z[i] : z[i]);
      entry.Multiply(w[j]);
      cofactors[rows[j] * n + cols[i]] = entry.Value();
    }
  }
}

}  // namespace linalg::small
