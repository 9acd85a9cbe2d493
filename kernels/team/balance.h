// Balancing of general matrices by a team of threads: a diagonal similarity by powers of two after
// which row i and column i are of about the same size, as LAPACK's gebal without its permutation;
// the diagonal counts, as in James, Langou and Lowery, On matrix balancing and eigenvector
// computation (2014).
#pragma once

#include "kernels/team/team.h"

namespace linalg::team {

// Passes over all rows; three to five are usual.
inline constexpr int kBalancePasses = 40;

// Replaces A, of elements of at most about 1, by D⁻¹ A D; `diagonal` receives D.
template <class Team, class E>
LINALG_TEAM void Balance(const Team& team, int n, E* a, int ld, RealElement<E>* diagonal) {
  using V = RealElement<E>;
  // Eigenvectors are multiplied by D, or divided.
  constexpr V kMost = sizeof(V) == 4 ? V(0x1p30) : V(0x1p200);
  team.Phase([&](int thread) {
    for (int i = thread; i < n; i += team.size()) diagonal[i] = V(1);
  });
  bool changed = true;
  for (int pass = 0; changed && pass < kBalancePasses; ++pass) {
    changed = false;
    for (int i = 0; i < n; ++i) {
      const auto [column, row] = team.template Sum<small::Complex<V>>([&](int thread) {
        small::Complex<V> sums{};
        for (int j = thread; j < n; j += team.size()) {
          sums.re += small::Magnitude(a[j * ld + i]);
          sums.im += small::Magnitude(a[i * ld + j]);
        }
        return sums;
      });
      if (!(column > V(0) && row > V(0))) continue;
      const V before = diagonal[i];
      V factor = V(1), c = column, r = row;
      while (c < r / V(2) && factor * before < kMost) factor *= V(2), c *= V(2), r /= V(2);
      while (c / V(2) >= r && factor * before > V(1) / kMost) factor /= V(2), c /= V(2), r *= V(2);
      if (!(c + r < V(0.95) * (column + row))) continue;
      changed = true;
      // Every thread has read the element of D and the sums.
      team.Phase([&](int) {});
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
