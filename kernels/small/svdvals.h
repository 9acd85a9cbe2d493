// Singular values of small matrices without vectors, one per lane.
//
// A tall matrix is reduced to its R. Reduction to real bidiagonal form is followed by implicit QR,
// in float64 for float32: there the sweeps' rounding errors do not matter. Matrices are scaled by a
// power of two to a norm near 1.
#pragma once

#include <algorithm>

#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/registers.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/small/arena.h"
#include "kernels/small/bidiagonalise.h"
#include "kernels/small/golub_kahan.h"
#include "kernels/small/householder.h"
#include "kernels/small/root_free_ql.h"

namespace linalg::small {

// GolubKahan for floats, in float64; `work` has 2 n elements.
template <class V>
LINALG_INLINE V WideGolubKahan(V* d, const V* e, int n, Wide<V>* work) {
  using W = Wide<V>;
  V left{};
  for (int k = 0; k < kLanesOf<V> / kLanesOf<W>; ++k) {
    for (int i = 0; i < n; ++i) {
      work[i] = PieceIn<W>(d[i], k);
      if (i < n - 1) work[n + i] = PieceIn<W>(e[i], k);
    }
    SetPiece(GolubKahan(work, work + n, n), k, left);
    for (int i = 0; i < n; ++i) SetPiece(work[i], k, d[i]);
  }
  return left;
}

// The workspace of Svdvals, in an array of V.
template <class E>
struct SvdvalsWork {
  using V = RealElement<E>;

  SvdvalsWork(V* memory, int64_t rows, int64_t cols) {
    const int64_t n = std::min(rows, cols);
    Arena<V> arena(memory);
    // Comes first, since it also serves as the margin before the matrix: space for doubles, and at
    // least two registers.
    wide = arena.Take(std::max<int64_t>(4 * n, 2 * kRegisterBytes / sizeof(Lane<V>)));
    matrix = arena.template Take<E>(rows * cols);
    reflectors = arena.template Take<E>(rows * cols);
    taus = arena.template Take<E>(n);
    values = arena.Take(n);
    beside = arena.Take(n);
    end = arena.Next();
  }

  E* matrix;  // the operand, row-major
  E *reflectors, *taus;
  V *values, *beside, *wide, *end;
};

// Computes the singular values of work.matrix, descending, in work.values. Returns 0, -1 in the
// lanes whose matrix holds NaN or Inf, or how many elements did not converge. Results are NaN where
// it is not 0. Columns are updated in blocks B.
template <class B, class E>
LINALG_INLINE RealElement<E> Svdvals(const SvdvalsWork<E>& work, int rows, int cols) {
  using V = RealElement<E>;
  const V zero{};
  const bool tall = rows >= cols;
  const int m = tall ? rows : cols, n = tall ? cols : rows;
  E* const a = work.matrix;
  // The first block of columns also covers the margin before the matrix.
  constexpr int kMargin = kColumns<E, B> - 1;
  std::fill_n(a - kMargin, kMargin, E{});
  Extent<E> extent;
  for (int i = 0; i < m * n; ++i) extent.Add(a[i]);
  const auto finite = extent.Finite();
  V unscale;
  const V scale = extent.Scale(unscale);
  for (int i = 0; i < m * n; ++i) a[i] = Choose(finite, scale * a[i], E{});
  E* square = a;
  if (m > n) {
    E* const upright = tall ? a : work.reflectors;
    E* const vectors = tall ? work.reflectors : a;
    for (int i = 0; !tall && i < m; ++i) {
      for (int j = 0; j < n; ++j) upright[i * n + j] = Conj(a[j * m + i]);
    }
    HouseholderQr<B>(upright, n, m, n, vectors, work.taus);
    square = upright;
  }
  const BidiagonalReflectors<E> lost{.left = work.taus, .right = work.taus};
  Bidiagonalise<B>(square, n, lost, work.values, work.beside);
  V info;
  if constexpr (std::is_same_v<Lane<V>, float>) {
    info = WideGolubKahan(work.values, work.beside, n, reinterpret_cast<Wide<V>*>(work.wide));
  } else {
    info = GolubKahan(work.values, work.beside, n);
  }
  info = finite ? info : Broadcast<V>(kNotFinite);
  V* const values = work.values;
  SortLanes(
      n, [&](int j) { return values[j] > values[j - 1]; },
      [&](int j, auto lanes) { ExchangeWhere(lanes, values[j], values[j - 1]); });
  // Adds zero: an idle lane does not keep the signs of its zeros.
  for (int i = 0; i < n; ++i) work.values[i] = MulAdd(work.values[i], unscale, zero);
  FillNaN(info != zero, n, work.values);
  return info;
}

}  // namespace linalg::small
