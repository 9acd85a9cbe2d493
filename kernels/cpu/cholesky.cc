// Cholesky factors of Hermitian positive definite matrices, their derivatives, and solves with
// them, also with the log-determinant.
//
// Small matrices are factored in lanes, larger ones in tiles. A matrix that is not positive
// definite gets a triangle of NaN.
#include "kernels/blocked/cholesky.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/arithmetic/hermitian.h"
#include "kernels/blocked/cholesky_derivative.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/substitution.h"
#include "kernels/small/cholesky_derivative.h"
#include "kernels/small/cholesky_rows.h"
#include "kernels/small/positive_solve_logdet.h"
#include "kernels/small/solve.h"

namespace linalg {
namespace {

template <class T>
void ClearOtherTriangle(int64_t n, bool lower, T* a) {
  for (int64_t i = 0; i < n; ++i) {
    std::fill(a + i * n + (lower ? i + 1 : 0), a + i * n + (lower ? n : i), T(0));
  }
}

// Fills the factor of a matrix that is not positive definite.
template <class T>
void FillTriangleWithNaN(int64_t n, bool lower, T* factor) {
  ClearOtherTriangle(n, lower, factor);
  for (int64_t i = 0; i < n; ++i) {
    FillWithNaN(lower ? i + 1 : n - i, factor + i * n + (lower ? 0 : i));
  }
}

// Nanoseconds in tiles. The pivots wait for each other.
template <class T>
double BlockedCholeskyNanoseconds(int64_t n) {
  return 30.0 * n + BlockedNanoseconds<T>(n * n * n / 6.0);
}

template <class T>
double BlockedCholeskyDerivativeNanoseconds(int64_t n) {
  return BlockedNanoseconds<T>(n * n * n * 5.0 / 6);
}

template <class T>
struct CholeskyProblem {
  int64_t batch, n;
  HermitianPart part;
  const T* a;
  T* factor;
  int32_t* info;

  CpuPath path() const { return n <= kLaneCholesky ? CpuPath::kLane : CpuPath::kTile; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    constexpr int64_t kParts = kPartsOf<T>;
    const int64_t size = n * n;
    const double nanoseconds =
        SmallNanoseconds(kLanes<T>, size * kParts, n * size / 6.0 * kParts * kParts);
    if constexpr (kLanes<T> % small::kCholeskyBlock<Element<T>> == 0) {
      if (batch < kLeastGroup<T> && n >= small::kLeastRowsInLanes) return RunByRows(pool);
    }
    const auto factor_group = [&]<class V>(int64_t i, V* registers) {
      auto* matrix = reinterpret_cast<Element<T, V>*>(registers);
      LoadElements(a + i * size, size, size, matrix);
      DispatchSize(n, [&](auto order) {
        const V failed = small::CholeskyFactor(matrix, order, part);
        StoreIntegers(&failed, 1, info + i);
      });
      StoreElements(matrix, size, factor + i * size);
    };
    ForEachGroup<T>(pool, batch, size * kParts, nanoseconds, factor_group, a == factor);
  }

  void RunInTiles(ffi::ThreadPool& pool) const {
    ForEachInTasks(
        pool, batch, BlockedCholeskyNanoseconds<T>(n),
        [&] { return blocked::CholeskyFactor<T>(n); },
        [&](blocked::CholeskyFactor<T>& work, int64_t i, const blocked::RunTasks& run_tasks) {
          T* const target = factor + i * n * n;
          info[i] = work.Factor(part, a + i * n * n, target, run_tasks);
          if (info[i] != 0) FillTriangleWithNaN(n, part.lower, target);
        });
  }

 private:
  // One matrix after the other, with its rows in lanes, to the bits of RunInLanes.
  void RunByRows(ffi::ThreadPool& pool) const {
    using Row = Vector<Real<T>, kLanes<T>>;
    using Rows = small::RowsInLanes<Element<T, Row>>;
    const int64_t size = n * n, padded = blocked::RoundUp(n, kLanes<T>);
    ForEachRange(pool, batch, BlockedCholeskyNanoseconds<T>(n), [&](int64_t first, int64_t last) {
      const Registers<Row> memory(2 * padded * n * kPartsOf<T> / kLanes<T>);
      const Rows rows{reinterpret_cast<Element<T, Row>*>(memory.get()), ToInt(n)};
      T* const matrix = reinterpret_cast<T*>(rows.Group(ToInt(padded)));
      std::fill(matrix + size, matrix + padded * n, T(0));
      for (int64_t i = first; i < last; ++i) {
        std::copy_n(a + i * size, size, matrix);
        Element<T>* const elements = reinterpret_cast<Element<T>*>(matrix);
        if (!part.lower || part.symmetrize) small::LowerHermitianPart(elements, ToInt(n), part);
        for (int64_t k = 0; k < padded; k += kLanes<T>) {
          LoadElements(matrix + k * n, n, n, rows.Group(ToInt(k)));
        }
        info[i] = small::Cholesky(rows);
        for (int64_t k = 0; k < padded; k += kLanes<T>) {
          StoreElements(rows.Group(ToInt(k)), n, n, matrix + k * n);
        }
        const Real<T> failed = static_cast<Real<T>>(info[i]);
        if (!part.lower) small::FinishTriangle(elements, ToInt(n), part.lower, failed);
        T* const target = factor + i * size;
        std::copy_n(matrix, size, target);
        if (part.lower) {
          ClearOtherTriangle(n, part.lower, target);
          if (info[i] != 0) FillTriangleWithNaN(n, part.lower, target);
        }
      }
    });
  }
};

void Cholesky(ffi::ThreadPool pool, ffi::AnyBuffer a, Result factor, Result info, bool lower,
              bool symmetrize) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool,
              CholeskyProblem<T>{.batch = batch,
                                 .n = n,
                                 .part = {.lower = lower, .symmetrize = symmetrize},
                                 .a = Elements<T>(a, batch, {n, n}, "a"),
                                 .factor = ResultElements<T>(factor, batch, {n, n}, "the factor"),
                                 .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

// The matrices that are tried again together take so many bytes at most.
constexpr int64_t kRetriedBytes = 8 << 20;

// Factors those matrices again that `problem` has failed for, with a growing multiple of the
// identity added. `jitters` are the `count` multiples, relative to the mean of the diagonal.
// `added` receives the first one that suffices. A matrix for which none is enough keeps its NaN.
template <class T>
void RetryWithJitter(ffi::ThreadPool& pool, const CholeskyProblem<T>& problem,
                     const Real<T>* jitters, int64_t count, Real<T>* added) {
  using R = Real<T>;
  const int64_t n = problem.n, size = n * n;
  std::vector<int64_t> failed;
  std::vector<R> means;
  for (int64_t i = 0; i < problem.batch; ++i) {
    added[i] = R(0);
    if (problem.info[i] == 0) continue;
    added[i] = NaN<R>();
    R mean = 0;
    for (int64_t j = 0; j < n; ++j) mean += std::real(problem.a[i * size + j * (n + 1)]) / n;
    if (!(mean > 0) || !std::isfinite(mean)) continue;
    failed.push_back(i);
    means.push_back(mean);
  }
  const int64_t most = std::max<int64_t>(1, kRetriedBytes / std::max<int64_t>(1, size * sizeof(T)));
  for (size_t first = 0; first < failed.size(); first += most) {
    const size_t last = std::min(failed.size(), first + static_cast<size_t>(most));
    std::vector<size_t> left(last - first);
    std::iota(left.begin(), left.end(), first);
    std::vector<T> matrices(left.size() * size), factors(matrices.size());
    std::vector<int32_t> infos(left.size());
    for (int64_t k = 0; k < count && !left.empty(); ++k) {
      for (size_t j = 0; j < left.size(); ++j) {
        T* const matrix = matrices.data() + j * size;
        std::copy_n(problem.a + failed[left[j]] * size, size, matrix);
        for (int64_t d = 0; d < n; ++d) matrix[d * (n + 1)] += jitters[k] * means[left[j]];
      }
      RunOnPath(pool, CholeskyProblem<T>{.batch = static_cast<int64_t>(left.size()),
                                         .n = n,
                                         .part = problem.part,
                                         .a = matrices.data(),
                                         .factor = factors.data(),
                                         .info = infos.data()});
      size_t kept = 0;
      for (size_t j = 0; j < left.size(); ++j) {
        const int64_t i = failed[left[j]];
        problem.info[i] = infos[j];
        if (infos[j] == 0) {
          std::copy_n(factors.data() + j * size, size, problem.factor + i * size);
          added[i] = jitters[k] * means[left[j]];
        } else {
          left[kept++] = left[j];
        }
      }
      left.resize(kept);
    }
  }
}

void CholeskyJittered(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer jitters, Result factor,
                      Result added, Result info, bool lower, bool symmetrize) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows, count = SplitBatch(jitters, 1, "jitters").cols;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    const CholeskyProblem<T> problem{
        .batch = batch,
        .n = n,
        .part = {.lower = lower, .symmetrize = symmetrize},
        .a = Elements<T>(a, batch, {n, n}, "a"),
        .factor = ResultElements<T>(factor, batch, {n, n}, "the factor"),
        .info = Elements<int32_t>(info, batch, {}, "info")};
    const Real<T>* const series = Elements<Real<T>>(jitters, 1, {count}, "jitters");
    Real<T>* const enough = Elements<Real<T>>(added, batch, {}, "the jitter");
    RunOnPath(pool, problem);
    RetryWithJitter(pool, problem, series, count, enough);
  });
}

// A derivative. In lanes small(n, factor, x) overwrites x, by `cubes` times n³ fused multiply-adds.
// In tiles blocked(work, factor, x, y, run_tasks) writes y.
template <class T, class Small, class Blocked>
struct CholeskyDerivativeProblem {
  int64_t most_in_lanes;  // the largest n
  int64_t batch, n;
  double cubes;
  const T *factor, *x;
  T* y;
  Small small;
  Blocked blocked;

  CpuPath path() const { return n <= most_in_lanes ? CpuPath::kLane : CpuPath::kTile; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    constexpr int64_t kParts = kPartsOf<T>;
    const int64_t size = n * n;
    const double nanoseconds =
        SmallNanoseconds(kLanes<T>, 3 * size * kParts, cubes * n * size * kParts * kParts);
    ForEachGroup<T>(pool, batch, 2 * size * kParts, nanoseconds,
                    [&]<class V>(int64_t i, V* registers) {
                      auto* matrix = reinterpret_cast<Element<T, V>*>(registers);
                      LoadElements(factor + i * size, size, size, matrix);
                      LoadElements(x + i * size, size, size, matrix + size);
                      small(static_cast<int>(n), matrix, matrix + size);
                      StoreElements(matrix + size, size, y + i * size);
                    });
  }

  void RunInTiles(ffi::ThreadPool& pool) const {
    const int64_t size = n * n;
    ForEachInTasks(
        pool, batch, BlockedCholeskyDerivativeNanoseconds<T>(n),
        [&] { return blocked::CholeskyDerivative<T>(n); },
        [&](blocked::CholeskyDerivative<T>& work, int64_t i, const blocked::RunTasks& run_tasks) {
          blocked(work, factor + i * size, x + i * size, y + i * size, run_tasks);
        });
  }
};

template <class Small, class Blocked>
void RunDerivative(ffi::ThreadPool& pool, int64_t most_in_lanes, double cubes,
                   const ffi::AnyBuffer& factor, const ffi::AnyBuffer& x, Result& y, Small&& small,
                   Blocked&& blocked) {
  const BatchShape shape = SplitSquareBatch(factor, "the factor");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(factor.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool, CholeskyDerivativeProblem<T, Small, Blocked>{
                        .most_in_lanes = most_in_lanes,
                        .batch = batch,
                        .n = n,
                        .cubes = cubes,
                        .factor = Elements<T>(factor, batch, {n, n}, "the factor"),
                        .x = Elements<T>(x, batch, {n, n}, "the derivative"),
                        .y = ResultElements<T>(y, batch, {n, n}, "the result"),
                        .small = small,
                        .blocked = blocked});
  });
}

void CholeskyJvp(ffi::ThreadPool pool, ffi::AnyBuffer factor, ffi::AnyBuffer da, Result dfactor,
                 bool lower, bool symmetrize) {
  const HermitianPart part{.lower = lower, .symmetrize = symmetrize};
  RunDerivative(
      pool, kLaneCholeskyDerivative, 1.0 / 3, factor, da, dfactor,
      [=](int n, auto* l, auto* x) { small::CholeskyJvp(n, l, part, x); },
      [=](auto& work, const auto&... operands) { work.Jvp(part, operands...); });
}

void CholeskyVjp(ffi::ThreadPool pool, ffi::AnyBuffer factor, ffi::AnyBuffer ct, Result a_ct,
                 bool lower, bool symmetrize) {
  const HermitianPart part{.lower = lower, .symmetrize = symmetrize};
  RunDerivative(
      pool, kLaneCholeskyDerivative, 1.0 / 3, factor, ct, a_ct,
      [=](int n, auto* l, auto* x) { small::CholeskyVjp(n, l, part, x); },
      [=](auto& work, const auto&... operands) { work.Vjp(part, operands...); });
}

void CholeskyFullJvp(ffi::ThreadPool pool, ffi::AnyBuffer factor, ffi::AnyBuffer da,
                     Result dfactor) {
  RunDerivative(
      pool, kLaneFullCholeskyDerivative, 7.0 / 6, factor, da, dfactor,
      [](int n, auto* l, auto* x) { small::CholeskyFullJvp(n, l, x); },
      [](auto& work, const auto&... operands) { work.FullJvp(operands...); });
}

void CholeskyFullVjp(ffi::ThreadPool pool, ffi::AnyBuffer factor, ffi::AnyBuffer ct, Result a_ct) {
  RunDerivative(
      pool, kLaneFullCholeskyDerivative, 7.0 / 6, factor, ct, a_ct,
      [](int n, auto* l, auto* x) { small::CholeskyFullVjp(n, l, x); },
      [](auto& work, const auto&... operands) { work.FullVjp(operands...); });
}

void CholeskySolve(ffi::ThreadPool pool, ffi::AnyBuffer factor, ffi::AnyBuffer b, Result x,
                   bool lower) {
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto systems = ReadSystems<T>(factor, b, x, true);
    RunOnPath(pool, SystemsProblem{systems,
                                   [&](int64_t, auto* matrix, auto* rhs, auto*) {
                                     small::CholeskySolve(static_cast<int>(systems.n), matrix,
                                                          lower, static_cast<int>(systems.cols),
                                                          rhs);
                                   },
                                   [&](int64_t, const Element<T>* matrix, auto& rhs) {
                                     rhs.Solve(CholeskyTriangles(lower), matrix);
                                   },
                                   [&](int64_t, const T* matrix, blocked::Rows<T> rhs,
                                       auto& substitution, const blocked::RunTasks& run_tasks) {
                                     substitution.Solve(CholeskyTriangles(lower), matrix,
                                                        systems.cols, rhs, run_tasks);
                                   },
                                   [&](int64_t, const T* matrix, T* rhs) {
                                     SolveTriangular(pool, CholeskyTriangles(lower), systems.n,
                                                     matrix, systems.cols, rhs);
                                   }});
  });
}

// DispatchSize for real matrices in full registers. Other lanes gain too little for the time that
// their code takes to compile.
template <class E, class Body>
void DispatchFullSize(int64_t n, Body&& body) {
  if constexpr (!kComplexElement<E> && sizeof(E) == kRegisterBytes) {
    DispatchSize(n, body);
  } else {
    body(ToInt(n));
  }
}

// x and log det A. The factor is null where that is not wanted.
template <class T>
struct PositiveSolveLogdetProblem {
  Systems<T> systems;
  Real<T>* logdet;
  T* factor;
  int32_t* info;

  CpuPath path() const {
    const int64_t n = systems.n;
    const bool few = static_cast<double>(n * n * systems.cols) <= kLaneTriangularOperations;
    return n <= kLaneCholesky && few ? CpuPath::kLane : CpuPath::kTile;
  }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const int64_t n = systems.n, size = n * n;
    const int cols = ToInt(systems.cols);
    const double factoring = static_cast<double>(n * size) / 6;
    ForEachSmallSystem(pool, systems, factoring + systems.Operations(),
                       [&]<class E>(int64_t i, E* a, E* x, RealElement<E>* spare) {
                         RealElement<E> logarithm, failed;
                         DispatchFullSize<E>(n, [&](auto order) {
                           failed = small::PositiveSolveLogdet(order, a, cols, x, logarithm, spare);
                         });
                         StoreElements(&logarithm, 1, logdet + i);
                         StoreIntegers(&failed, 1, info + i);
                         if (factor == nullptr) return;
                         small::FinishTriangle(a, ToInt(n), /*lower=*/true, failed);
                         StoreElements(a, size, factor + i * size);
                       });
  }

  void RunInTiles(ffi::ThreadPool& pool) const {
    const int64_t n = systems.n, cols = systems.cols, size = n * n;
    struct Work {
      blocked::CholeskyFactor<T> factor;
      RhsInTiles<T> rhs;
      std::vector<T> own;  // the factor, if it is no result
    };
    const double nanoseconds =
        BlockedCholeskyNanoseconds<T>(n) + BlockedNanoseconds<T>(systems.Operations());
    ForEachInTasks(
        pool, systems.batch, nanoseconds,
        [&] {
          return Work{blocked::CholeskyFactor<T>(n), RhsInTiles<T>(n, cols),
                      std::vector<T>(factor == nullptr ? size : 0)};
        },
        [&](Work& work, int64_t i, const blocked::RunTasks& run_tasks) {
          T* const target = factor == nullptr ? work.own.data() : factor + i * size;
          T* const x = systems.x + i * systems.size();
          info[i] =
              work.factor.Factor(small::kSymmetrized, systems.a + i * size, target, run_tasks);
          if (info[i] != 0) {
            FillTriangleWithNaN(n, /*lower=*/true, target);
            FillWithNaN(systems.size(), x);
            logdet[i] = NaN<Real<T>>();
            return;
          }
          const auto* const elements = reinterpret_cast<const Element<T>*>(target);
          logdet[i] = small::LogarithmOfDeterminant(ToInt(n), elements);
          work.rhs.Solve(
              pool, /*left_side=*/true, n, cols, systems.b + i * systems.size(), x,
              [&](blocked::Rows<T> rows, blocked::Substitution<T>& substitution) {
                substitution.Solve(CholeskyTriangles(/*lower=*/true), target, cols, rows,
                                   run_tasks);
              },
              run_tasks);
        });
  }
};

void RunPositiveSolveLogdet(ffi::ThreadPool& pool, const ffi::AnyBuffer& a, const ffi::AnyBuffer& b,
                            Result& x, Result& logdet, Result* factor, Result& info) {
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto systems = ReadSystems<T>(a, b, x, true);
    const int64_t batch = systems.batch, n = systems.n;
    Elements<T>(a, batch, {n, n}, "a");  // the systems cannot share one matrix
    RunOnPath(pool, PositiveSolveLogdetProblem<T>{
                        .systems = systems,
                        .logdet = Elements<Real<T>>(logdet, batch, {}, "logdet"),
                        .factor = ResultElements<T>(factor, batch, {n, n}, "the factor"),
                        .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

void PositiveSolveLogdet(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b, Result x,
                         Result logdet, Result info) {
  RunPositiveSolveLogdet(pool, a, b, x, logdet, nullptr, info);
}

void PositiveSolveLogdetFactor(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b, Result x,
                               Result logdet, Result factor, Result info) {
  RunPositiveSolveLogdet(pool, a, b, x, logdet, &factor, info);
}

// The operands of both derivatives, which run in lanes at any size. Python asks for small matrices
// only.
template <class T>
struct PositiveSolveLogdetOperands {
  int64_t batch, n, cols;
  const T *factor, *x;
};

template <class T>
PositiveSolveLogdetOperands<T> ReadFactored(const ffi::AnyBuffer& factor, const ffi::AnyBuffer& x) {
  const BatchShape shape = SplitSquareBatch(factor, "the factor");
  const int64_t batch = shape.batch, n = shape.rows, cols = SplitBatch(x, 2, "x").cols;
  return {.batch = batch,
          .n = n,
          .cols = cols,
          .factor = Elements<T>(factor, batch, {n, n}, "the factor"),
          .x = Elements<T>(x, batch, {n, cols}, "x")};
}

// Calls body(first, l, x, rest) for groups in lanes. `rest` has `matrices` further matrices of
// order n, then the columns of another x.
template <class T, class Body>
void ForEachFactored(ffi::ThreadPool& pool, const PositiveSolveLogdetOperands<T>& operands,
                     int64_t matrices, Body&& body) {
  constexpr int64_t kParts = kPartsOf<T>;
  const int64_t n = operands.n, size = n * n, columns = n * operands.cols;
  const int64_t moved = (matrices + 1) * size + 2 * columns;
  const double cubes = static_cast<double>(n * size) / 3;
  const double nanoseconds =
      SmallNanoseconds(kLanes<T>, moved * kParts,
                       (cubes + 3.0 * static_cast<double>(n * columns)) * kParts * kParts);
  ForEachGroup<T>(pool, operands.batch, moved * kParts + n, nanoseconds,
                  [&]<class V>(int64_t i, V* registers) {
                    auto* const l = reinterpret_cast<Element<T, V>*>(registers);
                    auto* const x = l + size;
                    LoadElements(operands.factor + i * size, size, size, l);
                    LoadElements(operands.x + i * columns, columns, columns, x);
                    body(i, l, x, x + columns, registers + moved * kParts);
                  });
}

void PositiveSolveLogdetJvp(ffi::ThreadPool pool, ffi::AnyBuffer factor, ffi::AnyBuffer x,
                            ffi::AnyBuffer da, ffi::AnyBuffer db, Result dx, Result dlogdet) {
  DispatchDtype(x.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto operands = ReadFactored<T>(factor, x);
    const int64_t batch = operands.batch, n = operands.n, cols = operands.cols;
    const int64_t size = n * n, columns = n * cols;
    const T* const a_tangents = Elements<T>(da, batch, {n, n}, "the tangent of a");
    const T* const b_tangents = Elements<T>(db, batch, {n, cols}, "the tangent of b");
    T* const x_tangents = Elements<T>(dx, batch, {n, cols}, "the tangent of x");
    Real<T>* const logdets = Elements<Real<T>>(dlogdet, batch, {}, "the tangent of logdet");
    ForEachFactored(
        pool, operands, 2, [&]<class E>(int64_t i, E* l, E* x, E* rest, RealElement<E>* spare) {
          E *const matrix = rest, *const work = matrix + size, *const y = work + size;
          LoadElements(a_tangents + i * size, size, size, matrix);
          LoadElements(b_tangents + i * columns, columns, columns, y);
          const auto logdet =
              small::PositiveSolveLogdetJvp(ToInt(n), l, ToInt(cols), x, matrix, y, work, spare);
          StoreElements(y, columns, x_tangents + i * columns);
          StoreElements(&logdet, 1, logdets + i);
        });
  });
}

void PositiveSolveLogdetVjp(ffi::ThreadPool pool, ffi::AnyBuffer factor, ffi::AnyBuffer x,
                            ffi::AnyBuffer x_ct, ffi::AnyBuffer logdet_ct, Result a_ct,
                            Result b_ct) {
  DispatchDtype(x.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto operands = ReadFactored<T>(factor, x);
    const int64_t batch = operands.batch, n = operands.n, cols = operands.cols;
    const int64_t size = n * n, columns = n * cols;
    const T* const x_cotangents = Elements<T>(x_ct, batch, {n, cols}, "the cotangent of x");
    const Real<T>* const logdets =
        Elements<Real<T>>(logdet_ct, batch, {}, "the cotangent of logdet");
    T* const a_cotangents = ResultElements<T>(a_ct, batch, {n, n}, "the cotangent of a");
    T* const b_cotangents = Elements<T>(b_ct, batch, {n, cols}, "the cotangent of b");
    ForEachFactored(
        pool, operands, 1, [&]<class E>(int64_t i, E* l, E* x, E* rest, RealElement<E>* spare) {
          E *const work = rest, *const y = work + size;
          RealElement<E> logdet;
          LoadElements(x_cotangents + i * columns, columns, columns, y);
          LoadElements(logdets + i, 1, 1, &logdet);
          DispatchFullSize<E>(n, [&](auto order) {
            small::PositiveSolveLogdetVjp(order, l, ToInt(cols), x, y, logdet, work, spare);
          });
          StoreElements(l, size, a_cotangents + i * size);
          StoreElements(y, columns, b_cotangents + i * columns);
        });
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_cholesky, linalg::Cholesky);
LINALG_CPU_HANDLER(linalg_cholesky_full_jvp, linalg::CholeskyFullJvp);
LINALG_CPU_HANDLER(linalg_cholesky_full_vjp, linalg::CholeskyFullVjp);
LINALG_CPU_HANDLER(linalg_cholesky_jittered, linalg::CholeskyJittered);
LINALG_CPU_HANDLER(linalg_cholesky_jvp, linalg::CholeskyJvp);
LINALG_CPU_HANDLER(linalg_cholesky_vjp, linalg::CholeskyVjp);
LINALG_CPU_HANDLER(linalg_cholesky_solve, linalg::CholeskySolve);
LINALG_CPU_HANDLER(linalg_positive_solve_logdet, linalg::PositiveSolveLogdet);
LINALG_CPU_HANDLER(linalg_positive_solve_logdet_factor, linalg::PositiveSolveLogdetFactor);
LINALG_CPU_HANDLER(linalg_positive_solve_logdet_jvp, linalg::PositiveSolveLogdetJvp);
LINALG_CPU_HANDLER(linalg_positive_solve_logdet_vjp, linalg::PositiveSolveLogdetVjp);
