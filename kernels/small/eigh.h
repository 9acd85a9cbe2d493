// Eigenvalues and eigenvectors of small Hermitian matrices, one per lane.
//
// Householder reduction to tridiagonal form, then implicit QL with Wilkinson's shift (Bowdler,
// Martin, Reinsch and Wilkinson, The QR and QL algorithms for symmetric matrices, 1968), or in
// float32 without vectors QL without square roots (root_free_ql.h). Every lane works on its own
// block in its own sweep, with identity rotations where it has none; the rotations go to the rows
// of the transposed eigenvectors of the tridiagonal matrix, which start from the identity, and the
// reflectors follow. Rounding errors of the sweeps add up, in the eigenvalues to many times those
// of the reduction: where that is to be refined, these are made anew from their vectors, and
// without vectors those of float32 are iterated for in float64. Matrices are scaled by a power of
// two to a norm near 1.
#pragma once

#include <algorithm>

#include "kernels/arithmetic/columns.h"
#include "kernels/arithmetic/hermitian.h"
#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/rotation.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/small/carver.h"
#include "kernels/small/hermitian.h"
#include "kernels/small/open_block.h"
#include "kernels/small/root_free_ql.h"
#include "kernels/small/tridiagonalise.h"

namespace linalg::small {

// Rotates row i + 1 of z with row i, for i = last - 1 down to first; kBlock registers of columns.
template <int kBlock, class Row, class V>
LINALG_INLINE void RotateRows(V* z, int stride, int first, int last, const V* sine,
                              const V* shear) {
  using T = Lane<V>;
  constexpr int kStep = kColumns<V, Row>;
  Row y[kBlock];
  const auto at = [&](int i, int b) { return reinterpret_cast<T*>(z + i * stride + b * kStep); };
#pragma GCC unroll 8
  for (int b = 0; b < kBlock; ++b) y[b] = LoadUnaligned<Row>(at(last, b));
  for (int i = last - 1; i >= first; --i) {
    const ShearedRotation<Row> rotation{Widen<Row>(sine[i]), Widen<Row>(shear[i])};
#pragma GCC unroll 8
    for (int b = 0; b < kBlock; ++b) {
      StoreUnaligned(rotation.Rotate(LoadUnaligned<Row>(at(i, b)), y[b]), at(i + 1, b));
    }
  }
#pragma GCC unroll 8
  for (int b = 0; b < kBlock; ++b) StoreUnaligned(y[b], at(first, b));
}

// So many sweeps' rotations reach the vectors together, while a block of columns is in the cache. A
// single matrix that has no registers of columns, as a CUDA thread's, has no cache to gain by it.
template <class Row>
inline constexpr int kPendingSweeps = kLanesOf<Row> == 1 ? 1 : 8;

// Diagonalises the tridiagonal matrix of diagonal d and off-diagonal e, both of n elements though
// the last of e is of no account, of norm about 1. With kVectors, z receives the transposed
// eigenvectors; `sine` and `shear` are work space of kPendingSweeps<Row> times n elements.
// Returns how many elements of e did not vanish.
template <bool kVectors, class Row, class V>
LINALG_INLINE V ImplicitQl(V* d, V* e, int n, V* z, int stride, V* sine, V* shear) {
  constexpr int kStep = kColumns<V, Row>;
  const V zero{}, one = Number<V>(1);
  if constexpr (kVectors) {
    for (int i = 0; i < n * stride; ++i) z[i] = zero;
    for (int i = 0; i < n; ++i) z[i * stride + i] = one;
  }
  int pending = 0, firsts[kPendingSweeps<Row>], lasts[kPendingSweeps<Row>];
  const auto rotate = [&](int sweeps) {
    if constexpr (kVectors) {
      ForEachHalvingBlock<8>(
          0, PaddedColumns<V, Row>(n) / kStep, [&](auto block, int register_first) {
            constexpr int kBlock = decltype(block)::value;
            for (int k = 0; k < pending; ++k) {
              // Each sweep fills one more diagonal below that of the identity: z is zero beyond.
              const int filled = (register_first + kBlock) * kStep + sweeps - pending + k;
              const int last = std::min(lasts[k], filled);
              if (last > firsts[k]) {
                RotateRows<kBlock, Row>(z + register_first * kStep, stride, firsts[k], last,
                                        sine + k * n, shear + k * n);
              }
            }
          });
    }
    pending = 0;
  };
  int first = 0;
  for (int sweep = 0; sweep <= kQlSweeps * n; ++sweep) {
    // Each lane's block, and what its shift depends on.
    OpenBlock<V> block(n, n);
    V d_low = zero, d_next = zero, e_low = one, d_high = d[n - 1];
    for (int i = first; i < n - 1; ++i) {
      const V x = Abs(e[i]) <= NegligibleBeside(d[i], d[i + 1]) ? zero : e[i];
      e[i] = x;
      const auto [begins, ends] = block.Add(i, x);
      d_low = begins ? d[i] : d_low;
      d_next = begins ? d[i + 1] : d_next;
      e_low = begins ? x : e_low;
      d_high = ends ? d[i] : d_high;
    }
    first = block.First();
    if (first == n) {
      rotate(sweep);
      return zero;
    }

    V g = QlStart(d_low, d_next, e_low, d_high);
    V s = one, c = one, p = zero;
    V d_above = d[n - 1];
    int last = 0;
    for (int i = n - 2; i >= first; --i) {
      const auto on = block.Holds(i);
      const V d_here = d[i];
      if (last == 0) {
        if (!Any(on)) {
          d_above = d_here;
          continue;
        }
        last = i + 1;
      }
      const QlStep<V> step(s, c, g, p, e[i], d_here, d_above);
      if constexpr (kVectors) {
        sine[pending * n + i] = on ? step.sine : zero;
        shear[pending * n + i] = on ? step.Shear() : zero;
      }
      const auto stops = block.low == Number<V>(i);
      e[i + 1] = on & (block.high > Number<V>(i + 1)) ? step.beside : e[i + 1];
      e[i] = stops ? step.g : e[i];
      d[i + 1] = on ? step.diagonal : d_above;
      d_above = stops ? d_here - step.p : d_here;
      g = on ? step.g : g;
      s = on ? step.sine : s;
      c = on ? step.cosine : c;
      p = on ? step.p : p;
    }
    d[first] = d_above;
    if constexpr (kVectors) {
      firsts[pending] = first;
      lasts[pending] = last;
      if (++pending == kPendingSweeps<Row>) rotate(sweep + 1);
    }
  }
  V left = zero;
  for (int i = 0; i < n - 1; ++i) left = e[i] != zero ? left + one : left;
  return left;
}

// Replaces eigenvalues w of the tridiagonal matrix of diagonal d and off-diagonal e by the Rayleigh
// quotients of their vectors, of norm 1, in the rows of z. The errors of QL's sweeps add up in the
// values as in the vectors, but the quotients' are of the second order in those of the vectors.
template <class Row, class V>
LINALG_INLINE void RefineEigenvalues(const V* d, V* e, int n, const V* z, int stride, V* w) {
  for (int j = 0; j < n - 1; ++j) e[j] = Broadcast<V>(2) * e[j];
  for (int i = 0; i < n; ++i) {
    const V* const v = z + i * stride;
    const V x = w[i], last = v[n - 1];
    const V sum = SumOf<V, Row>(0, n - 1, [&]<class B>(int j, B sum) {
      const B here = LoadColumns<B>(v + j);
      const B beside = LoadColumns<B>(e + j) * LoadColumns<B>(v + j + 1);
      return MulAdd(here, MulAdd(LoadColumns<B>(d + j) - x, here, beside), sum);
    });
    w[i] = x + MulAdd((d[n - 1] - x) * last, last, sum);
  }
}

// Sorts d, and makes `order` the places that its elements come from.
template <class V>
LINALG_INLINE void SortAscending(V* d, int n, V* order) {
  for (int i = 0; i < n; ++i) order[i] = Number<V>(i);
  SortLanes(
      n, [&](int j) { return d[j] < d[j - 1]; },
      [&](int j, auto lanes) {
        ExchangeWhere(lanes, d[j], d[j - 1]);
        ExchangeWhere(lanes, order[j], order[j - 1]);
      });
}

// target := the transpose of `source` with its rows in the order `order`, lane by lane.
template <class V>
LINALG_INLINE void TransposeOrdered(const V* source, int n, int stride, const V* order, V* target) {
  constexpr int kLanes = kLanesOf<V>;
  const auto* from = reinterpret_cast<const Lane<V>*>(source);
  const auto* places = reinterpret_cast<const Lane<V>*>(order);
  auto* to = reinterpret_cast<Lane<V>*>(target);
  for (int j = 0; j < n; ++j) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto* row = from + static_cast<int>(places[j * kLanes + lane]) * stride * kLanes + lane;
      for (int i = 0; i < n; ++i) to[(i * stride + j) * kLanes + lane] = row[i * kLanes];
    }
  }
}

// What Eigh works in, in elements V of memory that it is handed.
template <class E, class Row>
struct EigenWork {
  using V = RealElement<E>;

  LINALG_INLINE EigenWork(V* memory, int n, bool vectors) : stride(RowStride<V, Row>(n)) {
    Carver<V> carver(memory);
    const auto take_rows = [&](int64_t count) {
      return carver.template TakeRows<E, Row>(count, stride);
    };
    matrix = carver.template Take<E>(int64_t{n} * stride);
    a = take_rows(n);
    z = take_rows(vectors ? n : 0);
    rows = take_rows(kTridiagonaliseWorkRows);
    tau = carver.template Take<E>(stride);
    for (V** vector : {&d, &e, &order}) *vector = carver.Take(stride);
    for (V** angles : {&sine, &shear}) {
      *angles = carver.Take(vectors ? kPendingSweeps<Row> * stride : 0);
    }
    end = carver.Next();
  }

  int stride;
  // The operand, row-major and not padded, and in the end the eigenvectors.
  E* matrix;
  SplitRows<E, Row> a, z, rows;
  E* tau;
  V *d, *e, *order, *sine, *shear, *end;
};

// Eigenvalues of the Hermitian part of work.matrix in work.d, ascending, and the eigenvectors in
// the columns of work.matrix. Returns 0, or -1 in the lanes whose matrix holds NaN or Inf, or the
// number of off-diagonal elements that did not converge to zero; the results are NaN there.
// `refine` says that the eigenvalues are to be free of the sweeps' rounding errors.
template <bool kVectors, class E, class Row>
LINALG_INLINE RealElement<E> Eigh(const EigenWork<E, Row>& work, int n, HermitianPart part,
                                  bool refine = false) {
  using V = RealElement<E>;
  const auto [stride, matrix, a, z, rows, tau, d, e, order, sine, shear, end] = work;
  const V zero{};
  LowerHermitianPart(matrix, n, part);
  std::conditional_t<(kColumns<V, Row> > 1), RowExtent<Row>, Extent<E>> extent;
  for (int i = 0; i < n; ++i) {
    if constexpr (kColumns<V, Row> > 1) {
      extent.Add(reinterpret_cast<const V*>(matrix + i * n), (i + 1) * kPartsOf<E>);
    } else {
      for (int j = 0; j <= i; ++j) extent.Add(matrix[i * n + j]);
    }
  }
  const auto finite = extent.Finite();
  V unscale;
  const V scale = extent.Scale(unscale);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j <= i; ++j) {
      const E x = Choose(finite, scale * matrix[i * n + j], E{});
      a.Below(i).Set(j, x);
      a.Below(j).Set(i, Conj(x));
    }
    for (int j = n; j < PaddedColumns<V, Row>(n); ++j) a.Below(i).Set(j, E{});
  }
  for (int i = 0; i < kTridiagonaliseWorkRows; ++i) {
    for (int j = 0; j < stride; ++j) rows.Below(i).Set(j, E{});
  }
  Tridiagonalise(a, n, rows, d, e, tau);
  V* rotated = reinterpret_cast<V*>(matrix);
  V info;
  if constexpr (kVectors) {
    // z is free as yet; the first of its rows alone where there is nothing beside the diagonal.
    V *const diagonal = z.re, *const beside = z.Below(n > 1).re;
    for (int i = 0; i < n; ++i) diagonal[i] = d[i];
    for (int i = 0; i < n - 1; ++i) beside[i] = e[i];
    info = ImplicitQl<true, Row>(d, e, n, rotated, stride, sine, shear);
    if (refine) RefineEigenvalues<Row>(diagonal, beside, n, rotated, stride, d);
  } else {
    if constexpr (std::is_same_v<Lane<V>, float>) {
      // The operand is free, and so is what lies behind it.
      info = refine ? RootFreeQl(d, e, n, reinterpret_cast<Wide<V>*>(matrix))
                    : RootFreeQl(d, e, n, rotated);
    } else {
      info = ImplicitQl<false, Row>(d, e, n, rotated, stride, sine, shear);
    }
  }
  info = finite ? info : Broadcast<V>(kNotFinite);
  SortAscending(d, n, order);
  // Zero is added, here and below, because a lane that rests while others work does not keep the
  // sign of its zeros.
  for (int i = 0; i < n; ++i) d[i] = MulAdd(d[i], unscale, zero);
  FillNaN(info != zero, n, d);
  if constexpr (kVectors) {
    TransposeOrdered(rotated, n, stride, order, z.re);
    if constexpr (kComplexElement<E>) {
      for (int i = 0; i < n * stride; ++i) z.im[i] = zero;
    }
    ApplyReflectors(a, tau, n, z);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) matrix[i * n + j] = z.Below(i).Get(j) + E{};
    }
    FillNaN(info != zero, n * n, matrix);
  }
  return info;
}

}  // namespace linalg::small
