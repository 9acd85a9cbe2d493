// Reduction of one Hermitian matrix to real symmetric tridiagonal form, in the upper triangle.
//
// The Householder reflectors are those of LAPACK's hetd2. One pass applies the rank-2 update of a
// step and multiplies by the next vector (Dongarra, Sorensen and Hammarling, Block reduction of
// matrices to condensed forms, 1989). It reads and writes an element of the triangle once and uses
// it for both halves.
#pragma once

#include <cmath>

#include "kernels/blocked/reducing_passes.h"

namespace linalg::blocked {

// Updates kRows rows from i on, a -= v wᴴ + w vᴴ, and adds their part of the product a u. `own`
// receives the elements of these rows. `others` receives the conjugated sums for other rows.
// Squares on the diagonal, a register wide, are full.
template <class T, int kRows>
LINALG_INLINE void UpdateAndMultiply(Rows<T> a, int64_t i, int64_t cols, const T* v, const T* w,
                                     const T* u, T* own, T* others) {
  using V = Register<T>;
  static_assert(kWidth<T> % kRows == 0);
  Element<T, V> minus_v[kRows], minus_w[kRows], conj_u[kRows];
  Dot<T> dots[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    minus_v[r] = -WidenElement(v + i + r);
    minus_w[r] = -WidenElement(w + i + r);
    conj_u[r] = Conj(WidenElement(u + i + r));
  }
  const int64_t diagonal = i / kWidth<T> * kWidth<T>;
  const auto pass = [&](int64_t j, auto&& use) {
    const V vj = ConjPairs<T>(Load<T>(v + j)), wj = ConjPairs<T>(Load<T>(w + j));
    const V turned_v = Turn<T>(vj), turned_w = Turn<T>(wj), uj = Load<T>(u + j);
    V swapped{};
    if constexpr (kComplexElement<T>) swapped = SwapPairs(uj);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      T* const place = a.At(i + r, j).data;
      V x = AddProduct<T>(minus_v[r], wj, turned_w, Load<T>(place));
      x = AddProduct<T>(minus_w[r], vj, turned_v, x);
      Store<T>(x, place);
      dots[r].Add(x, uj, swapped);
      use(r, x);
    }
  };
  pass(diagonal, [](int, V) {});
  for (int64_t j = diagonal + kWidth<T>; j < cols; j += kWidth<T>) {
    V sum = Load<T>(others + j);
    pass(j, [&](int r, V x) { sum = AddProduct<T>(conj_u[r], x, Turn<T>(x), sum); });
    Store<T>(sum, others + j);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) own[i + r] = std::bit_cast<T>(dots[r].Total());
}

inline constexpr int kTridiagonalRows = 3 + kMostPassPieces;

// Reduces the upper triangle of `a`, of a norm near 1, with full squares on the diagonal. d
// receives the diagonal, e the n - 1 off-diagonal elements. Row k of `a` becomes the vector of
// reflector k, right of the diagonal, and taus[k] its factor. `work` has kTridiagonalRows rows and
// is n wide.
template <class T>
void Tridiagonalise(int64_t n, Rows<T> a, Rows<T> work, RealElement<T>* d, RealElement<T>* e,
                    T* taus, const RunTasks& run_tasks) {
  using R = RealElement<T>;
  using V = Register<T>;
  using E = Element<T>;
  constexpr int kRows = kPassRows<T>;
  const int64_t cols = RoundUp(n, kWidth<T>), reflectors = ReflectorCount<E>(static_cast<int>(n));
  for (int i = 0; i < kTridiagonalRows; ++i) std::fill_n(work.At(i, 0).data, cols, T(0));
  T *const own = work.At(0, 0).data, *const w = work.At(1, 0).data;
  // The previous reflector's vector, whose update is pending.
  const T* v = work.At(2, 0).data;
  const auto others = [&](int64_t piece) { return work.At(3 + piece, 0).data; };
  for (int64_t k = 0; k < n; ++k) {
    T* const u = a.At(k, 0).data;
    const int64_t begin = k / kWidth<T> * kWidth<T>;
    {
      const auto minus_v = -WidenElement(v + k), minus_w = -WidenElement(w + k);
      for (int64_t j = begin; j < cols; j += kWidth<T>) {
        const V vj = ConjPairs<T>(Load<T>(v + j)), wj = ConjPairs<T>(Load<T>(w + j));
        const V x = AddProduct<T>(minus_v, wj, Turn<T>(wj), Load<T>(u + j));
        Store<T>(AddProduct<T>(minus_w, vj, Turn<T>(vj), x), u + j);
      }
    }
    d[k] = std::real(u[k]);
    if (k >= reflectors) {
      if (k + 1 < n) e[k] = std::real(u[k + 1]);
      continue;
    }

    // The column is the adjoint of the stored row.
    const E alpha = Conj(std::bit_cast<E>(u[k + 1]));
    std::fill(u + begin, u + k + 2, T(0));
    const TridiagonalScale<E> made(alpha, SumOfSquares(u, k, n));
    e[k] = made.beside;
    taus[k] = std::bit_cast<T>(made.tau);
    const auto scale = WidenElement<T>(made.scale);
    for (int64_t j = begin; j < cols; j += kWidth<T>) {
      Store<T>(Product<T>(scale, ConjPairs<T>(Load<T>(u + j))), u + j);
    }
    u[k + 1] = T(1);

    const int64_t order = n - k - 1, pieces = PassPieces<T>(order * order / 2);
    // Splits the triangle into pieces of equal area.
    const auto begin_of = [&](int64_t piece) {
      if (piece == 0) return k + 1;
      const double below = std::sqrt(1 - static_cast<double>(piece) / static_cast<double>(pieces));
      const int64_t row = n - static_cast<int64_t>(below * static_cast<double>(order));
      return row / kRows * kRows;
    };
    Run(run_tasks, pieces, [&](int64_t piece) {
      T* const sums = others(piece);
      std::fill(sums + begin, sums + cols, T(0));
      const int64_t end = piece + 1 == pieces ? n : begin_of(piece + 1);
      int64_t i = begin_of(piece);
      for (; i % kRows != 0; ++i) UpdateAndMultiply<T, 1>(a, i, cols, v, w, u, own, sums);
      for (; i < end; i += kRows) UpdateAndMultiply<T, kRows>(a, i, cols, v, w, u, own, sums);
      std::fill(sums + begin, sums + k + 1, T(0));
    });
    std::fill(own + begin, own + k + 1, T(0));
    // w = tau a u + c u. This c makes the update equal to the reflection from both sides.
    V dot{};
    for (int64_t j = begin; j < cols; j += kWidth<T>) {
      const V product = Load<T>(own + j) + ConjPairs<T>(SumOfPieces<T>(pieces, j, others));
      dot = MulAdd(product, Load<T>(u + j), dot);
      Store<T>(product, w + j);
    }
    const R c = ReflectedShare(made.tau, SumOfLanes(dot));
    const auto tau = WidenElement<T>(made.tau);
    for (int64_t j = begin; j < cols; j += kWidth<T>) {
      const V x = Load<T>(w + j), y = Widen<V>(c) * Load<T>(u + j);
      Store<T>(AddProduct<T>(tau, x, Turn<T>(x), y), w + j);
    }
    v = u;
  }
}

}  // namespace linalg::blocked
