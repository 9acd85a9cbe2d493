// Runs the algorithms of kernels/small over a batch: one matrix per lane, and groups of lanes over
// threads.
#pragma once

#include <cstddef>

#include "kernels/aligned_memory.h"
#include "kernels/arithmetic/columns.h"
#include "kernels/arithmetic/element.h"
#include "kernels/arithmetic/pack.h"
#include "kernels/arithmetic/registers.h"
#include "kernels/cpu/batch.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/results.h"
#include "kernels/cpu/tuning.h"

namespace linalg {

template <class T>
inline constexpr int kLanes = kRegisterBytes / sizeof(Real<T>);

// The least batch that ForEachGroup runs in several lanes.
template <class T>
inline constexpr int kLeastGroup = kRegisterBytes == 64 ? kLanes<T> / 2 : kLanes<T>;

// Uninitialised registers. Few of them are on the stack: an aligned allocation can take longer than
// a small matrix. Throws std::bad_alloc.
template <class V>
class Registers {
 public:
  explicit Registers(int64_t count) {
    if (count * sizeof(V) <= sizeof(few_)) {
      memory_ = few_;
    } else {
      many_ = AllocateAligned(count * sizeof(V));
      memory_ = many_.get();
    }
  }
  Registers(const Registers&) = delete;
  Registers& operator=(const Registers&) = delete;

  V* get() const { return static_cast<V*>(memory_); }

 private:
  alignas(kCacheLine) std::byte few_[kStackBytes];
  AlignedMemory many_;
  void* memory_;
};

// Calls run.template operator()<V>(first, memory) for groups of kWidth matrices that cover the
// batch. V is a register of kWidth lanes, and the memory holds `size` registers of full width.
//
// A last group that is not full overlaps the one before, on the same thread. If results overwrite
// operands, this would factor a matrix twice. Then the last matrices run one at a time.
template <int kWidth, class T, class Run>
void ForEachGroupOf(ffi::ThreadPool& pool, int64_t batch, int64_t size, double nanoseconds,
                    Run&& run, bool in_place) {
  using V = Vector<Real<T>, kWidth>;
  const int64_t groups = batch / kWidth;
  ForEachRange(pool, groups, nanoseconds, [&](int64_t first, int64_t last) {
    const Registers<Vector<Real<T>, kLanes<T>>> memory(size);
    V* const registers = reinterpret_cast<V*>(memory.get());
    for (int64_t group = first; group < last; ++group) {
      run.template operator()<V>(group * kWidth, registers);
    }
    if (last < groups || batch % kWidth == 0) return;
    if (!in_place) return run.template operator()<V>(batch - kWidth, registers);
    for (int64_t i = groups * kWidth; i < batch; ++i) {
      run.template operator()<Real<T>>(i, reinterpret_cast<Real<T>*>(memory.get()));
    }
  });
}

// ForEachGroupOf with the best width for groups that work in `size` registers. `nanoseconds`
// estimates the time of one full group. A batch that does not fill a group runs one matrix at a
// time, and V is a plain number. The bits do not depend on the width.
//
// `in_place` says that results overwrite operands. Groups of more than `most_bytes` have half the
// width.
template <class T, class Run>
void ForEachGroup(ffi::ThreadPool& pool, int64_t batch, int64_t size, double nanoseconds, Run&& run,
                  bool in_place = false, int64_t most_bytes = kWideGroupBytes) {
  constexpr int kWide = kLanes<T>, kHalf = kWide / 2;
  const bool fits = size * kRegisterBytes <= most_bytes;
  const bool is_brief = nanoseconds * static_cast<double>(batch) / kWide < kBriefNanoseconds;
  if constexpr (kRegisterBytes == 64) {
    if (batch >= kHalf && (!fits || is_brief || batch < kWide)) {
      return ForEachGroupOf<kHalf, T>(pool, batch, size, nanoseconds, run, in_place);
    }
  }
  if (batch >= kWide)
    return ForEachGroupOf<kWide, T>(pool, batch, size, nanoseconds, run, in_place);
  ForEachGroupOf<1, T>(pool, batch, size, nanoseconds, run, in_place);
}

// The unit in which columns are updated. In lanes it is an element. For a single matrix, where V is
// a plain number, it is a register of neighbouring columns.
template <class T, class V>
using ColumnBlock = Element<T, std::conditional_t<kLanesOf<V> == 1, Vector<Real<T>, kLanes<T>>, V>>;

// Returns where a matrix may begin in such memory. Blocks of its columns compute with the elements
// before it.
template <class B, class E>
E* AfterMargin(E* memory) {
  constexpr int kMargin = kColumns<E, B> - 1;
  std::fill_n(memory, kMargin, E{});
  return memory + kMargin;
}

// Pack and Unpack of pack.h. A compiler takes long over them, so lanes.cc compiles those of several
// lanes once for all handlers. Calls of constant size stay inline, so that tiny matrices stay in
// registers.
template <class V>
void PackLanes(const Lane<V>* source, int64_t stride, int64_t count, V* target);
template <class V>
void UnpackLanes(const V* source, int64_t stride, int64_t count, Lane<V>* target);

template <class V>
  requires(kLanesOf<V> == 1)
LINALG_INLINE void PackLanes(const Lane<V>* source, int64_t stride, int64_t count, V* target) {
  Pack(source, stride, count, target);
}
template <class V>
  requires(kLanesOf<V> == 1)
LINALG_INLINE void UnpackLanes(const V* source, int64_t stride, int64_t count, Lane<V>* target) {
  Unpack(source, stride, count, target);
}

// Moves the elements of a group's matrices, `count` each and `stride` apart, to lanes and back.
template <class E, class T>
LINALG_INLINE void LoadElements(const T* source, int64_t stride, int64_t count, E* elements) {
  constexpr int64_t kParts = kPartsOf<E>;
  const auto* const from = reinterpret_cast<const Real<T>*>(source);
  auto* const to = reinterpret_cast<RealElement<E>*>(elements);
  if (__builtin_constant_p(count)) {
    Pack(from, stride * kParts, count * kParts, to);
  } else {
    PackLanes(from, stride * kParts, count * kParts, to);
  }
}

template <class E, class T>
LINALG_INLINE void StoreElements(const E* elements, int64_t count, int64_t stride, T* target) {
  constexpr int64_t kParts = kPartsOf<E>;
  const auto* const from = reinterpret_cast<const RealElement<E>*>(elements);
  auto* const to = reinterpret_cast<Real<T>*>(target);
  if (__builtin_constant_p(count)) {
    Unpack(from, stride * kParts, count * kParts, to);
  } else {
    UnpackLanes(from, stride * kParts, count * kParts, to);
  }
}
template <class E, class T>
LINALG_INLINE void StoreElements(const E* elements, int64_t count, T* target) {
  StoreElements(elements, count, count, target);
}

// Calls move(first, size, block) for blocks of [0, count), each with space for its `size` elements.
template <class X, class Move>
LINALG_INLINE void ForEachBlock(int64_t count, Move&& move) {
  constexpr int64_t kBlock = 16;
  X block[kBlock];
  for (int64_t first = 0; first < count; first += kBlock) {
    move(first, std::min(kBlock, count - first), block);
  }
}

// Moves small integers between lanes of V and a batch of int32 vectors, `count` each and `stride`
// apart.
template <class V>
void StoreIntegers(const V* source, int64_t count, int32_t* target) {
  if constexpr (kLanesOf<V> == 1) {
    for (int64_t i = 0; i < count; ++i) target[i] = static_cast<int32_t>(source[i]);
  } else {
    using Integers = Vector<int32_t, kLanesOf<V>>;
    ForEachBlock<Integers>(count, [=](int64_t first, int64_t size, Integers* block) {
      for (int64_t i = 0; i < size; ++i) {
        block[i] = __builtin_convertvector(source[first + i], Integers);
      }
      UnpackLanes(block, count, size, target + first);
    });
  }
}

template <class V>
void LoadIntegers(const int32_t* source, int64_t stride, int64_t count, V* target) {
  if constexpr (kLanesOf<V> == 1) {
    for (int64_t i = 0; i < count; ++i) target[i] = static_cast<V>(source[i]);
  } else {
    using Integers = Vector<int32_t, kLanesOf<V>>;
    ForEachBlock<Integers>(count, [=](int64_t first, int64_t size, Integers* block) {
      PackLanes(source + first, stride, size, block);
      for (int64_t i = 0; i < size; ++i) target[first + i] = __builtin_convertvector(block[i], V);
    });
  }
}

}  // namespace linalg
