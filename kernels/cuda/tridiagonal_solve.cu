// Tridiagonal systems.
//
// Many or short systems take one thread each: elimination with partial pivoting, with neighbouring
// threads reading neighbouring words. Few long systems take orthogonal reduction, level by level.
// Each thread joins neighbouring runs of rows, until one run is left. Then the levels are solved
// back.
//
// Rotations round zero pivots away. So a system that may have one is solved again by elimination,
// for info. Where pivots are to be perturbed, the reduction raises its own pivots instead.
#include "kernels/cuda/tridiagonal_levels.h"

#include <vector>

#include "kernels/cuda/passes.h"
#include "kernels/handlers.h"
#include "kernels/small/tridiagonal_solve.h"

namespace linalg::cuda {
namespace {

template <class E>
struct SolveSystems {
  int n, cols;
  bool perturb;
  int64_t batch;
  E* matrices;  // three diagonals, and space for the second upper one
  E* x;
  int32_t* info;

  __device__ void operator()(int64_t i) const {
    const auto diagonal = [&](int k) {
      return StridedVector<E>{matrices + k * n * batch + i, batch};
    };
    info[i] = static_cast<int32_t>(small::SolveTridiagonal<E, StridedVector<E>>(
        n, {diagonal(0), diagonal(1), diagonal(2), diagonal(3)}, perturb, cols,
        StridedVector<E>{x + i, batch}));
  }
};

template <class T>
void SolveShort(cudaStream_t stream, DeviceScratch& scratch, const TridiagonalSystems<T>& systems,
                bool perturb) {
  const int64_t batch = systems.batch, n = systems.n;
  T* const matrices = scratch.Take<T>(4 * n * batch);
  T* const work = scratch.Take<T>(n * systems.cols * batch);
  const T* const diagonals[] = {systems.lower, systems.diagonal, systems.upper};
  for (int64_t k = 0; k < 3; ++k) {
    Transpose(stream, 1, batch, n, diagonals[k], 0, matrices + k * n * batch, 0);
  }
  Transpose(stream, 1, batch, n * systems.cols, systems.b, 0, work, 0);
  ForEach(stream, batch,
          SolveSystems<Element<T>>{.n = ToInt(n),
                                   .cols = ToInt(systems.cols),
                                   .perturb = perturb,
                                   .batch = batch,
                                   .matrices = AsElements(matrices),
                                   .x = AsElements(work),
                                   .info = systems.info});
  Transpose(stream, 1, n * systems.cols, batch, static_cast<const T*>(work), 0, systems.x, 0);
}

template <class T>
void SolveLong(cudaStream_t stream, DeviceScratch& scratch, const TridiagonalSystems<T>& problem,
               bool perturb) {
  using E = Element<T>;
  using V = Real<T>;
  const int64_t batch = problem.batch, n = problem.n, cols = problem.cols;
  const LongSystems<E> systems{.problem = {.batch = batch,
                                           .n = n,
                                           .cols = cols,
                                           .lower = AsElements(problem.lower),
                                           .diagonal = AsElements(problem.diagonal),
                                           .upper = AsElements(problem.upper),
                                           .b = AsElements(problem.b),
                                           .x = AsElements(problem.x),
                                           .info = problem.info},
                               .perturb = perturb};
  Copy(stream, batch * n * cols, problem.b, problem.x);
  Check(cudaMemsetAsync(problem.info, 0, batch * sizeof(int32_t), stream), "cudaMemsetAsync");
  std::vector<Level<E>> levels;
  for (int64_t rows = 2, runs = (n + 1) / 2;; rows *= kTridiagonalRuns) {
    const int64_t groups = (runs + kTridiagonalRuns - 1) / kTridiagonalRuns;
    Level<E> level{.batch = batch,
                   .rows = rows,
                   .runs = runs,
                   .groups = groups,
                   .ends = nullptr,
                   .interfaces = nullptr,
                   .negligible = Negligible<V>(rows, n)};
    if (!levels.empty()) level.ends = AsElements(scratch.Take<T>(Level<E>::kEnds * batch * runs));
    if (runs > 1)
      level.interfaces = AsElements(scratch.Take<T>(Level<E>::kInterface * level.Interfaces()));
    levels.push_back(level);
    if (runs == 1) break;
    runs = groups;
  }
  static_assert(kLongTridiagonal > 2);  // so that there is a level above the lowest
  const auto count = [&](const Level<E>& level) { return batch * level.groups * cols; };
  ForEach(stream, count(levels[0]),
          ReduceLevel<E, true>{.systems = systems, .level = levels[0], .above = levels[1]});
  for (size_t k = 1; k + 1 < levels.size(); ++k) {
    ForEach(stream, count(levels[k]),
            ReduceLevel<E, false>{.systems = systems, .level = levels[k], .above = levels[k + 1]});
  }
  ForEach(stream, count(levels.back()), SolveEnds<E>{.systems = systems, .level = levels.back()});
  for (size_t k = levels.size() - 1; k-- > 0;) {
    ForEach(stream, count(levels[k]), SolveInterfaces<E>{.systems = systems, .level = levels[k]});
  }
  // The lowest level's interfaces are no longer needed, and have more elements than four diagonals.
  ForEach(stream, batch, SolveSuspects<E>{.systems = systems, .work = levels[0].interfaces});
}

// Few long systems take many threads each.
GpuPath TridiagonalPath(int64_t n, int64_t cols, int64_t batch) {
  const bool is_long = n >= kLongTridiagonal && batch <= kFewTridiagonal && cols > 0;
  return is_long ? GpuPath::kSteps : GpuPath::kThread;
}

void TridiagonalSolve(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer dl,
                      ffi::AnyBuffer d, ffi::AnyBuffer du, ffi::AnyBuffer b, Result x, Result info,
                      bool perturb_singular) {
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const TridiagonalSystems<T> systems = ReadTridiagonalSystems<T>(dl, d, du, b, x, info);
    if (systems.batch == 0) return;
    ToInt(systems.n * systems.cols);
    LaunchOnPath(
        TridiagonalPath(systems.n, systems.cols, systems.batch),
        On{GpuPath::kThread, [&] { SolveShort(stream, scratch, systems, perturb_singular); }},
        On{GpuPath::kSteps, [&] { SolveLong(stream, scratch, systems, perturb_singular); }});
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_tridiagonal_solve, linalg::cuda::TridiagonalSolve);
