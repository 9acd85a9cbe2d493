// Errors of CUDA's runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace linalg::cuda {

// Throws the error of a runtime call. Clears it first, or the next launch would report it too.
inline void Check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

}  // namespace linalg::cuda
