// Schur form of small general matrices, one per lane, A = Z T Zᴴ: Hessenberg form, then the QR
// iteration with the steps of kernels/arithmetic/schur_step.h.
//
// Each lane iterates on its own block with its own shifts, and is idle while others work. A
// permutation isolates eigenvalues that need no iteration. The matrix is scaled by a power of two
// to a norm near 1. Blocks of order 2 of real matrices are standardised at the end, in all lanes at
// once.
#pragma once

#include <algorithm>

#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/rotation.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/arithmetic/schur_step.h"
#include "kernels/small/arena.h"
#include "kernels/small/balance.h"
#include "kernels/small/hessenberg.h"

namespace linalg::small {

// The QR iteration on row-major Hessenberg matrices h of a norm near 1, in place. On the CPU, the
// long functions are not inlined, which halves the compile time.
template <bool kVectors, class E>
class QrIteration {
  using V = RealElement<E>;
  using Shift = Complex<V>;
  static constexpr bool kComplex = kComplexElement<E>;
  // A block is iterated on if it has at least this many rows after its first.
  static constexpr int kMore = kBulge<E> - 1;

 public:
  // kVectors computes all of T and multiplies z by the reflectors. Otherwise only T's diagonal
  // blocks are computed.
  LINALG_INLINE QrIteration(int n, E* h, E* z) : n_(n), h_(h), z_(z) {}

  // Returns 0, or the 1-based index of the last row of the block that did not converge.
  V Run() {
    end_ = Number<V>(n_ - 1);
    last_ = n_ - 1;
    since_ = V{};
    for (int step = 0; FindBlocks(); ++step) {
      if (step == SchurStepLimit(n_)) break;
      Sweep();
    }
    if constexpr (!kComplex) Standardise();
    return end_ + Number<V>(1);
  }

 private:
  LINALG_INLINE E& At(int i, int j) const { return h_[i * n_ + j]; }
  LINALG_INLINE V Size(int i, int j) const { return Magnitude(At(i, j)); }
  LINALG_INLINE V SizeBelow(int k) const { return k > 0 && k < n_ ? Size(k, k - 1) : V{}; }

  // Finds each lane's last block that is not deflated, rows first_ to end_; end_ is -1 if there is
  // none. last_ is the largest end_. Returns whether there is any block.
  bool FindBlocks() {
    first_ = V{};
    auto searching = end_ >= V{};
    bool deflated = false;
    for (int k = last_; k > 0; --k) {
      const V here = Number<V>(k);
      const auto negligible = searching & (here <= end_) &
                              IsNegligible(n_, At(k - 1, k - 1), At(k - 1, k), At(k, k - 1),
                                           At(k, k), SizeBelow(k - 1) + SizeBelow(k + 1));
      if (!Any(negligible)) continue;
      At(k, k - 1) = Choose(negligible, E{}, At(k, k - 1));
      const auto whole = negligible & (end_ - here < Number<V>(kMore));
      const auto open = negligible & (end_ - here >= Number<V>(kMore));
      end_ = whole ? here - Number<V>(1) : end_;
      since_ = whole ? V{} : since_;
      first_ = open ? here : first_;
      searching = open ? Mask<V>{} : Mask<V>(searching);
      deflated = true;
    }
    const auto done = searching & (end_ < Number<V>(kMore));
    end_ = done ? Number<V>(-1) : end_;
    if (deflated || Any(done)) {
      while (last_ >= 0 && !Any(end_ >= Number<V>(last_))) --last_;
    }
    return last_ >= 0;
  }

  Shift ChooseShift() {
    E a{}, b{}, c{}, d{};
    for (int k = kMore; k <= last_; ++k) {
      const auto here = end_ == Number<V>(k);
      a = Choose(here, At(k - 1, k - 1), a);
      b = Choose(here, At(k - 1, k), b);
      c = Choose(here, At(k, k - 1), c);
      d = Choose(here, At(k, k), d);
    }
    const Shift usual = ShiftOf(a, b, c, d);
    since_ = since_ == Number<V>(2 * kExceptionalStep) ? Number<V>(1) : since_ + Number<V>(1);
    const auto at_first = since_ == Number<V>(kExceptionalStep);
    const auto at_end = since_ == Number<V>(2 * kExceptionalStep);
    const auto exceptional = (end_ >= V{}) & (at_first | at_end);
    if (!Any(exceptional)) return usual;
    E diagonal{};
    V size{};
    for (int k = 0; k <= last_; ++k) {
      const auto begins = at_first & (first_ == Number<V>(k)),
                 ends = at_end & (end_ == Number<V>(k));
      diagonal = Choose(Mask<V>(begins | ends), At(k, k), diagonal);
      const V below = SizeBelow(k + 1), above = SizeBelow(k);
      size = begins ? (kComplex ? below : below + SizeBelow(k + 2))
             : ends ? (kComplex ? above : above + SizeBelow(k - 1))
                    : size;
    }
    return Choose(exceptional, ExceptionalShift(diagonal, size), usual);
  }

  // Finds the row where each lane's bulge starts, and its start vector. Idle lanes have row n.
  // Returns the least of the rows.
  int ChooseStart(Shift shift, E* vector) {
    start_ = Number<V>(n_);
    for (int i = 0; i < kBulge<E>; ++i) vector[i] = E{};
    auto searching = end_ >= V{};
    int least = last_;
    for (int m = last_ - kMore; m >= 0; --m) {
      const V here = Number<V>(m);
      const auto on = searching & (here <= end_ - Number<V>(kMore)) & (here >= first_);
      if (!Any(on)) {
        if (!Any(searching)) break;
        continue;
      }
      E v[kBulge<E>];
      StartVector(At(m, m), At(m, m + 1), At(m + 1, m), At(m + 1, m + 1),
                  kComplex ? E{} : At(m + kMore, m + 1), shift, v);
      auto starts = here == first_;
      if (m > 0) {
        const V before = kComplex ? V{} : Size(m - 1, m - 1);
        starts = starts | MayStart(v, Size(m, m - 1), Size(m, m) + Size(m + 1, m + 1) + before);
      }
      starts = on & starts;
      start_ = starts ? here : start_;
      for (int i = 0; i < kBulge<E>; ++i) vector[i] = Choose(Mask<V>(starts), v[i], vector[i]);
      searching = starts ? Mask<V>{} : Mask<V>(searching);
      if (Any(starts)) least = m;
    }
    return least;
  }

  void Sweep() {
    const Shift shift = ChooseShift();
    E vector[kBulge<E>];
    const int least = ChooseStart(shift, vector);
    // Without vectors, rows above all blocks need no update.
    int first_row = 0;
    if (!kVectors) {
      const auto works = end_ >= V{};
      while (first_row < least && !Any(works & (first_ <= Number<V>(first_row)))) ++first_row;
    }
    for (int k = least; k < last_; ++k) {
      if (k + kMore < n_) {
        Step<kBulge<E>>(k, first_row, vector);
      } else if constexpr (!kComplex) {
        Step<kBulge<E> - 1>(k, first_row, vector);
      }
    }
  }

  // Moves the bulges from row k by a reflector of kCount rows, or one row less at the end of a
  // block.
  template <int kCount>
  void Step(int k, int first_row, const E* vector) {
    const V here = Number<V>(k);
    const auto starts = start_ == here;
    const auto moves = (start_ < here) & (end_ > here);
    const auto on = starts | moves;
    if (!Any(on)) return;
    const auto narrow = end_ < Number<V>(k + kBulge<E> - 1);
    const E one = FromReal<E>(Number<V>(1));
    // Idle lanes reflect the constant 1, which is no rare case for MakeReflector. That may change
    // the signs of zeros, which must not decide here: zero is added.
    E x[kBulge<E>], v[kBulge<E>];
    for (int i = 0; i < kBulge<E>; ++i) {
      x[i] = E{};
      if (i >= kCount) continue;
      if (k > 0) x[i] = At(k + i, k - 1);
      x[i] = Choose(starts, vector[i], x[i]);
      if (i == kBulge<E> - 1) x[i] = Choose(narrow, E{}, x[i]);
      x[i] = Choose(Mask<V>(on), x[i], one) + E{};
    }
    E tau = MakeReflector(x, 1, kBulge<E>, v);
    tau = Choose(Mask<V>(on), tau, E{});
    if (k > 0) {
      E& beside = At(k, k - 1);
      const E scaled = Mul(one - Conj(tau), beside);
      beside = Choose(moves, x[0], Choose(Mask<V>(starts & (first_ < here)), scaled, beside));
      for (int i = 1; i < kCount; ++i) {
        At(k + i, k - 1) = Choose(moves, E{}, At(k + i, k - 1));
      }
    }
    const int last_col = kVectors ? n_ - 1 : last_;
    const Bulge<E> rows(v, Conj(tau));
    for (int j = k; j <= last_col; ++j) rows.Apply(kCount, &At(k, j), n_);
    for (int i = 1; i < kBulge<E>; ++i) v[i] = Conj(v[i]);
    const Bulge<E> columns(v, tau);
    const int last_row = std::min(k + kBulge<E>, last_);
    for (int i = first_row; i <= last_row; ++i) columns.Apply(kCount, &At(i, k), 1);
    if constexpr (kVectors) {
      for (int i = 0; i < n_; ++i) columns.Apply(kCount, z_ + i * n_ + k, 1);
    }
  }

  void Standardise() {
    for (int k = 0; k + 1 < n_; ++k) {
      if (!Any(At(k + 1, k) != V{})) continue;
      const StandardBlock<V> standard(At(k, k), At(k, k + 1), At(k + 1, k), At(k + 1, k + 1));
      At(k, k) = standard.a, At(k, k + 1) = standard.b;
      At(k + 1, k) = standard.c, At(k + 1, k + 1) = standard.d;
      if constexpr (kVectors) {
        const auto rotate = [&](E& x, E& y) { Rotate(standard.cosine, -standard.sine, x, y); };
        for (int j = k + 2; j < n_; ++j) rotate(At(k, j), At(k + 1, j));
        for (int i = 0; i < k; ++i) rotate(At(i, k), At(i, k + 1));
        for (int i = 0; i < n_; ++i) rotate(z_[i * n_ + k], z_[i * n_ + k + 1]);
      }
    }
  }

  int n_;
  E* h_;
  E* z_;
  // The state of each lane: the rows of its block, the row where its bulge starts, and its steps
  // since a deflation. end_ is -1 when all eigenvalues are found. These count up to twice
  // kExceptionalStep.
  V first_, end_, start_, since_;
  int last_;  // the largest end_
};

// The workspace of the Schur form, in an array of V.
template <class E>
struct SchurWork {
  using V = RealElement<E>;

  SchurWork(V* memory, int64_t n, bool vectors) {
    Arena<V> arena(memory);
    t = arena.template Take<E>(n * n);
    z = arena.template Take<E>(vectors ? n * n : 0);
    reflectors = arena.template Take<E>(n * n);
    taus = arena.template Take<E>(n);
    diagonal = arena.Take(n);
    order = arena.Take(n);
    end = arena.Next();
  }

  E *t, *z;  // the operand in t, row-major
  E *reflectors, *taus;
  V *diagonal, *order, *end;
};

// Computes T / unscale in work.t and Z in work.z, or without kVectors only T's diagonal blocks.
// They are those of D⁻¹ Pᵀ A P D as described by `balanced`, with D = 1 unless `scaled`. Returns 0,
// -1 in the lanes whose matrix holds NaN or Inf, or the result of QrIteration::Run.
template <bool kVectors, class E, class V = RealElement<E>>
LINALG_ONCE V Schur(const SchurWork<E>& work, int n, bool scaled, Balanced<V>& balanced,
                    V& unscale) {
  E* const t = work.t;
  Extent<E> extent;
  for (int i = 0; i < n * n; ++i) extent.Add(t[i]);
  const auto finite = extent.Finite();
  const V scale = extent.Scale(unscale);
  for (int i = 0; i < n * n; ++i) t[i] = Choose(finite, scale * t[i], E{});
  balanced.diagonal = work.diagonal;
  balanced.order = work.order;
  Permute(t, n, balanced);
  if (scaled) Scale(t, n, balanced);
  Hessenberg<E>(t, n, work.reflectors, work.taus);
  if constexpr (kVectors) HessenbergVectors<E>(work.z, n, work.reflectors, work.taus);
  const V info = QrIteration<kVectors, E>(n, t, work.z).Run();
  return finite ? info : Broadcast<V>(kNotFinite);
}

// Computes T and Z of A in place. Returns info; results are NaN where it is not 0.
template <class E>
LINALG_INLINE RealElement<E> SchurForm(const SchurWork<E>& work, int n) {
  using V = RealElement<E>;
  Balanced<V> balanced;
  V unscale;
  const V info = Schur<true>(work, n, false, balanced, unscale);
  // Adds zero: an idle lane does not keep the signs of its zeros.
  for (int i = 0; i < n * n; ++i) {
    work.t[i] = unscale * work.t[i] + E{};
    work.z[i] = work.z[i] + E{};
  }
  RestoreRows(n, balanced, work.z);
  FillNaN(info != V{}, n * n, work.t);
  FillNaN(info != V{}, n * n, work.z);
  return info;
}

}  // namespace linalg::small
