// Bump allocation from a workspace.
#pragma once

#include <cstdint>

#include "kernels/arithmetic/columns.h"

namespace linalg::small {

// Hands out consecutive parts of an array of V.
template <class V>
class Arena {
 public:
  LINALG_INLINE explicit Arena(V* memory) : next_(memory) {}

  template <class E = V>
  LINALG_INLINE E* Take(int64_t count) {
    V* const taken = next_;
    next_ += count * kPartsOf<E>;
    return reinterpret_cast<E*>(taken);
  }

  template <class E, class Row>
  LINALG_INLINE SplitRows<E, Row> TakeRows(int64_t count, int stride) {
    V* const re = Take(count * stride);
    return {re, kComplexElement<E> ? Take(count * stride) : re, stride};
  }

  // The first element that has not been taken.
  LINALG_INLINE V* Next() const { return next_; }

 private:
  V* next_;
};

// The elements that a Work of these arguments needs. A Work is constructed from an array of its V.
// Its `end` is the end of the part that it uses.
template <class Work, class... Arguments>
int64_t SizeOf(Arguments... arguments) {
  using V = typename Work::V;
  V* const memory = reinterpret_cast<V*>(alignof(V));  // for pointer arithmetic only
  return Work(memory, arguments...).end - memory;
}

}  // namespace linalg::small
