// Smoothers after Kalman filters, their tangents and their adjoints.
#include "kernels/cpu/handler.h"
#include "kernels/cpu/kalman.h"
#include "kernels/small/kalman_derivatives.h"

namespace linalg {
namespace {

// The filtered moments of one step after another, their prediction and the gain.
template <class B, class E, class T>
class SmootherSteps {
 public:
  SmootherSteps(const SmootherOperands<T>& operands, int64_t series, small::Workspace<B, E>& memory)
      : prediction(ToInt(operands.series.n), memory),
        gain(prediction.n, memory),
        mean(memory.Vector(prediction.n)),
        cov(memory.Matrix(prediction.n, prediction.n)),
        x_(operands),
        series_(series) {}

  static int64_t Size(int n) {
    return small::KalmanPrediction<B, E>::Size(n) + small::SmootherGain<B, E>::Size(n) +
           (n + 1) * PaddedColumns<E, B>(n);
  }

  void LoadMoments(int64_t step) {
    const int64_t n = prediction.n;
    Load<B>(x_.means, series_, step, 1, n, mean);
    Load<B>(x_.covs, series_, step, n, n, cov);
  }

  void Run(int64_t step) {
    const int64_t n = prediction.n;
    LoadMoments(step);
    if (is_first_ || x_.f.each()) {
      Load<B>(x_.f, series_, step, n, n, prediction.f);
      prediction.Transpose();
    }
    if (is_first_ || x_.q.each()) Load<B>(x_.q, series_, step, n, n, prediction.q);
    if (is_first_ || x_.b.each()) Load<B>(x_.b, series_, step, 1, n, prediction.b);
    is_first_ = false;
    prediction.Predict(mean, cov);
    gain.Compute(prediction);
  }

  small::KalmanPrediction<B, E> prediction;
  small::SmootherGain<B, E> gain;
  E *mean, *cov;

 private:
  SmootherOperands<T> x_;
  int64_t series_;
  bool is_first_ = true;
};

template <class T>
struct KalmanSmootherProblem {
  FilterOperands<T> operands;
  Steps<T> means, covs, smoothed, smoothed_covs;

  static constexpr bool kConstantSizes = true;
  static constexpr double kPasses = 3;

  template <class B, class E>
  int64_t Size(int n, int m) const {
    return FilterSteps<B, E, T>::Size(n, m) + small::KalmanSmoothing<B, E>::Size(n, m) +
           small::SmootherGain<B, E>::Size(n) + (6 * n + 4) * PaddedColumns<E, B>(n);
  }

  template <class B, class E, class N, class M>
  void RunOn(int64_t i, N n, M m, E* first) const {
    small::Workspace<B, E> memory{first};
    FilterSteps<B, E, T, N, M> steps(operands, i, n, m, memory);
    small::KalmanSmoothing<B, E, N, M> smoothing(n, m, memory);
    small::SmootherGain<B, E, N> gain(n, memory);
    E *mean = memory.Vector(n), *cov = memory.Matrix(n, n);
    E *before = memory.Vector(n), *cov_before = memory.Matrix(n, n);
    E *later = memory.Vector(n), *later_cov = memory.Matrix(n, n);
    E *other = memory.Vector(n), *other_cov = memory.Matrix(n, n);
    E *const product = memory.Matrix(n, n), *const change = memory.Matrix(n, n);
    const auto load = [&](int64_t t, E* vector, E* matrix) {
      Load<B>(means, i, t, 1, n, vector);
      Load<B>(covs, i, t, n, n, matrix);
    };
    const int64_t last = operands.series.steps - 1;
    if (last >= 0) load(last, mean, cov);
    for (int64_t t = last; t >= 0; --t) {
      smoothing.Smooth(mean, cov);
      const Mask<E> ill_conditioned = smoothing.IsIllConditioned(cov);
      if (t < last && Any(ill_conditioned)) {
        gain.Compute(steps.prediction);
        small::SmootherUpdate(steps.prediction, gain, mean, cov, later, later_cov, product, change,
                              other, other_cov);
        const auto choose = [&](int64_t count, const E* from, E* to) {
          for (int64_t k = 0; k < count; ++k) to[k] = Choose(ill_conditioned, from[k], to[k]);
        };
        choose(n, other, smoothing.mean);
        choose(n * smoothing.row, other_cov, smoothing.cov);
      }
      Store<B>(smoothing.mean, 1, n, smoothed, i, t);
      Store<B>(smoothing.cov, n, n, smoothed_covs, i, t);
      if (t == 0) break;
      std::swap(later, smoothing.mean);
      std::swap(later_cov, smoothing.cov);
      load(t - 1, before, cov_before);
      steps.Run(t, before, cov_before);
      smoothing.Observe(steps.gain);
      smoothing.MoveBack(steps.prediction);
      std::swap(mean, before);
      std::swap(cov, cov_before);
    }
  }
};

void KalmanSmoother(ffi::ThreadPool pool, ffi::AnyBuffer y, ffi::AnyBuffer f, ffi::AnyBuffer q,
                    ffi::AnyBuffer h, ffi::AnyBuffer r, ffi::AnyBuffer mean, ffi::AnyBuffer cov,
                    ffi::AnyBuffer b, ffi::AnyBuffer d, ffi::AnyBuffer seen, ffi::AnyBuffer means,
                    ffi::AnyBuffer covs, Result smoothed, Result smoothed_covs) {
  const SeriesShape series = ReadSeries(means, "the means");
  DispatchReal(y.element_type(), [&]<class T>(std::type_identity<T>) {
    AdviseHugePages(smoothed_covs->untyped_data(),
                    static_cast<int64_t>(smoothed_covs->size_bytes()));
    RunSeries<T>(pool,
                 KalmanSmootherProblem<T>{
                     .operands = ReadFilter<T>(series, y, f, q, h, r, mean, cov, b, d, seen),
                     .means = ReadVectors<T>(means, series, series.n, "the means"),
                     .covs = ReadMatrices<T>(covs, series, series.n, "the covariances"),
                     .smoothed = ReadVectors<T>(smoothed, series, series.n, "the smoothed means"),
                     .smoothed_covs = ReadMatrices<T>(smoothed_covs, series, series.n,
                                                      "the smoothed covariances")});
  });
}

template <class T>
struct KalmanSmootherTangentProblem {
  SmootherOperands<T> operands;
  Steps<T> df, dq, db, dmeans, dcovs;
  Steps<T> new_means, new_covs;

  static constexpr bool kConstantSizes = false;
  static constexpr double kPasses = 2.5;

  template <class B, class E>
  int64_t Size(int n, int) const {
    return SmootherSteps<B, E, T>::Size(n) + small::SmootherTerms<B, E>::Size(n) +
           small::SmootherTangent<B, E>::Size(n) + (2 * n + 2) * PaddedColumns<E, B>(n);
  }

  template <class B, class E>
  void RunOn(int64_t i, int n, int, E* first) const {
    const int64_t last = operands.series.steps - 1;
    if (last < 0) return;
    small::Workspace<B, E> memory{first};
    SmootherSteps<B, E, T> steps(operands, i, memory);
    small::SmootherTerms<B, E> terms(n, memory);
    small::SmootherTangent<B, E> tangent(n, memory);
    E *later = memory.Vector(n), *later_cov = memory.Matrix(n, n);
    E *mean = memory.Vector(n), *cov = memory.Matrix(n, n);
    Load<B>(dmeans, i, last, 1, n, tangent.later_mean);
    Load<B>(dcovs, i, last, n, n, tangent.later_cov);
    Store<B>(tangent.later_mean, 1, n, new_means, i, last);
    Store<B>(tangent.later_cov, n, n, new_covs, i, last);
    Load<B>(operands.smoothed, i, last, 1, n, later);
    Load<B>(operands.smoothed_covs, i, last, n, n, later_cov);
    for (int64_t t = last - 1; t >= 0; --t) {
      steps.Run(t);
      terms.Compute(steps.prediction, steps.gain, later, later_cov);
      Load<B>(operands.smoothed, i, t, 1, n, mean);
      Load<B>(operands.smoothed_covs, i, t, n, n, cov);
      const bool is_first = t == last - 1;
      if (is_first || df.each()) Load<B>(df, i, t, n, n, tangent.df);
      if (is_first || dq.each()) Load<B>(dq, i, t, n, n, tangent.dq);
      if (is_first || db.each()) Load<B>(db, i, t, 1, n, tangent.db);
      Load<B>(dmeans, i, t, 1, n, tangent.dmean);
      Load<B>(dcovs, i, t, n, n, tangent.dcov);
      tangent.Update(steps.prediction, steps.gain, terms, steps.cov, mean, cov);
      Store<B>(tangent.new_mean, 1, n, new_means, i, t);
      Store<B>(tangent.new_cov, n, n, new_covs, i, t);
      std::swap(tangent.new_mean, tangent.later_mean);
      std::swap(tangent.new_cov, tangent.later_cov);
      std::swap(mean, later);
      std::swap(cov, later_cov);
    }
  }
};

void KalmanSmootherTangent(ffi::ThreadPool pool, ffi::AnyBuffer f, ffi::AnyBuffer q,
                           ffi::AnyBuffer b, ffi::AnyBuffer means, ffi::AnyBuffer covs,
                           ffi::AnyBuffer smoothed, ffi::AnyBuffer smoothed_covs, ffi::AnyBuffer df,
                           ffi::AnyBuffer dq, ffi::AnyBuffer db, ffi::AnyBuffer dmeans,
                           ffi::AnyBuffer dcovs, Result new_means, Result new_covs) {
  const SeriesShape series = ReadSeries(means, "the means");
  DispatchReal(f.element_type(), [&]<class T>(std::type_identity<T>) {
    const int64_t n = series.n;
    RunSeries<T>(
        pool,
        KalmanSmootherTangentProblem<T>{
            .operands = ReadSmoother<T>(series, f, q, b, means, covs, smoothed, smoothed_covs),
            .df = ReadSteps<T>(df, series, n, n, "the tangent of the transition"),
            .dq = ReadSteps<T>(dq, series, n, n, "the tangent of the transition's covariance"),
            .db = ReadSteps<T>(db, series, -1, n, "the tangent of the transition's offset"),
            .dmeans = ReadVectors<T>(dmeans, series, n, "the tangents of the means"),
            .dcovs = ReadMatrices<T>(dcovs, series, n, "the tangents of the covariances"),
            .new_means = ReadVectors<T>(new_means, series, n, "the tangents of smoothed means"),
            .new_covs =
                ReadMatrices<T>(new_covs, series, n, "the tangents of smoothed covariances")});
  });
}

template <class T>
struct KalmanSmootherAdjointProblem {
  SmootherOperands<T> operands;
  Steps<T> smoothed_bar, smoothed_covs_bar;
  Steps<T> f, q, b, means, covs;

  static constexpr bool kConstantSizes = false;
  static constexpr double kPasses = 2.5;

  template <class B, class E>
  int64_t Size(int n, int) const {
    return SmootherSteps<B, E, T>::Size(n) + small::SmootherTerms<B, E>::Size(n) +
           small::SmootherAdjoint<B, E>::Size(n) + (5 * n + 4) * PaddedColumns<E, B>(n);
  }

  template <class B, class E>
  void RunOn(int64_t i, int n, int, E* first) const {
    const int64_t count = operands.series.steps;
    small::Workspace<B, E> memory{first};
    SmootherSteps<B, E, T> steps(operands, i, memory);
    small::SmootherTerms<B, E> terms(n, memory);
    small::SmootherAdjoint<B, E> adjoint(n, memory);
    Sum<B, E, T> f_sum(f, n, n, memory), q_sum(q, n, n, memory), b_sum(b, 1, n, memory);
    // The smoothed moments of this step and of the next.
    E *mean = memory.Vector(n), *cov = memory.Matrix(n, n);
    E *later = memory.Vector(n), *later_cov = memory.Matrix(n, n);
    const int64_t row = steps.gain.row;
    const E half = Number<E>(0.5);
    std::fill_n(adjoint.mean, n, E{});
    std::fill_n(adjoint.cov, n * row, E{});
    if (count > 0) {
      Load<B>(operands.smoothed, i, 0, 1, n, mean);
      Load<B>(operands.smoothed_covs, i, 0, n, n, cov);
      f_sum.AddNothing(i, count - 1);
      q_sum.AddNothing(i, count - 1);
      b_sum.AddNothing(i, count - 1);
    }
    for (int64_t t = 0; t < count; ++t) {
      Load<B>(smoothed_bar, i, t, 1, n, adjoint.filtered_mean);
      Load<B>(smoothed_covs_bar, i, t, n, n, adjoint.filtered_cov);
      small::AddTranspose(n, row, adjoint.filtered_cov, half);
      for (int j = 0; j < n; ++j) adjoint.mean[j] = adjoint.mean[j] + adjoint.filtered_mean[j];
      for (int64_t k = 0; k < n * row; ++k) {
        adjoint.cov[k] = adjoint.cov[k] + adjoint.filtered_cov[k];
      }
      if (t == count - 1) break;
      steps.Run(t);
      Load<B>(operands.smoothed, i, t + 1, 1, n, later);
      Load<B>(operands.smoothed_covs, i, t + 1, n, n, later_cov);
      terms.Compute(steps.prediction, steps.gain, later, later_cov);
      adjoint.Update(steps.prediction, steps.gain, terms, steps.cov, mean, cov);
      f_sum.Add(i, t, adjoint.f);
      q_sum.Add(i, t, adjoint.q);
      b_sum.Add(i, t, adjoint.b);
      Store<B>(adjoint.filtered_mean, 1, n, means, i, t);
      Store<B>(adjoint.filtered_cov, n, n, covs, i, t);
      std::swap(mean, later);
      std::swap(cov, later_cov);
    }
    if (count > 0) {  // the last smoothed moments are the filtered ones
      Store<B>(adjoint.mean, 1, n, means, i, count - 1);
      Store<B>(adjoint.cov, n, n, covs, i, count - 1);
    }
    f_sum.Finish(i);
    q_sum.Finish(i);
    b_sum.Finish(i);
  }
};

void KalmanSmootherAdjoint(ffi::ThreadPool pool, ffi::AnyBuffer f, ffi::AnyBuffer q,
                           ffi::AnyBuffer b, ffi::AnyBuffer means, ffi::AnyBuffer covs,
                           ffi::AnyBuffer smoothed, ffi::AnyBuffer smoothed_covs,
                           ffi::AnyBuffer smoothed_bar, ffi::AnyBuffer smoothed_covs_bar,
                           Result f_bar, Result q_bar, Result b_bar, Result means_bar,
                           Result covs_bar) {
  const SeriesShape series = ReadSeries(means, "the means");
  DispatchReal(f.element_type(), [&]<class T>(std::type_identity<T>) {
    const int64_t n = series.n;
    RunSeries<T>(
        pool,
        KalmanSmootherAdjointProblem<T>{
            .operands = ReadSmoother<T>(series, f, q, b, means, covs, smoothed, smoothed_covs),
            .smoothed_bar =
                ReadVectors<T>(smoothed_bar, series, n, "the cotangents of smoothed means"),
            .smoothed_covs_bar = ReadMatrices<T>(smoothed_covs_bar, series, n,
                                                 "the cotangents of smoothed covariances"),
            .f = ReadSteps<T>(f_bar, series, n, n, "the cotangent of the transition"),
            .q = ReadSteps<T>(q_bar, series, n, n, "the cotangent of the transition's covariance"),
            .b = ReadSteps<T>(b_bar, series, -1, n, "the cotangent of the transition's offset"),
            .means = ReadVectors<T>(means_bar, series, n, "the cotangents of the means"),
            .covs = ReadMatrices<T>(covs_bar, series, n, "the cotangents of the covariances")});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_kalman_smoother, linalg::KalmanSmoother);
LINALG_CPU_HANDLER(linalg_kalman_smoother_jvp, linalg::KalmanSmootherTangent);
LINALG_CPU_HANDLER(linalg_kalman_smoother_vjp, linalg::KalmanSmootherAdjoint);
