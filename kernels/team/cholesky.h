// Cholesky factors by a team of threads, in place, right-looking. Only the lower triangle is read
// and written.
#pragma once

#include "kernels/team/hermitian.h"

namespace linalg::team {

// Returns 0, or the order of the first leading minor that is not positive; then the factor is
// unfinished.
template <class Team, class E>
LINALG_TEAM int Cholesky(const Team& team, int n, E* a, int ld) {
  using V = RealElement<E>;
  const Grid grid = RowGrid(team);
  for (int k = 0; k < n; ++k) {
    const V pivot = Re(a[k * ld + k]);
    // NaN is neither.
    if (!(pivot > V(0) && pivot < std::numeric_limits<V>::infinity())) return k + 1;
    const V root = Sqrt(pivot), inverse = V(1) / root;
    team.Phase([&](int thread) {
      for (int i = k + 1 + thread; i < n; i += team.size()) {
        a[i * ld + k] = inverse * a[i * ld + k];
      }
    });
    team.Phase([&](int thread) {
      if (thread == 0) a[k * ld + k] = FromReal<E>(root);
      for (int i = k + 1 + grid.Lane(thread); i < n; i += grid.lanes) {
        SubtractFromRow(a[i * ld + k], a + i * ld, k + 1 + grid.Group(thread), i + 1, grid.groups,
                        [&](int j) { return Conj(a[j * ld + k]); });
      }
    });
  }
  return 0;
}

// The factor that is asked for, element by element, and its info: NaN in its triangle where that is
// not 0.
template <class E>
struct TriangularFactor {
  const E* a;
  int ld;
  bool lower;
  int info;

  LINALG_INLINE E operator()(int i, int j) const {
    if (lower ? j > i : j < i) return E{};
    if (info != 0) return NaN<E>();
    return lower ? a[i * ld + j] : Conj(a[j * ld + i]);
  }
};

// Factors the Hermitian part of `a`, in place.
template <class Team, class E>
LINALG_TEAM TriangularFactor<E> CholeskyFactor(const Team& team, int n, E* a, int ld,
                                               HermitianPart part) {
  LowerHermitianPart(team, n, a, ld, part);
  return {a, ld, part.lower, Cholesky(team, n, a, ld)};
}

}  // namespace linalg::team
