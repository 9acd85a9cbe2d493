// A team of CUDA threads for kernels/team/team.h: a part of a warp, a warp, or a block.
#pragma once

#include <limits>

#include "kernels/team/team.h"

namespace linalg::cuda {

template <class E>
__device__ __forceinline__ E ShuffleXor(unsigned mask, E x, int offset) {
  if constexpr (kComplexElement<E>) {
    return {__shfl_xor_sync(mask, x.re, offset), __shfl_xor_sync(mask, x.im, offset)};
  } else {
    return __shfl_xor_sync(mask, x, offset);
  }
}

// Converts numbers to integers of the same order, and back. NaN comes at the ends.
__device__ __forceinline__ int ToOrdered(float x) {
  const int bits = __float_as_int(x + 0.0f);  // one zero
  return bits ^ (bits >> 31 & std::numeric_limits<int>::max());
}
__device__ __forceinline__ long long ToOrdered(double x) {
  const long long bits = __double_as_longlong(x + 0.0);
  return bits ^ (bits >> 63 & std::numeric_limits<long long>::max());
}
__device__ __forceinline__ float FromOrdered(int x) {
  return __int_as_float(x ^ (x >> 31 & std::numeric_limits<int>::max()));
}
__device__ __forceinline__ double FromOrdered(long long x) {
  return __longlong_as_double(x ^ (x >> 63 & std::numeric_limits<long long>::max()));
}

// The largest over the threads of the mask, by the machine's reductions of integers.
__device__ __forceinline__ int LargestOver(unsigned mask, int x) {
  return __reduce_max_sync(mask, x);
}
__device__ __forceinline__ long long LargestOver(unsigned mask, long long x) {
  const int high = static_cast<int>(x >> 32), highest = __reduce_max_sync(mask, high);
  const unsigned low = high == highest ? static_cast<unsigned>(x) : 0;
  const unsigned lowest_part = __reduce_max_sync(mask, low);
  return static_cast<long long>(highest) << 32 | lowest_part;
}

template <class V>
__device__ __forceinline__ team::Candidate<V> BestOver(unsigned mask, team::Candidate<V> mine) {
  const auto key = ToOrdered(mine.value), largest = LargestOver(mask, key);
  const int none = std::numeric_limits<int>::max();
  return {FromOrdered(largest), __reduce_min_sync(mask, key == largest ? mine.index : none)};
}

// Bytes of shared memory for reductions over the warps of a block.
inline constexpr int kReductionBytes = 32 * 16;

class Team {
 public:
  // The team of this thread. A team of more than 32 threads must be the whole block.
  __device__ __forceinline__ Team(int size, void* reduction)
      : size_(size), thread_(static_cast<int>(threadIdx.x) % size), reduction_(reduction) {
    const unsigned place = threadIdx.x % 32;
    mask_ = size >= 32 ? kWholeWarp : ((1u << size) - 1) << (place / size * size);
  }

  __device__ __forceinline__ int size() const { return size_; }

  // Has no barrier, so other threads must not read what `body` writes.
  template <class Body>
  __device__ __forceinline__ void Each(Body&& body) const {
    body(thread_);
  }

  template <class Body>
  __device__ __forceinline__ void Phase(Body&& body) const {
    body(thread_);
    Synchronize();
  }

  template <class V, class Body>
  __device__ __forceinline__ V Sum(Body&& body) const {
    const auto add = [](V a, V b) { return a + b; };
    const auto sum = [&](unsigned mask, int width, V x) {
      for (int offset = width / 2; offset > 0; offset /= 2) x = add(x, ShuffleXor(mask, x, offset));
      return x;
    };
    const V mine = body(thread_);
    return OverWarps(size_ >= 32 ? sum(kWholeWarp, 32, mine) : sum(mask_, size_, mine), add);
  }

  template <class V, class Body>
  __device__ __forceinline__ team::Candidate<V> Best(Body&& body) const {
    using Candidate = team::Candidate<V>;
    const Candidate mine = body(thread_);
    return OverWarps(size_ >= 32 ? BestOver(kWholeWarp, mine) : BestOver(mask_, mine),
                     [](Candidate a, Candidate b) { return a.Better(b); });
  }

  template <class Body>
  __device__ __forceinline__ bool Any(Body&& body) const {
    const bool found = body(thread_);
    if (size_ > 32) return __syncthreads_or(found) != 0;
    const bool any = (size_ == 32 ? __any_sync(kWholeWarp, found) : __any_sync(mask_, found)) != 0;
    Synchronize();
    return any;
  }

 private:
  // A barrier is one instruction if the compiler knows the mask, and a dozen otherwise.
  static constexpr unsigned kWholeWarp = 0xffffffffu;

  __device__ __forceinline__ void Synchronize() const {
    if (size_ > 32) {
      __syncthreads();
    } else if (size_ == 32) {
      __syncwarp(kWholeWarp);
    } else {
      __syncwarp(mask_);
    }
  }

  // Combines the results of the warps, one warp after another.
  template <class X, class Combine>
  __device__ __forceinline__ X OverWarps(X x, Combine&& combine) const {
    static_assert(sizeof(X) <= 16);
    if (size_ > 32) {
      X* const found = static_cast<X*>(reduction_);
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
  void* reduction_;
};

// A team of neighbours in a warp, for kernels/team/rows.h. All threads of the warp do the same,
// each team with its own matrix. So branches and loop counts may depend on a matrix's shape, but
// not on its elements.
template <int kSize>
class WarpTeam {
 public:
  template <class X>
  class PerThread {
   public:
    __device__ __forceinline__ explicit PerThread(const WarpTeam&) {}
    __device__ __forceinline__ X& operator[](int) { return x_; }

   private:
    X x_;
  };

  __device__ __forceinline__ WarpTeam() : thread_(static_cast<int>(threadIdx.x) % kSize) {}

  __device__ __forceinline__ static constexpr int size() { return kSize; }

  template <class Body>
  __device__ __forceinline__ void Each(Body&& body) const {
    body(thread_);
  }

  template <class Body>
  __device__ __forceinline__ void Phase(Body&& body) const {
    body(thread_);
    __syncwarp(kWholeWarp);
  }

  template <class V, class Body>
  __device__ __forceinline__ V From(int thread, Body&& body) const {
    const V mine = body(thread_);
    if constexpr (kComplexElement<V>) {
      return {__shfl_sync(kWholeWarp, mine.re, thread, kSize),
              __shfl_sync(kWholeWarp, mine.im, thread, kSize)};
    } else {
      return __shfl_sync(kWholeWarp, mine, thread, kSize);
    }
  }

  template <class V, class Body>
  __device__ __forceinline__ team::Candidate<V> Best(Body&& body) const {
    team::Candidate<V> best = body(thread_);
    if constexpr (kSize == 32) {
      best = BestOver(kWholeWarp, best);
    } else {
#pragma unroll
      for (int offset = kSize / 2; offset > 0; offset /= 2) {
        best = best.Better({ShuffleXor(kWholeWarp, best.value, offset),
                            ShuffleXor(kWholeWarp, best.index, offset)});
      }
    }
    return best;
  }

  template <class Body>
  __device__ __forceinline__ bool Any(Body&& body) const {
    const unsigned found = __ballot_sync(kWholeWarp, body(thread_));
    __syncwarp(kWholeWarp);
    const unsigned place = threadIdx.x % 32;
    return (found >> place / kSize * kSize & (kWholeWarp >> (32 - kSize))) != 0;
  }

 private:
  static constexpr unsigned kWholeWarp = 0xffffffffu;

  int thread_;
};

}  // namespace linalg::cuda
