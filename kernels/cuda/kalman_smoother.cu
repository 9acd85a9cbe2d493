// Kalman smoothers of whole series, by a team of at most a warp for each series. The recursion is
// that of kernels/small/kalman.h: Bryson and Frazier (1963), and a step of Rauch, Tung and Striebel
// (1965) where that would cancel. Derivatives: kernels/cuda/kalman_smoother_derivatives.h.
#include "kernels/cuda/kalman.h"
#include "kernels/cuda/kalman_smoother_derivatives.h"
#include "kernels/handlers.h"

namespace linalg::cuda {
namespace {

template <class E>
struct SmootherArrays {
  FilterArrays<E> steps;
  E *filtered, *p;                    // filtered moments: of a step, then of the one before
  E *mean, *cov, *later, *later_cov;  // smoothed moments of a step and of the next
  E *r, *information, *noise;         // r, N and W
  E* largest;                         // bounds of the terms that were summed to N's diagonal
  E *u, *turned_r, *bounds, *a, *t1, *t2, *z, *zz;

  template <class Memory>
  constexpr SmootherArrays(Memory& memory, int n, int m)
      : steps(memory, n, m),
        filtered(memory.Vector(n)),
        p(memory.Matrix(n, n)),
        mean(memory.Vector(n)),
        cov(memory.Matrix(n, n)),
        later(memory.Vector(n)),
        later_cov(memory.Matrix(n, n)),
        r(memory.Vector(n)),
        information(memory.Matrix(n, n)),
        noise(memory.Matrix(n, n)),
        largest(memory.Vector(n)),
        u(memory.Vector(m > n ? m : n)),
        turned_r(memory.Vector(n)),
        bounds(memory.Vector(n)),
        a(memory.Matrix(n, n)),
        t1(memory.Matrix(n, n)),
        t2(memory.Matrix(n, n)),
        z(memory.Matrix(m, n)),
        zz(memory.Matrix(m, n)) {}
};

template <class E>
struct TeamSmoother {
  static constexpr int kMostThreads = kBlockThreads;
  FilterOperands<E> operands;
  Steps<E> means, covs, smoothed, smoothed_covs;
  Offset<E> arrays;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    ArraysOfSeries<E> memory(arrays.In(slice));
    SmootherArrays<E> own(memory, static_cast<int>(operands.series.n),
                          static_cast<int>(operands.m));
    const FilterSteps<E> steps(operands, i, own.steps);
    const int n = steps.n, ld = steps.ld;
    const int64_t last = operands.series.steps - 1;
    team.Phase([&](int thread) {
      for (int k = thread; k < n; k += team.size()) own.r[k] = own.largest[k] = E{};
      for (int k = thread; k < n * ld; k += team.size()) own.information[k] = own.noise[k] = E{};
      if (last >= 0) LoadMoments(team, thread, i, last, n, ld, own);
    });
    for (int64_t t = last; t >= 0; --t) {
      Smooth(team, steps, own);
      if (t < last && IsIllConditioned(n, ld, own)) SmoothByGain(team, steps, own);
      team.Phase([&](int thread) {
        StoreShare(team, thread, smoothed, i, t, 1, n, [&](int, int j) { return own.mean[j]; });
        StoreShare(team, thread, smoothed_covs, i, t, n, n,
                   [&](int row, int j) { return own.cov[row * ld + j]; });
      });
      if (t == 0) break;
      team.Phase([&](int thread) { LoadMoments(team, thread, i, t - 1, n, ld, own); });
      Exchange(own.mean, own.later);
      Exchange(own.cov, own.later_cov);
      steps.Run(team, t, /*is_first=*/t == last, own.filtered, own.p);
      Observe(team, steps, own);
      MoveBack(team, steps, own);
    }
  }

 private:
  __device__ __forceinline__ static void Exchange(E*& x, E*& y) {
    E* const z = x;
    x = y;
    y = z;
  }

  __device__ __forceinline__ void LoadMoments(const Team& team, int thread, int64_t i, int64_t t,
                                              int n, int ld, const SmootherArrays<E>& own) const {
    LoadShare(team, thread, means, i, t, 1, n, n, own.filtered);
    LoadShare(team, thread, covs, i, t, n, n, ld, own.p);
  }

  // The loss of digits is about eps times the square of the sum.
  __device__ __forceinline__ static bool IsIllConditioned(int n, int ld,
                                                          const SmootherArrays<E>& own) {
    E condition{};
    for (int k = 0; k < n; ++k) condition = MulAdd(own.p[k * (ld + 1)], own.largest[k], condition);
    return condition > (sizeof(E) == 4 ? E(30) : E(1e3));
  }

  // A thread's share of the lower triangle of a b + c d, and its mirror image.
  template <class A, class B, class C, class D>
  __device__ __forceinline__ static void ShareOfSum(const Team& team, int thread, int n, int depth,
                                                    const A& a, const B& b, int second, const C& c,
                                                    const D& d, int ld, E* target) {
    ShareOfProduct<E, true>(team, thread, n, n, depth, a, b, [&](int i, int j, E x) {
      E sum{};
      for (int k = 0; k < second; ++k) sum = MulAdd(c(i, k), d(k, j), sum);
      target[i * ld + j] = target[j * ld + i] = x + sum;
    });
  }

  __device__ __forceinline__ static void Smooth(const Team& team, const FilterSteps<E>& steps,
                                                const SmootherArrays<E>& own) {
    const int n = steps.n, ld = steps.ld;
    const MatrixOfSeries<E> p{own.p, ld}, a{own.a, ld};
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, 1, n, TransposeOfSeries<E>{own.p, ld},
                        MatrixOfSeries<E>{own.r, 1},
                        [&](int i, int, E x) { own.mean[i] = own.filtered[i] + x; });
      ShareOfProduct<E>(team, thread, n, n, n, MatrixOfSeries<E>{own.information, ld}, p,
                        [&](int i, int j, E x) { own.a[i * ld + j] = E(i == j) - x; });
      ShareOfProduct<E>(team, thread, n, n, n, MatrixOfSeries<E>{own.noise, ld}, p,
                        [&](int i, int j, E x) { own.t2[i * ld + j] = x; });
    });
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, n, n, p, a,
                        [&](int i, int j, E x) { own.t1[i * ld + j] = x; });
    });
    team.Phase([&](int thread) {
      ShareOfSum(team, thread, n, n, TransposeOfSeries<E>{own.a, ld}, MatrixOfSeries<E>{own.t1, ld},
                 n, TransposeOfSeries<E>{own.p, ld}, MatrixOfSeries<E>{own.t2, ld}, ld, own.cov);
    });
  }

  // From the prediction of the next step and its smoothed moments. Overwrites F P.
  __device__ __forceinline__ static void SmoothByGain(const Team& team, const FilterSteps<E>& steps,
                                                      const SmootherArrays<E>& own) {
    const int n = steps.n, ld = steps.ld;
    const FilterArrays<E>& at = steps.at;
    E *const factor = own.t2, *const inverse = own.u, *const gt = at.fp;
    team.Phase([&](int thread) {
      team::ForEachElement(team::Grid(team.size(), n), thread, 0, n, 0, n,
                           [&](int i, int j) { factor[i * ld + j] = at.cov[i * ld + j]; });
    });
    FactorSemidefinite(team, n, ld, at.cov, factor, inverse);
    team.Phase([&](int thread) {
      for (int col = thread; col < n; col += team.size()) {
        SolveFactored(n, ld, factor, inverse, gt + col, ld, gt + col);
      }
    });
    const MatrixOfSeries<E> g{gt, ld};
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, n, n, TransposeOfSeries<E>{at.f, ld}, g,
                        [&](int i, int j, E x) { own.a[i * ld + j] = E(i == j) - x; });
      ShareOfProduct<E>(
          team, thread, n, n, n,
          [&](int i, int j) { return own.later_cov[i * ld + j] + at.q[i * ld + j]; }, g,
          [&](int i, int j, E x) { own.t1[i * ld + j] = x; });
      ShareOfProduct<E>(
          team, thread, n, 1, n, TransposeOfSeries<E>{gt, ld},
          [&](int k, int) { return own.later[k] - at.mean[k]; },
          [&](int i, int, E x) { own.mean[i] = own.filtered[i] + x; });
    });
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, n, n, TransposeOfSeries<E>{own.a, ld},
                        MatrixOfSeries<E>{own.p, ld},
                        [&](int i, int j, E x) { own.t2[i * ld + j] = x; });
    });
    team.Phase([&](int thread) {
      ShareOfSum(team, thread, n, n, MatrixOfSeries<E>{own.t2, ld}, MatrixOfSeries<E>{own.a, ld}, n,
                 TransposeOfSeries<E>{gt, ld}, MatrixOfSeries<E>{own.t1, ld}, ld, own.cov);
    });
  }

  // To the step before the one of the gain. A gain that failed makes all earlier moments NaN.
  __device__ __forceinline__ static void Observe(const Team& team, const FilterSteps<E>& steps,
                                                 const SmootherArrays<E>& own) {
    const int n = steps.n, m = steps.m, ld = steps.ld;
    const FilterArrays<E>& at = steps.at;
    E known{};
    for (int k = 0; k < m; ++k) known = MulAdd(at.v[k], at.e[k], known);
    const bool fails = !(steps.IsPositive() && known == known);
    const auto kept = [=](E x) { return fails ? NaN<E>() : x; };
    const auto observed = [&](int i, int j) { return steps.H(i, j); };
    const auto turned = [&](int i, int j) { return steps.H(j, i); };
    const MatrixOfSeries<E> kt{at.kt, ld}, a{own.a, ld};
    const TransposeOfSeries<E> a_turned{own.a, ld};
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, m, 1, n, kt, MatrixOfSeries<E>{own.r, 1},
                        [&](int i, int, E x) { own.u[i] = at.e[i] - x; });
      ShareOfProduct<E>(team, thread, n, n, m, TransposeOfSeries<E>{at.kt, ld}, observed,
                        [&](int i, int j, E x) { own.a[i * ld + j] = E(i == j) - x; });
      for (int col = thread; col < n; col += team.size()) {
        for (int k = 0; k < m; ++k) own.z[k * ld + col] = observed(k, col);
        steps.Solve(own.z + col, ld, own.z + col);
      }
    });
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, 1, m, turned, MatrixOfSeries<E>{own.u, 1},
                        [&](int i, int, E x) { own.r[i] = kept(own.r[i] + x); });
      ShareOfBounds(
          team, thread, n, ld, own.a, [&](int k) { return own.information[k * (ld + 1)]; },
          own.largest);
      ShareOfProduct<E>(team, thread, n, n, n, MatrixOfSeries<E>{own.information, ld}, a,
                        [&](int i, int j, E x) { own.t1[i * ld + j] = x; });
      ShareOfProduct<E>(team, thread, n, n, n, MatrixOfSeries<E>{own.noise, ld}, a,
                        [&](int i, int j, E x) { own.t2[i * ld + j] = x; });
    });
    team.Phase([&](int thread) {
      ShareOfSum(team, thread, n, n, a_turned, MatrixOfSeries<E>{own.t1, ld}, m, turned,
                 MatrixOfSeries<E>{own.z, ld}, ld, own.information);
      ShareOfProduct<E>(team, thread, m, n, n, kt, MatrixOfSeries<E>{own.t1, ld},
                        [&](int i, int j, E x) { own.zz[i * ld + j] = own.z[i * ld + j] - x; });
    });
    team.Phase([&](int thread) {
      for (int k = thread; k < n; k += team.size()) {
        own.largest[k] = own.largest[k] + own.information[k * (ld + 1)];
      }
      ShareOfProduct<E>(
          team, thread, m, n, m, [&](int i, int j) { return steps.R(i, j); },
          MatrixOfSeries<E>{own.zz, ld}, [&](int i, int j, E x) { own.z[i * ld + j] = x; });
    });
    team.Phase([&](int thread) {
      ShareOfSum(team, thread, n, n, a_turned, MatrixOfSeries<E>{own.t2, ld}, m,
                 TransposeOfSeries<E>{own.zz, ld}, MatrixOfSeries<E>{own.z, ld}, ld, own.noise);
    });
    if (!fails) return;
    team.Phase([&](int thread) {
      for (int k = thread; k < n * ld; k += team.size()) {
        own.information[k] = own.noise[k] = NaN<E>();
      }
    });
  }

  // Bounds of the terms in the diagonal of aᵀ x a, up to a factor n, from the diagonal of x.
  template <class Diagonal>
  __device__ __forceinline__ static void ShareOfBounds(const Team& team, int thread, int n, int ld,
                                                       const E* a, Diagonal&& x, E* bounds) {
    for (int i = thread; i < n; i += team.size()) {
      E sum{};
      for (int k = 0; k < n; ++k) sum = MulAdd(a[k * ld + i] * a[k * ld + i], x(k), sum);
      bounds[i] = sum;
    }
  }

  __device__ __forceinline__ static void MoveBack(const Team& team, const FilterSteps<E>& steps,
                                                  const SmootherArrays<E>& own) {
    const int n = steps.n, ld = steps.ld;
    const FilterArrays<E>& at = steps.at;
    const MatrixOfSeries<E> f{at.f, ld}, information{own.information, ld};
    const TransposeOfSeries<E> turned{at.f, ld};
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, 1, n, turned, MatrixOfSeries<E>{own.r, 1},
                        [&](int i, int, E x) { own.turned_r[i] = x; });
      ShareOfBounds(team, thread, n, ld, at.f, [&](int k) { return own.largest[k]; }, own.bounds);
      ShareOfProduct<E>(team, thread, n, n, n, MatrixOfSeries<E>{at.q, ld}, information,
                        [&](int i, int j, E x) { own.t1[i * ld + j] = x; });
      ShareOfProduct<E>(team, thread, n, n, n, information, f,
                        [&](int i, int j, E x) { own.t2[i * ld + j] = x; });
    });
    team.Phase([&](int thread) {
      for (int k = thread; k < n; k += team.size()) {
        own.r[k] = own.turned_r[k];
        own.largest[k] = own.bounds[k];
      }
      // Each thread reads the elements of W that it replaces, and no others.
      ShareOfProduct<E, true>(team, thread, n, n, n, TransposeOfSeries<E>{own.information, ld},
                              MatrixOfSeries<E>{own.t1, ld}, [&](int i, int j, E x) {
                                own.noise[i * ld + j] = own.noise[j * ld + i] =
                                    own.noise[i * ld + j] + x;
                              });
    });
    team.Phase([&](int thread) {
      ShareOfProduct<E>(team, thread, n, n, n, MatrixOfSeries<E>{own.noise, ld}, f,
                        [&](int i, int j, E x) { own.t1[i * ld + j] = x; });
      Mirrored(team, thread, n, turned, MatrixOfSeries<E>{own.t2, ld}, ld, own.information);
    });
    team.Phase([&](int thread) {
      Mirrored(team, thread, n, turned, MatrixOfSeries<E>{own.t1, ld}, ld, own.noise);
    });
  }

  template <class A, class B>
  __device__ __forceinline__ static void Mirrored(const Team& team, int thread, int n, const A& a,
                                                  const B& b, int ld, E* target) {
    ShareOfProduct<E, true>(team, thread, n, n, n, a, b, [&](int i, int j, E x) {
      target[i * ld + j] = target[j * ld + i] = x;
    });
  }
};

void KalmanSmoother(cudaStream_t stream, ffi::AnyBuffer y, ffi::AnyBuffer f, ffi::AnyBuffer q,
                    ffi::AnyBuffer h, ffi::AnyBuffer r, ffi::AnyBuffer mean, ffi::AnyBuffer cov,
                    ffi::AnyBuffer b, ffi::AnyBuffer d, ffi::AnyBuffer seen, ffi::AnyBuffer means,
                    ffi::AnyBuffer covs, Result smoothed, Result smoothed_covs) {
  const SeriesShape series = ReadSeries(means, "the means");
  DispatchReal(y.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto operands = ReadFilter<T>(series, y, f, q, h, r, mean, cov, b, d, seen);
    const int n = ToInt(series.n), m = ToInt(operands.m);
    SharedLayout layout(sizeof(T));
    const TeamSmoother<T> job{
        .operands = operands,
        .means = ReadVectors<T>(means, series, series.n, "the means"),
        .covs = ReadMatrices<T>(covs, series, series.n, "the covariances"),
        .smoothed = ReadVectors<T>(smoothed, series, series.n, "the smoothed means"),
        .smoothed_covs =
            ReadMatrices<T>(smoothed_covs, series, series.n, "the smoothed covariances"),
        .arrays = TakeArrays<SmootherArrays<T>, T>(layout, n, m)};
    LaunchTeams(stream, job, series.batch, SeriesTeamSize(n, m), layout);
  });
}

void KalmanSmootherTangent(cudaStream_t stream, ffi::AnyBuffer f, ffi::AnyBuffer q,
                           ffi::AnyBuffer b, ffi::AnyBuffer means, ffi::AnyBuffer covs,
                           ffi::AnyBuffer smoothed, ffi::AnyBuffer smoothed_covs, ffi::AnyBuffer df,
                           ffi::AnyBuffer dq, ffi::AnyBuffer db, ffi::AnyBuffer dmeans,
                           ffi::AnyBuffer dcovs, Result new_means, Result new_covs) {
  const SeriesShape series = ReadSeries(means, "the means");
  DispatchReal(f.element_type(), [&]<class T>(std::type_identity<T>) {
    const int n = ToInt(series.n);
    SharedLayout layout(sizeof(T));
    const TeamSmootherTangent<T> job{
        .operands = ReadSmoother<T>(series, f, q, b, means, covs, smoothed, smoothed_covs),
        .df = ReadSteps<T>(df, series, n, n, "the tangent of the transition"),
        .dq = ReadSteps<T>(dq, series, n, n, "the tangent of the transition's covariance"),
        .db = ReadSteps<T>(db, series, -1, n, "the tangent of the transition's offset"),
        .dmeans = ReadVectors<T>(dmeans, series, n, "the tangents of the means"),
        .dcovs = ReadMatrices<T>(dcovs, series, n, "the tangents of the covariances"),
        .new_means = ReadVectors<T>(new_means, series, n, "the tangents of smoothed means"),
        .new_covs = ReadMatrices<T>(new_covs, series, n, "the tangents of smoothed covariances"),
        .arrays = TakeArrays<SmootherTangentArrays<T>, T>(layout, n, 0)};
    LaunchTeams(stream, job, series.batch, SeriesTeamSize(n, 0), layout);
  });
}

void KalmanSmootherAdjoint(cudaStream_t stream, ffi::AnyBuffer f, ffi::AnyBuffer q,
                           ffi::AnyBuffer b, ffi::AnyBuffer means, ffi::AnyBuffer covs,
                           ffi::AnyBuffer smoothed, ffi::AnyBuffer smoothed_covs,
                           ffi::AnyBuffer smoothed_bar, ffi::AnyBuffer smoothed_covs_bar,
                           Result f_bar, Result q_bar, Result b_bar, Result means_bar,
                           Result covs_bar) {
  const SeriesShape series = ReadSeries(means, "the means");
  DispatchReal(f.element_type(), [&]<class T>(std::type_identity<T>) {
    const int n = ToInt(series.n);
    SharedLayout layout(sizeof(T));
    const TeamSmootherAdjoint<T> job{
        .operands = ReadSmoother<T>(series, f, q, b, means, covs, smoothed, smoothed_covs),
        .smoothed_bar = ReadVectors<T>(smoothed_bar, series, n, "the cotangents of smoothed means"),
        .smoothed_covs_bar =
            ReadMatrices<T>(smoothed_covs_bar, series, n, "the cotangents of smoothed covariances"),
        .f = ReadSteps<T>(f_bar, series, n, n, "the cotangent of the transition"),
        .q = ReadSteps<T>(q_bar, series, n, n, "the cotangent of the transition's covariance"),
        .b = ReadSteps<T>(b_bar, series, -1, n, "the cotangent of the transition's offset"),
        .means = ReadVectors<T>(means_bar, series, n, "the cotangents of the means"),
        .covs = ReadMatrices<T>(covs_bar, series, n, "the cotangents of the covariances"),
        .arrays = TakeArrays<SmootherAdjointArrays<T>, T>(layout, n, 0)};
    LaunchTeams(stream, job, series.batch, SeriesTeamSize(n, 0), layout);
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_kalman_smoother, linalg::cuda::KalmanSmoother, LINALG_CAPTURED);
LINALG_HANDLER(linalg_kalman_smoother_jvp, linalg::cuda::KalmanSmootherTangent, LINALG_CAPTURED);
LINALG_HANDLER(linalg_kalman_smoother_vjp, linalg::cuda::KalmanSmootherAdjoint, LINALG_CAPTURED);
