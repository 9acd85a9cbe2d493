// A panel of one matrix in strips: a strip has one register for each of kPanel columns, and as many
// rows as lanes. Real and imaginary parts are in separate registers.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

#include "kernels/arithmetic/pack.h"
#include "kernels/blocked/workspace.h"

namespace linalg::blocked {

// A register with rows of one column, and its number of rows.
template <class T>
using Strip = Element<T, Register<T>>;
template <class T>
inline constexpr int64_t kStrip = kLanesOf<Register<T>>;

// The distance between a column's strips, in registers.
template <class T>
inline constexpr int64_t kNextStrip = kPanel<T>;

// The element in row i of a column whose strips begin at `column`. Moved as bytes, since the memory
// holds registers.
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

// Transposes a strip between kStrip rows of `a` and one register per real column.
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

// The row numbers of a strip's lanes.
template <class T>
LINALG_INLINE Register<T> RowNumbers(int64_t strip) {
  using V = Register<T>;
  V lanes;
  for (int lane = 0; lane < kLanesOf<V>; ++lane) lanes[lane] = static_cast<Lane<V>>(lane);
  return Number<V>(strip * kStrip<T>) + lanes;
}

}  // namespace linalg::blocked
