// Moves matrices between a batch in memory and the lanes of registers.
//
// Packing turns kLanes matrices of `count` elements, `stride` apart, into `count` registers with
// one matrix per lane. It transposes squares of elements in registers. The last square of a row
// overlaps the one before, so there is no scalar remainder. Contiguous matrices of 2 or 4 elements
// fill whole registers, which are split instead.
#pragma once

#include <cstring>
#include <utility>

#include "kernels/arithmetic/element.h"

namespace linalg {

// The type that moves numbers of kBytes bytes. A complex64 moves as one double.
template <size_t kBytes>
using MoveType = std::conditional_t<kBytes == 4, float, double>;

// Copies by bytes: a complex64 that moves as a double is aligned only as a float. Such a pointer
// may be passed on, but not dereferenced.
template <class X>
LINALG_INLINE X LoadMoved(const void* source) {
  X x;
  std::memcpy(&x, source, sizeof(X));
  return x;
}
template <class X>
LINALG_INLINE void StoreMoved(X x, void* target) {
  std::memcpy(target, &x, sizeof(X));
}

// One step of the transposition: exchanges blocks of kStep lanes between registers kStep apart.
template <int kStep, class V, size_t... kIndex>
LINALG_INLINE void ExchangeBlocks(V& a, V& b, std::index_sequence<kIndex...>) {
  constexpr size_t kLanes = sizeof...(kIndex);
  const V low = Shuffle<((kIndex & kStep) ? kLanes + kIndex - kStep : kIndex)...>(a, b);
  const V high = Shuffle<((kIndex & kStep) ? kLanes + kIndex : kIndex + kStep)...>(a, b);
  a = low;
  b = high;
}

// Transposes the kSize by kSize squares that lie side by side in kSize registers.
template <int kSize, int kStep, class V>
LINALG_INLINE void TransposeInRegisters(V* x) {
  if constexpr (kStep > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < kSize; ++i) {
      if (!(i & kStep)) {
        ExchangeBlocks<kStep>(x[i], x[i + kStep], std::make_index_sequence<kLanesOf<V>>());
      }
    }
    TransposeInRegisters<kSize, kStep / 2>(x);
  }
}

template <class V, size_t... kIndex>
LINALG_INLINE auto Join(V low, V high, std::index_sequence<kIndex...>) {
  return Shuffle<kIndex...>(low, high);
}

// Fills a register with pieces of kPiece elements, from rows kPiece apart.
template <class T, int kLanes, int kPiece>
LINALG_INLINE Vector<T, kLanes> LoadPieces(const T* source, int64_t stride) {
  if constexpr (kLanes == kPiece) {
    return LoadMoved<Vector<T, kLanes>>(source);
  } else {
    return Join(LoadPieces<T, kLanes / 2, kPiece>(source, stride),
                LoadPieces<T, kLanes / 2, kPiece>(source + kLanes / 2 * stride, stride),
                std::make_index_sequence<kLanes>());
  }
}

template <int kOffset, class V, size_t... kIndex>
LINALG_INLINE auto Piece(V x, std::index_sequence<kIndex...>) {
  return Shuffle<(kOffset + kIndex)...>(x, x);
}

template <class T, int kLanes, int kPiece>
LINALG_INLINE void StorePieces(Vector<T, kLanes> x, T* target, int64_t stride) {
  if constexpr (kLanes == kPiece) {
    StoreMoved(x, target);
  } else {
    constexpr auto kHalf = std::make_index_sequence<kLanes / 2>();
    StorePieces<T, kLanes / 2, kPiece>(Piece<0>(x, kHalf), target, stride);
    StorePieces<T, kLanes / 2, kPiece>(Piece<kLanes / 2>(x, kHalf), target + kLanes / 2 * stride,
                                       stride);
  }
}

template <int kPiece, class V>
LINALG_INLINE void PackSquare(const Lane<V>* source, int64_t stride, V* target) {
  V x[kPiece];
#pragma GCC unroll 16
  for (int i = 0; i < kPiece; ++i) {
    x[i] = LoadPieces<Lane<V>, kLanesOf<V>, kPiece>(source + i * stride, stride);
  }
  TransposeInRegisters<kPiece, kPiece / 2>(x);
#pragma GCC unroll 16
  for (int i = 0; i < kPiece; ++i) target[i] = x[i];
}

template <int kPiece, class V>
LINALG_INLINE void UnpackSquare(const V* source, Lane<V>* target, int64_t stride) {
  V x[kPiece];
#pragma GCC unroll 16
  for (int i = 0; i < kPiece; ++i) x[i] = source[i];
  TransposeInRegisters<kPiece, kPiece / 2>(x);
#pragma GCC unroll 16
  for (int i = 0; i < kPiece; ++i) {
    StorePieces<Lane<V>, kLanesOf<V>, kPiece>(x[i], target + i * stride, stride);
  }
}

template <size_t kFirst, class V, size_t... kIndex>
LINALG_INLINE V EverySecond(V low, V high, std::index_sequence<kIndex...>) {
  return Shuffle<(kFirst + 2 * kIndex)...>(low, high);
}

// Splits tuples of kCount elements in kCount registers: one register for each place in the tuple,
// kStep apart.
template <int kCount, int kStep = 1, class V>
LINALG_INLINE void SplitTuples(const V* x, V* target) {
  if constexpr (kCount == 1) {
    target[0] = x[0];
  } else {
    constexpr auto kAll = std::make_index_sequence<kLanesOf<V>>();
    V even[kCount / 2], odd[kCount / 2];
    for (int i = 0; i < kCount / 2; ++i) {
      even[i] = EverySecond<0>(x[2 * i], x[2 * i + 1], kAll);
      odd[i] = EverySecond<1>(x[2 * i], x[2 * i + 1], kAll);
    }
    SplitTuples<kCount / 2, 2 * kStep>(even, target);
    SplitTuples<kCount / 2, 2 * kStep>(odd, target + kStep);
  }
}

template <size_t kFirst, class V, size_t... kIndex>
LINALG_INLINE V Alternate(V even, V odd, std::index_sequence<kIndex...>) {
  constexpr size_t kLanes = sizeof...(kIndex);
  return Shuffle<((kIndex & 1 ? kLanes : 0) + kFirst + kIndex / 2)...>(even, odd);
}

// The inverse of SplitTuples.
template <int kCount, int kStep = 1, class V>
LINALG_INLINE void JoinTuples(const V* source, V* x) {
  if constexpr (kCount == 1) {
    x[0] = source[0];
  } else {
    constexpr auto kAll = std::make_index_sequence<kLanesOf<V>>();
    V even[kCount / 2], odd[kCount / 2];
    JoinTuples<kCount / 2, 2 * kStep>(source, even);
    JoinTuples<kCount / 2, 2 * kStep>(source + kStep, odd);
    for (int i = 0; i < kCount / 2; ++i) {
      x[2 * i] = Alternate<0>(even[i], odd[i], kAll);
      x[2 * i + 1] = Alternate<kLanesOf<V> / 2>(even[i], odd[i], kAll);
    }
  }
}

template <int kCount, class V>
LINALG_INLINE void PackTuples(const Lane<V>* source, V* target) {
  V x[kCount];
  for (int i = 0; i < kCount; ++i) x[i] = LoadMoved<V>(source + i * kLanesOf<V>);
  SplitTuples<kCount>(x, target);
}

template <int kCount, class V>
LINALG_INLINE void UnpackTuples(const V* source, Lane<V>* target) {
  V x[kCount];
  JoinTuples<kCount>(source, x);
  for (int i = 0; i < kCount; ++i) StoreMoved(x[i], target + i * kLanesOf<V>);
}

// Calls body(first) for squares of kPiece elements that cover [0, count). Needs count >= kPiece.
template <int kPiece, class Body>
LINALG_INLINE void ForEachSquare(int64_t count, Body&& body) {
  for (int64_t i = 0; i + kPiece <= count; i += kPiece) body(i);
  if (count % kPiece != 0) body(count - kPiece);
}

template <class V, int kPiece = kLanesOf<V>>
LINALG_INLINE void Pack(const Lane<V>* source, int64_t stride, int64_t count, V* target) {
  // GCC 12 takes the count `steps - 1` for negative, and warns about the size of the copy below.
  if (count <= 0) return;
  if constexpr (kLanesOf<V> == 1) {
    std::memcpy(target, static_cast<const void*>(source), count * sizeof(V));
  } else if constexpr (kPiece == 1) {
    if (stride == 1) {
      target[0] = LoadMoved<V>(source);
      return;
    }
    for (int lane = 0; lane < kLanesOf<V>; ++lane) {
      target[0][lane] = LoadMoved<Lane<V>>(source + lane * stride);
    }
  } else if (kLanesOf<V> > 4 && count == 4 && stride == 4) {
    PackTuples<4>(source, target);
  } else if (kLanesOf<V> > 2 && count == 2 && stride == 2) {
    PackTuples<2>(source, target);
  } else if (count < kPiece) {
    Pack<V, kPiece / 2>(source, stride, count, target);
  } else {
    ForEachSquare<kPiece>(count,
                          [&](int64_t i) { PackSquare<kPiece>(source + i, stride, target + i); });
  }
}

template <class V, int kPiece = kLanesOf<V>>
LINALG_INLINE void Unpack(const V* source, int64_t stride, int64_t count, Lane<V>* target) {
  if (count == 0) return;
  if constexpr (kLanesOf<V> == 1) {
    std::memcpy(static_cast<void*>(target), source, count * sizeof(V));
  } else if constexpr (kPiece == 1) {
    if (stride == 1) return StoreMoved(source[0], target);
    for (int lane = 0; lane < kLanesOf<V>; ++lane) {
      StoreMoved<Lane<V>>(source[0][lane], target + lane * stride);
    }
  } else if (kLanesOf<V> > 4 && count == 4 && stride == 4) {
    UnpackTuples<4>(source, target);
  } else if (kLanesOf<V> > 2 && count == 2 && stride == 2) {
    UnpackTuples<2>(source, target);
  } else if (count < kPiece) {
    Unpack<V, kPiece / 2>(source, stride, count, target);
  } else {
    ForEachSquare<kPiece>(count,
                          [&](int64_t i) { UnpackSquare<kPiece>(source + i, target + i, stride); });
  }
}

}  // namespace linalg
