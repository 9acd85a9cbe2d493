// Solutions of linear systems, and inverses, by LU with partial pivoting.
//
// Small matrices are factored in lanes, and what they solve is substituted there; larger ones, and
// those with many right-hand sides, in tiles; the largest go to getrf, trsm and getri, and to
// division where a pivot has no reciprocal. A matrix that is exactly singular, or whose factors
// hold NaN, gets NaN throughout.
#include <algorithm>
#include <memory>
#include <variant>

#include "kernels/blocked/lu.h"
#include "kernels/cpu/lu_factors.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/substitution.h"
#include "kernels/handlers.h"
#include "kernels/small/solve.h"

namespace linalg {
namespace {

// Replaces the n by cols matrix `x` by A⁻¹ x.
template <class T>
void Substitute(ffi::ThreadPool& pool, LapackLu<T>& factors, int64_t n, int64_t cols, T* x) {
  const LuSubstitution<T> substitution{
      .n = n, .lu = factors.lu(), .pivots = factors.pivots(), .column_major = true};
  substitution.Solve(pool, cols, x);
}

template <class T>
struct SolveProblem {
  Systems<T> systems;
  int32_t* info;

  bool IsEmpty() const { return systems.batch == 0; }
  void RunEmpty() const {}

  Path path() const { return ChoosePath(Operation::kSolve, systems); }

  void RunSmall(ffi::ThreadPool& pool) const {
    const int n = ToInt(systems.n), cols = ToInt(systems.cols);
    const int64_t matrix = systems.n * systems.n;
    const double factoring = static_cast<double>(matrix) * n / 3;
    if (!SharesMatrix()) {
      return ForEachSmallSystem(pool, systems, factoring + systems.Operations(),
                                [&](int64_t i, auto* a, auto* x, auto* spare) {
                                  const auto singular =
                                      small::Solve(n, a, spare, spare + n, cols, x);
                                  StoreIntegers(&singular, 1, info + i);
                                });
    }
    const auto factors = Scratch<T>(matrix);
    const auto pivots = Scratch<int32_t>(n);
    ForEachSmallLu<T>(pool, 1, n, n, 0, systems.a, [&](auto& group, auto singular) {
      StoreElements(group.a, matrix, factors.get());
      StoreIntegers(group.pivots, n, pivots.get());
      StoreIntegers(&singular, 1, info);
    });
    std::fill(info + 1, info + systems.batch, info[0]);
    Systems<T> factored = systems;
    factored.a = factors.get();
    ForEachSmallSystem(pool, factored, systems.Operations(),
                       [&]<class E>(int64_t, E* a, E* x, RealElement<E>* spare) {
                         using V = RealElement<E>;
                         LoadIntegers(pivots.get(), 0, n, spare);
                         const V singular = Number<V>(info[0]);
                         small::SolveFactored(n, a, spare, singular, cols, x);
                       });
  }

  void RunBlocked(ffi::ThreadPool& pool) const {
    using Factors = blocked::LuFactors<T>;
    const int64_t n = systems.n, cols = systems.cols;
    RunInTurn<Factors>(
        pool, BlockedLuNanoseconds<T>(n, n), BlockedNanoseconds<T>(systems.Operations()),
        [](Factors& factors, const T* a) { return factors.Factor(a); },
        [&] { return blocked::Workspace<T>(n, cols); },
        [&](Factors& factors, blocked::Workspace<T>& workspace, const T* b, T* x) {
          const blocked::Rows<T> rows = workspace.rows();
          for (int64_t k = 0; k < n; ++k) std::copy_n(b + k * cols, cols, rows.At(k, 0).data);
          factors.Solve(cols, rows);
          for (int64_t k = 0; k < n; ++k) std::copy_n(rows.At(k, 0).data, cols, x + k * cols);
        });
  }

  void RunLapack(ffi::ThreadPool& pool) const {
    using Factors = LapackLu<T>;
    const LapackOnThreads lapack(systems.batch, systems.n);
    RunInTurn<Factors>(
        pool, LapackLuNanoseconds(systems.n, systems.n), LapackNanoseconds(systems.Operations()),
        [&](Factors& factors, const T* a) { return factors.Factor(pool, a); },
        [] { return std::monostate(); },  // BLAS substitutes in place
        [&](Factors& factors, std::monostate, const T* b, T* x) {
          std::copy_n(b, systems.size(), x);
          Substitute(pool, factors, systems.n, systems.cols, x);
        });
  }

 private:
  // One matrix for the whole batch is factored once.
  bool SharesMatrix() const { return systems.a_stride == 0 && systems.batch > 1; }

  // factor(factors, a) returns info, and substitute(factors, work, b, x) works in what make()
  // returns; they take so many nanoseconds.
  template <class Factors, class Factor, class Make, class Substitute>
  void RunInTurn(ffi::ThreadPool& pool, double factoring, double substituting, Factor&& factor,
                 Make&& make, Substitute&& substitute) const {
    const int64_t n = systems.n, size = systems.size();
    AdviseHugePages(systems);
    const auto solve = [&](Factors& factors, auto& work, int64_t i) {
      T* const x = systems.x + i * size;
      if (info[i] != 0) return FillWithNaN(size, x);
      substitute(factors, work, systems.b + i * size, x);
    };
    if (!SharesMatrix()) {
      struct Work {
        Factors factors;
        decltype(make()) work;
      };
      return ForEachInTurn(
          pool, systems.batch, factoring + substituting,
          [&] { return Work{Factors(n, n), make()}; },
          [&](Work& own, int64_t i) {
            info[i] = factor(own.factors, systems.a + i * systems.a_stride);
            solve(own.factors, own.work, i);
          });
    }
    Factors common(n, n);
    {
      const SubnormalNumbers subnormal_numbers;
      std::fill_n(info, systems.batch, factor(common, systems.a));
    }
    ForEachInTurn(pool, systems.batch, substituting, make,
                  [&](auto& work, int64_t i) { solve(common, work, i); });
  }
};

template <class T>
struct InvProblem {
  int64_t batch, n;
  const T* a;
  T* inverse;
  int32_t* info;

  Path path() const { return ChoosePath(Operation::kLu, n, n, kDtype<T>); }

  void RunSmall(ffi::ThreadPool& pool) const {
    const int64_t size = n * n;
    ForEachSmallGroup<T>(pool, batch, n, n, size, a, [&](auto& group) {
      const auto singular = small::Inverse(static_cast<int>(n), group.a, group.pivots,
                                           group.permutation, group.spare);
      StoreElements(group.spare, size, inverse + group.first * size);
      StoreIntegers(&singular, 1, info + group.first);
    });
  }

  void RunBlocked(ffi::ThreadPool& pool) const {
    const int64_t size = n * n;
    struct Work {
      blocked::LuFactors<T> factors;
      blocked::Workspace<T> workspace;
    };
    const auto make = [&] {
      return Work{blocked::LuFactors<T>(n, n), blocked::Workspace<T>(n, n)};
    };
    ForEachInTurn(pool, batch, 3 * BlockedLuNanoseconds<T>(n, n), make, [&](Work& work, int64_t i) {
      T* const target = inverse + i * size;
      info[i] = work.factors.Factor(a + i * size);
      if (info[i] != 0) return FillWithNaN(size, target);
      work.factors.Invert(work.workspace.rows(), target);
    });
  }

  void RunLapack(ffi::ThreadPool& pool) const {
    const int64_t size = n * n;
    struct Work {
      LapackLu<T> factors;
      std::unique_ptr<T[]> work;
    };
    const auto make = [&] { return Work{LapackLu<T>(n, n), Scratch<T>(lapack::GetriWork(n))}; };
    ForEachByLapack(
        pool, batch, n, 3 * LapackLuNanoseconds(n, n), make, [&](Work& work, int64_t i) {
          LapackLu<T>& factors = work.factors;
          T* const target = inverse + i * size;
          info[i] = factors.Factor(pool, a + i * size);
          if (info[i] != 0) return FillWithNaN(size, target);
          if (DiagonalHasNoReciprocal(n, factors.lu())) {
            WriteIdentity(n, target);
            return Substitute(pool, factors, n, n, target);
          }
          for (int64_t k = 0; k < n; ++k) ++factors.pivots()[k];
          lapack::Getri(ToInt(n), factors.lu(), ToInt(n), factors.pivots(), work.work.get());
          Transpose(pool, n, n, factors.lu(), n, target, n);
        });
  }
};

void Solve(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b, Result x, Result info) {
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto systems = ReadSystems<T>(a, b, x, true);
    TakePath(pool, SolveProblem<T>{.systems = systems,
                                   .info = Elements<int32_t>(info, systems.batch, {}, "info")});
  });
}

void Inv(ffi::ThreadPool pool, ffi::AnyBuffer a, Result inverse, Result info) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    TakePath(pool,
             InvProblem<T>{.batch = batch,
                           .n = n,
                           .a = Elements<T>(a, batch, {n, n}, "a"),
                           .inverse = ResultElements<T>(inverse, batch, {n, n}, "the inverse"),
                           .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

}  // namespace
}  // namespace linalg

LINALG_HANDLER(linalg_solve, linalg::Solve);
LINALG_HANDLER(linalg_inv, linalg::Inv);
