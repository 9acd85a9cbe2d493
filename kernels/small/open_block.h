// The blocks that the lanes of an iteration on tridiagonal or bidiagonal matrices work on.
#pragma once

#include "kernels/arithmetic/element.h"

namespace linalg::small {

// Each lane's first block that is not yet diagonal, as it is found row by row: rows low to high, n
// for the last one. Lanes that are done have low = n.
template <class V>
class OpenBlock {
 public:
  LINALG_INLINE explicit OpenBlock(int n) : low(Number<V>(n)), high(low), first_(n), n_(n) {}

  // Row i, with what is beside the diagonal behind it.
  LINALG_INLINE void Add(int i, V beside) {
    const V row = Number<V>(i), zero{};
    if (first_ == n_ && Any(beside != zero)) first_ = i;
    begins = (beside != zero) & (low > row);
    ends = (beside == zero) & (low < row) & (high > row);
    low = begins ? row : low;
    high = ends ? row : high;
  }

  // Whether row i and the next are in the block.
  LINALG_INLINE Mask<V> Holds(int i) const { return (low <= Number<V>(i)) & (high > Number<V>(i)); }

  // The first row of all lanes' blocks, n if there are none.
  LINALG_INLINE int First() const { return first_; }

  V low, high;
  Mask<V> begins, ends;  // in the row that was added last

 private:
  int first_, n_;
};

}  // namespace linalg::small
