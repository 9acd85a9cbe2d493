// Cholesky factors of A + w wᴴ and A - w wᴴ from those of A, by one rotation per row.
//
// The rows of an upper factor R and v = wᴴ, one below the other, have the Gram matrix A + w wᴴ.
// Rotations that take v to 0 turn R into the new factor. A downdate uses hyperbolic rotations in
// the mixed form, where each new row is used for the next v. Source: Bojanczyk, Brent, Van Dooren
// and de Hoog, A note on downdating the Cholesky factorization, SIAM J. Sci. Stat. Comput. 8
// (1987).
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/arithmetic/columns.h"
#include "kernels/arithmetic/divisor.h"
#include "kernels/arithmetic/scale.h"

namespace linalg::small {

// The rotation that takes the elements (x, y) of a row and of v to (diagonal, 0).
//
// For an update it is the unitary [[conj(p), conj(q)], [-q, p]] with p = x / |(x, y)| and q = y /
// |(x, y)|. For a downdate it is the hyperbolic [[conj(f), -conj(f q)], [-q, 1]] / c with q = y /
// x, c = √(1 - |q|²) and f the phase of x. The diagonal becomes positive. If y = 0, the row is
// unchanged.
template <bool kDowndate, class E>
class RowUpdate {
  using V = RealElement<E>;

 public:
  LINALG_INLINE RowUpdate(E x, E y) {
    const V one = Broadcast<V>(1);
    const auto none = Magnitude(y) == V{};
    unchanged_ = none;
    V unscale;
    if constexpr (kDowndate) {
      const V scale = PowerOfTwoScale(Magnitude(x), unscale);
      const E u = scale * x, v = scale * y;
      const V length = Modulus(u);
      E phase;
      if constexpr (kComplexElement<E>) {
        phase = (one / length) * u;
      } else {
        phase = CopySign(one, x);
      }
      phase = Choose(none, FromReal<E>(one), phase);
      q_ = Divisor<E>(u).Divide(v);
      const V modulus = Modulus(q_), square = (one - modulus) * (one + modulus);
      cosine_ = Sqrt(square);
      p_ = (one / cosine_) * Conj(phase);
      turned_ = Mul(q_, phase);
      diagonal_ = Choose(none, x, FromReal<E>(cosine_ * (unscale * length)));
      defined_ = (square > V{}) & IsFinite(diagonal_);
    } else {
      const V scale = PowerOfTwoScale(Larger(Magnitude(x), Magnitude(y)), unscale);
      const E u = scale * x, v = scale * y;
      const V length = Sqrt(NormAdd(u, NormAdd(v, V{}))), inverse = one / length;
      p_ = Choose(none, FromReal<E>(one), inverse * u);
      q_ = Choose(none, E{}, inverse * v);
      diagonal_ = Choose(none, x, FromReal<E>(unscale * length));
      defined_ = IsFinite(diagonal_);
    }
  }

  // The lanes whose leading minor up to this row is positive and finite. A non-finite element of v
  // or of the row reaches a diagonal further down.
  LINALG_INLINE Mask<V> defined() const { return defined_; }
  LINALG_INLINE E diagonal() const { return diagonal_; }
  // The lanes whose row and v stay as they are.
  LINALG_INLINE Mask<V> unchanged() const { return unchanged_; }

  // Applies it to an element of the row and one of v, or to blocks of neighbours.
  template <class B>
  LINALG_INLINE void Apply(B& x, B& y) const {
    using Row = RealElement<B>;
    const auto p = Widen<Row>(p_), q = Widen<Row>(q_);
    if constexpr (kDowndate) {
      x = Mul(p, ConjMulAdd(-q, y, x));
      y = NegMulAdd(Widen<Row>(turned_), x, Widen<Row>(cosine_) * y);
    } else {
      const B rotated = ConjMulAdd(q, y, Mul(Conj(p), x));
      y = NegMulAdd(q, x, Mul(p, y));
      x = rotated;
    }
  }

  // Applies its transpose to cotangents.
  template <class B>
  LINALG_INLINE void ApplyTranspose(B& x, B& y) const {
    using Row = RealElement<B>;
    const auto p = Widen<Row>(p_), q = Widen<Row>(q_);
    if constexpr (kDowndate) {
      x = Mul(p, NegMulAdd(Widen<Row>(turned_), y, x));
      y = ConjMulAdd(-q, x, Widen<Row>(cosine_) * y);
    } else {
      const B turned = NegMulAdd(q, y, Mul(Conj(p), x));
      y = ConjMulAdd(q, x, Mul(p, y));
      x = turned;
    }
  }

 private:
  static LINALG_INLINE Mask<V> IsFinite(E x) {
    return Magnitude(x) < Broadcast<V>(std::numeric_limits<Lane<V>>::infinity());
  }

  E p_, q_, turned_, diagonal_;
  V cosine_;
  Mask<V> defined_, unchanged_;
};

// Replaces row-major factors r (n, n), one per lane, by those of A ± vᴴ v. Destroys v. Returns 0,
// or the order of the first leading minor that is not positive and finite; then all of r is NaN.
// The other triangle is not read and becomes 0.
template <bool kDowndate, class E>
LINALG_INLINE RealElement<E> CholeskyUpdate(int n, E* r, E* v) {
  using V = RealElement<E>;
  V failed{};
  for (int k = 0; k < n; ++k) {
    E* const row = r + k * n;
    const RowUpdate<kDowndate, E> update(row[k], v[k]);
    failed = update.defined() | (failed > V{}) ? failed : Number<V>(k + 1);
    for (int j = 0; j < k; ++j) row[j] = E{};
    row[k] = update.diagonal();
    for (int j = k + 1; j < n; ++j) update.Apply(row[j], v[j]);
  }
  FillNaN(failed > V{}, n * n, r);
  return failed;
}

// Does CholeskyUpdate for one matrix, from r to target, with neighbouring columns in a block B.
// `row` and v have n elements, padded to whole blocks.
template <bool kDowndate, class B, class E>
int CholeskyUpdateByRows(int n, const E* r, E* row, E* v, E* target) {
  constexpr int kBlock = kColumns<E, B>;
  for (int64_t k = 0; k < n; ++k) {
    E* const out = target + k * n;
    std::memcpy(row + k, r + k * n + k, (n - k) * sizeof(E));
    const RowUpdate<kDowndate, E> update(row[k], v[k]);
    if (!update.defined()) return static_cast<int>(k) + 1;
    // Values before column k in the first block are not used.
    for (int64_t j = k / kBlock * kBlock; j < n; j += kBlock) {
      B x = LoadColumns<B>(row + j), y = LoadColumns<B>(v + j);
      update.Apply(x, y);
      StoreColumns(x, row + j);
      StoreColumns(y, v + j);
    }
    row[k] = update.diagonal();
    std::fill_n(out, k, E{});
    std::memcpy(out + k, row + k, (n - k) * sizeof(E));
  }
  return 0;
}

// The cotangents of r (n, n) and of v from those of the factor, which `ct` holds. Cotangents are
// those of JAX: the real part of their products with tangents, without conjugation, is what is
// kept.
//
// Let (x, y) be a column of row k and v after the rotation of that row, G, and h the diagonal. Then
//   (dx', dy') = G (dx, dy) + (sign conj(t) y - i f x, -t x),
// where (p, q) is G (dx, dy) of column k, t = q / h and f = Im(p) / h. An equal phase for all of v
// changes no factor, so no term of f y is needed. An unchanged row has a diagonal d of any phase,
// and t = q / d and f = 0. The transpose of this runs from the last row to the first.
//
// B is E, or a block of neighbouring columns. Rows are `stride` apart, and hold zeros below the
// diagonal and in their padding where B is a block. `rows` holds R, and then the factor. Row 0 of
// `v` (n + 1, stride) holds v, and the rows below it get v after each rotation. `before` holds 2 n
// elements. `v_ct` holds zeros, and then the cotangent of v.
template <bool kDowndate, class B, class E>
LINALG_INLINE void CholeskyUpdateVjp(int n, int64_t stride, E* rows, E* v, E* before, E* ct,
                                     E* v_ct) {
  using V = RealElement<E>;
  constexpr int kBlock = kColumns<E, B>;
  const auto sum = [](B x) {
    if constexpr (std::is_same_v<B, E>) {
      return x;
    } else {
      return SumOfLanes(x);
    }
  };
  for (int64_t k = 0; k < n; ++k) {
    E* const row = rows + k * stride;
    E *const from = v + k * stride, *const to = from + stride;
    before[2 * k] = row[k];
    before[2 * k + 1] = from[k];
    const RowUpdate<kDowndate, E> update(row[k], from[k]);
    for (int64_t j = k / kBlock * kBlock; j < n; j += kBlock) {
      B x = LoadColumns<B>(row + j), y = LoadColumns<B>(from + j);
      update.Apply(x, y);
      StoreColumns(x, row + j);
      StoreColumns(y, to + j);
    }
    to[k] = E{};
  }
  for (int64_t k = n - 1; k >= 0; --k) {
    const E *const row = rows + k * stride, *const after = v + (k + 1) * stride;
    E* const row_ct = ct + k * stride;
    const RowUpdate<kDowndate, E> update(before[2 * k], before[2 * k + 1]);
    const int64_t first = k / kBlock * kBlock;
    const E own = row_ct[k];
    row_ct[k] = E{};
    B along_y{}, along_x{};  // the sums, negated
    [[maybe_unused]] B turn{};
    for (int64_t j = first; j < n; j += kBlock) {
      const B x = LoadColumns<B>(row + j), y = LoadColumns<B>(after + j);
      const B x_ct = LoadColumns<B>(row_ct + j), y_ct = LoadColumns<B>(v_ct + j);
      along_y = NegMulAdd(x_ct, y, along_y);
      along_x = NegMulAdd(y_ct, x, along_x);
      if constexpr (kComplexElement<E>) turn = NegMulAdd(x_ct, x, turn);
    }
    const E of_y = Conj(sum(along_y)), of_x = sum(along_x);
    v_ct[k] = Divisor<E>(update.diagonal()).Divide(kDowndate ? of_x + of_y : of_x - of_y);
    row_ct[k] = own;
    if constexpr (kComplexElement<E>) {
      const V phase = sum(turn).im / update.diagonal().re;
      row_ct[k] = Choose(update.unchanged(), own, E{own.re, phase});
    }
    for (int64_t j = first; j < n; j += kBlock) {
      B x = LoadColumns<B>(row_ct + j), y = LoadColumns<B>(v_ct + j);
      update.ApplyTranspose(x, y);
      StoreColumns(x, row_ct + j);
      StoreColumns(y, v_ct + j);
    }
  }
}

}  // namespace linalg::small
