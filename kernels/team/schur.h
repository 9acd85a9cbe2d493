// Schur form A = Z T Zᴴ of general matrices by a team of threads. Hessenberg form is followed by
// the QR iteration with implicit shifts and LAPACK's criteria (lahqr; Golub and Van Loan, Matrix
// Computations, 4th ed., 7.5).
//
// Real matrices take two shifts at a time, so that T is real, with blocks of order 2 as LAPACK has
// them. A step moves the bulge by a reflector of two or three elements. Every thread computes the
// reflector itself. The threads share the columns and rows that it changes.
#pragma once

#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/reflector.h"
#include "kernels/arithmetic/rotation.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/arithmetic/schur_step.h"
#include "kernels/team/balance.h"
#include "kernels/team/hessenberg.h"
#include "kernels/team/largest.h"

namespace linalg::team {

// The workspace of Schur.
template <class E>
struct SchurWork {
  E* z;  // 1 + n ld elements; the operand begins at the second one, and Z replaces it
  E* t;  // n ld, if Z is wanted; else T's blocks take the operand's place
  int ld;
  E* taus;     // n
  E* partial;  // one for each thread

  LINALG_INLINE E* Input() const { return z + 1; }
};

// The QR iteration on a Hessenberg matrix h of norm near 1.
template <bool kVectors, class Team, class E>
class QrIteration {
  using V = RealElement<E>;
  using Shift = Complex<V>;
  static constexpr bool kComplex = kComplexElement<E>;

 public:
  // If kVectors is true, makes all of T and multiplies z by the reflectors. Otherwise it makes only
  // T's diagonal blocks.
  LINALG_TEAM QrIteration(const Team& team, int n, E* h, int ld, E* z)
      : team_(team), n_(n), ld_(ld), h_(h), z_(z) {}

  // Returns 0, or the 1-based index of the last row of the block that did not converge.
  LINALG_TEAM int Run() const {
    const int limit = SchurStepLimit(n_);
    int end = n_ - 1, since = 0;
    for (int step = 0; step < limit && end >= 0; ++step) {
      const int first = BlockBegin(end);
      if (first > end - (kBulge<E> - 1)) {
        Deflate(first, end);
        end = first - 1;
        since = 0;
      } else {
        ++since;
        Sweep(first, end, ChooseShift(first, end, since));
      }
    }
    return end + 1;
  }

  // The first row of the block without negligible elements below the diagonal that ends at `end`.
  LINALG_TEAM int BlockBegin(int end) const {
    return LastOf(0, end, [&](int k) { return IsNegligible(k); });
  }

 private:
  LINALG_TEAM E& At(int i, int j) const { return h_[i * ld_ + j]; }
  LINALG_TEAM V Size(int i, int j) const { return Magnitude(At(i, j)); }

  LINALG_TEAM bool IsNegligible(int k) const {
    const V further = (k >= 2 ? Size(k - 1, k - 2) : V(0)) + (k + 1 < n_ ? Size(k + 1, k) : V(0));
    return linalg::IsNegligible(n_, At(k - 1, k - 1), At(k - 1, k), At(k, k - 1), At(k, k),
                                further);
  }

  // The largest k in (first, last] for which holds(k), else `first`.
  template <class Holds>
  LINALG_TEAM int LastOf(int first, int last, Holds&& holds) const {
    return team_
        .template Best<V>([&](int thread) {
          Candidate<V> best{static_cast<V>(first), first};
          for (int k = first + 1 + thread; k <= last; k += team_.size()) {
            if (holds(k)) best = {static_cast<V>(k), k};
          }
          return best;
        })
        .index;
  }

  // One eigenvalue, or a block of two.
  LINALG_TEAM void Deflate(int first, int end) const {
    E block[4] = {};
    if (!kComplex && first < end) {
      block[0] = At(first, first), block[1] = At(first, end);
      block[2] = At(end, first), block[3] = At(end, end);
    }
    team_.Phase([&](int) {});  // every thread has read the block
    team_.Phase([&](int thread) {
      if (thread == 0 && first > 0) At(first, first - 1) = E{};
      if constexpr (!kComplex) {
        if (first == end) return;
        const StandardBlock<V> standard(block[0], block[1], block[2], block[3]);
        if (thread == 0) {
          At(first, first) = standard.a, At(first, end) = standard.b;
          At(end, first) = standard.c, At(end, end) = standard.d;
        }
        if constexpr (kVectors) {
          const auto rotate = [&](E& x, E& y) { Rotate(standard.cosine, -standard.sine, x, y); };
          for (int j = end + 1 + thread; j < n_; j += team_.size())
            rotate(At(first, j), At(end, j));
          for (int i = thread; i < first; i += team_.size()) rotate(At(i, first), At(i, end));
          for (int i = thread; i < n_; i += team_.size()) {
            rotate(z_[i * ld_ + first], z_[i * ld_ + end]);
          }
        }
      }
    });
  }

  LINALG_TEAM Shift ChooseShift(int first, int end, int since) const {
    if (since % kExceptionalStep == 0) {
      if (since % (2 * kExceptionalStep) != 0) {
        const V next = kComplex ? V(0) : Size(first + 2, first + 1);
        return ExceptionalShift(At(first, first), Size(first + 1, first) + next);
      }
      const V next = kComplex ? V(0) : Size(end - 1, end - 2);
      return ExceptionalShift(At(end, end), Size(end, end - 1) + next);
    }
    return ShiftOf(At(end - 1, end - 1), At(end - 1, end), At(end, end - 1), At(end, end));
  }

  LINALG_TEAM void StartVector(int m, Shift shift, E* v) const {
    const E below = kComplex ? E{} : At(m + 2, m + 1);
    linalg::StartVector(At(m, m), At(m, m + 1), At(m + 1, m), At(m + 1, m + 1), below, shift, v);
  }

  LINALG_TEAM bool MayStart(int m, Shift shift) const {
    E v[kBulge<E>];
    StartVector(m, shift, v);
    const V before = kComplex ? V(0) : Size(m - 1, m - 1);
    return linalg::MayStart(v, Size(m, m - 1), Size(m, m) + Size(m + 1, m + 1) + before);
  }

  LINALG_TEAM void Sweep(int first, int end, Shift shift) const {
    const int start =
        LastOf(first, end - (kBulge<E> - 1), [&](int m) { return MayStart(m, shift); });
    E v[kBulge<E>];
    StartVector(start, shift, v);
    team_.Phase([&](int thread) {  // every thread has read what it needs
      if (thread == 0 && first > 0) At(first, first - 1) = E{};
    });
    const int first_row = kVectors ? 0 : first, last_col = kVectors ? n_ - 1 : end;
    for (int k = start; k < end; ++k) {
      const int count = end - k + 1 < kBulge<E> ? end - k + 1 : kBulge<E>;
      if (k > start) {
        for (int i = 0; i < kBulge<E>; ++i) v[i] = i < count ? At(k + i, k - 1) : E{};
      }
      E unit[kBulge<E>];
      const E tau = linalg::MakeReflector(v, 1, kBulge<E>, unit), beta = v[0];
      team_.Phase([&](int thread) {  // rows, except the column of the reflector
        const Bulge bulge(unit, Conj(tau));
        for (int j = k + thread; j <= last_col; j += team_.size()) {
          bulge.Apply(count, &At(k, j), ld_);
        }
      });
      for (int i = 1; i < kBulge<E>; ++i) unit[i] = Conj(unit[i]);
      team_.Phase([&](int thread) {  // columns
        const Bulge bulge(unit, tau);
        const int last_row = k + kBulge<E> < end ? k + kBulge<E> : end;
        for (int i = first_row + thread; i <= last_row; i += team_.size()) {
          bulge.Apply(count, &At(i, k), 1);
        }
        if constexpr (kVectors) {
          for (int i = thread; i < n_; i += team_.size()) bulge.Apply(count, z_ + i * ld_ + k, 1);
        }
        if (thread != 0) return;
        if (k > start) {
          At(k, k - 1) = beta;
          for (int i = 1; i < kBulge<E>; ++i) {
            if (i < count) At(k + i, k - 1) = E{};
          }
        } else if (k > first) {
          At(k, k - 1) = Mul(FromReal<E>(V(1)) - Conj(tau), At(k, k - 1));
        }
      });
    }
  }

  const Team& team_;
  int n_, ld_;
  E* h_;
  E* z_;
};

// QrIteration as an argument of Schur.
struct PlainIteration {
  template <bool kVectors, class Team, class E>
  LINALG_TEAM int Run(const Team& team, int n, E* h, int ld, E* z) const {
    return QrIteration<kVectors, Team, E>(team, n, h, ld, z).Run();
  }
};

// Makes T in work.t and Z in work.z from the operand. Without kVectors only T's diagonal blocks are
// made, in the operand's place.
//
// T is that of A / unscale. If `balanced` has memory, A is balanced first, and T is the balanced
// matrix's. Returns 0, -1 for a matrix that is not finite, or the result of the iteration.
template <bool kVectors, class Iteration, class Team, class E>
LINALG_TEAM int Schur(const Team& team, int n, const SchurWork<E>& work, const Iteration& iteration,
                      Balanced<RealElement<E>> balanced, RealElement<E>& unscale) {
  using V = RealElement<E>;
  E* const a = work.Input();
  const int ld = work.ld;
  const Grid grid = RowGrid(team);
  const V largest = LargestComponent<V>(team, n * n, [&](int e) { return a[e / n * ld + e % n]; });
  if (!IsFinite(largest)) return kNotFinite;
  const V scale = PowerOfTwoScale(largest, unscale);
  team.Phase([&](int thread) {
    ForEachElement(grid, thread, 0, n, 0, n,
                   [&](int i, int j) { a[i * ld + j] = scale * a[i * ld + j]; });
  });
  if (balanced.diagonal != nullptr) Balance(team, n, a, ld, balanced);
  Hessenberg(team, n, a, ld, work.taus, work.partial);
  E* const t = kVectors ? work.t : a;
  team.Phase([&](int thread) {
    ForEachElement(grid, thread, 0, n, 0, n, [&](int i, int j) {
      if (i > j + 1) {
        t[i * ld + j] = E{};
      } else if constexpr (kVectors) {
        t[i * ld + j] = a[i * ld + j];
      }
    });
  });
  if constexpr (kVectors) {
    // Makes Q without its first row and column, one column to the left of its place.
    HessenbergVectors(team, n, a, ld, work.taus, work.partial);
    team.Phase([&](int thread) {
      for (int i = thread; i < n; i += team.size()) {
        work.z[i] = FromReal<E>(V(i == 0));
        if (i > 0) work.z[i * ld] = E{};
      }
    });
  }
  return iteration.template Run<kVectors>(team, n, t, ld, work.z);
}

// A's T as Schur leaves it, times the power of two by which A was divided.
template <class E>
struct SchurForm {
  Outcome<E> outcome;
  RealElement<E> unscale;

  LINALG_INLINE E operator()(int i, int j) const { return unscale * outcome(i, j); }
};

// T, Z and the info.
template <class E>
struct SchurOutcome {
  SchurForm<E> form;
  Outcome<E> vectors;
  int info;
};

// A = Z T Zᴴ for A = work.Input(), which is not balanced.
template <class Team, class E, class Iteration>
LINALG_TEAM SchurOutcome<E> SchurFactors(const Team& team, int n, const SchurWork<E>& work,
                                         const Iteration& iteration) {
  using V = RealElement<E>;
  V unscale = V(1);
  const int info = Schur<true>(team, n, work, iteration, Balanced<V>{}, unscale);
  return {.form = {.outcome = {.a = work.t, .ld = work.ld, .info = info}, .unscale = unscale},
          .vectors = {.a = work.z, .ld = work.ld, .info = info},
          .info = info};
}

}  // namespace linalg::team
