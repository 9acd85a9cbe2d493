// Results of PTX instructions for which C++ has no equivalent operator.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace ptx {

// Copies the bits, or the lowest ones if the types differ in size.
template <class To, class From>
To Bits(From x) {
  To y{};
  std::memcpy(&y, &x, std::min(sizeof(To), sizeof(From)));
  return y;
}

inline uint32_t Join(uint16_t low, uint16_t high) { return uint32_t{high} << 16 | low; }
inline uint64_t Join(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

template <class X>
inline constexpr uint32_t kBits = 8 * sizeof(X);

// All bits may be shifted out.
template <class X>
X Shl(X x, uint32_t count) {
  return count >= kBits<X> ? X{0} : static_cast<X>(x << count);
}
template <class X>
X Shr(X x, uint32_t count) {
  return static_cast<X>(x >> std::min(count, kBits<X> - 1)) >>
         (count >= kBits<X> && std::is_unsigned_v<X> ? 1 : 0);
}

// A GPU's integer division. A division by 0 gives a quotient of all ones, and the dividend as
// remainder. A quotient that does not fit wraps around.
template <class X>
X Div(X a, X b) {
  using Unsigned = std::make_unsigned_t<X>;
  if (b == 0) return static_cast<X>(~Unsigned{0});
  if (std::is_signed_v<X> && b == static_cast<X>(-1)) return static_cast<X>(0 - Unsigned(a));
  return a / b;
}
template <class X>
X Rem(X a, X b) {
  if (b == 0) return a;
  if (std::is_signed_v<X> && b == static_cast<X>(-1)) return 0;
  return a % b;
}

// If one operand is NaN, the result is the other. The negative zero is the smaller one.
template <class Number>
Number Max(Number a, Number b) {
  if (a == b) return std::signbit(a) ? b : a;
  return std::fmax(a, b);
}
template <class Number>
Number Min(Number a, Number b) {
  if (a == b) return std::signbit(a) ? a : b;
  return std::fmin(a, b);
}

// Returns `b` with the lowest `length` bits of `a` at position `place`.
template <class X>
X Bfi(X a, X b, uint32_t place, uint32_t length) {
  place &= 255, length &= 255;
  if (length == 0 || place >= kBits<X>) return b;
  const X ones = length >= kBits<X> ? ~X{0} : (X{1} << length) - 1, mask = ones << place;
  return (b & ~mask) | (a << place & mask);
}

// Selects four of the eight bytes of b and a. Each number in `which` selects one. If its highest
// bit is set, the sign of the byte is replicated instead.
inline uint32_t Prmt(uint32_t a, uint32_t b, uint32_t which) {
  const uint64_t bytes = Join(a, b);
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t choice = which >> 4 * i & 15;
    uint32_t byte = bytes >> 8 * (choice & 7) & 255;
    if (choice & 8) byte = byte & 128 ? 255 : 0;
    result |= byte << 8 * i;
  }
  return result;
}

// Rounds towards 0, saturates, and converts NaN to 0.
template <class Integer, class Number>
Integer Truncate(Number x) {
  using Limits = std::numeric_limits<Integer>;
  const Number bound = std::ldexp(Number{1}, Limits::digits);  // the first value that is too large
  if (x != x) return 0;
  if (x >= bound) return Limits::max();
  if (x < -bound) return Limits::min();
  return static_cast<Integer>(x);
}

}  // namespace ptx
