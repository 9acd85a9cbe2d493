// The functions that kernels/cpu/block_tridiagonal.h declares for its handlers.
#include "kernels/cpu/block_tridiagonal.h"

namespace linalg::small {

LINALG_EACH_ELEMENT(LINALG_BLOCK_STEPS, )

}  // namespace linalg::small
