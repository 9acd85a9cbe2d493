// Balancing of small general matrices, one per lane (LAPACK's gebal).
//
// A permutation moves isolated eigenvalues to the corners, where the matrix is upper triangular.
// The rest is scaled by a diagonal similarity of powers of two. After it, row i and column i have
// nearly equal norms (James, Langou and Lowery, On matrix balancing and eigenvector computation,
// 2014).
#pragma once

#include <utility>

#include "kernels/arithmetic/balance.h"

namespace linalg::small {

// The result of balancing: row i of the balanced matrix is row order[i] of A, divided by
// diagonal[i]. Rows [first, end) are not isolated. Each lane has its own numbers.
template <class V>
struct Balanced {
  V* diagonal;  // n
  V* order;     // n
  V first, end;
  bool permuted;  // in any lane
};

// An element of one lane's matrix, part by part.
template <class E>
LINALG_INLINE Lane<RealElement<E>>* LanePointer(E& x) {
  return reinterpret_cast<Lane<RealElement<E>>*>(&x);
}
template <class E>
LINALG_INLINE void SwapLane(int lane, E& x, E& y) {
  constexpr int kWidth = kLanesOf<RealElement<E>>;
  for (int part = 0; part < kPartsOf<E>; ++part) {
    std::swap(LanePointer(x)[part * kWidth + lane], LanePointer(y)[part * kWidth + lane]);
  }
}
template <class E>
LINALG_INLINE bool IsZeroInLane(int lane, E& x) {
  constexpr int kWidth = kLanesOf<RealElement<E>>;
  bool zero = true;
  for (int part = 0; part < kPartsOf<E>; ++part) {
    zero = zero && LanePointer(x)[part * kWidth + lane] == 0;
  }
  return zero;
}

template <class E, class V = RealElement<E>>
void PermuteLane(E* a, int n, int lane, Balanced<V>& balanced) {
  int first = 0, end = n;
  const auto exchange = [&](int i, int j) {
    if (i == j) return;
    for (int k = 0; k < n; ++k) SwapLane(lane, a[i * n + k], a[j * n + k]);
    for (int k = 0; k < n; ++k) SwapLane(lane, a[k * n + i], a[k * n + j]);
    SwapLane(lane, balanced.order[i], balanced.order[j]);
  };
  for (int i = first; i < end;) {
    bool row = true, column = true;
    for (int j = first; j < end; ++j) {
      if (j == i) continue;
      row = row && IsZeroInLane(lane, a[i * n + j]);
      column = column && IsZeroInLane(lane, a[j * n + i]);
    }
    if (row) {
      exchange(i, --end);
      i = first;
    } else if (column) {
      exchange(i, first++);
      i = first;
    } else {
      ++i;
    }
  }
  LanePointer(balanced.first)[lane] = static_cast<Lane<V>>(first);
  LanePointer(balanced.end)[lane] = static_cast<Lane<V>>(end);
}

// The result for a matrix that is balanced already.
template <class V>
LINALG_INLINE void LeaveInPlace(int n, Balanced<V>& balanced) {
  for (int i = 0; i < n; ++i) {
    balanced.diagonal[i] = Number<V>(1);
    balanced.order[i] = Number<V>(i);
  }
  balanced.first = V{};
  balanced.end = Number<V>(n);
  balanced.permuted = false;
}

// Replaces the n by n row-major matrix by Pᵀ A P.
template <class E, class V = RealElement<E>>
LINALG_ONCE void Permute(E* a, int n, Balanced<V>& balanced) {
  LeaveInPlace(n, balanced);
  V isolated{};
  for (int i = 0; i < n; ++i) {
    V row{}, column{};
    for (int j = 0; j < n; ++j) {
      if (j == i) continue;
      row = row + Magnitude(a[i * n + j]);
      column = column + Magnitude(a[j * n + i]);
    }
    isolated = (row == V{}) | (column == V{}) ? Number<V>(1) : isolated;
  }
  if (!Any(isolated != V{})) return;
  balanced.permuted = true;
  for (int lane = 0; lane < kLanesOf<V>; ++lane) {
    if (LanePointer(isolated)[lane] != 0) PermuteLane(a, n, lane, balanced);
  }
}

// Replaces the permuted matrix A, with elements of at most about 1, by D⁻¹ A D.
template <class E, class V = RealElement<E>>
LINALG_ONCE void Scale(E* a, int n, Balanced<V>& balanced) {
  using Range = BalanceRange<Lane<V>>;
  const V zero{}, one = Number<V>(1), up = Number<V>(Range::kUp);
  const auto within = [&](int i) {
    return (balanced.first <= Number<V>(i)) & (balanced.end > Number<V>(i));
  };
  bool changed = true;
  for (int pass = 0; changed && pass < kBalancePasses; ++pass) {
    changed = false;
    for (int i = 0; i < n; ++i) {
      V columns = zero, rows = zero;
      for (int j = 0; j < n; ++j) {
        const auto on = within(j);
        columns = on ? NormAdd(up * a[j * n + i], columns) : columns;
        rows = on ? NormAdd(up * a[i * n + j], rows) : rows;
      }
      const V column = Sqrt(columns), row = Sqrt(rows), before = balanced.diagonal[i];
      const auto on = within(i) & (column > zero) & (row > zero);
      const V factor = BalancingFactor<V>(on, column, row, before);
      if (!Any(factor != one)) continue;
      changed = true;
      balanced.diagonal[i] = factor * before;
      const V inverse = one / factor;
      for (int j = 0; j < n; ++j) {
        if (j == i) continue;
        a[j * n + i] = factor * a[j * n + i];
        a[i * n + j] = inverse * a[i * n + j];
      }
    }
  }
}

// Undoes the permutation in the rows of n by n matrices. Destroys `order`.
template <class V, class... E>
LINALG_INLINE void RestoreRows(int n, Balanced<V>& balanced, E*... matrices) {
  if (!balanced.permuted) return;
  for (int lane = 0; lane < kLanesOf<V>; ++lane) {
    // Follows the cycles of the permutation by exchanges.
    for (int i = 0; i < n; ++i) {
      const auto place = [&] { return static_cast<int>(LanePointer(balanced.order[i])[lane]); };
      for (int j; (j = place()) != i;) {
        const auto exchange = [&](auto* a) {
          for (int k = 0; a != nullptr && k < n; ++k) SwapLane(lane, a[i * n + k], a[j * n + k]);
        };
        (exchange(matrices), ...);
        SwapLane(lane, balanced.order[i], balanced.order[j]);
      }
    }
  }
}

}  // namespace linalg::small
