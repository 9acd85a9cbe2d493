// Rotations of the rows of a block by a team of threads, from the products of the rows.
//
// One-sided Jacobi by blocks needs only the Gram matrix G = X Xᴴ of the rows of X. Jacobi's method
// makes R G Rᴴ diagonal, so that the rows of R X are orthogonal. The rotations of a round of a
// tournament act on disjoint rows, so they are applied together.
#pragma once

#include "kernels/team/svd.h"

namespace linalg::team {

// p := p - s (y + t p) and q := y + s (p - t y), where y = phase q. The shear t is the tangent of
// half the angle. A product of many rotations stays unitary: 1 - s t rounds to no side, and the
// cosine of a small angle would always round up.
template <class E>
struct GramRotation {
  using V = RealElement<E>;
  V sine, shear;
  E phase;

  LINALG_INLINE bool IsIdentity() const { return sine == V(0); }

  LINALG_INLINE void Apply(E turn, E& p, E& q) const {
    const E x = p, y = Mul(turn, q);
    p = MulAdd(-sine, MulAdd(shear, x, y), x);
    q = MulAdd(sine, MulAdd(-shear, y, x), y);
  }
  LINALG_INLINE void ApplyToRows(E& p, E& q) const { Apply(phase, p, q); }
  // The adjoint from the right.
  LINALG_INLINE void ApplyToColumns(E& p, E& q) const { Apply(Conj(phase), p, q); }
};

// The workspace of RotateGram, for n rows.
template <class E>
struct GramWork {
  E* gram;                     // n by n, Hermitian; changed
  E* rotation;                 // n by n, the result
  int ld;                      // of both
  GramRotation<E>* rotations;  // n / 2
};

// Makes work.rotation from work.gram, in at most `sweeps` sweeps. n is even. Products count as zero
// up to `tolerance` of the norms, and as small up to the square root of epsilon: they are
// negligible after one rotation. Returns whether a larger one was found.
template <class Team, class E>
LINALG_TEAM bool RotateGram(const Team& team, int n, RealElement<E> tolerance, int sweeps,
                            const GramWork<E>& work) {
  using V = RealElement<E>;
  constexpr V epsilon = std::numeric_limits<V>::epsilon();
  const int pairs = n / 2, ld = work.ld;
  const Grid blocks(team.size(), pairs), columns(team.size(), n);
  E* const gram = work.gram;
  E* const rotation = work.rotation;
  team.Phase([&](int thread) {
    for (int i = columns.Group(thread); i < n; i += columns.groups) {
      for (int j = columns.Across(thread); j < n; j += columns.width) {
        rotation[i * ld + j] = FromReal<E>(V(i == j));
      }
    }
  });
  bool found = false, turned = true;
  for (int sweep = 0; turned && sweep < sweeps; ++sweep) {
    bool large = false;  // of this thread's pairs
    for (int round = 0; round < RoundsOf(n); ++round) {
      const bool any = team.Any([&](int thread) {
        bool turns = false;
        for (int pair = thread; pair < pairs; pair += team.size()) {
          const auto [i, j] = Pair(n, round, pair);
          // An inner product conjugates the first row.
          const ColumnSums<E> sums{.first = Re(gram[i * ld + i]),
                                   .second = Re(gram[j * ld + j]),
                                   .product = gram[j * ld + i]};
          const JacobiRotation<E> turn = OrthogonalRotation(sums, tolerance);
          const GramRotation<E> rotate{.sine = turn.sine,
                                       .shear = turn.sine / (V(1) + turn.cosine),
                                       .phase = Conj(turn.phase)};
          work.rotations[pair] = rotate;
          if (rotate.IsIdentity()) continue;
          turns = true;
          large |= NormAdd(sums.product, V(0)) > epsilon * sums.first * sums.second;
        }
        return turns;
      });
      if (!any) continue;
      team.Phase([&](int thread) {
        for (int b = blocks.Across(thread); b < pairs; b += blocks.width) {
          const GramRotation<E> right = work.rotations[b];
          const auto [k, l] = Pair(n, round, b);
          for (int a = blocks.Group(thread); a < pairs; a += blocks.groups) {
            const GramRotation<E> left = work.rotations[a];
            if (left.IsIdentity() && right.IsIdentity()) continue;
            const auto [i, j] = Pair(n, round, a);
            E ik = gram[i * ld + k], il = gram[i * ld + l];
            E jk = gram[j * ld + k], jl = gram[j * ld + l];
            left.ApplyToRows(ik, jk);
            left.ApplyToRows(il, jl);
            right.ApplyToColumns(ik, il);
            right.ApplyToColumns(jk, jl);
            gram[i * ld + k] = ik, gram[i * ld + l] = il;
            gram[j * ld + k] = jk, gram[j * ld + l] = jl;
          }
        }
        for (int pair = columns.Group(thread); pair < pairs; pair += columns.groups) {
          const GramRotation<E> left = work.rotations[pair];
          if (left.IsIdentity()) continue;
          const auto [i, j] = Pair(n, round, pair);
          for (int c = columns.Across(thread); c < n; c += columns.width) {
            left.ApplyToRows(rotation[i * ld + c], rotation[j * ld + c]);
          }
        }
      });
    }
    turned = team.Any([&](int) { return large; });
    found |= turned;
  }
  return found;
}

}  // namespace linalg::team
