// Memory whose first byte begins a cache line, and a register of any width; where there is much of
// it, in huge pages.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace linalg {

inline constexpr int64_t kCacheLine = 64;

struct FreeAligned {
  void operator()(void* memory) const {
    ::operator delete(memory, std::align_val_t{static_cast<size_t>(kCacheLine)});
  }
};
using AlignedMemory = std::unique_ptr<void, FreeAligned>;

// Memory that is fresh from the operating system takes longer to be faulted in by 4 KiB pages than
// to be filled, and the rows of a large matrix lie on as many of them: from so many bytes on it is
// asked for in huge pages.
inline constexpr int64_t kHugePagesBytes = 4 << 20;

// Asks for them; a hint, which may come to nothing.
inline void AdviseHugePages([[maybe_unused]] void* data, [[maybe_unused]] int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t kHugePage = 2 << 20;
  if (bytes < kHugePagesBytes) return;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(data) + kHugePage - 1) & ~(kHugePage - 1);
  const uintptr_t last = (reinterpret_cast<uintptr_t>(data) + bytes) & ~(kHugePage - 1);
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

// Uninitialised. Throws std::bad_alloc.
inline AlignedMemory AllocateAligned(int64_t bytes) {
  void* const memory = ::operator new(bytes, std::align_val_t{static_cast<size_t>(kCacheLine)});
  AdviseHugePages(memory, bytes);
  return AlignedMemory(memory);
}

}  // namespace linalg
