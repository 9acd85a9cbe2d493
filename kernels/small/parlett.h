// Functions of upper triangular matrices from those of their eigenvalues.
//
// T F = F T gives column j of F from the columns before it, from the diagonal up: B. N. Parlett, A
// recurrence among the elements of functions of triangular matrices, Linear Algebra Appl. 14
// (1976). The lanes hold several diagonals of one matrix; they share the rest of it. The square
// root has a recurrence of its own, which needs no distinct eigenvalues.
#pragma once

#include "kernels/arithmetic/divisor.h"

namespace linalg::small {

// The number x in every lane of E.
template <class E, class S>
LINALG_INLINE E InLanes(S x) {
  if constexpr (kComplexElement<E>) {
    return {Broadcast<RealElement<E>>(x.re), Broadcast<RealElement<E>>(x.im)};
  } else {
    return Broadcast<E>(x);
  }
}

// Σ aₖ bₖ - cₖ dₖ, with b and c in lanes, and a and d shared by all lanes. Several sums hide the
// latency of a chain.
template <class E, class S>
LINALG_INLINE E DifferenceOfProducts(int count, const S* a, const E* b, const E* c, const S* d) {
  E first[2] = {}, second[2] = {};
  const auto subtract = [&](int k, int i) {
    first[i] = NegMulAdd(InLanes<E>(a[k]), b[k], first[i]);
    second[i] = NegMulAdd(c[k], InLanes<E>(d[k]), second[i]);
  };
  int k = 0;
  for (; k + 1 < count; k += 2) {
    subtract(k, 0);
    subtract(k + 1, 1);
  }
  if (k < count) subtract(k, 0);
  return (second[0] + second[1]) - (first[0] + first[1]);
}

// Computes the upper triangle of f (n, n), given its diagonal. T has the diagonal x and, above it,
// the elements of t (n, n). Where two elements of x are equal, f is 0 if they have two eigenvectors
// up to `tolerance`, else NaN. `column`, `vector` and `right` are workspaces of n elements each.
template <class E, class S>
LINALG_INLINE void Parlett(int n, const S* t, const E* x, Lane<RealElement<E>> tolerance, E* f,
                           E* column, E* vector, S* right) {
  using V = RealElement<E>;
  const E one = FromReal<E>(Broadcast<V>(1));
  for (int j = 1; j < n; ++j) {
    bool equal = false;
    for (int i = 0; i < j; ++i) {
      right[i] = t[i * n + j];
      equal |= Any(Magnitude(x[j] - x[i]) == V{});
    }
    for (int i = j - 1; i >= 0; --i) {
      const int next = i + 1, between = j - next;
      const S* const row = t + i * n;
      const E* const known = f + i * n;
      const E above = InLanes<E>(right[i]), gap = x[j] - x[i];
      const E sum = NegMulAdd(
          above, known[i] - f[j * n + j],
          DifferenceOfProducts(between, row + next, column + next, known + next, right + next));
      if (!equal) {
        column[i] = Divisor<E>(gap).Divide(sum);
        continue;
      }
      // The eigenvector of x[j] has -1 in row j. In a row with the same eigenvalue its element is
      // free if `rest` is 0 there.
      E rest = above;
      for (int k = next; k < j; ++k) rest = NegMulAdd(InLanes<E>(row[k]), vector[k], rest);
      const auto same = Magnitude(gap) == V{};
      const auto apart = Modulus(rest) <= Broadcast<V>(tolerance);
      const Divisor<E> divisor(Choose(same, one, gap));
      column[i] = Choose(same, Choose(apart, E{}, NaN<E>()), divisor.Divide(sum));
      vector[i] = Choose(same, E{}, -divisor.Divide(rest));
    }
    for (int i = 0; i < j; ++i) f[i * n + j] = column[i];
  }
}

// Replaces T by R with R R = T, both upper triangular, one matrix per lane. `root` is the diagonal
// of R. Elements of a column for which no R exists are NaN. Å. Björck and S. Hammarling, A Schur
// method for the square root of a matrix, Linear Algebra Appl. 52/53 (1983).
template <class E>
LINALG_INLINE void TriangularSqrt(int n, const E* root, E* t) {
  using V = RealElement<E>;
  const E one = FromReal<E>(Broadcast<V>(1));
  const auto vanishes = [](E x) { return Magnitude(x) == V{}; };
  for (int j = 0; j < n; ++j) {
    for (int i = j - 1; i >= 0; --i) {
      E sum[2] = {};
      int k = i + 1;
      for (; k + 1 < j; k += 2) {
        sum[0] = NegMulAdd(t[i * n + k], t[k * n + j], sum[0]);
        sum[1] = NegMulAdd(t[i * n + k + 1], t[(k + 1) * n + j], sum[1]);
      }
      if (k < j) sum[0] = NegMulAdd(t[i * n + k], t[k * n + j], sum[0]);
      const E pair = root[i] + root[j];
      const Divisor<E> divisor(Choose(vanishes(pair), one, pair));
      t[i * n + j] = divisor.Divide(t[i * n + j] + (sum[0] + sum[1]));
    }
    for (int i = 0; i < j; ++i) {
      E& element = t[i * n + j];
      const E unsolvable = Choose(vanishes(element), element, NaN<E>());
      element = Choose(vanishes(root[i] + root[j]), unsolvable, element);
    }
    t[j * n + j] = root[j];
    for (int i = j + 1; i < n; ++i) t[i * n + j] = E{};
  }
}

}  // namespace linalg::small
