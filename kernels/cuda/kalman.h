// A step of Kalman filters and smoothers by a team of at most a warp, one series each. The formulas
// and the order of the terms in each sum are those of kernels/small/kalman.h.
#pragma once

#include <limits>

#include "kernels/arithmetic/logarithm.h"
#include "kernels/cuda/launch.h"
#include "kernels/kalman_operands.h"
#include "kernels/team/team.h"

namespace linalg::cuda {

// Threads of a team for models of n states and m observations.
inline int SeriesTeamSize(int n, int m) { return std::min(TeamSize(std::max(n, m)), 32); }

// Takes the arrays of a series one after another from its slice. Rows of matrices have an odd
// length.
template <class E>
class ArraysOfSeries {
 public:
  __device__ __forceinline__ explicit ArraysOfSeries(E* memory) : next_(memory) {}

  __device__ __forceinline__ E* Vector(int n) { return Take(n); }
  __device__ __forceinline__ E* Matrix(int rows, int cols) { return Take(rows * (cols | 1)); }

 private:
  __device__ __forceinline__ E* Take(int count) {
    E* const taken = next_;
    next_ += count;
    return taken;
  }

  E* next_;
};

// Counts the elements of such arrays instead.
template <class E>
class CountOfArrays {
 public:
  constexpr E* Vector(int n) { return Take(n); }
  constexpr E* Matrix(int rows, int cols) { return Take(int64_t{rows} * (cols | 1)); }
  constexpr int64_t count() const { return count_; }

 private:
  constexpr E* Take(int64_t count) {
    count_ += count;
    return nullptr;
  }

  int64_t count_ = 0;
};

template <class Arrays, class E>
Offset<E> TakeArrays(SharedLayout& layout, int n, int m) {
  CountOfArrays<E> counting;
  static_cast<void>(Arrays(counting, n, m));
  return layout.Take<E>(counting.count());
}

// A matrix of a series, or its transpose.
template <class E>
struct MatrixOfSeries {
  const E* a;
  int ld;

  __device__ __forceinline__ E operator()(int i, int j) const { return a[i * ld + j]; }
};
template <class E>
struct TransposeOfSeries {
  const E* a;
  int ld;

  __device__ __forceinline__ E operator()(int i, int j) const { return a[j * ld + i]; }
};

// A thread's share of put(i, j, sum over k of a(i, k) b(k, j)), in the lower triangle if kLower.
template <class E, bool kLower = false, class A, class B, class Put>
__device__ __forceinline__ void ShareOfProduct(const Team& team, int thread, int rows, int cols,
                                               int depth, const A& a, const B& b, Put&& put) {
  const team::Grid grid(team.size(), rows);
  team::ForEachElement(grid, team::Again(thread), 0, rows, 0, cols, [&](int i, int j) {
    if (kLower && j > i) return;
    E sum{};
    for (int k = 0; k < depth; ++k) sum = MulAdd(a(i, k), b(k, j), sum);
    put(i, j, sum);
  });
}

template <class E>
__device__ __forceinline__ void LoadShare(const Team& team, int thread, const Steps<E>& source,
                                          int64_t series, int64_t step, int rows, int cols, int ld,
                                          E* target) {
  const E* const from = source.At(series, step);
  const team::Grid grid(team.size(), cols);
  for (int i = grid.Group(thread); i < rows; i += grid.groups) {
    for (int j = grid.Across(thread); j < cols; j += grid.width) {
      target[i * ld + j] = LoadGlobal(from + i * cols + j);
    }
  }
}
template <class E, class Value>
__device__ __forceinline__ void StoreShare(const Team& team, int thread, const Steps<E>& target,
                                           int64_t series, int64_t step, int rows, int cols,
                                           Value&& value) {
  E* const to = target.At(series, step);
  const team::Grid grid(team.size(), cols);
  for (int i = grid.Group(thread); i < rows; i += grid.groups) {
    for (int j = grid.Across(thread); j < cols; j += grid.width) {
      StoreGlobal<E>(value(i, j), to + i * cols + j);
    }
  }
}

// Adds to the sum over all steps, or writes the value of a step. Each thread adds to elements of
// its own, and so needs no barrier.
template <class E, class Value>
__device__ __forceinline__ void AddShare(const Team& team, int thread, const Steps<E>& target,
                                         int64_t series, int64_t step, int rows, int cols,
                                         Value&& value) {
  const bool each = target.each();
  const E* const sum = target.At(series, step);
  StoreShare(team, thread, target, series, step, rows, cols, [&](int i, int j) {
    return each ? value(i, j) : LoadGlobal(sum + i * cols + j) + value(i, j);
  });
}

// Begins such a sum with 0, and the values of a step that has no effect.
template <class E>
__device__ __forceinline__ void BeginShare(const Team& team, int thread, const Steps<E>& target,
                                           int64_t series, int64_t step, int rows, int cols) {
  if (target.count == 0) return;
  StoreShare(team, thread, target, series, target.each() ? step : 0, rows, cols,
             [](int, int) { return E{}; });
}

// a = L D Lᵀ: the upper triangle becomes D Lᵀ. reciprocal(k, pivot) is that of a pivot.
template <class E, class Reciprocal>
__device__ __forceinline__ void FactorLdl(const Team& team, int n, int ld, E* a, E* inverse,
                                          Reciprocal&& reciprocal) {
  for (int k = 0; k < n; ++k) {
    const E* const pivots = a + k * ld;
    team.Phase([&](int thread) {
      const E factor_of_row = reciprocal(k, pivots[k]);
      if (thread == 0) inverse[k] = factor_of_row;
      for (int i = k + 1 + thread; i < n; i += team.size()) {
        const E factor = -(pivots[i] * factor_of_row);
        for (int j = i; j < n; ++j) a[i * ld + j] = MulAdd(factor, pivots[j], a[i * ld + j]);
      }
    });
  }
}

// FactorLdl of a semidefinite matrix, which is kept in `original`. A pivot that may be a rounding
// error of its diagonal entry counts as zero, and so does its inverse.
template <class E>
__device__ __forceinline__ void FactorSemidefinite(const Team& team, int n, int ld,
                                                   const E* original, E* a, E* inverse) {
  FactorLdl(team, n, ld, a, inverse, [=](int k, E pivot) {
    const E least = E(8 * n * std::numeric_limits<E>::epsilon()) * original[k * (ld + 1)];
    return pivot <= least ? E{} : E(1) / pivot;  // NaN stays
  });
}

// x := (L D Lᵀ)⁻¹ b, elements `step` apart, by a thread. D Lᵀ is the upper triangle of `a`.
template <class E>
__device__ __forceinline__ void SolveFactored(int n, int ld, const E* a, const E* inverse,
                                              const E* b, int step, E* x) {
  for (int i = 0; i < n; ++i) {
    E sum = b[i * step];
    for (int k = 0; k < i; ++k) sum = MulAdd(-(a[k * ld + i] * inverse[k]), x[k * step], sum);
    x[i * step] = sum;
  }
  for (int i = n - 1; i >= 0; --i) {
    E sum = inverse[i] * x[i * step];
    for (int k = i + 1; k < n; ++k) {
      sum = MulAdd(-(a[i * ld + k] * inverse[i]), x[k * step], sum);
    }
    x[i * step] = sum;
  }
}

template <class E>
struct FilterArrays {
  E *f, *q, *b, *h, *r, *d, *y, *seen;  // operands
  E *mean, *cov;                        // predicted
  E *fp, *hp, *s, *inverse;             // F P, H P, factors of S
  E *v, *e, *kt;                        // innovation, S⁻¹ v, Kᵀ

  template <class Memory>
  constexpr FilterArrays(Memory& memory, int n, int m)
      : f(memory.Matrix(n, n)),
        q(memory.Matrix(n, n)),
        b(memory.Vector(n)),
        h(memory.Matrix(m, n)),
        r(memory.Matrix(m, m)),
        d(memory.Vector(m)),
        y(memory.Vector(m)),
        seen(memory.Vector(m)),
        mean(memory.Vector(n)),
        cov(memory.Matrix(n, n)),
        fp(memory.Matrix(n, n)),
        hp(memory.Matrix(m, n)),
        s(memory.Matrix(m, m)),
        inverse(memory.Vector(m)),
        v(memory.Vector(m)),
        e(memory.Vector(m)),
        kt(memory.Matrix(m, n)) {}
};

// The predicted moments and the gain of one step after another.
template <class E>
class FilterSteps {
 public:
  __device__ __forceinline__ FilterSteps(const FilterOperands<E>& operands, int64_t series,
                                         const FilterArrays<E>& arrays)
      : n(static_cast<int>(operands.series.n)),
        m(static_cast<int>(operands.m)),
        ld(n | 1),
        ld_short(m | 1),
        at(arrays),
        x_(operands),
        series_(series) {}

  // Computes those of a step, given the filtered moments of the step before. The filter's steps go
  // forward from 0, the smoother's back to 1.
  __device__ __forceinline__ void Run(const Team& team, int64_t step, bool is_first,
                                      const E* before, const E* cov_before) const {
    Load(team, step, is_first);
    if (step > 0) Predict(team, before, cov_before);
    Observe(team);
  }

  // H and R with missing components out: such a component sees nothing, with unit noise.
  __device__ __forceinline__ E H(int i, int j) const { return IsSeen(i) ? at.h[i * ld + j] : E{}; }
  __device__ __forceinline__ E R(int i, int j) const {
    return IsSeen(i) && IsSeen(j) ? at.r[i * ld_short + j] : E(i == j);
  }
  __device__ __forceinline__ bool IsSeen(int i) const { return !x_.masked() || at.seen[i] != E{}; }

  __device__ __forceinline__ bool IsPositive() const {
    bool positive = true;
    for (int k = 0; k < m; ++k) positive &= at.s[k * (ld_short + 1)] > E{};
    return positive;
  }

  // vᵀ S⁻¹ v + log det S
  __device__ __forceinline__ E Deviance() const {
    E sum{};
    for (int k = 0; k < m; ++k) sum = MulAdd(at.v[k], at.e[k], sum);
    for (int k = 0; k < m; ++k) sum = sum + Logarithm(at.s[k * (ld_short + 1)], E{});
    return sum;
  }

  // x := S⁻¹ b, elements `step` apart. Both may be the same.
  __device__ __forceinline__ void Solve(const E* b, int step, E* x) const {
    SolveFactored(m, ld_short, at.s, at.inverse, b, step, x);
  }

  int n, m, ld, ld_short;
  FilterArrays<E> at;

 private:
  __device__ __forceinline__ void Load(const Team& team, int64_t step, bool is_first) const {
    team.Phase([&](int thread) {
      const auto load = [&](const Steps<E>& source, int64_t t, int rows, int cols, int ld,
                            E* target, bool anew) {
        if (anew || source.each()) {
          LoadShare(team, thread, source, series_, t, rows, cols, ld, target);
        }
      };
      if (step == 0) {
        load(x_.mean, 0, 1, n, n, at.mean, true);
        load(x_.cov, 0, n, n, ld, at.cov, true);
      } else {
        const bool anew = is_first || step == 1;
        load(x_.f, step - 1, n, n, ld, at.f, anew);
        load(x_.q, step - 1, n, n, ld, at.q, anew);
        load(x_.b, step - 1, 1, n, n, at.b, anew);
      }
      load(x_.h, step, m, n, ld, at.h, is_first);
      load(x_.r, step, m, m, ld_short, at.r, is_first);
      load(x_.d, step, 1, m, m, at.d, is_first);
      load(x_.y, step, 1, m, m, at.y, true);
      if (x_.masked()) load(x_.seen, step, 1, m, m, at.seen, true);
    });
  }

  // The moments F m + b and F P Fᵀ + Q.
  __device__ __forceinline__ void Predict(const Team& team, const E* before,
                                          const E* cov_before) const {
    const MatrixOfSeries<E> f{at.f, ld}, fp{at.fp, ld};
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, 1, n, f, MatrixOfSeries<E>{before, 1},
                        [&](int i, int, E x) { at.mean[i] = x + at.b[i]; });
      ShareOfProduct<E>(team, thread, n, n, n, f, MatrixOfSeries<E>{cov_before, ld},
                        [&](int i, int j, E x) { at.fp[i * ld + j] = x; });
    });
    team.Phase([&](int thread) {
      ShareOfProduct<E, true>(team, thread, n, n, n, fp, TransposeOfSeries<E>{at.f, ld},
                              [&](int i, int j, E x) {
                                at.cov[j * ld + i] = at.cov[i * ld + j] = x + at.q[i * ld + j];
                              });
    });
  }

  __device__ __forceinline__ void Observe(const Team& team) const {
    const auto h = [&](int i, int j) { return H(i, j); };
    team.Phase([&](int thread) {
      ShareOfProduct<E>(
          team, thread, m, 1, n, h, MatrixOfSeries<E>{at.mean, 1},
          [&](int i, int, E x) { at.v[i] = (IsSeen(i) ? at.y[i] - at.d[i] : E{}) - x; });
      ShareOfProduct<E>(team, thread, m, n, n, h, MatrixOfSeries<E>{at.cov, ld},
                        [&](int i, int j, E x) { at.hp[i * ld + j] = x; });
    });
    team.Phase([&](int thread) {
      ShareOfProduct<E, true>(
          team, thread, m, m, n, MatrixOfSeries<E>{at.hp, ld},
          [&](int k, int j) { return H(j, k); },
          [&](int i, int j, E x) {
            at.s[j * ld_short + i] = at.s[i * ld_short + j] = R(i, j) + x;
          });
    });
    Factor(team);
    // A thread solves for columns of Kᵀ, and for S⁻¹ v.
    team.Phase([&](int thread) {
      for (int col = thread; col <= n; col += team.size()) {
        const bool is_vector = col == n;
        Solve(is_vector ? at.v : at.hp + col, is_vector ? 1 : ld, is_vector ? at.e : at.kt + col);
      }
    });
  }

  __device__ __forceinline__ void Factor(const Team& team) const {
    FactorLdl(team, m, ld_short, at.s, at.inverse, [](int, E pivot) { return E(1) / pivot; });
  }

  const FilterOperands<E>& x_;
  int64_t series_;
};

}  // namespace linalg::cuda
