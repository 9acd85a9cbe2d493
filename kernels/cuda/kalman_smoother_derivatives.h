// Tangents and adjoints of Kalman smoothers, by a team of at most a warp for each series. The
// formulas are those of kernels/small/kalman_derivatives.h.
#pragma once

#include "kernels/cuda/kalman.h"

namespace linalg::cuda {

template <class E>
struct SmootherStepArrays {
  E *f, *q, *b;                // operands
  E *mean, *p;                 // filtered moments
  E *smoothed, *smoothed_cov;  // smoothed moments
  E *later, *later_cov;        // smoothed moments of the next step
  E *cov, *s, *inverse;        // predicted covariance, and its factor
  E *gt, *b_turned;            // Gᵀ, Bᵀ
  E *e, *fe, *v, *w;           // e', Fᵀ e', V, Bᵀ / 2 + Fᵀ V

  template <class Memory>
  constexpr SmootherStepArrays(Memory& memory, int n)
      : f(memory.Matrix(n, n)),
        q(memory.Matrix(n, n)),
        b(memory.Vector(n)),
        mean(memory.Vector(n)),
        p(memory.Matrix(n, n)),
        smoothed(memory.Vector(n)),
        smoothed_cov(memory.Matrix(n, n)),
        later(memory.Vector(n)),
        later_cov(memory.Matrix(n, n)),
        cov(memory.Matrix(n, n)),
        s(memory.Matrix(n, n)),
        inverse(memory.Vector(n)),
        gt(memory.Matrix(n, n)),
        b_turned(memory.Matrix(n, n)),
        e(memory.Vector(n)),
        fe(memory.Vector(n)),
        v(memory.Matrix(n, n)),
        w(memory.Matrix(n, n)) {}
};

// The moments of one step after another, the gain, and the terms that both derivatives need.
template <class E>
class SmootherSteps {
 public:
  __device__ __forceinline__ SmootherSteps(const SmootherOperands<E>& operands, int64_t series,
                                           const SmootherStepArrays<E>& arrays)
      : n(static_cast<int>(operands.series.n)),
        ld(n | 1),
        at(arrays),
        x_(operands),
        series_(series) {}

  __device__ __forceinline__ void Run(const Team& team, int64_t step, bool is_first) const {
    Load(team, step, is_first);
    const MatrixOfSeries<E> f{at.f, ld}, gt{at.gt, ld};
    const TransposeOfSeries<E> turned{at.f, ld};
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, 1, n, f, MatrixOfSeries<E>{at.mean, 1},
                        [&](int i, int, E x) { at.e[i] = at.later[i] - (x + at.b[i]); });
      ShareOfProduct<E>(team, thread, n, n, n, f, MatrixOfSeries<E>{at.p, ld},
                        [&](int i, int j, E x) { at.gt[i * ld + j] = x; });
    });
    team.Phase([&](int thread) {
      ShareOfProduct<E, true>(team, thread, n, n, n, gt, turned, [&](int i, int j, E x) {
        const E sum = x + at.q[i * ld + j];
        at.cov[i * ld + j] = at.cov[j * ld + i] = sum;
        at.s[i * ld + j] = at.s[j * ld + i] = sum;
      });
    });
    FactorSemidefinite(team, n, ld, at.cov, at.s, at.inverse);
    // A thread solves for columns of Gᵀ, and for e'.
    team.Phase([&](int thread) {
      for (int col = thread; col <= n; col += team.size()) {
        E* const x = col == n ? at.e : at.gt + col;
        SolveFactored(n, ld, at.s, at.inverse, x, col == n ? 1 : ld, x);
      }
    });
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, 1, n, turned, MatrixOfSeries<E>{at.e, 1},
                        [&](int i, int, E x) { at.fe[i] = x; });
      ShareOfProduct<E>(team, thread, n, n, n, MatrixOfSeries<E>{at.later_cov, ld}, gt,
                        [&](int i, int j, E x) { at.v[i * ld + j] = x; });
      ShareOfProduct<E>(team, thread, n, n, n, turned, gt,
                        [&](int i, int j, E x) { at.b_turned[i * ld + j] = E(i == j) - x; });
    });
    team.Phase([&](int thread) {
      for (int col = thread; col < n; col += team.size()) {
        SolveFactored(n, ld, at.s, at.inverse, at.v + col, ld, at.v + col);
      }
    });
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, n, n, turned, MatrixOfSeries<E>{at.v, ld},
                        [&](int i, int j, E x) {
                          at.w[i * ld + j] = MulAdd(E(0.5), at.b_turned[i * ld + j], x);
                        });
    });
  }

  int n, ld;
  SmootherStepArrays<E> at;

 private:
  __device__ __forceinline__ void Load(const Team& team, int64_t step, bool is_first) const {
    team.Phase([&](int thread) {
      const auto load = [&](const Steps<E>& source, int64_t t, int rows, E* target, bool anew) {
        if (!anew && !source.each()) return;
        LoadShare(team, thread, source, series_, t, rows, n, rows == 1 ? n : ld, target);
      };
      load(x_.f, step, n, at.f, is_first);
      load(x_.q, step, n, at.q, is_first);
      load(x_.b, step, 1, at.b, is_first);
      load(x_.means, step, 1, at.mean, true);
      load(x_.covs, step, n, at.p, true);
      load(x_.smoothed, step, 1, at.smoothed, true);
      load(x_.smoothed_covs, step, n, at.smoothed_cov, true);
      load(x_.smoothed, step + 1, 1, at.later, true);
      load(x_.smoothed_covs, step + 1, n, at.later_cov, true);
    });
  }

  const SmootherOperands<E>& x_;
  int64_t series_;
};

template <class E>
struct SmootherTangentArrays {
  SmootherStepArrays<E> steps;
  E *df, *dq, *db, *dmean, *dcov;  // operands
  E *new_mean, *new_cov;           // of the smoothed moments: of the next step, then of this
  E *x, *z, *turned, *t1, *t2, *t3;

  template <class Memory>
  constexpr SmootherTangentArrays(Memory& memory, int n, int)
      : steps(memory, n),
        df(memory.Matrix(n, n)),
        dq(memory.Matrix(n, n)),
        db(memory.Vector(n)),
        dmean(memory.Vector(n)),
        dcov(memory.Matrix(n, n)),
        new_mean(memory.Vector(n)),
        new_cov(memory.Matrix(n, n)),
        x(memory.Vector(n)),
        z(memory.Vector(n)),
        turned(memory.Vector(n)),
        t1(memory.Matrix(n, n)),
        t2(memory.Matrix(n, n)),
        t3(memory.Matrix(n, n)) {}
};

template <class E>
struct TeamSmootherTangent {
  static constexpr int kMostThreads = kBlockThreads;
  SmootherOperands<E> operands;
  Steps<E> df, dq, db, dmeans, dcovs, new_means, new_covs;
  Offset<E> arrays;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    ArraysOfSeries<E> memory(arrays.In(slice));
    const SmootherTangentArrays<E> own(memory, static_cast<int>(operands.series.n), 0);
    const SmootherSteps<E> steps(operands, i, own.steps);
    const int n = steps.n, ld = steps.ld;
    const int64_t last = operands.series.steps - 1;
    if (last < 0) return;
    team.Phase([&](int thread) {
      LoadShare(team, thread, dmeans, i, last, 1, n, n, own.new_mean);
      LoadShare(team, thread, dcovs, i, last, n, n, ld, own.new_cov);
    });
    for (int64_t t = last; t >= 0; --t) {
      if (t < last) {
        steps.Run(team, t, /*is_first=*/t == last - 1);
        Load(team, i, t, t == last - 1, n, ld, own);
        Update(team, steps, own);
      }
      team.Phase([&](int thread) {
        StoreShare(team, thread, new_means, i, t, 1, n,
                   [&](int, int j) { return own.new_mean[j]; });
        StoreShare(team, thread, new_covs, i, t, n, n,
                   [&](int row, int j) { return own.new_cov[row * ld + j]; });
      });
    }
  }

 private:
  __device__ __forceinline__ void Load(const Team& team, int64_t i, int64_t t, bool is_first, int n,
                                       int ld, const SmootherTangentArrays<E>& own) const {
    team.Phase([&](int thread) {
      const auto load = [&](const Steps<E>& source, int rows, E* target) {
        if (!is_first && !source.each()) return;
        LoadShare(team, thread, source, i, t, rows, n, rows == 1 ? n : ld, target);
      };
      load(df, n, own.df);
      load(dq, n, own.dq);
      load(db, 1, own.db);
      LoadShare(team, thread, dmeans, i, t, 1, n, n, own.dmean);
      LoadShare(team, thread, dcovs, i, t, n, n, ld, own.dcov);
    });
  }

  __device__ __forceinline__ static void Update(const Team& team, const SmootherSteps<E>& steps,
                                                const SmootherTangentArrays<E>& own) {
    const int n = steps.n, ld = steps.ld;
    const SmootherStepArrays<E>& at = steps.at;
    const E half = E(0.5);
    const MatrixOfSeries<E> df{own.df, ld}, dq{own.dq, ld}, dcov{own.dcov, ld}, p{at.p, ld};
    const MatrixOfSeries<E> gt{at.gt, ld}, v{at.v, ld}, smoothed_cov{at.smoothed_cov, ld};
    const TransposeOfSeries<E> turned{own.df, ld}, g{at.gt, ld}, b{at.b_turned, ld};
    // z = dmₛ' - db - dF mₛ - dQ e', and (dPₛ' / 2) Gᵀ + dQ (Gᵀ / 2 - V) - dF Pₛ
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, 1, n, turned, MatrixOfSeries<E>{at.e, 1},
                        [&](int row, int, E x) { own.turned[row] = x; });
      ShareOfProduct<E>(team, thread, n, 1, n, df, MatrixOfSeries<E>{at.smoothed, 1},
                        [&](int row, int, E x) {
                          for (int k = 0; k < n; ++k) x = MulAdd(dq(row, k), at.e[k], x);
                          own.z[row] = (own.new_mean[row] - own.db[row]) - x;
                        });
      ShareOfProduct<E>(team, thread, n, n, n, turned, v,
                        [&](int row, int j, E x) { own.t1[row * ld + j] = x; });
      ShareOfProduct<E>(team, thread, n, n, n, MatrixOfSeries<E>{own.new_cov, ld}, gt,
                        [&](int row, int j, E x) {
                          x = half * x;
                          for (int k = 0; k < n; ++k) {
                            x = MulAdd(dq(row, k), MulAdd(half, gt(k, j), -v(k, j)), x);
                          }
                          for (int k = 0; k < n; ++k)
                            x = NegMulAdd(df(row, k), smoothed_cov(k, j), x);
                          own.t3[row * ld + j] = x;
                        });
    });
    // x = dm + dP Fᵀ e' + P dFᵀ e'
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, 1, n, dcov, MatrixOfSeries<E>{at.fe, 1},
                        [&](int row, int, E x) {
                          for (int k = 0; k < n; ++k) x = MulAdd(p(row, k), own.turned[k], x);
                          own.x[row] = own.dmean[row] + x;
                        });
      ShareOfProduct<E>(team, thread, n, n, n, p, MatrixOfSeries<E>{own.t1, ld},
                        [&](int row, int j, E x) {
                          for (int k = 0; k < n; ++k) x = MulAdd(dcov(row, k), at.w[k * ld + j], x);
                          own.t2[row * ld + j] = x;
                        });
    });
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, 1, n, b, MatrixOfSeries<E>{own.x, 1},
                        [&](int row, int, E x) {
                          for (int k = 0; k < n; ++k) x = MulAdd(g(row, k), own.z[k], x);
                          own.new_mean[row] = x;
                        });
      ShareOfProduct<E>(team, thread, n, n, n, b, MatrixOfSeries<E>{own.t2, ld},
                        [&](int row, int j, E x) {
                          for (int k = 0; k < n; ++k) x = MulAdd(g(row, k), own.t3[k * ld + j], x);
                          own.t1[row * ld + j] = x;
                        });
    });
    team.Phase([&](int thread) {
      team::ForEachElement(team::Grid(team.size(), n), thread, 0, n, 0, n, [&](int row, int j) {
        own.new_cov[row * ld + j] = own.t1[row * ld + j] + own.t1[j * ld + row];
      });
    });
  }
};

template <class E>
struct SmootherAdjointArrays {
  SmootherStepArrays<E> steps;
  E *mean_bar, *cov_bar;  // cotangents of smoothed moments, μ and M
  E *beta, *gamma, *pi;   // Bᵀ μ, Gᵀ μ, P β
  E *bm, *gm, *t1, *t2, *t3;

  template <class Memory>
  constexpr SmootherAdjointArrays(Memory& memory, int n, int)
      : steps(memory, n),
        mean_bar(memory.Vector(n)),
        cov_bar(memory.Matrix(n, n)),
        beta(memory.Vector(n)),
        gamma(memory.Vector(n)),
        pi(memory.Vector(n)),
        bm(memory.Matrix(n, n)),
        gm(memory.Matrix(n, n)),
        t1(memory.Matrix(n, n)),
        t2(memory.Matrix(n, n)),
        t3(memory.Matrix(n, n)) {}
};

template <class E>
struct TeamSmootherAdjoint {
  static constexpr int kMostThreads = kBlockThreads;
  SmootherOperands<E> operands;
  Steps<E> smoothed_bar, smoothed_covs_bar;
  Steps<E> f, q, b, means, covs;
  Offset<E> arrays;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    ArraysOfSeries<E> memory(arrays.In(slice));
    const SmootherAdjointArrays<E> own(memory, static_cast<int>(operands.series.n), 0);
    const SmootherSteps<E> steps(operands, i, own.steps);
    const int n = steps.n, ld = steps.ld;
    const int64_t last = operands.series.steps - 1;
    // The last step of an operand that moves the state has no effect.
    team.Phase([&](int thread) {
      BeginShare(team, thread, f, i, last, n, n);
      BeginShare(team, thread, q, i, last, n, n);
      BeginShare(team, thread, b, i, last, 1, n);
      for (int k = thread; k < n; k += team.size()) own.mean_bar[k] = E{};
      for (int k = thread; k < n * ld; k += team.size()) own.cov_bar[k] = E{};
    });
    for (int64_t t = 0; t <= last; ++t) {
      AddCotangents(team, i, t, n, ld, own);
      if (t == last) break;
      steps.Run(team, t, /*is_first=*/t == 0);
      Update(team, i, t, steps, own);
    }
    if (last < 0) return;
    // The last smoothed moments are the filtered ones.
    team.Phase([&](int thread) {
      StoreShare(team, thread, means, i, last, 1, n, [&](int, int j) { return own.mean_bar[j]; });
      StoreShare(team, thread, covs, i, last, n, n,
                 [&](int row, int j) { return own.cov_bar[row * ld + j]; });
    });
  }

 private:
  __device__ __forceinline__ void AddCotangents(const Team& team, int64_t i, int64_t t, int n,
                                                int ld, const SmootherAdjointArrays<E>& own) const {
    const E* const vector = smoothed_bar.At(i, t);
    const E* const matrix = smoothed_covs_bar.At(i, t);
    team.Phase([&](int thread) {
      for (int k = thread; k < n; k += team.size()) {
        own.mean_bar[k] = own.mean_bar[k] + LoadGlobal(vector + k);
      }
      team::ForEachElement(team::Grid(team.size(), n), thread, 0, n, 0, n, [&](int row, int j) {
        const E symmetric =
            E(0.5) * (LoadGlobal(matrix + row * n + j) + LoadGlobal(matrix + j * n + row));
        own.cov_bar[row * ld + j] = own.cov_bar[row * ld + j] + symmetric;
      });
    });
  }

  __device__ __forceinline__ void Update(const Team& team, int64_t i, int64_t t,
                                         const SmootherSteps<E>& steps,
                                         const SmootherAdjointArrays<E>& own) const {
    const int n = steps.n, ld = steps.ld;
    const SmootherStepArrays<E>& at = steps.at;
    const E half = E(0.5);
    const MatrixOfSeries<E> gt{at.gt, ld}, b_turned{at.b_turned, ld}, p{at.p, ld}, v{at.v, ld};
    const MatrixOfSeries<E> bar{own.cov_bar, ld}, smoothed_cov{at.smoothed_cov, ld};
    const TransposeOfSeries<E> mb{own.bm, ld}, mg{own.gm, ld};
    team.Phase([&](int thread) {
      const MatrixOfSeries<E> mu{own.mean_bar, 1};
      ShareOfProduct<E>(team, thread, n, 1, n, b_turned, mu,
                        [&](int row, int, E x) { own.beta[row] = x; });
      ShareOfProduct<E>(team, thread, n, 1, n, gt, mu,
                        [&](int row, int, E x) { own.gamma[row] = x; });
      ShareOfProduct<E>(team, thread, n, n, n, b_turned, bar,
                        [&](int row, int j, E x) { own.bm[row * ld + j] = x; });
      ShareOfProduct<E>(team, thread, n, n, n, gt, bar,
                        [&](int row, int j, E x) { own.gm[row * ld + j] = x; });
    });
    // M B P, W M B and (Gᵀ / 2 - V) M G; the next covariance has Gᵀ M G.
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, 1, n, p, MatrixOfSeries<E>{own.beta, 1},
                        [&](int row, int, E x) { own.pi[row] = x; });
      ShareOfProduct<E>(team, thread, n, n, n, mb, p,
                        [&](int row, int j, E x) { own.t1[row * ld + j] = x; });
      ShareOfProduct<E>(team, thread, n, n, n, MatrixOfSeries<E>{at.w, ld}, mb,
                        [&](int row, int j, E x) { own.t2[row * ld + j] = x; });
      ShareOfProduct<E>(
          team, thread, n, n, n,
          [&](int row, int k) { return MulAdd(half, gt(row, k), -v(row, k)); }, mg,
          [&](int row, int j, E x) { own.t3[row * ld + j] = x; });
      ShareOfProduct<E, true>(team, thread, n, n, n, gt, mg, [&](int row, int j, E x) {
        own.cov_bar[row * ld + j] = own.cov_bar[j * ld + row] = x;
      });
      for (int k = thread; k < n; k += team.size()) own.mean_bar[k] = own.gamma[k];
    });
    team.Phase([&](int thread) {
      // F̄ = e' (P β)ᵀ - γ mₛᵀ + 2 (V M B P - Gᵀ M Pₛ)
      AddShare(team, thread, f, i, t, n, n, [&](int row, int j) {
        E sum{};
        for (int k = 0; k < n; ++k) sum = MulAdd(v(row, k), own.t1[k * ld + j], sum);
        for (int k = 0; k < n; ++k) {
          sum = NegMulAdd(own.gm[row * ld + k], smoothed_cov(k, j), sum);
        }
        sum = MulAdd(E(2), sum, at.e[row] * own.pi[j]);
        return NegMulAdd(own.gamma[row], at.smoothed[j], sum);
      });
      // Q̄ = -sym(γ e'ᵀ) + (Gᵀ / 2 - V) M G + its transpose
      AddShare(team, thread, q, i, t, n, n, [&](int row, int j) {
        const E outer = MulAdd(own.gamma[row], at.e[j], own.gamma[j] * at.e[row]);
        return NegMulAdd(half, outer, own.t3[row * ld + j] + own.t3[j * ld + row]);
      });
      AddShare(team, thread, b, i, t, 1, n, [&](int, int j) { return -own.gamma[j]; });
      // P̄ = sym(β (Fᵀ e')ᵀ) + W M B + (W M B)ᵀ
      StoreShare(team, thread, covs, i, t, n, n, [&](int row, int j) {
        const E outer = MulAdd(own.beta[row], at.fe[j], own.beta[j] * at.fe[row]);
        return MulAdd(half, outer, own.t2[row * ld + j] + own.t2[j * ld + row]);
      });
      StoreShare(team, thread, means, i, t, 1, n, [&](int, int j) { return own.beta[j]; });
    });
  }
};

}  // namespace linalg::cuda
