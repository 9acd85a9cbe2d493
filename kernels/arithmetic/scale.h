// Powers of two that scale matrices to a norm near 1, one per lane.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/arithmetic/element.h"

namespace linalg {

// Returns 2^-k, and 2^k as `inverse`, for 2^k <= |x| < 2^(k + 1). k is limited so that both are
// normal.
template <class V>
LINALG_INLINE V PowerOfTwoScale(V x, V& inverse) {
  using T = Lane<V>;
  using Bits = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  constexpr int kMantissa = std::numeric_limits<T>::digits - 1;
  constexpr Bits kBias = std::numeric_limits<T>::max_exponent - 1;
  V scale;
  for (int lane = 0; lane < kLanesOf<V>; ++lane) {
    Bits bits;
    std::memcpy(&bits, reinterpret_cast<const T*>(&x) + lane, sizeof(T));
    const Bits field = std::min(std::max(bits >> kMantissa, Bits{1}), 2 * kBias - 1);
    const Bits scale_bits = (2 * kBias - field) << kMantissa;
    const Bits inverse_bits = field << kMantissa;
    std::memcpy(reinterpret_cast<T*>(&scale) + lane, &scale_bits, sizeof(T));
    std::memcpy(reinterpret_cast<T*>(&inverse) + lane, &inverse_bits, sizeof(T));
  }
  return scale;
}

// The largest element of each lane's matrix, and whether all are finite.
template <class E>
class Extent {
  using V = RealElement<E>;
  template <class>
  friend class Extent;

 public:
  LINALG_INLINE void Add(E x) {
    AddComponent(Re(x));
    if constexpr (kComplexElement<E>) AddComponent(x.im);
  }

  // Joins one lane of another extent to this one.
  template <class Row>
  LINALG_INLINE void Join(const Extent<Row>& other, int lane) {
    AddComponent(other.probe_[lane]);
    AddComponent(other.largest_[lane]);
  }

  // The lanes without NaN and Inf.
  LINALG_INLINE Mask<V> Finite() const { return probe_ == V{}; }

  // PowerOfTwoScale of the largest part, or of 0 in lanes that are not finite.
  LINALG_INLINE V Scale(V& inverse) const {
    return PowerOfTwoScale(KeepIf<V>(Finite(), largest_), inverse);
  }

 private:
  LINALG_INLINE void AddComponent(V x) {
    probe_ = MulAdd(x, V{}, probe_);
    largest_ = Larger(Abs(x), largest_);
  }

  V probe_{};  // zero, or NaN once a NaN or Inf was added
  V largest_{};
};

// The extent of one matrix, read a Row at a time from rows of real numbers or of parts of complex
// ones.
template <class Row>
class RowExtent {
  using R = Lane<Row>;

 public:
  LINALG_INLINE void Add(const R* x, int64_t count) {
    constexpr int kLanes = kLanesOf<Row>;
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) rows_.Add(LoadUnaligned<Row>(x + i));
    for (; i < count; ++i) rest_.Add(x[i]);
  }

  LINALG_INLINE bool Finite() const { return Whole().Finite(); }
  LINALG_INLINE R Scale(R& inverse) const { return Whole().Scale(inverse); }

 private:
  LINALG_INLINE Extent<R> Whole() const {
    Extent<R> whole = rest_;
    for (int lane = 0; lane < kLanesOf<Row>; ++lane) whole.Join(rows_, lane);
    return whole;
  }

  Extent<Row> rows_;
  Extent<R> rest_;
};

}  // namespace linalg
