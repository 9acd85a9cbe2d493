// Operands of the handlers of Kalman filters and smoothers, on any backend.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "kernels/ffi.h"

namespace linalg {

// Matrices or vectors, one for each step or one for all steps. An operand may serve the whole
// batch.
template <class T>
struct Steps {
  T* data;
  int64_t count, size;  // steps, and the elements of each
  bool shared;

  constexpr bool each() const { return count > 1; }
  constexpr int64_t stride() const { return shared ? 0 : count * size; }
  constexpr T* At(int64_t series, int64_t step) const {
    return data + series * stride() + (each() ? step * size : 0);
  }
};

// The sizes of the moments (batch, steps, n).
struct SeriesShape {
  int64_t batch, steps, n;
};

inline SeriesShape ReadSeries(const ffi::AnyBuffer& means, std::string_view name) {
  const BatchShape shape = SplitBatch(means, 2, name);
  if (shape.rows == 0) throw BadArgument(name, "have at least one step");
  return {shape.batch, shape.rows, shape.cols};
}

inline const ffi::AnyBuffer& BufferOf(const ffi::AnyBuffer& operand) { return operand; }
inline const ffi::AnyBuffer& BufferOf(Result& result) { return *result; }

// Whether an operand of this rank serves the whole batch. No result does.
template <class Buffer>
bool ServesBatch(Buffer& buffer, size_t core) {
  return !std::is_same_v<Buffer, Result> && BufferOf(buffer).dimensions().size() == core;
}

// Operands or results with leading steps. `rows` is -1 for vectors.
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
  const bool shared = ServesBatch(buffer, core);
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
  const bool shared = ServesBatch(buffer, core.size());
  return {Elements<T>(buffer, shared ? 1 : batch, core, name), 1, size, shared};
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

  constexpr bool masked() const { return seen.count > 0; }
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

// The operands of a smoother's derivatives: how the state moves, the filtered and the smoothed
// moments.
template <class T>
struct SmootherOperands {
  SeriesShape series;
  Steps<T> f, q, b, means, covs, smoothed, smoothed_covs;

  static constexpr int64_t m = 0;
  bool IsEmpty() const { return series.n == 0; }
  double operations() const {
    const double order = static_cast<double>(series.n);
    return static_cast<double>(series.steps) * (20 + 8 * order * order * order);
  }
};

template <class T>
SmootherOperands<T> ReadSmoother(const SeriesShape& series, ffi::AnyBuffer& f, ffi::AnyBuffer& q,
                                 ffi::AnyBuffer& b, ffi::AnyBuffer& means, ffi::AnyBuffer& covs,
                                 ffi::AnyBuffer& smoothed, ffi::AnyBuffer& smoothed_covs) {
  const int64_t n = series.n;
  return {.series = series,
          .f = ReadSteps<T>(f, series, n, n, "the transition"),
          .q = ReadSteps<T>(q, series, n, n, "the covariance of the transition"),
          .b = ReadSteps<T>(b, series, -1, n, "the offset of the transition"),
          .means = ReadVectors<T>(means, series, n, "the means"),
          .covs = ReadMatrices<T>(covs, series, n, "the covariances"),
          .smoothed = ReadVectors<T>(smoothed, series, n, "the smoothed means"),
          .smoothed_covs = ReadMatrices<T>(smoothed_covs, series, n, "the smoothed covariances")};
}

}  // namespace linalg
