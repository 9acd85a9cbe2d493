// Inverses and determinants from LU factors.
//
// Small matrices are factored and inverted in lanes; larger ones by getrf and getri. The inverse of
// an exactly singular matrix is NaN. A determinant is a product kept apart from its exponent, so
// that it overflows only if the result does.
#include <bit>

#include "kernels/cpu/lu.h"
#include "kernels/handlers.h"

namespace linalg {
namespace {

ffi::Error Inv(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::Result<ffi::AnyBuffer> inverse,
               ffi::Result<ffi::AnyBuffer> info) {
  return Guard("linalg_inv", [&] {
    const BatchShape shape = SplitSquareBatch(a, "a");
    const int64_t n = shape.rows, size = shape.size(), batch = shape.batch;
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      const T* a_data = Elements<T>(a, batch * size, "a");
      T* inverse_data = ResultElements<T>(inverse, batch * size, "the inverse");
      int32_t* info_data = Elements<int32_t>(info, batch, "info");
      if (UseSmallLu(n, n)) {
        return ForEachSmallLu<T>(pool, batch, n, n, size, a_data, [&](auto& group, auto singular) {
          small::Invert(static_cast<int>(n), group.a, group.permutation, group.spare);
          small::FillNaN(singular != decltype(singular){}, size, group.spare);
          StoreElements(group.spare, size, inverse_data + group.first * size);
          StoreIntegers(&singular, 1, info_data + group.first);
        });
      }
      lapack::Load();
      const BlasThreads threads(ThreadsFor(batch, n));
      ForEachRange(pool, batch, 3 * LuNanoseconds(n, n), [&](int64_t first, int64_t last) {
        Factors<T> factors(n, n);
        const auto work = Scratch<T>(lapack::GetriWork(n));
        for (int64_t i = first; i < last; ++i) {
          T* target = inverse_data + i * size;
          info_data[i] = factors.Factor(pool, a_data + i * size);
          if (info_data[i] != 0) {
            std::fill(target, target + size, NaN<T>());
          } else if (n > 0) {
            for (int64_t k = 0; k < n; ++k) ++factors.pivots()[k];
            lapack::Getri(ToInt(n), factors.lu(), ToInt(n), factors.pivots(), work.get());
            Transpose(pool, n, n, factors.lu(), n, target, n);
          }
        }
      });
    });
  });
}

// Calls write(index, det) with a ScaledProduct for every matrix, or group of them.
template <class T, class Write>
void ForEachDeterminant(ffi::ThreadPool& pool, const BatchShape& shape, const ffi::AnyBuffer& a,
                        Write&& write) {
  const int64_t n = shape.rows, size = shape.size();
  const T* a_data = Elements<T>(a, shape.batch * size, "a");
  if (UseSmallLu(n, n)) {
    return DispatchSize(n, [&](auto order) {
      ForEachSmallGroup<T>(pool, shape.batch, order, order, 0, a_data, [&](auto& group) {
        write(group.first, small::Determinant(order, group.a, group.pivots, group.permutation));
      });
    });
  }
  lapack::Load();
  const BlasThreads threads(ThreadsFor(shape.batch, n));
  ForEachRange(pool, shape.batch, LuNanoseconds(n, n), [&](int64_t first, int64_t last) {
    Factors<T> factors(n, n);
    for (int64_t i = first; i < last; ++i) {
      factors.Factor(pool, a_data + i * size);
      using E = Element<T, Real<T>>;
      small::ScaledProduct<E> det;
      for (int64_t k = 0; k < n; ++k) {
        const T pivot = factors.lu()[k * n + k];
        det.Multiply(std::bit_cast<E>(factors.pivots()[k] == k ? pivot : -pivot));
      }
      write(i, det);
    }
  });
}

ffi::Error Det(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::Result<ffi::AnyBuffer> det) {
  return Guard("linalg_det", [&] {
    const BatchShape shape = SplitSquareBatch(a, "a");
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      T* det_data = Elements<T>(det, shape.batch, "det");
      ForEachDeterminant<T>(pool, shape, a, [&](int64_t i, const auto& product) {
        const auto value = product.Value();
        StoreElements(&value, 1, det_data + i);
      });
    });
  });
}

ffi::Error Slogdet(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::Result<ffi::AnyBuffer> sign,
                   ffi::Result<ffi::AnyBuffer> logabsdet) {
  return Guard("linalg_slogdet", [&] {
    const BatchShape shape = SplitSquareBatch(a, "a");
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      T* sign_data = Elements<T>(sign, shape.batch, "sign");
      auto* logabsdet_data = Elements<Real<T>>(logabsdet, shape.batch, "logabsdet");
      ForEachDeterminant<T>(pool, shape, a, [&](int64_t i, auto det) {
        det.Normalise();
        const auto phase = det.Sign();
        const auto logarithm = det.LogarithmOfMagnitude();
        StoreElements(&phase, 1, sign_data + i);
        StoreElements(&logarithm, 1, logabsdet_data + i);
      });
    });
  });
}

}  // namespace
}  // namespace linalg

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_inv, linalg::Inv,
                              (linalg::Signature<1, 2, linalg::ffi::ThreadPool>()));

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_det, linalg::Det,
                              (linalg::Signature<1, 1, linalg::ffi::ThreadPool>()));

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_slogdet, linalg::Slogdet,
                              (linalg::Signature<1, 2, linalg::ffi::ThreadPool>()));
