// Tridiagonal systems. One system per lane whatever its size, since LAPACK's gtsv has no vectors
// either: the recurrence along the diagonal is serial. Of systems that are few and long, a core
// works on one at a time.
#include "kernels/small/tridiagonal_solve.h"
#include "kernels/cpu/lanes.h"
#include "kernels/handlers.h"

namespace linalg {
namespace {

void TridiagonalSolve(ffi::ThreadPool pool, ffi::AnyBuffer dl, ffi::AnyBuffer d, ffi::AnyBuffer du,
                      ffi::AnyBuffer b, Result x, Result info, bool perturb_singular) {
  const BatchShape shape = SplitBatch(b, 2, "b");
  const int64_t batch = shape.batch, n = shape.rows, cols = shape.cols;
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    constexpr int64_t kParts = kPartsOf<T>;
    const T* const diagonals[] = {Elements<T>(dl, batch, {n}, "dl"),
                                  Elements<T>(d, batch, {n}, "d"),
                                  Elements<T>(du, batch, {n}, "du")};
    const T* const b_data = Elements<T>(b, batch, {n, cols}, "b");
    T* const x_data = ResultElements<T>(x, batch, {n, cols}, "x");
    int32_t* const info_data = Elements<int32_t>(info, batch, {}, "info");
    const int64_t count = (4 + cols) * n * kParts;
    const double nanoseconds =
        SmallNanoseconds(kLanes<T>, count, static_cast<double>(count) * 4 * kParts);
    ForEachGroup<T>(pool, batch, count, nanoseconds, [&]<class V>(int64_t i, V* registers) {
      auto* a = reinterpret_cast<Element<T, V>*>(registers);
      auto* group = a + 4 * n;
      for (int k = 0; k < 3; ++k) LoadElements(diagonals[k] + i * n, n, n, a + k * n);
      LoadElements(b_data + i * n * cols, n * cols, n * cols, group);
      const V singular = small::SolveTridiagonal<Element<T, V>>(
          ToInt(n), {a, a + n, a + 2 * n, a + 3 * n}, perturb_singular, ToInt(cols), group);
      StoreElements(group, n * cols, x_data + i * n * cols);
      StoreIntegers(&singular, 1, info_data + i);
    });
  });
}

}  // namespace
}  // namespace linalg

LINALG_HANDLER(linalg_tridiagonal_solve, linalg::TridiagonalSolve);
