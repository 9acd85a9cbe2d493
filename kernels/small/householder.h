// QR factors of small matrices by Householder reflectors, with LAPACK's conventions.
//
// A reflector is H = I - tau v vᴴ with v's first element 1. Hᴴ takes a column to (beta, 0, ..., 0)
// with a real beta. Matrices are row-major with rows `ld` apart. An element E belongs to one
// matrix, or has one matrix per lane. Columns are updated in blocks B: elements, or registers of
// neighbouring columns of one matrix. Both do the same operations on each column.
#pragma once

#include "kernels/arithmetic/columns.h"
#include "kernels/arithmetic/reflector.h"

namespace linalg::small {

// Stores a block. kMasked stores only its columns from `first` on.
template <bool kMasked, class B, class E>
LINALG_INLINE void StoreFrom(B x, E* target, int first) {
  if constexpr (kMasked) {
    using V = RealElement<B>;
    V order;
    for (int i = 0; i < kColumns<E, B>; ++i) order[i] = static_cast<Lane<V>>(i);
    const Mask<V> keep = order < Number<V>(first);
    x = Choose(keep, LoadColumns<B>(target), x);
  }
  StoreColumns(x, target);
}

// vᴴ x over elements [0, count) of a block of columns, in four chains; v's first element is 1.
template <class B, class E>
LINALG_INLINE B ReflectorDot(const E* v, const E* x, int stride, int count) {
  B sums[4] = {LoadColumns<B>(x)};
  const auto add = [&](int i, B& sum) {
    sum = NegMulAdd(Widen<RealElement<B>>(-Conj(v[i])), LoadColumns<B>(x + i * stride), sum);
  };
  int i = 1;
  for (; i + 4 <= count; i += 4) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) add(i + c, sums[c]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 3; ++c) {
    if (i + c < count) add(i + c, sums[c]);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Multiplies the block of columns at `a` by I - tau v vᴴ.
template <bool kMasked, class B, class E>
LINALG_INLINE void ReflectColumns(E* a, int ld, int count, const E* v, E tau, int first) {
  using V = RealElement<B>;
  const B sum = Mul(Widen<V>(tau), ReflectorDot<B>(v, a, ld, count));
  StoreFrom<kMasked>(LoadColumns<B>(a) - sum, a, first);
  for (int i = 1; i < count; ++i) {
    E* const target = a + i * ld;
    StoreFrom<kMasked>(NegMulAdd(Widen<V>(v[i]), sum, LoadColumns<B>(target)), target, first);
  }
}
template <class E>
LINALG_INLINE void ReflectColumn(E* a, int ld, int count, const E* v, E tau) {
  ReflectColumns<false, E>(a, ld, count, v, tau, 0);
}

// Multiplies kRows rows by I - tau v vᴴ from the right, with two chains per row.
template <int kRows, class E>
LINALG_INLINE void ReflectRowsFromRight(E* a, int ld, int count, const E* v, E tau) {
  E sums[kRows][2];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    sums[r][0] = a[r * ld];
    sums[r][1] = E{};
  }
  int j = 1;
  for (; j + 2 <= count; j += 2) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      sums[r][1] = NegMulAdd(-v[j], a[r * ld + j], sums[r][1]);
      sums[r][0] = NegMulAdd(-v[j + 1], a[r * ld + j + 1], sums[r][0]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    E* const row = a + r * ld;
    if (j < count) sums[r][1] = NegMulAdd(-v[j], row[j], sums[r][1]);
    const E sum = Mul(tau, sums[r][0] + sums[r][1]);
    row[0] = row[0] - sum;
    for (int k = 1; k < count; ++k) row[k] = NegMulAdd(sum, Conj(v[k]), row[k]);
  }
}

// Multiplies `rows` rows from the right, several at once to hide the latency of a chain.
template <class E>
LINALG_INLINE void ReflectFromRight(E* a, int ld, int rows, int count, const E* v, E tau) {
  int i = 0;
  for (; i + 4 <= rows; i += 4) ReflectRowsFromRight<4>(a + i * ld, ld, count, v, tau);
  for (; i < rows; ++i) ReflectRowsFromRight<1>(a + i * ld, ld, count, v, tau);
}

// ReflectColumns with sums in one chain. kNewRow takes the first row as zero and only writes it.
// kMasked changes only columns from `first` on.
template <bool kNewRow, bool kMasked, class B, class E>
LINALG_INLINE void ReflectBlock(E* a, int ld, int count, const E* v, E tau, int first) {
  const B row = kNewRow ? B{} : LoadColumns<B>(a);
  B sum = row;
  for (int i = 1; i < count; ++i)
    sum = NegMulAdd(Widen<RealElement<B>>(-Conj(v[i])), LoadColumns<B>(a + i * ld), sum);
  sum = Mul(Widen<RealElement<B>>(tau), sum);
  StoreFrom<kMasked>(row - sum, a, first);
  for (int i = 1; i < count; ++i) {
    E* target = a + i * ld;
    StoreFrom<kMasked>(NegMulAdd(Widen<RealElement<B>>(v[i]), sum, LoadColumns<B>(target)), target,
                       first);
  }
}

// Applies two reflectors at once to kBlocks blocks, which halves the memory traffic: first H₁ = I -
// tau₁ v₁ v₁ᴴ, then H₂. `top` reflects from row 0 on, `next` from row 1 on. kNewRows applies `top`
// last, and takes rows 0 and 1 as zero and only writes them. Otherwise `next` is last. `cross` is
// v₂ᴴ v₁.
template <int kBlocks, bool kNewRows, bool kMasked, class B, class E>
LINALG_INLINE void ReflectBlocksTwice(E* a, int ld, int count, const E* top, E top_tau,
                                      const E* next, E next_tau, E cross, int first) {
  constexpr int kWidth = kColumns<E, B>;
  B sums[2][kBlocks];
  const B top_1 = Widen<RealElement<B>>(top[1]);
#pragma GCC unroll 8
  for (int c = 0; c < kBlocks; ++c) {
    if constexpr (kNewRows) {
      sums[0][c] = sums[1][c] = B{};
    } else {
      sums[1][c] = LoadColumns<B>(a + ld + c * kWidth);
      sums[0][c] = NegMulAdd(-Conj(top_1), sums[1][c], LoadColumns<B>(a + c * kWidth));
    }
  }
  for (int i = 2; i < count; ++i) {
    const B left_0 = Widen<RealElement<B>>(-Conj(top[i])),
            left_1 = Widen<RealElement<B>>(-Conj(next[i]));
#pragma GCC unroll 8
    for (int c = 0; c < kBlocks; ++c) {
      const B x = LoadColumns<B>(a + i * ld + c * kWidth);
      sums[0][c] = NegMulAdd(left_0, x, sums[0][c]);
      sums[1][c] = NegMulAdd(left_1, x, sums[1][c]);
    }
  }
  const B factor_0 = Widen<RealElement<B>>(top_tau), factor_1 = Widen<RealElement<B>>(next_tau),
          mixed = Widen<RealElement<B>>(cross);
#pragma GCC unroll 8
  for (int c = 0; c < kBlocks; ++c) {
    if constexpr (kNewRows) {
      sums[1][c] = Mul(factor_1, sums[1][c]);
      sums[0][c] = Mul(factor_0, NegMulAdd(mixed, sums[1][c], sums[0][c]));
    } else {
      sums[0][c] = Mul(factor_0, sums[0][c]);
      sums[1][c] = Mul(factor_1, NegMulAdd(mixed, sums[0][c], sums[1][c]));
    }
    E* target = a + c * kWidth;
    const B row_0 = kNewRows ? B{} : LoadColumns<B>(target);
    const B row_1 = kNewRows ? B{} : LoadColumns<B>(target + ld);
    StoreFrom<kMasked>(row_0 - sums[0][c], target, first);
    StoreFrom<kMasked>(NegMulAdd(top_1, sums[0][c], row_1) - sums[1][c], target + ld, first);
  }
  for (int i = 2; i < count; ++i) {
    const B left_0 = Widen<RealElement<B>>(top[i]), left_1 = Widen<RealElement<B>>(next[i]);
#pragma GCC unroll 8
    for (int c = 0; c < kBlocks; ++c) {
      E* target = a + i * ld + c * kWidth;
      const B x = NegMulAdd(left_0, sums[0][c], LoadColumns<B>(target));
      StoreFrom<kMasked>(NegMulAdd(left_1, sums[1][c], x), target, first);
    }
  }
}

// Calls body.template operator()<kBlocks, kMasked>(j, first) for blocks that cover columns [0,
// cols). Columns before the first full block are in a block that begins left of them, where only
// columns from `first` on change.
template <int kWidth, int kMost, class Body>
LINALG_INLINE void ForEachColumnBlock(int cols, Body&& body) {
  int j = 0;
  if constexpr (kWidth > 1) {
    j = cols % kWidth;
    if (j > 0) body.template operator()<1, true>(j - kWidth, kWidth - j);
  }
  for (; j + kMost * kWidth <= cols; j += kMost * kWidth)
    body.template operator()<kMost, false>(j, 0);
  if constexpr (kMost > 2) {
    if (j + 2 * kWidth <= cols) {
      body.template operator()<2, false>(j, 0);
      j += 2 * kWidth;
    }
  }
  if constexpr (kMost > 1) {
    if (j < cols) body.template operator()<1, false>(j, 0);
  }
}

// The number of blocks whose two sums each fit the registers.
template <class B, class E>
inline constexpr int kReflectBlocks = kComplexElement<E> ? 2 : 4;

// Replaces the m by n matrix by R, with zeros below the diagonal. The columns of `v`, of m
// elements, receive the reflectors' vectors without their leading 1; `taus` receives their factors.
template <class B, class E>
LINALG_ONCE void HouseholderQr(E* a, int ld, int m, int n, E* v, E* taus) {
  const int count = m < n ? m : n;
  for (int k = 0; k < count; k += 2) {
    const int rows = m - k;
    E* corner = a + k * ld + k;
    E* top = v + k * m + k;
    taus[k] = !kComplexElement<E> && rows == 1 ? E{} : MakeReflector(corner, ld, rows, top);
    if (k + 1 == count) {
      ForEachColumnBlock<kColumns<E, B>, 1>(n - k - 1, [&]<int, bool kMasked>(int j, int first) {
        ReflectBlock<false, kMasked, B>(corner + 1 + j, ld, rows, top, Conj(taus[k]), first);
      });
      break;
    }
    E* next = top + m;
    ReflectColumn(corner + 1, ld, rows, top, Conj(taus[k]));
    taus[k + 1] = !kComplexElement<E> && rows == 2
                      ? E{}
                      : MakeReflector(corner + ld + 1, ld, rows - 1, next + 1);
    if (n == k + 2) break;
    const E cross = ReflectorDot<E>(next + 1, top + 1, 1, rows - 1);
    ForEachColumnBlock<kColumns<E, B>, kReflectBlocks<B, E>>(
        n - k - 2, [&]<int kBlocks, bool kMasked>(int j, int first) {
          ReflectBlocksTwice<kBlocks, false, kMasked, B>(
              corner + 2 + j, ld, rows, top, Conj(taus[k]), next, Conj(taus[k + 1]), cross, first);
        });
  }
}

// H e₁: a new column of the product, before the reflectors to its left.
template <class E>
LINALG_INLINE void UnitReflected(E* q, int ld, int count, const E* v, E tau) {
  q[0] = FromReal<E>(Broadcast<RealElement<E>>(1)) - tau;
  for (int i = 1; i < count; ++i) q[i * ld] = NegMulAdd(tau, v[i], E{});
}

// The first `cols` columns of the product of `count` reflectors; count <= cols <= m.
template <class B, class E>
LINALG_ONCE void HouseholderProduct(E* q, int ld, int m, int cols, int count, const E* v,
                                    const E* taus) {
  for (int i = count; i < m; ++i)
    for (int j = count; j < cols; ++j)
      q[i * ld + j] = i == j ? FromReal<E>(Broadcast<RealElement<E>>(1)) : E{};
  int k = count;
  if (k % 2 != 0) {
    --k;
    E* corner = q + k * ld + k;
    ForEachColumnBlock<kColumns<E, B>, 1>(cols - k - 1, [&]<int, bool kMasked>(int j, int first) {
      ReflectBlock<true, kMasked, B>(corner + 1 + j, ld, m - k, v + k * m + k, taus[k], first);
    });
    UnitReflected(corner, ld, m - k, v + k * m + k, taus[k]);
  }
  while (k > 0) {
    k -= 2;
    const int rows = m - k;
    E* corner = q + k * ld + k;
    const E* top = v + k * m + k;
    const E* next = top + m;
    if (cols > k + 2) {
      const E cross = Conj(ReflectorDot<E>(next + 1, top + 1, 1, rows - 1));
      ForEachColumnBlock<kColumns<E, B>, kReflectBlocks<B, E>>(
          cols - k - 2, [&]<int kBlocks, bool kMasked>(int j, int first) {
            ReflectBlocksTwice<kBlocks, true, kMasked, B>(corner + 2 + j, ld, rows, top, taus[k],
                                                          next, taus[k + 1], cross, first);
          });
    }
    UnitReflected(corner + ld + 1, ld, rows - 1, next + 1, taus[k + 1]);
    corner[1] = E{};
    ReflectColumn(corner + 1, ld, rows, top, taus[k]);
    UnitReflected(corner, ld, rows, top, taus[k]);
  }
}

// Replaces the contiguous m by cols matrix C by Q C, or by Qᴴ C if `adjoint`. Q is the product of
// `count` reflectors.
template <class B, class E>
LINALG_ONCE void MultiplyByQ(bool adjoint, int m, int cols, int count, const E* v, const E* taus,
                             E* c) {
  for (int i = 0; i < count; ++i) {
    const int k = adjoint ? i : count - 1 - i;
    const E tau = adjoint ? Conj(taus[k]) : taus[k];
    ForEachColumnBlock<kColumns<E, B>, 1>(cols, [&]<int, bool kMasked>(int j, int first) {
      ReflectColumns<kMasked, B>(c + k * cols + j, cols, m - k, v + k * m + k, tau, first);
    });
  }
}

// Moves the reflectors' vectors to below R, where LAPACK stores them, or back.
template <class E>
LINALG_INLINE void PackReflectors(E* a, int ld, int m, int n, const E* v) {
  for (int i = 1; i < m; ++i)
    for (int j = 0; j < i && j < n; ++j) a[i * ld + j] = v[j * m + i];
}
template <class E>
LINALG_INLINE void UnpackReflectors(const E* a, int ld, int m, int count, E* v) {
  for (int i = 1; i < m; ++i)
    for (int j = 0; j < i && j < count; ++j) v[j * m + i] = a[i * ld + j];
}

}  // namespace linalg::small
