// The handlers of all targets.
#include <algorithm>

#include "kernels/cpu/handler.h"

static_assert(std::ranges::all_of(linalg::kTargets, [](const linalg::Target& target) {
  return (target.backends & linalg::kCpu) != 0;
}));

#define LINALG_DEFINE_HANDLER(name, ...)                                  \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(                                          \
      name, (linalg::internal::GuardFor(#name, linalg::functions::name)), \
      (linalg::internal::Bind<linalg::TargetIndex(#name), linalg::ffi::ThreadPool>()));
LINALG_FOR_EACH_TARGET(LINALG_DEFINE_HANDLER)
