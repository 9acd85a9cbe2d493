// The active blocks of QL and QR iterations on tridiagonal and bidiagonal matrices.
#pragma once

#include "kernels/arithmetic/element.h"

namespace linalg::small {

// Each lane's first block that is not yet diagonal, found row by row. Its rows are low to high;
// high = n is the last row. Lanes that are done have low = n.
template <class V>
class OpenBlock {
 public:
  // `first` is the first row of blocks already known in other lanes.
  LINALG_INLINE OpenBlock(int n, int first) : low(Number<V>(n)), high(low), first_(first) {}

  // Masks of the lanes whose block begins or ends with a row.
  struct Ends {
    Mask<V> begins, ends;
  };

  // Adds row i, with its off-diagonal element.
  LINALG_INLINE Ends Add(int i, V beside) {
    const V row = Number<V>(i), zero{};
    if (first_ > i && Any(beside != zero)) first_ = i;
    const Mask<V> begins = (beside != zero) & (low > row);
    const Mask<V> ends = (beside == zero) & (low < row) & (high > row);
    low = begins ? row : low;
    high = ends ? row : high;
    return {begins, ends};
  }

  // Whether rows i and i + 1 are both in the block.
  LINALG_INLINE Mask<V> Holds(int i) const { return (low <= Number<V>(i)) & (high > Number<V>(i)); }

  // The first row of all lanes' blocks, n if there are none.
  LINALG_INLINE int First() const { return first_; }

  V low, high;

 private:
  int first_;
};

}  // namespace linalg::small
