// Determinants and adjugates from LU factors.
//
// Small matrices are factored in lanes, larger ones in tiles, the largest by getrf. A determinant
// is a product kept apart from its exponent, so that it overflows only if the result does.
#include <cstring>

#include "kernels/arithmetic/scaled_product.h"
#include "kernels/blocked/lu.h"
#include "kernels/cpu/lapack_batch.h"
#include "kernels/cpu/lu_factors.h"
#include "kernels/handlers.h"
#include "kernels/small/adjugate.h"

namespace linalg {
namespace {

// Calls write(index, det) with a ScaledProduct for every matrix, or group of them.
template <class T, class Write>
void ForEachDeterminant(ffi::ThreadPool& pool, const BatchShape& shape, const ffi::AnyBuffer& a,
                        Write&& write) {
  const int64_t n = shape.rows, size = shape.size();
  const T* a_data = Elements<T>(a, shape.batch, {n, n}, "a");
  const auto in_lanes = [&](auto order) {
    ForEachSmallGroup<T>(pool, shape.batch, order, order, 0, a_data, [&](auto& group) {
      write(group.first, small::Determinant(order, group.a, group.pivots, group.permutation));
    });
  };
  const auto in_tiles = [&](int64_t first, int64_t last) {
    blocked::LuFactors<T> factors(n, n);
    for (int64_t i = first; i < last; ++i) {
      factors.Factor(a_data + i * size);
      const auto* lu = reinterpret_cast<const Element<T>*>(factors.lu().data);
      write(i, ProductOfPivots(n, lu, factors.lu().ld, factors.pivots()));
    }
  };
  const auto by_lapack = [&](int64_t first, int64_t last) {
    LapackLu<T> factors(n, n);
    for (int64_t i = first; i < last; ++i) {
      factors.Factor(pool, a_data + i * size);
      const auto* lu = reinterpret_cast<const Element<T>*>(factors.lu());
      write(i, ProductOfPivots(n, lu, n, factors.pivots()));
    }
  };
  TakePath(
      ChoosePath(Operation::kLu, n, n, kDtype<T>), [&] { DispatchSize(n, in_lanes); },
      [&] { ForEachRange(pool, shape.batch, BlockedLuNanoseconds<T>(n, n), in_tiles); },
      [&] { ForEachByLapack(pool, shape.batch, n, LuNanoseconds(n, n), by_lapack); });
}

void Det(ffi::ThreadPool pool, ffi::AnyBuffer a, Result det) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    T* det_data = Elements<T>(det, shape.batch, {}, "det");
    ForEachDeterminant<T>(pool, shape, a, [&](int64_t i, const auto& product) {
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
    ForEachDeterminant<T>(pool, shape, a, [&](int64_t i, const auto& det) {
      const auto parts = det.InParts();
      StoreElements(&parts.sign, 1, sign_data + i);
      StoreElements(&parts.logarithm, 1, logabsdet_data + i);
    });
  });
}

// Called for small matrices alone.
void Adjugate(ffi::ThreadPool pool, ffi::AnyBuffer a, Result adjugate) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t size = shape.size();
  const int n = ToInt(shape.rows);
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    using Scalar = Element<T, Real<T>>;
    const T* a_data = Elements<T>(a, shape.batch, {n, n}, "a");
    T* target = ResultElements<T>(adjugate, shape.batch, {n, n}, "the adjugate");
    ForEachSmallGroup<T>(pool, shape.batch, n, n, size, a_data, [&](auto& group) {
      const auto singular =
          small::Adjugate(n, group.a, group.pivots, group.permutation, group.spare);
      StoreElements(group.spare, size, target + group.first * size);
      using V = std::remove_const_t<decltype(singular)>;
      if (!Any(singular > V{})) return;
      int32_t info[kLanesOf<V>];
      StoreIntegers(&singular, 1, info);
      const auto places = Scratch<int>(2 * n);
      const auto work = Scratch<Scalar>(size + 2 * n);
      for (int64_t lane = 0; lane < kLanesOf<V>; ++lane) {
        if (info[lane] <= 0) continue;
        const int64_t offset = (group.first + lane) * size;
        std::memcpy(work.get(), a_data + offset, size * sizeof(T));
        small::AdjugateOfSingular(n, work.get(), places.get(), work.get() + size,
                                  reinterpret_cast<Scalar*>(target + offset));
      }
    });
  });
}

}  // namespace
}  // namespace linalg

LINALG_HANDLER(linalg_adjugate, linalg::Adjugate);
LINALG_HANDLER(linalg_det, linalg::Det);
LINALG_HANDLER(linalg_slogdet, linalg::Slogdet);
