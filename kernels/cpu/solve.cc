// Solutions of linear systems, inverses, and determinants beside them, by LU with partial pivoting.
//
// Small matrices are factored in lanes, and their systems are solved there. Larger matrices, and
// systems with many right-hand sides, run in tiles. A matrix that is exactly singular, or whose
// factors hold NaN, gets NaN throughout.
#include <algorithm>
#include <memory>
#include <optional>
#include <variant>

#include "kernels/arithmetic/transpose.h"
#include "kernels/blocked/lu.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lu_factors.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/substitution.h"
#include "kernels/small/solve.h"

namespace linalg {
namespace {

// Writes the factors too, in the format of linalg_lu, where `lu` and `pivots` are not null.
template <class T>
struct SolveProblem {
  Systems<T> systems;
  int32_t* info;
  T* lu = nullptr;
  int32_t* pivots = nullptr;

  bool IsEmpty() const { return systems.batch == 0; }
  void RunEmpty() const {}

  CpuPath path() const { return IsTiny(systems) ? CpuPath::kLane : CpuPath::kTile; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const int n = ToInt(systems.n), cols = ToInt(systems.cols);
    const int64_t matrix = systems.n * systems.n;
    const double factoring = static_cast<double>(matrix) * n / 3;
    if (!systems.SharesMatrix()) {
      return ForEachSmallSystem(pool, systems, factoring + systems.Operations(),
                                [&](int64_t i, auto* a, auto* x, auto* spare) {
                                  const auto singular =
                                      small::Solve(n, a, spare, spare + n, cols, x);
                                  StoreIntegers(&singular, 1, info + i);
                                  if (lu == nullptr) return;
                                  StoreElements(a, matrix, lu + i * matrix);
                                  StoreIntegers(spare, n, pivots + i * n);
                                });
    }
    const auto factors = Scratch<T>(matrix);
    const auto steps = Scratch<int32_t>(n);
    ForEachSmallLu<T>(pool, 1, n, n, 0, systems.a, [&](auto& group, auto singular) {
      StoreElements(group.a, matrix, factors.get());
      StoreIntegers(group.pivots, n, steps.get());
      StoreIntegers(&singular, 1, info);
    });
    std::fill(info + 1, info + systems.batch, info[0]);
    Systems<T> factored = systems;
    factored.a = factors.get();
    ForEachSmallSystem(pool, factored, systems.Operations(),
                       [&]<class E>(int64_t, E* a, E* x, RealElement<E>* spare) {
                         using V = RealElement<E>;
                         LoadIntegers(steps.get(), 0, n, spare);
                         const V singular = Number<V>(info[0]);
                         small::SolveFactored(n, a, spare, singular, cols, x);
                       });
  }

  void RunInTiles(ffi::ThreadPool& pool) const {
    const int64_t n = systems.n;
    const double factoring = BlockedLuNanoseconds<T>(n, n);
    const double substituting = BlockedNanoseconds<T>(systems.Operations());
    const auto make = [&] { return blocked::Workspace<T>(n, systems.cols); };
    AdviseHugePages(systems);
    if (!systems.SharesMatrix()) {  // a shared one is factored once
      struct Work {
        Factors factors;
        blocked::Workspace<T> workspace;
      };
      return ForEachInTasks(
          pool, systems.batch, factoring + substituting,
          [&] { return Work{Factors(n, n), make()}; },
          [&](Work& work, int64_t i, const blocked::RunTasks& run_tasks) {
            info[i] = work.factors.Factor(systems.a + i * systems.a_stride, run_tasks);
            if (lu != nullptr) {
              blocked::CopyRows(n, n, work.factors.lu(), lu + i * n * n, run_tasks);
              std::copy_n(work.factors.pivots(), n, pivots + i * n);
            }
            Substitute(work.factors, work.workspace.rows(), i, run_tasks);
          });
    }
    Factors common(n, n);
    ForEachInTasks(
        pool, 1, factoring, [] { return std::monostate(); },
        [&](std::monostate, int64_t, const blocked::RunTasks& run_tasks) {
          std::fill_n(info, systems.batch, common.Factor(systems.a, run_tasks));
        });
    ForEachInTasks(
        pool, systems.batch, substituting, make,
        [&](blocked::Workspace<T>& workspace, int64_t i, const blocked::RunTasks& run_tasks) {
          Substitute(common, workspace.rows(), i, run_tasks);
        });
  }

 private:
  using Factors = blocked::LuFactors<T>;

  void Substitute(const Factors& factors, blocked::Rows<T> rows, int64_t i,
                  const blocked::RunTasks& run_tasks) const {
    const int64_t cols = systems.cols;
    const T* const b = systems.b + i * systems.size();
    T* const x = systems.x + i * systems.size();
    if (info[i] != 0) return FillWithNaN(systems.size(), x);
    blocked::CopyRows(systems.n, cols, b, rows, run_tasks);
    factors.Solve(cols, rows, run_tasks);
    blocked::CopyRows(systems.n, cols, rows, x, run_tasks);
  }
};

// Computes determinants too where `det` has a value. The inverse is then transposed, because
// derivatives of determinants need it so.
template <class T>
struct InvProblem {
  int64_t batch, n;
  const T* a;
  T* inverse;
  int32_t* info = nullptr;  // null if that is not wanted
  std::optional<DeterminantOutputs<T>> det{};

  CpuPath path() const { return LuPath(n, n); }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const int64_t size = n * n;
    const int order = ToInt(n);
    ForEachSmallGroup<T>(pool, batch, n, n, size, a, [&](auto& group) {
      const small::EntriesDeterminant products(det ? order : 0, group.a);  // none of order 0
      const auto singular = small::Lu(order, order, group.a, group.pivots, group.permutation);
      if (det) {
        det->Store(group.first, products.OrElse(ProductOfPivots(n, group.a, n, group.pivots)));
      }
      small::InverseOfFactors(order, group.a, group.permutation, singular, group.spare);
      if (det) TransposeSquare(order, group.spare);
      StoreElements(group.spare, size, inverse + group.first * size);
      if (info != nullptr) StoreIntegers(&singular, 1, info + group.first);
    });
  }

  void RunInTiles(ffi::ThreadPool& pool) const {
    const int64_t size = n * n;
    struct Work {
      blocked::LuFactors<T> factors;
      blocked::Workspace<T> workspace;
    };
    const auto make = [&] {
      return Work{blocked::LuFactors<T>(n, n), blocked::Workspace<T>(n, n)};
    };
    ForEachInTasks(pool, batch, 3 * BlockedLuNanoseconds<T>(n, n), make,
                   [&](Work& work, int64_t i, const blocked::RunTasks& run_tasks) {
                     T* const target = inverse + i * size;
                     const int singular = work.factors.Factor(a + i * size, run_tasks);
                     if (info != nullptr) info[i] = singular;
                     if (det) {
                       const auto lu = work.factors.lu();
                       const auto* elements = reinterpret_cast<const Element<T>*>(lu.data);
                       det->Store(i, ProductOfPivots(n, elements, lu.ld, work.factors.pivots()));
                     }
                     if (singular != 0) return FillWithNaN(size, target);
                     work.factors.Invert(work.workspace.rows(), target, run_tasks);
                     if (det) TransposeInPlace(pool, n, target);
                   });
  }
};

// x and the determinant, from the same factors. The transposed inverse is null where that is not
// wanted.
template <class T>
struct SolveSlogdetProblem {
  Systems<T> systems;
  DeterminantOutputs<T> det;
  T* inverse;
  int32_t* info;

  CpuPath path() const { return IsTiny(systems) ? CpuPath::kLane : CpuPath::kTile; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const int n = ToInt(systems.n), cols = ToInt(systems.cols);
    const int64_t size = systems.n * systems.n;
    const double cubes = inverse == nullptr ? 1.0 / 3 : 1.0;
    const auto solve = [&]<class E>(int64_t i, E* a, E* x, RealElement<E>* pivots) {
      const small::EntriesDeterminant products(n, a);
      auto* const permutation = pivots + n;
      const auto singular = small::Solve(n, a, pivots, permutation, cols, x);
      det.Store(i, products.OrElse(ProductOfPivots(n, a, n, pivots)));
      StoreIntegers(&singular, 1, info + i);
      if (inverse == nullptr) return;
      auto* const target = reinterpret_cast<E*>(permutation + n);
      small::InverseOfFactors(n, a, permutation, singular, target);
      TransposeSquare(n, target);
      StoreElements(target, size, inverse + i * size);
    };
    ForEachSmallSystem(pool, systems, cubes * static_cast<double>(n * size) + systems.Operations(),
                       solve, inverse == nullptr ? 0 : size);
  }

  void RunInTiles(ffi::ThreadPool& pool) const {
    const int64_t n = systems.n, cols = systems.cols, size = n * n;
    struct Work {
      blocked::LuFactors<T> factors;
      blocked::Workspace<T> rhs;
      std::optional<blocked::Workspace<T>> square;
    };
    const auto make = [&] {
      Work work{blocked::LuFactors<T>(n, n), blocked::Workspace<T>(n, cols), std::nullopt};
      if (inverse != nullptr) work.square.emplace(n, n);
      return work;
    };
    const double nanoseconds = (inverse == nullptr ? 1 : 3) * BlockedLuNanoseconds<T>(n, n) +
                               BlockedNanoseconds<T>(systems.Operations());
    AdviseHugePages(systems);
    ForEachInTasks(pool, systems.batch, nanoseconds, make,
                   [&](Work& work, int64_t i, const blocked::RunTasks& run_tasks) {
                     info[i] = work.factors.Factor(systems.a + i * size, run_tasks);
                     const auto lu = work.factors.lu();
                     const auto* elements = reinterpret_cast<const Element<T>*>(lu.data);
                     det.Store(i, ProductOfPivots(n, elements, lu.ld, work.factors.pivots()));
                     T* const x = systems.x + i * systems.size();
                     if (info[i] != 0) {
                       FillWithNaN(systems.size(), x);
                       return FillWithNaN(size, PartOf(inverse, i * size));
                     }
                     const blocked::Rows<T> rows = work.rhs.rows();
                     blocked::CopyRows(n, cols, systems.b + i * systems.size(), rows, run_tasks);
                     work.factors.Solve(cols, rows, run_tasks);
                     blocked::CopyRows(n, cols, rows, x, run_tasks);
                     if (inverse == nullptr) return;
                     work.factors.Invert(work.square->rows(), inverse + i * size, run_tasks);
                     TransposeInPlace(pool, n, inverse + i * size);
                   });
  }
};

void RunSolveSlogdet(ffi::ThreadPool& pool, const ffi::AnyBuffer& a, const ffi::AnyBuffer& b,
                     Result& x, Result& sign, Result& logabsdet, Result* inverse, Result& info) {
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto systems = ReadSystems<T>(a, b, x, true);
    const int64_t batch = systems.batch, n = systems.n;
    Elements<T>(a, batch, {n, n}, "a");  // the systems cannot share one matrix
    RunOnPath(pool, SolveSlogdetProblem<T>{
                        .systems = systems,
                        .det = ReadSlogdet<T>(sign, logabsdet, batch),
                        .inverse = ResultElements<T>(inverse, batch, {n, n}, "the inverse"),
                        .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

void SolveSlogdet(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b, Result x, Result sign,
                  Result logabsdet, Result info) {
  RunSolveSlogdet(pool, a, b, x, sign, logabsdet, nullptr, info);
}

void SolveSlogdetInvTransposed(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b, Result x,
                               Result sign, Result logabsdet, Result inverse, Result info) {
  RunSolveSlogdet(pool, a, b, x, sign, logabsdet, &inverse, info);
}

void Solve(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b, Result x, Result info) {
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto systems = ReadSystems<T>(a, b, x, true);
    RunOnPath(pool, SolveProblem<T>{.systems = systems,
                                    .info = Elements<int32_t>(info, systems.batch, {}, "info")});
  });
}

void SolveLu(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b, Result x, Result lu,
             Result pivots, Result info) {
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto systems = ReadSystems<T>(a, b, x, true);
    const int64_t batch = systems.batch, n = systems.n;
    Elements<T>(a, batch, {n, n}, "a");  // the systems cannot share one matrix
    RunOnPath(pool, SolveProblem<T>{.systems = systems,
                                    .info = Elements<int32_t>(info, batch, {}, "info"),
                                    .lu = ResultElements<T>(lu, batch, {n, n}, "the factors"),
                                    .pivots = Elements<int32_t>(pivots, batch, {n}, "pivots")});
  });
}

void Inv(ffi::ThreadPool pool, ffi::AnyBuffer a, Result inverse, Result info) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool,
              InvProblem<T>{.batch = batch,
                            .n = n,
                            .a = Elements<T>(a, batch, {n, n}, "a"),
                            .inverse = ResultElements<T>(inverse, batch, {n, n}, "the inverse"),
                            .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

void SlogdetInvTransposed(ffi::ThreadPool pool, ffi::AnyBuffer a, Result sign, Result logabsdet,
                          Result inverse) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool,
              InvProblem<T>{.batch = batch,
                            .n = n,
                            .a = Elements<T>(a, batch, {n, n}, "a"),
                            .inverse = ResultElements<T>(inverse, batch, {n, n}, "the inverse"),
                            .det = ReadSlogdet<T>(sign, logabsdet, batch)});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_solve, linalg::Solve);
LINALG_CPU_HANDLER(linalg_solve_lu, linalg::SolveLu);
LINALG_CPU_HANDLER(linalg_solve_slogdet, linalg::SolveSlogdet);
LINALG_CPU_HANDLER(linalg_solve_slogdet_inv_transposed, linalg::SolveSlogdetInvTransposed);
LINALG_CPU_HANDLER(linalg_inv, linalg::Inv);
LINALG_CPU_HANDLER(linalg_slogdet_inv_transposed, linalg::SlogdetInvTransposed);
