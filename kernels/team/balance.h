// Balances general matrices by a team of threads, like LAPACK's gebal.
//
// A permutation moves rows and columns that isolate an eigenvalue to the corners, where the matrix
// is upper triangular. A diagonal similarity by powers of two then gives row i and column i of the
// rest about the same norm. (James, Langou and Lowery, On matrix balancing and eigenvector
// computation, 2014.)
#pragma once

#include <utility>

#include "kernels/arithmetic/balance.h"
#include "kernels/team/team.h"

namespace linalg::team {

// The result of Balance: row i of the balanced matrix is row order[i] of A, over diagonal[i].
template <class V>
struct Balanced {
  V* diagonal;
  int* order;
};

// Replaces A by D⁻¹ Pᵀ A P D. The magnitudes of elements must be at most about 1.
template <class Team, class E>
LINALG_TEAM void Balance(const Team& team, int n, E* a, int ld, Balanced<RealElement<E>> balanced) {
  using V = RealElement<E>;
  using Range = BalanceRange<V>;
  V* const diagonal = balanced.diagonal;
  int* const order = balanced.order;
  team.Phase([&](int thread) {
    for (int i = thread; i < n; i += team.size()) {
      diagonal[i] = V(1);
      order[i] = i;
    }
  });
  int first = 0, end = n;  // the rows that are not isolated
  // Sums size(element) in that range, over column i in the real part and over row i in the
  // imaginary part.
  const auto sums = [&](int i, auto&& size) {
    return team.template Sum<Complex<V>>([&](int thread) {
      Complex<V> sum{};
      for (int j = first + thread; j < end; j += team.size()) {
        sum.re += size(a[j * ld + i]);
        sum.im += size(a[i * ld + j]);
      }
      return sum;
    });
  };
  const auto exchange = [&](int i, int j) {
    team.Phase([&](int thread) {
      for (int k = thread; k < n; k += team.size()) std::swap(a[i * ld + k], a[j * ld + k]);
      if (thread == 0) std::swap(order[i], order[j]);
    });
    team.Phase([&](int thread) {
      for (int k = thread; k < n; k += team.size()) std::swap(a[k * ld + i], a[k * ld + j]);
    });
  };
  for (int i = first; i < end;) {
    const auto is_set = [](E x) { return V(Magnitude(x) != V(0)); };
    const V own = is_set(a[i * ld + i]);
    const auto [column, row] = sums(i, is_set);
    if (row == own) {
      exchange(i, --end);
      i = first;
    } else if (column == own) {
      exchange(i, first++);
      i = first;
    } else {
      ++i;
    }
  }
  bool changed = true;
  for (int pass = 0; changed && pass < kBalancePasses; ++pass) {
    changed = false;
    for (int i = first; i < end; ++i) {
      const auto [columns, rows] = sums(i, [](E x) { return NormAdd(Range::kUp * x, V(0)); });
      const V column = Sqrt(columns), row = Sqrt(rows), before = diagonal[i];
      const bool on = column > V(0) && row > V(0);
      const V factor = BalancingFactor<V>(on, column, row, before);
      if (factor == V(1)) continue;
      changed = true;
      team.Phase([&](int) {});  // every thread has read the element of D
      team.Phase([&](int thread) {
        if (thread == 0) diagonal[i] = factor * before;
        const V inverse = V(1) / factor;
        for (int j = thread; j < n; j += team.size()) {
          if (j == i) continue;
          a[j * ld + i] = factor * a[j * ld + i];
          a[i * ld + j] = inverse * a[i * ld + j];
        }
      });
    }
  }
}

}  // namespace linalg::team
