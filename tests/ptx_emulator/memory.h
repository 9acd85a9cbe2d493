// Memory that kernels may access, and a record of accesses. Accesses out of bounds, misaligned
// accesses, reads of uninitialised data, and races are failures.
//
// Two accesses race if neither happens before the other and one of them is a write. Only the
// barriers of a block and of a warp order threads. Shuffles and votes promise nothing about memory,
// and blocks of a launch have no order. Each thread has a clock, which its barriers advance. It
// knows the clocks of its warp's other threads at their last common barrier. Accesses by the rest
// of the block before its last barrier are older than that barrier.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tests/ptx_emulator/thread.h"

namespace ptx {

// Clocks at which the launch, the block and the block's last barrier began for all threads.
struct Epochs {
  uint32_t launch = 1, block = 1, barrier = 1;
};

struct Access {
  uint32_t clock = 0;  // 0: no access
  uint32_t thread : 10 = 0, line : 22 = 0;
};

// The record of four bytes. Two reads suffice to detect an unordered write. The writing thread can
// be the reader of only one of them.
struct Word {
  Access write, reads[2];
};

// Zeroed elements. Pages of memory are taken where they are touched.
template <class X>
class SparseArray {
 public:
  explicit SparseArray(size_t count) : bytes_(count * sizeof(X)) {
    if (bytes_ == 0) return;
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~SparseArray() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  SparseArray(SparseArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  SparseArray& operator=(SparseArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  X* data() const { return static_cast<X*>(data_); }
  X& operator[](size_t i) { return data()[i]; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

// Records a thread's error, and Abandons its fiber.
[[noreturn]] void Fail(const Thread& thread, int line, const std::string& what);

class Region {
 public:
  // `written` says that all of it is initialised.
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
  SparseArray<Word> words_;
};

class Memory {
 public:
  // Adds global memory, until Clear.
  void Add(void* data, size_t size, bool written);
  void Remove(void* data);
  void Clear();
  // A vendor library may write anywhere, so all regions count as written. This includes regions
  // that are added until Clear.
  void SetWritten();
  // The runtime wrote the region that `data` points into.
  void SetWritten(const void* data);

  // Starts the shared memory of a block, full of NaN.
  void Begin(size_t shared_bytes);

  void Read(const Thread& thread, bool shared, uint64_t address, void* target, int size, int line);
  void Write(const Thread& thread, bool shared, uint64_t address, const void* source, int size,
             int line);

  // The latest clock of any thread. It continues from launch to launch. So accesses before a launch
  // or a block need not be cleared.
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
