// Kalman filters of whole series, their tangents and their adjoints. Derivatives read the filtered
// moments, and compute the gains of each step again: that is faster than to keep them in memory.
#include <vector>

#include "kernels/cpu/handler.h"
#include "kernels/cpu/kalman.h"
#include "kernels/small/kalman_derivatives.h"

namespace linalg {
namespace {

// Stores what follows from the sum of the deviances, and the first step that failed or 0.
template <class E>
void StoreLikelihood(E deviance, E failed, Lane<E>* log_likelihood, int32_t* info) {
  E half = Number<E>(-0.5) * deviance;
  FillNaN(failed > E{}, 1, &half);
  StoreElements(&half, 1, log_likelihood);
  StoreIntegers(&failed, 1, info);
}

template <class T>
struct KalmanFilterProblem {
  FilterOperands<T> operands;
  Steps<T> means, covs;
  T* log_likelihood;
  int32_t* info;

  static constexpr bool kConstantSizes = true;
  static constexpr double kPasses = 1;

  void RunEmpty() const {
    std::fill_n(log_likelihood, operands.series.batch, T{});
    std::fill_n(info, operands.series.batch, 0);
  }

  template <class B, class E>
  int64_t Size(int n, int m) const {
    const int64_t row = PaddedColumns<E, B>(n);
    return FilterSteps<B, E, T>::Size(n, m) + (3 * n + m) * row + row;
  }

  template <class B, class E, class N, class M>
  void RunOn(int64_t i, N n, M m, E* first) const {
    small::Workspace<B, E> memory{first};
    FilterSteps<B, E, T, N, M> steps(operands, i, n, m, memory);
    auto& gain = steps.gain;
    E *const mean = memory.Vector(n), *const cov = memory.Matrix(n, n),
             *const a_turned = memory.Matrix(n, n), *const product = memory.Matrix(n, n),
             *const rk = memory.Matrix(m, n);
    const E log_two_pi = Number<E>(1.8378770664093454836);
    E failed{}, sum{}, lost{};
    for (int64_t t = 0; t < operands.series.steps; ++t) {
      steps.Run(t, mean, cov);
      E deviance = gain.Deviance();
      failed =
          (failed > E{}) | (gain.positive & (deviance == deviance)) ? failed : Number<E>(t + 1);
      small::KalmanUpdate(gain, steps.prediction.mean, steps.prediction.cov, a_turned, product, rk,
                          mean, cov);
      FillNaN(failed > E{}, n, mean);
      FillNaN(failed > E{}, n * gain.row, cov);
      for (int j = 0; j < m; ++j) {
        const E term = steps.masked() ? KeepIf(gain.seen[j] != E{}, log_two_pi) : log_two_pi;
        deviance = deviance + term;
      }
      small::AddWithLoss(deviance, sum, lost);
      Store<B>(mean, 1, n, means, i, t);
      Store<B>(cov, n, n, covs, i, t);
    }
    StoreLikelihood(sum, failed, log_likelihood + i, info + i);
  }
};

void KalmanFilter(ffi::ThreadPool pool, ffi::AnyBuffer y, ffi::AnyBuffer f, ffi::AnyBuffer q,
                  ffi::AnyBuffer h, ffi::AnyBuffer r, ffi::AnyBuffer mean, ffi::AnyBuffer cov,
                  ffi::AnyBuffer b, ffi::AnyBuffer d, ffi::AnyBuffer seen, Result means,
                  Result covs, Result log_likelihood, Result info) {
  const SeriesShape series = ReadSeries(*means, "the means");
  DispatchReal(y.element_type(), [&]<class T>(std::type_identity<T>) {
    AdviseHugePages(covs->untyped_data(), static_cast<int64_t>(covs->size_bytes()));
    RunSeries<T>(pool, KalmanFilterProblem<T>{
                           .operands = ReadFilter<T>(series, y, f, q, h, r, mean, cov, b, d, seen),
                           .means = ReadVectors<T>(means, series, series.n, "the means"),
                           .covs = ReadMatrices<T>(covs, series, series.n, "the covariances"),
                           .log_likelihood =
                               Elements<T>(log_likelihood, series.batch, {}, "the log likelihood"),
                           .info = Elements<int32_t>(info, series.batch, {}, "info")});
  });
}

// The means and log likelihoods of many series with one model. Covariances and gains do not depend
// on the observations, so they are those of one series. The bits are those of KalmanFilterProblem.
template <class T>
struct KalmanMeansProblem {
  FilterOperands<T> operands;
  Steps<T> covs;
  Steps<T> means;
  T* log_likelihood;
  int32_t* info;

  CpuPath path() const { return CpuPath::kLane; }
  bool IsEmpty() const { return operands.IsEmpty(); }
  void RunEmpty() const {
    std::fill_n(log_likelihood, operands.series.batch, T{});
    std::fill_n(info, operands.series.batch, 0);
  }

  void RunInLanes(ffi::ThreadPool& pool) const {
    if (operands.series.batch == 0) return;
    const int n = ToInt(operands.series.n), m = ToInt(operands.m);
    const int64_t size = 2 * n + 2 * m + n + m + kRun * (n + m);
    const double order = static_cast<double>(n), rows = static_cast<double>(m);
    const double operations = static_cast<double>(operands.series.steps) *
                              (30 + order * order + 2 * order * rows + rows * rows);
    const Gains gains = ComputeGains(n, m);
    ForEachGroup<T>(pool, operands.series.batch, size, 20 + 0.3 * operations,
                    [&]<class V>(int64_t i, V* memory) {
                      DispatchModel<V>(n, m,
                                       [&](auto n, auto m) { RunOn(i, n, m, gains, memory); });
                    });
  }

 private:
  // Observations and means move by so many steps, so that each access is of a whole cache line.
  static constexpr int64_t kRun = 8;

  struct Gain {
    bool positive;
    const T *kt, *s, *inverse, *logarithms;  // those of KalmanGain
  };
  class Gains {
   public:
    Gains(int64_t steps, int64_t n, int64_t m) : n_(n), m_(m), numbers_(steps * size()) {}

    T* At(int64_t step) { return numbers_.data() + step * size(); }
    Gain operator[](int64_t step) const {
      const T* const kt = numbers_.data() + step * size();
      const T* const s = kt + m_ * n_;
      const T* const inverse = s + m_ * m_;
      return {inverse[2 * m_] != 0, kt, s, inverse, inverse + m_};
    }

   private:
    int64_t size() const { return m_ * n_ + m_ * m_ + 2 * m_ + 1; }

    int64_t n_, m_;
    std::vector<T> numbers_;
  };

  Gains ComputeGains(int n, int m) const {
    using B = BlockOfOne<T>;
    const SubnormalNumbers subnormal_numbers;
    const int64_t steps = operands.series.steps;
    const int row = PaddedColumns<T, B>(n), short_row = PaddedColumns<T, B>(m);
    std::vector<T> numbers(FilterSteps<B, T, T>::Size(n, m) + (n + 1) * row);
    small::Workspace<B, T> memory{numbers.data()};
    FilterSteps<B, T, T> filter(operands, 0, n, m, memory);
    T *const mean = memory.Vector(n), *const cov = memory.Matrix(n, n);
    Gains gains(steps, n, m);
    for (int64_t t = 0; t < steps; ++t) {
      if (t > 0) Load<B>(covs, 0, t - 1, n, n, cov);
      filter.Run(t, mean, cov);
      const auto& gain = filter.gain;
      T* target = gains.At(t);
      const auto copy = [&](const T* source, int64_t rows, int64_t cols, int64_t stride) {
        for (int64_t i = 0; i < rows; ++i) {
          target = std::copy_n(source + i * stride, cols, target);
        }
      };
      copy(gain.kt, m, n, row);
      copy(gain.s, m, m, short_row);
      copy(gain.inverse, 1, m, m);
      for (int i = 0; i < m; ++i) *target++ = Logarithm(gain.s[i * (short_row + 1)], T{});
      *target = gain.positive ? 1 : 0;
    }
    return gains;
  }

  template <class V, class N, class M>
  void RunOn(int64_t i, N n, M m, const Gains& gains, V* memory) const {
    V *const mean = memory, *const ahead = mean + n, *const v = ahead + n, *const e = v + m;
    V *const b = e + m, *const d = b + n, *const y = d + m, *const moved = y + kRun * m;
    const int64_t steps = operands.series.steps;
    const auto load = [&](const Steps<T>& source, int64_t step, int64_t count, V* target) {
      LoadElements(source.At(i, step), source.stride(), count, target);
    };
    const auto times = [](const T* row, int count, const V* x) {
      V sum{};
      for (int k = 0; k < count; ++k) sum = MulAdd(Broadcast<V>(row[k]), x[k], sum);
      return sum;
    };
    load(operands.b, 0, n, b);
    load(operands.d, 0, m, d);
    const V log_two_pi = Number<V>(1.8378770664093454836);
    V failed{}, sum{}, lost{};
    for (int64_t first = 0; first < steps; first += kRun) {
      const int64_t last = std::min(steps, first + kRun);
      load(operands.y, first, (last - first) * m, y);
      for (int64_t t = first; t < last; ++t) {
        const Gain gain = gains[t];
        if (t == 0) {
          load(operands.mean, 0, n, ahead);
        } else {
          if (operands.b.each()) load(operands.b, t - 1, n, b);
          const T* const f = operands.f.At(0, t - 1);
          for (int j = 0; j < n; ++j) ahead[j] = times(f + j * n, n, mean) + b[j];
        }
        if (operands.d.each()) load(operands.d, t, m, d);
        const T* const h = operands.h.At(0, t);
        for (int j = 0; j < m; ++j) {
          v[j] = (y[(t - first) * m + j] - d[j]) - times(h + j * n, n, ahead);
        }
        for (int j = 0; j < m; ++j) {
          V x = v[j];
          for (int k = 0; k < j; ++k) x = MulAdd(Broadcast<V>(-gain.s[j * m + k]), e[k], x);
          e[j] = x;
        }
        for (int j = m - 1; j >= 0; --j) {
          V x = Broadcast<V>(gain.inverse[j]) * e[j];
          for (int k = j + 1; k < m; ++k) x = MulAdd(Broadcast<V>(-gain.s[k * m + j]), e[k], x);
          e[j] = x;
        }
        V deviance = small::Dot(m, v, e);
        for (int j = 0; j < m; ++j) deviance = deviance + Broadcast<V>(gain.logarithms[j]);
        const V positive = Number<V>(gain.positive ? 1 : 0);
        failed = (failed > V{}) | ((positive > V{}) & (deviance == deviance)) ? failed
                                                                              : Number<V>(t + 1);
        for (int j = 0; j < n; ++j) {
          V change{};
          for (int k = 0; k < m; ++k) {
            change = MulAdd(v[k], Broadcast<V>(gain.kt[k * n + j]), change);
          }
          mean[j] = ahead[j] + change;
        }
        FillNaN(failed > V{}, n, mean);
        std::copy_n(mean, static_cast<int>(n), moved + (t - first) * n);
        for (int j = 0; j < m; ++j) deviance = deviance + log_two_pi;
        small::AddWithLoss(deviance, sum, lost);
      }
      StoreElements(moved, (last - first) * n, steps * n, means.At(i, first));
    }
    StoreLikelihood(sum, failed, log_likelihood + i, info + i);
  }
};

void KalmanMeans(ffi::ThreadPool pool, ffi::AnyBuffer y, ffi::AnyBuffer f, ffi::AnyBuffer q,
                 ffi::AnyBuffer h, ffi::AnyBuffer r, ffi::AnyBuffer mean, ffi::AnyBuffer cov,
                 ffi::AnyBuffer b, ffi::AnyBuffer d, ffi::AnyBuffer covs, Result means,
                 Result log_likelihood, Result info) {
  const SeriesShape series = ReadSeries(*means, "the means");
  DispatchReal(y.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto operands = ReadFilter<T>(series, y, f, q, h, r, mean, cov, b, d);
    const Steps<T> filtered = ReadSteps<T>(covs, series, series.n, series.n, "the covariances");
    for (const Steps<T>* x :
         {&operands.f, &operands.q, &operands.h, &operands.r, &operands.cov, &filtered}) {
      if (!x->shared) throw std::invalid_argument("the model must serve the whole batch");
    }
    RunOnPath(pool,
              KalmanMeansProblem<T>{.operands = operands,
                                    .covs = filtered,
                                    .means = ReadVectors<T>(means, series, series.n, "the means"),
                                    .log_likelihood = Elements<T>(log_likelihood, series.batch, {},
                                                                  "the log likelihood"),
                                    .info = Elements<int32_t>(info, series.batch, {}, "info")});
  });
}

template <class T>
struct KalmanFilterTangentProblem {
  FilterOperands<T> operands;
  Steps<T> means, covs;
  Steps<T> dy, df, dq, dh, dr, dmean, dcov, db, dd;
  Steps<T> new_means, new_covs;
  T* log_likelihood;

  static constexpr bool kConstantSizes = false;
  static constexpr double kPasses = 2.5;

  void RunEmpty() const { std::fill_n(log_likelihood, operands.series.batch, T{}); }

  template <class B, class E>
  int64_t Size(int n, int m) const {
    return FilterSteps<B, E, T>::Size(n, m) + small::FilterTangent<B, E>::Size(n, m) +
           2 * (n + 1) * PaddedColumns<E, B>(n);
  }

  template <class B, class E>
  void RunOn(int64_t i, int n, int m, E* first) const {
    small::Workspace<B, E> memory{first};
    FilterSteps<B, E, T> steps(operands, i, n, m, memory);
    small::FilterTangent<B, E> tangent(n, m, memory);
    // The filtered moments of the last step, and of this one.
    E *before = memory.Vector(n), *cov_before = memory.Matrix(n, n);
    E *mean = memory.Vector(n), *cov = memory.Matrix(n, n);
    const bool masked = steps.masked();
    E change{};
    for (int64_t t = 0; t < operands.series.steps; ++t) {
      steps.Run(t, before, cov_before);
      if (t == 0) {
        Load<B>(dmean, i, 0, 1, n, tangent.mean);
        Load<B>(dcov, i, 0, n, n, tangent.cov);
      } else {
        if (t == 1 || df.each()) Load<B>(df, i, t - 1, n, n, tangent.df);
        if (t == 1 || dq.each()) Load<B>(dq, i, t - 1, n, n, tangent.dq);
        if (t == 1 || db.each()) Load<B>(db, i, t - 1, 1, n, tangent.db);
        tangent.Predict(steps.prediction, before, cov_before);
      }
      Load<B>(means, i, t, 1, n, mean);
      Load<B>(covs, i, t, n, n, cov);
      const bool anew = t == 0 || masked;
      if (anew || dh.each()) Load<B>(dh, i, t, m, n, tangent.dh);
      if (anew || dr.each()) Load<B>(dr, i, t, m, m, tangent.dr);
      if (anew || dd.each()) Load<B>(dd, i, t, 1, m, tangent.dd);
      Load<B>(dy, i, t, 1, m, tangent.dy);
      change = change + tangent.Update(steps.gain, mean, cov, masked);
      Store<B>(tangent.new_mean, 1, n, new_means, i, t);
      Store<B>(tangent.new_cov, n, n, new_covs, i, t);
      std::swap(before, mean);
      std::swap(cov_before, cov);
    }
    StoreElements(&change, 1, log_likelihood + i);
  }
};

void KalmanFilterTangent(ffi::ThreadPool pool, ffi::AnyBuffer y, ffi::AnyBuffer f, ffi::AnyBuffer q,
                         ffi::AnyBuffer h, ffi::AnyBuffer r, ffi::AnyBuffer mean,
                         ffi::AnyBuffer cov, ffi::AnyBuffer b, ffi::AnyBuffer d,
                         ffi::AnyBuffer seen, ffi::AnyBuffer means, ffi::AnyBuffer covs,
                         ffi::AnyBuffer dy, ffi::AnyBuffer df, ffi::AnyBuffer dq, ffi::AnyBuffer dh,
                         ffi::AnyBuffer dr, ffi::AnyBuffer dmean, ffi::AnyBuffer dcov,
                         ffi::AnyBuffer db, ffi::AnyBuffer dd, Result new_means, Result new_covs,
                         Result log_likelihood) {
  const SeriesShape series = ReadSeries(*new_means, "the tangents of the means");
  DispatchReal(y.element_type(), [&]<class T>(std::type_identity<T>) {
    const int64_t n = series.n;
    const auto operands = ReadFilter<T>(series, y, f, q, h, r, mean, cov, b, d, seen);
    const int64_t m = operands.m;
    RunSeries<T>(
        pool,
        KalmanFilterTangentProblem<T>{
            .operands = operands,
            .means = ReadVectors<T>(means, series, n, "the means"),
            .covs = ReadMatrices<T>(covs, series, n, "the covariances"),
            .dy = ReadSteps<T>(dy, series, -1, m, "the tangent of the observations"),
            .df = ReadSteps<T>(df, series, n, n, "the tangent of the transition"),
            .dq = ReadSteps<T>(dq, series, n, n, "the tangent of the transition's covariance"),
            .dh = ReadSteps<T>(dh, series, m, n, "the tangent of the observation matrix"),
            .dr = ReadSteps<T>(dr, series, m, m, "the tangent of the observation's covariance"),
            .dmean = ReadOne<T>(dmean, series.batch, {n}, "the tangent of the initial mean"),
            .dcov = ReadOne<T>(dcov, series.batch, {n, n}, "the tangent of the initial covariance"),
            .db = ReadSteps<T>(db, series, -1, n, "the tangent of the transition's offset"),
            .dd = ReadSteps<T>(dd, series, -1, m, "the tangent of the observation's offset"),
            .new_means = ReadVectors<T>(new_means, series, n, "the tangents of the means"),
            .new_covs = ReadMatrices<T>(new_covs, series, n, "the tangents of the covariances"),
            .log_likelihood = Elements<T>(log_likelihood, series.batch, {},
                                          "the tangent of the log likelihood")});
  });
}

template <class T>
struct KalmanFilterAdjointProblem {
  FilterOperands<T> operands;
  Steps<T> means, covs, means_bar, covs_bar;
  const T* likelihood_bar;
  Steps<T> y, f, q, h, r, mean, cov, b, d;

  static constexpr bool kConstantSizes = true;
  static constexpr double kPasses = 2.5;

  template <class B, class E>
  int64_t Size(int n, int m) const {
    const int64_t row = PaddedColumns<E, B>(n), short_row = PaddedColumns<E, B>(m);
    return FilterSteps<B, E, T>::Size(n, m) + small::FilterAdjoint<B, E>::Size(n, m) +
           (6 * n + m + 5) * row + (m + 1) * short_row;
  }

  template <class B, class E, class N, class M>
  void RunOn(int64_t i, N n, M m, E* first) const {
    small::Workspace<B, E> memory{first};
    FilterSteps<B, E, T, N, M> steps(operands, i, n, m, memory);
    small::FilterAdjoint<B, E, N, M> adjoint(n, m, memory);
    Sum<B, E, T> f_sum(f, n, n, memory), q_sum(q, n, n, memory), h_sum(h, m, n, memory),
        r_sum(r, m, m, memory), b_sum(b, 1, n, memory), d_sum(d, 1, m, memory);
    // The filtered moments of this step and of the one before, and the cotangents of this one.
    E *mean_now = memory.Vector(n), *cov_now = memory.Matrix(n, n);
    E *before = memory.Vector(n), *cov_before = memory.Matrix(n, n);
    E *given = memory.Vector(n), *cov_given = memory.Matrix(n, n);
    const int64_t row = PaddedColumns<E, B>(n), count = operands.series.steps;
    E c{};
    LoadElements(likelihood_bar + i, 1, 1, &c);
    const E half = Number<E>(0.5);
    std::fill_n(adjoint.mean, n, E{});
    std::fill_n(adjoint.cov, n * row, E{});
    if (count > 0) {
      Load<B>(means, i, count - 1, 1, n, mean_now);
      Load<B>(covs, i, count - 1, n, n, cov_now);
      b_sum.AddNothing(i, count - 1);
      f_sum.AddNothing(i, count - 1);
      q_sum.AddNothing(i, count - 1);
    }
    for (int64_t t = count - 1; t >= 0; --t) {
      if (t > 0) {
        Load<B>(means, i, t - 1, 1, n, before);
        Load<B>(covs, i, t - 1, n, n, cov_before);
      }
      steps.Run(t, before, cov_before);
      Load<B>(means_bar, i, t, 1, n, given);
      Load<B>(covs_bar, i, t, n, n, cov_given);
      small::AddTranspose(n, row, cov_given, half);
      for (int j = 0; j < n; ++j) adjoint.mean[j] = adjoint.mean[j] + given[j];
      for (int64_t k = 0; k < n * row; ++k) adjoint.cov[k] = adjoint.cov[k] + cov_given[k];
      adjoint.Update(steps.gain, mean_now, cov_now, c, steps.masked());
      Store<B>(adjoint.y, 1, m, y, i, t);
      h_sum.Add(i, t, adjoint.h);
      r_sum.Add(i, t, adjoint.r);
      d_sum.Add(i, t, adjoint.d);
      if (t > 0) {
        adjoint.Predict(steps.prediction, before);
        b_sum.Add(i, t - 1, adjoint.b);
        q_sum.Add(i, t - 1, adjoint.q);
        f_sum.Add(i, t - 1, adjoint.f);
        std::swap(before, mean_now);
        std::swap(cov_before, cov_now);
      }
    }
    if (count == 0) {
      std::fill_n(adjoint.b, n, E{});
      std::fill_n(adjoint.q, n * row, E{});
    }
    Store<B>(adjoint.b, 1, n, mean, i, 0);
    Store<B>(adjoint.q, n, n, cov, i, 0);
    f_sum.Finish(i);
    q_sum.Finish(i);
    h_sum.Finish(i);
    r_sum.Finish(i);
    b_sum.Finish(i);
    d_sum.Finish(i);
  }
};

void KalmanFilterAdjoint(ffi::ThreadPool pool, ffi::AnyBuffer y, ffi::AnyBuffer f, ffi::AnyBuffer q,
                         ffi::AnyBuffer h, ffi::AnyBuffer r, ffi::AnyBuffer mean,
                         ffi::AnyBuffer cov, ffi::AnyBuffer b, ffi::AnyBuffer d,
                         ffi::AnyBuffer seen, ffi::AnyBuffer means, ffi::AnyBuffer covs,
                         ffi::AnyBuffer means_bar, ffi::AnyBuffer covs_bar,
                         ffi::AnyBuffer likelihood_bar, Result y_bar, Result f_bar, Result q_bar,
                         Result h_bar, Result r_bar, Result mean_bar, Result cov_bar, Result b_bar,
                         Result d_bar) {
  const SeriesShape series = ReadSeries(means, "the means");
  DispatchReal(y.element_type(), [&]<class T>(std::type_identity<T>) {
    const int64_t n = series.n;
    const auto operands = ReadFilter<T>(series, y, f, q, h, r, mean, cov, b, d, seen);
    const int64_t m = operands.m;
    RunSeries<T>(
        pool,
        KalmanFilterAdjointProblem<T>{
            .operands = operands,
            .means = ReadVectors<T>(means, series, n, "the means"),
            .covs = ReadMatrices<T>(covs, series, n, "the covariances"),
            .means_bar = ReadVectors<T>(means_bar, series, n, "the cotangents of the means"),
            .covs_bar = ReadMatrices<T>(covs_bar, series, n, "the cotangents of the covariances"),
            .likelihood_bar = Elements<T>(likelihood_bar, series.batch, {},
                                          "the cotangent of the log likelihood"),
            .y = ReadSteps<T>(y_bar, series, -1, m, "the cotangent of the observations"),
            .f = ReadSteps<T>(f_bar, series, n, n, "the cotangent of the transition"),
            .q = ReadSteps<T>(q_bar, series, n, n, "the cotangent of the transition's covariance"),
            .h = ReadSteps<T>(h_bar, series, m, n, "the cotangent of the observation matrix"),
            .r = ReadSteps<T>(r_bar, series, m, m, "the cotangent of the observation's covariance"),
            .mean = ReadOne<T>(mean_bar, series.batch, {n}, "the cotangent of the initial mean"),
            .cov = ReadOne<T>(cov_bar, series.batch, {n, n},
                              "the cotangent of the initial covariance"),
            .b = ReadSteps<T>(b_bar, series, -1, n, "the cotangent of the transition's offset"),
            .d = ReadSteps<T>(d_bar, series, -1, m, "the cotangent of the observation's offset")});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_kalman_filter, linalg::KalmanFilter);
LINALG_CPU_HANDLER(linalg_kalman_filter_jvp, linalg::KalmanFilterTangent);
LINALG_CPU_HANDLER(linalg_kalman_filter_vjp, linalg::KalmanFilterAdjoint);
LINALG_CPU_HANDLER(linalg_kalman_means, linalg::KalmanMeans);
