// Eigenvalues and eigenvectors from a Schur form A = Z T Zᴴ, real with blocks of order 2 or
// complex. One thread for each eigenvalue does the back substitution in T (LAPACK's trevc).
//
// Where eigenvalues are equal up to rounding, T - λ is perturbed, as in LAPACK. Vectors that grow
// out of range are scaled down.
#pragma once

#include "kernels/arithmetic/eigenvector.h"
#include "kernels/arithmetic/schur_step.h"
#include "kernels/team/balance.h"

namespace linalg::team {

// Whether row k of T is the first of a block of order 2.
template <class E>
LINALG_TEAM bool BeginsBlock(int n, const E* t, int ld, int k) {
  if constexpr (kComplexElement<E>) return false;
  return k + 1 < n && Magnitude(t[(k + 1) * ld + k]) != RealElement<E>(0);
}

// The eigenvalue at place k of T's diagonal. The first of a pair has the positive imaginary part.
template <class E>
LINALG_TEAM Complex<RealElement<E>> Eigenvalue(int n, const E* t, int ld, int k) {
  if constexpr (kComplexElement<E>) {
    return t[k * ld + k];
  } else {
    const bool first = BeginsBlock(n, t, ld, k);
    if (!first && !(k > 0 && BeginsBlock(n, t, ld, k - 1))) return {t[k * ld + k], E(0)};
    const int b = first ? k : k - 1;
    const E size = PairImaginary(t[b * ld + b + 1], t[(b + 1) * ld + b]);
    return {t[k * ld + k], first ? size : -size};
  }
}

// One eigenvector of T by back substitution, or by forward substitution in Tᴴ. It belongs to the
// eigenvalue at place k, the first of its block, and goes to column k of x, whose rows are ldx
// apart.
template <class E>
class TriangularVector {
  using V = RealElement<E>;
  using C = Complex<V>;

 public:
  LINALG_TEAM TriangularVector(int n, const E* t, int ld, C* x, int ldx, int k, bool left)
      : n_(n), ld_(ld), ldx_(ldx), k_(k), left_(left), t_(t), x_(x + k) {
    lambda_ = Eigenvalue(n, t, ld, k);
    const V eps = std::numeric_limits<V>::epsilon();
    least_ = Larger(eps * Magnitude(lambda_), LeastBelowDiagonal<V>(n));
    if (left) lambda_ = Conj(lambda_);
  }

  // Fills rows [begin, end) for a T of norm near 1. The other rows are zero.
  LINALG_TEAM void Solve() {
    const bool pair = BeginsBlock(n_, t_, ld_, k_);
    x_[k_ * ldx_] = {V(1), V(0)};
    if (pair) StartPair();
    begin_ = k_;
    end_ = k_ + (pair ? 2 : 1);
    if (left_) {
      while (end_ < n_) Extend(end_, BeginsBlock(n_, t_, ld_, end_));
    } else {
      while (begin_ > 0) {
        const bool block = begin_ > 1 && BeginsBlock(n_, t_, ld_, begin_ - 2);
        Extend(begin_ - (block ? 2 : 1), block);
      }
    }
  }

  LINALG_TEAM int begin() const { return begin_; }
  LINALG_TEAM int end() const { return end_; }

 private:
  // An element of T, or of Tᴴ.
  LINALG_TEAM E At(int i, int j) const { return left_ ? Conj(t_[j * ld_ + i]) : t_[i * ld_ + j]; }

  // The vector of the block itself.
  LINALG_TEAM void StartPair() {
    const V above = Re(At(k_, k_ + 1)), below = Re(At(k_ + 1, k_));
    if (Abs(above) >= Abs(below)) {
      x_[(k_ + 1) * ldx_] = {V(0), lambda_.im / above};
    } else {
      x_[k_ * ldx_] = {-lambda_.im / below, V(0)};
      x_[(k_ + 1) * ldx_] = {V(0), V(1)};
    }
  }

  // -Σ At(i, j) xⱼ over the rows that are solved
  LINALG_TEAM C Residual(int i) const {
    C sum{};
    for (int j = begin_; j < end_; ++j) sum = NegMulAdd(At(i, j), x_[j * ldx_], sum);
    return sum;
  }

  LINALG_TEAM C Shifted(int i) const {
    const E a = At(i, i);
    if constexpr (kComplexElement<E>) {
      return a - lambda_;
    } else {
      return {a - lambda_.re, -lambda_.im};
    }
  }

  // Returns x / y. A y that is too small is perturbed. If the quotient is out of range, the solved
  // rows and `others` are scaled down.
  template <class... Others>
  LINALG_TEAM C Divide(C x, C y, Others&... others) {
    constexpr V kMost = BalanceRange<V>::kMostOfVector;
    if (Magnitude(y) < least_) y = {least_, V(0)};
    const V size = Magnitude(x), limit = kMost * Magnitude(y);
    if (size > limit) {
      const V scale = limit / size;
      for (int j = begin_; j < end_; ++j) x_[j * ldx_] = scale * x_[j * ldx_];
      x = scale * x;
      ((others = scale * others), ...);
    }
    return Divisor<C>(y).Divide(x);
  }

  // Solves for the rows of the next block, at i.
  LINALG_TEAM void Extend(int i, bool pair) {
    C first = Residual(i);
    if (!pair) {
      first = Divide(first, Shifted(i));
      x_[i * ldx_] = first;
    } else {
      EliminatedBlock<V> block(Shifted(i), Re(At(i, i + 1)), Re(At(i + 1, i)), Shifted(i + 1),
                               first, Residual(i + 1));
      C second = Divide(block.bottom, block.below, block.rest);
      first = Divide(NegMulAdd(block.beside, second, block.rest), block.pivot, second);
      x_[i * ldx_] = first;
      x_[(i + 1) * ldx_] = second;
      ++i;
    }
    if (left_) {
      end_ = i + 1;
    } else {
      begin_ = pair ? i - 1 : i;
    }
  }

  int n_, ld_, ldx_, k_;
  bool left_;
  const E* t_;
  C* x_;
  C lambda_;
  V least_;
  int begin_ = 0, end_ = 0;
};

// Computes the eigenvectors of A from those of T, of length 1 and with a real largest element,
// row-major in `vectors` (n, n). They are right eigenvectors, or with `left` those with yᴴ A = λ
// yᴴ. T and Z belong to the balanced matrix. x is a workspace of (n, ldx).
template <class Team, class E>
LINALG_TEAM void SchurEigenvectors(const Team& team, int n, const E* t, const E* z, int ld,
                                   Balanced<RealElement<E>> balanced, bool left,
                                   Complex<RealElement<E>>* x, int ldx,
                                   Complex<RealElement<E>>* vectors) {
  using V = RealElement<E>;
  using C = Complex<V>;
  team.Phase([&](int thread) {
    for (int k = thread; k < n; k += team.size()) {
      if (k > 0 && BeginsBlock(n, t, ld, k - 1)) continue;  // the conjugate of the previous one
      const bool pair = BeginsBlock(n, t, ld, k);
      TriangularVector<E> of_t(n, t, ld, x, ldx, k, left);
      of_t.Solve();
      V size = V(0);
      for (int i = 0; i < n; ++i) {
        C sum{};
        for (int j = of_t.begin(); j < of_t.end(); ++j) {
          sum = NegMulAdd(-z[i * ld + j], x[j * ldx + k], sum);
        }
        const V d = balanced.diagonal[i];
        sum = (left ? V(1) / d : d) * sum;
        size = Larger(Magnitude(sum), size);
        vectors[static_cast<int64_t>(balanced.order[i]) * n + k] = sum;
      }
      NormaliseEigenvector(
          n, size, pair || kComplexElement<E>,
          [&](int i) -> C& { return vectors[static_cast<int64_t>(i) * n + k]; },
          [&](int i, C y) {
            C* const row = vectors + static_cast<int64_t>(i) * n;
            row[k] = y;
            if (pair) row[k + 1] = Conj(y);
          });
    }
  });
}

}  // namespace linalg::team
