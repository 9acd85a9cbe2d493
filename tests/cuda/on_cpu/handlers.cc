// The handlers of kernels/cuda as handlers for the CPU: all but the kernels' launch, the teams'
// barriers and the vendor's libraries, which vendor.cc stands in for, is what a GPU runs.
#include <algorithm>
#include <complex>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cpu/batch.h"
#include "kernels/cpu/lapack.h"
#include "kernels/ffi.h"

namespace xla::ffi {

// Device memory that the CPU's runtime does not give.
class HostAllocator {
 public:
  std::optional<void*> Allocate(size_t size, size_t alignment) {
    if (alignment > 16) return std::nullopt;  // as XLA_FFI_DeviceMemory_Allocate
    void* const memory =
        std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    std::memset(memory, -1, size);
    memory_.emplace_back(memory, &std::free);
    return memory;
  }

 private:
  std::vector<std::unique_ptr<void, void (*)(void*)>> memory_;
};

template <>
struct CtxDecoding<HostAllocator> {
  using Type = HostAllocator;
  static std::optional<Type> Decode(const XLA_FFI_Api*, XLA_FFI_ExecutionContext*,
                                    DiagnosticEngine&) {
    return HostAllocator();
  }
};

template <>
struct CtxDecoding<PlatformStream<cudaStream_t>> {
  using Type = cudaStream_t;
  static std::optional<Type> Decode(const XLA_FFI_Api*, XLA_FFI_ExecutionContext*,
                                    DiagnosticEngine&) {
    return nullptr;
  }
};

// As a GPU's runtime does, buffers without elements have no address.
inline void ClearEmpty(XLA_FFI_CallFrame* frame) {
  const auto clear = [](int64_t count, void** buffers) {
    for (int64_t i = 0; i < count; ++i) {
      auto* const buffer = static_cast<XLA_FFI_Buffer*>(buffers[i]);
      const auto* const sizes = buffer->dims;
      if (std::find(sizes, sizes + buffer->rank, 0) != sizes + buffer->rank) {
        buffer->data = nullptr;
      }
    }
  };
  // XLA asks for a handler's traits without buffers.
  clear(frame->args.size, frame->args.args);
  clear(frame->rets.size, frame->rets.rets);
}

}  // namespace xla::ffi

// With subnormal numbers, as on a GPU, which XLA's threads flush to zero.
#undef XLA_FFI_DEFINE_HANDLER_SYMBOL
#define XLA_FFI_DEFINE_HANDLER_SYMBOL(name, function, ...)    \
  extern "C" XLA_FFI_Error* name(XLA_FFI_CallFrame* frame) {  \
    XLA_FFI_DEFINE_HANDLER(handler, function, ##__VA_ARGS__); \
    const linalg::SubnormalNumbers subnormal_numbers;         \
    xla::ffi::ClearEmpty(frame);                              \
    return (*handler)(frame);                                 \
  }                                                           \
  static_assert(true)
#define ScratchAllocator HostAllocator
#include "kernels/cuda/banded.cu"
#include "kernels/cuda/cholesky.cu"
#include "kernels/cuda/det.cu"
#include "kernels/cuda/eig.cu"
#include "kernels/cuda/eigh.cu"
#include "kernels/cuda/eigh_tridiagonal.cu"
#include "kernels/cuda/hessenberg.cu"
#include "kernels/cuda/lu.cu"
#include "kernels/cuda/matmul.cu"
#include "kernels/cuda/qr.cu"
#include "kernels/cuda/schur.cu"
#include "kernels/cuda/solve.cu"
#include "kernels/cuda/svd.cu"
#include "kernels/cuda/triangular_solve.cu"
#include "kernels/cuda/tridiagonal_solve.cu"

#include "tests/cuda/on_cpu/vendor.cc"

namespace linalg::cuda {

template <class Handle>
Lent<Handle>::Lent(cudaStream_t stream) : stream_(stream) {
  vendor::Load();
}
template <class Handle>
Lent<Handle>::~Lent() = default;
template class Lent<SolverHandle>;
template class Lent<vendor::Blas>;

}  // namespace linalg::cuda

// The handler of a target, or null.
extern "C" void* on_cpu(const char* target) {
  using namespace linalg;  // NOLINT: the table's names
#define LINALG_FIND(name, backends, ...)                                          \
  if constexpr (((backends) & kCuda) != 0) {                                      \
    if (std::string_view(target) == #name) return reinterpret_cast<void*>(&name); \
  }
  LINALG_FOR_EACH_TARGET(LINALG_FIND)
#undef LINALG_FIND
  return nullptr;
}
