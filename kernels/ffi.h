// The parts of a handler around its arithmetic, on any backend. They dispatch the dtype once, split
// the batch off an operand's shape, and name the operand in errors. Header only, so that handlers
// outside this project can use it (`linalg.include_dir()`).
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "xla/ffi/api/ffi.h"

namespace linalg {

namespace ffi = ::xla::ffi;
using Result = ffi::Result<ffi::AnyBuffer>;

template <class T>
struct RealOf {
  using Type = T;
};
template <class T>
struct RealOf<std::complex<T>> {
  using Type = T;
};
template <class T>
using Real = typename RealOf<T>::Type;

template <class T>
inline constexpr bool kIsComplex = !std::is_same_v<T, Real<T>>;

// Thrown inside a handler for an operand or attribute that it cannot take. Guard turns it into an
// FFI error, so that no exception crosses the boundary.
class BadArgument : public std::invalid_argument {
 public:
  BadArgument(std::string_view operand, std::string_view expected)
      : std::invalid_argument(std::string(operand) + " must " + std::string(expected)) {}
};

// A size as the 32-bit integer of LAPACK, of NVIDIA's libraries and of kernels.
inline int ToInt(int64_t size) {
  if (size > std::numeric_limits<int>::max()) {
    throw std::length_error("the matrices are too large for 32-bit integers");
  }
  return static_cast<int>(size);
}

// Runs `body` and reports whatever it throws as an FFI error. The message starts with the target's
// name, unless there is no memory for it.
template <class Body>
ffi::Error Guard(std::string_view target, Body&& body) {
  const auto failure = [&](ffi::ErrorCode code, const char* what) {
    try {
      return ffi::Error(code, std::string(target) + ": " + what);
    } catch (const std::bad_alloc&) {
      return ffi::Error(code, "no memory");  // short enough for a string without allocation
    }
  };
  try {
    body();
    return ffi::Error::Success();
  } catch (const std::invalid_argument& error) {
    return failure(ffi::ErrorCode::kInvalidArgument, error.what());
  } catch (const std::bad_alloc&) {
    return failure(ffi::ErrorCode::kResourceExhausted, "out of memory for workspace");
  } catch (const std::exception& error) {
    return failure(ffi::ErrorCode::kInternal, error.what());
  }
}

// Calls `body(std::type_identity<T>{})` with the C++ type T of a LAPACK dtype: float, double,
// std::complex<float> or std::complex<double>.
template <class Body>
void DispatchDtype(ffi::DataType dtype, Body&& body) {
  switch (dtype) {
    case ffi::DataType::F32:
      return body(std::type_identity<float>{});
    case ffi::DataType::F64:
      return body(std::type_identity<double>{});
    case ffi::DataType::C64:
      return body(std::type_identity<std::complex<float>>{});
    case ffi::DataType::C128:
      return body(std::type_identity<std::complex<double>>{});
    default:
      throw std::invalid_argument("the dtype must be float32, float64, complex64 or complex128");
  }
}

template <class T>
inline constexpr ffi::DataType kDtype = ffi::DataType::INVALID;
template <>
inline constexpr ffi::DataType kDtype<int32_t> = ffi::DataType::S32;
template <>
inline constexpr ffi::DataType kDtype<float> = ffi::DataType::F32;
template <>
inline constexpr ffi::DataType kDtype<double> = ffi::DataType::F64;
template <>
inline constexpr ffi::DataType kDtype<std::complex<float>> = ffi::DataType::C64;
template <>
inline constexpr ffi::DataType kDtype<std::complex<double>> = ffi::DataType::C128;

// A buffer as a batch of matrices, vectors or scalars: the last `core` dimensions, and the batch.
struct BatchShape {
  int64_t batch = 1;
  int64_t rows = 1;
  int64_t cols = 1;

  int64_t size() const { return rows * cols; }
};

inline BatchShape SplitBatch(const ffi::AnyBuffer& buffer, int core, std::string_view operand) {
  const auto dimensions = buffer.dimensions();
  const int rank = static_cast<int>(dimensions.size());
  if (rank < core) {
    throw BadArgument(operand, "have rank at least " + std::to_string(core) + ", got rank " +
                                   std::to_string(rank));
  }
  BatchShape shape;
  for (int i = 0; i < rank - core; ++i) shape.batch *= dimensions[i];
  if (core >= 1) shape.cols = dimensions[rank - 1];
  if (core >= 2) shape.rows = dimensions[rank - 2];
  return shape;
}

inline BatchShape SplitSquareBatch(const ffi::AnyBuffer& buffer, std::string_view operand) {
  const BatchShape shape = SplitBatch(buffer, 2, operand);
  if (shape.rows != shape.cols) throw BadArgument(operand, "be a batch of square matrices");
  return shape;
}

// The sizes of a matrix or of a vector; empty for a scalar.
using CoreShape = std::initializer_list<int64_t>;

namespace internal {

// Throws BadArgument unless the buffer has this dtype, this batch and this core.
inline void CheckBuffer(const ffi::AnyBuffer& buffer, ffi::DataType dtype, int64_t batch,
                        CoreShape core, std::string_view operand) {
  if (buffer.element_type() != dtype) throw BadArgument(operand, "have another dtype");
  const auto dimensions = buffer.dimensions();
  const BatchShape shape = SplitBatch(buffer, static_cast<int>(core.size()), operand);
  // std::equal would call memcmp, which takes longer for two numbers.
  bool fits = shape.batch == batch;
  const int64_t* const sizes = dimensions.end() - core.size();
  for (size_t i = 0; i < core.size(); ++i) fits = fits && sizes[i] == core.begin()[i];
  if (fits) return;
  const auto text = [](const auto& numbers) {
    std::string list;
    for (const int64_t size : numbers) list += (list.empty() ? "" : ", ") + std::to_string(size);
    return "(" + list + ")";
  };
  throw BadArgument(operand, "be a batch of " + std::to_string(batch) + " with the shape " +
                                 text(core) + ", got " + text(dimensions));
}

}  // namespace internal

// The elements of a buffer. Throws BadArgument unless its dtype, batch and core are the expected
// ones.
template <class T>
T* Elements(const ffi::AnyBuffer& buffer, int64_t batch, CoreShape core, std::string_view operand) {
  internal::CheckBuffer(buffer, kDtype<T>, batch, core, operand);
  return static_cast<T*>(buffer.untyped_data());
}

template <class T>
T* Elements(Result& buffer, int64_t batch, CoreShape core, std::string_view operand) {
  return Elements<T>(*buffer, batch, core, operand);
}

namespace internal {

// A binding cannot be moved out of a function: the last call in it must make it.
template <int kOperands, int kResults, class Binding>
auto WithBuffers(Binding&& binding) {
  if constexpr (kOperands > 0) {
    return WithBuffers<kOperands - 1, kResults>(std::move(binding).template Arg<ffi::AnyBuffer>());
  } else if constexpr (kResults > 1) {
    return WithBuffers<0, kResults - 1>(std::move(binding).template Ret<ffi::AnyBuffer>());
  } else {
    return std::move(binding).template Ret<ffi::AnyBuffer>();
  }
}

template <class Context, class... Contexts, class Binding>
auto WithContexts(Binding&& binding) {
  if constexpr (sizeof...(Contexts) > 0) {
    return WithContexts<Contexts...>(std::move(binding).template Ctx<Context>());
  } else {
    return std::move(binding).template Ctx<Context>();
  }
}

}  // namespace internal

// The signature of a handler: its contexts, then buffers for its operands and its results, at least
// one context and one result. Attributes are added to it.
template <int kOperands, int kResults, class... Contexts>
auto Signature() {
  return internal::WithBuffers<kOperands, kResults>(
      internal::WithContexts<Contexts...>(ffi::Ffi::Bind()));
}

}  // namespace linalg
