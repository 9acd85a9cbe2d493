// Cholesky factors of Hermitian positive definite matrices, and solves with them.
//
// potrf works in place in the output: a row-major lower triangle is a column-major upper one, so
// neither the operand nor the factor is transposed. One pass over the operand copies the triangle,
// symmetrises it and clears the other one; a matrix that is not positive definite gets a triangle
// of NaN.
#include <cmath>

#include "kernels/cpu/triangular.h"
#include "kernels/handlers.h"

namespace linalg {
namespace {

template <class T>
void FillTriangle(int64_t n, bool lower, T value, T* a) {
  for (int64_t i = 0; i < n; ++i) {
    std::fill(a + i * n + (lower ? 0 : i), a + i * n + (lower ? i + 1 : n), value);
  }
}

template <class T>
int CholeskyOne(ffi::ThreadPool& pool, int64_t n, HermitianPart part, const T* a, T* factor) {
  if (n == 0) return 0;
  std::fill(factor, factor + n * n, T(0));
  ForEachInTriangle(pool, n, part, a,
                    [=](int64_t i, int64_t j, T element) { factor[i * n + j] = element; });
  int info = lapack::Potrf(part.lower ? 'U' : 'L', ToInt(n), factor, ToInt(n));
  // Not every LAPACK finds that NaN or infinity is no positive pivot.
  for (int64_t i = 0, end = info == 0 ? n : info - 1; i < end; ++i) {
    if (std::isfinite(std::real(factor[i * n + i]))) continue;
    info = static_cast<int>(i + 1);
    break;
  }
  if (info != 0) FillTriangle(n, part.lower, NaN<T>(), factor);
  return info;
}

ffi::Error Cholesky(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::Result<ffi::AnyBuffer> factor,
                    ffi::Result<ffi::AnyBuffer> info, bool lower, bool symmetrize) {
  return Guard("linalg_cholesky", [&] {
    lapack::Load();
    const BatchShape shape = SplitSquareBatch(a, "a");
    const int64_t n = shape.rows, size = shape.size();
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      const T* a_data = Elements<T>(a, shape.batch * size, "a");
      T* factor_data = Elements<T>(factor, shape.batch * size, "the factor");
      int32_t* info_data = Elements<int32_t>(info, shape.batch, "info");
      const BlasThreads threads(ThreadsFor(shape.batch, n));
      const double nanoseconds = LapackNanoseconds(n * n * n / 3.0);
      ForEachRange(pool, shape.batch, nanoseconds, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          info_data[i] =
              CholeskyOne(pool, n, {lower, symmetrize}, a_data + i * size, factor_data + i * size);
        }
      });
    });
  });
}

ffi::Error CholeskySolve(ffi::ThreadPool pool, ffi::AnyBuffer factor, ffi::AnyBuffer b,
                         ffi::Result<ffi::AnyBuffer> x, bool lower) {
  return Guard("linalg_cholesky_solve", [&] {
    lapack::Load();
    const BatchShape rhs = SplitBatch(b, 2, "b");
    // a = L Lᴴ with a lower factor, a = Uᴴ U with an upper one.
    const Triangle plain{.lower = lower};
    const Triangle adjoint{.lower = lower, .transpose = true, .conjugate = true};
    DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
      ForEachRightHandSide<T>(pool, factor, b, x, true, [&](int64_t, const T* matrix, T* solution) {
        SolveTriangular(lower ? plain : adjoint, rhs.rows, matrix, rhs.rows, rhs.cols, solution);
        SolveTriangular(lower ? adjoint : plain, rhs.rows, matrix, rhs.rows, rhs.cols, solution);
      });
    });
  });
}

}  // namespace
}  // namespace linalg

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_cholesky, linalg::Cholesky,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>()
                                  .Attr<bool>("lower")
                                  .Attr<bool>("symmetrize"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_cholesky_solve, linalg::CholeskySolve,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>()
                                  .Attr<bool>("lower"));
