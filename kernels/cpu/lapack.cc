#include "kernels/cpu/lapack.h"

#include <mutex>

namespace linalg::lapack {
namespace {

void (*load)() = nullptr;

}  // namespace

void SetLoader(void (*loader)()) { load = loader; }

void Load() {
  static std::once_flag once;
  std::call_once(once, [] { load(); });
}

}  // namespace linalg::lapack
