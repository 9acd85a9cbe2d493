// Tests the state that handlers keep between calls. A handle is kept for the next use on its
// stream. Its stream is set at every use, because a new stream may have the address of a destroyed
// one. The runtime's last error is cleared, because the next launch would report it.
#include "kernels/cuda/handles.cc"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace {

cudaError_t last_error = cudaSuccess;

}  // namespace

// Replaces CUDA's runtime.
extern "C" {

cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t) { return "failed"; }

}  // extern "C"

namespace linalg::cuda {
namespace vendor {

Functions functions{};

void Load() {}

void Check(int status, const char*) {
  if (status != 0) std::abort();
}

}  // namespace vendor

namespace {

int made = 0, told = 0;

template <class Pointer>
int MakeOne(Pointer* handle) {
  *handle = reinterpret_cast<Pointer>(static_cast<intptr_t>(++made));
  return 0;
}

int Tell(void* handle, cudaStream_t) {
  ++told;
  return handle == nullptr;
}

void Expect(int expected_made, int expected_told, const char* when) {
  if (made == expected_made && told == expected_told) return;
  std::fprintf(stderr, "%s: %d handles made, %d times told\n", when, made, told);
  std::exit(1);
}

template <class Lent>
void Test() {
  made = told = 0;
  int streams[2];
  const auto stream = [&](int i) { return reinterpret_cast<cudaStream_t>(streams + i); };
  {
    const Lent one(stream(0)), two(stream(0));
  }
  Expect(2, 2, "two at a time");
  {
    const Lent again(stream(0));
  }
  Expect(2, 3, "one of them again");
  {
    const Lent other(stream(1));
  }
  Expect(3, 4, "on another stream");
}

bool ForgetsErrors() {
  last_error = cudaErrorInvalidValue;
  try {
    Check(cudaErrorInvalidValue, "a call");
  } catch (const std::runtime_error&) {
    return last_error == cudaSuccess;
  }
  return false;
}

}  // namespace
}  // namespace linalg::cuda

int main() {
  using namespace linalg::cuda;  // NOLINT
  auto& f = vendor::functions;
  f.cusolverDnCreate = &MakeOne<vendor::Solver>;
  f.cusolverDnCreateParams = [](vendor::SolverParameters*) { return 0; };
  f.cusolverDnCreateGesvdjInfo = [](vendor::JacobiParameters*) { return 0; };
  f.cusolverDnSetStream = [](vendor::Solver handle, cudaStream_t to) { return Tell(handle, to); };
  f.cublasCreate_v2 = &MakeOne<vendor::Blas>;
  f.cublasSetStream_v2 = [](vendor::Blas handle, cudaStream_t to) { return Tell(handle, to); };
  Test<LentSolver>();
  Test<LentBlas>();
  return ForgetsErrors() ? 0 : 1;
}
