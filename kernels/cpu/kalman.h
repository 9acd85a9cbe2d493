// How the handlers of Kalman filters and smoothers read operands and write results, step by step.
// Few matrices of a series are in use at a time, however many steps there are.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/once.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/results.h"
#include "kernels/small/kalman.h"

namespace linalg {

// Matrices or vectors, one for each step or one for all steps. An operand may serve the whole
// batch.
template <class T>
struct Steps {
  T* data;
  int64_t count, size;  // steps, and the elements of each
  bool shared;

  bool each() const { return count > 1; }
  int64_t stride() const { return shared ? 0 : count * size; }
  T* At(int64_t series, int64_t step) const {
    return data + series * stride() + (each() ? step * size : 0);
  }
};

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

// The sizes of the moments (batch, steps, n).
struct SeriesShape {
  int64_t batch, steps, n;
};

inline SeriesShape ReadSeries(const ffi::AnyBuffer& means, std::string_view name) {
  const BatchShape shape = SplitBatch(means, 2, name);
  return {shape.batch, shape.rows, shape.cols};
}

inline const ffi::AnyBuffer& BufferOf(const ffi::AnyBuffer& operand) { return operand; }
inline const ffi::AnyBuffer& BufferOf(Result& result) { return *result; }

// Operands with leading steps. `rows` is -1 for vectors.
template <class T, class Buffer>
Steps<T> ReadSteps(Buffer& buffer, const SeriesShape& series, int64_t rows, int64_t cols,
                   std::string_view name, bool may_be_empty = false) {
  const int core = rows < 0 ? 2 : 3;
  const auto dimensions = BufferOf(buffer).dimensions();
  const int rank = static_cast<int>(dimensions.size());
  if (rank < core) throw BadArgument(name, "have rank at least " + std::to_string(core));
  const int64_t count = dimensions[rank - core];
  if (count != 1 && count != series.steps && !(may_be_empty && count == 0)) {
    throw BadArgument(name, "have 1 or " + std::to_string(series.steps) + " steps");
  }
  const bool shared = rank == core;
  const int64_t batch = shared ? 1 : series.batch;
  T* data;
  if (rows < 0) {
    data = Elements<T>(buffer, batch, {count, cols}, name);
    rows = 1;
  } else {
    data = Elements<T>(buffer, batch, {count, rows, cols}, name);
  }
  return {data, count, rows * cols, shared};
}

// The moments of all steps, which always have a batch.
template <class T, class Buffer>
Steps<T> ReadVectors(Buffer& buffer, const SeriesShape& series, int64_t cols,
                     std::string_view name) {
  return {Elements<T>(buffer, series.batch, {series.steps, cols}, name), series.steps, cols, false};
}
template <class T, class Buffer>
Steps<T> ReadMatrices(Buffer& buffer, const SeriesShape& series, int64_t cols,
                      std::string_view name) {
  return {Elements<T>(buffer, series.batch, {series.steps, cols, cols}, name), series.steps,
          cols * cols, false};
}

// A vector or a matrix without steps, as of the first state.
template <class T, class Buffer>
Steps<T> ReadOne(Buffer& buffer, int64_t batch, CoreShape core, std::string_view name) {
  int64_t size = 1;
  for (const int64_t count : core) size *= count;
  const bool shared = BufferOf(buffer).dimensions().size() == core.size();
  return {Elements<T>(buffer, shared ? 1 : batch, core, name), 1, size, shared};
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

template <class Body>
void DispatchReal(ffi::DataType dtype, Body&& body) {
  DispatchDtype(dtype, [&]<class T>(std::type_identity<T> type) {
    if constexpr (kIsComplex<T>) {
      throw std::invalid_argument("the dtype must be float32 or float64");
    } else {
      body(type);
    }
  });
}

template <class T>
struct FilterOperands {
  SeriesShape series;
  int64_t m;
  Steps<T> y, f, q, h, r, mean, cov, b, d, seen;

  bool masked() const { return seen.count > 0; }
  bool IsEmpty() const { return series.n == 0 && m == 0; }

  // Fused multiply-adds of the steps.
  double operations() const {
    const double order = static_cast<double>(series.n), rows = static_cast<double>(m);
    return static_cast<double>(series.steps) * (20 + order * order * (4 * order + 4 * rows) +
                                                2 * order * rows * rows + rows * rows * rows / 3);
  }
};

template <class T>
FilterOperands<T> ReadFilter(const SeriesShape& series, ffi::AnyBuffer& y, ffi::AnyBuffer& f,
                             ffi::AnyBuffer& q, ffi::AnyBuffer& h, ffi::AnyBuffer& r,
                             ffi::AnyBuffer& mean, ffi::AnyBuffer& cov, ffi::AnyBuffer& b,
                             ffi::AnyBuffer& d) {
  const int64_t n = series.n, m = SplitBatch(y, 2, "the observations").cols;
  return {.series = series,
          .m = m,
          .y = ReadSteps<T>(y, series, -1, m, "the observations"),
          .f = ReadSteps<T>(f, series, n, n, "the transition"),
          .q = ReadSteps<T>(q, series, n, n, "the covariance of the transition"),
          .h = ReadSteps<T>(h, series, m, n, "the observation matrix"),
          .r = ReadSteps<T>(r, series, m, m, "the covariance of the observation"),
          .mean = ReadOne<T>(mean, series.batch, {n}, "the initial mean"),
          .cov = ReadOne<T>(cov, series.batch, {n, n}, "the initial covariance"),
          .b = ReadSteps<T>(b, series, -1, n, "the offset of the transition"),
          .d = ReadSteps<T>(d, series, -1, m, "the offset of the observation"),
          .seen = {nullptr, 0, m, true}};
}

template <class T>
FilterOperands<T> ReadFilter(const SeriesShape& series, ffi::AnyBuffer& y, ffi::AnyBuffer& f,
                             ffi::AnyBuffer& q, ffi::AnyBuffer& h, ffi::AnyBuffer& r,
                             ffi::AnyBuffer& mean, ffi::AnyBuffer& cov, ffi::AnyBuffer& b,
                             ffi::AnyBuffer& d, ffi::AnyBuffer& seen) {
  FilterOperands<T> operands = ReadFilter<T>(series, y, f, q, h, r, mean, cov, b, d);
  operands.seen = ReadSteps<T>(seen, series, -1, operands.m, "the mask",
                               /*may_be_empty=*/true);
  return operands;
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
