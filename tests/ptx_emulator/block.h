// Runs the blocks of a launch one after another, with fibers for their threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/ptx_emulator/thread.h"

namespace ptx {

// The order in which threads and blocks run.
enum class Order { kForward, kBackward, kRandom };

struct Schedule {
  Order order = Order::kRandom;
  int preempt = 0;  // a thread yields after this many memory accesses on average; 0: never
};

// A fault at one line of a kernel's PTX, to test that it is detected.
struct Fault {
  enum Kind {
    kNone,
    kNoBarrier,        // the barrier is skipped
    kNoWaitForCopies,  // the wait is skipped
    kHalfOfMask,       // the mask, which has more than one thread, lacks its highest
    kNextElement,      // the next element of shared memory is accessed
    kTooLittleMemory,  // shared memory is short by more than the space between slices; line is 0
    kKinds,
  };
  std::string kernel;
  Kind kind = kNone;
  int line = 0;
};

// Applies to all later launches, and clears the reached lines.
void SetFault(const Fault& fault);

// The lines executed since SetFault at which the kernel could have a fault of that kind.
std::vector<int> Reached(Fault::Kind kind);

// The blocks at either end of a launch that run alone, and matrices of a product; 0: all of them.
// LINALG_PTX_ENDS sets it, and LINALG_PTX_PASS_ENDS another number for passes over all elements.
// Batches may then be larger than the machine's memory, and reads of unwritten memory are allowed.
int64_t EndsOfLaunches();

struct Launch {
  const Kernel* kernel;
  std::string name;
  uint32_t blocks, threads;
  std::vector<uint32_t> chosen;  // the blocks that run
  int64_t dynamic_bytes;
  const void* const* arguments;
};

// Returns a thread's error, or an empty string.
std::string Run(const Launch& launch, const Schedule& schedule);

}  // namespace ptx
