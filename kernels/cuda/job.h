// Parts of a job: the work on one matrix by a thread or a team of threads, with its arrays in
// shared memory. kernels/cuda/launch.h runs jobs over a batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/arithmetic/element.h"
#include "kernels/cuda/path.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/status.h"
#include "kernels/cuda/team.h"
#include "kernels/cuda/team_size.h"
#include "kernels/cuda/tuning.h"
#include "kernels/ffi.h"

namespace linalg::cuda {

// Views the memory as elements that algorithms compute with.
template <class T>
auto* AsElements(T* data) {
  if constexpr (std::is_const_v<T>) {
    return reinterpret_cast<const Element<std::remove_const_t<T>>*>(data);
  } else {
    return reinterpret_cast<Element<T>*>(data);
  }
}

// The offset of an array in every slice.
template <class X>
struct Offset {
  int bytes;

  __device__ __forceinline__ X* In(char* slice) const {
    return reinterpret_cast<X*>(slice + bytes);
  }

  // Views the memory as an array of another type.
  template <class Y>
  Offset<Y> As() const {
    return {bytes};
  }
};

// The layout of a slice: the shared memory of the threads that work on a matrix, in units of a real
// number. The number of units is odd, which spreads the matrices over the banks.
class SharedLayout {
 public:
  explicit SharedLayout(int64_t unit) : unit_(unit) {}

  template <class X>
  Offset<X> Take(int64_t count) {
    const Offset<X> offset{ToInt(bytes_)};
    bytes_ += (count * static_cast<int64_t>(sizeof(X)) + unit_ - 1) / unit_ * unit_;
    return offset;
  }

  int64_t bytes() const { return (bytes_ / unit_ | 1) * unit_; }

 private:
  int64_t unit_;
  int64_t bytes_ = 0;
};

// Elements of global memory. A complex one takes one access.
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

// The elements of one of many interleaved systems.
template <class E>
struct StridedVector {
  E* data;
  int64_t stride;

  __device__ __forceinline__ E& operator[](int64_t i) const { return data[i * stride]; }
  __device__ __forceinline__ StridedVector operator+(int64_t i) const {
    return {data + i * stride, stride};
  }
};

// Starts to copy an element of global memory to shared memory, number by number, without waiting
// for it. A thread may have any number of copies under way, and no register holds them.
// FinishCopies waits for them; a barrier must follow it.
template <class E>
__device__ __forceinline__ void CopyGlobal(const E* source, E* target) {
#if defined(__CUDA_ARCH__)
  using Number = RealElement<E>;
  constexpr int kBytes = sizeof(Number);
  const auto* const from = reinterpret_cast<const Number*>(source);
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(target));
  for (unsigned part = 0; part < sizeof(E) / kBytes; ++part) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to + part * kBytes),
                 "l"(from + part), "n"(kBytes)
                 : "memory");
  }
#else
  *target = *source;
#endif
}
__device__ __forceinline__ void FinishCopies() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
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

// i / divisor for 0 <= i < 2^63, by a multiplication. The GPU has no 64-bit division: the compiler
// would emit about seventy instructions.
class LongDivider {
 public:
  explicit LongDivider(int64_t divisor) : divisor_(std::max<int64_t>(divisor, 1)) {
    // Multiply by the integer above 2^(63 + shift) / divisor, where divisor <= 2^shift. It has 64
    // bits, and its excess does not reach a quotient of 63 bits.
    while ((uint64_t{1} << shift_) < static_cast<uint64_t>(divisor_)) ++shift_;
    uint64_t rest = uint64_t{1} << shift_;
    for (int bit = 0; bit < 64; ++bit) {
      const uint64_t digit = rest / divisor_;
      magic_ = 2 * magic_ + digit;
      rest = 2 * (rest - digit * divisor_);
    }
    ++magic_;
  }

  __host__ __device__ __forceinline__ int64_t divisor() const { return divisor_; }

  __device__ __forceinline__ int64_t operator()(int64_t i) const {
    if (divisor_ == 1) return i;
#if defined(__CUDA_ARCH__)
    const uint64_t high = __umul64hi(static_cast<uint64_t>(i), magic_);
#else
    const auto high = static_cast<uint64_t>(static_cast<unsigned __int128>(i) * magic_ >> 64);
#endif
    return static_cast<int64_t>(high >> (shift_ - 1));
  }

 private:
  int64_t divisor_;
  uint64_t magic_ = 0;
  int shift_ = 0;
};

// Finds the matrix, row and column of an element in a batch of contiguous row-major matrices.
class MatrixElements {
 public:
  struct Position {
    int64_t matrix, i, j;
  };

  MatrixElements(int64_t rows, int64_t cols) : by_rows_(rows), by_cols_(cols) {}

  __device__ __forceinline__ Position operator()(int64_t place) const {
    const int64_t row = by_cols_(place), matrix = by_rows_(row);
    return {matrix, row - matrix * by_rows_.divisor(), place - row * by_cols_.divisor()};
  }

 private:
  LongDivider by_rows_, by_cols_;
};

// The matrices that a block works on at a time, one thread each. They are `count` of the batch from
// `first` on, with their slices of shared memory.
struct Block {
  int64_t first;
  int count;
  char* memory;
  int64_t slice_bytes;

  __device__ __forceinline__ char* Slice(unsigned matrix) const {
    return memory + matrix * slice_bytes;
  }
};

// One array of every matrix that a block works on, `size` elements each. In global memory they lie
// `stride` apart (0: all matrices share one), in shared memory at an offset of each slice.
template <class X>
struct SharedArray {
  SharedArray(int64_t size, int64_t stride, Offset<X> offset)
      : offset(offset), size(static_cast<int>(size)), stride(stride), by_size(size) {}
  SharedArray(int64_t size, Offset<X> offset) : SharedArray(size, size, offset) {}

  Offset<X> offset;
  int size;
  int64_t stride;
  Divider by_size;

  __device__ __forceinline__ X* In(char* slice) const { return offset.In(slice); }

  __device__ __forceinline__ void Load(const X* source, const Block& block) const {
    ForEachElement(block, [&](unsigned matrix, unsigned i) {
      CopyGlobal(source + (block.first + matrix) * stride + i, In(block.Slice(matrix)) + i);
    });
  }

  // target[...] = value(slice, i)
  template <class Y, class Value>
  __device__ __forceinline__ void Store(Y* target, const Block& block, Value&& value) const {
    ForEachElement(block, [&](unsigned matrix, unsigned i) {
      StoreGlobal<Y>(value(block.Slice(matrix), i), target + (block.first + matrix) * stride + i);
    });
  }

  __device__ __forceinline__ void Store(X* target, const Block& block) const {
    Store(target, block, [&](char* slice, int i) { return In(slice)[i]; });
  }

  // Integers. Algorithms for one matrix per lane or thread hold them as floating numbers.
  __device__ __forceinline__ void StoreIntegers(int32_t* target, const Block& block) const {
    Store(target, block, [&](char* slice, int i) { return static_cast<int32_t>(In(slice)[i]); });
  }

 private:
  template <class Body>
  __device__ __forceinline__ void ForEachElement(const Block& block, Body&& body) const {
    for (unsigned e = threadIdx.x; e < static_cast<unsigned>(block.count * size); e += blockDim.x) {
      const unsigned matrix = by_size(e);
      body(matrix, e - matrix * size);
    }
  }
};

// Bytes of shared memory that a block may have.
inline int64_t SharedBytes() {
  int device = 0, bytes = 0;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  Check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  return bytes - kReductionBytes;
}

// Whether Job(layout, arguments...), or the given offsets, fit in the shared memory of a block.
template <class Job, class... Arguments>
bool FitsInShared(int64_t unit, const Arguments&... arguments) {
  SharedLayout layout(unit);
  static_cast<void>(Job(layout, arguments...));
  return layout.bytes() <= SharedBytes();
}

// Moves a small matrix between global memory and a slice, where its rows are `ld` apart.
struct RowsOfWarp {
  int rows, cols, ld;

  RowsOfWarp(int rows, int cols) : rows(rows), cols(cols), ld(cols | 1) {}

  template <class Team, class E>
  __device__ __forceinline__ void Load(const Team& team, const E* source, E* target) const {
    team.Phase([&](int thread) {
      for (int j = thread; j < cols; j += team.size()) {
        const E* from = source + j;
        E* to = target + j;
        LINALG_UNROLL_BY(8)
        for (int i = 0; i < rows; ++i, from += cols, to += ld) CopyGlobal(from, to);
      }
      FinishCopies();
    });
  }

  // target[...] = value(i, j). Several rows are loaded at a time, so that their latencies overlap.
  template <class Team, class E, class Value>
  __device__ __forceinline__ void Store(const Team& team, E* target, Value&& value) const {
    constexpr int kRows = 32 / sizeof(E);
    team.Phase([&](int thread) {
      for (int j = thread; j < cols; j += team.size()) {
        for (int first = 0; first < rows; first += kRows) {
          E x[kRows];
          LINALG_UNROLL
          for (int r = 0; r < kRows; ++r) x[r] = value(first + r < rows ? first + r : first, j);
          LINALG_UNROLL
          for (int r = 0; r < kRows; ++r) {
            if (first + r < rows) StoreGlobal<E>(x[r], target + (first + r) * cols + j);
          }
        }
      }
    });
  }
};

// Loads a team's matrix from global memory to its slice, where rows are `ld` apart.
template <class E>
__device__ __forceinline__ void LoadMatrix(const Team& team, const E* source, int rows, int cols,
                                           E* target, int ld) {
  team::Move<E>(
      team, rows, cols, [=](int i, int j) { return LoadGlobal(source + i * cols + j); },
      [=](int i, int j, E x) { target[i * ld + j] = x; });
}

// target[...] = value(i, j), rows `cols` apart. value may be the result of a team's algorithm.
template <class E, class Value>
__device__ __forceinline__ void StoreMatrix(const Team& team, int rows, int cols, E* target,
                                            Value&& value) {
  team::Move<E>(team, rows, cols, value,
                [=](int i, int j, E x) { StoreGlobal<E>(x, target + i * cols + j); });
}

// Stores the info of a team's matrix. The barrier ends the warp's work without barriers, before it
// loads its next matrix. A Team's work ends with a barrier anyway.
template <class Team>
__device__ __forceinline__ void StoreInfo(const Team& team, int info, int32_t* target) {
  team.Phase([&](int thread) {
    if (thread == 0) *target = info;
  });
}
__device__ __forceinline__ void StoreInfo(const Team& team, int info, int32_t* target) {
  team.Each([&](int thread) {
    if (thread == 0) *target = info;
  });
}

// Moves a team's array of `count` elements between global memory and its slice.
template <class Team, class X>
__device__ __forceinline__ void LoadArray(const Team& team, int count, const X* source, X* target) {
  team.Phase([&](int thread) {
    for (int k = team::Again(thread); k < count; k += team.size())
      target[k] = LoadGlobal(source + k);
  });
}
template <class Team, class X>
__device__ __forceinline__ void StoreArray(const Team& team, int count, const X* source,
                                           X* target) {
  team.Phase([&](int thread) {
    for (int k = team::Again(thread); k < count; k += team.size())
      StoreGlobal<X>(source[k], target + k);
  });
}

}  // namespace linalg::cuda
