// Eigenvectors of small general matrices, one per lane, from their Schur form A = Z T Zᴴ. T is
// complex, or real with blocks of order 2.
//
// Each eigenvector comes from back substitution in T (LAPACK's trevc). Left eigenvectors are those
// of Tᴴ, which becomes upper triangular when its rows and columns are reversed. If eigenvalues are
// equal up to rounding, T - λ is perturbed, as in LAPACK. Vectors that grow out of range are scaled
// down.
#pragma once

#include "kernels/arithmetic/eigenvector.h"
#include "kernels/small/schur.h"

namespace linalg::small {

template <bool kLeft, class E>
class Eigenvectors {
  using V = RealElement<E>;
  using C = Complex<V>;
  static constexpr bool kComplex = kComplexElement<E>;

 public:
  // `x` is a workspace of 2 n elements.
  LINALG_INLINE Eigenvectors(int n, const E* t, const V* diagonal, C* x)
      : n_(n), t_(t), diagonal_(diagonal), x_(x) {}

  // Replaces the n by n matrix z by the eigenvectors of D Z T Zᴴ D⁻¹, of length 1 and with a real
  // largest element. A conjugate pair of a real matrix stores one vector, for the eigenvalue with
  // the positive imaginary part. The first column is its real part, the second its imaginary part.
  void Run(E* z) {
    for (int k = n_ - 1; k >= 0; --k) {
      const auto pair = BeginsBlock(k);
      const bool any_pair = !kComplex && Any(pair);
      Solve(k, pair, any_pair);
      Multiply(z, any_pair ? k + 1 : k);
      Normalise(pair);
      // The second column of a pair is written together with the first.
      const auto second = k > 0 ? BeginsBlock(k - 1) : Mask<V>{};
      for (int i = 0; i < n_; ++i) {
        E& own = z[i * n_ + Index(k)];
        if constexpr (kComplex) {
          own = x_[i];
        } else {
          const int other = Index(k + 1);
          // In the reversed order of left eigenvectors, the columns of a pair are swapped, and the
          // eigenvalue is the conjugate.
          own = second ? own : pair ? (kLeft ? -x_[i].im : x_[i].re) : x_[i].re;
          if (any_pair) {
            E& next = z[i * n_ + other];
            next = pair ? (kLeft ? x_[i].re : x_[i].im) : next;
          }
        }
      }
    }
  }

 private:
  LINALG_INLINE int Index(int i) const { return kLeft ? n_ - 1 - i : i; }
  LINALG_INLINE E At(int i, int j) const {
    return kLeft ? Conj(t_[Index(j) * n_ + Index(i)]) : t_[i * n_ + j];
  }

  // Whether row k is the first of a block of order 2.
  LINALG_INLINE auto BeginsBlock(int k) const {
    if (kComplex || k + 1 >= n_) return V{} != V{};
    return Re(At(k + 1, k)) != V{};
  }

  LINALG_INLINE C Widened(E x) const {
    if constexpr (kComplex) {
      return x;
    } else {
      return {x, V{}};
    }
  }

  // -Σ At(i, j) xⱼ over the known rows
  LINALG_INLINE C Residual(int i, int known) const {
    C sum{};
    for (int j = known; j < end_; ++j) sum = NegMulAdd(At(i, j), x_[j], sum);
    return sum;
  }

  // Returns x / y. A tiny y is perturbed. In lanes where the quotient is out of range, the known
  // elements and `others` are scaled down.
  template <class... Others>
  C Divide(C x, C y, Mask<V> on, Others&... others) {
    const V most = Broadcast<V>(BalanceRange<Lane<V>>::kMostOfVector), zero{};
    y = Choose(Magnitude(y) < least_, C{least_, zero}, y);
    const V size = Magnitude(x), limit = most * Magnitude(y);
    const auto large = on & (size > limit);
    if (Any(large)) {
      const V scale = large ? limit / size : Number<V>(1);
      for (int j = 0; j < end_; ++j) x_[j] = scale * x_[j];
      x = scale * x;
      ((others = scale * others), ...);
    }
    return Divisor<C>(y).Divide(x);
  }

  // Computes in x the eigenvector of the upper triangle for eigenvalue k, the first of its block.
  // In lanes where k is the second of a block, x is not used.
  void Solve(int k, Mask<V> pair, bool any_pair) {
    const V zero{}, one = Number<V>(1);
    for (int i = 0; i < n_; ++i) x_[i] = C{zero, zero};
    x_[k] = {one, zero};
    end_ = k + 1;
    lambda_ = Widened(At(k, k));
    if constexpr (!kComplex) {
      if (any_pair) {
        const V above = At(k, k + 1), below = At(k + 1, k);
        const V im = PairImaginary(above, below);
        lambda_.im = pair ? im : zero;
        const auto narrow = Abs(above) < Abs(below);
        x_[k].re = pair & narrow ? -im / below : one;
        x_[k + 1].im = pair ? (narrow ? one : im / above) : zero;
        end_ = k + 2;
      }
    }
    const V eps = Broadcast<V>(std::numeric_limits<Lane<V>>::epsilon());
    least_ = Larger(eps * Magnitude(lambda_), LeastBelowDiagonal<V>(n_));
    for (int i = k - 1; i >= 0; --i) {
      C x = Residual(i, i + 1);
      const C shifted = Widened(At(i, i)) - lambda_;
      if constexpr (kComplex) {
        x_[i] = Divide(x, shifted, zero == zero);
      } else {
        const auto first = BeginsBlock(i);  // the first row of a block is known already
        const auto second = i > 0 ? BeginsBlock(i - 1) : Mask<V>{};
        const Mask<V> alone = !(first | second);
        if (Any(alone)) {
          const C y = Divide(x, shifted, alone);
          x_[i] = Choose(alone, y, x_[i]);
        }
        if (i > 0 && Any(second)) SolveBlock(i - 1, x, second);
      }
    }
  }

  // Solves rows i and i + 1 of a block, given the residual of the second one.
  void SolveBlock(int i, C second, Mask<V> on) {
    EliminatedBlock<V> block(Widened(At(i, i)) - lambda_, Re(At(i, i + 1)), Re(At(i + 1, i)),
                             Widened(At(i + 1, i + 1)) - lambda_, Residual(i, i + 2), second);
    C y = Divide(block.bottom, block.below, on, block.rest);
    const C x = Divide(NegMulAdd(block.beside, y, block.rest), block.pivot, on, y);
    x_[i] = Choose(on, x, x_[i]);
    x_[i + 1] = Choose(on, y, x_[i + 1]);
  }

  // x := D Z x, or D⁻¹ Z x, from the columns up to `last`.
  void Multiply(const E* z, int last) {
    C* const product = x_ + n_;
    for (int i = 0; i < n_; ++i) {
      C sum{};
      for (int j = 0; j <= last; ++j) sum = NegMulAdd(-z[i * n_ + Index(j)], x_[j], sum);
      const V d = diagonal_[i];
      product[i] = (kLeft ? Number<V>(1) / d : d) * sum;
    }
    for (int i = 0; i < n_; ++i) x_[i] = product[i];
  }

  void Normalise(Mask<V> pair) {
    const V zero{};
    V size = zero;
    for (int i = 0; i < n_; ++i) size = Larger(Magnitude(x_[i]), size);
    const auto turns = kComplex ? zero == zero : pair;
    NormaliseEigenvector(
        n_, size, turns, [&](int i) -> C& { return x_[i]; }, [&](int i, C y) { x_[i] = y; });
  }

  int n_, end_;
  const E* t_;
  const V* diagonal_;
  C* x_;
  C lambda_;
  V least_;
};

}  // namespace linalg::small
