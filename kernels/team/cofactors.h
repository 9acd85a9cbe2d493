// Cofactors of singular matrices by a team of threads.
#pragma once

#include "kernels/arithmetic/scaled_product.h"
#include "kernels/team/lu.h"

namespace linalg::team {

// The cofactors of a matrix of rank n - 1, element by element: a product of three numbers. The
// product of the pivots alone may be out of range.
template <class E>
struct SingularCofactors {
  ScaledProduct<E> product;
  const E* of_row;
  const E* of_col;

  LINALG_INLINE E operator()(int i, int j) const {
    ScaledProduct<E> cofactor = product;
    cofactor.Multiply(of_col[j]);
    cofactor.Multiply(of_row[i]);
    return cofactor.Value();
  }
};

// Cofactors of a singular matrix by elimination with complete pivoting, as
// small::CofactorsOfSingular has them. It overwrites `a`. `rows` and `cols` are workspaces of n,
// `vectors` of 4 n.
template <class Team, class E>
LINALG_TEAM SingularCofactors<E> CofactorsOfSingular(const Team& team, int n, E* a, int64_t ld,
                                                     int* rows, int* cols, E* vectors) {
  using V = RealElement<E>;
  E *const z = vectors, *const w = z + n, *const of_row = w + n, *const of_col = of_row + n;
  const Grid grid(team.size(), n < 32 ? n : 32);
  const E one = FromReal<E>(V(1));
  ScaledProduct<E> product;
  bool odd = false, is_zero = false;
  team.Phase([&](int thread) {
    for (int i = thread; i < n; i += team.size()) {
      rows[i] = cols[i] = i;
      z[i] = w[i] = i + 1 < n ? E{} : one;
    }
  });
  // The place i n + j of the largest element from row and column k on, after changed(i, j).
  // Neighbouring threads take neighbouring columns: `a` may be in global memory.
  const auto largest_from = [&](int k, auto&& changed) {
    return team.template Best<V>([&](int thread) {
      Candidate<V> largest{V(0), k * (n + 1)};
      for (int i = k + grid.Group(Again(thread)); i < n; i += grid.groups) {
        for (int j = k + grid.Across(thread); j < n; j += grid.width) {
          largest = largest.Better({Magnitude(changed(i, j)), i * n + j});
        }
      }
      return largest;
    });
  };
  auto best = largest_from(0, [&](int i, int j) { return a[i * ld + j]; });
  for (int k = 0; k + 1 < n; ++k) {
    is_zero |= best.value == V(0);
    if (is_zero) break;  // the rank is below n - 1
    const int row = best.index / n, col = best.index - row * n;
    odd ^= (row != k) != (col != k);
    team.Phase([&](int thread) {
      if (thread == 0) {
        const int i = rows[k], j = cols[k];
        rows[k] = rows[row], rows[row] = i;
        cols[k] = cols[col], cols[col] = j;
      }
      if (row != k) ExchangeRows(thread, team.size(), n, a + row * ld, a + k * ld);
    });
    team.Phase([&](int thread) {
      for (int i = Again(thread); i < n && col != k; i += team.size()) {
        const E x = a[i * ld + k];
        a[i * ld + k] = a[i * ld + col];
        a[i * ld + col] = x;
      }
    });
    const E pivot = a[k * (ld + 1)];
    product.Multiply(pivot);
    const Divisor<E> divisor(pivot);
    team.Phase([&](int thread) {
      for (int i = k + 1 + Again(thread); i < n; i += team.size()) {
        a[i * ld + k] = divisor.Divide(a[i * ld + k]);
      }
    });
    best = largest_from(k + 1, [&](int i, int j) {
      return a[i * ld + j] = NegMulAdd(a[i * ld + k], a[k * ld + j], a[i * ld + j]);
    });
  }
  // U z = 0 and w L = eₙᵀ, by columns of U and rows of L.
  for (int k = n - 1; k >= 0; --k) {
    const E left = w[k],
            right = k + 1 < n && !is_zero ? Divisor<E>(a[k * (ld + 1)]).Divide(z[k]) : z[k];
    team.Phase([&](int thread) {
      for (int i = Again(thread); i < k && !is_zero; i += team.size()) {
        z[i] = NegMulAdd(a[i * ld + k], right, z[i]);
        w[i] = NegMulAdd(a[k * ld + i], left, w[i]);
      }
      if (thread == 0) {
        of_row[rows[k]] = is_zero ? E{} : left;
        of_col[cols[k]] = odd ? -right : right;
      }
    });
  }
  return {.product = product, .of_row = of_row, .of_col = of_col};
}

}  // namespace linalg::team
