// Tests arithmetic.h at the limits of the instructions' definitions.
#include "tests/ptx_emulator/arithmetic.h"

#include <cstdio>

namespace {

int failures = 0;

template <class X>
void Expect(X found, X expected, int line) {
  if (ptx::Bits<uint64_t>(found) == ptx::Bits<uint64_t>(expected)) return;
  std::printf("line %d: %g, not %g\n", line, double(found), double(expected));
  ++failures;
}
#define EXPECT(type, found, expected) Expect<type>(found, expected, __LINE__)

}  // namespace

int main() {
  using namespace ptx;  // NOLINT
  const float nan = std::numeric_limits<float>::quiet_NaN(), huge = 1e30f;
  EXPECT(uint32_t, Shl(1u, 31u), 0x80000000u);
  EXPECT(uint32_t, Shl(1u, 32u), 0u);
  EXPECT(uint32_t, Shr(0x80000000u, 31u), 1u);
  EXPECT(uint32_t, Shr(0x80000000u, 32u), 0u);
  EXPECT(int32_t, Shr(-8, 1u), -4);
  EXPECT(int32_t, Shr(-8, 32u), -1);
  EXPECT(uint64_t, Shr(~uint64_t{0}, 100u), uint64_t{0});
  EXPECT(int64_t, Div(int64_t{-7}, int64_t{2}), int64_t{-3});
  EXPECT(int32_t, Div(std::numeric_limits<int32_t>::min(), -1),
         std::numeric_limits<int32_t>::min());
  EXPECT(uint32_t, Div(7u, 0u), ~0u);
  EXPECT(int32_t, Rem(-7, 2), -1);
  EXPECT(int32_t, Rem(std::numeric_limits<int32_t>::min(), -1), 0);
  EXPECT(uint32_t, Rem(7u, 0u), 7u);
  EXPECT(uint32_t, Bfi(0xffu, 0u, 8u, 4u), 0xf00u);
  EXPECT(uint32_t, Bfi(0u, ~0u, 8u, 4u), 0xfffff0ffu);
  EXPECT(uint32_t, Bfi(5u, 7u, 0u, 32u), 5u);
  EXPECT(uint32_t, Bfi(5u, 7u, 32u, 4u), 7u);
  EXPECT(uint64_t, Bfi(uint64_t{1}, uint64_t{0}, 63u, 8u), uint64_t{1} << 63);
  EXPECT(uint32_t, Prmt(0x33221100u, 0x77665544u, 0x7530u), 0x77553300u);
  EXPECT(uint32_t, Prmt(0x00008000u, 0u, 0x0009u), 0x000000ffu);
  EXPECT(uint32_t, Join(uint16_t{1}, uint16_t{2}), 0x20001u);
  EXPECT(uint64_t, Join(1u, 2u), uint64_t{0x200000001});
  EXPECT(int32_t, Truncate<int32_t>(-1.9f), -1);
  EXPECT(int32_t, Truncate<int32_t>(huge), std::numeric_limits<int32_t>::max());
  EXPECT(int32_t, Truncate<int32_t>(-huge), std::numeric_limits<int32_t>::min());
  EXPECT(int32_t, Truncate<int32_t>(nan), 0);
  EXPECT(float, Max(nan, 1.0f), 1.0f);
  EXPECT(float, Min(1.0f, nan), 1.0f);
  EXPECT(float, Max(-0.0f, 0.0f), 0.0f);
  EXPECT(float, Min(0.0f, -0.0f), -0.0f);
  return failures;
}
