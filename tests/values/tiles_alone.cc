// Runs every algorithm of kernels/blocked on operands in separate memory. The two arguments are the
// first and the last order. --blocks takes matrices of several blocks. --overflow makes one operand
// a row too short. --threads runs several callers, each with its tasks on several threads. Their
// matrices are large enough that workspaces are kept and that passes of spectra are split into
// pieces. test_sanitized.py compiles this with sanitizers.
#include <atomic>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/blocked/cholesky.h"
#include "kernels/blocked/cholesky_derivative.h"
#include "kernels/blocked/eigh.h"
#include "kernels/blocked/lu.h"
#include "kernels/blocked/qr.h"
#include "kernels/blocked/reducing_passes.h"
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
      eigen.Solve(part, a.data(), values.get(), vectors ? factor.data() : nullptr, RunInTurn);
    }
  }
}

template <class T>
void DifferentiateCholesky(HermitianPart part, const Matrix<T>& factor, const Matrix<T>& x,
                           T* results, const RunTasks& run_tasks) {
  const int64_t n = factor.rows, size = n * n;
  CholeskyDerivative<T> derivative(n);
  derivative.Jvp(part, factor.data(), x.data(), results, run_tasks);
  derivative.Vjp(part, factor.data(), x.data(), results + size, run_tasks);
  derivative.FullJvp(factor.data(), x.data(), results + 2 * size, run_tasks);
  derivative.FullVjp(factor.data(), x.data(), results + 3 * size, run_tasks);
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
  for (const Matrix<T>& a : operands)
    alone.Solve(a.data(), values.get(), nullptr, nullptr, RunInTurn);
  for (const bool full : {false, true}) {
    const Matrix<T> u{rows, full ? rows : k}, vh{full ? cols : k, cols};
    SingularValues<T> svd(rows, cols, full, true);
    for (const Matrix<T>& a : operands)
      svd.Solve(a.data(), values.get(), u.data(), vh.data(), RunInTurn);
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
    for (const bool symmetrize : {false, true}) {
      FactorHermitian<T>(n, {lower, symmetrize});
      // Matrices smaller than a register have their derivatives in lanes.
      if (n < kWidth<T>) continue;
      const Matrix<T> results{4 * n, n};
      DifferentiateCholesky({lower, symmetrize}, Diagonal<T>(n, T(1)), RandomMatrix<T>(n, n),
                            results.data(), RunInTurn);
    }
  }
  for (const int64_t longer : {n, n + 3, 2 * n}) {
    FactorGeneral<T>(n, longer);
    FactorGeneral<T>(longer, n);
    FindSingularValues<T>(n, longer);
    FindSingularValues<T>(longer, n);
  }
  Solve<T>(n);
}

// The results, which do not depend on how tasks are run.
class Results {
 public:
  template <class X>
  void Add(const X* x, int64_t count) {
    all_.append(reinterpret_cast<const char*>(x), count * sizeof(X));
  }
  template <class T>
  void Add(int64_t rows, int64_t cols, Rows<T> x) {
    for (int64_t i = 0; i < rows; ++i) Add(x.At(i, 0).data, cols);
  }

  bool operator==(const Results&) const = default;

 private:
  std::string all_;
};

// Operands large enough that Cholesky and LU work in blocks and QR in wide ones. Right-hand sides
// are in several pieces.
template <class T>
struct Operands {
  explicit Operands(int64_t n)
      : n(n),
        definite(Diagonal<T>(n, T(1))),
        indefinite(Diagonal<T>(n, T(1))),
        square(RandomMatrix<T>(n, n)),
        wide(RandomMatrix<T>(n, n + 130)),
        tall(RandomMatrix<T>(n + 130, n)) {
    indefinite(n - 1, n - 1) = T(-1);
  }

  int64_t n;
  Matrix<T> definite, indefinite, square, wide, tall;
};

template <class T>
Results FactorBlocks(const Operands<T>& operands, const RunTasks& run_tasks) {
  Results results;
  const int64_t n = operands.n, cols = 130;
  const Matrix<T> result{n, n};
  CholeskyFactor<T> cholesky(n);
  for (const bool lower : {false, true}) {
    cholesky.Factor({lower, true}, operands.definite.data(), result.data(), run_tasks);
    results.Add(result.data(), n * n);
  }
  cholesky.Factor({true, false}, operands.indefinite.data(), result.data(), run_tasks);
  const Matrix<T> derivatives{4 * n, n};
  DifferentiateCholesky({true, true}, operands.definite, operands.square, derivatives.data(),
                        run_tasks);
  results.Add(derivatives.data(), 4 * n * n);

  for (const Matrix<T>* a : {&operands.wide, &operands.tall}) {
    LuFactors<T> lu(a->rows, a->cols);
    lu.Factor(a->data(), run_tasks);
    results.Add(a->rows, a->cols, lu.lu());
    for (const int64_t q_cols : {std::min(a->rows, a->cols), a->rows}) {
      QrFactors<T> qr(a->rows, a->cols, q_cols);
      qr.Factor(a->data(), run_tasks);
      qr.MakeQ(run_tasks);
      results.Add(a->rows, q_cols, qr.matrix());
    }
  }
  LuFactors<T> lu(n, n);
  lu.Factor(operands.square.data(), run_tasks);
  lu.Invert(Workspace<T>(n, n).rows(), result.data(), run_tasks);
  results.Add(result.data(), n * n);
  const Workspace<T> x(n, cols);
  for (int64_t i = 0; i < n; ++i) std::fill_n(x.rows().At(i, 0).data, cols, T(1));
  lu.Solve(cols, x.rows(), run_tasks);
  results.Add(n, cols, x.rows());
  Substitution<T> substitution(n);
  for (const bool lower : {false, true}) {
    for (const bool conjugate : {false, true}) {
      substitution.Solve(Triangle{.lower = lower, .conjugate = conjugate}, operands.definite.data(),
                         cols, x.rows(), run_tasks);
      results.Add(n, cols, x.rows());
    }
  }
  return results;
}

template <class T>
Results FindSpectra(const Matrix<T>& square, const Matrix<T>& tall, const RunTasks& run_tasks) {
  Results results;
  const int64_t rows = tall.rows, n = square.rows;
  const std::unique_ptr<RealElement<T>[]> values(new RealElement<T>[n]);
  const Matrix<T> u{rows, n}, vh{n, n};
  for (const bool vectors : {false, true}) {
    HermitianEigen<T>(n, vectors)
        .Solve({true, true}, square.data(), values.get(), vectors ? vh.data() : nullptr, run_tasks);
    results.Add(values.get(), n);
    if (vectors) results.Add(vh.data(), n * n);
    SingularValues<T>(rows, n, false, vectors)
        .Solve(tall.data(), values.get(), vectors ? u.data() : nullptr,
               vectors ? vh.data() : nullptr, run_tasks);
    results.Add(values.get(), n);
    if (!vectors) continue;
    results.Add(u.data(), rows * n);
    results.Add(vh.data(), n * n);
  }
  return results;
}

// Runs on the calling thread and two others. None waits for a task that has not begun.
void RunOnThreads(int64_t count, const Task& task) {
  std::atomic<int64_t> next = 0;
  const auto drain = [&] {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) task(i);
  };
  std::thread helpers[] = {std::thread(drain), std::thread(drain)};
  drain();
  for (std::thread& helper : helpers) helper.join();
}

// Two concurrent callers have the results of one caller without threads.
template <class Compute>
void Share(Compute&& compute) {
  const Results expected = compute(RunInTurn);
  const auto call = [&] {
    if (!(compute(RunOnThreads) == expected)) {
      std::fputs("other bits on threads\n", stderr);
      std::_Exit(1);
    }
  };
  std::thread callers[] = {std::thread(call), std::thread(call)};
  for (std::thread& caller : callers) caller.join();
}

template <class T>
void ShareAll() {
  // The smallest order whose workspace is kept, so that the tiles do as little work as possible.
  const Operands<T> operands(static_cast<int64_t>(std::sqrt(KeptMemory::kLeastBytes / sizeof(T))) +
                             1);
  Share([&](const RunTasks& run_tasks) { return FactorBlocks(operands, run_tasks); });
  // The smallest order whose passes over a triangle begin with three pieces.
  int64_t n = 0;
  while (PassPieces<T>(n * n / 2) < 3) ++n;
  const Matrix<T> square = RandomMatrix<T>(n + 1, n + 1), tall = RandomMatrix<T>(n + 9, n + 1);
  Share([&](const RunTasks& run_tasks) { return FindSpectra(square, tall, run_tasks); });
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
    FactorBlocks(Operands<float>(300), RunInTurn);
    FactorBlocks(Operands<double>(300), RunInTurn);
    FactorBlocks(Operands<std::complex<float>>(300), RunInTurn);
    FactorBlocks(Operands<std::complex<double>>(300), RunInTurn);
    std::puts("done");
    return 0;
  }
  if (std::strcmp(arguments[1], "--threads") == 0) {
    ShareAll<float>();
    ShareAll<double>();
    ShareAll<std::complex<float>>();
    ShareAll<std::complex<double>>();
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
