// Inverses and determinants from LU factors.
//
// Small matrices are factored and inverted in lanes; larger ones by getrf and getri. The inverse of
// an exactly singular matrix is NaN. A determinant is a product kept apart from its exponent.
#include <bit>
#include <cmath>
#include <numbers>

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
      T* inverse_data = Elements<T>(inverse, batch * size, "the inverse");
      int32_t* info_data = Elements<int32_t>(info, batch, "info");
      if (UseSmallLu(n, n)) {
        return ForEachSmallLu<T>(pool, batch, n, n, size, a_data, [&](auto& factors) {
          small::Invert(static_cast<int>(n), factors.lu, factors.permutation, factors.spare);
          small::FillNaN(factors.singular > decltype(factors.singular){}, size, factors.spare);
          StoreElements(factors.spare, size, inverse_data + factors.first * size);
          StoreIntegers(&factors.singular, 1, info_data + factors.first);
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
          if (info_data[i] > 0) {
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

template <class T>
T Scale(T x, int exponent) {
  if constexpr (kIsComplex<T>) {
    return T(std::scalbn(x.real(), exponent), std::scalbn(x.imag(), exponent));
  } else {
    return std::scalbn(x, exponent);
  }
}

// A determinant as product * 2^exponent, so that it overflows only if the result does.
template <class T>
struct Determinant {
  T product;
  int exponent;

  T Value() const { return Scale(product, exponent); }
  T Sign() const { return product == T(0) ? product : product / std::abs(product); }
  Real<T> Logarithm() const {
    return std::log(std::abs(product)) + exponent * std::numbers::ln2_v<Real<T>>;
  }
};

// Calls write(index, Determinant<T>) for every matrix.
template <class T, class Write>
void ForEachDeterminant(ffi::ThreadPool& pool, const BatchShape& shape, const ffi::AnyBuffer& a,
                        Write&& write) {
  const int64_t n = shape.rows, size = shape.size();
  const T* a_data = Elements<T>(a, shape.batch * size, "a");
  if (UseSmallLu(n, n)) {
    return ForEachSmallLu<T>(pool, shape.batch, n, n, 0, a_data, [&](auto& factors) {
      const auto det = small::Determinant(static_cast<int>(n), factors.lu, factors.pivots);
      constexpr int kLanes = small::kLanesOf<decltype(factors.singular)>;
      T product[kLanes];
      int32_t exponent[kLanes];
      StoreElements(&det.product, 1, product);
      StoreIntegers(&det.exponent, 1, exponent);
      for (int lane = 0; lane < kLanes; ++lane) {
        write(factors.first + lane,
              Determinant<T>{product[lane], exponent[lane] * det.kExponentStep});
      }
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
        const T factor = factors.pivots()[k] == k ? pivot : -pivot;
        det.Multiply(std::bit_cast<E>(factor));
      }
      write(i, Determinant<T>{std::bit_cast<T>(det.product),
                              static_cast<int>(det.exponent) * det.kExponentStep});
    }
  });
}

ffi::Error Slogdet(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::Result<ffi::AnyBuffer> sign,
                   ffi::Result<ffi::AnyBuffer> logabsdet) {
  return Guard("linalg_slogdet", [&] {
    const BatchShape shape = SplitSquareBatch(a, "a");
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      T* sign_data = Elements<T>(sign, shape.batch, "sign");
      auto* logabsdet_data = Elements<Real<T>>(logabsdet, shape.batch, "logabsdet");
      ForEachDeterminant<T>(pool, shape, a, [&](int64_t i, const Determinant<T>& det) {
        sign_data[i] = det.Sign();
        logabsdet_data[i] = det.Logarithm();
      });
    });
  });
}

ffi::Error Det(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::Result<ffi::AnyBuffer> det) {
  return Guard("linalg_det", [&] {
    const BatchShape shape = SplitSquareBatch(a, "a");
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      T* det_data = Elements<T>(det, shape.batch, "det");
      ForEachDeterminant<T>(pool, shape, a, [&](int64_t i, const Determinant<T>& value) {
        det_data[i] = value.Value();
      });
    });
  });
}

}  // namespace
}  // namespace linalg

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_inv, linalg::Inv,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_slogdet, linalg::Slogdet,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_det, linalg::Det,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>());
