#include "kernels/cuda/handles.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/cuda/status.h"

namespace linalg::cuda {
namespace {

template <class Handle>
struct Pool {
  std::mutex mutex;
  std::map<std::pair<int, cudaStream_t>, std::vector<Handle>> free;
};

// Never destroyed: the libraries and the driver may be gone by then.
template <class Handle>
Pool<Handle>& ThePool() {
  static auto* const pool = new Pool<Handle>;
  return *pool;
}

void Make(SolverHandle& handle) {
  const auto& f = vendor::functions;
  vendor::Check(f.cusolverDnCreate(&handle.solver), "cusolverDnCreate");
  vendor::Check(f.cusolverDnCreateParams(&handle.parameters), "cusolverDnCreateParams");
  vendor::Check(f.cusolverDnCreateGesvdjInfo(&handle.jacobi), "cusolverDnCreateGesvdjInfo");
}

void Make(vendor::Blas& handle) {
  vendor::Check(vendor::functions.cublasCreate_v2(&handle), "cublasCreate");
}

void SetStream(const SolverHandle& handle, cudaStream_t stream) {
  vendor::Check(vendor::functions.cusolverDnSetStream(handle.solver, stream),
                "cusolverDnSetStream");
}

void SetStream(vendor::Blas handle, cudaStream_t stream) {
  vendor::Check(vendor::functions.cublasSetStream_v2(handle, stream), "cublasSetStream");
}

// A free handle, if there is one.
template <class Handle>
bool Take(const std::pair<int, cudaStream_t>& place, Handle& handle) {
  auto& pool = ThePool<Handle>();
  const std::lock_guard<std::mutex> lock(pool.mutex);
  auto& free = pool.free[place];
  if (free.empty()) return false;
  handle = free.back();
  free.pop_back();
  return true;
}

}  // namespace

template <class Handle>
Lent<Handle>::Lent(cudaStream_t stream) : stream_(stream) {
  vendor::Load();
  cuda::Check(cudaGetDevice(&device_), "cudaGetDevice");
  if (!Take({device_, stream_}, handle_)) Make(handle_);
  // Another stream may have the address of one that is gone.
  SetStream(handle_, stream_);
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
