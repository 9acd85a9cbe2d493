// Eigenvalues and eigenvectors of real symmetric tridiagonal matrices.
//
// stevd: divide and conquer, or implicit QL if only values are wanted. A matrix that holds NaN or
// Inf is not handed to LAPACK, whose iterations may not end on it: it gets NaN, and info = -1.
#include "kernels/cpu/batch.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/results.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cpu/tuning.h"
#include "kernels/handlers.h"

namespace linalg {
namespace {

// Calls body with the type of a real dtype.
template <class Body>
void DispatchReal(ffi::DataType dtype, Body&& body) {
  DispatchDtype(dtype, [&]<class T>(std::type_identity<T> type) {
    if constexpr (kIsComplex<T>) {
      throw std::invalid_argument("the dtype must be float32 or float64");
    } else {
      body(type);
    }
  });
}

// Runs over the batch; `vectors` is where eigenvectors go, or null if only values are wanted.
template <class R>
void TridiagonalBatch(ffi::ThreadPool& pool, int64_t batch, int64_t n, const R* diagonal,
                      const R* beside, R* vectors, R* values, int32_t* info) {
  if (n == 0) return std::fill(info, info + batch, 0);
  lapack::Load();
  const int64_t size = n * n;
  const BlasThreads threads(ThreadsFor(batch, n));
  const double nanoseconds = LapackNanoseconds(vectors ? 4.0 * n * size : 30.0 * size);
  ForEachRange(pool, batch, nanoseconds, [&](int64_t first, int64_t last) {
    lapack::Stevd<R> stevd(n, vectors != nullptr);
    const auto e = Scratch<R>(n);
    for (int64_t i = first; i < last; ++i) {
      R* const w = values + i * n;
      R* const v = vectors ? vectors + i * size : nullptr;
      std::copy_n(diagonal + i * n, n, w);
      std::copy_n(beside + i * (n - 1), n - 1, e.get());
      info[i] = AllFinite(w, n) && AllFinite(e.get(), n - 1) ? stevd(w, e.get(), v) : kNotFinite;
      if (info[i] != 0) {
        std::fill_n(w, n, NaN<R>());
        if (vectors) std::fill_n(v, size, NaN<R>());
      } else if (vectors) {
        TransposeInPlace(pool, n, v);
      }
    }
  });
}

int64_t TridiagonalSize(const BatchShape& diagonal, const ffi::AnyBuffer& beside) {
  const int64_t n = diagonal.cols;
  if (SplitBatch(beside, 1, "e").cols != std::max<int64_t>(n - 1, 0)) {
    throw BadArgument("e", "have an element less than d");
  }
  return n;
}

ffi::Error EighTridiagonal(ffi::ThreadPool pool, ffi::AnyBuffer diagonal, ffi::AnyBuffer beside,
                           ffi::Result<ffi::AnyBuffer> values, ffi::Result<ffi::AnyBuffer> vectors,
                           ffi::Result<ffi::AnyBuffer> info) {
  return Guard("linalg_eigh_tridiagonal", [&] {
    const BatchShape shape = SplitBatch(diagonal, 1, "d");
    const int64_t batch = shape.batch, n = TridiagonalSize(shape, beside);
    DispatchReal(diagonal.element_type(), [&]<class R>(std::type_identity<R>) {
      TridiagonalBatch(pool, batch, n, Elements<R>(diagonal, batch * n, "d"),
                       Elements<R>(beside, batch * std::max<int64_t>(n - 1, 0), "e"),
                       ResultElements<R>(vectors, batch * n * n, "the eigenvectors"),
                       Elements<R>(values, batch * n, "the eigenvalues"),
                       Elements<int32_t>(info, batch, "info"));
    });
  });
}

ffi::Error EigvalshTridiagonal(ffi::ThreadPool pool, ffi::AnyBuffer diagonal, ffi::AnyBuffer beside,
                               ffi::Result<ffi::AnyBuffer> values,
                               ffi::Result<ffi::AnyBuffer> info) {
  return Guard("linalg_eigvalsh_tridiagonal", [&] {
    const BatchShape shape = SplitBatch(diagonal, 1, "d");
    const int64_t batch = shape.batch, n = TridiagonalSize(shape, beside);
    DispatchReal(diagonal.element_type(), [&]<class R>(std::type_identity<R>) {
      TridiagonalBatch(pool, batch, n, Elements<R>(diagonal, batch * n, "d"),
                       Elements<R>(beside, batch * std::max<int64_t>(n - 1, 0), "e"),
                       static_cast<R*>(nullptr), Elements<R>(values, batch * n, "the eigenvalues"),
                       Elements<int32_t>(info, batch, "info"));
    });
  });
}

}  // namespace
}  // namespace linalg

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_eigh_tridiagonal, linalg::EighTridiagonal,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_eigvalsh_tridiagonal, linalg::EigvalshTridiagonal,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>());
