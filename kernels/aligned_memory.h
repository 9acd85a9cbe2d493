// Memory whose first byte begins a cache line, and a register of any width.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

namespace linalg {

inline constexpr int64_t kCacheLine = 64;

struct FreeAligned {
  void operator()(void* memory) const {
    ::operator delete(memory, std::align_val_t{static_cast<size_t>(kCacheLine)});
  }
};
using AlignedMemory = std::unique_ptr<void, FreeAligned>;

// Uninitialised. Throws std::bad_alloc.
inline AlignedMemory AllocateAligned(int64_t bytes) {
  return AlignedMemory(::operator new(bytes, std::align_val_t{static_cast<size_t>(kCacheLine)}));
}

}  // namespace linalg
