// What CUDA's runtime says of a call.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace linalg::cuda {

// Throws what a call of the runtime failed with. The runtime would tell the next launch of it too.
inline void Check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

}  // namespace linalg::cuda
