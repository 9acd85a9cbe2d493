// One step of Kalman filters and smoothers, of their tangents and of their adjoints. One series per
// lane, or one series with neighbouring columns in a register.
//
// Matrices are row-major with padded rows. B is a block of columns: E in lanes, a register of
// numbers for a single series. Both do the same operations on each entry in the same order, so the
// bits do not depend on the kind.
//
// The filter is in Joseph's form, P⁺ = A P Aᵀ + K R Kᵀ with A = I - K H. Each term is a congruence,
// so P⁺ stays positive semidefinite up to the rounding of its own entries. The noises may be
// singular: only S = H P Hᵀ + R is factored. A square-root filter would need roots of the noises,
// which have no derivative where they are singular.
//
// The smoother is that of Bryson and Frazier (1963), which inverts no covariance of the state. The
// later observations say r = N (x - m) + ω of a state x with the filtered mean m, where ω has the
// covariance W = N - N P N. Going back over an observation and over a transition,
//
//   r := Hᵀ e + Aᵀ r     N := Hᵀ S⁻¹ H + Aᵀ N A     W := J R Jᵀ + Aᵀ W A, J = Hᵀ S⁻¹ - Aᵀ N K
//   r := Fᵀ r            N := Fᵀ N F                 W := Fᵀ (N Q N + W) F, with the N before
//
// The smoothed mean is m + P r, and the covariance (I - P N) P (I - P N)ᵀ + P W P: Joseph's form of
// P - P N P, where large entries would cancel. A first state that is almost unknown still makes P W
// P cancel. There a step of Rauch, Tung and Striebel (1965) takes over, with G = P Fᵀ (F P Fᵀ +
// Q)⁻¹. It is not taken at every step: G may multiply rounding errors where Q is singular.
#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "kernels/arithmetic/columns.h"
#include "kernels/arithmetic/logarithm.h"
#include "kernels/arithmetic/strided.h"

namespace linalg::small {

enum class Into { kSet, kAdd, kSubtract };

template <int kRows, int kCols, class B, class E>
LINALG_INLINE void AddProductBlock(int depth, const E* a, int64_t a_row, int64_t a_col, const E* b,
                                   int64_t b_row, int64_t b_next, Into into, E* c, int64_t c_row) {
  constexpr int kWidth = kColumns<E, B>;
  B sum[kRows][kCols] = {};
  for (int k = 0; k < depth; ++k) {
    B right[kCols];
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) right[j] = LoadColumns<B>(b + k * b_row + j * b_next);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const B left = Widen<B>(a[i * a_row + k * a_col]);
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) sum[i][j] = MulAdd(left, right[j], sum[i][j]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) {
      E* const target = c + i * c_row + j * kWidth;
      if (into == Into::kAdd) sum[i][j] = LoadColumns<B>(target) + sum[i][j];
      if (into == Into::kSubtract) sum[i][j] = LoadColumns<B>(target) - sum[i][j];
      StoreColumns(sum[i][j], target);
    }
  }
}

template <int kRows, class B, class E>
LINALG_INLINE void AddProductRows(int cols, int depth, const E* a, int64_t a_row, int64_t a_col,
                                  Strided<E> b, Into into, E* c, int64_t c_row) {
  constexpr int kWidth = kColumns<E, B>, kMost = kWidth == 1 ? 4 : 2;
  const int blocks = (cols + kWidth - 1) / kWidth;
  const int64_t next = kWidth == 1 ? b.col : kWidth;
  const auto run = [&]<int kCols>(std::integral_constant<int, kCols>, int j)
                       __attribute__((always_inline)) {
                         AddProductBlock<kRows, kCols, B>(depth, a, a_row, a_col, b.data + j * next,
                                                          b.row, next, into, c + j * kWidth, c_row);
                       };
  int j = 0;
  for (; j + kMost <= blocks; j += kMost) run(std::integral_constant<int, kMost>(), j);
  if constexpr (kMost > 2) {
    if (blocks - j == 3) return run(std::integral_constant<int, 3>(), j);
    if (blocks - j == 2) return run(std::integral_constant<int, 2>(), j);
  }
  if (blocks - j == 1) run(std::integral_constant<int, 1>(), j);
}

// Sizes are numbers, or constants for models that are so small that calls would take most of the
// time.
template <class... Sizes>
inline constexpr bool kAreConstant = (!std::is_same_v<Sizes, int> && ...);

inline constexpr std::integral_constant<int, 1> kOne;

template <class B, bool kLower, class E>
LINALG_INLINE void ProductInline(int rows, int cols, int depth, Strided<E> a, Strided<E> b,
                                 Into into, E* c, int64_t c_row) {
  const auto run = [&]<int kRows>(std::integral_constant<int, kRows>,
                                  int i) __attribute__((always_inline)) {
    AddProductRows<kRows, B>(kLower ? std::min(i + kRows, cols) : cols, depth, a.data + i * a.row,
                             a.row, a.col, b, into, c + i * c_row, c_row);
  };
  int i = 0;
  for (; i + 4 <= rows; i += 4) run(std::integral_constant<int, 4>(), i);
  if (rows - i == 3) return run(std::integral_constant<int, 3>(), i);
  if (rows - i == 2) return run(std::integral_constant<int, 2>(), i);
  if (rows - i == 1) run(std::integral_constant<int, 1>(), i);
}

template <class B, bool kLower, class E>
LINALG_ONCE void ProductCalled(int rows, int cols, int depth, Strided<E> a, Strided<E> b, Into into,
                               E* c, int64_t c_row) {
  ProductInline<B, kLower>(rows, cols, depth, a, b, into, c, c_row);
}

// c = a b, c + a b or c - a b. If kLower, the entries above the diagonal are undefined. Blocks of
// columns need b.col = 1.
template <class B, bool kLower = false, class Rows, class Cols, class Depth, class E>
LINALG_INLINE void Product(Rows rows, Cols cols, Depth depth, Strided<E> a, Strided<E> b, Into into,
                           E* c, int64_t c_row) {
  if constexpr (kAreConstant<Rows, Cols, Depth>) {
    ProductInline<B, kLower>(rows, cols, depth, a, b, into, c, c_row);
  } else {
    ProductCalled<B, kLower>(rows, cols, depth, a, b, into, c, c_row);
  }
}

// y = a x, a chain of fused products for each entry.
template <class E>
LINALG_INLINE void Apply(int rows, int depth, Strided<E> a, const E* x, E* y) {
  for (int i = 0; i < rows; ++i) {
    E sum{};
    for (int k = 0; k < depth; ++k) sum = MulAdd(a(i, k), x[k], sum);
    y[i] = sum;
  }
}

template <class E>
LINALG_INLINE E Dot(int count, const E* x, const E* y) {
  E sum{};
  for (int k = 0; k < count; ++k) sum = MulAdd(x[k], y[k], sum);
  return sum;
}

// Adds a term to a sum. Its rounding error `lost` is added to the next term (Kahan). It would be
// NaN after an overflow.
template <class E>
LINALG_INLINE void AddWithLoss(E x, E& sum, E& lost) {
  const E term = x - lost, next = sum + term;
  lost = KeepIf(next - next == E{}, (next - sum) - term);
  sum = next;
}

template <class E>
LINALG_INLINE void SetIdentity(int n, int64_t row, E* a) {
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) a[i * row + j] = Number<E>(i == j ? 1 : 0);
  }
}

// Copies the lower triangle to the upper one.
template <class E>
LINALG_INLINE void Mirror(int n, int64_t row, E* a) {
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < i; ++j) a[j * row + i] = a[i * row + j];
  }
}

// a = (scale) (a + aᵀ)
template <class E>
LINALG_INLINE void AddTranspose(int n, int64_t row, E* a, E scale) {
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j <= i; ++j) {
      a[i * row + j] = a[j * row + i] = scale * (a[i * row + j] + a[j * row + i]);
    }
  }
}

// target = base + (x + xᵀ), given the lower triangle of `base`
template <class E>
LINALG_INLINE void AddBothTriangles(int n, int64_t row, const E* x, const E* base, E* target) {
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j <= i; ++j) {
      target[i * row + j] = target[j * row + i] =
          base[i * row + j] + (x[i * row + j] + x[j * row + i]);
    }
  }
}

// Factors a positive (semi)definite matrix as L D Lᵀ. Its upper triangle becomes D Lᵀ, the entries
// below the diagonal those of L. `inverse` receives those of D. Returns a mask of the lanes whose
// pivots are all positive.
//
// If kSemidefinite, a pivot that may be a rounding error of its diagonal entry counts as zero, and
// so does its inverse: L D Lᵀ X = Y then has a solution for Y in the range.
template <bool kSemidefinite, class B, class E>
LINALG_INLINE Mask<E> FactorLdlInline(int n, int64_t row, E* a, E* inverse) {
  constexpr int kWidth = kColumns<E, B>;
  Mask<E> positive = E{} == E{};
  if constexpr (kSemidefinite) {
    for (int k = 0; k < n; ++k) inverse[k] = a[k * (row + 1)];
  }
  for (int k = 0; k < n; ++k) {
    const E* const pivots = a + k * row;
    const E pivot = pivots[k];
    positive = positive & (pivot > E{});
    if constexpr (kSemidefinite) {
      const E least = Number<E>(8 * n * std::numeric_limits<Lane<E>>::epsilon()) * inverse[k];
      inverse[k] = pivot <= least ? E{} : Broadcast<E>(1) / pivot;  // NaN stays
    } else {
      inverse[k] = Broadcast<E>(1) / pivot;
    }
    for (int i = k + 1; i < n; ++i) {
      const B factor = Widen<B>(-(pivots[i] * inverse[k]));
      // Entries below the diagonal in the first block are not used.
      for (int j = i / kWidth * kWidth; j < n; j += kWidth) {
        E* const target = a + i * row + j;
        StoreColumns(MulAdd(factor, LoadColumns<B>(pivots + j), LoadColumns<B>(target)), target);
      }
    }
  }
  for (int i = 0; i < n; ++i) {
    for (int k = 0; k < i; ++k) a[i * row + k] = a[k * row + i] * inverse[k];
  }
  return positive;
}

template <bool kSemidefinite, class B, class E>
LINALG_ONCE Mask<E> FactorLdlCalled(int n, int64_t row, E* a, E* inverse) {
  return FactorLdlInline<kSemidefinite, B>(n, row, a, inverse);
}
template <bool kSemidefinite, class B, class Size, class E>
LINALG_INLINE Mask<E> FactorLdl(Size n, int64_t row, E* a, E* inverse) {
  if constexpr (kAreConstant<Size>) {
    return FactorLdlInline<kSemidefinite, B>(n, row, a, inverse);
  } else {
    return FactorLdlCalled<kSemidefinite, B>(n, row, a, inverse);
  }
}

template <class B, class E>
LINALG_INLINE void SolveLdlInline(int n, int64_t row, const E* a, const E* inverse, int cols,
                                  int64_t x_row, E* x) {
  constexpr int kWidth = kColumns<E, B>;
  for (int j = 0; j < cols; j += kWidth) {
    for (int i = 0; i < n; ++i) {
      B sum = LoadColumns<B>(x + i * x_row + j);
      for (int k = 0; k < i; ++k) {
        sum = MulAdd(Widen<B>(-a[i * row + k]), LoadColumns<B>(x + k * x_row + j), sum);
      }
      StoreColumns(sum, x + i * x_row + j);
    }
    for (int i = n - 1; i >= 0; --i) {
      B sum = Widen<B>(inverse[i]) * LoadColumns<B>(x + i * x_row + j);
      for (int k = i + 1; k < n; ++k) {
        sum = MulAdd(Widen<B>(-a[k * row + i]), LoadColumns<B>(x + k * x_row + j), sum);
      }
      StoreColumns(sum, x + i * x_row + j);
    }
  }
}

template <class B, class E>
LINALG_ONCE void SolveLdlCalled(int n, int64_t row, const E* a, const E* inverse, int cols,
                                int64_t x_row, E* x) {
  SolveLdlInline<B>(n, row, a, inverse, cols, x_row, x);
}

// x (n, cols) := (L D Lᵀ)⁻¹ x
template <class B, class Size, class Cols, class E>
LINALG_INLINE void SolveLdl(Size n, int64_t row, const E* a, const E* inverse, Cols cols,
                            int64_t x_row, E* x) {
  if constexpr (kAreConstant<Size, Cols>) {
    SolveLdlInline<B>(n, row, a, inverse, cols, x_row, x);
  } else {
    SolveLdlCalled<B>(n, row, a, inverse, cols, x_row, x);
  }
}

// Takes parts of a workspace one after another.
template <class B, class E>
struct Workspace {
  E* next;

  E* Vector(int n) { return std::exchange(next, next + PaddedColumns<E, B>(n)); }
  E* Matrix(int rows, int cols) {
    return std::exchange(next, next + rows * PaddedColumns<E, B>(cols));
  }
};

// The transpose of a matrix as a right operand. In lanes it is a view.
template <class B, class E>
LINALG_INLINE Strided<E> TransposedRight(int rows, int cols, const E* a, int64_t row, E* memory) {
  if constexpr (std::is_same_v<B, E>) {
    return {a, 1, row};
  } else {
    const int64_t stride = PaddedColumns<E, B>(rows);
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < cols; ++j) memory[j * stride + i] = a[i * row + j];
    }
    return {memory, stride, 1};
  }
}

// The moments of the next state: F m + b and F P Fᵀ + Q.
template <class B, class E, class N = int>
struct KalmanPrediction {
  N n;
  int64_t row;
  E *f, *q, *b;        // operands
  E *fp, *mean, *cov;  // F P, and the moments

  KalmanPrediction(N n, Workspace<B, E>& memory)
      : n(n),
        row(PaddedColumns<E, B>(n)),
        f(memory.Matrix(n, n)),
        q(memory.Matrix(n, n)),
        b(memory.Vector(n)),
        fp(memory.Matrix(n, n)),
        mean(memory.Vector(n)),
        cov(memory.Matrix(n, n)),
        ft_memory_(memory.Matrix(n, n)) {}

  static int64_t Size(int n) {
    return 5 * int64_t{n} * PaddedColumns<E, B>(n) + 2 * PaddedColumns<E, B>(n);
  }

  // To be called when f has changed.
  LINALG_INLINE void Transpose() { ft_ = TransposedRight<B>(n, n, f, row, ft_memory_); }
  LINALG_INLINE Strided<E> ft() const { return ft_; }
  LINALG_INLINE Strided<E> Plain(const E* a) const { return {a, row, 1}; }
  LINALG_INLINE Strided<E> Turned(const E* a) const { return {a, 1, row}; }

  LINALG_INLINE void Predict(const E* before, const E* cov_before) {
    Apply(n, n, Plain(f), before, mean);
    for (int i = 0; i < n; ++i) mean[i] = mean[i] + b[i];
    Product<B>(n, n, n, Plain(f), Plain(cov_before), Into::kSet, fp, row);
    Product<B, true>(n, n, n, Plain(fp), ft_, Into::kSet, cov, row);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j <= i; ++j) {
        cov[j * row + i] = cov[i * row + j] = cov[i * row + j] + q[i * row + j];
      }
    }
  }

 private:
  E* ft_memory_;
  Strided<E> ft_{};
};

// The gain of an observation y of the state with the moments of `prediction`.
template <class B, class E, class N = int, class M = int>
struct KalmanGain {
  N n;
  M m;
  int64_t row, short_row;
  E *all_h, *all_r, *d, *y, *seen;  // operands
  E *h, *r;                         // the same with missing components out
  E *v, *e, *s, *inverse, *kt;      // innovation, S⁻¹ v, factors of S, Kᵀ
  Strided<E> ht{};
  Mask<E> positive;  // whether S is positive definite

  KalmanGain(N n, M m, Workspace<B, E>& memory)
      : n(n),
        m(m),
        row(PaddedColumns<E, B>(n)),
        short_row(PaddedColumns<E, B>(m)),
        all_h(memory.Matrix(m, n)),
        all_r(memory.Matrix(m, m)),
        d(memory.Vector(m)),
        y(memory.Vector(m)),
        seen(memory.Vector(m)),
        h(memory.Matrix(m, n)),
        r(memory.Matrix(m, m)),
        v(memory.Vector(m)),
        e(memory.Vector(m)),
        s(memory.Matrix(m, m)),
        inverse(memory.Vector(m)),
        kt(memory.Matrix(m, n)),
        hp_(memory.Matrix(m, n)),
        ht_memory_(memory.Matrix(n, m)) {}

  static int64_t Size(int n, int m) {
    const int64_t row = PaddedColumns<E, B>(n), short_row = PaddedColumns<E, B>(m);
    return 4 * m * row + (3 * m + n) * short_row + 6 * short_row;
  }

  LINALG_INLINE Strided<E> Plain(const E* a) const { return {a, row, 1}; }
  LINALG_INLINE Strided<E> Turned(const E* a) const { return {a, 1, row}; }
  LINALG_INLINE Strided<E> Short(const E* a) const { return {a, short_row, 1}; }

  // Takes the operands over. A missing component sees nothing, with unit noise.
  LINALG_INLINE void TakeAll() {
    std::copy(all_h, all_h + m * row, h);
    std::copy(all_r, all_r + m * short_row, r);
  }
  LINALG_INLINE void TakeSeen() {
    for (int i = 0; i < m; ++i) {
      const Mask<E> is_seen = seen[i] != E{};
      for (int j = 0; j < n; ++j) h[i * row + j] = KeepIf(is_seen, all_h[i * row + j]);
      for (int j = 0; j < m; ++j) {
        r[i * short_row + j] =
            is_seen & (seen[j] != E{}) ? all_r[i * short_row + j] : Number<E>(i == j ? 1 : 0);
      }
    }
  }

  LINALG_INLINE void Compute(const E* mean, const E* cov, bool masked) {
    Apply(m, n, Plain(h), mean, v);
    for (int i = 0; i < m; ++i) {
      // A mean that is NaN makes even a missing component NaN, as such a covariance does.
      const E observed = y[i] - d[i];
      v[i] = (masked ? KeepIf(seen[i] != E{}, observed) : observed) - v[i];
      e[i] = v[i];
    }
    Product<B>(m, n, n, Plain(h), Plain(cov), Into::kSet, hp_, row);
    std::copy(r, r + m * short_row, s);
    ht = TransposedRight<B>(m, n, h, row, ht_memory_);
    Product<B, true>(m, m, n, Plain(hp_), ht, Into::kAdd, s, short_row);
    Mirror(m, short_row, s);
    positive = FactorLdl<false, B>(m, short_row, s, inverse);
    SolveLdl<E>(m, short_row, s, inverse, kOne, 1, e);
    std::copy(hp_, hp_ + m * row, kt);
    SolveLdl<B>(m, short_row, s, inverse, n, row, kt);
  }

  // The lower triangle of A X Aᵀ, with A = I - K H. `a_turned` receives Aᵀ.
  LINALG_INLINE void Propagate(const E* x, E* a_turned, E* product, E* target) const {
    SetIdentity(n, row, a_turned);
    Product<B>(n, n, m, Turned(h), Plain(kt), Into::kSubtract, a_turned, row);
    Product<B>(n, n, n, Turned(a_turned), Plain(x), Into::kSet, product, row);
    Product<B, true>(n, n, n, Plain(product), Plain(a_turned), Into::kSet, target, row);
  }

  // vᵀ S⁻¹ v + log det S
  LINALG_INLINE E Deviance() const {
    E sum = Dot(m, v, e);
    for (int i = 0; i < m; ++i) sum = sum + Logarithm(s[i * (short_row + 1)], E{});
    return sum;
  }

 private:
  E *hp_, *ht_memory_;
};

// Joseph's form. `a_turned` receives Aᵀ.
template <class B, class E, class N, class M>
LINALG_INLINE void KalmanUpdate(const KalmanGain<B, E, N, M>& gain, const E* mean, const E* cov,
                                E* a_turned, E* product, E* rk, E* new_mean, E* new_cov) {
  const N n = gain.n;
  const M m = gain.m;
  const int64_t row = gain.row;
  gain.Propagate(cov, a_turned, product, new_cov);
  Product<B>(m, n, m, gain.Short(gain.r), gain.Plain(gain.kt), Into::kSet, rk, row);
  Product<B, true>(n, n, m, gain.Turned(gain.kt), gain.Plain(rk), Into::kAdd, new_cov, row);
  Mirror(n, row, new_cov);
  std::copy(mean, mean + n, new_mean);
  Product<B>(kOne, n, m, {gain.v, 0, 1}, gain.Plain(gain.kt), Into::kAdd, new_mean, row);
}

// The smoother's state at a step: r, N and W of the comment at the top, of the later observations.
template <class B, class E, class N = int, class M = int>
struct KalmanSmoothing {
  N n;
  M m;
  int64_t row;
  E *r, *information, *noise;  // r, N and W
  E* largest;                  // bounds of the terms that were summed to the diagonal of N
  E *mean, *cov;               // smoothed

  KalmanSmoothing(N n, M m, Workspace<B, E>& memory)
      : n(n),
        m(m),
        row(PaddedColumns<E, B>(n)),
        r(memory.Vector(n)),
        information(memory.Matrix(n, n)),
        noise(memory.Matrix(n, n)),
        largest(memory.Vector(n)),
        mean(memory.Vector(n)),
        cov(memory.Matrix(n, n)),
        u_(memory.Vector(m)),
        bounds_(memory.Vector(n)),
        a_(memory.Matrix(n, n)),
        t1_(memory.Matrix(n, n)),
        t2_(memory.Matrix(n, n)),
        z_(memory.Matrix(m, n)),
        rz_(memory.Matrix(m, n)) {
    std::fill(r, r + row, E{});
    std::fill(information, information + n * row, E{});
    std::fill(noise, noise + n * row, E{});
    std::fill(largest, largest + row, E{});
  }

  static int64_t Size(int n, int m) {
    return (6 * int64_t{n} + 2 * m + 4) * PaddedColumns<E, B>(n) + PaddedColumns<E, B>(m);
  }

  // Returns a mask of the lanes whose smoothed covariance may have lost its digits: P is large
  // where the entries of N and W are small sums of large terms.
  LINALG_INLINE Mask<E> IsIllConditioned(const E* filtered_cov) const {
    E condition{};
    for (int i = 0; i < n; ++i) {
      condition = MulAdd(filtered_cov[i * (row + 1)], largest[i], condition);
    }
    // The loss is about eps times the square of this.
    constexpr Lane<E> kMost = sizeof(Lane<E>) == 4 ? Lane<E>(30) : Lane<E>(1e3);
    return condition > Broadcast<E>(kMost);
  }

  // The smoothed moments, from the filtered ones.
  LINALG_INLINE void Smooth(const E* filtered, const E* filtered_cov) {
    std::copy(filtered, filtered + n, mean);
    Product<B>(kOne, n, n, {r, 0, 1}, Plain(filtered_cov), Into::kAdd, mean, row);
    SetIdentity(n, row, a_);
    Product<B>(n, n, n, Plain(information), Plain(filtered_cov), Into::kSubtract, a_, row);
    Congruence(a_, filtered_cov, t1_, Into::kSet, cov);
    Congruence(filtered_cov, noise, t1_, Into::kAdd, cov);
    Mirror(n, row, cov);
  }

  // To the step before the one of `gain`, whose moments are predicted.
  LINALG_INLINE void Observe(const KalmanGain<B, E, N, M>& gain) {
    Apply(m, n, Plain(gain.kt), r, u_);
    for (int i = 0; i < m; ++i) u_[i] = gain.e[i] - u_[i];
    Product<B>(kOne, n, m, {u_, 0, 1}, Plain(gain.h), Into::kAdd, r, row);

    SetIdentity(n, row, a_);
    Product<B>(n, n, m, Turned(gain.kt), Plain(gain.h), Into::kSubtract, a_, row);
    std::copy(gain.h, gain.h + m * row, z_);
    SolveLdl<B>(m, gain.short_row, gain.s, gain.inverse, n, row, z_);
    BoundDiagonal(a_, [&](int i) { return information[i * (row + 1)]; }, largest);
    Product<B>(n, n, n, Plain(information), Plain(a_), Into::kSet, t1_, row);
    Product<B, true>(n, n, n, Turned(a_), Plain(t1_), Into::kSet, information, row);
    Product<B, true>(n, n, m, Turned(gain.h), Plain(z_), Into::kAdd, information, row);
    Mirror(n, row, information);
    for (int i = 0; i < n; ++i) largest[i] = largest[i] + information[i * (row + 1)];

    Product<B>(m, n, n, Plain(gain.kt), Plain(t1_), Into::kSubtract, z_, row);
    Product<B>(n, n, n, Plain(noise), Plain(a_), Into::kSet, t1_, row);
    Product<B, true>(n, n, n, Turned(a_), Plain(t1_), Into::kSet, noise, row);
    Product<B>(m, n, m, gain.Short(gain.r), Plain(z_), Into::kSet, rz_, row);
    Product<B, true>(n, n, m, Turned(z_), Plain(rz_), Into::kAdd, noise, row);
    Mirror(n, row, noise);

    const E known = Dot(m, gain.v, gain.e);
    const E failed = gain.positive & (known == known) ? E{} : Broadcast<E>(1);
    FillNaN(failed > E{}, n, r);
    FillNaN(failed > E{}, n * row, information);
    FillNaN(failed > E{}, n * row, noise);
  }

  LINALG_INLINE void MoveBack(const KalmanPrediction<B, E, N>& prediction) {
    std::copy(r, r + n, mean);
    Apply(n, n, Turned(prediction.f), mean, r);
    std::copy(largest, largest + n, bounds_);
    BoundDiagonal(prediction.f, [&](int i) { return bounds_[i]; }, largest);
    Congruence(information, prediction.q, t1_, Into::kAdd, noise);
    Mirror(n, row, noise);
    Congruence(prediction.f, noise, t1_, Into::kSet, t2_);
    Mirror(n, row, t2_);
    std::swap(noise, t2_);
    Congruence(prediction.f, information, t1_, Into::kSet, t2_);
    Mirror(n, row, t2_);
    std::swap(information, t2_);
  }

 private:
  LINALG_INLINE Strided<E> Plain(const E* a) const { return {a, row, 1}; }
  LINALG_INLINE Strided<E> Turned(const E* a) const { return {a, 1, row}; }

  // Bounds of the terms in the diagonal of aᵀ x a, up to a factor n, from the diagonal of x.
  template <class Diagonal>
  LINALG_INLINE void BoundDiagonal(const E* a, Diagonal&& x, E* bounds) const {
    for (int i = 0; i < n; ++i) {
      E sum{};
      for (int k = 0; k < n; ++k) sum = MulAdd(a[k * row + i] * a[k * row + i], x(k), sum);
      bounds[i] = sum;
    }
  }

  // The lower triangle of aᵀ x a.
  LINALG_INLINE void Congruence(const E* a, const E* x, E* product, Into into, E* target) {
    Product<B>(n, n, n, Plain(x), Plain(a), Into::kSet, product, row);
    Product<B, true>(n, n, n, Turned(a), Plain(product), into, target, row);
  }

  E *u_, *bounds_, *a_, *t1_, *t2_, *z_, *rz_;
};

// The gain G of the smoother of Rauch, Tung and Striebel, from the moments of a step and their
// prediction.
template <class B, class E, class N = int>
struct SmootherGain {
  N n;
  int64_t row;
  E *s, *inverse, *gt, *b_turned;  // factors of P', Gᵀ, Bᵀ

  SmootherGain(N n, Workspace<B, E>& memory)
      : n(n),
        row(PaddedColumns<E, B>(n)),
        s(memory.Matrix(n, n)),
        inverse(memory.Vector(n)),
        gt(memory.Matrix(n, n)),
        b_turned(memory.Matrix(n, n)) {}

  static int64_t Size(int n) {
    return 3 * int64_t{n} * PaddedColumns<E, B>(n) + PaddedColumns<E, B>(n);
  }

  LINALG_INLINE void Compute(const KalmanPrediction<B, E, N>& next) {
    std::copy(next.cov, next.cov + n * row, s);
    FactorLdl<true, B>(n, row, s, inverse);
    std::copy(next.fp, next.fp + n * row, gt);
    SolveLdl<B>(n, row, s, inverse, n, row, gt);
    SetIdentity(n, row, b_turned);
    Product<B>(n, n, n, next.Turned(next.f), next.Plain(gt), Into::kSubtract, b_turned, row);
  }
};

// The smoothed moments of Rauch, Tung and Striebel, from the filtered ones of a step and the
// smoothed ones of the next. The covariance is in Joseph's form too, B P Bᵀ + G (Pₛ' + Q) Gᵀ with B
// = I - G F. Both workspaces hold a matrix.
template <class B, class E, class N>
LINALG_INLINE void SmootherUpdate(const KalmanPrediction<B, E, N>& next,
                                  const SmootherGain<B, E, N>& gain, const E* mean, const E* cov,
                                  const E* later_mean, const E* later_cov, E* product, E* change,
                                  E* new_mean, E* new_cov) {
  const N n = gain.n;
  const int64_t row = gain.row;
  for (int i = 0; i < n; ++i) change[i] = later_mean[i] - next.mean[i];
  std::copy(mean, mean + n, new_mean);
  Product<B>(kOne, n, n, {change, 0, 1}, next.Plain(gain.gt), Into::kAdd, new_mean, row);
  Product<B>(n, n, n, next.Turned(gain.b_turned), next.Plain(cov), Into::kSet, product, row);
  Product<B, true>(n, n, n, next.Plain(product), next.Plain(gain.b_turned), Into::kSet, new_cov,
                   row);
  for (int64_t k = 0; k < n * row; ++k) change[k] = later_cov[k] + next.q[k];
  Product<B>(n, n, n, next.Plain(change), next.Plain(gain.gt), Into::kSet, product, row);
  Product<B, true>(n, n, n, next.Turned(gain.gt), next.Plain(product), Into::kAdd, new_cov, row);
  Mirror(n, row, new_cov);
}

}  // namespace linalg::small
