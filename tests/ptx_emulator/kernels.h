// The translated kernels, by their names in the PTX.
#pragma once

#include <string>

#include "tests/ptx_emulator/thread.h"

namespace ptx {

// Throws a std::runtime_error if the name is unknown, or if the kernel does not compile.
const Kernel& FindKernel(const std::string& name);

}  // namespace ptx
