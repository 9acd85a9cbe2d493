// Cholesky factors of Hermitian positive definite matrices, and solves with them.
//
// A matrix that fits in shared memory is factored by a thread, a part of a warp or a team of
// threads. A batch of larger ones is factored panel by panel: kernels/cuda/cholesky_panels.h. Few
// large ones take cuSOLVER's potrf, in place in the output, one after another. A row-major lower
// triangle is a column-major upper one, so nothing is transposed. One pass before potrf copies and
// symmetrises the triangle. One pass after it clears the other triangle and writes NaN where the
// matrix is not positive definite.
#include <limits>

#include "kernels/arithmetic/hermitian.h"
#include "kernels/cuda/cholesky_panels.h"
#include "kernels/cuda/cholesky_path.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/passes.h"
#include "kernels/cuda/positive_solve.h"
#include "kernels/cuda/substitution.h"
#include "kernels/handlers.h"
#include "kernels/small/cholesky_derivative.h"
#include "kernels/small/solve.h"
#include "kernels/team/by_rows.h"
#include "kernels/team/largest.h"

namespace linalg::cuda {
namespace {

template <class E>
struct SmallCholesky {
  using V = RealElement<E>;
  CholeskyProblem<E> problem;
  SharedArray<E> matrix;
  SharedArray<V> info;

  __device__ void Load(const Block& block) const { matrix.Load(problem.a, block); }
  __device__ void Run(char* slice) const {
    *info.In(slice) = small::CholeskyFactor(matrix.In(slice), problem.n, problem.part);
  }
  __device__ void Store(const Block& block) const {
    matrix.Store(problem.factor, block);
    info.StoreIntegers(problem.info, block);
  }
};

template <class E, int kSize>
struct WarpCholesky {
  using Shape = WarpShape<E, kSize>;
  CholeskyProblem<E> problem;
  RowsOfWarp rows;
  Offset<E> matrix;

  template <class Team>
  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = problem.n;
    E* const a = matrix.In(slice);
    rows.Load(team, problem.a + i * n * n, a);
    const auto factor =
        team::CholeskyFactorByRows<Shape::kRows, kSize>(team, n, a, rows.ld, problem.part);
    rows.Store(team, problem.factor + i * n * n, factor);
    StoreInfo(team, factor.info, problem.info + i);
  }
};

template <class E>
struct TeamCholesky {
  static constexpr int kMostThreads = kBlockThreads;
  CholeskyProblem<E> problem;
  Offset<E> matrix;
  int ld;

  TeamCholesky(SharedLayout& layout, const CholeskyProblem<E>& problem)
      : problem(problem),
        matrix(layout.Take<E>(int64_t{problem.n} * (problem.n | 1))),
        ld(problem.n | 1) {}

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = problem.n;
    E* const a = matrix.In(slice);
    LoadMatrix(team, problem.a + i * n * n, n, n, a, ld);
    const auto factor = team::CholeskyFactor(team, n, a, ld, problem.part);
    StoreMatrix(team, n, n, problem.factor + i * n * n, factor);
    StoreInfo(team, factor.info, problem.info + i);
  }
};

// The triangle of the Hermitian part that potrf reads.
template <class E>
struct CopyTriangle {
  CholeskyProblem<E> problem;
  MatrixElements elements;

  __device__ void operator()(int64_t place) const {
    const auto [matrix, i, j] = elements(place);
    const int64_t n = problem.n;
    if (problem.part.lower ? j > i : j < i) return;
    const E* const a = problem.a + matrix * n * n;
    const E x =
        problem.part.At(i, j, [=](int64_t k, int64_t l) { return LoadGlobal(a + k * n + l); });
    StoreGlobal<E>(x, problem.factor + place);
  }
};

// Not every routine notices that NaN is not a positive pivot.
template <class E>
struct CheckDiagonal {
  static constexpr int kMostThreads = kBlockThreads;
  CholeskyProblem<E> problem;

  __device__ void Run(const Team& team, int64_t matrix, char*) const {
    using V = RealElement<E>;
    const int64_t n = problem.n;
    const E* const factor = problem.factor + matrix * n * n;
    const int found = problem.info[matrix], end = found > 0 ? found - 1 : problem.n;
    const int first =
        team::FirstPivot(team, end, factor, n, [](E pivot) { return !(Re(pivot) > V(0)); });
    team.Phase([&](int thread) {
      if (thread == 0 && first > 0) problem.info[matrix] = first;
    });
  }
};

template <class E>
struct FinishFactor {
  CholeskyProblem<E> problem;
  MatrixElements elements;

  __device__ void operator()(int64_t place) const {
    const auto [matrix, i, j] = elements(place);
    if (problem.part.lower ? j > i : j < i) {
      StoreGlobal<E>(E{}, problem.factor + place);
    } else if (problem.info[matrix] != 0) {
      StoreGlobal<E>(NaN<E>(), problem.factor + place);
    }
  }
};

template <class T>
void VendorCholesky(cudaStream_t stream, DeviceScratch& scratch, int64_t batch, T* factor,
                    const CholeskyProblem<Element<T>>& problem) {
  using E = Element<T>;
  const LentSolver lent(stream);
  const vendor::Solver solver = lent.get().solver;
  const int n = problem.n;
  const int64_t size = static_cast<int64_t>(n) * n;
  const auto uplo = problem.part.lower ? vendor::kUpper : vendor::kLower;
  const MatrixElements elements(n, n);
  ForEach(stream, batch * size, CopyTriangle<E>{.problem = problem, .elements = elements});
  const int work_size = vendor::PotrfWork(solver, uplo, n, factor, n);
  T* const work = scratch.Take<T>(work_size);
  for (int64_t i = 0; i < batch; ++i) {
    vendor::Potrf(solver, uplo, n, factor + i * size, n, work, work_size, problem.info + i);
  }
  LaunchTeams(stream, CheckDiagonal<E>{.problem = problem}, batch, kDiagonalThreads,
              SharedLayout(sizeof(T)));
  ForEach(stream, batch * size, FinishFactor<E>{.problem = problem, .elements = elements});
}

template <class T>
CholeskyProblem<Element<T>> ReadProblem(const ffi::AnyBuffer& a, Result& factor, Result& info,
                                        HermitianPart part) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  return {.n = ToInt(n),
          .part = part,
          .a = AsElements(Elements<T>(a, batch, {n, n}, "a")),
          .factor = AsElements(Elements<T>(factor, batch, {n, n}, "the factor")),
          .info = Elements<int32_t>(info, batch, {}, "info")};
}

template <class T>
void RunCholesky(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
                 const CholeskyProblem<Element<T>>& problem) {
  using E = Element<T>;
  using V = RealElement<E>;
  if (batch == 0) return;
  const int64_t n = problem.n, size = n * n;
  SharedLayout layout(sizeof(V));
  const auto thread = [&] {
    const SmallCholesky<E> job{
        .problem = problem, .matrix = {size, layout.Take<E>(size)}, .info = {1, layout.Take<V>(1)}};
    LaunchThreads(stream, job, batch, layout);
  };
  const auto warp = [&](auto size) {
    const WarpCholesky<E, size> job{.problem = problem,
                                    .rows = {problem.n, problem.n},
                                    .matrix = layout.Take<E>(n * (problem.n | 1))};
    LaunchWarps(stream, job, batch, layout);
  };
  const auto team = [&] {
    const TeamCholesky<E> job(layout, problem);
    LaunchTeams(stream, job, batch, PanelTeamSize(n, layout.bytes()), layout);
  };
  const auto panels = [&] { PanelCholesky<T>(stream, batch, problem).Run(); };
  const auto vendor = [&] {
    VendorCholesky<T>(stream, scratch, batch, reinterpret_cast<T*>(problem.factor), problem);
  };
  const auto fits = [&](int64_t) { return FitsInShared<TeamCholesky<E>>(sizeof(V), problem); };
  LaunchOnPath(CholeskyPath<T>(n, batch, fits), On{GpuPath::kThread, thread},
               On{GpuPath::kWarp, [&] { WithWarpShape<kWarpCholesky<E>>(n, warp); }},
               On{GpuPath::kTeam, team}, On{GpuPath::kPanels, panels},
               On{GpuPath::kVendor, vendor});
}

void Cholesky(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result factor,
              Result info, bool lower, bool symmetrize) {
  const HermitianPart part{.lower = lower, .symmetrize = symmetrize};
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    RunCholesky<T>(stream, scratch, SplitSquareBatch(a, "a").batch,
                   ReadProblem<T>(a, factor, info, part));
  });
}

// Factors a matrix that has failed again, with a growing multiple of the identity added. `added`
// receives the first multiple that suffices. Matrices that have not failed cost one read of info.
template <class E>
struct RetryCholesky {
  using V = RealElement<E>;
  static constexpr int kMostThreads = kBlockThreads;
  CholeskyProblem<E> problem;
  const V* jitters;  // relative to the mean of the diagonal
  int count;
  V* added;
  Offset<E> matrix;
  int ld;

  RetryCholesky(SharedLayout& layout, const CholeskyProblem<E>& problem, const V* jitters,
                int count, V* added)
      : problem(problem),
        jitters(jitters),
        count(count),
        added(added),
        matrix(layout.Take<E>(int64_t{problem.n} * (problem.n | 1))),
        ld(problem.n | 1) {}

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = problem.n;
    const E* const source = problem.a + i * n * n;
    E* const a = matrix.In(slice);
    V enough = V(0);
    int info = problem.info[i];
    if (info != 0) {
      enough = NaN<V>();
      // The barrier of the sum also lets all threads read info before one of them writes it.
      const V mean = team.template Sum<V>([&](int thread) {
        V sum = V(0);
        for (int j = thread; j < n; j += team.size()) {
          sum += Re(LoadGlobal(source + static_cast<int64_t>(j) * (n + 1))) / V(n);
        }
        return sum;
      });
      // NaN is neither positive nor finite.
      const bool can_help = mean > V(0) && mean <= std::numeric_limits<V>::max();
      for (int k = 0; k < count && can_help && info != 0; ++k) {
        const V jitter = jitters[k] * mean;
        LoadMatrix(team, source, n, n, a, ld);
        team.Phase([&](int thread) {
          for (int j = thread; j < n; j += team.size()) {
            a[j * ld + j] = a[j * ld + j] + FromReal<E>(jitter);
          }
        });
        const auto factor = team::CholeskyFactor(team, n, a, ld, problem.part);
        info = factor.info;
        if (info != 0) {
          team.Phase([](int) {});  // threads may still read the block that failed
        } else {
          enough = jitter;
          StoreMatrix(team, n, n, problem.factor + i * n * n, factor);
        }
      }
      StoreInfo(team, info, problem.info + i);
    }
    team.Each([&](int thread) {
      if (thread == 0) added[i] = enough;
    });
  }
};

void CholeskyJittered(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a,
                      ffi::AnyBuffer jitters, Result factor, Result added, Result info, bool lower,
                      bool symmetrize) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, count = SplitBatch(jitters, 1, "jitters").cols;
  const HermitianPart part{.lower = lower, .symmetrize = symmetrize};
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    using E = Element<T>;
    using V = RealElement<E>;
    const auto problem = ReadProblem<T>(a, factor, info, part);
    const V* const series = Elements<V>(jitters, 1, {count}, "jitters");
    V* const enough = Elements<V>(added, batch, {}, "the jitter");
    RunCholesky<T>(stream, scratch, batch, problem);
    SharedLayout layout(sizeof(V));
    const RetryCholesky<E> retry(layout, problem, series, ToInt(count), enough);
    LaunchTeamsAnywhere(stream, scratch, retry, batch, PanelTeamSize(problem.n, layout.bytes()),
                        layout);
  });
}

// The factor's tangent along `x`, or A's cotangent for the factor's cotangent `x`. Both are called
// for small matrices only.
template <class E, bool kBackward>
struct CholeskyDerivative {
  int n;
  HermitianPart part;
  const E* factor;
  const E* x;
  E* y;
  SharedArray<E> matrix, change;

  __device__ void Load(const Block& block) const {
    matrix.Load(factor, block);
    change.Load(x, block);
  }
  __device__ void Run(char* slice) const {
    if constexpr (kBackward) {
      small::CholeskyVjp(n, matrix.In(slice), part, change.In(slice));
    } else {
      small::CholeskyJvp(n, matrix.In(slice), part, change.In(slice));
    }
  }
  __device__ void Store(const Block& block) const { change.Store(y, block); }
};

template <bool kBackward>
void Differentiate(cudaStream_t stream, const ffi::AnyBuffer& factor, const ffi::AnyBuffer& x,
                   Result& y, HermitianPart part) {
  const BatchShape shape = SplitSquareBatch(factor, "the factor");
  const int64_t batch = shape.batch, n = shape.rows, size = shape.size();
  DispatchDtype(factor.element_type(), [&]<class T>(std::type_identity<T>) {
    using E = Element<T>;
    SharedLayout layout(sizeof(RealElement<E>));
    const CholeskyDerivative<E, kBackward> job{
        .n = ToInt(n),
        .part = part,
        .factor =
            AsElements(static_cast<const T*>(Elements<T>(factor, batch, {n, n}, "the factor"))),
        .x = AsElements(static_cast<const T*>(Elements<T>(x, batch, {n, n}, "the derivative"))),
        .y = AsElements(Elements<T>(y, batch, {n, n}, "the result")),
        .matrix = {size, layout.Take<E>(size)},
        .change = {size, layout.Take<E>(size)}};
    LaunchThreads(stream, job, batch, layout);
  });
}

void CholeskyJvp(cudaStream_t stream, ffi::AnyBuffer factor, ffi::AnyBuffer da, Result dfactor,
                 bool lower, bool symmetrize) {
  Differentiate<false>(stream, factor, da, dfactor, {.lower = lower, .symmetrize = symmetrize});
}

void CholeskyVjp(cudaStream_t stream, ffi::AnyBuffer factor, ffi::AnyBuffer ct, Result a_ct,
                 bool lower, bool symmetrize) {
  Differentiate<true>(stream, factor, ct, a_ct, {.lower = lower, .symmetrize = symmetrize});
}

void CholeskySolve(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer factor,
                   ffi::AnyBuffer b, Result x, bool lower) {
  const GivenFactors given{.with = GivenFactors::With::kCholesky, .triangle = {.lower = lower}};
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    Substitute(stream, scratch, given, ReadSystems<T>(factor, b, x, true));
  });
}

void SolveWithLogdet(cudaStream_t stream, const ffi::AnyBuffer& a, const ffi::AnyBuffer& b,
                     Result& x, Result& logdet, Result* factor, Result& info) {
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto systems = ReadSystems<T>(a, b, x, true);
    const int64_t batch = systems.batch, n = systems.n;
    Elements<T>(a, batch, {n, n}, "a");  // the systems cannot share one matrix
    T* const triangle =
        factor != nullptr ? Elements<T>(*factor, batch, {n, n}, "the factor") : nullptr;
    RunPositiveSolve<T>(stream, {.batch = batch,
                                 .n = ToInt(n),
                                 .cols = ToInt(systems.cols),
                                 .a = AsElements(systems.a),
                                 .b = AsElements(systems.b),
                                 .x = AsElements(systems.x),
                                 .logdet = Elements<Real<T>>(logdet, batch, {}, "logdet"),
                                 .factor = AsElements(triangle),
                                 .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

void PositiveSolveLogdet(cudaStream_t stream, ffi::AnyBuffer a, ffi::AnyBuffer b, Result x,
                         Result logdet, Result info) {
  SolveWithLogdet(stream, a, b, x, logdet, nullptr, info);
}

void PositiveSolveLogdetFactor(cudaStream_t stream, ffi::AnyBuffer a, ffi::AnyBuffer b, Result x,
                               Result logdet, Result factor, Result info) {
  SolveWithLogdet(stream, a, b, x, logdet, &factor, info);
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER_AND_CAPTURED(linalg_cholesky, linalg::cuda::Cholesky);
LINALG_HANDLER_AND_CAPTURED(linalg_cholesky_jittered, linalg::cuda::CholeskyJittered);
LINALG_HANDLER(linalg_cholesky_jvp, linalg::cuda::CholeskyJvp, LINALG_CAPTURED);
LINALG_HANDLER(linalg_cholesky_vjp, linalg::cuda::CholeskyVjp, LINALG_CAPTURED);
LINALG_HANDLER_AND_CAPTURED(linalg_cholesky_solve, linalg::cuda::CholeskySolve);
LINALG_HANDLER(linalg_positive_solve_logdet, linalg::cuda::PositiveSolveLogdet, LINALG_CAPTURED);
LINALG_HANDLER(linalg_positive_solve_logdet_factor, linalg::cuda::PositiveSolveLogdetFactor,
               LINALG_CAPTURED);
