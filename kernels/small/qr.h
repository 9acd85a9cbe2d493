// What handlers do with the reflectors of small matrices: R leaves before Q takes its place. The
// order of the steps stands here, for lanes, for one matrix with its columns in lanes, and for
// threads that have a matrix each.
#pragma once

#include "kernels/small/householder.h"

namespace linalg::small {

// Where a matrix lies, and what is made of it.
template <class E>
struct QrWork {
  E* a;  // the m by n matrix, then R
  int ld;
  E* vectors;  // of the reflectors, m elements each
  E* taus;
  E* q;  // it may overlap what `a` was
  int ldq;
};

// R, zeros below, and `count` reflectors; or, if `factored`, the given ones, which stand below the
// diagonal of `a`, with their taus. Then take() may take what it likes, before q becomes the first
// q_cols columns of the reflectors' product.
template <class B, class E, class Take>
LINALG_INLINE void Qr(int m, int n, int count, bool factored, int q_cols, const QrWork<E>& work,
                      Take&& take) {
  if (factored) {
    UnpackReflectors(work.a, work.ld, m, count, work.vectors);
  } else {
    HouseholderQr<B>(work.a, work.ld, m, n, work.vectors, work.taus);
  }
  take();
  if (q_cols > 0) {
    HouseholderProduct<B>(work.q, work.ldq, m, q_cols, count, work.vectors, work.taus);
  }
}

}  // namespace linalg::small
