// Replaces the CUDA runtime that kernels/cuda and nvcc's generated code call. Launches are checked
// as on a GPU, and run one after another.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tests/ptx_emulator/block.h"
#include "tests/ptx_emulator/kernels.h"
#include "tests/ptx_emulator/memory.h"

namespace ptx {
namespace {

// The limit for a launch without a larger request.
constexpr int64_t kDefaultSharedBytes = 48 << 10;
constexpr uint32_t kMostBlocks = 0x7fffffff;

struct Function {
  std::string name;
  int64_t most_dynamic_bytes = -1;  // -1: the default limit
};

// Filled when the library is loaded.
std::map<const void*, Function>& Functions() {
  static std::map<const void*, Function> functions;
  return functions;
}

std::string message = "failed";
cudaError_t last_error = cudaSuccess;

cudaError_t Failed(cudaError_t status, const std::string& what) {
  message = what;
  return last_error = status;
}

int64_t Number(const char* name, int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

// Shared memory per block: 227 KiB on the H100, 163 on the A100, 99 on the L40 and RTX.
int64_t SharedBytes() { return Number("LINALG_PTX_SHARED", 227) << 10; }

// The most blocks of one launch: kernels go on from one matrix to the next.
uint32_t MostBlocks() { return static_cast<uint32_t>(Number("LINALG_PTX_BLOCKS", kMostBlocks)); }

// The blocks that run. A pass over elements gives them to its blocks in turn. So the blocks of the
// last elements follow from their number, which is the kernel's second argument.
std::vector<uint32_t> Chosen(const std::string& kernel, uint32_t blocks, uint32_t threads,
                             const void* const* arguments) {
  std::vector<uint32_t> chosen(blocks);
  // A pass over all elements takes several blocks for a matrix.
  const bool for_each = kernel.find("RunForEach") != std::string::npos;
  const bool is_pass = for_each || kernel.find("RunTranspose") != std::string::npos;
  const int64_t passes = is_pass ? Number("LINALG_PTX_PASS_ENDS", 0) : 0;
  const int64_t ends = passes > 0 ? passes : EndsOfLaunches();
  if (ends == 0 || blocks <= 2 * ends) {
    std::iota(chosen.begin(), chosen.end(), 0);
    return chosen;
  }
  std::set<uint32_t> found;
  int64_t parts = blocks;
  if (for_each) {
    parts = (*static_cast<const int64_t*>(arguments[1]) + threads - 1) / threads;
  }
  for (int64_t i = 0; i < ends; ++i) {
    found.insert(static_cast<uint32_t>(i));
    found.insert(static_cast<uint32_t>((parts - 1 - i) % blocks));
  }
  return {found.begin(), found.end()};
}

// Copies or fills memory. The ends of large memory suffice for the blocks that run.
template <class Body>
void ForBytes(size_t count, Body&& body) {
  constexpr size_t kEnd = 1 << 20;
  if (EndsOfLaunches() == 0 || count <= 2 * kEnd) return body(0, count);
  body(0, kEnd);
  body(count - kEnd, kEnd);
}

Schedule TheSchedule() {
  Schedule schedule;
  const char* const order = std::getenv("LINALG_PTX_ORDER");
  if (order != nullptr && std::strcmp(order, "forward") == 0) schedule.order = Order::kForward;
  if (order != nullptr && std::strcmp(order, "backward") == 0) schedule.order = Order::kBackward;
  schedule.preempt = static_cast<int>(Number("LINALG_PTX_PREEMPT", 0));
  return schedule;
}

// Appends the kernel's name to the file that LINALG_PTX_LAUNCHED names, at its first launch.
void Note(const std::string& kernel) {
  static const char* const file = std::getenv("LINALG_PTX_LAUNCHED");
  static std::set<std::string> noted;
  if (file == nullptr || !noted.insert(kernel).second) return;
  std::ofstream(file, std::ios::app) << kernel << '\n';
}

// Appends the launch to the file that LINALG_PTX_GEOMETRY names, and does not run it. The line has
// the kernel, and the threads and bytes of shared memory per block.
bool IsOnlyNoted(const std::string& kernel, unsigned threads, int64_t bytes) {
  const char* const file = std::getenv("LINALG_PTX_GEOMETRY");
  if (file == nullptr) return false;
  std::ofstream(file, std::ios::app) << kernel << ' ' << threads << ' ' << bytes << '\n';
  return true;
}

cudaError_t Start(const void* host, dim3 blocks, dim3 threads, size_t bytes,
                  const void* const* arguments) {
  const Function& function = Functions().at(host);
  const std::string& name = function.name;
  try {
    const Kernel& kernel = FindKernel(name);
    const auto dynamic_bytes = static_cast<int64_t>(bytes);
    const int64_t most_bytes = function.most_dynamic_bytes >= 0
                                   ? function.most_dynamic_bytes
                                   : kDefaultSharedBytes - kernel.shared_bytes;
    if (blocks.y != 1 || blocks.z != 1 || threads.y != 1 || threads.z != 1) {
      return Failed(cudaErrorInvalidValue, "more than one dimension in a launch of " + name);
    }
    if (blocks.x == 0 || blocks.x > kMostBlocks || threads.x == 0) {
      return Failed(cudaErrorInvalidConfiguration, "no blocks or no threads of " + name);
    }
    if (static_cast<int64_t>(threads.x) > kernel.most_threads) {
      return Failed(cudaErrorInvalidValue, std::to_string(threads.x) + " threads of " + name +
                                               ", beyond its launch bounds");
    }
    if (dynamic_bytes > most_bytes) {
      return Failed(cudaErrorInvalidValue, std::to_string(bytes) +
                                               " bytes of shared memory, more than were asked for,"
                                               " in a launch of " +
                                               name);
    }
    if (IsOnlyNoted(name, threads.x, kernel.shared_bytes + dynamic_bytes)) return cudaSuccess;
    Note(name);
    const uint32_t count = std::min(blocks.x, MostBlocks());
    const std::string failure =
        Run({&kernel, name, count, threads.x, Chosen(name, count, threads.x, arguments),
             dynamic_bytes, arguments},
            TheSchedule());
    if (!failure.empty()) return Failed(cudaErrorLaunchFailure, name + ": " + failure);
    return cudaSuccess;
  } catch (const std::exception& error) {
    return Failed(cudaErrorInvalidDeviceFunction, error.what());
  }
}

}  // namespace

int64_t EndsOfLaunches() { return Number("LINALG_PTX_ENDS", 0); }

}  // namespace ptx

// NOLINTBEGIN: the names are NVIDIA's
extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  ptx::Functions()[host].name = name;
}

// nvcc generates this for <<<...>>>. No file of kernels/cuda uses it, but each has the code.
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, CUstream_st*) { std::abort(); }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { std::abort(); }
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { std::abort(); }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) {
  std::abort();
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  return ptx::Start(function, config->gridDim, config->blockDim, config->dynamicSmemBytes,
                    arguments);
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  auto& registered = ptx::Functions().at(function);
  int64_t most = 0;
  try {
    most = ptx::SharedBytes() - ptx::FindKernel(registered.name).shared_bytes;
  } catch (const std::exception& error) {
    return ptx::Failed(cudaErrorInvalidDeviceFunction, error.what());
  }
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value > most) {
    return ptx::Failed(cudaErrorInvalidValue,
                       "more shared memory asked for than there is, for " + registered.name);
  }
  registered.most_dynamic_bytes = value;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(ptx::last_error, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t) { return ptx::message.c_str(); }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (attribute != cudaDevAttrMaxSharedMemoryPerBlockOptin) {
    return ptx::Failed(cudaErrorInvalidValue, "an attribute of the device that nobody has here");
  }
  *value = static_cast<int>(ptx::SharedBytes());
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t count, cudaMemcpyKind,
                            cudaStream_t) {
  ptx::ForBytes(count, [&](size_t first, size_t size) {
    std::memmove(static_cast<char*>(target) + first, static_cast<const char*>(source) + first,
                 size);
  });
  ptx::memory.SetWritten(target);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* target, int value, size_t count, cudaStream_t) {
  ptx::ForBytes(count, [&](size_t first, size_t size) {
    std::memset(static_cast<char*>(target) + first, value, size);
  });
  ptx::memory.SetWritten(target);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

// Called by test_mutations.py.
void set_fault(const char* kernel, int kind, int line) {
  ptx::SetFault({.kernel = kernel, .kind = static_cast<ptx::Fault::Kind>(kind), .line = line});
}
// Returns the number of lines, and stores the first `most` of them in `lines`.
int lines_reached(int kind, int* lines, int most) {
  const std::vector<int> reached = ptx::Reached(static_cast<ptx::Fault::Kind>(kind));
  std::copy_n(reached.begin(), std::min<size_t>(reached.size(), most), lines);
  return static_cast<int>(reached.size());
}

}  // extern "C"
// NOLINTEND
