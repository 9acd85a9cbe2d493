// Substitution with one small matrix.
//
// A right-hand side takes the operations of triangular.h in their order, so it gets the bits that
// it has in a lane. Here the triangle is read where the operand stores it, and the rows of a panel
// stay in registers until they are solved.
#pragma once

#include "kernels/arithmetic/columns.h"
#include "kernels/arithmetic/divisor.h"
#include "kernels/arithmetic/triangle.h"
#include "kernels/small/triangular.h"

namespace linalg::small {

// The row-major matrix of a pass.
template <class E>
struct PassMatrix {
  const E* a;
  int row, col;
  RealElement<E> sign;  // of imaginary parts

  LINALG_INLINE PassMatrix(const SubstitutionPass& pass, int n, const E* a)
      : a(a),
        row(pass.transpose ? 1 : n),
        col(pass.transpose ? n : 1),
        sign(static_cast<RealElement<E>>(pass.conjugate ? -1 : 1)) {}

  LINALG_INLINE E operator()(int i, int k) const {
    const E x = a[i * row + k * col];
    if constexpr (kComplexElement<E>) {
      return {x.re, sign * x.im};
    } else {
      return x;
    }
  }
};

template <class Row, class E>
LINALG_INLINE RowElement<E, Row> DivideBy(const Divisor<E>& divisor, RowElement<E, Row> x) {
  // Scaling by 1 changes nothing, and would delay the next row.
  if (divisor.scale() != 1) x = Widen<Row>(divisor.scale()) * x;
  return Mul(Widen<Row>(divisor.inverse()), x);
}

// Solves the rows [block, block + kRows) of a triangle, of which the rows before are solved. These
// are the rows above if kLower, else those below.
template <int kRows, bool kLower, class Row, class E>
LINALG_INLINE void SolvePanel(const PassMatrix<E>& a, int n, int block, const Divisor<E>* divisors,
                              SplitRows<E, Row> x) {
  using X = RowElement<E, Row>;
  const int first = kLower ? 0 : block + kRows, last = kLower ? block : n;
  for (int j = 0; j < x.stride; j += kColumns<RealElement<E>, Row>) {
    X sums[kRows] = {};
    for (int k = first; k < last; ++k) {
      const X solved = x.Below(k).Load(j);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        sums[r] = NegMulAdd(Widen<Row>(a(block + r, k)), solved, sums[r]);
      }
    }
    X rows[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      rows[r] = x.Below(block + r).Load(j);
      if (first < last) rows[r] = rows[r] + sums[r];
    }
#pragma GCC unroll 4
    for (int step = 0; step < kRows; ++step) {
      const int r = kLower ? step : kRows - 1 - step;
      X sum = {};
#pragma GCC unroll 4
      for (int k = kLower ? 0 : r + 1; k < (kLower ? r : kRows); ++k) {
        sum = NegMulAdd(Widen<Row>(a(block + r, block + k)), rows[k], sum);
      }
      rows[r] = rows[r] + sum;
      if (divisors != nullptr) rows[r] = DivideBy<Row>(divisors[r], rows[r]);
      x.Below(block + r).Store(j, rows[r]);
    }
  }
}

template <int kRows, bool kLower, class Row, class E>
LINALG_INLINE void DivideAndSolvePanel(const PassMatrix<E>& a, int n, int block, bool unit_diagonal,
                                       SplitRows<E, Row> x) {
  Divisor<E> divisors[kRows];
  for (int r = 0; !unit_diagonal && r < kRows; ++r) {
    divisors[r] = Divisor<E>(a(block + r, block + r));
  }
  SolvePanel<kRows, kLower, Row, E>(a, n, block, unit_diagonal ? nullptr : divisors, x);
}

// x := op(a)⁻¹ x by one pass over the row-major n by n matrix.
template <class Row, class E>
LINALG_ONCE void SolveOne(const SubstitutionPass& pass, int n, const E* matrix,
                          SplitRows<E, Row> x) {
  const PassMatrix<E> a(pass, n, matrix);
  const int whole = n - n % kPanel;
  // The rows that fill no panel are the last ones of either pass.
  const auto solve_rest = [&]<bool kLower>(std::bool_constant<kLower>, int block) {
    const auto solve = [&]<int kRows>(std::integral_constant<int, kRows>) {
      DivideAndSolvePanel<kRows, kLower>(a, n, block, pass.unit_diagonal, x);
    };
    static_assert(kPanel == 4);
    if (n % kPanel == 1) solve(std::integral_constant<int, 1>());
    if (n % kPanel == 2) solve(std::integral_constant<int, 2>());
    if (n % kPanel == 3) solve(std::integral_constant<int, 3>());
  };
  if (pass.lower) {
    for (int block = 0; block < whole; block += kPanel) {
      DivideAndSolvePanel<kPanel, true>(a, n, block, pass.unit_diagonal, x);
    }
    solve_rest(std::true_type(), whole);
  } else {
    for (int end = n; end >= kPanel; end -= kPanel) {
      DivideAndSolvePanel<kPanel, false>(a, n, end - kPanel, pass.unit_diagonal, x);
    }
    solve_rest(std::false_type(), 0);
  }
}

// The right-hand sides of one system, with rows padded to whole Rows.
template <class Row, class E>
class OneSystem {
  using V = RealElement<E>;
  using X = RowElement<E, Row>;
  static constexpr int kWidth = kColumns<V, Row>;

 public:
  // The numbers V that `memory` must have.
  static int64_t Size(int n, int count) {
    return static_cast<int64_t>(n) * PaddedColumns<V, Row>(count) * kPartsOf<E>;
  }

  LINALG_INLINE OneSystem(int n, int count, V* memory) : n_(n), count_(count) {
    const int stride = PaddedColumns<V, Row>(count);
    x_ = {memory, memory + (kComplexElement<E> ? n * stride : 0), stride};
  }

  // Reads `b`, whose rows are right-hand sides if `transposed`. Columns beyond the last one may
  // hold any numbers of the system.
  LINALG_INLINE void Load(const E* b, bool transposed) {
    ForEachBlock([&](int k, int j) {
      const int first = k * count_ + j;
      if (!transposed && first + kWidth <= n_ * count_) {
        return x_.Below(k).Store(j, LoadColumns<X>(b + first));
      }
      E part[kWidth] = {};
      for (int c = 0; c < kWidth && j + c < count_; ++c) {
        part[c] = b[transposed ? (j + c) * n_ + k : first + c];
      }
      x_.Below(k).Store(j, LoadColumns<X>(part));
    });
  }

  // The columns beyond the last one are overwritten by the next row.
  LINALG_INLINE void Store(E* target, bool transposed) const {
    ForEachBlock([&](int k, int j) {
      const X row = x_.Below(k).Load(j);
      const int first = k * count_ + j;
      if (!transposed && first + kWidth <= n_ * count_) return StoreColumns(row, target + first);
      E part[kWidth];
      StoreColumns(row, part);
      for (int c = 0; c < kWidth && j + c < count_; ++c) {
        target[transposed ? (j + c) * n_ + k : first + c] = part[c];
      }
    });
  }

  LINALG_INLINE void Solve(const Triangle& triangle, const E* a) {
    SolveOne<Row, E>(PassWith(triangle), n_, a, x_);
  }
  LINALG_INLINE void Solve(const TwoTriangles& triangles, const E* a) {
    Solve(triangles.first, a);
    Solve(triangles.second, a);
  }

  LINALG_INLINE void ExchangeRows(int i, int k) {
    for (int j = 0; j < x_.stride; ++j) {
      std::swap(x_.re[i * x_.stride + j], x_.re[k * x_.stride + j]);
      if constexpr (kComplexElement<E>) {
        std::swap(x_.im[i * x_.stride + j], x_.im[k * x_.stride + j]);
      }
    }
  }

 private:
  template <class Body>
  LINALG_INLINE void ForEachBlock(Body&& body) const {
    for (int k = 0; k < n_; ++k) {
      for (int j = 0; j < count_; j += kWidth) body(k, j);
    }
  }

  int n_, count_;
  SplitRows<E, Row> x_;
};

}  // namespace linalg::small
