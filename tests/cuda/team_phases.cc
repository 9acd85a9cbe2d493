// The algorithms of kernels/team on the CPU. Their threads run one after another, in a chosen
// order.
#include "tests/cuda/serial_team.h"
#include "tests/cuda/team_drivers.h"

using namespace linalg::team;  // NOLINT
using linalg::Complex;
using linalg::RealElement;
using linalg::Triangle;

#define LINALG_TEST_FUNCTIONS(suffix, E)                                                          \
  extern "C" int cholesky_##suffix(int size, int order, int n, E* a, int ld, int lower,           \
                                   int symmetrize, E* factor) {                                   \
    return RunCholesky(SerialTeam(size, Order(order)), n, a, ld, lower, symmetrize, factor);      \
  }                                                                                               \
  extern "C" int cholesky_panel_##suffix(int size, int order, int rows, int n, E* a, int ld) {    \
    return RunCholeskyPanel(SerialTeam(size, Order(order)), rows, n, a, ld);                      \
  }                                                                                               \
  extern "C" int lu_##suffix(int size, int order, int rows, int cols, E* a, int ld, int* pivots,  \
                             int* permutation, int* again) {                                      \
    return RunLu(SerialTeam(size, Order(order)), rows, cols, a, ld, pivots, permutation, again);  \
  }                                                                                               \
  extern "C" void triangular_solve_##suffix(int size, int order, int n, E* a, int ld, int lower,  \
                                            int transpose, int conjugate, int unit_diagonal,      \
                                            int cols, E* b, int ldb) {                            \
    RunTriangularSolve(SerialTeam(size, Order(order)),                                            \
                       Triangle{.lower = lower != 0,                                              \
                                .transpose = transpose != 0,                                      \
                                .conjugate = conjugate != 0,                                      \
                                .unit_diagonal = unit_diagonal != 0},                             \
                       n, a, ld, cols, b, ldb);                                                   \
  }                                                                                               \
  extern "C" void cholesky_solve_##suffix(int size, int order, int n, E* factor, int ld,          \
                                          int lower, int cols, E* b, int ldb) {                   \
    RunCholeskySolve(SerialTeam(size, Order(order)), n, factor, ld, lower, cols, b, ldb);         \
  }                                                                                               \
  extern "C" void lu_solve_##suffix(int size, int order, int n, E* lu, int ld, const int* pivots, \
                                    int transpose, int conjugate, int cols, E* b, int ldb) {      \
    RunLuSolve(SerialTeam(size, Order(order)), n, lu, ld, pivots, transpose, conjugate, cols, b,  \
               ldb);                                                                              \
  }                                                                                               \
  extern "C" int solve_##suffix(int size, int order, int n, E* a, int ld, int cols, const E* b,   \
                                int ldb, E* x) {                                                  \
    return RunSolve(SerialTeam(size, Order(order)), n, a, ld, cols, b, ldb, x);                   \
  }                                                                                               \
  extern "C" int inverse_##suffix(int size, int order, int n, E* a, int ld, E* inverse) {         \
    return RunInverse(SerialTeam(size, Order(order)), n, a, ld, inverse);                         \
  }                                                                                               \
  extern "C" void determinant_##suffix(int size, int order, int n, E* a, int ld, E* det, E* sign, \
                                       RealElement<E>* logarithm) {                               \
    RunDeterminant(SerialTeam(size, Order(order)), n, a, ld, det, sign, logarithm);               \
  }                                                                                               \
  extern "C" int warp_threads_##suffix(int n) { return WarpThreadsFor<E>(n); }                    \
  extern "C" int row_cholesky_##suffix(int size, int order, int n, E* a, int ld, int lower,       \
                                       int symmetrize, E* factor) {                               \
    return RunRowCholesky(SerialTeam(size, Order(order)), n, a, ld, lower, symmetrize, factor);   \
  }                                                                                               \
  extern "C" int row_lu_##suffix(int size, int order, int rows, int cols, E* a, int ld,           \
                                 int* pivots, int* permutation, E* packed, E* det) {              \
    linalg::ScaledProduct<E> product;                                                             \
    const int info = RunRowLu(SerialTeam(size, Order(order)), rows, cols, a, ld, pivots,          \
                              permutation, packed, &product);                                     \
    *det = product.Value();                                                                       \
    return info;                                                                                  \
  }                                                                                               \
  extern "C" int row_solve_##suffix(int size, int order, int n, E* a, int ld, int cols,           \
                                    const E* b, int ldb, E* x) {                                  \
    return RunRowSolve(SerialTeam(size, Order(order)), n, a, ld, cols, b, ldb, x);                \
  }                                                                                               \
  extern "C" int row_inverse_##suffix(int size, int order, int n, E* a, int ld, E* inverse) {     \
    return RunRowInverse(SerialTeam(size, Order(order)), n, a, ld, inverse);                      \
  }                                                                                               \
  extern "C" void qr_##suffix(int size, int order, int m, int n, int q_cols, E* a, int ld, E* r,  \
                              E* taus, int* columns) {                                            \
    RunQr(SerialTeam(size, Order(order)), m, n, q_cols, a, ld, r, taus, columns);                 \
  }                                                                                               \
  extern "C" void panel_##suffix(int size, int order, int m, int n, int given, E* a, int ld,      \
                                 E* taus, E* v, E* u) {                                           \
    RunPanel(SerialTeam(size, Order(order)), m, n, given, a, ld, taus, v, u);                     \
  }                                                                                               \
  extern "C" int eigh_##suffix(int size, int order, int n, E* a, int ld, int lower,               \
                               int symmetrize, int vectors, int most, E* v,                       \
                               RealElement<E>* values) {                                          \
    return RunEigh(SerialTeam(size, Order(order)), n, a, ld, lower, symmetrize, vectors, most, v, \
                   values);                                                                       \
  }                                                                                               \
  extern "C" void reduction_##suffix(int size, int order, int n, int width, E* a, int ld,         \
                                     double* d, double* e, E* q) {                                \
    RunTridiagonalPanels(SerialTeam(size, Order(order)), n, width, a, ld, d, e, q);               \
  }                                                                                               \
  extern "C" int merge_##suffix(int size, int order, int half, const double* rho, double* d,      \
                                const RealElement<E>* vectors, RealElement<E>* joined) {          \
    return RunMerge(SerialTeam(size, Order(order)), half, *rho, d, vectors, joined);              \
  }                                                                                               \
  extern "C" int svd_##suffix(int size, int order, int m, int n, int width, int vectors, E* a,    \
                              int ld, E* v, RealElement<E>* values) {                             \
    return RunSvd(SerialTeam(size, Order(order)), m, n, width, vectors, a, ld, v, values);        \
  }                                                                                               \
  extern "C" int gram_##suffix(int size, int order, int n, int sweeps, E* gram, int ld,           \
                               E* rotation) {                                                     \
    return RunGram(SerialTeam(size, Order(order)), n, sweeps, gram, ld, rotation);                \
  }                                                                                               \
  extern "C" void hessenberg_##suffix(int size, int order, int n, E* a, int ld, E* h, E* q) {     \
    RunHessenberg(SerialTeam(size, Order(order)), n, a, ld, h, q);                                \
  }                                                                                               \
  extern "C" int schur_##suffix(int size, int order, int n, const E* a, int ld, E* t, E* z) {     \
    return RunSchur(SerialTeam(size, Order(order)), n, a, ld, t, z);                              \
  }                                                                                               \
  extern "C" int eig_##suffix(int size, int order, int n, const E* a, int ld, int vectors,        \
                              Complex<RealElement<E>>* values, Complex<RealElement<E>>* left,     \
                              Complex<RealElement<E>>* right) {                                   \
    return RunEig(SerialTeam(size, Order(order)), n, a, ld, vectors, values, left, right);        \
  }

LINALG_TEST_FUNCTIONS(float32, float)
LINALG_TEST_FUNCTIONS(complex128, Complex<double>)

// Windows of 8 rows, and those of CUDA's jobs.
#define LINALG_MULTISHIFT_FUNCTIONS(suffix, E)                                                    \
  extern "C" int schur_windows_##suffix(int size, int order, int n, const E* a, int ld,           \
                                        int is_small, E* t, E* z) {                               \
    const SerialTeam team(size, Order(order));                                                    \
    return is_small ? RunSchur<8>(team, n, a, ld, t, z)                                           \
                    : RunSchur<kMultishiftWindow<E>>(team, n, a, ld, t, z);                       \
  }                                                                                               \
  extern "C" int eig_windows_##suffix(int size, int order, int n, const E* a, int ld,             \
                                      int is_small, int vectors, E* values, E* left, E* right) {  \
    const SerialTeam team(size, Order(order));                                                    \
    return is_small ? RunEig<8>(team, n, a, ld, vectors, values, left, right)                     \
                    : RunEig<kMultishiftWindow<E>>(team, n, a, ld, vectors, values, left, right); \
  }

LINALG_MULTISHIFT_FUNCTIONS(complex64, Complex<float>)
LINALG_MULTISHIFT_FUNCTIONS(complex128, Complex<double>)
