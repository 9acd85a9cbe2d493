// Runs the blocks of a launch, one after another, their threads as fibers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/ptx_emulator/thread.h"

namespace ptx {

// In which threads, and blocks, have their turn.
enum class Order { kForward, kBackward, kRandom };

struct Schedule {
  Order order = Order::kRandom;
  int preempt = 0;  // a thread gives way at every so many accesses to memory, on average; 0: never
};

// What a kernel does wrong at one line of its PTX, for tests of what is found.
struct Fault {
  enum Kind {
    kNone,
    kNoBarrier,        // as if it did not stand there
    kNoWaitForCopies,  // the same
    kHalfOfMask,       // of a mask without its highest thread, and more
    kNextElement,      // of shared memory, in the place of the one meant
    kTooLittleMemory,  // shared, by more than lies between slices; at line 0
    kKinds,
  };
  std::string kernel;
  Kind kind = kNone;
  int line = 0;
};

// Of all launches from now on, and forgets what was reached.
void SetFault(const Fault& fault);

// The lines that the kernel of the fault has run since, at which it could have one of that kind.
std::vector<int> Reached(Fault::Kind kind);

struct Launch {
  const Kernel* kernel;
  std::string name;
  uint32_t blocks, threads;
  int64_t dynamic_bytes;
  const void* const* arguments;
};

// What a thread did wrong, or empty.
std::string Run(const Launch& launch, const Schedule& schedule);

}  // namespace ptx
