// Determinants and cofactors from LU factors.
//
// Small matrices are factored in lanes, larger ones in tiles. The product of the pivots is kept
// apart from its exponent, so that it overflows only if the determinant does.
#include <cstring>

#include "kernels/arithmetic/scaled_product.h"
#include "kernels/blocked/lu.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lu_factors.h"
#include "kernels/cpu/problem.h"
#include "kernels/small/cofactors.h"

namespace linalg {
namespace {

template <class T>
struct DetProblem {
  int64_t batch, n;
  const T* a;
  DeterminantOutputs<T> results;

  CpuPath path() const { return LuPath(n, n); }

  void RunInLanes(ffi::ThreadPool& pool) const {
    DispatchSize(n, [&](auto order) {
      ForEachSmallGroup<T>(pool, batch, order, order, 0, a, [&](auto& group) {
        results.Store(group.first, small::Determinant(order, group.a, group.pivots));
      });
    });
  }

  void RunInTiles(ffi::ThreadPool& pool) const {
    ForEachInTasks(
        pool, batch, BlockedLuNanoseconds<T>(n, n), [&] { return blocked::LuFactors<T>(n, n); },
        [&](blocked::LuFactors<T>& factors, int64_t i, const blocked::RunTasks& run_tasks) {
          factors.Factor(a + i * n * n, run_tasks);
          const auto* lu = reinterpret_cast<const Element<T>*>(factors.lu().data);
          results.Store(i, ProductOfPivots(n, lu, factors.lu().ld, factors.pivots()));
        });
  }
};

template <class T>
void RunDet(ffi::ThreadPool& pool, const BatchShape& shape, const ffi::AnyBuffer& a,
            const DeterminantOutputs<T>& results) {
  const int64_t batch = shape.batch, n = shape.rows;
  RunOnPath(
      pool,
      DetProblem<T>{
          .batch = batch, .n = n, .a = Elements<T>(a, batch, {n, n}, "a"), .results = results});
}

void Det(ffi::ThreadPool pool, ffi::AnyBuffer a, Result det) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    RunDet<T>(pool, shape, a, {.det = Elements<T>(det, shape.batch, {}, "det")});
  });
}

void Slogdet(ffi::ThreadPool pool, ffi::AnyBuffer a, Result sign, Result logabsdet) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    RunDet<T>(pool, shape, a, ReadSlogdet<T>(sign, logabsdet, shape.batch));
  });
}

template <class T>
struct CofactorsProblem {
  int64_t batch, n;
  const T* a;
  T* det;
  T* cofactors;

  CpuPath path() const { return LuPath(n, n); }

  void RunInLanes(ffi::ThreadPool& pool) const {
    DispatchSize(n, [&](auto order) { RunInLanes(pool, order); });
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
    ForEachInTasks(pool, batch, 4 * BlockedLuNanoseconds<T>(n, n), make,
                   [&](Work& work, int64_t i, const blocked::RunTasks& run_tasks) {
                     T* const target = cofactors + i * size;
                     const int info = work.factors.Factor(a + i * size, run_tasks);
                     const auto* lu = reinterpret_cast<const Scalar*>(work.factors.lu().data);
                     auto product =
                         ProductOfPivots(n, lu, work.factors.lu().ld, work.factors.pivots());
                     const Scalar value = product.Value();
                     StoreElements(&value, 1, det + i);
                     if (info < 0) return FillWithNaN(size, target);
                     if (info > 0) return RunSingular(i);
                     std::fill_n(target, size, T{});
                     const Scalar before = TakePower(product);
                     for (int64_t k = 0; k < n; ++k)
                       StoreElements(&before, 1, target + k * (n + 1));
                     blocked::CopyRows(n, n, target, work.workspace.rows(), run_tasks);
                     work.factors.Solve(n, work.workspace.rows(), run_tasks);
                     const blocked::Rows<T> x = work.workspace.rows();
                     Transpose(pool, n, n, x.data, x.ld, target, n);
                     MultiplyByPower(size, product, reinterpret_cast<Scalar*>(target));
                   });
  }

 private:
  using Scalar = Element<T, Real<T>>;

  template <class Order>
  void RunInLanes(ffi::ThreadPool& pool, Order order) const {
    const int64_t size = n * n;
    ForEachSmallGroup<T>(pool, batch, order, order, size, a, [&](auto& group) {
      ScaledProduct<std::remove_reference_t<decltype(*group.a)>> product;
      const auto singular =
          small::Cofactors(order, group.a, group.pivots, group.permutation, group.spare, product);
      const auto value = product.Value();
      StoreElements(&value, 1, det + group.first);
      StoreElements(group.spare, size, cofactors + group.first * size);
      using V = std::remove_const_t<decltype(singular)>;
      if (!Any(singular > V{})) return;
      int32_t info[kLanesOf<V>];
      StoreIntegers(&singular, 1, info);
      for (int64_t lane = 0; lane < kLanesOf<V>; ++lane) {
        if (info[lane] > 0) RunSingular(group.first + lane);
      }
    });
  }

  void RunSingular(int64_t i) const {
    const int64_t size = n * n;
    const auto places = Scratch<int>(2 * n);
    const auto work = Scratch<Scalar>(size + 2 * n);
    std::memcpy(work.get(), a + i * size, size * sizeof(T));
    small::CofactorsOfSingular(ToInt(n), work.get(), places.get(), work.get() + size,
                               reinterpret_cast<Scalar*>(cofactors + i * size));
  }
};

void DetCofactors(ffi::ThreadPool pool, ffi::AnyBuffer a, Result det, Result cofactors) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool, CofactorsProblem<T>{
                        .batch = batch,
                        .n = n,
                        .a = Elements<T>(a, batch, {n, n}, "a"),
                        .det = Elements<T>(det, batch, {}, "det"),
                        .cofactors = ResultElements<T>(cofactors, batch, {n, n}, "the cofactors")});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_det, linalg::Det);
LINALG_CPU_HANDLER(linalg_det_cofactors, linalg::DetCofactors);
LINALG_CPU_HANDLER(linalg_slogdet, linalg::Slogdet);
