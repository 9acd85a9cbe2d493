// Threads of execution that hand over to each other: those of a block run one at a time, and each
// goes on where it was.
#pragma once

namespace ptx {

inline constexpr int kMostFibers = 1024;  // a block has no more threads

// Runs `body(number)` on the fiber of that number, from its beginning if it has ended, until it
// suspends itself or ends. Not from within a fiber.
void Resume(int number, void (*body)(int));

// Gives control back to Resume.
void Suspend();

// As Suspend, for good: the fiber begins anew, and nothing on its stack is destroyed.
[[noreturn]] void Abandon();

// Lets all fibers begin anew.
void ForgetFibers();

}  // namespace ptx
