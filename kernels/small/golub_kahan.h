// Singular values of real upper bidiagonal matrices, one per lane, by implicit QR (Golub and
// Reinsch, Singular value decomposition and least squares solutions, 1970).
//
// Each lane sweeps its own block, as in eigh.h. A block with a nearly zero diagonal element takes a
// step without a shift, which makes its last element nearly zero. Other blocks take Wilkinson's
// shift.
#pragma once

#include "kernels/arithmetic/tridiagonal.h"
#include "kernels/small/open_block.h"

namespace linalg::small {

// Ignores the rotations, if no vectors are wanted; it also documents the interface. Right and Left
// rotate columns or rows i and i + 1 to cosine x + sine y and cosine y - sine x, in the lanes `on`.
// A sweep goes down the rows, calls Skip for rows without active lanes, and ends with
// EndSweep(first row, last row). After all sweeps come End(d), and Negate for lanes where singular
// value i changes its sign.
struct WithoutVectors {
  template <class M, class V>
  LINALG_INLINE void Right(int, M, const PlaneRotation<V>&) const {}
  template <class M, class V>
  LINALG_INLINE void Left(int, M, const PlaneRotation<V>&) const {}
  LINALG_INLINE void Skip(int) const {}
  LINALG_INLINE void EndSweep(int, int) const {}
  template <class V>
  LINALG_INLINE void End(V*) const {}
  template <class M>
  LINALG_INLINE void Negate(int, M) const {}
};

// Replaces the diagonal d, of n elements, of a matrix of norm about 1 by the unsorted singular
// values. e has the n - 1 elements above it. Returns how many elements of e did not vanish.
template <class V, class Vectors = WithoutVectors>
LINALG_ONCE V GolubKahan(V* d, V* e, int n, Vectors&& vectors = {}) {
  using Limits = std::numeric_limits<Lane<V>>;
  const V zero{}, one = Number<V>(1), eps = Broadcast<V>(Limits::epsilon());
  int first = 0;
  for (int sweep = 0; sweep <= kQlSweeps * n; ++sweep) {
    // Finds each lane's block and what its shift depends on: the last elements, and the smallest
    // and the largest.
    OpenBlock<V> block(n, n);
    V d_low = one, e_low = zero, least = one, largest = zero;
    V d_high = d[n - 1], d_before = zero, e_high = zero, e_before = zero;
    for (int i = first; i < n - 1; ++i) {
      const V here = Abs(d[i]), next = Abs(d[i + 1]);
      const V x = Abs(e[i]) <= NegligibleBeside(here, next) ? zero : e[i];
      e[i] = x;
      const auto [begins, ends] = block.Add(i, x);
      const auto within = block.Holds(i);
      d_low = begins ? d[i] : d_low;
      e_low = begins ? x : e_low;
      d_high = ends ? d[i] : d_high;
      const V size = Smaller(here, next);
      least = within & ((size < least) | begins) ? size : least;
      const V most = Larger(Abs(x), Larger(here, next));
      largest = within & (most > largest) ? most : largest;
      e_before = within ? (begins ? zero : e_high) : e_before;
      d_before = within ? d[i] : d_before;
      e_high = within ? x : e_high;
    }
    first = block.First();
    if (first == n) break;

    // Wilkinson's shift from the last block of BᵀB.
    const V first_square = MulAdd(d_before, d_before, e_before * e_before);
    const V last_square = MulAdd(d_high, d_high, e_high * e_high), product = d_before * e_high;
    const V shift = last_square - WilkinsonOffset(first_square - last_square, product * product);
    const auto plain = least <= eps * largest;
    V f = plain ? d_low : d_low - shift / d_low, g = e_low;
    V here = d[first];
    int last = first;
    for (int i = first; i < n - 1; ++i) {
      const auto on = block.Holds(i);
      if (!Any(on)) {
        d[i] = here;
        here = d[i + 1];
        vectors.Skip(i);
        continue;
      }
      last = i + 1;
      const PlaneRotation<V> right(f, g);
      if (i > 0) e[i - 1] = on & (block.low < Number<V>(i)) ? right.r : e[i - 1];
      const V beside = e[i], next = d[i + 1];
      const V above = MulAdd(right.cosine, beside, -(right.sine * here));
      const V below = right.cosine * next;
      const PlaneRotation<V> left(MulAdd(right.cosine, here, right.sine * beside),
                                  right.sine * next);
      vectors.Right(i, on, right);
      vectors.Left(i, on, left);
      d[i] = on ? left.r : here;
      f = on ? MulAdd(left.cosine, above, left.sine * below) : f;
      here = on ? MulAdd(left.cosine, below, -(left.sine * above)) : next;
      e[i] = on ? f : beside;
      if (i + 1 < n - 1) {
        const auto goes = on & (block.high > Number<V>(i + 1));
        g = goes ? left.sine * e[i + 1] : g;
        e[i + 1] = goes ? left.cosine * e[i + 1] : e[i + 1];
      }
    }
    d[n - 1] = here;
    vectors.EndSweep(first, last);
  }
  vectors.End(d);
  V left = zero;
  for (int i = 0; i < n - 1; ++i) left = e[i] != zero ? left + one : left;
  for (int i = 0; i < n; ++i) {
    vectors.Negate(i, d[i] < zero);
    d[i] = Abs(d[i]);
  }
  return left;
}

}  // namespace linalg::small
