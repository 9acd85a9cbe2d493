// Cholesky factors by a team of threads, in place: right-looking, a panel of columns at a time.
// Elements above the diagonal are not read, but may be written.
#pragma once

#include "kernels/team/hermitian.h"
#include "kernels/team/update.h"

namespace linalg::team {

// The factor of a panel's diagonal block. Every thread computes it for itself, which takes less
// time than a barrier at each of its columns.
template <class E>
class DiagonalFactor {
  using V = RealElement<E>;
  static constexpr int kSize = kPanel<E>;

 public:
  // Factors the first `count` rows of the block `a`. The other rows are the identity.
  LINALG_TEAM DiagonalFactor(int count, const E* a, int ld) {
    LINALG_UNROLL
    for (int r = 0; r < kSize; ++r) {
      LINALG_UNROLL
      for (int c = 0; c <= r; ++c) {
        l_[r][c] = r < count ? a[r * ld + c] : FromReal<E>(V(r == c));
      }
    }
    LINALG_UNROLL
    for (int c = 0; c < kSize; ++c) {
      const V pivot = Re(l_[c][c]);
      // NaN is not positive.
      if (!(pivot > V(0)) && failed_ == 0) failed_ = c + 1;
      inverse_[c] = V(1) / Sqrt(pivot);
      LINALG_UNROLL
      for (int r = c + 1; r < kSize; ++r) l_[r][c] = inverse_[c] * l_[r][c];
      LINALG_UNROLL
      for (int k = c + 1; k < kSize; ++k) {
        LINALG_UNROLL
        for (int r = k; r < kSize; ++r) {
          l_[r][k] = NegMulAdd(l_[r][c], Conj(l_[k][c]), l_[r][k]);
        }
      }
    }
  }

  // The 1-based index of the first pivot that is not positive, or 0.
  LINALG_TEAM int failed() const { return failed_; }

  // Turns a row of the panel below the block into a row of the factor.
  LINALG_TEAM void SolveBelow(E* row) const { SolveRow(kSize, kSize, row); }

  // For a block of `count` rows, which is the last one.
  LINALG_TEAM void SolveBelow(int count, E* row) const { SolveRow(count, count, row); }

  // Turns row `order` of the block into a row of the factor.
  LINALG_TEAM void SolveWithin(int order, E* row) const {
    row[order] = FromReal<E>(Sqrt(Re(SolveRow(order, order + 1, row))));
  }

 private:
  // Solves for the first `count` elements of a row, of which it reads `cols`. Returns the reduced
  // next pivot.
  LINALG_TEAM E SolveRow(int count, int cols, E* row) const {
    E x[kSize], next{};
    LINALG_UNROLL
    for (int c = 0; c < kSize; ++c) x[c] = c < cols ? row[c] : E{};
    LINALG_UNROLL
    for (int c = 0; c < kSize; ++c) {
      if (c == count) next = x[c];
      x[c] = inverse_[c] * x[c];
      LINALG_UNROLL
      for (int k = c + 1; k < kSize; ++k) x[k] = NegMulAdd(x[c], Conj(l_[k][c]), x[k]);
    }
    LINALG_UNROLL
    for (int c = 0; c < kSize; ++c) {
      if (c < count) row[c] = x[c];
    }
    return next;
  }

  E l_[kSize][kSize];
  V inverse_[kSize];
  int failed_ = 0;
};

// Factors the first n rows, and turns the other rows into those of the factor of a larger matrix: w
// becomes w L⁻ᴴ. Returns 0, or the order of the first leading minor that is not positive. The
// factor is unfinished then. The factor of each panel's diagonal block is written only if kDiagonal
// is true: no other rows depend on it.
//
// If kAnyRows is false, rows follow only an n that is a multiple of kPanel. That saves registers.
template <bool kDiagonal = true, bool kAnyRows = false, class Team, class E>
LINALG_TEAM int Cholesky(const Team& team, int rows, int n, E* a, int ld) {
  constexpr int kSize = kPanel<E>;
  const Tiling tiling(team);
  for (int k = 0; k < n; k += kSize) {
    const int end = k + kSize < n ? k + kSize : n;
    const DiagonalFactor<E> diagonal(end - k, a + k * ld + k, ld);
    if (diagonal.failed() != 0) return k + diagonal.failed();
    team.Phase([&](int thread) {
      for (int i = end + thread; i < rows; i += team.size()) {
        E* const row = a + i * ld + k;
        if (kAnyRows && end - k < kSize) {
          diagonal.SolveBelow(end - k, row);
        } else {
          diagonal.SolveBelow(row);
        }
      }
    });
    const Updated<E> rest{.c = a,
                          .ld = ld,
                          .first_row = end,
                          .rows = rows,
                          .first_col = end,
                          .cols = n,
                          .lower = true};
    const PanelFactor<E> below{.first = a + k, .stride = ld, .step = 1};
    team.Phase([&](int thread) {
      if constexpr (kDiagonal) {
        // It is in this phase, because in the one before another thread may still read the block.
        for (int i = k + thread; i < end; i += team.size()) {
          diagonal.SolveWithin(i - k, a + i * ld + k);
        }
      }
      Update<true>(tiling, thread, rest, below, below);
    });
  }
  return 0;
}

// The requested factor, element by element, and its info. Its triangle is NaN where info is not 0.
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
  return {.a = a, .ld = ld, .lower = part.lower, .info = Cholesky(team, n, n, a, ld)};
}

}  // namespace linalg::team
