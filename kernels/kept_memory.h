// The memory of workspaces that have gone, kept for those to come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/aligned_memory.h"

namespace linalg {

// Large pieces: what malloc would give back to the operating system, and have faulted in again by
// the next call, which takes a tenth of the time of one matrix of n = 1024 (float64, with its
// results, AMD EPYC with AVX-512, 23 November 2026). Smaller ones malloc keeps.
class KeptMemory {
 public:
  static constexpr int64_t kLeastBytes = 4 << 20;
#if defined(__SANITIZE_ADDRESS__)
  // Of what is kept, it would not see that it is used after its return.
  static constexpr int64_t kMostBytes = 0;
#else
  static constexpr int64_t kMostBytes = 96 << 20;
#endif

  static KeptMemory& OfProcess() {
    static KeptMemory* const memory = new KeptMemory;  // outlives every thread
    return *memory;
  }

  // Of that very size, so that whoever reaches beyond it reaches beyond the piece. Throws
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

  // In place of those that have been kept for longest, if need be.
  void Keep(AlignedMemory memory, int64_t bytes) {
    if (!IsKept(bytes)) return;
    for (;;) {
      AlignedMemory gone;  // given back when others can take and keep again
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
  std::vector<Piece> pieces_;  // in as much memory as it has from the start
  int64_t bytes_ = 0;
};

struct KeepMemory {
  int64_t bytes = 0;
  void operator()(void* memory) const {
    KeptMemory::OfProcess().Keep(AlignedMemory(memory), bytes);
  }
};

// What goes back to the memory that is kept.
using ReturnedMemory = std::unique_ptr<void, KeepMemory>;

inline ReturnedMemory TakeMemory(int64_t bytes) {
  return {KeptMemory::OfProcess().Take(bytes).release(), KeepMemory{bytes}};
}

}  // namespace linalg
