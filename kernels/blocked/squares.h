// Squares of numbers, transposed in registers.
#pragma once

#include <cstring>

#include "kernels/arithmetic/pack.h"
#include "kernels/blocked/tile.h"

namespace linalg::blocked {

// The number of each lane's column, from 0.
template <class T>
LINALG_INLINE Register<T> LaneNumbers() {
  Register<T> x{};
  for (int lane = 0; lane < kLanesOf<Register<T>>; ++lane) {
    x[lane] = static_cast<RealElement<T>>(lane / kPartsOf<T>);
  }
  return x;
}

// A square is as wide as a register.
template <class T>
struct Square {
  static constexpr int kSize = kWidth<T>;
  using V = Register<T>;
  V x[kSize];

  static LINALG_INLINE Square Read(const T* source, int64_t ld) {
    Square square;
#pragma GCC unroll 16
    for (int i = 0; i < kSize; ++i) square.x[i] = Load<T>(source + i * ld);
    return square;
  }

  static LINALG_INLINE Square ReadTransposed(const T* source, int64_t ld) {
    Square square;
    if constexpr (sizeof(T) == 16) {
      for (int i = 0; i < kSize; ++i) {
        for (int j = 0; j < kSize; ++j) {
          std::memcpy(reinterpret_cast<char*>(&square.x[i]) + j * sizeof(T), source + j * ld + i,
                      sizeof(T));
        }
      }
    } else {
      using M = Moved<sizeof(T)>;
      Vector<M, kSize> moved[kSize];
      PackSquare<kSize>(reinterpret_cast<const M*>(source), ld, moved);
#pragma GCC unroll 16
      for (int i = 0; i < kSize; ++i) square.x[i] = (V)moved[i];
    }
    return square;
  }

  // An imaginary part that is 0 is +0.
  static LINALG_INLINE V Conj(V x) {
    if constexpr (kComplexElement<T>) {
      return ConjugatePairs(x) + V{};
    } else {
      return x;
    }
  }

  LINALG_INLINE void Write(T* target, int64_t ld) const {
#pragma GCC unroll 16
    for (int i = 0; i < kSize; ++i) Store<T>(x[i], target + i * ld);
  }
};

}  // namespace linalg::blocked
