// The interface of translated kernels: the thread that runs one, its access to memory, and its
// synchronisation with the other threads of its block.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

namespace ptx {

// Generic addresses from here on are in shared memory.
inline constexpr uint64_t kSharedWindow = uint64_t{1} << 60;

enum class Meeting : uint8_t {
  kNone,  // the thread may continue
  kBarrier,
  kBarrierOr,
  kWarpBarrier,
  kShuffle,
  kAny,
  kBallot,
  kMinSigned,
  kMaxSigned,
  kMinUnsigned,
  kMaxUnsigned,
  kExit,
};

enum class ShuffleMode { kBfly, kIdx };

struct Shuffled {
  uint32_t value;
  bool found;
};

// A pending copy from global to shared memory.
struct PendingCopy {
  uint64_t source;
  uint32_t target;
  int size, line;
};

class Thread {
 public:
  uint32_t thread, threads, block, blocks;

  // Parameters stay where the launch has them.
  uint64_t ParameterAddress(int number) const {
    return reinterpret_cast<uint64_t>(arguments[number]);
  }
  template <class T>
  T LoadParameter(uint64_t address) const {
    T x;
    std::memcpy(&x, reinterpret_cast<const void*>(address), sizeof(T));
    return x;
  }

  // `line` is the instruction's line in the PTX, for messages.
  template <class T>
  T LoadShared(uint32_t address, int line) {
    T x;
    ReadShared(address, &x, sizeof(T), line);
    return x;
  }
  template <class T>
  T LoadGlobal(uint64_t address, int line) {
    T x;
    ReadGlobal(address, &x, sizeof(T), line);
    return x;
  }
  template <class T>
  T LoadGeneric(uint64_t address, int line) {
    if (address < kSharedWindow) return LoadGlobal<T>(address, line);
    return LoadShared<T>(static_cast<uint32_t>(address - kSharedWindow), line);
  }
  template <class T>
  void StoreShared(uint32_t address, T x, int line) {
    WriteShared(address, &x, sizeof(T), line);
  }
  template <class T>
  void StoreGlobal(uint64_t address, T x, int line) {
    WriteGlobal(address, &x, sizeof(T), line);
  }
  template <class T>
  void StoreGeneric(uint64_t address, T x, int line) {
    if (address < kSharedWindow) return StoreGlobal(address, x, line);
    StoreShared(static_cast<uint32_t>(address - kSharedWindow), x, line);
  }

  // The bytes arrive when they are waited for, and otherwise never: a GPU promises no more.
  void Copy(uint32_t target, uint64_t source, int size, int line);
  void FinishCopies(int line);

  void Barrier(uint32_t number, int line);
  bool BarrierOr(uint32_t number, bool value, int line);
  void WarpBarrier(uint32_t mask, int line);
  Shuffled Shuffle(ShuffleMode mode, uint32_t mask, uint32_t value, uint32_t lane, uint32_t shape,
                   int line);
  uint32_t Agree(Meeting meeting, uint32_t mask, uint32_t value, int line);

  // The members below belong to the block: tests/ptx_emulator/block.cc.
  const void* const* arguments;
  Meeting meeting;
  uint32_t mask, value, lane, result;
  int line;
  uint32_t clock;
  std::array<uint32_t, 32> known;  // the last clocks it has seen of its warp's threads

 private:
  void ReadShared(uint32_t address, void* target, int size, int line);
  void ReadGlobal(uint64_t address, void* target, int size, int line);
  void WriteShared(uint32_t address, const void* source, int size, int line);
  void WriteGlobal(uint64_t address, const void* source, int size, int line);
  void Wait(Meeting meeting, uint32_t mask, uint32_t value, int line);
};

struct Kernel {
  void (*run)(Thread&);
  int64_t shared_bytes;  // without the bytes that the launch adds
  int most_threads;
};

}  // namespace ptx
