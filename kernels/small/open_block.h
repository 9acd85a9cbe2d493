// The blocks that the lanes of an iteration on tridiagonal or bidiagonal matrices work on.
#pragma once

#include "kernels/arithmetic/element.h"

namespace linalg::small {

// Each lane's first block that is not yet diagonal, as it is found row by row: rows low to high, n
// for the last one. Lanes that are done have low = n.
template <class V>
class OpenBlock {
 public:
  // `first` is the first row of the blocks that are known already, of other lanes.
  LINALG_INLINE OpenBlock(int n, int first) : low(Number<V>(n)), high(low), first_(first) {}

  // Where a row is the first of the block, and where it is the last.
  struct Ends {
    Mask<V> begins, ends;
  };

  // Row i, with what is beside the diagonal behind it.
  LINALG_INLINE Ends Add(int i, V beside) {
    const V row = Number<V>(i), zero{};
    if (first_ > i && Any(beside != zero)) first_ = i;
    const Mask<V> begins = (beside != zero) & (low > row);
    const Mask<V> ends = (beside == zero) & (low < row) & (high > row);
    low = begins ? row : low;
    high = ends ? row : high;
    return {begins, ends};
  }

  // Whether row i and the next are in the block.
  LINALG_INLINE Mask<V> Holds(int i) const { return (low <= Number<V>(i)) & (high > Number<V>(i)); }

  // The first row of all lanes' blocks, n if there are none.
  LINALG_INLINE int First() const { return first_; }

  V low, high;

 private:
  int first_;
};

}  // namespace linalg::small
