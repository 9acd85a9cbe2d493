// Tridiagonal systems of any size, one per lane. LAPACK's gtsv uses no vectors either, because the
// recurrence along the diagonal is serial. A core works on few long systems one at a time.
#include "kernels/small/tridiagonal_solve.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/results.h"
#include "kernels/systems.h"

namespace linalg {
namespace {

template <class T>
struct TridiagonalSolveProblem {
  TridiagonalSystems<T> systems;
  bool perturb_singular;

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    constexpr int64_t kParts = kPartsOf<T>;
    const int64_t n = systems.n, cols = systems.cols;
    const T* const diagonals[] = {systems.lower, systems.diagonal, systems.upper};
    const int64_t count = (4 + cols) * n * kParts;
    const double nanoseconds =
        SmallNanoseconds(kLanes<T>, count, static_cast<double>(count) * 4 * kParts);
    AdviseHugePages(systems.x, systems.batch * n * cols * sizeof(T));
    const auto solve_group = [&]<class V>(int64_t i, V* registers) {
      auto* a = reinterpret_cast<Element<T, V>*>(registers);
      auto* group = a + 4 * n;
      for (int k = 0; k < 3; ++k) LoadElements(diagonals[k] + i * n, n, n, a + k * n);
      LoadElements(systems.b + i * n * cols, n * cols, n * cols, group);
      const V singular = small::SolveTridiagonal<Element<T, V>>(
          ToInt(n), {a, a + n, a + 2 * n, a + 3 * n}, perturb_singular, ToInt(cols), group);
      StoreElements(group, n * cols, systems.x + i * n * cols);
      StoreIntegers(&singular, 1, systems.info + i);
    };
    if (systems.batch < kLeastGroup<T>) {
      // Single systems need memory for plain numbers only, which mostly fits on the stack.
      const int64_t registers = (count + kLanes<T> - 1) / kLanes<T>;
      return ForEachGroupOf<1, T>(pool, systems.batch, registers, nanoseconds, solve_group, false);
    }
    ForEachGroup<T>(pool, systems.batch, count, nanoseconds, solve_group);
  }
};

void TridiagonalSolve(ffi::ThreadPool pool, ffi::AnyBuffer dl, ffi::AnyBuffer d, ffi::AnyBuffer du,
                      ffi::AnyBuffer b, Result x, Result info, bool perturb_singular) {
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool, TridiagonalSolveProblem<T>{
                        .systems = ReadTridiagonalSystems<T>(dl, d, du, b, x, info),
                        .perturb_singular = perturb_singular});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_tridiagonal_solve, linalg::TridiagonalSolve);
