// The steps of the QR handlers for small matrices: R is written out before Q takes its place. All
// paths share them: lanes, one matrix with columns in registers, and threads with a matrix each.
#pragma once

#include "kernels/small/householder.h"
#include "kernels/small/lane_pivots.h"

namespace linalg::small {

template <class E>
LINALG_INLINE RealElement<E> ColumnNorm(const E* a, int ld, int count) {
  using V = RealElement<E>;
  const auto squares = [&](V scale) {
    V sum{};
    for (int i = 0; i < count; ++i) sum = NormAdd(scale * a[i * ld], sum);
    return sum;
  };
  const V total = squares(Broadcast<V>(1));
  if (!Any(SquareScale<V>::IsNeeded(total))) return Sqrt(total);
  const SquareScale<V> range(total);
  return range.unscale * Sqrt(squares(range.scale));
}

// HouseholderQr with column pivoting: each step takes the remaining column of the largest norm.
// `order` (n) receives the columns' original indices. Norms are recomputed at each step.
template <class E>
LINALG_INLINE void PivotedQr(E* a, int ld, int m, int n, E* v, E* taus, RealElement<E>* order) {
  using V = RealElement<E>;
  const V infinity = Broadcast<V>(std::numeric_limits<Lane<V>>::infinity());
  const int count = m < n ? m : n;
  for (int j = 0; j < n; ++j) order[j] = Number<V>(j);
  for (int k = 0; k < count; ++k) {
    const int rows = m - k;
    E* const corner = a + k * ld + k;
    V largest = Broadcast<V>(-1), pivot = Number<V>(k);
    for (int j = k; j < n; ++j) {
      const V norm = ColumnNorm(a + k * ld + j, ld, rows);
      const V size = norm == norm ? norm : infinity;
      const auto larger = size > largest;
      largest = larger ? size : largest;
      pivot = larger ? Number<V>(j) : pivot;
    }
    ForEachPivot(pivot, k, k + 1, n, [&](auto picked, int j) {
      for (int i = 0; i < m; ++i) ExchangeWhere(picked, a[i * ld + k], a[i * ld + j]);
      ExchangeWhere(picked, order[k], order[j]);
    });
    E* const top = v + k * m + k;
    taus[k] = !kComplexElement<E> && rows == 1 ? E{} : MakeReflector(corner, ld, rows, top);
    for (int j = 1; j < n - k; ++j) ReflectColumn(corner + j, ld, rows, top, Conj(taus[k]));
  }
}

// The operand, the results and the workspace.
template <class E>
struct QrWork {
  E* a;  // the m by n matrix, then R
  int ld;
  E* vectors;  // of the reflectors, m elements each
  E* taus;
  E* q;  // may overlap `a`
  int ldq;
  RealElement<E>* order = nullptr;  // of the columns, or null without pivoting
};

// Computes R, with zeros below, and `count` reflectors. If `factored`, the reflectors are given
// below the diagonal of `a`, with their taus. Then calls take(), which may copy the results. Last,
// q becomes the first q_cols columns of the reflectors' product.
template <class B, class E, class Take>
LINALG_INLINE void Qr(int m, int n, int count, bool factored, int q_cols, const QrWork<E>& work,
                      Take&& take) {
  if (factored) {
    UnpackReflectors(work.a, work.ld, m, count, work.vectors);
  } else if (work.order != nullptr) {
    PivotedQr(work.a, work.ld, m, n, work.vectors, work.taus, work.order);
  } else {
    HouseholderQr<B>(work.a, work.ld, m, n, work.vectors, work.taus);
  }
  take();
  if (q_cols > 0) {
    HouseholderProduct<B>(work.q, work.ldq, m, q_cols, count, work.vectors, work.taus);
  }
}

}  // namespace linalg::small
