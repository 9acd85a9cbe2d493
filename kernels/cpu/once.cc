// The explicit instances that once.h declares.
#include "kernels/cpu/once.h"

namespace linalg::small {

LINALG_ONCE_ALL()

}  // namespace linalg::small
