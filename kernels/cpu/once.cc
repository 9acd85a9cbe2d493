#include "kernels/cpu/once.h"

namespace linalg::small {

#define LINALG_ONCE_IN(T, Of)       \
  LINALG_REFLECTORS(, Of<T>, Of<T>) \
  LINALG_FACTORS(, Of<T>)
#define LINALG_ONCE_OF_ONE(T, Of) LINALG_REFLECTORS(, Of<T>, Element<T>)
LINALG_EACH_ELEMENT(LINALG_ONCE_IN)
LINALG_EACH_DTYPE(LINALG_ONCE_OF_ONE, BlockOfOne)

}  // namespace linalg::small
