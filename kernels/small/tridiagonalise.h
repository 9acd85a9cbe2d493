// Reduction of small Hermitian matrices to real symmetric tridiagonal form, one per lane, and the
// back-transformation of eigenvectors.
//
// The Householder reflectors are those of LAPACK's hetd2. One pass applies the rank-2 update of a
// step and multiplies by the next reflector's vector (Dongarra, Sorensen and Hammarling, 1989).
// Passes run along rows in registers of `Row`: V itself with one matrix per lane, or several
// columns of one matrix.
#pragma once

#include "kernels/arithmetic/columns.h"
#include "kernels/arithmetic/tridiagonal.h"

namespace linalg::small {

// Calls body(std::integral_constant<int, kBlock>, first) for blocks that cover [first, last), the
// largest ones first.
template <int kBlock, class Body>
LINALG_INLINE void ForEachHalvingBlock(int first, int last, Body&& body) {
  for (; first + kBlock <= last; first += kBlock) {
    body(std::integral_constant<int, kBlock>(), first);
  }
  if constexpr (kBlock > 1) ForEachHalvingBlock<kBlock / 2>(first, last, body);
}

// term(first, 0) + term(first + 1, 0) + ..., where term(i, sum) adds a term to a sum. Several sums
// hide the latency of a chain. For one matrix, whose columns a Row holds, the sums are in one
// register.
template <class V, class Row = V, class Term>
LINALG_INLINE V SumOf(int first, int last, Term&& term) {
  constexpr int kSums = 4;
  V sum[kSums] = {};
  int i = first;
  if constexpr (kLanesOf<Row> > kLanesOf<V>) {
    using Sums = Vector<V, kSums>;
    Sums sums{};
    for (; i + kSums <= last; i += kSums) sums = term(i, sums);
    StoreUnaligned(sums, sum);
  } else {
    for (; i + kSums <= last; i += kSums) {
#pragma GCC unroll 4
      for (int k = 0; k < kSums; ++k) sum[k] = term(i + k, sum[k]);
    }
  }
  for (; i < last; ++i) sum[0] = term(i, sum[0]);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// Makes row k of `a` the vector v of the reflector I - tau v vᴴ. Its adjoint takes column k below
// the diagonal to a real `e` times the first unit vector. The column is the adjoint of the stored
// row.
template <class E, class Row>
LINALG_INLINE void TridiagonalReflector(SplitRows<E, Row> a, int n, int k, RealElement<E>& e,
                                        E& tau) {
  using V = RealElement<E>;
  const SplitRows<E, Row> v = a.Below(k);
  const V rest = SumOf<V>(k + 2, n, [&](int j, V sum) { return NormAdd(v.Get(j), sum); });
  const TridiagonalScale<E> made(Conj(v.Get(k + 1)), rest);
  e = made.beside;
  tau = made.tau;
  for (int j = k / kColumns<V, Row> * kColumns<V, Row>; j <= k; ++j) v.Set(j, E{});
  v.Set(k + 1, FromReal<E>(Broadcast<V>(1)));
  for (int j = k + 2; j < n; ++j) v.Set(j, ConjMulAdd(v.Get(j), made.scale, E{}));
}

inline constexpr int kTridiagonaliseWorkRows = 3;

// Reduces `a`, given both triangles. d receives the diagonal, e the n - 1 off-diagonal elements.
// Row k of `a` becomes the vector of reflector k, and tau[k] its factor. `work` has
// kTridiagonaliseWorkRows rows of zeros.
template <class E, class Row>
LINALG_ONCE void Tridiagonalise(SplitRows<E, Row> a, int n, SplitRows<E, Row> work,
                                RealElement<E>* d, RealElement<E>* e, E* tau) {
  using V = RealElement<E>;
  using F = RowElement<E, Row>;
  constexpr int kStep = kColumns<V, Row>;
  constexpr int kBlocks = kComplexElement<E> ? 2 : 4;
  const int columns = PaddedColumns<V, Row>(n);
  const SplitRows<E, Row> w = work, product = work.Below(1);
  // The previous reflector's vector, whose update a - v wᴴ - w vᴴ is pending.
  SplitRows<E, Row> v = work.Below(2);
  const auto update = [&](SplitRows<E, Row> row, int i, int j) {
    const F x = NegMulAdd(Widen<Row>(v.Get(i)), Conj(w.Load(j)), row.Load(j));
    row.Store(j, NegMulAdd(Widen<Row>(w.Get(i)), Conj(v.Load(j)), x));
  };
  for (int k = 0; k < n; ++k) {
    const SplitRows<E, Row> u = a.Below(k);
    if (k > 0) {
      for (int j = k / kStep * kStep; j < columns; j += kStep) update(u, k, j);
    }
    d[k] = u.re[k];
    if (k >= ReflectorCount<E>(n)) {
      if (k + 1 < n) e[k] = u.re[k + 1];
      continue;
    }
    TridiagonalReflector(a, n, k, e[k], tau[k]);
    ForEachHalvingBlock<kBlocks>((k + 1) / kStep, columns / kStep, [&](auto block, int first) {
      constexpr int kBlock = decltype(block)::value;
      F vj[kBlock], wj[kBlock], sum[kBlock];
#pragma GCC unroll 4
      for (int b = 0; b < kBlock; ++b) {
        vj[b] = Conj(v.Load((first + b) * kStep));
        wj[b] = Conj(w.Load((first + b) * kStep));
        sum[b] = F{};
      }
      for (int i = k + 1; i < n; ++i) {
        const SplitRows<E, Row> row = a.Below(i);
        const F vi = Widen<Row>(v.Get(i)), wi = Widen<Row>(w.Get(i)), ui = Widen<Row>(u.Get(i));
#pragma GCC unroll 4
        for (int b = 0; b < kBlock; ++b) {
          const int j = (first + b) * kStep;
          const F x = NegMulAdd(wi, vj[b], NegMulAdd(vi, wj[b], row.Load(j)));
          row.Store(j, x);
          sum[b] = ConjMulAdd(x, ui, sum[b]);
        }
      }
#pragma GCC unroll 4
      for (int b = 0; b < kBlock; ++b) product.Store((first + b) * kStep, sum[b]);
    });
    // w = tau a u + c u. This c makes the update equal to the reflection from both sides.
    const V dot =
        SumOf<V>(k + 1, n, [&](int j, V sum) { return RealDotAdd(product.Get(j), u.Get(j), sum); });
    const V c = ReflectedShare(tau[k], dot);
    for (int j = (k + 1) / kStep * kStep; j < columns; j += kStep) {
      const F x = Widen<Row>(c) * u.Load(j);
      w.Store(j, NegMulAdd(Widen<Row>(-tau[k]), product.Load(j), x));
    }
    for (int j = (k + 1) / kStep * kStep; j <= k; ++j) w.Set(j, E{});
    v = u;
  }
}

// z := Q z, where Q is the product of the reflectors in `a` and `tau` from Tridiagonalise.
template <class E, class Row>
LINALG_INLINE void ApplyReflectors(SplitRows<E, Row> a, const E* tau, int n, SplitRows<E, Row> z) {
  using V = RealElement<E>;
  using F = RowElement<E, Row>;
  constexpr int kStep = kColumns<V, Row>;
  ForEachHalvingBlock<kComplexElement<E> ? 4 : 8>(
      0, PaddedColumns<V, Row>(n) / kStep, [&](auto block, int first) {
        constexpr int kBlock = decltype(block)::value;
        for (int k = ReflectorCount<E>(n) - 1; k >= 0; --k) {
          const SplitRows<E, Row> v = a.Below(k);
          F sum[kBlock] = {};
          for (int i = k + 1; i < n; ++i) {
            const F vi = Widen<Row>(v.Get(i));
#pragma GCC unroll 8
            for (int b = 0; b < kBlock; ++b) {
              sum[b] = ConjMulAdd(vi, z.Below(i).Load((first + b) * kStep), sum[b]);
            }
          }
#pragma GCC unroll 8
          for (int b = 0; b < kBlock; ++b) sum[b] = NegMulAdd(Widen<Row>(-tau[k]), sum[b], F{});
          for (int i = k + 1; i < n; ++i) {
            const F vi = Widen<Row>(v.Get(i));
#pragma GCC unroll 8
            for (int b = 0; b < kBlock; ++b) {
              const int j = (first + b) * kStep;
              z.Below(i).Store(j, NegMulAdd(vi, sum[b], z.Below(i).Load(j)));
            }
          }
        }
      });
}

}  // namespace linalg::small
