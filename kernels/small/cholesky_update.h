// Cholesky factors of A + w wᴴ and A - w wᴴ from those of A, by a rotation for each row.
//
// The rows of an upper factor R and v = wᴴ, one below the other, have the Gram matrix A + w wᴴ;
// what takes v to 0 leaves the new factor above it. To subtract, the rotations are hyperbolic, in
// the mixed form, each new row being used for the next v: Bojanczyk, Brent, Van Dooren and de Hoog,
// A note on downdating the Cholesky factorization, SIAM J. Sci. Stat. Comput. 8 (1987).
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/arithmetic/columns.h"
#include "kernels/arithmetic/divisor.h"
#include "kernels/arithmetic/scale.h"

namespace linalg::small {

// What takes the elements (x, y) of a row and of v to (diagonal, 0), and the others with them: with
// p = x / |(x, y)| and q = y / |(x, y)| the unitary (conj(p) conj(q); -q p), or, for kDowndate,
// with q = y / x, c = √(1 - |q|²) and x's phase f the hyperbolic (conj(f) -conj(f q); -q 1) / c.
// The diagonal is positive; but of y = 0 the row remains as it is.
template <bool kDowndate, class E>
class RowUpdate {
  using V = RealElement<E>;

 public:
  LINALG_INLINE RowUpdate(E x, E y) {
    const V one = Broadcast<V>(1);
    const auto none = Magnitude(y) == V{};
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

  // Where the leading minor that ends here is positive and finite. What is not finite in v, or in
  // the row, comes to the diagonal further down.
  LINALG_INLINE Mask<V> defined() const { return defined_; }
  LINALG_INLINE E diagonal() const { return diagonal_; }

  // Of an element of the row and one of v, or of blocks of neighbours.
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

 private:
  static LINALG_INLINE Mask<V> IsFinite(E x) {
    return Magnitude(x) < Broadcast<V>(std::numeric_limits<Lane<V>>::infinity());
  }

  E p_, q_, turned_, diagonal_;
  V cosine_;
  Mask<V> defined_;
};

// Replaces row-major factors r (n, n), one per lane, by those of A ± vᴴ v, and v by what is of no
// use. Returns 0, or the order of the first leading minor that is not positive and finite, where
// all is NaN. The other triangle is not read, and is 0.
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

// The same of one matrix with neighbouring columns in a block B, from r to target. `row` and v have
// n elements and are padded to whole blocks.
template <bool kDowndate, class B, class E>
int CholeskyUpdateByRows(int n, const E* r, E* row, E* v, E* target) {
  constexpr int kBlock = kColumns<E, B>;
  for (int64_t k = 0; k < n; ++k) {
    E* const out = target + k * n;
    std::memcpy(row + k, r + k * n + k, (n - k) * sizeof(E));
    const RowUpdate<kDowndate, E> update(row[k], v[k]);
    if (!update.defined()) return static_cast<int>(k) + 1;
    // What lies before column k in the first block is of no use.
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

}  // namespace linalg::small
