// A file of handlers defines the function of each of its targets, from which handlers.cc makes the
// handler. Decoding an FFI call costs as much compile time as a small kernel. So one file compiles
// it, once for all targets with as many operands, results and attributes.
#pragma once

#include <cstddef>
#include <utility>

#include "kernels/handlers.h"

namespace linalg {
namespace internal {

template <class T, size_t>
using Repeated = T;

template <size_t kTarget, size_t... kOperands, size_t... kResults, size_t... kAttributes>
auto FunctionWith(std::index_sequence<kOperands...>, std::index_sequence<kResults...>,
                  std::index_sequence<kAttributes...>)
    -> void (*)(ffi::ThreadPool, Repeated<ffi::AnyBuffer, kOperands>...,
                Repeated<Result, kResults>..., AttributeType<kTarget, kAttributes>...);

template <size_t kTarget>
using FunctionOf =
    decltype(FunctionWith<kTarget>(std::make_index_sequence<kTargets[kTarget].operands()>(),
                                   std::make_index_sequence<kTargets[kTarget].results()>(),
                                   std::make_index_sequence<CountAttributes(kTargets[kTarget])>()));

}  // namespace internal

namespace functions {

#define LINALG_DECLARE_FUNCTION(name, ...) \
  extern const internal::FunctionOf<TargetIndex(#name)> name;
LINALG_FOR_EACH_TARGET(LINALG_DECLARE_FUNCTION)
#undef LINALG_DECLARE_FUNCTION

}  // namespace functions
}  // namespace linalg

#define LINALG_CPU_HANDLER(name, function) \
  constinit const decltype(linalg::functions::name) linalg::functions::name = &function
