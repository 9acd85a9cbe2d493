// Schur factors, A = Z T Zᴴ: T upper triangular, or quasi-triangular where A is real.
//
// gees, in place in T's result, which one pass fills with A in column-major order. A matrix that
// holds NaN or Inf is not handed to LAPACK, whose iterations may not end on it: it gets NaN, and
// info = -1.
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/lapack_batch.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/results.h"
#include "kernels/cpu/tiles.h"
#include "kernels/handlers.h"

namespace linalg {
namespace {

// How far from 1 the squared length of a column of the n by n matrix `z` is.
template <class T>
Real<T> DeviationFromUnitary(int64_t n, const T* z) {
  Real<T> deviation = 0;
  for (int64_t j = 0; j < n; ++j) {
    Real<T> square = 0;
    for (int64_t i = 0; i < n; ++i) square += std::norm(z[j * n + i]);
    deviation = std::max(deviation, std::abs(square - 1));
  }
  return deviation;
}

// The complex iteration makes subdiagonal elements real by dividing them by their modulus. That is
// no phase where they are subnormal, and then Z is not unitary; SciPy returns it. An element that
// is subnormal at one scale of the matrix is normal or zero at another.
template <class T>
int ComplexSchur(lapack::Gees<T>& gees, ffi::ThreadPool& pool, int64_t n, const T* a, T* t, T* z) {
  constexpr int kMost = kUnscaledExponents<T> - 1;
  const Real<T> limit = static_cast<Real<T>>(32 + 2 * n) * std::numeric_limits<Real<T>>::epsilon();
  const int exponent = LargestExponent(a, n * n);
  int info = 0;
  for (const int target : {kMost, 0, -kMost}) {
    Transpose(pool, n, n, a, n, t, n);
    MultiplyByPowerOfTwo(target - exponent, n * n, t);
    info = gees(t, z);
    MultiplyByPowerOfTwo(exponent - target, n * n, t);
    const Real<T> deviation = DeviationFromUnitary(n, z);
    if (info == 0 && deviation <= limit) return 0;
    // Slow convergence, which no scale mends, costs digits too.
    if (target == -kMost && info == 0 && deviation > 16 * limit) info = ToInt(n);
  }
  return info;
}

template <class T>
int RealSchur(lapack::Gees<T>& gees, ffi::ThreadPool& pool, int64_t n, const T* a, T* t, T* z) {
  const int exponent = ExponentOutOfRange(a, n * n);
  Transpose(pool, n, n, a, n, t, n);
  MultiplyByPowerOfTwo(-exponent, n * n, t);
  const int info = gees(t, z);
  MultiplyByPowerOfTwo(exponent, n * n, t);
  return info;
}

template <class T>
void SchurBatch(ffi::ThreadPool& pool, int64_t batch, int64_t n, const T* a, T* form, T* vectors,
                int32_t* info) {
  if (n == 0) return std::fill(info, info + batch, 0);
  const int64_t size = n * n;
  ForEachByLapack(pool, batch, n, LapackNanoseconds(25.0 * n * size),
                  [&](int64_t first, int64_t last) {
                    lapack::Gees<T> gees(n);
                    for (int64_t i = first; i < last; ++i) {
                      T* const t = form + i * size;
                      T* const z = vectors + i * size;
                      info[i] = kNotFinite;
                      if (AllFinite(a + i * size, size)) {
                        if constexpr (kIsComplex<T>) {
                          info[i] = ComplexSchur(gees, pool, n, a + i * size, t, z);
                        } else {
                          info[i] = RealSchur(gees, pool, n, a + i * size, t, z);
                        }
                      }
                      for (T* matrix : {t, z}) {
                        if (info[i] != 0) {
                          std::fill(matrix, matrix + size, NaN<T>());
                        } else {
                          TransposeInPlace(pool, n, matrix);
                        }
                      }
                    }
                  });
}

void Schur(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::Result<ffi::AnyBuffer> form,
           ffi::Result<ffi::AnyBuffer> vectors, ffi::Result<ffi::AnyBuffer> info) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    SchurBatch(pool, batch, n, Elements<T>(a, batch, {n, n}, "a"),
               ResultElements<T>(form, batch, {n, n}, "the Schur form"),
               ResultElements<T>(vectors, batch, {n, n}, "the Schur vectors"),
               Elements<int32_t>(info, batch, {}, "info"));
  });
}

}  // namespace
}  // namespace linalg

LINALG_HANDLER(linalg_schur, linalg::Schur);
