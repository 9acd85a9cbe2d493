// Balancing of general matrices by a team of threads: a diagonal similarity by powers of two after
// which row i and column i have about the same norm, as LAPACK's gebal (James, Langou and Lowery,
// On matrix balancing and eigenvector computation, 2014). Nothing is permuted; but rows and columns
// that gebal would move out of the way, because they isolate an eigenvalue, keep their scale.
#pragma once

#include "kernels/small/norm.h"
#include "kernels/team/team.h"

namespace linalg::team {

// Passes over all rows; three to five are usual.
inline constexpr int kBalancePasses = 40;

template <class V>
struct BalanceRange;
template <>
struct BalanceRange<float> {
  // Of D and its inverse, and of what eigenvectors hold before D multiplies them: the product of
  // both is in range.
  static constexpr float kMost = 0x1p100f, kMostOfVector = 0x1p20f;
  // Elements times this have squares that are in range, down to those of no account.
  static constexpr float kUp = 0x1p40f;
};
template <>
struct BalanceRange<double> {
  static constexpr double kMost = 0x1p800, kMostOfVector = 0x1p200;
  static constexpr double kUp = 0x1p300;
};

// Replaces A, of elements of at most about 1, by D⁻¹ A D; `diagonal` receives D.
template <class Team, class E>
LINALG_TEAM void Balance(const Team& team, int n, E* a, int ld, RealElement<E>* diagonal) {
  using V = RealElement<E>;
  using Range = BalanceRange<V>;
  // In place of D's element: the index isolates an eigenvalue.
  const V isolated = V(0);
  team.Phase([&](int thread) {
    for (int i = thread; i < n; i += team.size()) diagonal[i] = V(1);
  });
  // The sums of size(element) over column i, as the real part, and row i, but for isolated indices.
  const auto sums = [&](int i, auto&& size) {
    return team.template Sum<small::Complex<V>>([&](int thread) {
      small::Complex<V> sum{};
      for (int j = thread; j < n; j += team.size()) {
        if (diagonal[j] == isolated) continue;
        sum.re += size(a[j * ld + i]);
        sum.im += size(a[i * ld + j]);
      }
      return sum;
    });
  };
  const auto set = [&](int i, V value) {
    team.Phase([&](int) {});  // every thread has read the element
    team.Phase([&](int thread) {
      if (thread == 0) diagonal[i] = value;
    });
  };
  bool changed = true;
  while (changed) {
    changed = false;
    for (int i = 0; i < n; ++i) {
      if (diagonal[i] == isolated) continue;
      const auto is_set = [](E x) { return V(small::Magnitude(x) != V(0)); };
      const V own = is_set(a[i * ld + i]);
      const auto [column, row] = sums(i, is_set);
      if (column != own && row != own) continue;
      changed = true;
      set(i, isolated);
    }
  }
  changed = true;
  for (int pass = 0; changed && pass < kBalancePasses; ++pass) {
    changed = false;
    for (int i = 0; i < n; ++i) {
      const V before = diagonal[i];
      if (before == isolated) continue;
      const auto [columns, rows] =
          sums(i, [](E x) { return small::NormAdd(Range::kUp * x, V(0)); });
      const V column = small::Sqrt(columns), row = small::Sqrt(rows);
      if (!(column > V(0) && row > V(0))) continue;
      V factor = V(1), c = column, r = row;
      while (c < r / V(2) && factor * before < Range::kMost) {
        factor *= V(2), c *= V(2), r /= V(2);
      }
      while (c / V(2) >= r && factor * before > V(1) / Range::kMost) {
        factor /= V(2), c /= V(2), r *= V(2);
      }
      if (!(c + r < V(0.95) * (column + row))) continue;
      changed = true;
      set(i, factor * before);
      team.Phase([&](int thread) {
        const V inverse = V(1) / factor;
        for (int j = thread; j < n; j += team.size()) {
          if (j == i) continue;
          a[j * ld + i] = factor * a[j * ld + i];
          a[i * ld + j] = inverse * a[i * ld + j];
        }
      });
    }
  }
  team.Phase([&](int thread) {
    for (int i = thread; i < n; i += team.size()) {
      if (diagonal[i] == isolated) diagonal[i] = V(1);
    }
  });
}

}  // namespace linalg::team
