// LU with partial pivoting, and solves with given factors.
//
// Small matrices are factored in lanes, larger ones in tiles. Pivots count from 0, and the
// permutation is made in the same pass. A singular matrix is no failure: info is the 1-based index
// of the first zero pivot.
#include "kernels/cpu/lu_factors.h"

#include <algorithm>

#include "kernels/arithmetic/exchange.h"
#include "kernels/blocked/lu.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/substitution.h"
#include "kernels/small/solve.h"

namespace linalg {
namespace {

template <class T>
struct LuProblem {
  int64_t batch, m, n;
  const T* a;
  T* lu;
  int32_t *pivots, *permutation, *info;

  CpuPath path() const { return LuPath(m, n); }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const auto store = [&](auto& group, auto singular) {
      StoreElements(group.a, m * n, lu + group.first * m * n);
      StoreIntegers(group.pivots, Count(), pivots + group.first * Count());
      StoreIntegers(group.permutation, m, permutation + group.first * m);
      StoreIntegers(&singular, 1, info + group.first);
    };
    ForEachSmallLu<T>(pool, batch, m, n, 0, a, store, a == lu);
  }

  void RunInTiles(ffi::ThreadPool& pool) const {
    ForEachInTasks(
        pool, batch, BlockedLuNanoseconds<T>(m, n), [&] { return blocked::LuFactors<T>(m, n); },
        [&](blocked::LuFactors<T>& factors, int64_t i, const blocked::RunTasks& run_tasks) {
          info[i] = factors.Factor(a + i * m * n, run_tasks);
          blocked::CopyRows(m, n, factors.lu(), lu + i * m * n, run_tasks);
          StorePivots(i, factors.pivots());
        });
  }

 private:
  int64_t Count() const { return std::min(m, n); }

  void StorePivots(int64_t i, const int32_t* steps) const {
    std::copy_n(steps, Count(), pivots + i * Count());
    PivotsToPermutation(Count(), steps, m, permutation + i * m);
  }
};

void Lu(ffi::ThreadPool pool, ffi::AnyBuffer a, Result lu, Result pivots, Result permutation,
        Result info) {
  const BatchShape shape = SplitBatch(a, 2, "a");
  const int64_t batch = shape.batch, m = shape.rows, n = shape.cols;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool,
              LuProblem<T>{.batch = batch,
                           .m = m,
                           .n = n,
                           .a = Elements<T>(a, batch, {m, n}, "a"),
                           .lu = ResultElements<T>(lu, batch, {m, n}, "lu"),
                           .pivots = Elements<int32_t>(pivots, batch, {std::min(m, n)}, "pivots"),
                           .permutation = Elements<int32_t>(permutation, batch, {m}, "permutation"),
                           .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

void LuPivotsToPermutation(ffi::ThreadPool pool, ffi::AnyBuffer pivots, Result permutation) {
  const PermutationOperands given = ReadPermutationOperands(pivots, permutation);
  const int64_t k = given.count, m = given.size;
  const double nanoseconds = 5.0 + static_cast<double>(m + k);
  ForEachRange(pool, given.batch, nanoseconds, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      PivotsToPermutation(k, given.pivots + i * k, m, given.permutation + i * m);
    }
  });
}

void LuSolve(ffi::ThreadPool pool, ffi::AnyBuffer lu, ffi::AnyBuffer pivots, ffi::AnyBuffer b,
             Result x, bool transpose, bool conjugate) {
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto systems = ReadSystems<T>(lu, b, x, true);
    const Pivots steps = ReadPivots(pivots, systems.batch, systems.n);
    const auto with = [&](int64_t i, const T* matrix) {
      return LuSubstitution<T>{.n = systems.n,
                               .lu = matrix,
                               .pivots = steps.data + i * steps.stride,
                               .transpose = transpose,
                               .conjugate = conjugate};
    };
    RunOnPath(
        pool,
        SystemsProblem{
            systems,
            [&](int64_t i, auto* matrix, auto* rhs, auto* spare) {
              const int n = static_cast<int>(systems.n), cols = static_cast<int>(systems.cols);
              LoadIntegers(steps.data + i * steps.stride, steps.stride, n, spare);
              small::LuSolve(n, matrix, small::LanePivots{spare}, transpose, conjugate, cols, rhs);
            },
            [&](int64_t i, const Element<T>* matrix, auto& rhs) {
              const auto exchange = [&] {
                ForEachExchange(
                    systems.n, steps.data + i * steps.stride, systems.n, transpose,
                    [&](int64_t k, int64_t j) { rhs.ExchangeRows(ToInt(k), ToInt(j)); });
              };
              if (!transpose) exchange();
              rhs.Solve(LuTriangles(transpose, conjugate, /*column_major=*/false), matrix);
              if (transpose) exchange();
            },
            [&](int64_t i, const T* matrix, blocked::Rows<T> rhs, auto& substitution,
                const blocked::RunTasks& run_tasks) {
              with(i, matrix).Solve(systems.cols, rhs, substitution, run_tasks);
            },
            [&](int64_t i, const T* matrix, T* rhs) {
              with(i, matrix).Solve(pool, systems.cols, rhs);
            }});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_lu, linalg::Lu);
LINALG_CPU_HANDLER(linalg_lu_pivots_to_permutation, linalg::LuPivotsToPermutation);
LINALG_CPU_HANDLER(linalg_lu_solve, linalg::LuSolve);
