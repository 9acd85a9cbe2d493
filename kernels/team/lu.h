// LU with partial pivoting by a team of threads, in place, right-looking; and what follows from it.
#pragma once

#include "kernels/arithmetic/divisor.h"
#include "kernels/arithmetic/scaled_product.h"
#include "kernels/team/team.h"

namespace linalg::team {

// Exchanges two rows.
template <class Team, class E>
LINALG_TEAM void ExchangeRows(const Team& team, int cols, E* i, E* k) {
  team.Phase([&](int thread) {
    for (int j = thread; j < cols; j += team.size()) {
      const E x = i[j];
      i[j] = k[j];
      k[j] = x;
    }
  });
}

// Factors; pivots (min(rows, cols)) and permutation (rows) count from 0. Returns 0, from 1 the
// first pivot that is 0, or -1 where the factors hold NaN.
template <class Team, class E>
LINALG_TEAM int Lu(const Team& team, int rows, int cols, E* a, int ld, int* pivots,
                   int* permutation) {
  using V = RealElement<E>;
  constexpr V kInfinity = std::numeric_limits<V>::infinity();
  const Grid grid = RowGrid(team);
  const int count = rows < cols ? rows : cols;
  int singular = 0;
  team.Phase([&](int thread) {
    for (int i = thread; i < rows; i += team.size()) permutation[i] = i;
  });
  for (int k = 0; k < count; ++k) {
    // NaN is picked where it is on the diagonal, and nowhere else.
    const auto best = team.template Best<V>([&](int thread) {
      Largest<V> largest{V(-1), rows};
      for (int i = k + thread; i < rows; i += team.size()) {
        const V size = Magnitude(a[i * ld + k]);
        const V value = size == size ? size : i == k ? kInfinity : V(-1);
        largest = largest.Better({value, i});
      }
      return largest;
    });
    const int pivot = best.index;
    team.Phase([&](int thread) {
      if (thread == 0) {
        pivots[k] = pivot;
        const int row = permutation[k];
        permutation[k] = permutation[pivot];
        permutation[pivot] = row;
      }
    });
    if (pivot != k) ExchangeRows(team, cols, a + pivot * ld, a + k * ld);
    if (best.value == V(0) && singular == 0) singular = k + 1;
    const E divisor_of = a[k * ld + k];
    const Divisor<E> divisor(best.value == V(0) ? FromReal<E>(V(1)) : divisor_of);
    team.Phase([&](int thread) {
      for (int i = k + 1 + thread; i < rows; i += team.size()) {
        a[i * ld + k] = divisor.Divide(a[i * ld + k]);
      }
    });
    team.Phase([&](int thread) {
      for (int i = k + 1 + grid.Lane(thread); i < rows; i += grid.lanes) {
        SubtractFromRow(a[i * ld + k], a + i * ld, k + 1 + grid.Group(thread), cols, grid.groups,
                        [&](int j) { return a[k * ld + j]; });
      }
    });
  }
  return HasNaN(team, rows, cols, a, ld) ? -1 : singular;
}

// The determinant of the n by n matrix `a`, which its LU factors overwrite.
template <class Team, class E>
LINALG_TEAM ScaledProduct<E> Determinant(const Team& team, int n, E* a, int ld, int* pivots,
                                         int* permutation) {
  Lu(team, n, n, a, ld, pivots, permutation);
  return ProductOfPivots(n, a, ld, pivots);
}

// permutation = the rows' order after the exchanges; an index outside the permutation is ignored.
template <class Team>
LINALG_TEAM void PivotsToPermutation(const Team& team, int count, const int* pivots, int size,
                                     int* permutation) {
  team.Phase([&](int thread) {
    for (int i = thread; i < size; i += team.size()) permutation[i] = i;
  });
  team.Phase([&](int thread) {
    if (thread != 0) return;
    for (int i = 0; i < count; ++i) {
      const int j = pivots[i];
      if (j < 0 || j >= size) continue;
      const int row = permutation[i];
      permutation[i] = permutation[j];
      permutation[j] = row;
    }
  });
}

// Exchanges the rows of b (n, cols) in the order of the pivots, or back.
template <class Team, class E>
LINALG_TEAM void ApplyPivots(const Team& team, int n, const int* pivots, bool back, int cols, E* b,
                             int ldb) {
  team.Phase([&](int thread) {
    for (int j = thread; j < cols; j += team.size()) {
      for (int step = 0; step < n; ++step) {
        const int k = back ? n - 1 - step : step, i = pivots[k];
        if (i == k || i < 0 || i >= n) continue;
        const E x = b[i * ldb + j];
        b[i * ldb + j] = b[k * ldb + j];
        b[k * ldb + j] = x;
      }
    }
  });
}

}  // namespace linalg::team
