// Every algorithm of kernels/blocked on operands in memory of their own, of all orders from the
// first argument to the second; with --blocks, matrices of several blocks; with --overflow, an
// operand that is a row too short. To be compiled with sanitizers: test_sanitized.py.
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>

#include "kernels/blocked/cholesky.h"
#include "kernels/blocked/eigh.h"
#include "kernels/blocked/lu.h"
#include "kernels/blocked/qr.h"
#include "kernels/blocked/substitution.h"
#include "kernels/blocked/svd.h"

namespace linalg::blocked {
namespace {

template <class T>
struct Matrix {
  int64_t rows, cols;
  std::unique_ptr<T[]> elements{new T[rows * cols]};

  T& operator()(int64_t i, int64_t j) { return elements[i * cols + j]; }
  T* data() const { return elements.get(); }
};

template <class T>
T RandomNumber() {
  static std::mt19937 generator(1);
  static std::normal_distribution<double> normal;
  if constexpr (kComplexElement<T>) {
    const auto re = static_cast<RealElement<T>>(normal(generator));
    return {re, static_cast<RealElement<T>>(normal(generator))};
  } else {
    return static_cast<T>(normal(generator));
  }
}

template <class T>
Matrix<T> RandomMatrix(int64_t rows, int64_t cols) {
  Matrix<T> a{rows, cols};
  for (int64_t i = 0; i < rows * cols; ++i) a.data()[i] = RandomNumber<T>();
  return a;
}

template <class T>
Matrix<T> Diagonal(int64_t n, T others) {
  Matrix<T> a{n, n};
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) a(i, j) = i == j ? T(i % 3 + 4 * n) : others;
  }
  return a;
}

template <class T>
void FactorHermitian(int64_t n, HermitianPart part) {
  using R = RealElement<T>;
  const Matrix<T> factor{n, n};
  CholeskyFactor<T> cholesky(n);
  Matrix<T> definite = Diagonal<T>(n, T(1));
  cholesky.Factor(part, definite.data(), factor.data());
  definite(n / 2, n / 2) = T(-1);
  cholesky.Factor(part, definite.data(), factor.data());

  Matrix<T> with_nan = RandomMatrix<T>(n, n);
  with_nan(n - 1, n - 1) = T(std::numeric_limits<R>::quiet_NaN());
  const Matrix<T> operands[] = {RandomMatrix<T>(n, n), Diagonal<T>(n, T(0)), Diagonal<T>(n, T(1)),
                                std::move(with_nan)};
  const std::unique_ptr<R[]> values(new R[n]);
  for (const bool vectors : {false, true}) {
    HermitianEigen<T> eigen(n, vectors);
    for (const Matrix<T>& a : operands) {
      eigen.Solve(part, a.data(), values.get(), vectors ? factor.data() : nullptr);
    }
  }
}

template <class T>
void FactorByLu(int64_t rows, int64_t cols) {
  const Matrix<T> a = RandomMatrix<T>(rows, cols);
  LuFactors<T>(rows, cols).Factor(a.data());
}

template <class T>
void FactorByQr(int64_t rows, int64_t cols) {
  const Matrix<T> a = RandomMatrix<T>(rows, cols);
  for (const int64_t q_cols : {std::min(rows, cols), rows}) {
    QrFactors<T> qr(rows, cols, q_cols);
    qr.Factor(a.data());
    qr.MakeQ();
  }
}

template <class T>
void FactorGeneral(int64_t rows, int64_t cols) {
  FactorByLu<T>(rows, cols);
  FactorByQr<T>(rows, cols);
}

template <class T>
void FindSingularValues(int64_t rows, int64_t cols) {
  using R = RealElement<T>;
  Matrix<T> with_nan = RandomMatrix<T>(rows, cols), equal{rows, cols};
  with_nan(rows - 1, cols - 1) = T(std::numeric_limits<R>::quiet_NaN());
  std::fill_n(equal.data(), rows * cols, T(1));
  const Matrix<T> operands[] = {RandomMatrix<T>(rows, cols), std::move(equal), std::move(with_nan)};
  const int64_t k = std::min(rows, cols);
  const std::unique_ptr<R[]> values(new R[k]);
  SingularValues<T> alone(rows, cols, false, false);
  for (const Matrix<T>& a : operands) alone.Solve(a.data(), values.get(), nullptr, nullptr);
  for (const bool full : {false, true}) {
    const Matrix<T> u{rows, full ? rows : k}, vh{full ? cols : k, cols};
    SingularValues<T> svd(rows, cols, full, true);
    for (const Matrix<T>& a : operands) svd.Solve(a.data(), values.get(), u.data(), vh.data());
  }
}

template <class T>
void Solve(int64_t n) {
  const Matrix<T> a = RandomMatrix<T>(n, n), inverse{n, n};
  LuFactors<T> lu(n, n);
  lu.Factor(a.data());
  lu.Invert(Workspace<T>(n, n).rows(), inverse.data());
  Substitution<T> substitution(n);
  for (const int64_t cols : {1, 2, 7, 33}) {
    const Workspace<T> x(n, cols);
    for (int64_t i = 0; i < n; ++i) std::fill_n(x.rows().At(i, 0).data, cols, T(1));
    lu.Solve(cols, x.rows());
    for (int kind = 0; kind < 16; ++kind) {
      const Triangle triangle{.lower = (kind & 1) != 0,
                              .transpose = (kind & 2) != 0,
                              .conjugate = (kind & 4) != 0,
                              .unit_diagonal = (kind & 8) != 0};
      substitution.Solve(triangle, a.data(), cols, x.rows());
    }
  }
}

template <class T>
void RunAll(int64_t n) {
  for (const bool lower : {false, true}) {
    for (const bool symmetrize : {false, true}) FactorHermitian<T>(n, {lower, symmetrize});
  }
  for (const int64_t longer : {n, n + 3, 2 * n}) {
    FactorGeneral<T>(n, longer);
    FactorGeneral<T>(longer, n);
    FindSingularValues<T>(n, longer);
    FindSingularValues<T>(longer, n);
  }
  Solve<T>(n);
}

// Matrices that Cholesky and LU take by blocks and QR by wide ones, and right-hand sides in several
// pieces.
template <class T>
void FactorBlocks() {
  const int64_t n = 300;
  const Matrix<T> result{n, n};
  Matrix<T> definite = Diagonal<T>(n, T(1));
  CholeskyFactor<T> cholesky(n);
  for (const bool lower : {false, true}) {
    cholesky.Factor({lower, true}, definite.data(), result.data());
  }
  definite(n - 1, n - 1) = T(-1);
  cholesky.Factor({true, false}, definite.data(), result.data());

  FactorByLu<T>(n, n + 130);
  FactorByLu<T>(n + 130, n);
  FactorByQr<T>(131, n);
  FactorByQr<T>(n, 131);
  FactorByQr<T>(133, 133);
  const Matrix<T> a = RandomMatrix<T>(n, n);
  LuFactors<T> lu(n, n);
  lu.Factor(a.data());
  lu.Invert(Workspace<T>(n, n).rows(), result.data());
  const Workspace<T> x(n, 130);
  for (int64_t i = 0; i < n; ++i) std::fill_n(x.rows().At(i, 0).data, 130, T(1));
  lu.Solve(130, x.rows());
  Substitution<T>(n).Solve(Triangle{.lower = true}, definite.data(), 130, x.rows());
}

void Overflow() {
  const Matrix<double> short_by_a_row = RandomMatrix<double>(8, 9);
  LuFactors<double>(9, 9).Factor(short_by_a_row.data());
}

}  // namespace
}  // namespace linalg::blocked

int main(int, char** arguments) {
  using namespace linalg::blocked;
  if (std::strcmp(arguments[1], "--overflow") == 0) {
    Overflow();
    return 0;
  }
  if (std::strcmp(arguments[1], "--blocks") == 0) {
    FactorBlocks<float>();
    FactorBlocks<double>();
    FactorBlocks<std::complex<float>>();
    FactorBlocks<std::complex<double>>();
    std::puts("done");
    return 0;
  }
  for (int64_t n = std::atoi(arguments[1]); n <= std::atoi(arguments[2]); ++n) {
    RunAll<float>(n);
    RunAll<double>(n);
    RunAll<std::complex<float>>(n);
    RunAll<std::complex<double>>(n);
  }
  std::puts("done");
}
