// Exposes the handlers of kernels/cuda as handlers for the CPU. XLA's CPU client refuses the calls
// for the stream and for memory, so they are answered here. Kernels may access the buffers of the
// call.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>

#include "kernels/cpu/batch.h"
#include "kernels/cuda/captured.h"
#include "kernels/handlers.h"
#include "tests/ptx_emulator/block.h"
#include "tests/ptx_emulator/memory.h"

// Handlers of files that were left out of the build have a null address.
#define LINALG_WEAK(name, ...) \
  extern "C" __attribute__((weak)) XLA_FFI_Error* name(XLA_FFI_CallFrame*);
LINALG_FOR_EACH_TARGET(LINALG_WEAK)
#define LINALG_WEAK_CAPTURED(name, call) LINALG_WEAK(name##_captured)
LINALG_FOR_EACH_CAPTURED(LINALG_WEAK_CAPTURED)
#undef LINALG_WEAK_CAPTURED
#undef LINALG_WEAK

namespace linalg::cuda::vendor {
extern void (*lent)();
}

namespace ptx {
namespace {

std::mutex mutex;  // only one handler, and so one launch, at a time

constexpr size_t kAlignment = 256;  // equal to that of XLA's allocator on a GPU

XLA_FFI_Error* Stream(XLA_FFI_Stream_Get_Args* arguments) {
  arguments->stream = nullptr;
  return nullptr;
}

// Large scratch memory, of which kernels touch a part: see EndsOfLaunches.
std::map<void*, SparseArray<char>> sparse;

XLA_FFI_Error* Allocate(XLA_FFI_DeviceMemory_Allocate_Args* arguments) {
  if (EndsOfLaunches() > 0) {
    SparseArray<char> made(arguments->size);
    arguments->data = made.data();
    memory.Add(arguments->data, arguments->size, true);
    sparse.insert_or_assign(arguments->data, std::move(made));
    return nullptr;
  }
  const size_t size = (arguments->size + kAlignment - 1) / kAlignment * kAlignment;
  arguments->data = std::aligned_alloc(kAlignment, size);
  if (arguments->data == nullptr) std::abort();
  std::memset(arguments->data, -1, size);
  memory.Add(arguments->data, arguments->size, false);
  return nullptr;
}

XLA_FFI_Error* Free(XLA_FFI_DeviceMemory_Free_Args* arguments) {
  memory.Remove(arguments->data);
  if (sparse.erase(arguments->data) == 0) std::free(arguments->data);
  return nullptr;
}

// Buffers without elements have a null address, as in a GPU's runtime.
void AddBuffers(int64_t count, void** buffers, bool written) {
  for (int64_t i = 0; i < count; ++i) {
    auto* const buffer = static_cast<XLA_FFI_Buffer*>(buffers[i]);
    size_t size = xla::ffi::ByteWidth(static_cast<xla::ffi::DataType>(buffer->dtype));
    for (int64_t j = 0; j < buffer->rank; ++j) size *= buffer->dims[j];
    if (size == 0) buffer->data = nullptr;
    memory.Add(buffer->data, size, written);
  }
}

template <XLA_FFI_Error* (*handler)(XLA_FFI_CallFrame*)>
XLA_FFI_Error* Call(XLA_FFI_CallFrame* frame) {
  const std::lock_guard<std::mutex> lock(mutex);
  const linalg::SubnormalNumbers as_on_a_gpu;
  // XLA queries a handler's traits without buffers, by a frame with an extension.
  if (frame->extension_start != nullptr) return handler(frame);
  memory.Clear();
  if (EndsOfLaunches() > 0) memory.SetWritten();
  linalg::cuda::vendor::lent = [] { memory.SetWritten(); };
  AddBuffers(frame->args.size, frame->args.args, true);
  AddBuffers(frame->rets.size, frame->rets.rets, false);
  XLA_FFI_Api api = *frame->api;
  api.XLA_FFI_Stream_Get = &Stream;
  api.XLA_FFI_DeviceMemory_Allocate = &Allocate;
  api.XLA_FFI_DeviceMemory_Free = &Free;
  XLA_FFI_CallFrame with_api = *frame;
  with_api.api = &api;
  return handler(&with_api);
}

}  // namespace
}  // namespace ptx

// Returns the handler of a target, or its handler for calls that XLA may record, or null.
extern "C" void* handler_of(const char* target) {
  using namespace linalg;  // NOLINT: the table's names
#define LINALG_FIND(name)                                                           \
  if (std::string_view(target) == #name) {                                          \
    return &name == nullptr ? nullptr : reinterpret_cast<void*>(&ptx::Call<&name>); \
  }
#define LINALG_FIND_TARGET(name, backends, ...) \
  if constexpr (((backends) & kCuda) != 0) {    \
    LINALG_FIND(name)                           \
  }
#define LINALG_FIND_CAPTURED(name, call) LINALG_FIND(name##_captured)
  LINALG_FOR_EACH_TARGET(LINALG_FIND_TARGET)
  LINALG_FOR_EACH_CAPTURED(LINALG_FIND_CAPTURED)
#undef LINALG_FIND_CAPTURED
#undef LINALG_FIND_TARGET
#undef LINALG_FIND
  return nullptr;
}
