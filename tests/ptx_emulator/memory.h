// Memory that kernels may touch, and who has: accesses out of bounds, misaligned ones, reads of
// what nobody wrote, and races are failures.
//
// Two accesses race if neither happens before the other and one of them is a write. What orders
// threads is the barriers of a block and of a warp, and nothing else: shuffles and votes promise
// nothing about memory, and blocks of a launch have no order. Each thread has a clock, which its
// barriers advance, and knows how far those of its warp's other threads had come when it last met
// them; what the rest of the block did before its last barrier is older than that barrier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/ptx_emulator/thread.h"

namespace ptx {

// Clocks at which what all threads of the block have in common began.
struct Epochs {
  uint32_t launch = 1, block = 1, barrier = 1;
};

struct Access {
  uint32_t clock = 0;  // 0: there was none
  uint32_t thread : 10 = 0, line : 22 = 0;
};

// What is remembered of four bytes. Of many reads two suffice for a write that none of them was
// ordered before: it is not of both threads.
struct Word {
  Access write, reads[2];
};

// Notes what a thread did wrong, and Abandons its fiber.
[[noreturn]] void Fail(const Thread& thread, int line, const std::string& what);

class Region {
 public:
  // With `written`, somebody else has written all of it before.
  Region(char* data, size_t size, bool written)
      : data_(data), size_(size), written_(written), words_((size + 3) / 4) {}

  char* data() const { return data_; }
  size_t size() const { return size_; }
  void SetWritten() { written_ = true; }

 private:
  friend class Memory;
  char* data_;
  size_t size_;
  bool written_;
  std::vector<Word> words_;
};

class Memory {
 public:
  // Global memory, until Clear.
  void Add(void* data, size_t size, bool written);
  void Remove(void* data);
  void Clear();
  // By a library of the vendor's, in ways that nobody follows here: what there is, and what is
  // added until Clear.
  void SetWritten();
  // By the runtime, what `data` points into.
  void SetWritten(const void* data);

  // Shared memory of a block that begins: full of NaN.
  void Begin(size_t shared_bytes);

  void Read(const Thread& thread, bool shared, uint64_t address, void* target, int size, int line);
  void Write(const Thread& thread, bool shared, uint64_t address, const void* source, int size,
             int line);

  // The latest of any thread. It goes on from launch to launch, so that what was before a launch,
  // or a block, need not be forgotten.
  uint32_t clock = 0;
  Epochs epochs;

 private:
  struct Place {
    Region* region;
    size_t offset;
  };
  Place Find(const Thread& thread, bool shared, uint64_t address, int size, int line);
  bool IsBefore(const Access& access, const Thread& thread, bool shared) const;

  std::map<uint64_t, Region> regions_;
  Region* last_ = nullptr;
  bool unknown_ = false;
  std::vector<char> shared_bytes_;
  std::unique_ptr<Region> shared_;
};

extern Memory memory;

}  // namespace ptx
