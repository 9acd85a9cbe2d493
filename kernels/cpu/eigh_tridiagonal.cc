// Eigenvalues and eigenvectors of Hermitian tridiagonal matrices.
//
// Matrices of medium order run by the divide and conquer of kernels/blocked. Others go to stevd:
// divide and conquer too, or implicit QL where only values are wanted. Parts of a spectrum run by
// bisection and inverse iteration, or by divide and conquer. A complex matrix is a real one between
// diagonal matrices of phases. A matrix that is not finite gets NaN, and info = -1.
#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <limits>

#include "kernels/arithmetic/tridiagonal_phases.h"
#include "kernels/blocked/tridiagonal_eigh.h"
#include "kernels/blocked/tridiagonal_subset.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/chosen.h"
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

// One matrix as a real one in double precision, where a subset of its spectrum is found.
template <class T>
struct TridiagonalSubsetWork {
  using R = Real<T>;

  TridiagonalSubsetWork(int64_t n, blocked::Chosen chosen, bool vectors)
      : subset(n, chosen, vectors),
        moduli(Scratch<R>(n)),
        phases(Scratch<Element<T>>(n)),
        d(Scratch<double>(n)),
        e(Scratch<double>(n)) {}

  // Returns info.
  int Solve(int64_t n, const R* diagonal, const T* beside, const blocked::RunTasks& run_tasks) {
    return IterateIf(AllFinite(diagonal, n) && AllFinite(beside, n - 1), [&] {
      SplitPhases(n - 1, beside, moduli.get(), phases.get());
      std::copy_n(diagonal, n, d.get());
      std::copy_n(moduli.get(), n - 1, e.get());
      return subset.Solve(d.get(), e.get(), run_tasks);
    });
  }

  blocked::TridiagonalSubset subset;
  std::unique_ptr<R[]> moduli;
  std::unique_ptr<Element<T>[]> phases;
  std::unique_ptr<double[]> d, e;
};

// A subset of the spectrum. Each matrix has three numbers of blocked::Outside. `vectors` is null
// where eigenvalues alone are wanted.
template <class T>
struct EighTridiagonalSubsetProblem {
  using R = Real<T>;

  int64_t batch, n;
  blocked::Chosen chosen;
  const R* diagonal;
  const T* beside;
  T* vectors;
  R *values, *below, *above, *norm;
  int32_t* info;

  bool IsEmpty() const { return n == 0; }
  void RunEmpty() const {
    for (R* const number : {below, above, norm}) std::fill_n(number, batch, R(0));
    std::fill_n(info, batch, 0);
  }
  CpuPath path() const { return CpuPath::kTile; }

  void RunInTiles(ffi::ThreadPool& pool) const {
    const double order = static_cast<double>(n), count = static_cast<double>(chosen.count);
    // Some sixty steps of bisection, and vectors that are orthogonalised against the ones before.
    const double operations = order * count * (60 + (vectors ? count : 0));
    ForEachInTasks(
        pool, batch, BlockedNanoseconds<double>(operations),
        [&] { return TridiagonalSubsetWork<T>(n, chosen, vectors != nullptr); },
        [&](TridiagonalSubsetWork<T>& work, int64_t i, const blocked::RunTasks& run_tasks) {
          Solve(work, i, run_tasks);
        });
  }

 private:
  void Solve(TridiagonalSubsetWork<T>& work, int64_t i, const blocked::RunTasks& run_tasks) const {
    const int64_t count = chosen.count;
    R* const w = values + i * count;
    T* const v = PartOf(vectors, i * n * count);
    info[i] = work.Solve(n, diagonal + i * n, beside + i * (n - 1), run_tasks);
    if (info[i] != 0) {
      FillWithNaN(count, w);
      FillWithNaN(n * count, v);
      below[i] = above[i] = norm[i] = NaN<R>();
      return;
    }
    const blocked::Outside outside = work.subset.outside();
    below[i] = static_cast<R>(outside.below);
    above[i] = static_cast<R>(outside.above);
    norm[i] = static_cast<R>(outside.norm);
    for (int64_t j = 0; j < count; ++j) {
      w[j] = static_cast<R>(work.subset.Value(j));
      if (v == nullptr) continue;
      const double* const z = work.subset.vectors().At(j, 0).data;
      for (int64_t k = 0; k < n; ++k) {
        const R element = static_cast<R>(z[k]);
        if constexpr (kIsComplex<T>) {
          v[k * count + j] = std::bit_cast<T>(element * work.phases[k]);
        } else {
          v[k * count + j] = element;
        }
      }
    }
  }
};

// `vectors` is null where a handler has no such result.
void RunEighTridiagonalSubset(ffi::ThreadPool& pool, ffi::AnyBuffer diagonal, ffi::AnyBuffer beside,
                              Result& values, Result* vectors, Result& below, Result& above,
                              Result& norm, Result& info, int64_t start, int64_t count) {
  const TridiagonalShape shape = SplitTridiagonalBatch(diagonal, beside);
  const int64_t batch = shape.batch, n = shape.n;
  const blocked::Chosen chosen = ReadChosen(*values, "the eigenvalues", n, "n", start, count);
  DispatchDtype(beside.element_type(), [&]<class T>(std::type_identity<T>) {
    using R = Real<T>;
    RunOnPath(pool,
              EighTridiagonalSubsetProblem<T>{
                  .batch = batch,
                  .n = n,
                  .chosen = chosen,
                  .diagonal = Elements<R>(diagonal, batch, {n}, "d"),
                  .beside = Elements<T>(beside, batch, {shape.beside}, "e"),
                  .vectors = ResultElements<T>(vectors, batch, {n, count}, "the eigenvectors"),
                  .values = Elements<R>(values, batch, {count}, "the eigenvalues"),
                  .below = Elements<R>(below, batch, {}, "the eigenvalue below"),
                  .above = Elements<R>(above, batch, {}, "the eigenvalue above"),
                  .norm = Elements<R>(norm, batch, {}, "the norm"),
                  .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

void EighTridiagonalSubset(ffi::ThreadPool pool, ffi::AnyBuffer diagonal, ffi::AnyBuffer beside,
                           Result values, Result vectors, Result below, Result above, Result norm,
                           Result info, int64_t count, int64_t start) {
  RunEighTridiagonalSubset(pool, diagonal, beside, values, &vectors, below, above, norm, info,
                           start, count);
}

void EigvalshTridiagonalSubset(ffi::ThreadPool pool, ffi::AnyBuffer diagonal, ffi::AnyBuffer beside,
                               Result values, Result below, Result above, Result norm, Result info,
                               int64_t count, int64_t start) {
  RunEighTridiagonalSubset(pool, diagonal, beside, values, nullptr, below, above, norm, info, start,
                           count);
}

// Solves with λ - T on the complement of the chosen vectors. The values and the vectors are
// operands for the derivative, which Python has.
template <class T>
struct EighTridiagonalSolveProblem {
  using R = Real<T>;

  int64_t batch, n;
  blocked::Chosen chosen;
  const R* diagonal;
  const T *beside, *b;
  T* x;

  bool IsEmpty() const { return n * chosen.count == 0; }
  void RunEmpty() const {}
  CpuPath path() const { return CpuPath::kTile; }

  void RunInTiles(ffi::ThreadPool& pool) const {
    struct Work {
      TridiagonalSubsetWork<T> found;
      blocked::Workspace<double> row;
    };
    const double order = static_cast<double>(n), count = static_cast<double>(chosen.count);
    ForEachInTasks(
        pool, batch, BlockedNanoseconds<double>(order * count * (60 + 8 * count)),
        [&] {
          return Work{.found = TridiagonalSubsetWork<T>(n, chosen, /*vectors=*/true),
                      .row = blocked::Workspace<double>(1, n)};
        },
        [&](Work& work, int64_t i, const blocked::RunTasks& run_tasks) {
          Solve(work.found, work.row.rows().data, i, run_tasks);
        });
  }

 private:
  void Solve(TridiagonalSubsetWork<T>& work, double* row, int64_t i,
             const blocked::RunTasks& run_tasks) const {
    const int64_t count = chosen.count;
    const T* const own_b = b + i * n * count;
    T* const own_x = x + i * n * count;
    if (work.Solve(n, diagonal + i * n, beside + i * (n - 1), run_tasks) != 0) {
      return FillWithNaN(n * count, own_x);
    }
    const double gap = 8 * std::sqrt(static_cast<double>(n)) * std::numeric_limits<R>::epsilon();
    const auto phase = [&](int64_t k) {
      if constexpr (kIsComplex<T>) return std::bit_cast<T>(work.phases[k]);
      return T(1);
    };
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t k = 0; k < n; ++k) {
        if constexpr (kIsComplex<T>) {
          own_x[k * count + j] = std::conj(phase(k)) * own_b[k * count + j];
        } else {
          own_x[k * count + j] = own_b[k * count + j];
        }
      }
      for (int half = 0; half < kPartsOf<T>; ++half) {
        const auto part = [&](int64_t k) -> R& {
          return reinterpret_cast<R*>(own_x + k * count + j)[half];
        };
        for (int64_t k = 0; k < n; ++k) row[k] = part(k);
        work.subset.SolveInComplement(j, gap, row, run_tasks);
        for (int64_t k = 0; k < n; ++k) part(k) = static_cast<R>(row[k]);
      }
      if constexpr (kIsComplex<T>) {
        for (int64_t k = 0; k < n; ++k) own_x[k * count + j] *= phase(k);
      }
    }
  }
};

void EighTridiagonalSubsetSolve(ffi::ThreadPool pool, ffi::AnyBuffer diagonal,
                                ffi::AnyBuffer beside, ffi::AnyBuffer w, ffi::AnyBuffer v,
                                ffi::AnyBuffer b, Result x, int64_t count, int64_t start) {
  const TridiagonalShape shape = SplitTridiagonalBatch(diagonal, beside);
  const int64_t batch = shape.batch, n = shape.n;
  const blocked::Chosen chosen = ReadChosen(w, "the eigenvalues", n, "n", start, count);
  DispatchDtype(beside.element_type(), [&]<class T>(std::type_identity<T>) {
    Elements<Real<T>>(w, batch, {count}, "the eigenvalues");
    Elements<T>(v, batch, {n, count}, "the eigenvectors");
    RunOnPath(pool, EighTridiagonalSolveProblem<T>{
                        .batch = batch,
                        .n = n,
                        .chosen = chosen,
                        .diagonal = Elements<Real<T>>(diagonal, batch, {n}, "d"),
                        .beside = Elements<T>(beside, batch, {shape.beside}, "e"),
                        .b = Elements<T>(b, batch, {n, count}, "b"),
                        .x = ResultElements<T>(x, batch, {n, count}, "x")});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_eigh_tridiagonal, linalg::EighTridiagonal);
LINALG_CPU_HANDLER(linalg_eigh_tridiagonal_rows, linalg::EighTridiagonalRows);
LINALG_CPU_HANDLER(linalg_eigh_tridiagonal_subset, linalg::EighTridiagonalSubset);
LINALG_CPU_HANDLER(linalg_eigh_tridiagonal_subset_solve, linalg::EighTridiagonalSubsetSolve);
LINALG_CPU_HANDLER(linalg_eigvalsh_tridiagonal, linalg::EigvalshTridiagonal);
LINALG_CPU_HANDLER(linalg_eigvalsh_tridiagonal_subset, linalg::EigvalshTridiagonalSubset);
