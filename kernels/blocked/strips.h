// A panel of one matrix with its columns in registers: strips of as many rows as a register has
// lanes, by kPanel columns, the real and the imaginary parts of complex numbers apart.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

#include "kernels/arithmetic/pack.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// A piece of a column in a register, and the rows that it holds.
template <class T>
using Strip = Element<T, Register<T>>;
template <class T>
inline constexpr int64_t kStrip = kLanesOf<Register<T>>;

// Registers of a panel's column between one strip and the next.
template <class T>
inline constexpr int64_t kNextStrip = kPanel<T>;

// The number in row i of a column, which starts in the strips at `column`. Moved as bytes, for
// what lies there are registers.
template <class T>
struct StripElement {
  using R = RealElement<T>;
  std::byte* bytes;

  StripElement(Strip<T>* column, int64_t i)
      : bytes(reinterpret_cast<std::byte*>(column + i / kStrip<T> * kNextStrip<T>) +
              i % kStrip<T> * sizeof(R)) {}

  Element<T> Get() const {
    R parts[kPartsOf<T>];
    for (int k = 0; k < kPartsOf<T>; ++k) {
      std::memcpy(parts + k, bytes + k * kRegisterBytes, sizeof(R));
    }
    return std::bit_cast<Element<T>>(parts);
  }
  void Set(Element<T> x) const {
    const auto parts = std::bit_cast<std::array<R, kPartsOf<T>>>(x);
    for (int k = 0; k < kPartsOf<T>; ++k) {
      std::memcpy(bytes + k * kRegisterBytes, &parts[k], sizeof(R));
    }
  }
};

// The strip of a panel: kStrip rows of `a` by kPanel columns become a register for each real
// column, and back.
template <class T>
LINALG_INLINE void ReadStrip(Rows<T> a, Strip<T>* strip) {
  constexpr int64_t kParts = kPartsOf<T>;
  Pack(reinterpret_cast<const RealElement<T>*>(a.data), a.ld * kParts, kPanel<T> * kParts,
       reinterpret_cast<Register<T>*>(strip));
}
template <class T>
LINALG_INLINE void WriteStrip(const Strip<T>* strip, Rows<T> a) {
  constexpr int64_t kParts = kPartsOf<T>;
  Unpack(reinterpret_cast<const Register<T>*>(strip), a.ld * kParts, kPanel<T> * kParts,
         reinterpret_cast<RealElement<T>*>(a.data));
}

// The numbers of a strip's rows.
template <class T>
LINALG_INLINE Register<T> RowNumbers(int64_t strip) {
  using V = Register<T>;
  V lanes;
  for (int lane = 0; lane < kLanesOf<V>; ++lane) lanes[lane] = static_cast<Lane<V>>(lane);
  return Number<V>(strip * kStrip<T>) + lanes;
}

}  // namespace linalg::blocked
