// Runs the blocks of a launch, one after another, their threads as fibers.
#pragma once

#include <cstdint>
#include <string>

#include "tests/cuda/ptx/thread.h"

namespace ptx {

// In which threads, and blocks, have their turn.
enum class Order { kForward, kBackward, kRandom };

struct Schedule {
  Order order = Order::kRandom;
  int preempt = 0;  // a thread gives way at every so many accesses to memory, on average; 0: never
};

struct Launch {
  const Kernel* kernel;
  uint32_t blocks, threads;
  int64_t dynamic_bytes;
  const void* const* arguments;
};

// What a thread did wrong, or empty.
std::string Run(const Launch& launch, const Schedule& schedule);

}  // namespace ptx
