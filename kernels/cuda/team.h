// A team of CUDA threads, as kernels/team/team.h asks for: a part of a warp, a warp, or a block.
#pragma once

#include "kernels/team/team.h"

namespace linalg::cuda {

template <class E>
__device__ __forceinline__ E Shuffle(unsigned mask, E x, int offset) {
  if constexpr (kComplexElement<E>) {
    return {__shfl_xor_sync(mask, x.re, offset), __shfl_xor_sync(mask, x.im, offset)};
  } else {
    return __shfl_xor_sync(mask, x, offset);
  }
}

// Bytes of shared memory in which the warps of a block meet.
inline constexpr int kMeetingBytes = 32 * 16;

class Team {
 public:
  // The team that this thread belongs to; of more than 32 threads it must be the whole block.
  __device__ __forceinline__ Team(int size, void* meeting)
      : size_(size), thread_(static_cast<int>(threadIdx.x) % size), meeting_(meeting) {
    const unsigned lane = threadIdx.x % 32;
    mask_ = size >= 32 ? 0xffffffffu : ((1u << size) - 1) << (lane / size * size);
  }

  __device__ __forceinline__ int size() const { return size_; }

  template <class Body>
  __device__ __forceinline__ void Phase(Body&& body) const {
    body(thread_);
    Synchronize();
  }

  template <class V, class Body>
  __device__ __forceinline__ V Sum(Body&& body) const {
    V x = body(thread_);
    for (int offset = Lanes() / 2; offset > 0; offset /= 2) x = x + Shuffle(mask_, x, offset);
    return OverWarps(x, [](V a, V b) { return a + b; });
  }

  template <class V, class Body>
  __device__ __forceinline__ team::Largest<V> Best(Body&& body) const {
    using Candidate = team::Largest<V>;
    Candidate x = body(thread_);
    for (int offset = Lanes() / 2; offset > 0; offset /= 2) {
      x = x.Better({Shuffle(mask_, x.value, offset), Shuffle(mask_, x.index, offset)});
    }
    return OverWarps(x, [](Candidate a, Candidate b) { return a.Better(b); });
  }

  template <class Body>
  __device__ __forceinline__ bool Any(Body&& body) const {
    const bool found = body(thread_);
    if (size_ > 32) return __syncthreads_or(found) != 0;
    const bool any = __any_sync(mask_, found) != 0;
    Synchronize();
    return any;
  }

 private:
  __device__ __forceinline__ int Lanes() const { return size_ < 32 ? size_ : 32; }

  __device__ __forceinline__ void Synchronize() const {
    if (size_ > 32) {
      __syncthreads();
    } else {
      __syncwarp(mask_);
    }
  }

  // Combines what each warp has found, one warp after another.
  template <class X, class Combine>
  __device__ __forceinline__ X OverWarps(X x, Combine&& combine) const {
    static_assert(sizeof(X) <= 16);
    if (size_ > 32) {
      X* const found = static_cast<X*>(meeting_);
      if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = x;
      __syncthreads();
      x = found[0];
      for (int i = 1; i < size_ / 32; ++i) x = combine(x, found[i]);
    }
    Synchronize();
    return x;
  }

  int size_, thread_;
  unsigned mask_;
  void* meeting_;
};

}  // namespace linalg::cuda
