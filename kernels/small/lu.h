// LU with partial pivoting of small matrices, one per lane, in place, and what follows from it.
//
// Row-major; right-looking over panels of kPanel columns. Each lane picks its own pivots, so rows
// are exchanged under a mask, and only rows that some lane picked are touched. Pivots and
// permutations are kept as lanes of V, which hold such small integers exactly.
#pragma once

#include "kernels/arithmetic/divisor.h"
#include "kernels/arithmetic/exchange.h"
#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/scaled_product.h"
#include "kernels/small/picked.h"
#include "kernels/small/triangular.h"

namespace linalg::small {

// Exchanges the rows i and k of b, of `cols` elements, where the mask holds.
template <class E>
LINALG_INLINE void ExchangeRows(Mask<RealElement<E>> mask, int cols, E* i, E* k) {
  for (int j = 0; j < cols; ++j) ExchangeWhere(mask, i[j], k[j]);
}

// Divides the column below pivot k of the rows-by-cols matrix by it; not by a zero.
template <class E>
LINALG_INLINE void ScaleColumn(int rows, int cols, int k, E* a) {
  using V = RealElement<E>;
  const E pivot = a[k * cols + k];
  const Divisor<E> divisor(Choose(Magnitude(pivot) == V{}, FromReal<E>(Broadcast<V>(1)), pivot));
  for (int i = k + 1; i < rows; ++i) a[i * cols + k] = divisor.Divide(a[i * cols + k]);
}

// Apart from what surrounds it, or the mask is kept in memory.
template <class E>
LINALG_INLINE Mask<RealElement<E>> HoldsNaN(int count, const E* a) {
  Mask<RealElement<E>> found{};
  for (int i = 0; i < count; ++i) found |= IsNaN(a[i]);
  return found;
}

// Factors in place; pivots (min(rows, cols)) and permutation (rows) count from 0. Returns 0, from 1
// the first pivot that is 0, or kHoldsNaN.
template <class E>
LINALG_INLINE RealElement<E> Lu(int rows, int cols, E* a, RealElement<E>* pivots,
                                RealElement<E>* permutation) {
  using V = RealElement<E>;
  const int count = rows < cols ? rows : cols;
  V singular{};
  for (int i = 0; i < rows; ++i) permutation[i] = Number<V>(i);
  for (int panel = 0; panel < count; panel += kPanel) {
    const int end = panel + kPanel < count ? panel + kPanel : count;
    for (int k = panel; k < end; ++k) {
      V largest = Magnitude(a[k * cols + k]), pivot = Number<V>(k);
      for (int i = k + 1; i < rows; ++i) {
        const V size = Magnitude(a[i * cols + k]);
        const auto larger = size > largest;
        largest = larger ? size : largest;
        pivot = larger ? Number<V>(i) : pivot;
      }
      pivots[k] = pivot;
      ForPicked(pivot, k, k + 1, rows, [&](auto picked, int i) {
        ExchangeRows(picked, cols, a + i * cols, a + k * cols);
        ExchangeRows(picked, 1, permutation + i, permutation + k);
      });
      singular = (largest == V{}) & (singular == V{}) ? Number<V>(k + 1) : singular;
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
      MulSubRows<1>(cols - end, k - panel, a + k * cols + panel, cols, a + panel * cols + end, cols,
                    a + k * cols + end, cols);
    }
    MulSub(rows - end, cols - end, end - panel, a + end * cols + panel, cols,
           a + panel * cols + end, cols, a + end * cols + end, cols);
  }
  return HoldsNaN(rows * cols, a) ? Broadcast<V>(kHoldsNaN) : singular;
}

// Pivots as numbers in lanes; `from_factors` says that none stands above its step.
template <class V>
struct LanePivots {
  const V* steps;
  bool from_factors = false;
};

// Exchanges the rows of b (n, cols) in the order of the pivots, or back.
template <class E>
LINALG_INLINE void ApplyPivots(int n, LanePivots<RealElement<E>> pivots, bool back, int cols,
                               E* b) {
  for (int step = 0; step < n; ++step) {
    const int k = back ? n - 1 - step : step;
    ForPicked(pivots.steps[k], k, pivots.from_factors ? k + 1 : 0, n,
              [&](auto picked, int i) { ExchangeRows(picked, cols, b + i * cols, b + k * cols); });
  }
}

// The same for one matrix whose pivots are integers; those outside the matrix are ignored.
template <class E>
LINALG_INLINE void ApplyPivots(int n, const int32_t* pivots, bool back, int cols, E* b) {
  linalg::ExchangeRows(n, pivots, cols, b, cols, back);
}

// The determinant of a 2 by 2 or 3 by 3 matrix from products of its entries. `in_range` says where
// nothing overflowed on the way, and what underflowed is below the rounding of the sum.
template <int n, class E>
LINALG_INLINE E ProductsOfEntries(const E* a, Mask<RealElement<E>>& in_range) {
  using V = RealElement<E>;
  using T = Lane<V>;
  const auto between = [](double low, V x, double high) {
    return (x >= Number<V>(low)) & (x <= Number<V>(high));
  };
  constexpr bool kSingle = sizeof(T) == 4;
  if constexpr (n == 2) {
    const E left = Mul(a[0], a[3]);
    const V size = Magnitude(left) + Magnitude(Mul(a[1], a[2]));
    in_range = between(kSingle ? 0x1p-100 : 0x1p-900, size, kSingle ? 0x1p120 : 0x1p1000);
    return NegMulAdd(a[1], a[2], left);
  } else {
    static_assert(n == 3);
    const auto minor = [&](int i, int j, int k, int l) {
      return NegMulAdd(a[j], a[k], Mul(a[i], a[l]));
    };
    const E terms[] = {Mul(a[0], minor(4, 5, 7, 8)), Mul(a[1], minor(5, 3, 8, 6)),
                       Mul(a[2], minor(3, 4, 6, 7))};
    const V size = Magnitude(terms[0]) + Magnitude(terms[1]) + Magnitude(terms[2]);
    // What underflowed in a minor is multiplied by an entry of the first row.
    const V row = Magnitude(a[0]) + Magnitude(a[1]) + Magnitude(a[2]);
    in_range = between(kSingle ? 0x1p-60 : 0x1p-660, size, kSingle ? 0x1p120 : 0x1p1000) &
               (row <= Number<V>(kSingle ? 0x1p38 : 0x1p300));
    return terms[0] + terms[1] + terms[2];
  }
}

// The same of a matrix of any order, of which nothing is in range but for n = 2 and 3.
template <class E>
LINALG_INLINE E ProductsOfEntries(int n, const E* a, Mask<RealElement<E>>& in_range) {
  if (n == 2) return ProductsOfEntries<2>(a, in_range);
  if (n == 3) return ProductsOfEntries<3>(a, in_range);
  in_range = Mask<RealElement<E>>{};
  return E{};
}

// The determinant of the n by n matrix `a` from products of its entries where they are in range,
// and what is made of the factors that overwrite it elsewhere.
template <class E>
class EntriesDeterminant {
  using V = RealElement<E>;

 public:
  LINALG_INLINE EntriesDeterminant(int n, const E* a)
      : product_(ProductsOfEntries(n, a, in_range_)) {}

  LINALG_INLINE bool IsEverywhere() const { return !Any(in_range_ == Mask<V>{}); }

  LINALG_INLINE ScaledProduct<E> OrElse(ScaledProduct<E> det) const {
    det.product = Choose(in_range_, product_, det.product);
    det.exponent = in_range_ ? V{} : det.exponent;
    return det;
  }

 private:
  Mask<V> in_range_;  // before the product, which sets it
  E product_;
};

// The determinant of the n by n matrix `a`, which its LU factors overwrite where they are needed.
template <class E>
LINALG_INLINE ScaledProduct<E> Determinant(int n, E* a, RealElement<E>* pivots,
                                           RealElement<E>* permutation) {
  const EntriesDeterminant<E> products(n, a);
  ScaledProduct<E> det;
  if (!products.IsEverywhere()) {
    Lu(n, n, a, pivots, permutation);
    det = ProductOfPivots(n, a, n, pivots);
  }
  return products.OrElse(det);
}

// inverse (n, n) = A⁻¹ times a number, from A's factors.
template <class E>
LINALG_INLINE void Invert(int n, const E* lu, const RealElement<E>* permutation, E scale,
                          E* inverse) {
  using V = RealElement<E>;
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      const auto here = permutation[i] == Number<V>(j);
      inverse[i * n + j] = Choose(here, scale, E{});
    }
  }
  SolveLower(n, lu, /*unit_diagonal=*/true, n, inverse);
  SolveUpper(n, lu, /*unit_diagonal=*/false, n, inverse);
}

}  // namespace linalg::small
