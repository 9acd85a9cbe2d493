// Singular values of small matrices without vectors, one per lane.
//
// A tall matrix is reduced to its R. Reduction to real bidiagonal form is followed by implicit QR,
// or for float32 by QL without square roots in float64: there the sweeps' rounding errors do not
// matter. Matrices are scaled by a power of two to a norm near 1.
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

// The least eigenvalue of BᵀB, relative to the largest, whose root has the precision of a float if
// the sweeps ran in float64.
inline constexpr double kLeastSquare = 0x1p-24;

// The lanes whose bidiagonal B of diagonal d may have no value below that. The least value of B is
// at most the norm of its first column and of its last row.
template <class V>
LINALG_INLINE Mask<V> MaySuit(const V* d, int n) {
  V largest{};
  for (int i = 0; i < n; ++i) largest = Larger(d[i] * d[i], largest);
  const V least = Smaller(d[0] * d[0], d[n - 1] * d[n - 1]);
  return least > Broadcast<V>(static_cast<Lane<V>>(kLeastSquare / 4)) * largest;
}

// Replaces the diagonal d of an upper bidiagonal matrix B of norm about 1 by its singular values,
// unsorted, in float64. e has the n - 1 elements above it, and `work` is space for 6 n floats.
// Returns how many elements of e did not vanish.
//
// The values are the roots of BᵀB's eigenvalues, whose sweeps take a third of the time of
// GolubKahan's. The latter is for the lanes that have values too small for that.
template <class V>
LINALG_INLINE V WideValues(V* d, const V* e, int n, Wide<V>* work) {
  using W = Wide<V>;
  constexpr int kPieces = kLanesOf<V> / kLanesOf<W>;
  const W zero{};
  W *const diagonal = work, *const square = work + n * kPieces;
  for (int k = 0; k < kPieces; ++k) {
    W above = zero;
    for (int i = 0; i < n; ++i) {
      const W here = PieceIn<W>(d[i], k), beside = i < n - 1 ? PieceIn<W>(e[i], k) : zero;
      diagonal[i * kPieces + k] = MulAdd(above, above, here * here);
      square[i * kPieces + k] = (here * beside) * (here * beside);
      above = beside;
    }
  }
  // Without sweeps no lane suits below.
  if (Any(MaySuit(d, n))) {
    RootFreeSweeps<kPieces>(diagonal, square, n,
                            {.relative = Broadcast<W>(0x1p-96),
                             .absolute = Broadcast<W>(0x1p-400),
                             .least = Broadcast<W>(0x1p-120)});
  }
  V left{};
  W *const wide_d = square, *const wide_e = square + n;  // the squares of piece k are read before
  Mask<W> suits[kPieces];
  for (int k = 0; k < kPieces; ++k) {
    W smallest = diagonal[k], largest = diagonal[k], open = zero;
    for (int i = 0; i < n; ++i) {
      smallest = Smaller(diagonal[i * kPieces + k], smallest);
      largest = Larger(diagonal[i * kPieces + k], largest);
      if (i < n - 1) open = Larger(square[i * kPieces + k], open);
    }
    suits[k] = (smallest > Broadcast<W>(kLeastSquare) * largest) & (open == zero);
  }
  for (int k = 0; k < kPieces; ++k) {
    W found = zero;
    const bool again = Any(suits[k] == Mask<W>{});
    if (again) {
      for (int i = 0; i < n; ++i) {
        wide_d[i] = PieceIn<W>(d[i], k);
        if (i < n - 1) wide_e[i] = KeepIf<W>(suits[k] == Mask<W>{}, PieceIn<W>(e[i], k));
      }
      found = GolubKahan(wide_d, wide_e, n);
    }
    SetPiece(found, k, left);
    for (int i = 0; i < n; ++i) {
      const W value = Sqrt(Larger(diagonal[i * kPieces + k], zero));
      SetPiece(again ? (suits[k] ? value : wide_d[i]) : value, k, d[i]);
    }
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
    wide = arena.Take(std::max<int64_t>(6 * n, 2 * kRegisterBytes / sizeof(Lane<V>)));
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
    info = WideValues(work.values, work.beside, n, reinterpret_cast<Wide<V>*>(work.wide));
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
