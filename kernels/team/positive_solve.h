// Solutions of Hermitian positive definite systems by a team of threads that factors the matrix
// too.
//
// The conjugated right-hand sides are rows below the matrix. Its factorisation A = L Lᴴ turns a row
// bᴴ into bᴴ L⁻ᴴ, with no barrier of its own. A second pass makes bᴴ L⁻ᴴ L⁻¹ = xᴴ of it.
#pragma once

#include "kernels/arithmetic/logarithm.h"
#include "kernels/team/cholesky.h"

namespace linalg::team {

// A panel of columns of w = w L⁻¹, given those after it.
template <class E>
class PanelOfRows {
  static constexpr int kSize = kPanel<E>;

 public:
  // The panel has `count` of kSize columns. `l` is its diagonal block.
  LINALG_TEAM PanelOfRows(int count, const E* l, int ld) : count_(count), l_(l), ld_(ld) {}

  LINALG_TEAM void Solve(const E* row, E (&z)[kSize]) const {
    LINALG_UNROLL
    for (int c = 0; c < kSize; ++c) z[c] = c < count_ ? row[c] : E{};
    LINALG_UNROLL
    for (int c = kSize - 1; c >= 0; --c) {
      if (c >= count_) continue;
      const E* const left = l_ + c * ld_;
      z[c] = (RealElement<E>(1) / Re(left[c])) * z[c];
      LINALG_UNROLL
      for (int k = 0; k < c; ++k) z[k] = NegMulAdd(z[c], left[k], z[k]);
    }
  }

 private:
  int count_;
  const E* l_;
  int ld_;
};

// w (count, n) = w L⁻¹ with the lower triangle of `a`. The rows of both are `ld` apart.
template <class Team, class E>
LINALG_TEAM void SolveRows(const Team& team, int n, const E* a, int ld, int count, E* w) {
  constexpr int kSize = kPanel<E>;
  for (int end = n; end > 0; end -= kSize) {
    const int first = end > kSize ? end - kSize : 0;
    const E* const below = a + first * ld;
    const PanelOfRows<E> panel(end - first, below + first, ld);
    // Every thread solves for the columns of the panel, rather than wait for one that does.
    team.Phase([&](int thread) {
      for (int r = 0; r < count && thread < first; ++r) {
        E* const row = w + r * ld;
        E z[kSize];
        panel.Solve(row + first, z);
        for (int j = thread; j < first; j += team.size()) {
          E y = row[j];
          LINALG_UNROLL
          for (int c = 0; c < kSize; ++c) {
            if (first + c < end) y = NegMulAdd(z[c], below[c * ld + j], y);
          }
          row[j] = y;
        }
      }
    });
    // This is a phase of its own, because in the one before another thread may still read them.
    team.Phase([&](int thread) {
      for (int r = thread; r < count; r += team.size()) {
        E* const row = w + r * ld + first;
        E z[kSize];
        panel.Solve(row, z);
        LINALG_UNROLL
        for (int c = 0; c < kSize; ++c) {
          if (first + c < end) row[c] = z[c];
        }
      }
    });
  }
}

// log det A from the factor.
template <class Team, class E>
LINALG_TEAM RealElement<E> LogarithmOfDeterminant(const Team& team, int n, const E* a, int ld) {
  using V = RealElement<E>;
  return team.template Sum<V>([&](int thread) {
    V sum = V(0);
    for (int i = thread; i < n; i += team.size()) {
      sum += V(2) * Logarithm(Re(a[i * (ld + 1)]), V(0));
    }
    return sum;
  });
}

// Solves with the Hermitian part of `a`, for the `cols` rows below it. Returns the info of the
// factor, and leaves those rows unfinished where that is not 0.
template <class Team, class E>
LINALG_TEAM int PositiveSolve(const Team& team, int n, int cols, E* a, int ld) {
  LowerHermitianPart(team, n, a, ld, {.lower = true, .symmetrize = true});
  const int info = Cholesky</*kDiagonal=*/true, /*kAnyRows=*/true>(team, n + cols, n, a, ld);
  if (info == 0) SolveRows(team, n, a, ld, cols, a + n * ld);
  return info;
}

}  // namespace linalg::team
