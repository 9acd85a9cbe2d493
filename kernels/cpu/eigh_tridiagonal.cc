// Eigenvalues and eigenvectors of Hermitian tridiagonal matrices.
//
// Matrices of medium order run by the divide and conquer of kernels/blocked. Others go to stevd:
// divide and conquer too, or implicit QL where only values are wanted. A complex matrix is a real
// one between diagonal matrices of phases. A matrix that is not finite gets NaN, and info = -1.
#include <algorithm>
#include <bit>

#include "kernels/arithmetic/tridiagonal_phases.h"
#include "kernels/blocked/tridiagonal_eigh.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/results.h"
#include "kernels/systems.h"

namespace linalg {
namespace {

// Writes the eigenvectors as rows of `vectors`: columns z(k, j) of |T|, times T's phases.
template <class T, class Get>
void WriteVectors(int64_t n, const Element<T>* phases, Get&& z, T* vectors) {
  for (int64_t k = 0; k < n; ++k) {
    for (int64_t j = 0; j < n; ++j) {
      if constexpr (kIsComplex<T>) {
        vectors[k * n + j] = std::bit_cast<T>(z(k, j) * phases[k]);
      } else {
        vectors[k * n + j] = z(k, j);
      }
    }
  }
}

// stevd, with the interface of blocked::TridiagonalEigh.
template <class R>
class LapackSolver {
 public:
  LapackSolver(int64_t n, bool vectors)
      : n_(n), stevd_(n, vectors), columns_(Scratch<R>(vectors ? n * n : 0)) {}

  int Solve(R* d, R* e) { return stevd_(d, e, columns_.get()); }
  R VectorElement(int64_t k, int64_t j) const { return columns_[j * n_ + k]; }

 private:
  int64_t n_;
  lapack::Stevd<R> stevd_;
  std::unique_ptr<R[]> columns_;
};

// `vectors` is null where eigenvalues alone are wanted.
template <class T>
struct EighTridiagonalProblem {
  using R = Real<T>;

  int64_t batch, n;
  const R* diagonal;
  const T* beside;
  T* vectors;
  R* values;
  int32_t* info;

  bool IsEmpty() const { return n == 0; }
  void RunEmpty() const { std::fill_n(info, batch, 0); }

  CpuPath path() const {
    const bool pays_off = kLeastTileTridiagonal <= n && n <= kTileEigh;
    return pays_off ? CpuPath::kTile : CpuPath::kLapack;
  }

  void RunInTiles(ffi::ThreadPool& pool) const {
    const double nanoseconds = BlockedEighNanoseconds<R>(n, vectors != nullptr) / 2;
    ForEachInTasks(
        pool, batch, nanoseconds, [&] { return Work<blocked::TridiagonalEigh<R>>(*this); },
        [&](auto& work, int64_t i, const blocked::RunTasks& run_tasks) {
          Solve(work, i, run_tasks);
        });
  }

  void RunByLapack(ffi::ThreadPool& pool) const {
    const int64_t size = n * n;
    const double nanoseconds = LapackNanoseconds(vectors ? 4.0 * n * size : 30.0 * size);
    ForEachByLapack(
        pool, batch, n, nanoseconds, [&] { return Work<LapackSolver<R>>(*this); },
        [&](auto& work, int64_t i) { Solve(work, i); });
  }

 private:
  template <class Solver>
  struct Work {
    explicit Work(const EighTridiagonalProblem& problem)
        : solver(problem.n, problem.vectors != nullptr),
          e(Scratch<R>(problem.n)),
          phases(Scratch<Element<T>>(problem.n)) {}

    Solver solver;
    std::unique_ptr<R[]> e;
    std::unique_ptr<Element<T>[]> phases;
  };

  // `run_tasks` runs the solver's tasks, if it has any.
  template <class Solver, class... Tasks>
  void Solve(Work<Solver>& work, int64_t i, const Tasks&... run_tasks) const {
    R* const w = values + i * n;
    T* const v = PartOf(vectors, i * n * n);
    const T* const row = beside + i * (n - 1);
    std::copy_n(diagonal + i * n, n, w);
    info[i] = IterateIf(AllFinite(w, n) && AllFinite(row, n - 1), [&] {
      SplitPhases(n - 1, row, work.e.get(), work.phases.get());
      return work.solver.Solve(w, work.e.get(), run_tasks...);
    });
    if (info[i] != 0) {
      FillWithNaN(n, w);
      FillWithNaN(n * n, v);
    } else if (v != nullptr) {
      WriteVectors(
          n, work.phases.get(),
          [&](int64_t k, int64_t j) { return work.solver.VectorElement(k, j); }, v);
    }
  }
};

// `vectors` is null where a handler has no such result.
void RunEighTridiagonal(ffi::ThreadPool& pool, ffi::AnyBuffer diagonal, ffi::AnyBuffer beside,
                        Result& values, Result* vectors, Result& info) {
  const TridiagonalShape shape = SplitTridiagonalBatch(diagonal, beside);
  const int64_t batch = shape.batch, n = shape.n;
  DispatchDtype(beside.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool, EighTridiagonalProblem<T>{
                        .batch = batch,
                        .n = n,
                        .diagonal = Elements<Real<T>>(diagonal, batch, {n}, "d"),
                        .beside = Elements<T>(beside, batch, {shape.beside}, "e"),
                        .vectors = ResultElements<T>(vectors, batch, {n, n}, "the eigenvectors"),
                        .values = Elements<Real<T>>(values, batch, {n}, "the eigenvalues"),
                        .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

void EighTridiagonal(ffi::ThreadPool pool, ffi::AnyBuffer diagonal, ffi::AnyBuffer beside,
                     Result values, Result vectors, Result info) {
  RunEighTridiagonal(pool, diagonal, beside, values, &vectors, info);
}

void EigvalshTridiagonal(ffi::ThreadPool pool, ffi::AnyBuffer diagonal, ffi::AnyBuffer beside,
                         Result values, Result info) {
  RunEighTridiagonal(pool, diagonal, beside, values, nullptr, info);
}

// Some consecutive rows of the matrix of eigenvectors, from the first of `rows`. Rows beyond the
// matrix are zero.
template <class R>
struct EighTridiagonalRowsProblem {
  int64_t batch, n, count;
  const R* diagonal;
  const R* beside;
  const int32_t* first_rows;
  R* values;
  R* vectors;
  int32_t* info;

  bool IsEmpty() const { return n == 0; }
  void RunEmpty() const { std::fill_n(info, batch, 0); }
  CpuPath path() const { return CpuPath::kTile; }

  void RunInTiles(ffi::ThreadPool& pool) const {
    const double order = static_cast<double>(n);
    const double nanoseconds =
        BlockedNanoseconds<R>((static_cast<double>(count) + 100) * order) * order;
    ForEachInTasks(
        pool, batch, nanoseconds, [] { return 0; },
        [&](int, int64_t i, const blocked::RunTasks& run_tasks) { Solve(pool, i, run_tasks); });
  }

 private:
  void Solve(ffi::ThreadPool& pool, int64_t i, const blocked::RunTasks& run_tasks) const {
    const int64_t first = count > 0 ? first_rows[i * count] : 0;
    const int64_t begin = std::clamp<int64_t>(first, 0, n);
    const int64_t end = std::clamp<int64_t>(first + count, begin, n);
    R* const w = values + i * n;
    R* const v = vectors + i * count * n;
    const auto e = Scratch<R>(n);
    std::copy_n(diagonal + i * n, n, w);
    std::copy_n(beside + i * (n - 1), n - 1, e.get());
    blocked::TridiagonalEigh<R> solver(n, begin, end);
    info[i] = IterateIf(AllFinite(w, n) && AllFinite(e.get(), n - 1),
                        [&] { return solver.Solve(w, e.get(), run_tasks); });
    if (info[i] != 0) {
      FillWithNaN(n, w);
      FillWithNaN(count * n, v);
      return;
    }
    const blocked::Rows<R> z = solver.vectors();
    Transpose(pool, n, end - begin, z.data, z.ld, v, n);
    std::fill(v + (end - begin) * n, v + count * n, R(0));
  }
};

void EighTridiagonalRows(ffi::ThreadPool pool, ffi::AnyBuffer diagonal, ffi::AnyBuffer beside,
                         ffi::AnyBuffer rows, Result values, Result vectors, Result info) {
  const TridiagonalShape shape = SplitTridiagonalBatch(diagonal, beside);
  const int64_t batch = shape.batch, n = shape.n, count = SplitBatch(rows, 1, "rows").cols;
  DispatchDtype(diagonal.element_type(), [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsComplex<T>) {
      throw BadArgument("d", "be real");
    } else {
      RunOnPath(pool, EighTridiagonalRowsProblem<T>{
                          .batch = batch,
                          .n = n,
                          .count = count,
                          .diagonal = Elements<T>(diagonal, batch, {n}, "d"),
                          .beside = Elements<T>(beside, batch, {shape.beside}, "e"),
                          .first_rows = Elements<int32_t>(rows, batch, {count}, "rows"),
                          .values = Elements<T>(values, batch, {n}, "the eigenvalues"),
                          .vectors = Elements<T>(vectors, batch, {count, n}, "the eigenvectors"),
                          .info = Elements<int32_t>(info, batch, {}, "info")});
    }
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_eigh_tridiagonal, linalg::EighTridiagonal);
LINALG_CPU_HANDLER(linalg_eigh_tridiagonal_rows, linalg::EighTridiagonalRows);
LINALG_CPU_HANDLER(linalg_eigvalsh_tridiagonal, linalg::EigvalshTridiagonal);
