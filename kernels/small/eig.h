// Eigenvalues and eigenvectors of small general matrices, one per lane, from their Schur form.
#pragma once

#include <algorithm>

#include "kernels/small/eigenvectors.h"
#include "kernels/small/schur.h"

namespace linalg::small {

// The workspace of Eig, in an array of V.
template <class E>
struct EigWork {
  using V = RealElement<E>;
  using C = Complex<V>;

  EigWork(V* memory, int64_t n, bool with_left, bool with_right)
      : schur(memory, n, with_left || with_right) {
    Arena<V> arena(schur.end);
    values = arena.template Take<C>(n);
    x = arena.template Take<C>(2 * n);
    left = with_left ? arena.template Take<E>(n * n) : nullptr;
    right = with_right ? schur.z : nullptr;
    end = arena.Next();
  }

  SchurWork<E> schur;  // holds the operand in schur.t, row-major
  C* values;
  C* x;
  E *left, *right;  // null if they are not wanted
  V* end;
};

// Computes the eigenvalues of work.schur.t in work.values, and the wanted eigenvectors, which
// EigenvectorRow reads. Returns Schur's info. Results are NaN in the lanes where it is not 0.
template <bool kVectors, class E>
LINALG_INLINE RealElement<E> Eig(const EigWork<E>& work, int n) {
  using V = RealElement<E>;
  using C = Complex<V>;
  const V zero{};
  E* const t = work.schur.t;
  Balanced<V> balanced;
  V unscale;
  const V info = Schur<kVectors>(work.schur, n, true, balanced, unscale);
  for (int k = 0; k < n; ++k) {
    C value = {Re(t[k * n + k]), zero};
    if constexpr (kComplexElement<E>) {
      value.im = t[k * n + k].im;
    } else {
      const auto imaginary = [&](int i) {
        return PairImaginary(t[i * n + i + 1], t[(i + 1) * n + i]);
      };
      if (k + 1 < n) value.im = imaginary(k);
      if (k > 0) value.im = value.im - imaginary(k - 1);
    }
    // Adds zero, here and below: an idle lane does not keep the signs of its zeros.
    work.values[k] = {MulAdd(value.re, unscale, zero), MulAdd(value.im, unscale, zero)};
  }
  FillNaN(info != zero, n, work.values);
  if constexpr (kVectors) {
    E* const z = work.schur.z;
    if (work.left) {
      std::copy(z, z + n * n, work.left);
      Eigenvectors<true, E>(n, t, work.schur.diagonal, work.x).Run(work.left);
    }
    if (work.right) Eigenvectors<false, E>(n, t, work.schur.diagonal, work.x).Run(z);
    RestoreRows(n, balanced, work.left, work.right);
  }
  return info;
}

// Row i of the eigenvectors as complex numbers, or NaN where `info` is not 0.
template <class E>
LINALG_INLINE void EigenvectorRow(int n, const E* t, const E* vectors, RealElement<E> info, int i,
                                  Complex<RealElement<E>>* row) {
  using V = RealElement<E>;
  const V zero{};
  const E* const from = vectors + i * n;
  if constexpr (kComplexElement<E>) {
    for (int k = 0; k < n; ++k) row[k] = from[k] + E{};
  } else {
    const auto below = [&](int k) {
      return k >= 0 && k + 1 < n ? t[(k + 1) * n + k] != zero : Mask<V>{};
    };
    for (int k = 0; k < n; ++k) {
      const auto first = below(k), second = below(k - 1);
      const V re = from[k], before = k > 0 ? from[k - 1] : zero,
              after = k + 1 < n ? from[k + 1] : zero;
      row[k] = {(second ? before : re) + zero, (first ? after : second ? -re : zero) + zero};
    }
  }
  FillNaN(info != zero, n, row);
}

}  // namespace linalg::small
