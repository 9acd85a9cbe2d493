// Solutions of linear systems, and inverses, by LU with partial pivoting.
//
// One matrix per thread or per team of threads where it fits in shared memory, with what is solved
// with it. Beyond, the vendor's LU and cuBLAS's trsm, for inverses on the permuted identity. A
// matrix that is exactly singular, or whose factors hold NaN, gets NaN throughout.
#include "kernels/cuda/lu_factors.h"
#include "kernels/cuda/passes.h"
#include "kernels/cuda/substitution.h"
#include "kernels/handlers.h"
#include "kernels/small/solve.h"
#include "kernels/team/solve.h"

namespace linalg::cuda {
namespace {

// Of n by n matrices with `cols` right-hand sides.
template <class E>
struct SolveProblem {
  int n, cols;
  const E* a;
  const E* b;
  E* x;
  int32_t* info;
};

template <class E>
struct SmallSolve {
  using V = RealElement<E>;
  SolveProblem<E> problem;
  Staged<E> matrix, rhs;
  Place<V> pivots, permutation;
  Staged<V> info;

  __device__ void Load(int64_t first, int count, char* memory, int64_t bytes) const {
    matrix.Load(problem.a, first, count, memory, bytes);
    rhs.Load(problem.b, first, count, memory, bytes);
  }
  __device__ void Run(char* slice) const {
    *info.In(slice) = small::Solve(problem.n, matrix.In(slice), pivots.In(slice),
                                   permutation.In(slice), problem.cols, rhs.In(slice));
  }
  __device__ void Store(int64_t first, int count, char* memory, int64_t bytes) const {
    rhs.Store(problem.x, first, count, memory, bytes);
    info.StoreIntegers(problem.info, first, count, memory, bytes);
  }
};

template <class E>
struct TeamSolve {
  static constexpr int kMostThreads = kBlockThreads;
  SolveProblem<E> problem;
  Place<E> matrix, solution;
  Place<int32_t> pivots, permutation;
  int ld, ld_solution;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = problem.n, cols = problem.cols;
    E* const a = matrix.In(slice);
    LoadMatrix(team, problem.a + i * n * n, n, n, a, ld);
    const E* const b = problem.b + i * n * cols;
    const auto x = team::Solve(
        team, n, a, ld, pivots.In(slice), permutation.In(slice), cols,
        [&](int row, int col) { return LoadGlobal(b + row * cols + col); }, solution.In(slice),
        ld_solution);
    StoreMatrix(team, n, cols, problem.x + i * n * cols, x);
    StoreInfo(team, x.info, problem.info + i);
  }
};

struct CopyFirst {
  int32_t* values;

  __device__ void operator()(int64_t i) const { values[i + 1] = values[0]; }
};

template <class T>
void SolveInSteps(cudaStream_t stream, Scratch& scratch, const Systems<T>& systems, int32_t* info) {
  using E = Element<T>;
  const int64_t n = systems.n, matrices = systems.a_stride == 0 ? 1 : systems.batch;
  const auto problem = MakeProblem(scratch, matrices, n, AsElements(systems.a), info, true);
  const bool own = UseOwnLu<T>(n, n);
  own ? OwnLu(stream, problem) : VendorLu<T>(stream, scratch, problem);
  // One matrix for the whole batch is factored once.
  if (matrices < systems.batch) ForEach(stream, systems.batch - 1, CopyFirst{info});
  Systems<T> factored = systems;
  factored.a = reinterpret_cast<const T*>(problem.packed);
  Substitute(stream, scratch,
             Substitution{.with = Substitution::With::kLu,
                          .pivots = problem.pivots,
                          .pivots_stride = matrices < systems.batch ? 0 : n,
                          .column_major = !own},
             factored);
  ForEach(stream, systems.batch * systems.size(),
          FillFailed<E>{AsElements(systems.x), std::max<int64_t>(systems.size(), 1), info});
}

template <class T>
void SolveBatch(cudaStream_t stream, Scratch& scratch, const Systems<T>& systems, int32_t* info) {
  using E = Element<T>;
  using V = RealElement<E>;
  const int64_t n = systems.n, cols = systems.cols, size = n * n, rhs_size = n * cols;
  const bool shared = systems.a_stride == 0 && systems.batch > 1;
  const SolveProblem<E> problem{.n = ToInt(n),
                                .cols = ToInt(cols),
                                .a = AsElements(systems.a),
                                .b = AsElements(systems.b),
                                .x = AsElements(systems.x),
                                .info = info};
  Slice slice(sizeof(V));
  if (!shared && (size + rhs_size) * static_cast<int64_t>(sizeof(T)) <= kAloneBytes) {
    const SmallSolve<E> job{.problem = problem,
                            .matrix = {size, slice.Take<E>(size)},
                            .rhs = {rhs_size, slice.Take<E>(rhs_size)},
                            .pivots = slice.Take<V>(n),
                            .permutation = slice.Take<V>(n),
                            .info = {1, slice.Take<V>(1)}};
    return LaunchAlone(stream, job, systems.batch, slice);
  }
  if (!shared && n <= kTeamLu && cols <= kColumnsOfTeam) {
    const int ld = ToInt(n | 1), ld_solution = ToInt(cols | 1);
    const TeamSolve<E> job{.problem = problem,
                           .matrix = slice.Take<E>(n * ld),
                           .solution = slice.Take<E>(n * ld_solution),
                           .pivots = slice.Take<int32_t>(n),
                           .permutation = slice.Take<int32_t>(n),
                           .ld = ld,
                           .ld_solution = ld_solution};
    if (slice.bytes() <= SharedBytes()) {
      return LaunchTeams(stream, job, systems.batch, TeamSize(n), slice);
    }
  }
  SolveInSteps(stream, scratch, systems, info);
}

// Of n by n matrices.
template <class E>
struct InverseProblem {
  int n;
  const E* a;
  E* inverse;
  int32_t* info;
};

template <class E>
struct SmallInverse {
  using V = RealElement<E>;
  InverseProblem<E> problem;
  Staged<E> matrix, inverse;
  Place<V> pivots, permutation;
  Staged<V> info;

  __device__ void Load(int64_t first, int count, char* memory, int64_t bytes) const {
    matrix.Load(problem.a, first, count, memory, bytes);
  }
  __device__ void Run(char* slice) const {
    *info.In(slice) = small::Inverse(problem.n, matrix.In(slice), pivots.In(slice),
                                     permutation.In(slice), inverse.In(slice));
  }
  __device__ void Store(int64_t first, int count, char* memory, int64_t bytes) const {
    inverse.Store(problem.inverse, first, count, memory, bytes);
    info.StoreIntegers(problem.info, first, count, memory, bytes);
  }
};

template <class E>
struct TeamInverse {
  static constexpr int kMostThreads = kBlockThreads;
  InverseProblem<E> problem;
  Place<E> matrix, inverse;
  Place<int32_t> pivots, permutation;
  int ld;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = problem.n;
    E* const a = matrix.In(slice);
    LoadMatrix(team, problem.a + i * n * n, n, n, a, ld);
    const auto result = team::Inverse(team, n, a, ld, pivots.In(slice), permutation.In(slice),
                                      inverse.In(slice), ld);
    StoreMatrix(team, n, n, problem.inverse + i * n * n, result);
    StoreInfo(team, result.info, problem.info + i);
  }
};

template <class T>
void Invert(cudaStream_t stream, Scratch& scratch, int64_t batch,
            const InverseProblem<Element<T>>& problem) {
  using E = Element<T>;
  using V = RealElement<E>;
  const int64_t n = problem.n, size = n * n;
  Slice slice(sizeof(V));
  if (2 * size * static_cast<int64_t>(sizeof(T)) <= kAloneBytes) {
    const SmallInverse<E> job{.problem = problem,
                              .matrix = {size, slice.Take<E>(size)},
                              .inverse = {size, slice.Take<E>(size)},
                              .pivots = slice.Take<V>(n),
                              .permutation = slice.Take<V>(n),
                              .info = {1, slice.Take<V>(1)}};
    return LaunchAlone(stream, job, batch, slice);
  }
  if (n <= kTeamLu) {
    const int ld = problem.n | 1;
    const TeamInverse<E> job{.problem = problem,
                             .matrix = slice.Take<E>(n * ld),
                             .inverse = slice.Take<E>(n * ld),
                             .pivots = slice.Take<int32_t>(n),
                             .permutation = slice.Take<int32_t>(n),
                             .ld = ld};
    if (slice.bytes() <= SharedBytes()) {
      return LaunchTeams(stream, job, batch, TeamSize(n), slice);
    }
  }
  const auto factored = MakeProblem(scratch, batch, n, problem.a, problem.info, true);
  VendorLu<T>(stream, scratch, factored);
  T* const identity = scratch.Take<T>(batch * size);
  ForEach(stream, batch * size, WriteIdentity<E>{n, AsElements(identity)});
  Substitute(stream, scratch,
             Substitution{.with = Substitution::With::kLu,
                          .pivots = factored.pivots,
                          .pivots_stride = n,
                          .column_major = true},
             Systems<T>{reinterpret_cast<const T*>(factored.packed), identity,
                        reinterpret_cast<T*>(problem.inverse), batch, n, n, n, size});
  ForEach(stream, batch * size, FillFailed<E>{problem.inverse, size, problem.info});
}

ffi::Error Solve(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
                 ffi::AnyBuffer b, ffi::Result<ffi::AnyBuffer> x,
                 ffi::Result<ffi::AnyBuffer> info) {
  return Guard("linalg_solve", [&] {
    Scratch scratch(allocator);
    DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
      const auto systems = ReadSystems<T>(a, b, x, true);
      int32_t* const info_data = Elements<int32_t>(info, systems.batch, "info");
      if (systems.batch > 0) SolveBatch(stream, scratch, systems, info_data);
    });
  });
}

ffi::Error Inv(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
               ffi::Result<ffi::AnyBuffer> inverse, ffi::Result<ffi::AnyBuffer> info) {
  return Guard("linalg_inv", [&] {
    Scratch scratch(allocator);
    const BatchShape shape = SplitSquareBatch(a, "a");
    const int64_t batch = shape.batch, size = shape.size();
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      const T* const a_data = Elements<T>(a, batch * size, "a");
      T* const inverse_data = Elements<T>(inverse, batch * size, "the inverse");
      int32_t* const info_data = Elements<int32_t>(info, batch, "info");
      if (batch == 0) return;
      Invert<T>(stream, scratch, batch,
                {.n = ToInt(shape.rows),
                 .a = AsElements(a_data),
                 .inverse = AsElements(inverse_data),
                 .info = info_data});
    });
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_solve, linalg::cuda::Solve);
LINALG_HANDLER(linalg_inv, linalg::cuda::Inv);
