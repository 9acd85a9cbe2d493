// The algorithms of kernels/team on the CPU: their threads run one after another, in a chosen
// order.
#include "tests/cuda/serial_team.h"
#include "tests/cuda/team_drivers.h"

namespace linalg::team {
namespace {

template <class E>
void RunDeterminant(int n, const E* lu, int ld, const int* pivots, E* det, E* sign,
                    RealElement<E>* logarithm) {
  auto product = Determinant(n, lu, ld, pivots);
  *det = product.Value();
  product.Normalise();
  *sign = product.Sign();
  *logarithm = product.LogarithmOfMagnitude();
}

}  // namespace
}  // namespace linalg::team

using namespace linalg::team;  // NOLINT
using linalg::Complex;
using linalg::RealElement;

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
