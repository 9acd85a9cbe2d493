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
#include "kernels/team/lu.h"
#include "kernels/team/triangular.h"

namespace linalg::cuda {
namespace {

template <class E>
struct SmallSolve {
  using V = RealElement<E>;
  int n, cols;
  const E* a;
  const E* b;
  E* x;
  int32_t* info_out;
  Staged matrix, rhs, info;
  int spare;

  __device__ void Load(int64_t first, int count, char* memory, int64_t bytes) const {
    matrix.Load(a, first, count, memory, bytes);
    rhs.Load(b, first, count, memory, bytes);
  }
  __device__ void Run(char* slice) const {
    E* const factors = At<E>(slice, matrix.offset);
    E* const solution = At<E>(slice, rhs.offset);
    V* const pivots = At<V>(slice, spare);
    *At<V>(slice, info.offset) = small::Solve(n, factors, pivots, pivots + n, cols, solution);
  }
  __device__ void Store(int64_t first, int count, char* memory, int64_t bytes) const {
    rhs.Store(x, first, count, memory, bytes);
    info.StoreIntegers<V>(info_out, first, count, memory, bytes);
  }
};

template <class E>
struct TeamSolve {
  static constexpr int kMostThreads = kBlockThreads;
  int n, cols, ld, ld_rhs;
  const E* a;
  const E* b;
  E* x;
  int32_t* info_out;
  int rhs, pivots, permutation;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    E* const factors = At<E>(slice, 0);
    E* const solution = At<E>(slice, rhs);
    int32_t* const order = At<int32_t>(slice, permutation);
    const int64_t size = static_cast<int64_t>(n) * cols;
    LoadMatrix(team, a + i * n * n, n, n, factors, ld);
    const int info = team::Lu(team, n, n, factors, ld, At<int32_t>(slice, pivots), order);
    team.Phase([&](int thread) {
      for (int e = thread; e < n * cols; e += team.size()) {
        const int row = e / cols, col = e % cols;
        solution[row * ld_rhs + col] = LoadGlobal(b + i * size + order[row] * cols + col);
      }
    });
    team::Substitute(team, n, factors, ld, true, true, cols, solution, ld_rhs);
    team::Substitute(team, n, factors, ld, false, false, cols, solution, ld_rhs);
    StoreMatrix(team, n, cols, x + i * size, [&](int row, int col) {
      return info != 0 ? NaN<E>() : solution[row * ld_rhs + col];
    });
    team.Phase([&](int thread) {
      if (thread == 0) info_out[i] = info;
    });
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
  const LuProblem<T> problem = MakeProblem(scratch, matrices, n, systems.a, info, true);
  const bool own = UseOwnLu<T>(n, n);
  own ? OwnLu(stream, problem) : VendorLu(stream, scratch, problem);
  // One matrix for the whole batch is factored once.
  if (matrices < systems.batch) ForEach(stream, systems.batch - 1, CopyFirst{info});
  Systems<T> factored = systems;
  factored.a = problem.packed;
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
  const int64_t n = systems.n, cols = systems.cols;
  const bool shared = systems.a_stride == 0 && systems.batch > 1;
  const E* const a = AsElements(systems.a);
  const E* const b = AsElements(systems.b);
  E* const x = AsElements(systems.x);
  Slice slice(sizeof(Real<T>));
  if (!shared && (n * n + n * cols) * static_cast<int64_t>(sizeof(T)) <= kAloneBytes) {
    const Staged matrix(n * n, n * n, slice.Take<E>(n * n)),
        rhs(n * cols, n * cols, slice.Take<E>(n * cols));
    const int spare = slice.Take<Real<T>>(2 * n);
    const Staged singular(1, 1, slice.Take<Real<T>>(1));
    const SmallSolve<E> job{ToInt(n), ToInt(cols), a, b, x, info, matrix, rhs, singular, spare};
    return LaunchAlone(stream, job, systems.batch, slice);
  }
  if (!shared && n <= kTeamLu && cols <= kColumnsOfTeam) {
    const int ld = ToInt(n | 1), ld_rhs = ToInt(cols | 1);
    slice.Take<E>(n * ld);
    const int rhs = slice.Take<E>(n * ld_rhs), pivots = slice.Take<int32_t>(n),
              order = slice.Take<int32_t>(n);
    if (slice.bytes() <= SharedBytes()) {
      const TeamSolve<E> job{ToInt(n), ToInt(cols), ld, ld_rhs, a, b, x, info, rhs, pivots, order};
      return LaunchTeams(stream, job, systems.batch, TeamSize(n), slice);
    }
  }
  SolveInSteps(stream, scratch, systems, info);
}

template <class E>
struct SmallInverse {
  using V = RealElement<E>;
  int n;
  const E* a;
  E* inverse;
  int32_t* info_out;
  Staged matrix, result, info;
  int spare;

  __device__ void Load(int64_t first, int count, char* memory, int64_t bytes) const {
    matrix.Load(a, first, count, memory, bytes);
  }
  __device__ void Run(char* slice) const {
    E* const factors = At<E>(slice, matrix.offset);
    E* const target = At<E>(slice, result.offset);
    V* const pivots = At<V>(slice, spare);
    *At<V>(slice, info.offset) = small::Inverse(n, factors, pivots, pivots + n, target);
  }
  __device__ void Store(int64_t first, int count, char* memory, int64_t bytes) const {
    result.Store(inverse, first, count, memory, bytes);
    info.StoreIntegers<V>(info_out, first, count, memory, bytes);
  }
};

template <class E>
struct TeamInverse {
  static constexpr int kMostThreads = kBlockThreads;
  int n, ld;
  const E* a;
  E* inverse;
  int32_t* info_out;
  int result, pivots, permutation;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    using V = RealElement<E>;
    E* const factors = At<E>(slice, 0);
    E* const target = At<E>(slice, result);
    int32_t* const order = At<int32_t>(slice, permutation);
    LoadMatrix(team, a + i * n * n, n, n, factors, ld);
    const int info = team::Lu(team, n, n, factors, ld, At<int32_t>(slice, pivots), order);
    const team::Grid grid = team::RowGrid(team);
    team.Phase([&](int thread) {
      team::ForEachElement(grid, thread, 0, n, 0, n, [&](int row, int col) {
        target[row * ld + col] = FromReal<E>(V(order[row] == col));
      });
    });
    team::Substitute(team, n, factors, ld, true, true, n, target, ld);
    team::Substitute(team, n, factors, ld, false, false, n, target, ld);
    StoreMatrix(team, n, n, inverse + i * n * n,
                [&](int row, int col) { return info != 0 ? NaN<E>() : target[row * ld + col]; });
    team.Phase([&](int thread) {
      if (thread == 0) info_out[i] = info;
    });
  }
};

template <class T>
void Invert(cudaStream_t stream, Scratch& scratch, int64_t batch, int64_t n, const T* a, T* inverse,
            int32_t* info) {
  using E = Element<T>;
  const int64_t size = n * n;
  Slice slice(sizeof(Real<T>));
  if (2 * size * static_cast<int64_t>(sizeof(T)) <= kAloneBytes) {
    const Staged matrix(size, size, slice.Take<E>(size));
    const Staged result(size, size, slice.Take<E>(size));
    const int spare = slice.Take<Real<T>>(2 * n);
    const Staged singular(1, 1, slice.Take<Real<T>>(1));
    const SmallInverse<E> job{ToInt(n), AsElements(a), AsElements(inverse), info, matrix, result,
                              singular, spare};
    return LaunchAlone(stream, job, batch, slice);
  }
  if (n <= kTeamLu) {
    const int ld = ToInt(n | 1);
    slice.Take<E>(n * ld);
    const int result = slice.Take<E>(n * ld), pivots = slice.Take<int32_t>(n),
              order = slice.Take<int32_t>(n);
    if (slice.bytes() <= SharedBytes()) {
      const TeamInverse<E> job{ToInt(n), ld,     AsElements(a), AsElements(inverse),
                               info,     result, pivots,        order};
      return LaunchTeams(stream, job, batch, TeamSize(n), slice);
    }
  }
  const LuProblem<T> problem = MakeProblem(scratch, batch, n, a, info, true);
  VendorLu(stream, scratch, problem);
  T* const identity = scratch.Take<T>(batch * size);
  ForEach(stream, batch * size, WriteIdentity<E>{n, AsElements(identity)});
  Substitute(stream, scratch,
             Substitution{.with = Substitution::With::kLu,
                          .pivots = problem.pivots,
                          .pivots_stride = n,
                          .column_major = true},
             Systems<T>{problem.packed, identity, inverse, batch, n, n, n, size});
  ForEach(stream, batch * size, FillFailed<E>{AsElements(inverse), size, info});
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
      Invert(stream, scratch, batch, shape.rows, a_data, inverse_data, info_data);
    });
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_solve, linalg::cuda::Solve);
LINALG_HANDLER(linalg_inv, linalg::cuda::Inv);
