#include "tests/ptx_emulator/memory.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace ptx {
namespace {

// This must equal SHARED_BASE in instructions.py.
constexpr uint64_t kSharedBase = 1024;

Access Now(const Thread& thread, int line) {
  return {.clock = thread.clock, .thread = thread.thread, .line = static_cast<uint32_t>(line)};
}

[[noreturn]] void FailRace(const Thread& thread, int line, bool shared, size_t offset,
                           const char* does, const Access& other, const char* did) {
  Fail(thread, line,
       std::string("a race: ") + does + " byte " + std::to_string(offset) + " of " +
           (shared ? "shared" : "global") + " memory, which thread " +
           std::to_string(other.thread) + " " + did + " at line " + std::to_string(other.line) +
           " with no barrier in between");
}

}  // namespace

Memory memory;

void Memory::Add(void* data, size_t size, bool written) {
  if (size == 0) return;
  const auto address = reinterpret_cast<uint64_t>(data);
  const auto found = regions_.find(address);
  // A result in the memory of an operand keeps the operand's region.
  if (found != regions_.end() && found->second.size() >= size) return;
  regions_.insert_or_assign(address, Region(static_cast<char*>(data), size, written || unknown_));
}

void Memory::Remove(void* data) {
  regions_.erase(reinterpret_cast<uint64_t>(data));
  last_ = nullptr;
}

void Memory::Clear() {
  regions_.clear();
  last_ = nullptr;
  unknown_ = false;
  if (clock > std::numeric_limits<uint32_t>::max() / 2) clock = 0, shared_.reset();
}

void Memory::SetWritten() {
  unknown_ = true;
  for (auto& [address, region] : regions_) region.SetWritten();
}

void Memory::SetWritten(const void* data) {
  const auto address = reinterpret_cast<uint64_t>(data);
  const auto after = regions_.upper_bound(address);
  if (after != regions_.begin()) std::prev(after)->second.SetWritten();
}

void Memory::Begin(size_t bytes) {
  shared_bytes_.assign(bytes + 16, -1);
  const auto start = reinterpret_cast<uint64_t>(shared_bytes_.data());
  auto* const data = shared_bytes_.data() + (16 - start % 16) % 16;
  if (shared_ == nullptr || shared_->size() < bytes) {
    shared_ = std::make_unique<Region>(data, bytes, false);
  }
  shared_->data_ = data, shared_->size_ = bytes;
}

Memory::Place Memory::Find(const Thread& thread, bool shared, uint64_t address, int size,
                           int line) {
  if (address % size != 0) {
    Fail(thread, line,
         "a misaligned address: " + std::to_string(address) + ", of " + std::to_string(size) +
             " bytes");
  }
  if (shared) {
    if (address < kSharedBase || address - kSharedBase + size > shared_->size_) {
      Fail(thread, line,
           "out of bounds: byte " +
               std::to_string(static_cast<int64_t>(address) - static_cast<int64_t>(kSharedBase)) +
               " of " + std::to_string(shared_->size_) + " bytes of shared memory");
    }
    return {shared_.get(), address - kSharedBase};
  }
  const auto is_in = [&](const Region* region) {
    const auto start = reinterpret_cast<uint64_t>(region->data_);
    return address >= start && address + size <= start + region->size_;
  };
  if (last_ == nullptr || !is_in(last_)) {
    auto after = regions_.upper_bound(address);
    if (after == regions_.begin() || !is_in(&(--after)->second)) {
      Fail(thread, line,
           "out of bounds: " + std::to_string(size) + " bytes of global memory in no buffer");
    }
    last_ = &after->second;
  }
  return {last_, address - reinterpret_cast<uint64_t>(last_->data_)};
}

bool Memory::IsBefore(const Access& access, const Thread& thread, bool shared) const {
  // A different block had a different shared memory.
  if (access.clock < (shared ? epochs.block : epochs.launch)) return true;
  if (access.clock < epochs.block) return false;
  if (access.clock <= epochs.barrier || access.thread == thread.thread) return true;
  return access.thread / 32 == thread.thread / 32 &&
         access.clock <= thread.known[access.thread % 32];
}

void Memory::Read(const Thread& thread, bool shared, uint64_t address, void* target, int size,
                  int line) {
  const auto [region, offset] = Find(thread, shared, address, size, line);
  std::memcpy(target, region->data_ + offset, size);
  for (size_t i = offset / 4; i <= (offset + size - 1) / 4; ++i) {
    Word& word = region->words_[i];
    const bool written =
        shared ? word.write.clock >= epochs.block : region->written_ || word.write.clock != 0;
    if (!written) {
      Fail(thread, line,
           "reads byte " + std::to_string(offset) + " of " + (shared ? "shared" : "global") +
               " memory, which nobody wrote");
    }
    if (!IsBefore(word.write, thread, shared)) {
      FailRace(thread, line, shared, offset, "reads", word.write, "wrote");
    }
    auto& [first, second] = word.reads;
    const bool replace = first.thread == thread.thread || IsBefore(first, thread, shared);
    (replace ? first : second) = Now(thread, line);
  }
}

void Memory::Write(const Thread& thread, bool shared, uint64_t address, const void* source,
                   int size, int line) {
  const auto [region, offset] = Find(thread, shared, address, size, line);
  char* const target = region->data_ + offset;
  // Two threads may write equal bytes, for example if a warp has more teams than there are
  // matrices.
  const bool same = std::memcmp(target, source, size) == 0;
  for (size_t i = offset / 4; i <= (offset + size - 1) / 4; ++i) {
    Word& word = region->words_[i];
    if (!same) {
      if (!IsBefore(word.write, thread, shared)) {
        FailRace(thread, line, shared, offset, "writes", word.write, "wrote");
      }
      for (const Access& read : word.reads) {
        if (!IsBefore(read, thread, shared)) {
          FailRace(thread, line, shared, offset, "writes", read, "read");
        }
      }
    }
    word.write = Now(thread, line);
  }
  std::memcpy(target, source, size);
}

}  // namespace ptx
