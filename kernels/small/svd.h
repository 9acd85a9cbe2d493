// Singular values and vectors of small matrices of any shape, one per lane. The method for square
// matrices is a parameter: jacobi_svd.h or qr_svd.h.
//
// A tall matrix is replaced by the R of its QR factorisation, a wide one by its adjoint. Matrices
// are scaled by a power of two to a norm near 1.
#pragma once

#include <algorithm>

#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/small/arena.h"
#include "kernels/small/householder.h"
#include "kernels/small/mul_sub.h"

namespace linalg::small {

// The workspace of Svd, in an array of V. kSquare promises square matrices, which takes less memory
// and much less code.
//
// A Method is constructed from an arena, the matrix and n. Once the matrix has been Set, its memory
// is free. Solve computes the singular values, descending, and returns 0 or what did not converge.
// Then the Method gives elements of U and Vᴴ.
template <class Method, bool kSquare = false>
struct SvdWork {
  using E = typename Method::E;
  using V = RealElement<E>;

  // Matrices are `rows` by `cols`. `full` makes the factors U and Vᴴ square.
  LINALG_INLINE SvdWork(V* memory, int rows, int cols, bool full)
      : SvdWork(Arena<V>(memory), std::max(rows, cols), std::min(rows, cols), full) {}

  // The row-major operand, then the factors. U ends in `left` and Vᴴ in `right`. For a wide matrix,
  // U ends in `right` and Vᴴ in `left`.
  E *matrix, *left, *right;
  E *q, *reflectors, *taus;
  Method method;
  V *s, *end;

 private:
  LINALG_INLINE SvdWork(Arena<V> arena, int64_t m, int64_t n, bool full)
      : matrix(arena.template Take<E>(Method::kMargin + m * n) + Method::kMargin),
        left(arena.template Take<E>(m * (full ? m : n))),
        right(arena.template Take<E>(n * n)),
        q(arena.template Take<E>(kSquare ? 0 : m * (full ? m : n))),
        reflectors(arena.template Take<E>(m > n ? m * n : 0)),
        taus(arena.template Take<E>(m > n ? n : 0)),
        method(arena, matrix, static_cast<int>(n)),
        s(arena.Take(n)),
        end(arena.Next()) {}
};

// Computes the singular values of work.matrix in work.s, descending. kVectors also computes the
// row-major factors. If rows >= cols, U is in work.left and Vᴴ in work.right; otherwise U is in
// work.right and Vᴴ in work.left. Returns 0, -1 in the lanes whose matrix holds NaN or Inf, or 1 in
// those that did not converge. Results are NaN where it is not 0.
template <bool kVectors, class Method, bool kSquare>
LINALG_INLINE typename Method::V Svd(const SvdWork<Method, kSquare>& work, int rows, int cols,
                                     bool full) {
  using E = typename Method::E;
  using V = typename Method::V;
  const auto& [matrix, left, right, q, reflectors, taus, method, s, end] = work;
  const V zero{}, one = Broadcast<V>(1);
  const bool tall = kSquare || rows >= cols;
  const int m = tall ? rows : cols, n = tall ? cols : rows, width = full ? m : n;
  Extent<E> extent;
  for (int i = 0; i < m * n; ++i) extent.Add(matrix[i]);
  const auto finite = extent.Finite();
  V unscale;
  const V scale = extent.Scale(unscale);
  // The identity replaces matrices that are not finite, since it converges at once.
  const auto at = [&](int i, int j) {
    const E x = scale * (tall ? matrix[i * n + j] : Conj(matrix[j * m + i]));
    return Choose(finite, x, FromReal<E>(i == j ? one : zero));
  };
  if (!kSquare && m > n) {
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) q[i * n + j] = at(i, j);
    }
    HouseholderQr<E>(q, n, m, n, reflectors, taus);
  }
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) method.Set(i, j, !kSquare && m > n ? q[i * n + j] : at(i, j));
  }
  V info = method.template Solve<kVectors>(s);
  info = finite ? info : Broadcast<V>(kNotFinite);
  // Adds zero, here and below: an idle lane does not keep the signs of its zeros.
  for (int i = 0; i < n; ++i) s[i] = MulAdd(s[i], unscale, zero);
  FillNaN(info != zero, n, s);
  if constexpr (kVectors) {
    // For A = Q R, U is Q times the U of R. A wide matrix needs Uᴴ and V.
    const auto at_left = [&](int i, int j) -> E& { return left[tall ? i * width + j : j * m + i]; };
    if (!kSquare && m > n) {
      HouseholderProduct<E>(q, width, m, width, n, reflectors, taus);
      for (int k = 0; k < n; ++k) {
        for (int j = 0; j < n; ++j) right[k * n + j] = -method.U(k, j);
      }
      E* const product = reflectors;  // no longer needed
      std::fill_n(product, m * n, E{});
      MulSub(m, n, n, q, width, right, n, product, n);
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < width; ++j) {
          const E x = (j < n ? product[i * n + j] : q[i * width + j]) + E{};
          at_left(i, j) = tall ? x : Conj(x) + E{};
        }
      }
    } else {
      for (int i = 0; i < n; ++i) {
        for (int j = 0; j < n; ++j) left[i * n + j] = method.U(i, j) + E{};
      }
    }
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        right[i * n + j] = (tall ? method.Vh(i, j) : Conj(method.Vh(j, i))) + E{};
      }
    }
    FillNaN(info != zero, static_cast<int64_t>(m) * width, left);
    FillNaN(info != zero, static_cast<int64_t>(n) * n, right);
  }
  return info;
}

}  // namespace linalg::small
