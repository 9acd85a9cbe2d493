#include "tests/ptx_emulator/fibers.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <array>
#include <new>

namespace ptx {
namespace {

// Far more than a kernel's registers need. Untouched memory costs nothing.
constexpr size_t kStackBytes = 512 << 10;

struct Fiber {
  jmp_buf place;
  ucontext_t context;
  bool begun = false;
};

std::array<Fiber, kMostFibers> fibers;
jmp_buf scheduler;
int current;
void (*body)(int);

// A fiber is created once, and runs one body after another.
void Run() {
  for (;;) {
    body(current);
    Suspend();
  }
}

char* Stacks() {
  static char* const stacks = [] {
    void* const memory = mmap(nullptr, kStackBytes * kMostFibers, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return static_cast<char*>(memory);
  }();
  return stacks;
}

}  // namespace

// Uses setjmp and longjmp, because swapcontext makes a system call each time.
void Resume(int number, void (*with)(int)) {
  current = number, body = with;
  Fiber& fiber = fibers[number];
  if (_setjmp(scheduler) != 0) return;
  if (fiber.begun) _longjmp(fiber.place, 1);
  fiber.begun = true;
  getcontext(&fiber.context);
  fiber.context.uc_stack = {Stacks() + kStackBytes * number, 0, kStackBytes};
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, &Run, 0);
  setcontext(&fiber.context);
}

void Suspend() {
  if (_setjmp(fibers[current].place) == 0) _longjmp(scheduler, 1);
}

void Abandon() {
  fibers[current].begun = false;
  _longjmp(scheduler, 1);
}

void ForgetFibers() {
  for (Fiber& fiber : fibers) fiber.begun = false;
}

}  // namespace ptx
