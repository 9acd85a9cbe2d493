// Scratch memory of handlers, and handlers without any.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>

#include "kernels/handlers.h"

namespace linalg::cuda {

// Memory that lives until the handler's work on its stream is done. A recorded handler gets none,
// because its launches run again after it has returned.
class DeviceScratch {
 public:
  // XLA refuses a larger alignment. It returns whole blocks of device memory, which have one
  // anyway.
  static constexpr size_t kAlignment = 16;

  DeviceScratch() = default;
  explicit DeviceScratch(ffi::ScratchAllocator allocator) : allocator_(std::move(allocator)) {}

  template <class T>
  T* Take(int64_t count) {
    static_assert(alignof(T) <= kAlignment);
    if (!allocator_) throw std::logic_error("work that may be recorded asked for scratch memory");
    const auto memory = allocator_->Allocate(std::max<int64_t>(count, 1) * sizeof(T), kAlignment);
    // XLA does not pass on its reason. This alignment is valid, so it must lack memory.
    if (!memory.has_value()) throw std::bad_alloc();
    return static_cast<T*>(*memory);
  }

 private:
  std::optional<ffi::ScratchAllocator> allocator_;
};

// Bound to handlers that get no scratch memory.
struct NoScratch {};

}  // namespace linalg::cuda

template <>
struct xla::ffi::CtxDecoding<linalg::cuda::DeviceScratch> {
  using Type = linalg::cuda::DeviceScratch;

  static std::optional<Type> Decode(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context,
                                    DiagnosticEngine& diagnostic) {
    auto allocator = CtxDecoding<ScratchAllocator>::Decode(api, context, diagnostic);
    if (!allocator) return std::nullopt;
    return Type(*std::move(allocator));
  }
};

template <>
struct xla::ffi::CtxDecoding<linalg::cuda::NoScratch> {
  using Type = linalg::cuda::DeviceScratch;

  static std::optional<Type> Decode(const XLA_FFI_Api*, XLA_FFI_ExecutionContext*,
                                    DiagnosticEngine&) {
    return Type();
  }
};

namespace linalg::cuda {

template <size_t kTarget, class... Rest>
auto BindWithoutScratch(void (*)(cudaStream_t, DeviceScratch, Rest...)) {
  return linalg::internal::Bind<kTarget, ffi::PlatformStream<cudaStream_t>, NoScratch>();
}

}  // namespace linalg::cuda

// The trait of a handler that only launches kernels on its operands and results. XLA may record
// them in a command buffer, and launch that again and again.
#define LINALG_CAPTURED {xla::ffi::Traits::kCmdBufferCompatible}

// Defines the handler of a target in the table, as LINALG_HANDLER does. A second handler is for
// calls that need neither scratch memory nor the vendor's libraries: kernels/cuda/captured.h.
#define LINALG_HANDLER_AND_CAPTURED(name, function)                    \
  LINALG_HANDLER(name, function);                                      \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(                                       \
      name##_captured, (linalg::internal::GuardFor(#name, &function)), \
      (linalg::cuda::BindWithoutScratch<linalg::TargetIndex(#name)>(&function)), LINALG_CAPTURED)
