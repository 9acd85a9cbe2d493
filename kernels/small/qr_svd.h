// Singular values and vectors of small square matrices of a norm near 1, one per lane, by reduction
// to real bidiagonal form and implicit QR.
//
// The rotations apply to the transposed singular vectors of the bidiagonal matrix, which are real
// and start from the identity. The reflectors are applied last. The singular values are recomputed
// from the vectors.
#pragma once

#include <algorithm>

#include "kernels/arithmetic/columns.h"
#include "kernels/small/arena.h"
#include "kernels/small/bidiagonalise.h"
#include "kernels/small/golub_kahan.h"
#include "kernels/small/householder.h"
#include "kernels/small/ordered.h"
#include "kernels/small/pending_rotations.h"

namespace linalg::small {

// The singular vectors of a real bidiagonal matrix, rotated by GolubKahan. They do not depend on
// the type of the original matrix, so real and complex matrices share one iteration.
template <class Row, class V>
class BidiagonalVectors {
 public:
  // The vectors of one side, in rows, and their pending rotations.
  struct Side {
    V *rows, *sine, *shear;
  };

  // The matrix is n by n, with diagonal d and superdiagonal e. The vectors' rows are `stride`
  // apart.
  LINALG_INLINE BidiagonalVectors(const V* d, const V* e, int n, int stride, const Side& left,
                                  const Side& right)
      : d_(d),
        e_(e),
        n_(n),
        stride_(stride),
        left_rows_(left.rows),
        right_rows_(right.rows),
        left_(left.rows, n, stride, left.sine, left.shear),
        right_(right.rows, n, stride, right.sine, right.shear) {}

  LINALG_INLINE void Left(int i, Mask<V> on, const PlaneRotation<V>& rotation) {
    left_.Add(i, KeepIf<V>(on, rotation.sine), KeepIf<V>(on, rotation.Shear()));
  }
  LINALG_INLINE void Right(int i, Mask<V> on, const PlaneRotation<V>& rotation) {
    right_.Add(i, KeepIf<V>(on, rotation.sine), KeepIf<V>(on, rotation.Shear()));
  }
  LINALG_INLINE void Skip(int i) {
    left_.Add(i, V{}, V{});
    right_.Add(i, V{}, V{});
  }
  LINALG_INLINE void EndSweep(int first, int last) {
    left_.EndSweep(first, last);
    right_.EndSweep(first, last);
  }
  LINALG_INLINE void End(V* s) {
    left_.Apply();
    right_.Apply();
    Refine(s);
  }
  LINALG_INLINE void Negate(int i, Mask<V> negative) {
    if (!Any(negative)) return;
    V* const row = right_rows_ + i * stride_;
    for (int j = 0; j < n_; ++j) row[j] = negative ? -row[j] : row[j];
  }

 private:
  using Rotations = PendingRotations<true, Row, V>;

  // Recomputes singular values s from their vectors u and v, as uᵀ B v over the norms, which are
  // nearly 1. The sweeps' errors add up in s and in the vectors, but this product's error is of
  // second order in the vectors' errors.
  LINALG_INLINE void Refine(V* s) const {
    for (int i = 0; i < n_; ++i) {
      const V *const u = left_rows_ + i * stride_, *const v = right_rows_ + i * stride_;
      const V x = s[i], half = Number<V>(0.5) * x;
      // Element j contributes to uᵀ (B v - x u) and to the difference of the norms.
      const auto add = [&]<class C>(C left, C right, C image, C sum) {
        return MulAdd(left, image - x * left, MulAdd(half * (left - right), left + right, sum));
      };
      const V sum = SumOf<V, Row>(0, n_ - 1, [&]<class C>(int j, C sum) {
        const C left = LoadColumns<C>(u + j), right = LoadColumns<C>(v + j);
        const C beside = LoadColumns<C>(e_ + j) * LoadColumns<C>(v + j + 1);
        return add(left, right, MulAdd(LoadColumns<C>(d_ + j), right, beside), sum);
      });
      const int last = n_ - 1;
      s[i] = x + add(u[last], v[last], d_[last] * v[last], sum);
    }
  }

  const V *d_, *e_;
  int n_, stride_;
  V *left_rows_, *right_rows_;
  Rotations left_, right_;
};

// The interface that Svd of svd.h expects. Rows of vectors are in registers Row; columns are
// updated in blocks B.
template <class E_, class Row, class B>
class QrSvd {
 public:
  using E = E_;
  using V = RealElement<E>;
  // Elements before the matrix that are read and written.
  static constexpr int kMargin = kColumns<E, B> - 1;

  LINALG_INLINE QrSvd(Arena<V>& arena, E* matrix, int n)
      : n_(n), stride_(RowStride<V, Row>(n)), matrix_(matrix) {
    const auto take = [&](int64_t count) { return arena.template Take<E>(count); };
    reflectors_ = {
        .left = take(n * n), .right = take(n * n), .left_taus = take(n), .right_taus = take(n)};
    for (Side* side : {&left_, &right_}) {
      side->rows = arena.Take(n * stride_);
      side->sine = arena.Take(kPendingSweeps<Row> * n);
      side->shear = arena.Take(kPendingSweeps<Row> * n);
    }
    d_ = arena.Take(stride_);
    e_ = arena.Take(stride_);
    beside_ = arena.Take(n);
    order_ = arena.Take(n);
  }

  LINALG_INLINE void Set(int i, int j, E x) const { matrix_[i * n_ + j] = x; }

  template <bool kVectors>
  LINALG_INLINE V Solve(V* s) const {
    static_assert(kVectors, "svdvals.h is for values alone");
    std::fill_n(matrix_ - kMargin, kMargin, E{});
    Bidiagonalise<B>(matrix_, n_, reflectors_, d_, e_);
    for (int i = 0; i < n_; ++i) {
      s[i] = d_[i];
      if (i < n_ - 1) beside_[i] = e_[i];
    }
    const V failed = GolubKahan(s, beside_, n_, Vectors(d_, e_, n_, stride_, left_, right_));
    SortOrdered<true>(s, n_, order_);
    // The matrix's memory is free. That of the left reflectors is free once they have been applied.
    Order(left_, matrix_);
    MultiplyByQ<B>(false, n_, n_, reflectors_.LeftCount(n_), reflectors_.left,
                   reflectors_.left_taus, matrix_);
    E* const v = reflectors_.left;
    Order(right_, v);
    MultiplyByQ<B>(false, n_ - 1, n_, reflectors_.RightCount(n_), reflectors_.right,
                   reflectors_.right_taus, v + n_);
    return failed;
  }

  LINALG_INLINE E U(int i, int j) const { return matrix_[i * n_ + j]; }
  LINALG_INLINE E Vh(int i, int j) const { return Conj(reflectors_.left[j * n_ + i]); }

 private:
  using Vectors = BidiagonalVectors<Row, V>;
  using Side = typename Vectors::Side;

  // Writes the vectors of a side to the columns of `target`, in the order of their values.
  LINALG_INLINE void Order(const Side& side, E* target) const {
    if constexpr (kComplexElement<E>) std::fill_n(target, n_ * n_, E{});
    TransposeOrdered(side.rows, n_, stride_, order_, target, n_);
  }

  int n_, stride_;
  E* matrix_;
  BidiagonalReflectors<E> reflectors_;
  Side left_, right_;
  V *d_, *e_, *beside_, *order_;
};

}  // namespace linalg::small
