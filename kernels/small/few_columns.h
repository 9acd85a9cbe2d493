// Products of Householder reflectors with few columns, for one small matrix.
//
// ReflectColumns of householder.h sums each column in four chains. Here the chains are the lanes of
// a register, and a column is contiguous. A column takes the same operations in the same order, so
// it gets the bits that it has in a batch.
#pragma once

#include "kernels/arithmetic/columns.h"
#include "kernels/arithmetic/pack.h"

namespace linalg::small {

// The chains, and the lanes of a register.
inline constexpr int kChains = 4;

// Registers begin at multiples of kChains. One that straddled two earlier stores would wait for
// both. So row i is in lane i % kChains for every reflector, and each begins in another lane.
constexpr int PaddedRows(int rows) { return (rows + kChains - 1) / kChains * kChains; }

// The sum of the lanes in every lane: (0 + 1) + (2 + 3), or (1 + 2) + (3 + 0) if `odd`.
template <class V>
LINALG_INLINE V SumOfChains(V sums, bool odd) {
  if (odd) sums = Shuffle<1, 2, 3, 0>(sums, sums);
  const V pairs = sums + Shuffle<1, 0, 3, 2>(sums, sums);
  return pairs + Shuffle<2, 3, 0, 1>(pairs, pairs);
}

// x := (I - tau v vᴴ) x in the rows [k, m). v is 1 in row k. Its elements above are not used.
template <class Row, class E>
LINALG_INLINE void ReflectContiguous(int k, int m, SplitRows<E, Row> v, E tau,
                                     SplitRows<E, Row> x) {
  using X = RowElement<E, Row>;
  const int head = k / kChains * kChains, tail = PaddedRows(m) - kChains;
  const auto rows_at = [](int i) {
    Row rows;
    for (int lane = 0; lane < kChains; ++lane) rows[lane] = static_cast<Lane<Row>>(i + lane);
    return rows;
  };
  const auto is_below = [&](int i) {
    const Row rows = rows_at(i);
    return (rows > Number<Row>(k)) & (rows < Number<Row>(m));
  };
  const auto is_edge = [&](int i) { return i == head || i == tail; };

  // The first chain has row k + 1, and begins with row k.
  const int begin = (k + 1) % kChains;
  X sums = Choose(rows_at(0) == Number<Row>(begin), Widen<Row>(x.Get(k)), X{});
  for (int i = head; i < m; i += kChains) {
    const X sum = NegMulAdd(-Conj(v.Load(i)), x.Load(i), sums);
    sums = is_edge(i) ? Choose(is_below(i), sum, sums) : sum;
  }
  const bool odd = begin % 2 != 0;
  X dot;
  if constexpr (kComplexElement<E>) {
    dot = {SumOfChains(sums.re, odd), SumOfChains(sums.im, odd)};
  } else {
    dot = SumOfChains(sums, odd);
  }
  const X factor = Mul(Widen<Row>(tau), dot);
  for (int i = head; i < m; i += kChains) {
    const X old = x.Load(i);
    X updated = NegMulAdd(v.Load(i), factor, old);
    if (is_edge(i)) {
      updated = Choose(is_below(i), updated, old);
      if (i == head) updated = Choose(rows_at(i) == Number<Row>(k), old - factor, updated);
    }
    x.Store(i, updated);
  }
}

// Copies the columns [0, count) of the row-major m by n matrix from below the diagonal.
template <class Row, class E>
LINALG_INLINE void LoadReflectors(int m, int n, int count, const E* a, SplitRows<E, Row> v) {
  using X = RowElement<E, Row>;
  for (int k = 0; k < count; ++k) v.Below(k).Store(PaddedRows(m) - kChains, X{});
  if (m < kChains || n < kChains) {
    for (int k = 0; k < count; ++k) {
      for (int i = k + 1; i < m; ++i) v.Below(k).Set(i, a[i * n + k]);
    }
    return;
  }
  // Squares transposed in registers; the last ones overlap those before.
  ForEachSquare<kChains>(n, [&](int64_t first) {
    const int col = static_cast<int>(first);
    if (col >= count) return;
    const int head = col / kChains * kChains;
    ForEachSquare<kChains>(m - head, [&](int64_t below) {
      const int row = head + static_cast<int>(below);
      Row re[kChains], im[kChains];
#pragma GCC unroll 4
      for (int r = 0; r < kChains; ++r) {
        const X x = LoadColumns<X>(a + (row + r) * n + col);
        re[r] = Re(x);
        if constexpr (kComplexElement<E>) im[r] = x.im;
      }
      TransposeInRegisters<kChains, kChains / 2>(re);
      if constexpr (kComplexElement<E>) TransposeInRegisters<kChains, kChains / 2>(im);
#pragma GCC unroll 4
      for (int c = 0; c < kChains; ++c) {
        if (col + c >= count) continue;
        if constexpr (kComplexElement<E>) {
          v.Below(col + c).Store(row, {re[c], im[c]});
        } else {
          v.Below(col + c).Store(row, re[c]);
        }
      }
    });
  });
}

// The columns of C for one matrix, or the adjoint of its rows.
template <class Row, class E>
struct FewColumns {
  using X = RowElement<E, Row>;

  int m, cols;
  bool left;  // whether C is m by cols, and not cols by m
  SplitRows<E, Row> x;

  LINALG_INLINE void Load(const E* c) const {
    ForEachRegister([&](int i, int j, bool contiguous) {
      if (contiguous) return Set(i, j, LoadColumns<X>(c + j * m + i));
      E part[kChains] = {};
      for (int r = 0; r < kChains && i + r < m; ++r) part[r] = c[Place(i + r, j)];
      Set(i, j, LoadColumns<X>(part));
    });
  }
  LINALG_INLINE void Store(E* c) const {
    ForEachRegister([&](int i, int j, bool contiguous) {
      const X loaded = x.Below(j).Load(i), column = left ? loaded : Conj(loaded);
      if (contiguous) return StoreColumns(column, c + j * m + i);
      E part[kChains];
      StoreColumns(column, part);
      for (int r = 0; r < kChains && i + r < m; ++r) c[Place(i + r, j)] = part[r];
    });
  }

 private:
  LINALG_INLINE int Place(int i, int j) const { return left ? i * cols + j : j * m + i; }
  LINALG_INLINE void Set(int i, int j, X column) const {
    x.Below(j).Store(i, left ? column : Conj(column));
  }
  template <class Body>
  LINALG_INLINE void ForEachRegister(Body&& body) const {
    for (int j = 0; j < cols; ++j) {
      for (int i = 0; i < m; i += kChains) {
        body(i, j, (cols == 1 || !left) && i + kChains <= m);
      }
    }
  }
};

// The numbers V that MultiplyFewByQ needs.
template <class E>
int64_t FewColumnsSize(int64_t m, int64_t cols, int64_t count) {
  return PaddedRows(static_cast<int>(m)) * (cols + count) * kPartsOf<E>;
}

// target := Q C, or Qᴴ C if `adjoint`, for C (m, cols); or the adjoint of that for the adjoint of
// C (cols, m) if it is not `left`. Q is the product of `count` reflectors below the diagonal of the
// row-major m by n matrix.
template <class Row, class E>
LINALG_INLINE void MultiplyFewByQ(bool left, bool adjoint, int m, int n, int cols, int count,
                                  const E* a, const E* taus, const E* c, E* target,
                                  RealElement<E>* memory) {
  const int ld = PaddedRows(m);
  const auto take = [&](int columns) {
    const SplitRows<E, Row> taken{memory, memory + (kComplexElement<E> ? ld * columns : 0), ld};
    memory += ld * columns * kPartsOf<E>;
    return taken;
  };
  const SplitRows<E, Row> v = take(count);
  const FewColumns<Row, E> few{m, cols, left, take(cols)};
  LoadReflectors<Row>(m, n, count, a, v);
  few.Load(c);
  for (int i = 0; i < count; ++i) {
    const int k = adjoint ? i : count - 1 - i;
    const E tau = adjoint ? Conj(taus[k]) : taus[k];
    for (int j = 0; j < cols; ++j) ReflectContiguous(k, m, v.Below(k), tau, few.x.Below(j));
  }
  few.Store(target);
}

}  // namespace linalg::small
