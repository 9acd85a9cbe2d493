#include "kernels/cuda/handles.h"

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace linalg::cuda {
namespace {

template <class Handle>
struct Pool {
  std::mutex mutex;
  std::map<std::pair<int, cudaStream_t>, std::vector<Handle>> free;
};

// Never destroyed: by then the libraries and the driver may be gone.
template <class Handle>
Pool<Handle>& ThePool() {
  static auto* const pool = new Pool<Handle>;
  return *pool;
}

void Make(cudaStream_t stream, SolverHandle& handle) {
  const auto& f = vendor::functions;
  vendor::Check(f.cusolverDnCreate(&handle.solver), "cusolverDnCreate");
  vendor::Check(f.cusolverDnCreateParams(&handle.parameters), "cusolverDnCreateParams");
  vendor::Check(f.cusolverDnCreateGesvdjInfo(&handle.jacobi), "cusolverDnCreateGesvdjInfo");
  vendor::Check(f.cusolverDnSetStream(handle.solver, stream), "cusolverDnSetStream");
}

void Make(cudaStream_t stream, vendor::Blas& handle) {
  const auto& f = vendor::functions;
  vendor::Check(f.cublasCreate_v2(&handle), "cublasCreate");
  vendor::Check(f.cublasSetStream_v2(handle, stream), "cublasSetStream");
}

}  // namespace

template <class Handle>
Lent<Handle>::Lent(cudaStream_t stream) : stream_(stream) {
  vendor::Load();
  if (const cudaError_t status = cudaGetDevice(&device_); status != cudaSuccess) {
    throw std::runtime_error(std::string("cudaGetDevice: ") + cudaGetErrorString(status));
  }
  auto& pool = ThePool<Handle>();
  {
    const std::lock_guard<std::mutex> lock(pool.mutex);
    auto& free = pool.free[{device_, stream_}];
    if (!free.empty()) {
      handle_ = free.back();
      free.pop_back();
      return;
    }
  }
  Make(stream, handle_);
}

template <class Handle>
Lent<Handle>::~Lent() {
  auto& pool = ThePool<Handle>();
  const std::lock_guard<std::mutex> lock(pool.mutex);
  pool.free[{device_, stream_}].push_back(handle_);
}

template class Lent<SolverHandle>;
template class Lent<vendor::Blas>;

}  // namespace linalg::cuda
