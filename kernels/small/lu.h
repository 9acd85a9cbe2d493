// LU with partial pivoting of small matrices, one per lane, in place, and what follows from it.
//
// Row-major; right-looking over panels of kPanel columns. Each lane picks its own pivots, so rows
// are exchanged under a mask, and only rows that some lane picked are touched. Pivots and
// permutations are kept as lanes of V, which hold such small integers exactly.
#pragma once

#include "kernels/small/triangular.h"

namespace linalg::small {

// Exchanges the rows i and k of b, of `cols` elements, where the mask holds.
template <class E>
LINALG_INLINE void ExchangeRows(Mask<RealElement<E>> mask, int cols, E* i, E* k) {
  for (int j = 0; j < cols; ++j) {
    const E x = i[j], y = k[j];
    i[j] = Choose(mask, y, x);
    k[j] = Choose(mask, x, y);
  }
}

// Divides the column below pivot k of the rows-by-cols matrix by it; not by a zero.
template <class E>
LINALG_INLINE void ScaleColumn(int rows, int cols, int k, E* a) {
  using V = RealElement<E>;
  const E pivot = a[k * cols + k];
  const Divisor<E> divisor(Choose(Magnitude(pivot) == V{}, FromReal<E>(Broadcast<V>(1)), pivot));
  for (int i = k + 1; i < rows; ++i) a[i * cols + k] = divisor.Divide(a[i * cols + k]);
}

// Factors in place; pivots (min(rows, cols)) and permutation (rows) count from 0. Returns 0 or,
// from 1, the first pivot that is 0.
template <class E>
LINALG_INLINE RealElement<E> Lu(int rows, int cols, E* a, RealElement<E>* pivots,
                                RealElement<E>* permutation) {
  using V = RealElement<E>;
  const int count = rows < cols ? rows : cols;
  const auto index = [](int i) { return Broadcast<V>(static_cast<Lane<V>>(i)); };
  V singular{};
  for (int i = 0; i < rows; ++i) permutation[i] = index(i);
  for (int panel = 0; panel < count; panel += kPanel) {
    const int end = panel + kPanel < count ? panel + kPanel : count;
    for (int k = panel; k < end; ++k) {
      V largest = Magnitude(a[k * cols + k]), pivot = index(k);
      for (int i = k + 1; i < rows; ++i) {
        const V size = Magnitude(a[i * cols + k]);
        const auto larger = size > largest;
        largest = larger ? size : largest;
        pivot = larger ? index(i) : pivot;
      }
      pivots[k] = pivot;
      for (int i = k + 1; i < rows; ++i) {
        const auto picked = pivot == index(i);
        if (!Any(picked)) continue;
        ExchangeRows(picked, cols, a + i * cols, a + k * cols);
        ExchangeRows(picked, 1, permutation + i, permutation + k);
      }
      singular = (largest == V{}) & (singular == V{}) ? index(k + 1) : singular;
      ScaleColumn(rows, cols, k, a);
      // Within the panel at once; beyond it after the panel.
      for (int i = k + 1; i < rows; ++i) {
        const E left = a[i * cols + k];
        for (int j = k + 1; j < end; ++j) {
          a[i * cols + j] = NegMulAdd(left, a[k * cols + j], a[i * cols + j]);
        }
      }
    }
    for (int k = panel + 1; k < end; ++k) {
      MulSub(1, cols - end, k - panel, a + k * cols + panel, cols, a + panel * cols + end, cols,
             a + k * cols + end, cols);
    }
    MulSub(rows - end, cols - end, end - panel, a + end * cols + panel, cols,
           a + panel * cols + end, cols, a + end * cols + end, cols);
  }
  return singular;
}

// Exchanges the rows of b (n, cols) in the order of the pivots, or back.
template <class E>
LINALG_INLINE void ApplyPivots(int n, const RealElement<E>* pivots, bool back, int cols, E* b) {
  for (int step = 0; step < n; ++step) {
    const int k = back ? n - 1 - step : step;
    for (int i = k + 1; i < n; ++i) {
      const auto picked = pivots[k] == Broadcast<RealElement<E>>(static_cast<float>(i));
      if (Any(picked)) ExchangeRows(picked, cols, b + i * cols, b + k * cols);
    }
  }
}

// The product of the pivots with the sign of the permutation is product * 2^(kExponentStep
// exponent).
template <class E>
struct ScaledProduct {
  using V = RealElement<E>;
  using T = Lane<V>;
  static constexpr int kExponentStep = sizeof(T) == 4 ? 80 : 512;

  E product = FromReal<E>(Broadcast<V>(1));
  V exponent{};

  LINALG_INLINE void Multiply(E x) {
    product = Mul(product, Normalise(Normalise(x)));
    product = Normalise(product);
  }

 private:
  // Moves a power of two to the exponent where x is far from 1.
  LINALG_INLINE E Normalise(E x) {
    constexpr T kUp = sizeof(T) == 4 ? T(0x1p80) : T(0x1p512);
    constexpr T kLarge = sizeof(T) == 4 ? T(0x1p40) : T(0x1p256);
    const V size = Magnitude(x);
    const auto large = size > Broadcast<V>(kLarge);
    const auto small = (size < Broadcast<V>(1 / kLarge)) & (size > V{});
    const V one = Broadcast<V>(1);
    exponent += large ? one : small ? -one : V{};
    return (large ? Broadcast<V>(1 / kUp) : small ? Broadcast<V>(kUp) : one) * x;
  }
};

template <class E>
LINALG_INLINE ScaledProduct<E> Determinant(int n, const E* lu, const RealElement<E>* pivots) {
  ScaledProduct<E> det;
  for (int i = 0; i < n; ++i) {
    const E pivot = lu[i * n + i];
    const auto kept = pivots[i] == Broadcast<RealElement<E>>(static_cast<float>(i));
    det.Multiply(Choose(kept, pivot, -pivot));
  }
  return det;
}

// inverse (n, n) = A⁻¹, from A's factors.
template <class E>
LINALG_INLINE void Invert(int n, const E* lu, const RealElement<E>* permutation, E* inverse) {
  using V = RealElement<E>;
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      const auto here = permutation[i] == Broadcast<V>(static_cast<float>(j));
      inverse[i * n + j] = FromReal<E>(here ? Broadcast<V>(1) : V{});
    }
  }
  SolveLower(n, lu, /*unit_diagonal=*/true, n, inverse);
  SolveUpper(n, lu, /*unit_diagonal=*/false, n, inverse);
}

}  // namespace linalg::small
