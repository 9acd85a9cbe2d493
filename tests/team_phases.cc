// The algorithms of kernels/team on the CPU: their threads run one after another, in a chosen
// order.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/team/cholesky.h"
#include "kernels/team/eigenvectors.h"
#include "kernels/team/eigh.h"
#include "kernels/team/hessenberg.h"
#include "kernels/team/lu.h"
#include "kernels/team/schur.h"
#include "kernels/team/svd.h"
#include "kernels/team/triangular.h"
#include "tests/serial_team.h"

namespace linalg::team {
namespace {

template <class E>
int RunCholesky(SerialTeam team, int n, E* a, int ld, bool lower, bool symmetrize) {
  LowerHermitianPart(team, n, a, ld, lower, symmetrize);
  return Cholesky(team, n, a, ld);
}

template <class E>
int RunLu(SerialTeam team, int rows, int cols, E* a, int ld, int* pivots, int* permutation,
          int* again) {
  const int info = Lu(team, rows, cols, a, ld, pivots, permutation);
  PivotsToPermutation(team, rows < cols ? rows : cols, pivots, rows, again);
  return info;
}

template <class E>
void RunSolve(SerialTeam team, int n, E* a, int ld, bool lower, bool transpose, bool conjugate,
              bool unit_diagonal, int cols, E* b, int ldb, const int* pivots, bool back) {
  ApplyOperation(team, n, a, ld, transpose, conjugate);
  if (pivots != nullptr && !back) ApplyPivots(team, n, pivots, false, cols, b, ldb);
  Substitute(team, n, a, ld, lower != transpose, unit_diagonal, cols, b, ldb);
  if (pivots != nullptr && back) ApplyPivots(team, n, pivots, true, cols, b, ldb);
}

template <class E>
void RunDeterminant(int n, const E* lu, int ld, const int* pivots, E* det, E* sign,
                    RealElement<E>* logarithm) {
  auto product = Determinant(n, lu, ld, pivots);
  *det = product.Value();
  product.Normalise();
  *sign = product.Sign();
  *logarithm = product.LogarithmOfMagnitude();
}

// R stands in `r` before Q, of q_cols columns, takes its place in `a`. With `order`, pivoted.
template <class E>
void RunQr(SerialTeam team, int m, int n, int q_cols, E* a, int ld, E* r, E* taus, int* order) {
  using V = RealElement<E>;
  std::vector<E> partial(team.size());
  if (order != nullptr) {
    std::vector<V> norms(n), squares(team.size());
    PivotedQr(team, m, n, a, ld, taus, partial.data(), norms.data(), squares.data(), order);
  } else {
    HouseholderQr(team, m, n, a, ld, taus, partial.data());
  }
  for (int i = 0; i < m * ld; ++i) r[i] = a[i];
  const int count = m < n ? m : n;
  HouseholderProduct(team, m, q_cols, count, a, ld, taus, partial.data());
}

template <class E>
int RunEigh(SerialTeam team, int n, E* a, int ld, bool lower, bool symmetrize, bool vectors, E* v,
            RealElement<E>* values, int* order) {
  using V = RealElement<E>;
  std::vector<Rotation<E>> rotations(PairsOf(n));
  V unscale;
  const int info =
      vectors ? Jacobi<true>(team, n, lower, symmetrize, a, ld, v, rotations.data(), unscale)
              : Jacobi<false>(team, n, lower, symmetrize, a, ld, v, rotations.data(), unscale);
  SortDiagonal(team, n, a, ld, order);
  for (int i = 0; i < n && info == 0; ++i) {
    values[i] = unscale * small::Re(a[order[i] * ld + order[i]]);
  }
  return info;
}

// H stands in `h` before the vectors take its place in `a`.
template <class E>
void RunHessenberg(SerialTeam team, int n, E* a, int ld, E* h) {
  std::vector<E> taus(n), partial(team.size());
  Hessenberg(team, n, a, ld, taus.data(), partial.data());
  for (int i = 0; i < n * ld; ++i) h[i] = a[i];
  HessenbergVectors(team, n, a, ld, taus.data(), partial.data());
}

// U takes the place of `a`, in its first `width` columns; v is n by n.
template <class E>
int RunSvd(SerialTeam team, int m, int n, int width, bool vectors, E* a, int ld, E* v,
           RealElement<E>* values) {
  std::vector<ColumnSums<E>> sums(team.size());
  std::vector<RealElement<E>> norms(n);
  std::vector<int> order(n);
  std::vector<E> taus(n), partial(team.size());
  const SvdWork<E> work{
      a, ld, v, n, sums.data(), values, norms.data(), order.data(), taus.data(), partial.data()};
  return vectors ? JacobiSvd<true>(team, m, n, width, work)
                 : JacobiSvd<false>(team, m, n, width, work);
}

// T and Z, of a matrix that is balanced first if there is a `diagonal`, and what T is to be
// multiplied by. `values` too, and with a diagonal the vectors.
template <class E>
int RunSchur(SerialTeam team, int n, const E* a, int ld, bool vectors, E* t, E* z,
             RealElement<E>* diagonal, RealElement<E>* unscale,
             small::Complex<RealElement<E>>* values, small::Complex<RealElement<E>>* left,
             small::Complex<RealElement<E>>* right) {
  std::vector<E> taus(n), partial(team.size()), shifted(n * ld + 1), form(n * ld);
  const SchurWork<E> work{shifted.data(), form.data(), ld, taus.data(), partial.data()};
  std::copy(a, a + n * ld, work.Operand());
  std::vector<int> places(n);
  const Balanced<RealElement<E>> balanced{diagonal, places.data()};
  const int info = vectors ? Schur<true>(team, n, work, balanced, *unscale)
                           : Schur<false>(team, n, work, balanced, *unscale);
  if (info != 0) return info;
  const E* const made = vectors ? form.data() : work.Operand();
  for (int k = 0; k < n; ++k) values[k] = *unscale * Eigenvalue(n, made, ld, k);
  if (!vectors) return info;
  std::copy(form.begin(), form.end(), t);
  std::copy_n(shifted.begin(), n * ld, z);
  if (diagonal == nullptr) return info;
  std::vector<small::Complex<RealElement<E>>> x(n * ld);
  SchurEigenvectors(team, n, t, z, ld, balanced, true, x.data(), ld, left);
  SchurEigenvectors(team, n, t, z, ld, balanced, false, x.data(), ld, right);
  return info;
}

}  // namespace
}  // namespace linalg::team

using namespace linalg::team;  // NOLINT
using linalg::small::Complex;

#define LINALG_TEST_FUNCTIONS(suffix, E)                                                           \
  extern "C" int cholesky_##suffix(int size, int order, int n, E* a, int ld, int lower,            \
                                   int symmetrize) {                                               \
    return RunCholesky(SerialTeam(size, Order(order)), n, a, ld, lower, symmetrize);               \
  }                                                                                                \
  extern "C" int lu_##suffix(int size, int order, int rows, int cols, E* a, int ld, int* pivots,   \
                             int* permutation, int* again) {                                       \
    return RunLu(SerialTeam(size, Order(order)), rows, cols, a, ld, pivots, permutation, again);   \
  }                                                                                                \
  extern "C" void solve_##suffix(int size, int order, int n, E* a, int ld, int lower,              \
                                 int transpose, int conjugate, int unit_diagonal, int cols, E* b,  \
                                 int ldb, const int* pivots, int back) {                           \
    RunSolve(SerialTeam(size, Order(order)), n, a, ld, lower, transpose, conjugate, unit_diagonal, \
             cols, b, ldb, pivots, back);                                                          \
  }                                                                                                \
  extern "C" void determinant_##suffix(int n, const E* lu, int ld, const int* pivots, E* det,      \
                                       E* sign, RealElement<E>* logarithm) {                       \
    RunDeterminant(n, lu, ld, pivots, det, sign, logarithm);                                       \
  }                                                                                                \
  extern "C" void qr_##suffix(int size, int order, int m, int n, int q_cols, E* a, int ld, E* r,   \
                              E* taus, int* columns) {                                             \
    RunQr(SerialTeam(size, Order(order)), m, n, q_cols, a, ld, r, taus, columns);                  \
  }                                                                                                \
  extern "C" int eigh_##suffix(int size, int order, int n, E* a, int ld, int lower,                \
                               int symmetrize, int vectors, E* v, RealElement<E>* values,          \
                               int* places) {                                                      \
    return RunEigh(SerialTeam(size, Order(order)), n, a, ld, lower, symmetrize, vectors, v,        \
                   values, places);                                                                \
  }                                                                                                \
  extern "C" int svd_##suffix(int size, int order, int m, int n, int width, int vectors, E* a,     \
                              int ld, E* v, RealElement<E>* values) {                              \
    return RunSvd(SerialTeam(size, Order(order)), m, n, width, vectors, a, ld, v, values);         \
  }                                                                                                \
  extern "C" void hessenberg_##suffix(int size, int order, int n, E* a, int ld, E* h) {            \
    RunHessenberg(SerialTeam(size, Order(order)), n, a, ld, h);                                    \
  }                                                                                                \
  extern "C" int schur_##suffix(int size, int order, int n, const E* a, int ld, int vectors, E* t, \
                                E* z, RealElement<E>* diagonal, RealElement<E>* unscale,           \
                                Complex<RealElement<E>>* values, Complex<RealElement<E>>* left,    \
                                Complex<RealElement<E>>* right) {                                  \
    return RunSchur(SerialTeam(size, Order(order)), n, a, ld, vectors, t, z, diagonal, unscale,    \
                    values, left, right);                                                          \
  }

LINALG_TEST_FUNCTIONS(float32, float)
LINALG_TEST_FUNCTIONS(complex128, Complex<double>)
