// How the handlers of Kalman filters and smoothers read operands and write results, step by step.
// Few matrices of a series are in use at a time, however many steps there are.
#pragma once

#include <array>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/once.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/results.h"
#include "kernels/kalman_operands.h"
#include "kernels/small/kalman.h"

namespace linalg {

// Moves a matrix between memory and lanes, or rows of a single series. `series` is the first one.
template <class B, class E, class T>
LINALG_INLINE void Load(const Steps<T>& source, int64_t series, int64_t step, int64_t rows,
                        int64_t cols, E* target) {
  const T* const from = source.At(series, step);
  if constexpr (kLanesOf<E> > 1) {
    LoadElements(from, source.stride(), rows * cols, target);
  } else {
    const int64_t row = PaddedColumns<E, B>(static_cast<int>(cols));
    for (int64_t i = 0; i < rows; ++i) std::copy_n(from + i * cols, cols, target + i * row);
  }
}
template <class B, class E, class T>
LINALG_INLINE void Store(const E* source, int64_t rows, int64_t cols, const Steps<T>& target,
                         int64_t series, int64_t step) {
  T* const to = target.At(series, step);
  if constexpr (kLanesOf<E> > 1) {
    StoreElements(source, rows * cols, target.stride(), to);
  } else {
    const int64_t row = PaddedColumns<E, B>(static_cast<int>(cols));
    for (int64_t i = 0; i < rows; ++i) std::copy_n(source + i * row, cols, to + i * cols);
  }
}

// A cotangent of an operand: written at each step, or summed over all steps.
template <class B, class E, class T>
class Sum {
 public:
  Sum(const Steps<T>& target, int64_t rows, int64_t cols, small::Workspace<B, E>& memory)
      : target_(target), rows_(rows), cols_(cols), sum_(memory.Matrix(ToInt(rows), ToInt(cols))) {
    std::fill_n(sum_, rows * PaddedColumns<E, B>(ToInt(cols)), E{});
  }

  void Add(int64_t series, int64_t step, const E* x) {
    if (target_.each()) return Store<B>(x, rows_, cols_, target_, series, step);
    for (int64_t k = 0; k < rows_ * PaddedColumns<E, B>(ToInt(cols_)); ++k)
      sum_[k] = sum_[k] + x[k];
  }
  // The last step of an operand that moves the state has no effect.
  void AddNothing(int64_t series, int64_t step) {
    if (target_.each()) Store<B>(sum_, rows_, cols_, target_, series, step);
  }
  void Finish(int64_t series) {
    if (!target_.each()) Store<B>(sum_, rows_, cols_, target_, series, 0);
  }

 private:
  Steps<T> target_;
  int64_t rows_, cols_;
  E* sum_;
};

// Calls run.template operator()<B, E>(i, memory) for all series: groups in lanes while `count`
// elements of workspace are few, else one series at a time with columns in registers. Both have the
// same bits.
template <class T, class Count, class Run>
void ForEachSeries(ffi::ThreadPool& pool, int64_t batch, int64_t order, double operations,
                   Count&& count, Run&& run) {
  using Block = BlockOfOne<T>;
  const auto alone = [&](int64_t i, void* memory) {
    const int64_t size = count.template operator()<Block, T>();
    std::fill_n(static_cast<T*>(memory), size, T{});
    run.template operator()<Block, T>(i, static_cast<T*>(memory));
  };
  if (order > kLaneKalman) {
    return ForEachInTurn(
        pool, batch, BlockedNanoseconds<T>(operations),
        [&] { return AllocateAligned(count.template operator()<Block, T>() * sizeof(T)); },
        [&](const AlignedMemory& memory, int64_t i) { alone(i, memory.get()); });
  }
  using Widest = ElementInLanes<T>;
  const int64_t size = std::max(count.template operator()<Widest, Widest>(),
                                count.template operator()<Block, T>() / kLanes<T> + 1);
  ForEachGroup<T>(pool, batch, size, 20 + 0.3 * operations, [&]<class V>(int64_t i, V* memory) {
    if constexpr (kLanesOf<V> == 1) {
      alone(i, memory);
    } else {
      run.template operator()<V, V>(i, memory);
    }
  });
}

// Calls body(n, m) with both as constants for the most common small models in full registers.
template <class E, class Body>
void DispatchModel(int n, int m, Body&& body) {
  if constexpr (kLanesOf<E> > 1 && sizeof(E) == kRegisterBytes) {
    const auto is = [&]<int kN, int kM>(std::integral_constant<int, kN> states,
                                        std::integral_constant<int, kM> seen) {
      if (n != kN || m != kM) return false;
      body(states, seen);
      return true;
    };
    using One = std::integral_constant<int, 1>;
    using Two = std::integral_constant<int, 2>;
    if (is(Two(), One())) return;
    if (is(std::integral_constant<int, 3>(), One())) return;
    if (is(std::integral_constant<int, 4>(), Two())) return;
  }
  body(n, m);
}

// A problem with a series in each lane, or one at a time. `Problem` has `operands`, with their
// series and the number m of observed components; RunEmpty() if results remain; and
//   static constexpr bool kConstantSizes        whether there is code for DispatchModel's sizes
//   static constexpr double kPasses             its time, relative to that of operands.operations()
//   int64_t Size<B, E>(n, m) const              elements of workspace
//   void RunOn<B>(i, n, m, E* memory) const     the series from i on
template <class T, class Problem>
class SeriesInLanes {
 public:
  explicit SeriesInLanes(const Problem& problem) : problem_(problem) {}

  CpuPath path() const { return CpuPath::kLane; }
  bool IsEmpty() const { return problem_.operands.IsEmpty(); }
  void RunEmpty() const {
    if constexpr (requires { problem_.RunEmpty(); }) problem_.RunEmpty();
  }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const SeriesShape& series = problem_.operands.series;
    const int n = ToInt(series.n), m = ToInt(problem_.operands.m);
    ForEachSeries<T>(
        pool, series.batch, std::max(n, m), Problem::kPasses * problem_.operands.operations(),
        [&]<class B, class E>() { return problem_.template Size<B, E>(n, m); },
        [&]<class B, class E>(int64_t i, E* memory) {
          if constexpr (Problem::kConstantSizes) {
            DispatchModel<E>(n, m,
                             [&](auto n, auto m) { problem_.template RunOn<B>(i, n, m, memory); });
          } else {
            problem_.template RunOn<B>(i, n, m, memory);
          }
        });
  }

 private:
  const Problem& problem_;
};

template <class T, class Problem>
void RunSeries(ffi::ThreadPool& pool, const Problem& problem) {
  RunOnPath(pool, SeriesInLanes<T, Problem>(problem));
}

// The operands of one step after another, its predicted moments and its gain.
template <class B, class E, class T, class N = int, class M = int>
class FilterSteps {
 public:
  FilterSteps(const FilterOperands<T>& operands, int64_t series, N n, M m,
              small::Workspace<B, E>& memory)
      : prediction(n, memory), gain(n, m, memory), x_(operands), series_(series) {}

  static int64_t Size(int n, int m) {
    return small::KalmanPrediction<B, E>::Size(n) + small::KalmanGain<B, E>::Size(n, m);
  }

  // Computes the predicted moments and the gain of a step, given the filtered moments of the step
  // before.
  void Run(int64_t step, const E* before, const E* cov_before) {
    const int64_t n = prediction.n, m = gain.m;
    if (step == 0) {
      Load<B>(x_.mean, series_, 0, 1, n, prediction.mean);
      Load<B>(x_.cov, series_, 0, n, n, prediction.cov);
    } else {
      if (IsNew(x_.f)) {
        Load<B>(x_.f, series_, step - 1, n, n, prediction.f);
        prediction.Transpose();
      }
      if (IsNew(x_.q)) Load<B>(x_.q, series_, step - 1, n, n, prediction.q);
      if (IsNew(x_.b)) Load<B>(x_.b, series_, step - 1, 1, n, prediction.b);
      has_transition_ = true;
      prediction.Predict(before, cov_before);
    }
    const bool new_h = !has_observation_ || x_.h.each(), new_r = !has_observation_ || x_.r.each();
    if (new_h) Load<B>(x_.h, series_, step, m, n, gain.all_h);
    if (new_r) Load<B>(x_.r, series_, step, m, m, gain.all_r);
    if (!has_observation_ || x_.d.each()) Load<B>(x_.d, series_, step, 1, m, gain.d);
    has_observation_ = true;
    Load<B>(x_.y, series_, step, 1, m, gain.y);
    if (x_.masked()) {
      Load<B>(x_.seen, series_, step, 1, m, gain.seen);
      gain.TakeSeen();
    } else if (new_h || new_r) {
      gain.TakeAll();
    }
    gain.Compute(prediction.mean, prediction.cov, x_.masked());
  }

  bool masked() const { return x_.masked(); }

  small::KalmanPrediction<B, E, N> prediction;
  small::KalmanGain<B, E, N, M> gain;

 private:
  bool IsNew(const Steps<T>& operand) const { return !has_transition_ || operand.each(); }

  FilterOperands<T> x_;
  int64_t series_;
  bool has_transition_ = false, has_observation_ = false;
};

}  // namespace linalg
