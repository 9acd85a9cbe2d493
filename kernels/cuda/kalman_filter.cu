// Kalman filters of whole series, by a team of at most a warp for each series.
#include "kernels/cuda/kalman.h"
#include "kernels/handlers.h"

namespace linalg::cuda {
namespace {

template <class E>
struct UpdateArrays {
  FilterArrays<E> steps;
  E *mean, *cov;  // filtered
  E* a;           // I - K H

  template <class Memory>
  constexpr UpdateArrays(Memory& memory, int n, int m)
      : steps(memory, n, m),
        mean(memory.Vector(n)),
        cov(memory.Matrix(n, n)),
        a(memory.Matrix(n, n)) {}
};

template <class E>
struct TeamFilter {
  static constexpr int kMostThreads = kBlockThreads;
  FilterOperands<E> operands;
  Steps<E> means, covs;
  E* log_likelihood;
  int32_t* info;
  Offset<E> arrays;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    ArraysOfSeries<E> memory(arrays.In(slice));
    const UpdateArrays<E> own(memory, static_cast<int>(operands.series.n),
                              static_cast<int>(operands.m));
    const FilterSteps<E> steps(operands, i, own.steps);
    const int n = steps.n, m = steps.m, ld = steps.ld;
    const E log_two_pi = E(1.8378770664093454836);
    E sum{}, lost{};
    int64_t failed = 0;
    for (int64_t t = 0; t < operands.series.steps; ++t) {
      steps.Run(team, t, /*is_first=*/t == 0, own.mean, own.cov);
      E deviance = steps.Deviance();
      if (failed == 0 && !(steps.IsPositive() && deviance == deviance)) failed = t + 1;
      for (int j = 0; j < m; ++j) deviance = deviance + (steps.IsSeen(j) ? log_two_pi : E{});
      // The rounding error of each sum is added to the next term (Kahan). It would be NaN after an
      // overflow.
      const E term = deviance - lost, next = sum + term;
      lost = next - next == E{} ? (next - sum) - term : E{};
      sum = next;
      Update(team, steps, own);
      team.Phase([&](int thread) {
        StoreShare(team, thread, means, i, t, 1, n,
                   [&](int, int j) { return failed != 0 ? NaN<E>() : own.mean[j]; });
        StoreShare(team, thread, covs, i, t, n, n,
                   [&](int row, int j) { return failed != 0 ? NaN<E>() : own.cov[row * ld + j]; });
      });
    }
    team.Each([&](int thread) {
      if (thread != 0) return;
      log_likelihood[i] = failed != 0 ? NaN<E>() : E(-0.5) * sum;
      info[i] = static_cast<int32_t>(failed);
    });
  }

 private:
  // Joseph's form.
  __device__ __forceinline__ static void Update(const Team& team, const FilterSteps<E>& steps,
                                                const UpdateArrays<E>& own) {
    const int n = steps.n, m = steps.m, ld = steps.ld;
    const FilterArrays<E>& at = steps.at;
    E *const product = at.fp, *const rk = at.hp;  // no longer needed
    const MatrixOfSeries<E> kt{at.kt, ld}, a{own.a, ld};
    const TransposeOfSeries<E> k{at.kt, ld};
    team.Phase([&](int thread) {
      ShareOfProduct<E>(
          team, thread, n, n, m, k, [&](int i, int j) { return steps.H(i, j); },
          [&](int i, int j, E x) { own.a[i * ld + j] = E(i == j) - x; });
      ShareOfProduct<E>(team, thread, n, 1, m, k, MatrixOfSeries<E>{at.v, 1},
                        [&](int i, int, E x) { own.mean[i] = at.mean[i] + x; });
      ShareOfProduct<E>(
          team, thread, m, n, m, [&](int i, int j) { return steps.R(i, j); }, kt,
          [&](int i, int j, E x) { rk[i * ld + j] = x; });
    });
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, n, n, a, MatrixOfSeries<E>{at.cov, ld},
                        [&](int i, int j, E x) { product[i * ld + j] = x; });
    });
    team.Phase([&](int thread) {
      const auto noise = [&](int i, int j) {
        E x{};
        for (int l = 0; l < m; ++l) x = MulAdd(at.kt[l * ld + i], rk[l * ld + j], x);
        return x;
      };
      ShareOfProduct<E, true>(
          team, thread, n, n, n, MatrixOfSeries<E>{product, ld}, TransposeOfSeries<E>{own.a, ld},
          [&](int i, int j, E x) { own.cov[j * ld + i] = own.cov[i * ld + j] = x + noise(i, j); });
    });
  }
};

// Tangents by the formulas of kernels/small/kalman_derivatives.h.
template <class E>
struct TangentArrays {
  FilterArrays<E> steps;
  E *mean, *cov, *before, *cov_before;         // filtered: of this step and of the one before
  E *df, *dq, *dh, *dr, *db, *dd, *dy;         // operands
  E *predicted, *dp, *filtered, *dp_filtered;  // tangents of the moments
  E *product, *sum, *a;
  E *x, *ds, *w, *re, *g, *u, *z;

  template <class Memory>
  constexpr TangentArrays(Memory& memory, int n, int m)
      : steps(memory, n, m),
        mean(memory.Vector(n)),
        cov(memory.Matrix(n, n)),
        before(memory.Vector(n)),
        cov_before(memory.Matrix(n, n)),
        df(memory.Matrix(n, n)),
        dq(memory.Matrix(n, n)),
        dh(memory.Matrix(m, n)),
        dr(memory.Matrix(m, m)),
        db(memory.Vector(n)),
        dd(memory.Vector(m)),
        dy(memory.Vector(m)),
        predicted(memory.Vector(n)),
        dp(memory.Matrix(n, n)),
        filtered(memory.Vector(n)),
        dp_filtered(memory.Matrix(n, n)),
        product(memory.Matrix(n, n)),
        sum(memory.Matrix(n, n)),
        a(memory.Matrix(n, n)),
        x(memory.Matrix(m, n)),
        ds(memory.Matrix(m, m)),
        w(memory.Vector(m)),
        re(memory.Vector(m)),
        g(memory.Vector(n)),
        u(memory.Vector(n)),
        z(memory.Vector(n)) {}
};

template <class E>
struct TeamFilterTangent {
  static constexpr int kMostThreads = kBlockThreads;
  FilterOperands<E> operands;
  Steps<E> means, covs;
  Steps<E> dy, df, dq, dh, dr, dmean, dcov, db, dd;
  Steps<E> new_means, new_covs;
  E* log_likelihood;
  Offset<E> arrays;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    ArraysOfSeries<E> memory(arrays.In(slice));
    const TangentArrays<E> own(memory, static_cast<int>(operands.series.n),
                               static_cast<int>(operands.m));
    const FilterSteps<E> steps(operands, i, own.steps);
    const int n = steps.n, ld = steps.ld;
    E change{};
    for (int64_t t = 0; t < operands.series.steps; ++t) {
      Load(team, i, t, steps, own);
      steps.Run(team, t, /*is_first=*/t == 0, own.before, own.cov_before);
      if (t > 0) Predict(team, steps, own);
      change = change + Update(team, steps, own);
      team.Phase([&](int thread) {
        StoreShare(team, thread, new_means, i, t, 1, n,
                   [&](int, int j) { return own.filtered[j]; });
        StoreShare(team, thread, new_covs, i, t, n, n,
                   [&](int row, int j) { return own.dp_filtered[row * ld + j]; });
      });
    }
    team.Each([&](int thread) {
      if (thread == 0) log_likelihood[i] = change;
    });
  }

 private:
  __device__ __forceinline__ void Load(const Team& team, int64_t i, int64_t t,
                                       const FilterSteps<E>& steps,
                                       const TangentArrays<E>& own) const {
    const int n = steps.n, m = steps.m, ld = steps.ld, ld_short = steps.ld_short;
    team.Phase([&](int thread) {
      const auto load = [&](const Steps<E>& source, int64_t step, int rows, int cols, int ld,
                            E* target, bool anew) {
        if (anew || source.each()) {
          LoadShare(team, thread, source, i, step, rows, cols, ld, target);
        }
      };
      load(means, t, 1, n, n, own.mean, true);
      load(covs, t, n, n, ld, own.cov, true);
      if (t == 0) {
        load(dmean, 0, 1, n, n, own.predicted, true);
        load(dcov, 0, n, n, ld, own.dp, true);
      } else {
        load(means, t - 1, 1, n, n, own.before, true);
        load(covs, t - 1, n, n, ld, own.cov_before, true);
        load(df, t - 1, n, n, ld, own.df, t == 1);
        load(dq, t - 1, n, n, ld, own.dq, t == 1);
        load(db, t - 1, 1, n, n, own.db, t == 1);
      }
      load(dh, t, m, n, ld, own.dh, t == 0);
      load(dr, t, m, m, ld_short, own.dr, t == 0);
      load(dd, t, 1, m, m, own.dd, t == 0);
      load(dy, t, 1, m, m, own.dy, true);
    });
  }

  __device__ __forceinline__ static void Predict(const Team& team, const FilterSteps<E>& steps,
                                                 const TangentArrays<E>& own) {
    const int n = steps.n, ld = steps.ld;
    const MatrixOfSeries<E> f{steps.at.f, ld}, df{own.df, ld}, before{own.cov_before, ld};
    const TransposeOfSeries<E> turned{steps.at.f, ld};
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, 1, n, f, MatrixOfSeries<E>{own.filtered, 1},
                        [&](int i, int, E x) {
                          E sum{};
                          for (int k = 0; k < n; ++k) sum = MulAdd(df(i, k), own.before[k], sum);
                          own.predicted[i] = (x + sum) + own.db[i];
                        });
      ShareOfProduct<E>(team, thread, n, n, n, df, before, [&](int i, int j, E x) {
        E sum{};
        for (int k = 0; k < n; ++k) sum = MulAdd(f(i, k), own.dp_filtered[k * ld + j], sum);
        own.product[i * ld + j] = E(0.5) * sum + x;
      });
    });
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, n, n, MatrixOfSeries<E>{own.product, ld}, turned,
                        [&](int i, int j, E x) { own.sum[i * ld + j] = x; });
    });
    team.Phase([&](int thread) {
      const team::Grid grid(team.size(), n);
      team::ForEachElement(grid, thread, 0, n, 0, n, [&](int i, int j) {
        if (j > i) return;
        own.dp[i * ld + j] = own.dp[j * ld + i] =
            (own.sum[i * ld + j] + own.sum[j * ld + i]) + own.dq[i * ld + j];
      });
    });
  }

  // Returns the tangent of the step's log likelihood.
  __device__ __forceinline__ static E Update(const Team& team, const FilterSteps<E>& steps,
                                             const TangentArrays<E>& own) {
    const int n = steps.n, m = steps.m, ld = steps.ld, ld_short = steps.ld_short;
    const FilterArrays<E>& at = steps.at;
    const E half = E(0.5);
    const auto dh = [&](int i, int j) { return steps.IsSeen(i) ? own.dh[i * ld + j] : E{}; };
    const auto dr = [&](int i, int j) {
      return steps.IsSeen(i) && steps.IsSeen(j) ? own.dr[i * ld_short + j] : E{};
    };
    const auto observed = [&](int i, int j) { return steps.H(i, j); };
    const auto turned = [&](int i, int j) { return steps.H(j, i); };
    const MatrixOfSeries<E> kt{at.kt, ld}, dp{own.dp, ld}, cov{own.cov, ld}, e{at.e, 1};
    const TransposeOfSeries<E> k{at.kt, ld};
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, m, 1, m, dr, e, [&](int i, int, E x) {
        E seen{};
        for (int j = 0; j < n; ++j) seen = MulAdd(dh(i, j), own.mean[j], seen);
        const E change = steps.IsSeen(i) ? own.dy[i] - own.dd[i] : E{};
        own.re[i] = x;
        own.w[i] = change - (seen + x);
      });
      ShareOfProduct<E>(team, thread, n, 1, m, turned, e, [&](int i, int, E x) { own.g[i] = x; });
      ShareOfProduct<E>(team, thread, m, n, n, observed, dp,
                        [&](int i, int j, E x) { own.x[i * ld + j] = x; });
      ShareOfProduct<E>(team, thread, n, n, m, k, observed,
                        [&](int i, int j, E x) { own.a[i * ld + j] = E(i == j) - x; });
    });
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, 1, n, dp, MatrixOfSeries<E>{own.g, 1},
                        [&](int i, int, E x) { own.u[i] = x; });
      ShareOfProduct<E>(team, thread, m, m, n, MatrixOfSeries<E>{own.x, ld}, turned,
                        [&](int i, int j, E x) { own.ds[i * ld_short + j] = dr(i, j) + x; });
      ShareOfProduct<E>(team, thread, n, n, n, MatrixOfSeries<E>{own.a, ld}, dp,
                        [&](int i, int j, E x) { own.product[i * ld + j] = x; });
      ShareOfProduct<E>(
          team, thread, n, 1, m, [&](int i, int j) { return dh(j, i); }, e,
          [&](int i, int, E x) { own.z[i] = x; });
    });
    team.Phase([&](int thread) {
      for (int col = thread; col < m; col += team.size()) {
        steps.Solve(own.ds + col, ld_short, own.ds + col);
      }
      ShareOfProduct<E>(team, thread, m, n, m, dr, kt, [&](int i, int j, E x) {
        E sum{};
        for (int l = 0; l < n; ++l) sum = MulAdd(dh(i, l), cov(l, j), sum);
        own.x[i * ld + j] = half * x - sum;
      });
    });
    E change{};
    for (int j = 0; j < n; ++j) {
      change = change + own.g[j] * own.predicted[j] + half * (own.g[j] * own.u[j]);
    }
    for (int i = 0; i < m; ++i) {
      change = change - at.e[i] * own.w[i] - half * (at.e[i] * own.re[i]);
      for (int j = 0; j < n; ++j) change = NegMulAdd(kt(i, j), dh(i, j), change);
      change = change - half * own.ds[i * (ld_short + 1)];
    }
    team.Phase([](int) {});  // before w is changed
    team.Phase([&](int thread) {
      for (int i = thread; i < m; i += team.size()) {
        E sum{};
        for (int j = 0; j < n; ++j) sum = MulAdd(observed(i, j), own.predicted[j] + own.u[j], sum);
        own.w[i] = own.w[i] - sum;
      }
    });
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, 1, m, k, MatrixOfSeries<E>{own.w, 1},
                        [&](int i, int, E x) {
                          E sum = (own.predicted[i] + own.u[i]) + x;
                          for (int l = 0; l < n; ++l) sum = MulAdd(own.z[l], cov(l, i), sum);
                          own.filtered[i] = sum;
                        });
      ShareOfProduct<E, true>(team, thread, n, n, n, MatrixOfSeries<E>{own.product, ld},
                              TransposeOfSeries<E>{own.a, ld}, [&](int i, int j, E x) {
                                E left{}, right{};
                                for (int l = 0; l < m; ++l) {
                                  left = MulAdd(kt(l, i), own.x[l * ld + j], left);
                                  right = MulAdd(kt(l, j), own.x[l * ld + i], right);
                                }
                                own.dp_filtered[i * ld + j] = own.dp_filtered[j * ld + i] =
                                    x + (left + right);
                              });
    });
    return change;
  }
};

// Cotangents by the formulas of kernels/small/kalman_derivatives.h.
template <class E>
struct AdjointArrays {
  FilterArrays<E> steps;
  E *mean, *cov, *before, *cov_before;  // filtered: of this step and of the one before
  E *mean_bar, *cov_bar;                // their cotangents, λ and Λ
  E *b, *q;                             // cotangents of the predicted moments
  E *kappa, *pi, *g;                    // Kᵀ λ, P⁺ λ, Hᵀ e
  E *kl, *klk, *s_inverse, *x, *product;

  template <class Memory>
  constexpr AdjointArrays(Memory& memory, int n, int m)
      : steps(memory, n, m),
        mean(memory.Vector(n)),
        cov(memory.Matrix(n, n)),
        before(memory.Vector(n)),
        cov_before(memory.Matrix(n, n)),
        mean_bar(memory.Vector(n)),
        cov_bar(memory.Matrix(n, n)),
        b(memory.Vector(n)),
        q(memory.Matrix(n, n)),
        kappa(memory.Vector(m)),
        pi(memory.Vector(n)),
        g(memory.Vector(n)),
        kl(memory.Matrix(m, n)),
        klk(memory.Matrix(m, m)),
        s_inverse(memory.Matrix(m, m)),
        x(memory.Matrix(m, n)),
        product(memory.Matrix(n, n)) {}
};

template <class E>
struct TeamFilterAdjoint {
  static constexpr int kMostThreads = kBlockThreads;
  FilterOperands<E> operands;
  Steps<E> means, covs, means_bar, covs_bar;
  const E* likelihood_bar;
  Steps<E> y, f, q, h, r, mean, cov, b, d;
  Offset<E> arrays;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    ArraysOfSeries<E> memory(arrays.In(slice));
    const AdjointArrays<E> own(memory, static_cast<int>(operands.series.n),
                               static_cast<int>(operands.m));
    const FilterSteps<E> steps(operands, i, own.steps);
    const int n = steps.n, ld = steps.ld;
    const int64_t count = operands.series.steps;
    Begin(team, i, n, steps.m, own);
    for (int64_t t = count - 1; t >= 0; --t) {
      Load(team, i, t, n, ld, own);
      steps.Run(team, t, /*is_first=*/t == count - 1, own.before, own.cov_before);
      Observe(team, i, t, steps, own);
      if (t > 0) Predict(team, i, t, steps, own);
    }
    team.Phase([&](int thread) {
      StoreShare(team, thread, mean, i, 0, 1, n,
                 [&](int, int j) { return count > 0 ? own.b[j] : E{}; });
      StoreShare(team, thread, cov, i, 0, n, n,
                 [&](int row, int j) { return count > 0 ? own.q[row * ld + j] : E{}; });
    });
  }

 private:
  // Sums begin at 0. The last step of an operand that moves the state has no effect.
  __device__ __forceinline__ void Begin(const Team& team, int64_t i, int n, int m,
                                        const AdjointArrays<E>& own) const {
    const int ld = n | 1;
    const int64_t last = operands.series.steps - 1;
    team.Phase([&](int thread) {
      BeginShare(team, thread, f, i, last, n, n);
      BeginShare(team, thread, q, i, last, n, n);
      BeginShare(team, thread, b, i, last, 1, n);
      if (!h.each()) BeginShare(team, thread, h, i, 0, m, n);
      if (!r.each()) BeginShare(team, thread, r, i, 0, m, m);
      if (!d.each()) BeginShare(team, thread, d, i, 0, 1, m);
      for (int k = thread; k < n; k += team.size()) own.mean_bar[k] = E{};
      for (int k = thread; k < n * ld; k += team.size()) own.cov_bar[k] = E{};
    });
  }

  __device__ __forceinline__ void Load(const Team& team, int64_t i, int64_t t, int n, int ld,
                                       const AdjointArrays<E>& own) const {
    const E* const vector = means_bar.At(i, t);
    const E* const matrix = covs_bar.At(i, t);
    team.Phase([&](int thread) {
      LoadShare(team, thread, means, i, t, 1, n, n, own.mean);
      LoadShare(team, thread, covs, i, t, n, n, ld, own.cov);
      if (t > 0) {
        LoadShare(team, thread, means, i, t - 1, 1, n, n, own.before);
        LoadShare(team, thread, covs, i, t - 1, n, n, ld, own.cov_before);
      }
      for (int k = thread; k < n; k += team.size()) {
        own.mean_bar[k] = own.mean_bar[k] + LoadGlobal(vector + k);
      }
      const team::Grid grid(team.size(), n);
      team::ForEachElement(grid, thread, 0, n, 0, n, [&](int row, int j) {
        const E symmetric =
            E(0.5) * (LoadGlobal(matrix + row * n + j) + LoadGlobal(matrix + j * n + row));
        own.cov_bar[row * ld + j] = own.cov_bar[row * ld + j] + symmetric;
      });
    });
  }

  // To the cotangents of the operands of an observation, and of the predicted moments.
  __device__ __forceinline__ void Observe(const Team& team, int64_t i, int64_t t,
                                          const FilterSteps<E>& steps,
                                          const AdjointArrays<E>& own) const {
    const int n = steps.n, m = steps.m, ld = steps.ld, ld_short = steps.ld_short;
    const FilterArrays<E>& at = steps.at;
    const E c = LoadGlobal(likelihood_bar + i), half = E(0.5), half_c = half * c;
    const MatrixOfSeries<E> kt{at.kt, ld}, kl{own.kl, ld}, cov{own.cov, ld};
    const auto observed = [&](int row, int j) { return steps.H(row, j); };
    const auto turned = [&](int row, int j) { return steps.H(j, row); };
    const auto bar_of_y = [&](int row) { return NegMulAdd(c, at.e[row], own.kappa[row]); };
    team.Phase([&](int thread) {
      const MatrixOfSeries<E> lambda{own.mean_bar, 1};
      ShareOfProduct<E>(team, thread, m, 1, n, kt, lambda,
                        [&](int row, int, E x) { own.kappa[row] = x; });
      ShareOfProduct<E>(team, thread, n, 1, n, cov, lambda,
                        [&](int row, int, E x) { own.pi[row] = x; });
      ShareOfProduct<E>(team, thread, n, 1, m, turned, MatrixOfSeries<E>{at.e, 1},
                        [&](int row, int, E x) { own.g[row] = x; });
      ShareOfProduct<E>(team, thread, m, n, n, kt, MatrixOfSeries<E>{own.cov_bar, ld},
                        [&](int row, int j, E x) { own.kl[row * ld + j] = x; });
      for (int col = thread; col < m; col += team.size()) {
        for (int k = 0; k < m; ++k) own.s_inverse[k * ld_short + col] = E(k == col);
        steps.Solve(own.s_inverse + col, ld_short, own.s_inverse + col);
      }
    });
    team.Phase([&](int thread) {
      StoreShare(team, thread, y, i, t, 1, m, [&](int, int j) { return bar_of_y(j); });
      AddShare(team, thread, d, i, t, 1, m, [&](int, int j) { return -bar_of_y(j); });
      AddShare(team, thread, h, i, t, m, n, [&](int row, int j) {
        E sum{};
        for (int k = 0; k < n; ++k) sum = MulAdd(kl(row, k), cov(k, j), sum);
        sum = MulAdd(at.e[row], own.pi[j], -(E(2) * sum));
        sum = NegMulAdd(bar_of_y(row), own.mean[j], sum);
        return NegMulAdd(c, kt(row, j), sum);
      });
      ShareOfProduct<E>(team, thread, m, m, n, kl, TransposeOfSeries<E>{at.kt, ld},
                        [&](int row, int j, E x) { own.klk[row * ld_short + j] = x; });
      ShareOfProduct<E>(team, thread, n, 1, m, turned, MatrixOfSeries<E>{own.kappa, 1},
                        [&](int row, int, E x) { own.mean_bar[row] = own.mean_bar[row] - x; });
    });
    // Each thread replaces pairs of elements that no other reads.
    team.Phase([&](int thread) {
      const team::Grid grid(team.size(), m);
      team::ForEachElement(grid, thread, 0, m, 0, m, [&](int row, int j) {
        if (j > row) return;
        const int place = row * ld_short + j, other = j * ld_short + row;
        const E inverse = half * (own.s_inverse[place] + own.s_inverse[other]);
        const E inner = NegMulAdd(half_c, inverse, half * (own.klk[place] + own.klk[other]));
        own.klk[place] = own.klk[other] = inner;
        const E outer =
            MulAdd(own.kappa[row], at.e[j], own.kappa[j] * at.e[row]) - c * (at.e[row] * at.e[j]);
        const bool is_seen = steps.IsSeen(row) && steps.IsSeen(j);
        own.s_inverse[place] = own.s_inverse[other] = is_seen ? NegMulAdd(half, outer, inner) : E{};
      });
    });
    team.Phase([&](int thread) {
      AddShare(team, thread, r, i, t, m, m,
               [&](int row, int j) { return own.s_inverse[row * ld_short + j]; });
      ShareOfProduct<E>(team, thread, m, n, m, MatrixOfSeries<E>{own.klk, ld_short}, observed,
                        [&](int row, int j, E x) {
                          const E to = MulAdd(half_c, own.g[j], own.mean_bar[j]);
                          own.x[row * ld + j] = MulAdd(half, MulAdd(at.e[row], to, x), -kl(row, j));
                        });
      for (int j = thread; j < n; j += team.size()) {
        own.b[j] = MulAdd(c, own.g[j], own.mean_bar[j]);
      }
    });
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, n, m, turned, MatrixOfSeries<E>{own.x, ld},
                        [&](int row, int j, E x) { own.product[row * ld + j] = x; });
    });
    team.Phase([&](int thread) {
      const team::Grid grid(team.size(), n);
      team::ForEachElement(grid, thread, 0, n, 0, n, [&](int row, int j) {
        own.q[row * ld + j] =
            own.cov_bar[row * ld + j] + (own.product[row * ld + j] + own.product[j * ld + row]);
      });
    });
  }

  // To the cotangents of the transition, and of the filtered moments of the step before.
  __device__ __forceinline__ void Predict(const Team& team, int64_t i, int64_t t,
                                          const FilterSteps<E>& steps,
                                          const AdjointArrays<E>& own) const {
    const int n = steps.n, ld = steps.ld;
    const FilterArrays<E>& at = steps.at;
    const MatrixOfSeries<E> bar{own.q, ld}, fp{at.fp, ld};
    const TransposeOfSeries<E> turned{at.f, ld};
    team.Phase([&](int thread) {
      AddShare(team, thread, b, i, t - 1, 1, n, [&](int, int j) { return own.b[j]; });
      AddShare(team, thread, q, i, t - 1, n, n, bar);
      AddShare(team, thread, f, i, t - 1, n, n, [&](int row, int j) {
        E sum{};
        for (int k = 0; k < n; ++k) sum = MulAdd(bar(row, k), fp(k, j), sum);
        return MulAdd(E(2), sum, own.b[row] * own.before[j]);
      });
      ShareOfProduct<E>(team, thread, n, 1, n, turned, MatrixOfSeries<E>{own.b, 1},
                        [&](int row, int, E x) { own.mean_bar[row] = x; });
      ShareOfProduct<E>(team, thread, n, n, n, bar, MatrixOfSeries<E>{at.f, ld},
                        [&](int row, int j, E x) { own.product[row * ld + j] = x; });
    });
    team.Phase([&](int thread) {
      ShareOfProduct<E, true>(
          team, thread, n, n, n, turned, MatrixOfSeries<E>{own.product, ld},
          [&](int row, int j, E x) { own.cov_bar[row * ld + j] = own.cov_bar[j * ld + row] = x; });
    });
  }
};

void KalmanFilter(cudaStream_t stream, ffi::AnyBuffer y, ffi::AnyBuffer f, ffi::AnyBuffer q,
                  ffi::AnyBuffer h, ffi::AnyBuffer r, ffi::AnyBuffer mean, ffi::AnyBuffer cov,
                  ffi::AnyBuffer b, ffi::AnyBuffer d, ffi::AnyBuffer seen, Result means,
                  Result covs, Result log_likelihood, Result info) {
  const SeriesShape series = ReadSeries(*means, "the means");
  DispatchReal(y.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto operands = ReadFilter<T>(series, y, f, q, h, r, mean, cov, b, d, seen);
    SharedLayout layout(sizeof(T));
    const int n = ToInt(series.n), m = ToInt(operands.m);
    const TeamFilter<T> job{
        .operands = operands,
        .means = ReadVectors<T>(means, series, series.n, "the means"),
        .covs = ReadMatrices<T>(covs, series, series.n, "the covariances"),
        .log_likelihood = Elements<T>(log_likelihood, series.batch, {}, "the log likelihood"),
        .info = Elements<int32_t>(info, series.batch, {}, "info"),
        .arrays = TakeArrays<UpdateArrays<T>, T>(layout, n, m)};
    LaunchTeams(stream, job, series.batch, SeriesTeamSize(n, m), layout);
  });
}

void KalmanFilterTangent(cudaStream_t stream, ffi::AnyBuffer y, ffi::AnyBuffer f, ffi::AnyBuffer q,
                         ffi::AnyBuffer h, ffi::AnyBuffer r, ffi::AnyBuffer mean,
                         ffi::AnyBuffer cov, ffi::AnyBuffer b, ffi::AnyBuffer d,
                         ffi::AnyBuffer seen, ffi::AnyBuffer means, ffi::AnyBuffer covs,
                         ffi::AnyBuffer dy, ffi::AnyBuffer df, ffi::AnyBuffer dq, ffi::AnyBuffer dh,
                         ffi::AnyBuffer dr, ffi::AnyBuffer dmean, ffi::AnyBuffer dcov,
                         ffi::AnyBuffer db, ffi::AnyBuffer dd, Result new_means, Result new_covs,
                         Result log_likelihood) {
  const SeriesShape series = ReadSeries(*new_means, "the tangents of the means");
  DispatchReal(y.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto operands = ReadFilter<T>(series, y, f, q, h, r, mean, cov, b, d, seen);
    const int64_t states = series.n;
    const int n = ToInt(states), m = ToInt(operands.m);
    SharedLayout layout(sizeof(T));
    const TeamFilterTangent<T> job{
        .operands = operands,
        .means = ReadVectors<T>(means, series, states, "the means"),
        .covs = ReadMatrices<T>(covs, series, states, "the covariances"),
        .dy = ReadSteps<T>(dy, series, -1, m, "the tangent of the observations"),
        .df = ReadSteps<T>(df, series, n, n, "the tangent of the transition"),
        .dq = ReadSteps<T>(dq, series, n, n, "the tangent of the transition's covariance"),
        .dh = ReadSteps<T>(dh, series, m, n, "the tangent of the observation matrix"),
        .dr = ReadSteps<T>(dr, series, m, m, "the tangent of the observation's covariance"),
        .dmean = ReadOne<T>(dmean, series.batch, {states}, "the tangent of the initial mean"),
        .dcov = ReadOne<T>(dcov, series.batch, {states, states},
                           "the tangent of the initial covariance"),
        .db = ReadSteps<T>(db, series, -1, n, "the tangent of the transition's offset"),
        .dd = ReadSteps<T>(dd, series, -1, m, "the tangent of the observation's offset"),
        .new_means = ReadVectors<T>(new_means, series, states, "the tangents of the means"),
        .new_covs = ReadMatrices<T>(new_covs, series, states, "the tangents of the covariances"),
        .log_likelihood =
            Elements<T>(log_likelihood, series.batch, {}, "the tangent of the log likelihood"),
        .arrays = TakeArrays<TangentArrays<T>, T>(layout, n, m)};
    LaunchTeams(stream, job, series.batch, SeriesTeamSize(n, m), layout);
  });
}

void KalmanFilterAdjoint(cudaStream_t stream, ffi::AnyBuffer y, ffi::AnyBuffer f, ffi::AnyBuffer q,
                         ffi::AnyBuffer h, ffi::AnyBuffer r, ffi::AnyBuffer mean,
                         ffi::AnyBuffer cov, ffi::AnyBuffer b, ffi::AnyBuffer d,
                         ffi::AnyBuffer seen, ffi::AnyBuffer means, ffi::AnyBuffer covs,
                         ffi::AnyBuffer means_bar, ffi::AnyBuffer covs_bar,
                         ffi::AnyBuffer likelihood_bar, Result y_bar, Result f_bar, Result q_bar,
                         Result h_bar, Result r_bar, Result mean_bar, Result cov_bar, Result b_bar,
                         Result d_bar) {
  const SeriesShape series = ReadSeries(means, "the means");
  DispatchReal(y.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto operands = ReadFilter<T>(series, y, f, q, h, r, mean, cov, b, d, seen);
    const int64_t states = series.n, seen_at_once = operands.m;
    const int n = ToInt(states), m = ToInt(seen_at_once);
    SharedLayout layout(sizeof(T));
    const TeamFilterAdjoint<T> job{
        .operands = operands,
        .means = ReadVectors<T>(means, series, states, "the means"),
        .covs = ReadMatrices<T>(covs, series, states, "the covariances"),
        .means_bar = ReadVectors<T>(means_bar, series, states, "the cotangents of the means"),
        .covs_bar = ReadMatrices<T>(covs_bar, series, states, "the cotangents of the covariances"),
        .likelihood_bar =
            Elements<T>(likelihood_bar, series.batch, {}, "the cotangent of the log likelihood"),
        .y = ReadSteps<T>(y_bar, series, -1, m, "the cotangent of the observations"),
        .f = ReadSteps<T>(f_bar, series, n, n, "the cotangent of the transition"),
        .q = ReadSteps<T>(q_bar, series, n, n, "the cotangent of the transition's covariance"),
        .h = ReadSteps<T>(h_bar, series, m, n, "the cotangent of the observation matrix"),
        .r = ReadSteps<T>(r_bar, series, m, m, "the cotangent of the observation's covariance"),
        .mean = ReadOne<T>(mean_bar, series.batch, {states}, "the cotangent of the initial mean"),
        .cov = ReadOne<T>(cov_bar, series.batch, {states, states},
                          "the cotangent of the initial covariance"),
        .b = ReadSteps<T>(b_bar, series, -1, n, "the cotangent of the transition's offset"),
        .d = ReadSteps<T>(d_bar, series, -1, m, "the cotangent of the observation's offset"),
        .arrays = TakeArrays<AdjointArrays<T>, T>(layout, n, m)};
    LaunchTeams(stream, job, series.batch, SeriesTeamSize(n, m), layout);
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_kalman_filter, linalg::cuda::KalmanFilter, LINALG_CAPTURED);
LINALG_HANDLER(linalg_kalman_filter_jvp, linalg::cuda::KalmanFilterTangent, LINALG_CAPTURED);
LINALG_HANDLER(linalg_kalman_filter_vjp, linalg::cuda::KalmanFilterAdjoint, LINALG_CAPTURED);
