// Tridiagonal systems. One system per lane whatever its size, since LAPACK's gtsv has no vectors
// either: the recurrence along the diagonal is serial. Of systems that are few and long, a core
// works on one at a time.
#include "kernels/small/tridiagonal_solve.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/problem.h"
#include "kernels/handlers.h"

namespace linalg {
namespace {

template <class T>
struct TridiagonalSystems {
  int64_t batch, n, cols;
  const T *lower, *diagonal, *upper, *b;
  T* x;
  int32_t* info;
  bool perturb_singular;

  Path path() const { return Path::kSmall; }

  void RunSmall(ffi::ThreadPool& pool) const {
    constexpr int64_t kParts = kPartsOf<T>;
    const T* const diagonals[] = {lower, diagonal, upper};
    const int64_t count = (4 + cols) * n * kParts;
    const double nanoseconds =
        SmallNanoseconds(kLanes<T>, count, static_cast<double>(count) * 4 * kParts);
    ForEachGroup<T>(pool, batch, count, nanoseconds, [&]<class V>(int64_t i, V* registers) {
      auto* a = reinterpret_cast<Element<T, V>*>(registers);
      auto* group = a + 4 * n;
      for (int k = 0; k < 3; ++k) LoadElements(diagonals[k] + i * n, n, n, a + k * n);
      LoadElements(b + i * n * cols, n * cols, n * cols, group);
      const V singular = small::SolveTridiagonal<Element<T, V>>(
          ToInt(n), {a, a + n, a + 2 * n, a + 3 * n}, perturb_singular, ToInt(cols), group);
      StoreElements(group, n * cols, x + i * n * cols);
      StoreIntegers(&singular, 1, info + i);
    });
  }
};

void TridiagonalSolve(ffi::ThreadPool pool, ffi::AnyBuffer dl, ffi::AnyBuffer d, ffi::AnyBuffer du,
                      ffi::AnyBuffer b, Result x, Result info, bool perturb_singular) {
  const BatchShape shape = SplitBatch(b, 2, "b");
  const int64_t batch = shape.batch, n = shape.rows, cols = shape.cols;
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    TakePath(pool, TridiagonalSystems<T>{.batch = batch,
                                         .n = n,
                                         .cols = cols,
                                         .lower = Elements<T>(dl, batch, {n}, "dl"),
                                         .diagonal = Elements<T>(d, batch, {n}, "d"),
                                         .upper = Elements<T>(du, batch, {n}, "du"),
                                         .b = Elements<T>(b, batch, {n, cols}, "b"),
                                         .x = ResultElements<T>(x, batch, {n, cols}, "x"),
                                         .info = Elements<int32_t>(info, batch, {}, "info"),
                                         .perturb_singular = perturb_singular});
  });
}

}  // namespace
}  // namespace linalg

LINALG_HANDLER(linalg_tridiagonal_solve, linalg::TridiagonalSolve);
