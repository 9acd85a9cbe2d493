// Fibers for the threads of a block. One runs at a time, and each resumes where it was suspended.
#pragma once

namespace ptx {

inline constexpr int kMostFibers = 1024;  // the most threads of a block

// Runs `body(number)` on the fiber of that number, until it suspends itself or ends. A fiber that
// has ended starts again. Call this from outside fibers only.
void Resume(int number, void (*body)(int));

// Returns control to Resume.
void Suspend();

// Suspends forever. The fiber starts anew later, and nothing on its stack is destroyed.
[[noreturn]] void Abandon();

// All fibers start again.
void ForgetFibers();

}  // namespace ptx
