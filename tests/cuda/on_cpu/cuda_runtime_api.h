// What kernels/cuda uses of CUDA's runtime, on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline

using cudaStream_t = struct Stream*;

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
enum cudaMemcpyKind { cudaMemcpyDeviceToDevice };
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin };

inline const char* cudaGetErrorString(cudaError_t) { return "failed"; }
inline thread_local cudaError_t last_error = cudaSuccess;
inline cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
// An H100's, or as few as the smallest GPU has.
#ifndef SHARED_KIB
#define SHARED_KIB 227
#endif
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = SHARED_KIB << 10;
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t count, cudaMemcpyKind,
                                   cudaStream_t) {
  std::memcpy(target, source, count);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* target, int value, size_t count, cudaStream_t) {
  std::memset(target, value, count);
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

struct Dimension {
  unsigned x;
};
inline thread_local Dimension threadIdx, blockDim;

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) double2 {
  double x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline double2 make_double2(double x, double y) { return {x, y}; }

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32);
}
