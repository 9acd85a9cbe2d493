// Singular values and vectors of small matrices of any shape, one per lane, given a method for
// square ones, jacobi_svd.h's or qr_svd.h's.
//
// A tall matrix is replaced by its R of a QR factorisation, a wide one by its adjoint; each is
// scaled by a power of two to a norm near 1.
#pragma once

#include <algorithm>

#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/small/arena.h"
#include "kernels/small/householder.h"
#include "kernels/small/mul_sub.h"

namespace linalg::small {

// What Svd works in, in elements V of memory that it is handed. kSquare says that matrices are
// known to be square, which takes less memory and much less code. A Method is made of what it
// carves, of the matrix, which is free from then on that it has been Set, and of n. Solve makes of
// that matrix the singular values, descending, and returns what did not converge, or 0; then there
// are elements of its factors U and Vᴴ.
template <class Method, bool kSquare = false>
struct SvdWork {
  using E = typename Method::E;
  using V = RealElement<E>;

  // For matrices of `rows` by `cols`, and factors U and Vᴴ that are square or not.
  LINALG_INLINE SvdWork(V* memory, int rows, int cols, bool full)
      : SvdWork(Arena<V>(memory), std::max(rows, cols), std::min(rows, cols), full) {}

  // The operand, row-major, and in the end U and Vᴴ: of a wide matrix, `right` and `left`.
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

// Singular values of work.matrix in work.s, descending. With kVectors also the factors, row-major:
// U in work.left and Vᴴ in work.right, if rows >= cols; otherwise U in work.right and Vᴴ in
// work.left. Returns 0, -1 in the lanes whose matrix holds NaN or Inf, or 1 in those that did not
// converge; the results are NaN there.
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
  // What is not finite is replaced by an identity, which takes no time.
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
  // Zero is added, here and below, because a lane that rests while others work does not keep the
  // sign of its zeros.
  for (int i = 0; i < n; ++i) s[i] = MulAdd(s[i], unscale, zero);
  FillNaN(info != zero, n, s);
  if constexpr (kVectors) {
    // With A = Q R, U is Q times that of R. Of a wide matrix, Uᴴ and V are wanted.
    const auto at_left = [&](int i, int j) -> E& { return left[tall ? i * width + j : j * m + i]; };
    if (!kSquare && m > n) {
      HouseholderProduct<E>(q, width, m, width, n, reflectors, taus);
      for (int k = 0; k < n; ++k) {
        for (int j = 0; j < n; ++j) right[k * n + j] = -method.U(k, j);
      }
      E* const product = reflectors;  // read no more
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
