// Solutions of linear systems, and inverses, by LU with partial pivoting.
//
// A thread, a part of a warp or a team of threads solves matrices that fit in shared memory with
// their right-hand sides. Larger ones take LU, then substitution, whose right-hand sides are the
// permuted identity for inverses. A matrix that is exactly singular, or whose factors hold NaN,
// gets NaN throughout.
#include "kernels/arithmetic/transpose.h"
#include "kernels/cuda/determinant.h"
#include "kernels/cuda/solve_path.h"
#include "kernels/handlers.h"
#include "kernels/small/lu.h"
#include "kernels/small/solve.h"
#include "kernels/team/by_rows.h"
#include "kernels/team/solve.h"

namespace linalg::cuda {
namespace {

// Matrices are n by n. Solves A x = b with `cols` right-hand sides, or gives the inverse x if there
// is no b. If `lu` and `pivots` are not null, they get the factors of the systems, as linalg_lu has
// them.
template <class E>
struct SolveProblem {
  int64_t batch;
  int n, cols;
  const E* a;
  const E* b;
  E* x;
  int32_t* info;
  E* lu = nullptr;
  int32_t* pivots = nullptr;
};

template <class E, bool kInverse>
struct SmallSolve {
  using V = RealElement<E>;
  SolveProblem<E> problem;
  SharedArray<E> matrix, solution;
  SharedArray<V> pivots;
  Offset<V> permutation;
  SharedArray<V> info;

  __device__ void Load(const Block& block) const {
    matrix.Load(problem.a, block);
    if constexpr (!kInverse) solution.Load(problem.b, block);
  }
  __device__ void Run(char* slice) const {
    E* const a = matrix.In(slice);
    E* const x = solution.In(slice);
    if constexpr (kInverse) {
      *info.In(slice) = small::Inverse(problem.n, a, pivots.In(slice), permutation.In(slice), x);
    } else {
      *info.In(slice) =
          small::Solve(problem.n, a, pivots.In(slice), permutation.In(slice), problem.cols, x);
    }
  }
  __device__ void Store(const Block& block) const {
    solution.Store(problem.x, block);
    info.StoreIntegers(problem.info, block);
    if constexpr (!kInverse) {
      if (problem.lu == nullptr) return;
      matrix.Store(problem.lu, block);
      pivots.StoreIntegers(problem.pivots, block);
    }
  }
};

enum class Solved { kVector, kColumns, kInverse };  // only kColumns returns the factors

template <class E, int kSize, Solved kSolved>
struct WarpSolve {
  using Shape = WarpShape<E, kSize>;
  SolveProblem<E> problem;
  WarpLuOffsets<E> offsets;
  Offset<Divisor<E>> divisors;
  Offset<E> work;
  Offset<int32_t> pivots;

  WarpSolve(SharedLayout& layout, const SolveProblem<E>& problem)
      : problem(problem),
        offsets(layout, problem.n, problem.n),
        divisors(layout.Take<Divisor<E>>(kSolved == Solved::kVector ? 0 : problem.n)),
        work(layout.Take<E>(kSolved == Solved::kVector ? 0 : problem.n * kSize)),
        pivots(layout.Take<int32_t>(kSolved == Solved::kColumns ? problem.n : 0)) {}

  template <class Team>
  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = problem.n, cols = problem.cols, ld = offsets.rows.ld;
    E* const a = offsets.matrix.In(slice);
    int32_t* const order = offsets.permutation.In(slice);
    const E* const b = problem.b + i * n * cols;
    E* const x = problem.x + i * n * cols;
    offsets.rows.Load(team, problem.a + i * n * n, a);
    int info;
    if constexpr (kSolved == Solved::kVector) {
      info = team::SolveByRows<Shape::kRows, kSize>(
          team, n, a, ld, order, [&](int row) { return LoadGlobal(b + row); },
          [&](int row, E y) { StoreGlobal<E>(y, x + row); });
    } else {
      const auto put = [&](int row, int col, E y) { StoreGlobal<E>(y, x + row * cols + col); };
      if constexpr (kSolved == Solved::kInverse) {
        info = team::InverseByColumns<Shape::kRows, kSize>(
            team, n, a, ld, order, divisors.In(slice), work.In(slice), cols, put);
      } else {
        const auto rhs = [&](int row, int col) { return LoadGlobal(b + row * cols + col); };
        int32_t* const steps = pivots.In(slice);
        const auto on_pivot = [&](int k, int place, E) {
          team.Each([&](int thread) {
            if (thread == 0) steps[k] = place;
          });
        };
        const auto factored = [&](const team::RowsElsewhere<E>& factors) {
          if (problem.lu == nullptr) return;
          offsets.rows.Store(team, problem.lu + i * n * n, factors);
          StoreArray(team, n, steps, problem.pivots + i * n);
        };
        info = team::SolveByColumns<Shape::kRows, kSize>(team, n, a, ld, order, on_pivot, factored,
                                                         divisors.In(slice), work.In(slice), cols,
                                                         rhs, put);
      }
    }
    StoreInfo(team, info, problem.info + i);
  }
};

template <class E, bool kInverse>
struct TeamSolve {
  static constexpr int kMostThreads = kBlockThreads;
  SolveProblem<E> problem;
  LuOffsets<E> offsets;
  Offset<E> solution;
  int ld_solution;

  TeamSolve(SharedLayout& layout, const SolveProblem<E>& problem)
      : problem(problem),
        offsets(layout, problem.n, problem.n),
        solution(layout.Take<E>(int64_t{problem.n} * (problem.cols | 1))),
        ld_solution(problem.cols | 1) {}

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = problem.n, cols = problem.cols;
    E* const a = offsets.matrix.In(slice);
    LoadMatrix(team, problem.a + i * n * n, n, n, a, offsets.ld);
    const auto x = Solve(team, i, slice, a);
    StoreMatrix(team, n, cols, problem.x + i * n * cols, x);
    if constexpr (!kInverse) {
      if (problem.lu != nullptr) {
        StoreMatrix(team, n, n, problem.lu + i * n * n,
                    [=, ld = offsets.ld](int row, int col) { return a[row * ld + col]; });
        StoreArray(team, n, offsets.pivots.In(slice), problem.pivots + i * n);
      }
    }
    StoreInfo(team, x.info, problem.info + i);
  }

 private:
  __device__ auto Solve(const Team& team, int64_t i, char* slice, E* a) const {
    const int n = problem.n, cols = problem.cols, ld = offsets.ld;
    int32_t* const steps = offsets.pivots.In(slice);
    int32_t* const order = offsets.permutation.In(slice);
    if constexpr (kInverse) {
      return team::Inverse(team, n, a, ld, steps, order, solution.In(slice), ld_solution);
    } else {
      const E* const b = problem.b + i * n * cols;
      const auto rhs = [&](int row, int col) { return LoadGlobal(b + row * cols + col); };
      return team::Solve(team, n, a, ld, steps, order, cols, rhs, solution.In(slice), ld_solution);
    }
  }
};

struct CopyFirst {
  int32_t* values;

  __device__ void operator()(int64_t i) const { values[i + 1] = values[0]; }
};

// The results other than x, and the factors if they are requested.
template <class T>
struct SolveResults {
  int32_t* info;
  T* lu = nullptr;
  int32_t* pivots = nullptr;
};

// Factors all matrices, and then substitutes. If there is no b, x is the inverse.
template <class T>
void SolveInSteps(cudaStream_t stream, DeviceScratch& scratch, const Systems<T>& systems,
                  const SolveResults<T>& results) {
  using E = Element<T>;
  int32_t* const info = results.info;
  const int64_t n = systems.n, matrices = systems.SharesMatrix() ? 1 : systems.batch;
  const GpuPath path = ChooseFactors<E>(n, n);
  const bool own = path != GpuPath::kVendor;
  // The vendor's factors are column-major until they are transposed.
  const auto problem = MakeProblem(scratch, matrices, n, AsElements(systems.a), info, true,
                                   own ? AsElements(results.lu) : nullptr, results.pivots);
  if (path == GpuPath::kPanels) {
    PanelsLu<T>(stream, scratch, problem);
  } else {
    own ? FactorLu(stream, problem) : VendorLu<T>(stream, scratch, problem);
  }
  if (!own && results.lu != nullptr) {
    Transpose(stream, matrices, n, n, reinterpret_cast<const T*>(problem.packed), n * n, results.lu,
              n * n);
  }
  // One matrix for the whole batch is factored once.
  if (matrices < systems.batch) ForEach(stream, systems.batch - 1, CopyFirst{.values = info});
  Systems<T> factored = systems;
  factored.a = reinterpret_cast<const T*>(problem.packed);
  const bool inverts = systems.b == nullptr;
  if (inverts) {
    factored.b = systems.x;
    ForEach(stream, systems.batch * systems.size(),
            WritePermuted<E>{.elements = {n, systems.cols},
                             .permutation = problem.permutation,
                             .n = n,
                             .x = AsElements(systems.x)});
  }
  Substitute(stream, scratch,
             GivenFactors{.with = GivenFactors::With::kLu,
                          .pivots = inverts ? nullptr : problem.pivots,
                          .pivots_stride = matrices < systems.batch ? 0 : n,
                          .permutation = inverts ? nullptr : problem.permutation,
                          .column_major = !own,
                          .any_pivots = path == GpuPath::kPanels},
             factored);
  ForEach(stream, systems.batch * systems.size(),
          FillFailed<E>{
              .x = AsElements(systems.x), .by_size = LongDivider(systems.size()), .info = info});
}

// Solves systems. If kInverse is true, the right-hand sides are identities, which are written only
// where they are needed.
template <bool kInverse, class T>
void SolveBatch(cudaStream_t stream, DeviceScratch& scratch, const Systems<T>& systems,
                const SolveResults<T>& results) {
  if (systems.batch == 0) return;
  using E = Element<T>;
  using V = RealElement<E>;
  const int64_t n = systems.n, cols = systems.cols, size = n * n, x_size = systems.size();
  const SolveProblem<E> problem{.batch = systems.batch,
                                .n = ToInt(n),
                                .cols = ToInt(cols),
                                .a = AsElements(systems.a),
                                .b = AsElements(systems.b),
                                .x = AsElements(systems.x),
                                .info = results.info,
                                .lu = AsElements(results.lu),
                                .pivots = results.pivots};
  SharedLayout layout(sizeof(V));
  const auto thread = [&] {
    const SmallSolve<E, kInverse> job{.problem = problem,
                                      .matrix = {size, layout.Take<E>(size)},
                                      .solution = {x_size, layout.Take<E>(x_size)},
                                      .pivots = {n, layout.Take<V>(n)},
                                      .permutation = layout.Take<V>(n),
                                      .info = {1, layout.Take<V>(1)}};
    LaunchThreads(stream, job, problem.batch, layout);
  };
  const auto by_warp = [&]<Solved kSolved>(std::integral_constant<Solved, kSolved>) {
    WithWarpShape<kWarpLu<E>>(n, [&](auto size) {
      const WarpSolve<E, size, kSolved> job(layout, problem);
      LaunchWarps(stream, job, problem.batch, layout);
    });
  };
  const auto warp = [&] {
    if constexpr (kInverse) {
      by_warp(std::integral_constant<Solved, Solved::kInverse>{});
    } else if (cols == 1 && problem.lu == nullptr) {  // its registers are full without the factors
      by_warp(std::integral_constant<Solved, Solved::kVector>{});
    } else {
      by_warp(std::integral_constant<Solved, Solved::kColumns>{});
    }
  };
  const auto team = [&] {
    const TeamSolve<E, kInverse> job(layout, problem);
    LaunchTeams(stream, job, problem.batch, PanelTeamSize(n, layout.bytes()), layout);
  };
  const auto in_steps = [&] { SolveInSteps(stream, scratch, systems, results); };
  const auto fits = [&](int64_t) {
    return FitsInShared<TeamSolve<E, kInverse>>(sizeof(V), problem);
  };
  const bool shared = !kInverse && systems.SharesMatrix();
  LaunchOnPath(SolvePath<T>(n, cols, shared, fits), On{GpuPath::kThread, thread},
               On{GpuPath::kWarp, warp}, On{GpuPath::kTeam, team}, On{GpuPath::kSteps, in_steps});
}

void Solve(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, ffi::AnyBuffer b, Result x,
           Result info) {
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto systems = ReadSystems<T>(a, b, x, true);
    SolveBatch<false>(stream, scratch, systems,
                      {.info = Elements<int32_t>(info, systems.batch, {}, "info")});
  });
}

void SolveLu(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, ffi::AnyBuffer b,
             Result x, Result lu, Result pivots, Result info) {
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto systems = ReadSystems<T>(a, b, x, true);
    const int64_t batch = systems.batch, n = systems.n;
    Elements<T>(a, batch, {n, n}, "a");  // one matrix does not serve them all
    SolveBatch<false>(stream, scratch, systems,
                      {.info = Elements<int32_t>(info, batch, {}, "info"),
                       .lu = Elements<T>(lu, batch, {n, n}, "the factors"),
                       .pivots = Elements<int32_t>(pivots, batch, {n}, "pivots")});
  });
}

void Inv(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result inverse,
         Result info) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    const T* const a_data = Elements<T>(a, batch, {n, n}, "a");
    T* const inverse_data = Elements<T>(inverse, batch, {n, n}, "the inverse");
    int32_t* const info_data = Elements<int32_t>(info, batch, {}, "info");
    SolveBatch<true>(stream, scratch,
                     Systems<T>{.a = a_data,
                                .b = nullptr,
                                .x = inverse_data,
                                .batch = batch,
                                .n = n,
                                .rows = n,
                                .cols = n,
                                .a_stride = n * n},
                     SolveResults<T>{.info = info_data});
  });
}

template <class E>
struct SmallSlogdetInverse {
  using V = RealElement<E>;
  int n;
  const E* a;
  E* inverse;
  E* sign;
  V* logarithm;
  SharedArray<E> matrix, result, phase;
  SharedArray<V> magnitude;
  Offset<V> pivots, permutation;

  __device__ void Load(const Block& block) const { matrix.Load(a, block); }
  __device__ void Run(char* slice) const {
    E* const factors = matrix.In(slice);
    V* const order = permutation.In(slice);
    const small::EntriesDeterminant<E> products(n, factors);
    const V singular = small::Lu(n, n, factors, pivots.In(slice), order);
    const auto parts = products.OrElse(ProductOfPivots(n, factors, n, pivots.In(slice))).InParts();
    small::InverseOfFactors(n, factors, order, singular, result.In(slice));
    TransposeSquare(n, result.In(slice));
    *phase.In(slice) = parts.sign;
    *magnitude.In(slice) = parts.logarithm;
  }
  __device__ void Store(const Block& block) const {
    result.Store(inverse, block);
    phase.Store(sign, block);
    magnitude.Store(logarithm, block);
  }
};

void SlogdetInvTransposed(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result sign,
                          Result logabsdet, Result inverse) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows, size = shape.size();
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    using E = Element<T>;
    using V = RealElement<E>;
    const CofactorsProblem<E> problem{
        .batch = batch,
        .n = ToInt(n),
        .a = AsElements(static_cast<const T*>(Elements<T>(a, batch, {n, n}, "a"))),
        .inverse = AsElements(Elements<T>(inverse, batch, {n, n}, "the inverse")),
        .results = {.det = nullptr,
                    .sign = AsElements(Elements<T>(sign, batch, {}, "sign")),
                    .logarithm = Elements<Real<T>>(logabsdet, batch, {}, "logabsdet")}};
    const auto thread = [&] {
      SharedLayout layout(sizeof(V));
      const SmallSlogdetInverse<E> job{.n = problem.n,
                                       .a = problem.a,
                                       .inverse = problem.inverse,
                                       .sign = problem.results.sign,
                                       .logarithm = problem.results.logarithm,
                                       .matrix = {size, layout.Take<E>(size)},
                                       .result = {size, layout.Take<E>(size)},
                                       .phase = {1, layout.Take<E>(1)},
                                       .magnitude = {1, layout.Take<V>(1)},
                                       .pivots = layout.Take<V>(n),
                                       .permutation = layout.Take<V>(n)};
      LaunchThreads(stream, job, batch, layout);
    };
    LaunchCofactors<false, T>(stream, scratch, problem, thread);
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER_AND_CAPTURED(linalg_solve, linalg::cuda::Solve);
LINALG_HANDLER_AND_CAPTURED(linalg_solve_lu, linalg::cuda::SolveLu);
LINALG_HANDLER_AND_CAPTURED(linalg_inv, linalg::cuda::Inv);
LINALG_HANDLER_AND_CAPTURED(linalg_slogdet_inv_transposed, linalg::cuda::SlogdetInvTransposed);
