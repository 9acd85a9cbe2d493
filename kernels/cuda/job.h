// What a job is made of: the work on one matrix, by a thread or by a team of threads, with its
// arrays in shared memory. kernels/cuda/launch.h runs jobs over a batch.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <limits>
#include <stdexcept>

#include "kernels/arithmetic/element.h"
#include "kernels/cuda/status.h"
#include "kernels/cuda/team.h"
#include "kernels/cuda/tuning.h"
#include "kernels/ffi.h"

namespace linalg::cuda {

// The same memory as what algorithms compute with.
template <class T>
auto* AsElements(T* data) {
  if constexpr (std::is_const_v<T>) {
    return reinterpret_cast<const Element<std::remove_const_t<T>>*>(data);
  } else {
    return reinterpret_cast<Element<T>*>(data);
  }
}

// Memory that lives until the handler's work on its stream is done.
class Scratch {
 public:
  // XLA refuses to be asked for more, and gives more: whole blocks of device memory.
  static constexpr size_t kAlignment = 16;

  explicit Scratch(ffi::ScratchAllocator& allocator) : allocator_(allocator) {}

  template <class T>
  T* Take(int64_t count) {
    static_assert(alignof(T) <= kAlignment);
    const auto memory = allocator_.Allocate(std::max<int64_t>(count, 1) * sizeof(T), kAlignment);
    // XLA's reason stays with XLA: with an alignment that it takes, memory is all it can lack.
    if (!memory.has_value()) throw std::bad_alloc();
    return static_cast<T*>(*memory);
  }

 private:
  ffi::ScratchAllocator& allocator_;
};

// The places of a matrix's arrays in the shared memory of the threads that work on it, in units of
// a real number. An odd number of them lies between two matrices, which spreads them over the
// banks.
class Slice {
 public:
  explicit Slice(int64_t unit) : unit_(unit) {}

  template <class X>
  int Take(int64_t count) {
    const int offset = ToInt(bytes_);
    bytes_ += (count * static_cast<int64_t>(sizeof(X)) + unit_ - 1) / unit_ * unit_;
    return offset;
  }

  int64_t bytes() const { return (bytes_ / unit_ | 1) * unit_; }

 private:
  int64_t unit_;
  int64_t bytes_ = 0;
};

template <class X>
__device__ __forceinline__ X* At(char* slice, int offset) {
  return reinterpret_cast<X*>(slice + offset);
}

// Elements of global memory: a complex one in one access.
template <class E>
__device__ __forceinline__ E LoadGlobal(const E* source) {
  if constexpr (std::is_same_v<E, Complex<float>>) {
    const float2 x = *reinterpret_cast<const float2*>(source);
    return {x.x, x.y};
  } else if constexpr (std::is_same_v<E, Complex<double>>) {
    const double2 x = *reinterpret_cast<const double2*>(source);
    return {x.x, x.y};
  } else {
    return *source;
  }
}
template <class E>
__device__ __forceinline__ void StoreGlobal(E x, E* target) {
  if constexpr (std::is_same_v<E, Complex<float>>) {
    *reinterpret_cast<float2*>(target) = make_float2(x.re, x.im);
  } else if constexpr (std::is_same_v<E, Complex<double>>) {
    *reinterpret_cast<double2*>(target) = make_double2(x.re, x.im);
  } else {
    *target = x;
  }
}

// i / divisor for i * divisor < 2^32, by a multiplication.
class Divider {
 public:
  explicit Divider(int64_t divisor)
      : magic_(static_cast<unsigned>(((uint64_t{1} << 32) + divisor - 1) /
                                     std::max<int64_t>(divisor, 1))),
        divisor_(static_cast<unsigned>(divisor)) {}

  __device__ __forceinline__ unsigned operator()(unsigned i) const {
    return divisor_ <= 1 ? i : __umulhi(i, magic_);
  }

 private:
  unsigned magic_, divisor_;
};

// One array of every matrix that a block works on, `size` elements each: in global memory one after
// another, `stride` apart (0: one for all of them), in shared memory at `offset` of each slice.
struct Staged {
  Staged(int64_t size, int64_t stride, int offset)
      : size(static_cast<int>(size)), stride(stride), offset(offset), by_size(size) {}

  int size;
  int64_t stride;
  int offset;
  Divider by_size;

  template <class E>
  __device__ __forceinline__ void Load(const E* source, int64_t first, int count, char* memory,
                                       int64_t bytes) const {
    for (unsigned e = threadIdx.x; e < static_cast<unsigned>(count * size); e += blockDim.x) {
      const unsigned matrix = by_size(e), place = e - matrix * size;
      At<E>(memory + matrix * bytes, offset)[place] =
          LoadGlobal(source + (first + matrix) * stride + place);
    }
  }

  // target[...] = value(slice, place)
  template <class E, class Value>
  __device__ __forceinline__ void Store(E* target, int64_t first, int count, char* memory,
                                        int64_t bytes, Value&& value) const {
    for (unsigned e = threadIdx.x; e < static_cast<unsigned>(count * size); e += blockDim.x) {
      const unsigned matrix = by_size(e), place = e - matrix * size;
      StoreGlobal<E>(value(memory + matrix * bytes, place),
                     target + (first + matrix) * stride + place);
    }
  }

  template <class E>
  __device__ __forceinline__ void Store(E* target, int64_t first, int count, char* memory,
                                        int64_t bytes) const {
    Store(target, first, count, memory, bytes,
          [&](char* slice, int place) { return At<E>(slice, offset)[place]; });
  }

  // Integers, which algorithms for one matrix per lane or thread hold as numbers V.
  template <class V>
  __device__ __forceinline__ void StoreIntegers(int32_t* target, int64_t first, int count,
                                                char* memory, int64_t bytes) const {
    Store(target, first, count, memory, bytes, [&](char* slice, int place) {
      return static_cast<int32_t>(At<V>(slice, offset)[place]);
    });
  }
};

// Bytes of shared memory that a block may have.
inline int64_t SharedBytes() {
  int device = 0, bytes = 0;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  Check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  return bytes - kMeetingBytes;
}

// A team's own matrix between global memory and its slice, whose rows are `ld` apart.
template <class E>
__device__ __forceinline__ void LoadMatrix(const Team& team, const E* source, int rows, int cols,
                                           E* target, int ld) {
  team.Phase([&](int thread) {
    for (int e = thread; e < rows * cols; e += team.size()) {
      target[e / cols * ld + e % cols] = LoadGlobal(source + e);
    }
  });
}

// target[...] = value(i, j), rows `cols` apart
template <class E, class Value>
__device__ __forceinline__ void StoreMatrix(const Team& team, int rows, int cols, E* target,
                                            Value&& value) {
  team.Phase([&](int thread) {
    for (int e = thread; e < rows * cols; e += team.size()) {
      StoreGlobal<E>(value(e / cols, e % cols), target + e);
    }
  });
}

}  // namespace linalg::cuda
