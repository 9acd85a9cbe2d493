// Determinants and adjugates from LU factors.
//
// Small matrices are factored in lanes, larger ones in tiles. A determinant is a product kept apart
// from its exponent, so that it overflows only if the result does.
#include <cstring>

#include "kernels/arithmetic/scaled_product.h"
#include "kernels/blocked/lu.h"
#include "kernels/cpu/lu_factors.h"
#include "kernels/cpu/problem.h"
#include "kernels/handlers.h"
#include "kernels/small/adjugate.h"

namespace linalg {
namespace {

// write(index, det) takes the ScaledProduct of every matrix, or of a group of them.
template <class T, class Write>
struct DetProblem {
  int64_t batch, n;
  const T* a;
  Write write;

  Path path() const { return ChoosePath(Operation::kLu, n, n, kDtype<T>); }

  void RunSmall(ffi::ThreadPool& pool) const {
    DispatchSize(n, [&](auto order) {
      ForEachSmallGroup<T>(pool, batch, order, order, 0, a, [&](auto& group) {
        write(group.first, small::Determinant(order, group.a, group.pivots, group.permutation));
      });
    });
  }

  void RunBlocked(ffi::ThreadPool& pool) const {
    ForEachInTasks(
        pool, batch, BlockedLuNanoseconds<T>(n, n), [&] { return blocked::LuFactors<T>(n, n); },
        [&](blocked::LuFactors<T>& factors, int64_t i, const blocked::RunTasks& run_tasks) {
          factors.Factor(a + i * n * n, run_tasks);
          const auto* lu = reinterpret_cast<const Element<T>*>(factors.lu().data);
          write(i, ProductOfPivots(n, lu, factors.lu().ld, factors.pivots()));
        });
  }
};

template <class T, class Write>
void RunDet(ffi::ThreadPool& pool, const BatchShape& shape, const ffi::AnyBuffer& a,
            Write&& write) {
  const int64_t batch = shape.batch, n = shape.rows;
  TakePath(pool,
           DetProblem<T, Write>{
               .batch = batch, .n = n, .a = Elements<T>(a, batch, {n, n}, "a"), .write = write});
}

void Det(ffi::ThreadPool pool, ffi::AnyBuffer a, Result det) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    T* det_data = Elements<T>(det, shape.batch, {}, "det");
    RunDet<T>(pool, shape, a, [&](int64_t i, const auto& product) {
      const auto value = product.Value();
      StoreElements(&value, 1, det_data + i);
    });
  });
}

void Slogdet(ffi::ThreadPool pool, ffi::AnyBuffer a, Result sign, Result logabsdet) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    T* sign_data = Elements<T>(sign, shape.batch, {}, "sign");
    auto* logabsdet_data = Elements<Real<T>>(logabsdet, shape.batch, {}, "logabsdet");
    RunDet<T>(pool, shape, a, [&](int64_t i, const auto& det) {
      const auto parts = det.InParts();
      StoreElements(&parts.sign, 1, sign_data + i);
      StoreElements(&parts.logarithm, 1, logabsdet_data + i);
    });
  });
}

// Called for small matrices alone.
template <class T>
struct AdjugateProblem {
  int64_t batch;
  int n;
  const T* a;
  T* adjugate;

  Path path() const { return Path::kSmall; }

  void RunSmall(ffi::ThreadPool& pool) const {
    const int64_t size = int64_t{n} * n;
    ForEachSmallGroup<T>(pool, batch, n, n, size, a, [&](auto& group) {
      const auto singular =
          small::Adjugate(n, group.a, group.pivots, group.permutation, group.spare);
      StoreElements(group.spare, size, adjugate + group.first * size);
      using V = std::remove_const_t<decltype(singular)>;
      if (!Any(singular > V{})) return;
      int32_t info[kLanesOf<V>];
      StoreIntegers(&singular, 1, info);
      for (int64_t lane = 0; lane < kLanesOf<V>; ++lane) {
        if (info[lane] > 0) RunSingular(group.first + lane);
      }
    });
  }

 private:
  void RunSingular(int64_t i) const {
    using Scalar = Element<T, Real<T>>;
    const int64_t size = int64_t{n} * n;
    const auto places = Scratch<int>(2 * n);
    const auto work = Scratch<Scalar>(size + 2 * n);
    std::memcpy(work.get(), a + i * size, size * sizeof(T));
    small::AdjugateOfSingular(n, work.get(), places.get(), work.get() + size,
                              reinterpret_cast<Scalar*>(adjugate + i * size));
  }
};

void Adjugate(ffi::ThreadPool pool, ffi::AnyBuffer a, Result adjugate) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    TakePath(pool, AdjugateProblem<T>{
                       .batch = batch,
                       .n = ToInt(n),
                       .a = Elements<T>(a, batch, {n, n}, "a"),
                       .adjugate = ResultElements<T>(adjugate, batch, {n, n}, "the adjugate")});
  });
}

}  // namespace
}  // namespace linalg

LINALG_HANDLER(linalg_adjugate, linalg::Adjugate);
LINALG_HANDLER(linalg_det, linalg::Det);
LINALG_HANDLER(linalg_slogdet, linalg::Slogdet);
