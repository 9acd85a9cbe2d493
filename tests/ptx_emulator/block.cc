#include "tests/ptx_emulator/block.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "tests/ptx_emulator/fibers.h"
#include "tests/ptx_emulator/memory.h"

namespace ptx {
namespace {

constexpr int kWarp = 32;

// The state of the running block.
const Kernel* kernel;
std::vector<Thread> threads;
std::vector<std::vector<PendingCopy>> copies;
std::string failure;
// Applies to the kernel that it names, and to no other.
Fault fault;
bool faulty;
// For each kind of fault and each line: whether a line that could have the fault was run.
std::array<std::vector<bool>, Fault::kKinds> reached;
std::minstd_rand random_engine;
int preempt, until_preemption;

void Body(int number) {
  kernel->run(threads[number]);
  threads[number].meeting = Meeting::kExit;
}

const char* Name(Meeting meeting) {
  static const char* const names[] = {"running",   "bar.sync",  "bar.red.or",  "bar.warp.sync",
                                      "shfl",      "vote.any",  "vote.ballot", "redux.min",
                                      "redux.max", "redux.min", "redux.max",   "the end"};
  return names[static_cast<int>(meeting)];
}

void MayGiveWay() {
  if (preempt == 0 || --until_preemption > 0) return;
  until_preemption = 1 + static_cast<int>(random_engine() % (2 * preempt));
  Suspend();
}

// Whether the kernel has a fault of that kind at this line.
bool IsFaulty(Fault::Kind kind, int line) {
  if (!faulty) return false;
  std::vector<bool>& lines = reached[kind];
  if (lines.size() <= static_cast<size_t>(line)) lines.resize(line + 1);
  lines[line] = true;
  return fault.kind == kind && fault.line == line;
}

// The value that a thread of a warp receives when the threads of its mask meet.
uint32_t Combined(const Thread& thread, const Thread* warp) {
  if (thread.meeting == Meeting::kShuffle) return warp[thread.lane].value;
  uint32_t any = 0, ballot = 0, largest = 0, smallest = ~0u;
  int32_t highest = std::numeric_limits<int32_t>::min(), lowest = ~highest;
  for (int i = 0; i < kWarp; ++i) {
    if ((thread.mask >> i & 1) == 0) continue;
    const uint32_t x = warp[i].value;
    any |= x, ballot |= (x != 0 ? 1u : 0u) << i;
    largest = std::max(largest, x), smallest = std::min(smallest, x);
    highest = std::max(highest, static_cast<int32_t>(x));
    lowest = std::min(lowest, static_cast<int32_t>(x));
  }
  switch (thread.meeting) {
    case Meeting::kAny:
      return any != 0;
    case Meeting::kBallot:
      return ballot;
    case Meeting::kMinSigned:
      return static_cast<uint32_t>(lowest);
    case Meeting::kMaxSigned:
      return static_cast<uint32_t>(highest);
    case Meeting::kMinUnsigned:
      return smallest;
    case Meeting::kMaxUnsigned:
      return largest;
    default:
      return 0;
  }
}

// The threads of the mask learn each other's clocks.
void Inform(Thread* warp, uint32_t mask) {
  std::array<uint32_t, kWarp> known{};
  for (int i = 0; i < kWarp; ++i) {
    if ((mask >> i & 1) == 0) continue;
    for (int j = 0; j < kWarp; ++j) known[j] = std::max(known[j], warp[i].known[j]);
    known[i] = std::max(known[i], warp[i].clock);
  }
  for (int i = 0; i < kWarp; ++i) {
    if ((mask >> i & 1) == 0) continue;
    warp[i].known = known;
    ++warp[i].clock;
  }
}

bool IsOfWarp(Meeting meeting) { return meeting > Meeting::kBarrierOr && meeting < Meeting::kExit; }

// Whether all threads that a thread waits for have arrived. Barriers match wherever they are. Other
// meetings must be at the same instruction.
bool HaveMet(const Thread& thread, const Thread* warp, int count) {
  for (int i = 0; i < kWarp; ++i) {
    if ((thread.mask >> i & 1) == 0) continue;
    if (i >= count) return false;
    const Thread& other = warp[i];
    if (other.meeting != thread.meeting || other.mask != thread.mask) return false;
    if (thread.meeting != Meeting::kWarpBarrier && other.line != thread.line) return false;
  }
  return true;
}

// Resumes the threads of a warp that have met.
bool MeetInWarp(Thread* warp, int count) {
  bool any = false;
  for (int i = 0; i < count; ++i) {
    if (!IsOfWarp(warp[i].meeting) || !HaveMet(warp[i], warp, count)) continue;
    any = true;
    const uint32_t mask = warp[i].mask;
    const bool orders = warp[i].meeting == Meeting::kWarpBarrier;
    for (int j = 0; j < kWarp; ++j) {
      if (mask >> j & 1) warp[j].result = Combined(warp[j], warp);
    }
    for (int j = 0; j < kWarp; ++j) {
      if (mask >> j & 1) warp[j].meeting = Meeting::kNone;
    }
    if (orders) Inform(warp, mask);
  }
  return any;
}

// Resumes the block's threads if all of them have met.
bool MeetInBlock() {
  const Meeting meeting = threads[0].meeting;
  if (meeting != Meeting::kBarrier && meeting != Meeting::kBarrierOr) return false;
  uint32_t any = 0;
  auto& barrier = memory.epochs.barrier;
  for (const Thread& thread : threads) {
    if (thread.meeting != meeting) return false;
    any |= thread.value;
    barrier = std::max(barrier, thread.clock);
  }
  for (Thread& thread : threads) {
    thread.meeting = Meeting::kNone, thread.result = any, thread.clock = barrier + 1;
  }
  return true;
}

bool Meet() {
  bool any = false;
  const int count = static_cast<int>(threads.size());
  for (int first = 0; first < count; first += kWarp) {
    any |= MeetInWarp(&threads[first], std::min(kWarp, count - first));
  }
  return MeetInBlock() || any;
}

// Describes the waiting threads when none can continue.
std::string Deadlock() {
  std::string text = "threads wait for each other:";
  const Thread* last = nullptr;
  for (const Thread& thread : threads) {
    const bool differs = last == nullptr || last->meeting != thread.meeting ||
                         last->mask != thread.mask || last->line != thread.line;
    if (!differs) continue;
    last = &thread;
    text += " from thread " + std::to_string(thread.thread) + " on " + Name(thread.meeting);
    if (IsOfWarp(thread.meeting)) text += " of mask " + std::to_string(thread.mask);
    if (thread.meeting != Meeting::kExit) text += " at line " + std::to_string(thread.line);
    text += ",";
    if (text.size() > 1000) break;
  }
  text.back() = '.';
  return text;
}

// Runs threads in the given order, repeatedly until all have ended.
void RunThreads(const Schedule& schedule) {
  std::vector<int> turns(threads.size());
  std::iota(turns.begin(), turns.end(), 0);
  if (schedule.order == Order::kBackward) std::reverse(turns.begin(), turns.end());
  for (;;) {
    if (schedule.order == Order::kRandom) {
      std::shuffle(turns.begin(), turns.end(), random_engine);
    }
    bool progress = false, ended = true;
    for (const int i : turns) {
      if (threads[i].meeting == Meeting::kNone) {
        Resume(i, &Body);
        if (!failure.empty()) return;
        progress = true;
      }
      ended &= threads[i].meeting == Meeting::kExit;
    }
    if (ended) return;
    if (!Meet() && !progress) {
      failure = Deadlock();
      return;
    }
  }
}

}  // namespace

void Fail(const Thread& thread, int line, const std::string& what) {
  failure = "thread " + std::to_string(thread.thread) + " of block " +
            std::to_string(thread.block) + ", line " + std::to_string(line) +
            " of the PTX: " + what;
  Abandon();
}

void Thread::ReadShared(uint32_t address, void* target, int size, int at) {
  MayGiveWay();
  if (IsFaulty(Fault::kNextElement, at)) address += size;
  memory.Read(*this, true, address, target, size, at);
}
void Thread::ReadGlobal(uint64_t address, void* target, int size, int at) {
  MayGiveWay();
  memory.Read(*this, false, address, target, size, at);
}
void Thread::WriteShared(uint32_t address, const void* source, int size, int at) {
  MayGiveWay();
  if (IsFaulty(Fault::kNextElement, at)) address += size;
  memory.Write(*this, true, address, source, size, at);
}
void Thread::WriteGlobal(uint64_t address, const void* source, int size, int at) {
  MayGiveWay();
  memory.Write(*this, false, address, source, size, at);
}

void Thread::Copy(uint32_t target, uint64_t source, int size, int at) {
  copies[thread].push_back({source, target, size, at});
}

void Thread::FinishCopies(int at) {
  if (IsFaulty(Fault::kNoWaitForCopies, at)) return;
  for (const PendingCopy& copy : copies[thread]) {
    char bytes[16];
    memory.Read(*this, false, copy.source, bytes, copy.size, copy.line);
    memory.Write(*this, true, copy.target, bytes, copy.size, copy.line);
  }
  copies[thread].clear();
  MayGiveWay();
}

void Thread::Wait(Meeting kind, uint32_t with, uint32_t brings, int at) {
  if (IsOfWarp(kind) && IsFaulty(Fault::kHalfOfMask, at)) with &= with >> 1;
  meeting = kind, mask = with, value = brings, line = at;
  if (IsOfWarp(kind) && (with >> thread % kWarp & 1) == 0) {
    Fail(*this, at, std::string(Name(kind)) + " of a mask without the thread itself");
  }
  Suspend();
}

void Thread::Barrier(uint32_t number, int at) {
  if (number != 0) Fail(*this, at, "a barrier other than 0");
  if (IsFaulty(Fault::kNoBarrier, at)) return;
  Wait(Meeting::kBarrier, 0, 0, at);
}

bool Thread::BarrierOr(uint32_t number, bool brings, int at) {
  if (number != 0) Fail(*this, at, "a barrier other than 0");
  Wait(Meeting::kBarrierOr, 0, brings, at);
  return result != 0;
}

void Thread::WarpBarrier(uint32_t with, int at) {
  if (IsFaulty(Fault::kNoBarrier, at)) return;
  Wait(Meeting::kWarpBarrier, with, 0, at);
}

Shuffled Thread::Shuffle(ShuffleMode mode, uint32_t with, uint32_t brings, uint32_t from,
                         uint32_t shape, int at) {
  const uint32_t mine = thread % kWarp, segment = shape >> 8 & 31, clamp = shape & 31;
  const uint32_t least = mine & segment, most = least | (clamp & ~segment);
  from &= 31;
  lane = mode == ShuffleMode::kBfly ? mine ^ from : least | (from & ~segment);
  const bool found = lane <= most;
  if (!found) lane = mine;
  if ((with >> lane & 1) == 0) Fail(*this, at, "shfl from a thread that the mask lacks");
  Wait(Meeting::kShuffle, with, brings, at);
  return {result, found};
}

uint32_t Thread::Agree(Meeting kind, uint32_t with, uint32_t brings, int at) {
  Wait(kind, with, brings, at);
  return result;
}

void SetFault(const Fault& other) {
  fault = other;
  for (auto& lines : reached) lines.clear();
}

std::vector<int> Reached(Fault::Kind kind) {
  std::vector<int> lines;
  for (size_t i = 0; i < reached[kind].size(); ++i) {
    if (reached[kind][i]) lines.push_back(static_cast<int>(i));
  }
  return lines;
}

std::string Run(const Launch& launch, const Schedule& schedule) {
  kernel = launch.kernel;
  faulty = launch.name == fault.kernel;
  const bool too_little = IsFaulty(Fault::kTooLittleMemory, 0);
  failure.clear();
  preempt = until_preemption = schedule.preempt;
  threads.assign(launch.threads, {});
  copies.resize(kMostFibers);
  uint32_t& clock = memory.clock;
  Epochs& epochs = memory.epochs;
  epochs.launch = ++clock;
  const auto count = static_cast<uint32_t>(launch.chosen.size());
  for (uint32_t i = 0; i < count; ++i) {
    epochs.block = epochs.barrier = ++clock;
    memory.Begin(kernel->shared_bytes + launch.dynamic_bytes - (too_little ? 256 : 0));
    for (uint32_t j = 0; j < launch.threads; ++j) {
      Thread& thread = threads[j];
      thread = {};
      thread.thread = j, thread.threads = launch.threads, thread.blocks = launch.blocks;
      thread.block = launch.chosen[schedule.order == Order::kBackward ? count - 1 - i : i];
      thread.arguments = launch.arguments;
      thread.clock = clock + 1;
      copies[j].clear();
    }
    RunThreads(schedule);
    for (const Thread& thread : threads) clock = std::max(clock, thread.clock);
    if (!failure.empty()) {
      ForgetFibers();
      break;
    }
  }
  return failure;
}

}  // namespace ptx
