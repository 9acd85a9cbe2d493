// Reduction of one square matrix to real lower bidiagonal form.
//
// Applies Householder reflectors from the right and the left in turn (Golub and Kahan, Calculating
// the singular values and pseudo-inverse of a matrix, 1965). The rank-2 update of a step is fused
// with the products for the next step.
//
// One pass computes the products for both reflectors. The product of a row with the right reflector
// also yields the row's factor for the left one, up to scale. The source is Howell, Demmel, Fulton,
// Hammarling and Marmol, Cache efficient bidiagonalization using BLAS 2.5 operators, 2008.
#pragma once

#include "kernels/blocked/reducing_passes.h"

namespace linalg::blocked {

// The operands of a pass over the rows. The pending update is a -= left[0] right[0]ᵀ + left[1]
// right[1]ᵀ. v is the vector of the right reflector. The pass computes the products `av` with v,
// the column for the left reflector, and `sum`, the product of that column's adjoint with the
// matrix.
template <class T>
struct BidiagonalPass {
  const T* left[2];
  const T* right[2];
  const T* v;
  Element<T> tau;
  T *av, *column, *sum;
};

// The pass over kRows rows from i on and columns from `begin` to `end`. The column is column k of
// the matrix. kFirst leaves the column's first element out of the sum.
template <class T, int kRows, bool kFirst>
LINALG_INLINE void PassOverRows(Rows<T> a, int64_t i, int64_t k, int64_t begin, int64_t end,
                                const BidiagonalPass<T>& pass) {
  using V = Register<T>;
  using E = Element<T>;
  Element<T, V> left[2][kRows], conj_column[kRows];
  Dot<T> dots[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    left[0][r] = -WidenElement(pass.left[0] + i + r);
    left[1][r] = -WidenElement(pass.left[1] + i + r);
  }
  for (int64_t j = begin; j < end; j += kWidth<T>) {
    const V x = Load<T>(pass.right[0] + j), y = Load<T>(pass.right[1] + j);
    const V turned_x = Turn<T>(x), turned_y = Turn<T>(y), v = Load<T>(pass.v + j);
    V swapped{};
    if constexpr (kComplexElement<T>) swapped = SwapPairs(v);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      T* const place = a.At(i + r, j).data;
      V z = AddProduct<T>(left[0][r], x, turned_x, Load<T>(place));
      z = AddProduct<T>(left[1][r], y, turned_y, z);
      Store<T>(z, place);
      dots[r].Add(z, v, swapped);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const E product = dots[r].Total();
    const E reflected = NegMulAdd(pass.tau, product, std::bit_cast<E>(*a.At(i + r, k).data));
    pass.av[i + r] = std::bit_cast<T>(product);
    pass.column[i + r] = std::bit_cast<T>(reflected);
    conj_column[r] = WidenElement<T>(kFirst && r == 0 ? E{} : Conj(reflected));
  }
  for (int64_t j = begin; j < end; j += kWidth<T>) {
    V sum = Load<T>(pass.sum + j);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const V x = Load<T>(a.At(i + r, j).data);
      sum = AddProduct<T>(conj_column[r], x, Turn<T>(x), sum);
    }
    Store<T>(sum, pass.sum + j);
  }
}

// The new leading element. If there is nothing to reflect it is alpha itself, however small.
template <class E>
LINALG_INLINE RealElement<E> LeftOf(E alpha, const TridiagonalScale<E>& made) {
  return NormAdd(made.tau, RealElement<E>{}) == 0 ? Re(alpha) : made.beside;
}

inline constexpr int kBidiagonalRows = 7 + kMostPassPieces;

// Reduces the n by n matrix `a`, of a norm near 1. Right of the matrix, `a` must have zeros up to
// the end of a register. d receives the diagonal, e the n - 1 elements below it.
//
// Row k of `a` becomes the conjugate of the vector of right reflector k, from the diagonal on, with
// the factor right_taus[k]. Row k + 1 of `left` becomes the vector of left reflector k, from the
// diagonal on, with the factor left_taus[k + 1]. Row 0 of `left` is unchanged. `work` has
// kBidiagonalRows rows of n + kTileRows elements.
template <class T>
void Bidiagonalise(int64_t n, Rows<T> a, Rows<T> left, Rows<T> work, RealElement<T>* d,
                   RealElement<T>* e, T* right_taus, T* left_taus, const RunTasks& run_tasks) {
  using V = Register<T>;
  using E = Element<T>;
  constexpr int kRows = kPassRows<T>;
  const int64_t end = RoundUp(n, kWidth<T>), rows_end = RoundUp(n + kRows, kWidth<T>);
  for (int i = 0; i < kBidiagonalRows; ++i) std::fill_n(work.At(i, 0).data, rows_end, T(0));
  const auto row = [&](int i) { return work.At(i, 0).data; };
  T *const p = row(0), *const q = row(1), *const y = row(2), *const v = row(3);
  T *const av = row(4), *const column = row(5);
  const T* before = row(6);  // of the pending update p beforeᵀ + q yᵀ
  const auto sum_of = [&](int64_t piece) { return row(static_cast<int>(7 + piece)); };
  for (int64_t k = 0; k < n; ++k) {
    T* const here = a.At(k, 0).data;
    const int64_t begin = k / kWidth<T> * kWidth<T>;
    {
      const auto minus_p = -WidenElement(p + k), minus_q = -WidenElement(q + k);
      for (int64_t j = begin; j < end; j += kWidth<T>) {
        const V x = Load<T>(before + j), z = Load<T>(y + j);
        const V updated = AddProduct<T>(minus_p, x, Turn<T>(x), Load<T>(here + j));
        Store<T>(AddProduct<T>(minus_q, z, Turn<T>(z), updated), here + j);
      }
    }
    // The right reflector is that of the row's adjoint.
    const E alpha = Conj(std::bit_cast<E>(here[k]));
    std::fill(here + begin, here + k + 1, T(0));
    const TridiagonalScale<E> right(alpha, SumOfSquares(here, k, n));
    d[k] = LeftOf(alpha, right);
    right_taus[k] = std::bit_cast<T>(right.tau);
    const auto scale = WidenElement<T>(Conj(right.scale));
    for (int64_t j = begin; j < end; j += kWidth<T>) {
      const V x = Product<T>(scale, Load<T>(here + j));
      Store<T>(x, here + j);
      Store<T>(ConjPairs<T>(x), v + j);
    }
    here[k] = v[k] = T(1);
    if (k + 1 == n) break;

    const int64_t order = n - k - 1, pieces = PassPieces<T>(order * order);
    const auto begin_of = [&](int64_t piece) {
      return k + 1 + order * piece / pieces / kRows * kRows;
    };
    Run(run_tasks, pieces, [&](int64_t piece) {
      const BidiagonalPass<T> pass{.left = {p, q},
                                   .right = {before, y},
                                   .v = v,
                                   .tau = right.tau,
                                   .av = av,
                                   .column = column,
                                   .sum = sum_of(piece)};
      std::fill(pass.sum + begin, pass.sum + end, T(0));
      int64_t i = begin_of(piece);
      if (piece == 0) {
        PassOverRows<T, kRows, true>(a, i, k, begin, end, pass);
        i += kRows;
      }
      const int64_t end_of_piece = piece + 1 == pieces ? n : begin_of(piece + 1);
      for (; i < end_of_piece; i += kRows) {
        PassOverRows<T, kRows, false>(a, i, k, begin, end, pass);
      }
    });

    const int64_t first = (k + 1) / kWidth<T> * kWidth<T>;
    const E top = std::bit_cast<E>(column[k + 1]);
    std::fill(column + first, column + k + 2, T(0));
    std::fill(column + n, column + end, T(0));
    const TridiagonalScale<E> made(top, SumOfSquares(column, k + 1, n));
    e[k] = LeftOf(top, made);
    left_taus[k + 1] = std::bit_cast<T>(made.tau);
    T* const u = left.At(k + 1, 0).data;
    const auto left_scale = WidenElement<T>(made.scale), left_tau = WidenElement<T>(Conj(made.tau));
    const auto right_tau = WidenElement<T>(right.tau);
    for (int64_t i = first; i < end; i += kWidth<T>) {
      Store<T>(Product<T>(left_scale, Load<T>(column + i)), u + i);
    }
    u[k + 1] = T(1);
    Dot<T> dot;
    for (int64_t i = first; i < end; i += kWidth<T>) {
      const V x = Load<T>(av + i), z = Load<T>(u + i), conj = ConjPairs<T>(z);
      if constexpr (kComplexElement<T>) {
        dot.Add(x, conj, SwapPairs(conj));
      } else {
        dot.Add(x, conj, conj);
      }
      Store<T>(Product<T>(right_tau, x), p + i);
      Store<T>(Product<T>(left_tau, z), q + i);
    }
    // uᴴ a, after the right reflector has been applied to a.
    const auto sum_scale = WidenElement<T>(Conj(made.scale));
    const auto coupling = -WidenElement<T>(Mul(right.tau, dot.Total()));
    const T* const below = a.At(k + 1, 0).data;
    for (int64_t j = begin; j < end; j += kWidth<T>) {
      const V x = SumOfPieces<T>(pieces, j, sum_of), z = Load<T>(here + j);
      const V product = AddProduct<T>(sum_scale, x, Turn<T>(x), Load<T>(below + j));
      Store<T>(AddProduct<T>(coupling, z, Turn<T>(z), product), y + j);
    }
    std::fill(y + begin, y + k + 1, T(0));
    before = here;
  }
}

}  // namespace linalg::blocked
