// Tridiagonal systems A x = b by the Thomas algorithm: elimination without pivoting, O(n).
//
// A is given by three vectors of length n: its diagonal, and the diagonals below and above it.
// Element i of each is in row i of A, so lower[0] and upper[n - 1] are not read. info is 0, or the
// 1-based index of the first pivot that is zero; the solution of that system is then NaN.
#include <algorithm>
#include <limits>
#include <vector>

#include "linalg/cpu/batch.h"
#include "linalg/ffi.h"

namespace {

namespace ffi = xla::ffi;

template <class T>
int Solve(int64_t n, const T* lower, const T* diagonal, const T* upper, const T* b, T* ratio,
          T* x) {
  for (int64_t i = 0; i < n; ++i) {
    const T pivot = i == 0 ? diagonal[0] : diagonal[i] - lower[i] * ratio[i - 1];
    if (pivot == T(0)) {
      std::fill(x, x + n, T(std::numeric_limits<linalg::Real<T>>::quiet_NaN()));
      return static_cast<int>(i + 1);
    }
    ratio[i] = upper[i] / pivot;
    x[i] = (i == 0 ? b[0] : b[i] - lower[i] * x[i - 1]) / pivot;
  }
  for (int64_t i = n - 2; i >= 0; --i) x[i] -= ratio[i] * x[i + 1];
  return 0;
}

ffi::Error TridiagonalSolve(ffi::ThreadPool pool, ffi::AnyBuffer lower, ffi::AnyBuffer diagonal,
                            ffi::AnyBuffer upper, ffi::AnyBuffer b, ffi::Result<ffi::AnyBuffer> x,
                            ffi::Result<ffi::AnyBuffer> info) {
  return linalg::Guard("tridiagonal_solve", [&] {
    const linalg::BatchShape shape = linalg::SplitBatch(b, 1, "b");
    const int64_t n = shape.cols;
    linalg::DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
      const T* lower_data = linalg::Elements<T>(lower, shape.batch, {n}, "lower");
      const T* diagonal_data = linalg::Elements<T>(diagonal, shape.batch, {n}, "diagonal");
      const T* upper_data = linalg::Elements<T>(upper, shape.batch, {n}, "upper");
      const T* b_data = linalg::Elements<T>(b, shape.batch, {n}, "b");
      T* x_data = linalg::Elements<T>(x, shape.batch, {n}, "x");
      int32_t* info_data = linalg::Elements<int32_t>(info, shape.batch, {}, "info");
      // About ten nanoseconds for each row: two divisions.
      const double nanoseconds = 10.0 * static_cast<double>(n + 1);
      linalg::ForEachRange(pool, shape.batch, nanoseconds, [&](int64_t first, int64_t last) {
        std::vector<T> ratio(n);
        for (int64_t i = first; i < last; ++i) {
          info_data[i] = Solve(n, lower_data + i * n, diagonal_data + i * n, upper_data + i * n,
                               b_data + i * n, ratio.data(), x_data + i * n);
        }
      });
    });
  });
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(tridiagonal_solve, TridiagonalSolve,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());
