// Eigenvalues and eigenvectors of small Hermitian matrices, one per lane.
//
// Householder reduction to tridiagonal form is followed by implicit QL with Wilkinson's shift
// (Bowdler, Martin, Reinsch and Wilkinson, The QR and QL algorithms for symmetric matrices, 1968).
// In float32 without vectors, QL without square roots takes its place (root_free_ql.h). Each lane
// sweeps its own block, with identity rotations elsewhere. The rotations apply to the transposed
// eigenvectors of the tridiagonal matrix, which start from the identity. The reflectors are applied
// last.
//
// Rounding errors of the sweeps add up, in the eigenvalues to many times those of the reduction.
// Refinement recomputes the eigenvalues from the vectors. Without vectors, it iterates float32
// matrices in float64. Matrices are scaled by a power of two to a norm near 1.
#pragma once

#include <algorithm>

#include "kernels/arithmetic/columns.h"
#include "kernels/arithmetic/hermitian.h"
#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/small/arena.h"
#include "kernels/small/hermitian.h"
#include "kernels/small/open_block.h"
#include "kernels/small/ordered.h"
#include "kernels/small/pending_rotations.h"
#include "kernels/small/root_free_ql.h"
#include "kernels/small/tridiagonalise.h"

namespace linalg::small {

// Diagonalises the tridiagonal matrix, of norm about 1, with the diagonal d and the off-diagonal e.
// Both have n elements; the last of e is ignored. The rows of `rotations` become the transposed
// eigenvectors. Returns how many elements of e did not vanish.
template <class V, class Rotations>
LINALG_ONCE V ImplicitQl(V* d, V* e, int n, Rotations&& rotations) {
  const V zero{}, one = Number<V>(1);
  int first = 0;
  for (int sweep = 0; sweep <= kQlSweeps * n; ++sweep) {
    // Finds each lane's block and the elements that its shift depends on.
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
      rotations.Apply();
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
      rotations.Add(i, on ? step.sine : zero, on ? step.Shear() : zero);
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
    rotations.EndSweep(first, last);
  }
  V left = zero;
  for (int i = 0; i < n - 1; ++i) left = e[i] != zero ? left + one : left;
  return left;
}

// Replaces eigenvalues w of the tridiagonal matrix (d, e) by the Rayleigh quotients of their
// vectors, of norm 1, in the rows of z. The sweeps' errors add up in w and in z, but a quotient's
// error is of second order in the error of its vector.
template <class Row, class V>
LINALG_ONCE void RefineEigenvalues(const V* d, V* e, int n, const V* z, int stride, V* w) {
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

// The workspace of Eigh, in an array of V.
template <class E, class Row>
struct EigenWork {
  using V = RealElement<E>;

  LINALG_INLINE EigenWork(V* memory, int n, bool vectors) : stride(RowStride<V, Row>(n)) {
    Arena<V> arena(memory);
    const auto take_rows = [&](int64_t count) {
      return arena.template TakeRows<E, Row>(count, stride);
    };
    matrix = arena.template Take<E>(int64_t{n} * stride);
    a = take_rows(n);
    z = take_rows(vectors ? n : 0);
    rows = take_rows(kTridiagonaliseWorkRows);
    tau = arena.template Take<E>(stride);
    for (V** vector : {&d, &e, &order}) *vector = arena.Take(stride);
    for (V** angles : {&sine, &shear}) {
      *angles = arena.Take(vectors ? kPendingSweeps<Row> * stride : 0);
    }
    end = arena.Next();
  }

  int stride;
  // The operand, row-major and not padded, and then the eigenvectors.
  E* matrix;
  SplitRows<E, Row> a, z, rows;
  E* tau;
  V *d, *e, *order, *sine, *shear, *end;
};

// Computes the eigenvalues of the Hermitian part of work.matrix in work.d, ascending, and the
// eigenvectors in the columns of work.matrix. Returns 0, -1 in the lanes whose matrix holds NaN or
// Inf, or how many off-diagonal elements did not converge. Results are NaN where it is not 0.
// `refine` removes the sweeps' rounding errors from the eigenvalues.
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
    // z is still free. If n = 1 it has one row, and `beside` stays empty.
    V *const diagonal = z.re, *const beside = z.Below(n > 1).re;
    for (int i = 0; i < n; ++i) diagonal[i] = d[i];
    for (int i = 0; i < n - 1; ++i) beside[i] = e[i];
    info = ImplicitQl(d, e, n, PendingRotations<false, Row, V>(rotated, n, stride, sine, shear));
    if (refine) RefineEigenvalues<Row>(diagonal, beside, n, rotated, stride, d);
  } else {
    if constexpr (std::is_same_v<Lane<V>, float>) {
      // The operand and the memory behind it are free.
      info = refine ? RootFreeQl(d, e, n, reinterpret_cast<Wide<V>*>(matrix))
                    : RootFreeQl(d, e, n, rotated);
    } else {
      info = ImplicitQl(d, e, n, WithoutRotations());
    }
  }
  info = finite ? info : Broadcast<V>(kNotFinite);
  SortOrdered<false>(d, n, order);
  // Adds zero, here and below: an idle lane does not keep the signs of its zeros.
  for (int i = 0; i < n; ++i) d[i] = MulAdd(d[i], unscale, zero);
  FillNaN(info != zero, n, d);
  if constexpr (kVectors) {
    TransposeOrdered(rotated, n, stride, order, z.re, stride);
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
