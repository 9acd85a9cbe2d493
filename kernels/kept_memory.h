// Keeps the memory of workspaces for later ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/aligned_memory.h"

namespace linalg {

// Keeps large pieces of memory. Otherwise malloc would give them back to the operating system, and
// the next call would spend time on page faults (benchmarks/crossovers/cpu_kept_memory.json).
// Smaller pieces are kept by malloc itself.
class KeptMemory {
 public:
  static constexpr int64_t kLeastBytes = 4 << 20;
#if defined(__SANITIZE_ADDRESS__)
  // AddressSanitizer cannot see a use after free in kept memory, so it keeps none.
  static constexpr int64_t kMostBytes = 0;
#else
  static constexpr int64_t kMostBytes = 96 << 20;
#endif

  static KeptMemory& OfProcess() {
    static KeptMemory* const memory = new KeptMemory;  // outlives every thread
    return *memory;
  }

  // A piece of exactly that size, so that an access beyond it is one beyond the piece. Throws
  // std::bad_alloc.
  AlignedMemory Take(int64_t bytes) {
    if (IsKept(bytes)) {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (size_t i = pieces_.size(); i-- > 0;) {
        if (pieces_[i].bytes == bytes) return Remove(i);
      }
    }
    return AllocateAligned(bytes);
  }

  // Evicts the pieces that were kept for longest, if need be.
  void Keep(AlignedMemory memory, int64_t bytes) {
    if (!IsKept(bytes)) return;
    for (;;) {
      AlignedMemory gone;  // freed after the lock is released
      const std::lock_guard<std::mutex> lock(mutex_);
      if (bytes_ + bytes <= kMostBytes && pieces_.size() < pieces_.capacity()) {
        pieces_.push_back({bytes, std::move(memory)});
        bytes_ += bytes;
        return;
      }
      gone = Remove(0);
    }
  }

 private:
  struct Piece {
    int64_t bytes;
    AlignedMemory memory;
  };

  KeptMemory() { pieces_.reserve(kMostBytes / kLeastBytes); }

  static bool IsKept(int64_t bytes) { return kLeastBytes <= bytes && bytes <= kMostBytes; }

  AlignedMemory Remove(size_t i) {
    const auto place = pieces_.begin() + static_cast<std::ptrdiff_t>(i);
    AlignedMemory memory = std::move(place->memory);
    bytes_ -= place->bytes;
    pieces_.erase(place);
    return memory;
  }

  std::mutex mutex_;
  std::vector<Piece> pieces_;  // never grows beyond its first capacity
  int64_t bytes_ = 0;
};

struct KeepMemory {
  int64_t bytes = 0;
  void operator()(void* memory) const {
    KeptMemory::OfProcess().Keep(AlignedMemory(memory), bytes);
  }
};

// Memory that is kept when it is released.
using ReturnedMemory = std::unique_ptr<void, KeepMemory>;

inline ReturnedMemory TakeMemory(int64_t bytes) {
  return {KeptMemory::OfProcess().Take(bytes).release(), KeepMemory{bytes}};
}

}  // namespace linalg
