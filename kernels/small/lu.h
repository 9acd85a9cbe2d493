// In-place LU factorisation with partial pivoting of small matrices, one per lane, and its uses.
//
// The matrices are row-major. The algorithm is right-looking over panels of kPanel columns. Each
// lane has its own pivots, so rows are swapped under masks. Outside the panel, all swaps of the
// panel are done in one pass, since moving rows costs more than the arithmetic. Pivots and
// permutations are lanes of V, which represents such small integers exactly.
#pragma once

#include <type_traits>

#include "kernels/arithmetic/divisor.h"
#include "kernels/arithmetic/exchange.h"
#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/scaled_product.h"
#include "kernels/small/lane_pivots.h"
#include "kernels/small/triangular.h"

namespace linalg::small {

template <class E>
LINALG_INLINE void ExchangeRows(Mask<RealElement<E>> mask, int cols, E* i, E* k) {
  for (int j = 0; j < cols; ++j) ExchangeWhere(mask, i[j], k[j]);
}

// A loop of its own: in its callers' loops, the mask would be kept in memory.
template <class E>
LINALG_INLINE Mask<RealElement<E>> HoldsNaN(int count, const E* a) {
  Mask<RealElement<E>> found{};
  for (int i = 0; i < count; ++i) found |= IsNaN(a[i]);
  return found;
}

// The most rows below a panel per lane for which one pass over all rows does all swaps of the
// panel. Most rows are then some lane's pivot. If there are more rows, each step visits only its
// pivot rows. Measurements: benchmarks/crossovers/cpu_lu_row_exchanges.json.
inline constexpr int kPassedRowsPerLane = 2;

// The row exchanges of the kSteps steps from `first` on. No pivot is above its step.
template <int kSteps, class V>
class Exchanges {
 public:
  LINALG_INLINE Exchanges(int first, int rows, const V* pivots) : first_(first), rows_(rows) {
#pragma GCC unroll 4
    for (int s = 0; s < kSteps; ++s) pivots_[s] = pivots[first + s];
    by_rows_ = rows - first - kSteps <= kPassedRowsPerLane * kLanesOf<V>;
    if (by_rows_) return;
#pragma GCC unroll 4
    for (int s = 0; s < kSteps; ++s) {
      picked_[s] = PivotRows(pivots_[s]) & ~(uint64_t{1} << (first + s));
    }
  }

  template <class E>
  LINALG_INLINE void Apply(int cols, E* b, int ldb) const {
    constexpr int kCols = kBlockCols<E>;
    int j = 0;
    if (by_rows_) {
      for (; j + kCols <= cols; j += kCols) ByRows<kCols>(b + j, ldb);
      for (; j < cols; ++j) ByRows<1>(b + j, ldb);
    } else {
      for (; j + 2 * kCols <= cols; j += 2 * kCols) BySteps<2 * kCols>(b + j, ldb);
      for (; j + kCols <= cols; j += kCols) BySteps<kCols>(b + j, ldb);
      for (; j < cols; ++j) BySteps<1>(b + j, ldb);
    }
  }

 private:
  // One step at a time, over its pivot rows.
  template <int kCols, class E>
  LINALG_INLINE void BySteps(E* b, int ldb) const {
    for (int s = 0; s < kSteps; ++s) {
      E* const row = b + (first_ + s) * ldb;
      E held[kCols];
#pragma GCC unroll 8
      for (int j = 0; j < kCols; ++j) held[j] = row[j];
      for (uint64_t picked = picked_[s]; picked != 0; picked &= picked - 1) {
        const int i = std::countr_zero(picked);
        ExchangeRows(pivots_[s] == Number<V>(i), kCols, b + i * ldb, held);
      }
#pragma GCC unroll 8
      for (int j = 0; j < kCols; ++j) row[j] = held[j];
    }
  }

  // Does all steps in one pass over all rows.
  template <int kCols, class E>
  LINALG_INLINE void ByRows(E* b, int ldb) const {
    E* const top = b + first_ * ldb;
    E held[kSteps][kCols];
#pragma GCC unroll 4
    for (int s = 0; s < kSteps; ++s)
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) held[s][j] = top[s * ldb + j];
#pragma GCC unroll 4
    for (int s = 0; s < kSteps; ++s)
#pragma GCC unroll 4
      for (int t = s + 1; t < kSteps; ++t) {
        ExchangeRows(pivots_[s] == Number<V>(first_ + t), kCols, held[s], held[t]);
      }
    for (int i = first_ + kSteps; i < rows_; ++i) {
      E row[kCols];
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) row[j] = b[i * ldb + j];
#pragma GCC unroll 4
      for (int s = 0; s < kSteps; ++s) {
        ExchangeRows(pivots_[s] == Number<V>(i), kCols, row, held[s]);
      }
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) b[i * ldb + j] = row[j];
    }
#pragma GCC unroll 4
    for (int s = 0; s < kSteps; ++s)
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) top[s * ldb + j] = held[s][j];
  }

  int first_, rows_;
  bool by_rows_;
  V pivots_[kSteps];
  uint64_t picked_[kSteps];
};

// This overload is for a single matrix.
template <int kSteps, class V>
  requires(kLanesOf<V> == 1)
class Exchanges<kSteps, V> {
 public:
  LINALG_INLINE Exchanges(int first, int, const V* pivots) : first_(first), pivots_(pivots) {}

  template <class E>
  LINALG_INLINE void Apply(int cols, E* b, int ldb) const {
    for (int k = first_; k < first_ + kSteps; ++k) {
      ExchangeRows(true, cols, b + static_cast<int>(pivots_[k]) * ldb, b + k * ldb);
    }
  }

 private:
  int first_;
  const V* pivots_;
};

template <class V>
struct LargestOfColumn {
  V size, row;

  LINALG_INLINE void Add(V other, int i) {
    const auto larger = other > size;
    size = larger ? other : size;
    row = larger ? Number<V>(i) : row;
  }
};

// Factors columns [first, first + kCols) from row `first` on, and sets the pivots of these steps.
// Exchanges rows in these columns only.
template <int kCols, class E>
LINALG_INLINE void FactorPanel(int rows, int cols, int first, E* a, RealElement<E>* pivots,
                               RealElement<E>& singular) {
  using V = RealElement<E>;
  E* const panel = a + first;
  LargestOfColumn<V> largest{Magnitude(panel[first * cols]), Number<V>(first)};
  for (int i = first + 1; i < rows; ++i) largest.Add(Magnitude(panel[i * cols]), i);
#pragma GCC unroll 4
  for (int step = 0; step < kCols; ++step) {
    const int k = first + step;
    const V pivot = largest.row;
    pivots[k] = pivot;
    singular = (largest.size == V{}) & (singular == V{}) ? Number<V>(k + 1) : singular;
    // A single lane exchanges its rows at once. Lanes may have different pivot rows. One pass over
    // the rows below reads them all, and the next pass writes row k to their places.
    E held[kCols], row[kCols];
    if constexpr (kLanesOf<V> == 1) {
      ExchangeRows(true, kCols, panel + static_cast<int>(pivot) * cols, panel + k * cols);
    }
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) row[j] = held[j] = panel[k * cols + j];
    if constexpr (kLanesOf<V> > 1) {
      for (int i = k + 1; i < rows; ++i) {
        const auto picked = pivot == Number<V>(i);
#pragma GCC unroll 4
        for (int j = 0; j < kCols; ++j) row[j] = Choose(picked, panel[i * cols + j], row[j]);
      }
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) panel[k * cols + j] = row[j];
    }
    const E one = FromReal<E>(Broadcast<V>(1));
    const Divisor<E> divisor(Choose(Magnitude(row[step]) == V{}, one, row[step]));
    for (int i = k + 1; i < rows; ++i) {
      const auto picked = pivot == Number<V>(i);
      E x[kCols];
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) {
        x[j] = panel[i * cols + j];
        if constexpr (kLanesOf<V> > 1) x[j] = Choose(picked, held[j], x[j]);
      }
      x[step] = divisor.Divide(x[step]);
#pragma GCC unroll 4
      for (int j = step + 1; j < kCols; ++j) x[j] = NegMulAdd(x[step], row[j], x[j]);
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) panel[i * cols + j] = x[j];
      if (step + 1 == kCols) continue;
      const V size = Magnitude(x[step + 1]);
      if (i == k + 1) {
        largest = {size, Number<V>(i)};
      } else {
        largest.Add(size, i);
      }
    }
  }
}

// Factors a panel and does the trailing update.
template <int kCols, class E>
LINALG_INLINE void LuStep(int rows, int cols, int first, E* a, RealElement<E>* pivots,
                          RealElement<E>* permutation, RealElement<E>& singular) {
  FactorPanel<kCols>(rows, cols, first, a, pivots, singular);
  const Exchanges<kCols, RealElement<E>> exchanges(first, rows, pivots);
  const int end = first + kCols;
  if (permutation != nullptr) {
    exchanges.Apply(1, permutation, 1);
    exchanges.Apply(first, a, cols);
  }
  exchanges.Apply(cols - end, a + end, cols);
  for (int k = first + 1; k < end; ++k) {
    MulSubRows<1>(cols - end, k - first, a + k * cols + first, cols, a + first * cols + end, cols,
                  a + k * cols + end, cols);
  }
  MulSub(rows - end, cols - end, kCols, a + end * cols + first, cols, a + first * cols + end, cols,
         a + end * cols + end, cols);
}

// Factors in place. pivots (min(rows, cols)) and permutation (rows) count from 0. Returns 0, the
// 1-based index of the first zero pivot, or kHoldsNaN. Without a permutation, the rows of L stay in
// the order of their elimination, and NaN is not reported.
template <class E>
LINALG_INLINE RealElement<E> LuInline(int rows, int cols, E* a, RealElement<E>* pivots,
                                      RealElement<E>* permutation) {
  using V = RealElement<E>;
  static_assert(kPanel == 4, "what is left of the last panel has up to 3 steps");
  const int count = rows < cols ? rows : cols;
  V singular{};
  for (int i = 0; permutation != nullptr && i < rows; ++i) permutation[i] = Number<V>(i);
  int k = 0;
  for (; k + kPanel <= count; k += kPanel) {
    LuStep<kPanel>(rows, cols, k, a, pivots, permutation, singular);
  }
  switch (count - k) {
    case 3:
      LuStep<3>(rows, cols, k, a, pivots, permutation, singular);
      break;
    case 2:
      LuStep<2>(rows, cols, k, a, pivots, permutation, singular);
      break;
    case 1:
      LuStep<1>(rows, cols, k, a, pivots, permutation, singular);
  }
  if (permutation == nullptr) return singular;
  return HoldsNaN(rows * cols, a) ? Broadcast<V>(kHoldsNaN) : singular;
}

// LuInline, compiled once.
template <class E>
LINALG_ONCE RealElement<E> Lu(int rows, int cols, E* a, RealElement<E>* pivots,
                              RealElement<E>* permutation) {
  return LuInline(rows, cols, a, pivots, permutation);
}

// LU of a square matrix. If the order is a constant, the matrix may stay in registers.
template <class Order, class E>
LINALG_INLINE RealElement<E> SquareLu(Order n, E* a, RealElement<E>* pivots,
                                      RealElement<E>* permutation) {
  if constexpr (std::is_integral_v<Order>) {
    return Lu(n, n, a, pivots, permutation);
  } else {
    return LuInline<E>(n, n, a, pivots, permutation);
  }
}

// Pivots as numbers in lanes. `from_factors` promises that no pivot is above its step, which allows
// faster exchanges.
template <class V>
struct LanePivots {
  const V* steps;
  bool from_factors = false;
};
// Clang 16 deduces no arguments of aggregates by itself.
template <class V>
LanePivots(const V*) -> LanePivots<V>;

// Exchanges the rows of b (n, cols) in the order of the pivots, or back.
template <class E>
LINALG_ONCE void ApplyPivots(int n, LanePivots<RealElement<E>> pivots, bool back, int cols, E* b) {
  using V = RealElement<E>;
  if (pivots.from_factors && !back) {
    int k = 0;
    for (; k + kPanel <= n; k += kPanel) {
      Exchanges<kPanel, V>(k, n, pivots.steps).Apply(cols, b, cols);
    }
    for (; k < n; ++k) Exchanges<1, V>(k, n, pivots.steps).Apply(cols, b, cols);
    return;
  }
  for (int step = 0; step < n; ++step) {
    const int k = back ? n - 1 - step : step;
    ForEachPivot(pivots.steps[k], k, 0, n, [&](auto picked, int i) {
      ExchangeRows(picked, cols, b + i * cols, b + k * cols);
    });
  }
}

// For one matrix with integer pivots; pivots outside the matrix are ignored.
template <class E>
LINALG_INLINE void ApplyPivots(int n, const int32_t* pivots, bool back, int cols, E* b) {
  linalg::ExchangeRows(n, pivots, cols, b, cols, back);
}

// The determinant of a 2 by 2 or 3 by 3 matrix from products of its entries. `in_range` marks the
// lanes without overflow, whose underflow is below the rounding of the sum.
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
    // Underflow in a minor is multiplied by an entry of the first row.
    const V row = Magnitude(a[0]) + Magnitude(a[1]) + Magnitude(a[2]);
    in_range = between(kSingle ? 0x1p-60 : 0x1p-660, size, kSingle ? 0x1p120 : 0x1p1000) &
               (row <= Number<V>(kSingle ? 0x1p38 : 0x1p300));
    return terms[0] + terms[1] + terms[2];
  }
}

// For any order: nothing is in range unless n is 2 or 3.
template <class E>
LINALG_INLINE E ProductsOfEntries(int n, const E* a, Mask<RealElement<E>>& in_range) {
  if (n == 2) return ProductsOfEntries<2>(a, in_range);
  if (n == 3) return ProductsOfEntries<3>(a, in_range);
  in_range = Mask<RealElement<E>>{};
  return E{};
}

// The determinant of the n by n matrix `a` from products of its entries where they are in range,
// else from its factors. Must be constructed before the factors overwrite `a`.
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
  Mask<V> in_range_;  // declared before product_, whose initialiser sets it
  E product_;
};

// The determinant of the n by n matrix `a`, which may be overwritten by its LU factors. `pivots` is
// a workspace of n.
template <class Order, class E>
LINALG_INLINE ScaledProduct<E> Determinant(Order n, E* a, RealElement<E>* pivots) {
  const EntriesDeterminant<E> products(n, a);
  ScaledProduct<E> det;
  if (!products.IsEverywhere()) {
    SquareLu(n, a, pivots, /*permutation=*/nullptr);
    det = ProductOfPivots(n, a, n, pivots);
  }
  return products.OrElse(det);
}

// inverse (n, n) = scale A⁻¹, from A's factors.
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
