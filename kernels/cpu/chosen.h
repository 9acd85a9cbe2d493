// Attributes of handlers that compute a subset of a spectrum.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/blocked/tridiagonal_subset.h"
#include "kernels/cpu/results.h"
#include "kernels/systems.h"

namespace linalg {

// Reads the attributes of a part of n values, which are a result or an operand. The errors call
// them `what`, and their number `most`.
inline blocked::Chosen ReadChosen(const ffi::AnyBuffer& values, const char* what, int64_t n,
                                  std::string_view most, int64_t start, int64_t count) {
  if (count != SplitBatch(values, 1, what).cols) {
    throw BadArgument(what, "be as many as the attribute count");
  }
  if (start < 0 || start > n - count) {
    throw BadArgument("start", "be between 0 and " + std::string(most) + " - count");
  }
  return {.start = start, .count = count};
}

}  // namespace linalg
