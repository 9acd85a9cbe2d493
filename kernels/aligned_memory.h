// Memory that begins at a cache line, and so at a register of any width. Large blocks are in huge
// pages.
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

// The least number of bytes that get huge pages. New memory takes longer to fault in by 4 KiB pages
// than to fill. Each row of a large matrix also lies on its own page.
inline constexpr int64_t kHugePagesBytes = 4 << 20;

// Requests huge pages. The system may ignore the request.
inline void AdviseHugePages([[maybe_unused]] void* data, [[maybe_unused]] int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t kHugePage = 2 << 20;
  if (bytes < kHugePagesBytes) return;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(data) + kHugePage - 1) & ~(kHugePage - 1);
  const uintptr_t last = (reinterpret_cast<uintptr_t>(data) + bytes) & ~(kHugePage - 1);
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

// Returns uninitialised memory. Throws std::bad_alloc.
inline AlignedMemory AllocateAligned(int64_t bytes) {
  void* const memory = ::operator new(bytes, std::align_val_t{static_cast<size_t>(kCacheLine)});
  AdviseHugePages(memory, bytes);
  return AlignedMemory(memory);
}

}  // namespace linalg
