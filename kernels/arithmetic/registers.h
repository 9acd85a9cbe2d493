// The vector registers of the target.
#pragma once

namespace linalg {

#if defined(__AVX512F__)
inline constexpr int kRegisterBytes = 64;
#elif defined(__AVX__)
inline constexpr int kRegisterBytes = 32;
#else
inline constexpr int kRegisterBytes = 16;
#endif

// Whether there are 32 registers rather than 16.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr bool kManyRegisters = true;
#else
inline constexpr bool kManyRegisters = false;
#endif

}  // namespace linalg
