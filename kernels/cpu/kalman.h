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

// Matrices or vectors, one for each step or one for all steps. An operand may serve the whole batch.
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
void Load(const Steps<T>& source, int64_t series, int64_t step, int64_t rows, int64_t cols,
          E* target) {
  const T* const from = source.At(series, step);
  if constexpr (kLanesOf<E> > 1) {
    LoadElements(from, source.stride(), rows * cols, target);
  } else {
    const int64_t row = PaddedColumns<E, B>(static_cast<int>(cols));
    for (int64_t i = 0; i < rows; ++i) std::copy_n(from + i * cols, cols, target + i * row);
  }
}
template <class B, class E, class T>
void Store(const E* source, int64_t rows, int64_t cols, const Steps<T>& target, int64_t series,
           int64_t step) {
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

// Operands with leading steps. `rows` is -1 for vectors.
template <class T, class Buffer>
Steps<T> ReadSteps(Buffer& buffer, const SeriesShape& series, int64_t rows, int64_t cols,
                   std::string_view name, bool may_be_empty = false) {
  const ffi::AnyBuffer& plain = [&]() -> const ffi::AnyBuffer& {
    if constexpr (std::is_same_v<std::remove_cvref_t<Buffer>, Result>) {
      return *buffer;
    } else {
      return buffer;
    }
  }();
  const int core = rows < 0 ? 2 : 3;
  const auto dimensions = plain.dimensions();
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
  const ffi::AnyBuffer& plain = [&]() -> const ffi::AnyBuffer& {
    if constexpr (std::is_same_v<std::remove_cvref_t<Buffer>, Result>) {
      return *buffer;
    } else {
      return buffer;
    }
  }();
  int64_t size = 1;
  for (const int64_t count : core) size *= count;
  const bool shared = plain.dimensions().size() == core.size();
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
    for (int64_t k = 0; k < rows_ * PaddedColumns<E, B>(ToInt(cols_)); ++k) sum_[k] = sum_[k] + x[k];
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

}  // namespace linalg
