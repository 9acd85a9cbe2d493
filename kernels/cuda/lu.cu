// LU with partial pivoting, and solves with given factors.
//
// A matrix that fits in shared memory is factored by a thread, a part of a warp or a team of
// threads. Larger ones are factored by panels, whose products are cuBLAS's. The largest take
// cuBLAS's getrfBatched, or cuSOLVER's getrf for one matrix after another, on a column-major copy.
// Pivots count from 0. A singular matrix is not a failure: info is the 1-based index of the first
// zero pivot.
#include "kernels/cuda/lu_factors.h"

#include "kernels/cuda/handles.h"
#include "kernels/cuda/lu_panels.h"
#include "kernels/cuda/panels.h"
#include "kernels/cuda/passes.h"
#include "kernels/cuda/substitution.h"
#include "kernels/handlers.h"
#include "kernels/small/lu.h"
#include "kernels/team/by_rows.h"
#include "kernels/team/largest.h"
#include "kernels/team/lu.h"

namespace linalg::cuda {
namespace {

template <class E>
struct SmallLu {
  using V = RealElement<E>;
  GpuLuProblem<E> problem;
  SharedArray<E> matrix;
  SharedArray<V> pivots, permutation, info;

  __device__ void Load(const Block& block) const { matrix.Load(problem.a, block); }
  __device__ void Run(char* slice) const {
    *info.In(slice) = small::Lu(problem.rows, problem.cols, matrix.In(slice), pivots.In(slice),
                                permutation.In(slice));
  }
  __device__ void Store(const Block& block) const {
    matrix.Store(problem.packed, block);
    pivots.StoreIntegers(problem.pivots, block);
    permutation.StoreIntegers(problem.permutation, block);
    info.StoreIntegers(problem.info, block);
  }
};

template <class E>
struct TeamLu {
  static constexpr int kMostThreads = kBlockThreads;
  GpuLuProblem<E> problem;
  LuOffsets<E> offsets;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int rows = problem.rows, cols = problem.cols, count = problem.Count(), ld = offsets.ld;
    E* const factors = offsets.matrix.In(slice);
    int32_t* const steps = offsets.pivots.In(slice);
    int32_t* const order = offsets.permutation.In(slice);
    LoadMatrix(team, problem.a + i * problem.Size(), rows, cols, factors, ld);
    const int info = team::Lu(team, rows, cols, factors, ld, steps, order);
    StoreMatrix(team, rows, cols, problem.packed + i * problem.Size(),
                [&](int row, int col) { return factors[row * ld + col]; });
    StoreArray(team, count, steps, problem.pivots + i * count);
    StoreArray(team, rows, order, problem.permutation + i * rows);
    StoreInfo(team, info, problem.info + i);
  }
};

template <class E, int kSize>
struct WarpLu {
  using Shape = WarpShape<E, kSize>;
  GpuLuProblem<E> problem;
  WarpLuOffsets<E> offsets;
  Offset<int32_t> pivots;

  WarpLu(SharedLayout& layout, const GpuLuProblem<E>& problem)
      : problem(problem),
        offsets(layout, problem.rows, problem.cols),
        pivots(layout.Take<int32_t>(problem.Count())) {}

  template <class Team>
  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int rows = problem.rows, cols = problem.cols, count = problem.Count();
    E* const a = offsets.matrix.In(slice);
    int32_t* const steps = pivots.In(slice);
    int32_t* const order = offsets.permutation.In(slice);
    offsets.rows.Load(team, problem.a + i * problem.Size(), a);
    const auto factors =
        team::LuByRows<Shape::kRows, kSize>(team, rows, cols, a, offsets.rows.ld, steps, order);
    offsets.rows.Store(team, problem.packed + i * problem.Size(), factors);
    StoreArray(team, count, steps, problem.pivots + i * count);
    StoreArray(team, rows, order, problem.permutation + i * rows);
    StoreInfo(team, factors.info, problem.info + i);
  }
};

// Makes the vendor's pivots, which count from 1, count from 0.
struct CountFromZero {
  int32_t* pivots;
  LongDivider by_count;
  int64_t size;

  __device__ void operator()(int64_t i) const {
    // Where NaN was compared, the pivot may be any number.
    const int64_t k = i - by_count(i) * by_count.divisor(), pivot = int64_t{pivots[i]} - 1;
    pivots[i] = static_cast<int32_t>(pivot >= k && pivot < size ? pivot : k);
  }
};

// Finds info from the factors, since the vendor's is not always right. It is 0, or the 1-based
// index of the first zero pivot.
//
// A pivot whose reciprocal overflows may make the vendor's LU and substitution return anything. So
// a team in global memory factors such a matrix again. If substitution follows, that pivot counts
// as 0 instead.
template <class E>
struct CheckPivots {
  static constexpr int kMostThreads = kGlobalThreads;
  using V = RealElement<E>;

  GpuLuProblem<E> problem;

  __device__ void Run(const Team& team, int64_t i, char*) const {
    const int64_t size = problem.Size();
    E* const factors = problem.packed + i * size;
    constexpr V kTiny = Divisor<E>::kTiny;
    const bool strict = problem.substitutes;
    const auto first = [&](auto&& is) {
      return team::FirstPivot(team, problem.Count(), factors, problem.rows,
                              [&](E pivot) { return is(Magnitude(pivot)); });
    };
    int found = first([=](V x) { return x == V(0) || (strict && x < kTiny); });
    if (!strict && first([=](V x) { return x > V(0) && x < kTiny; }) != 0) {
      if (size <= std::numeric_limits<int>::max()) {
        found = FactorAgain(team, i, factors);
      } else {  // too many for a team's integers: NaN marks them as wrong
        team.Phase([&](int thread) {
          if (thread == 0) factors[0] = NaN<E>();
        });
      }
    }
    StoreInfo(team, found, problem.info + i);
  }

 private:
  __device__ int FactorAgain(const Team& team, int64_t i, E* factors) const {
    const int rows = problem.rows, cols = problem.cols;
    LoadMatrix(team, problem.a + i * problem.Size(), rows, cols, factors, cols);
    return team::LuAsLapack(team, rows, cols, factors, problem.pivots + i * problem.Count(),
                            problem.permutation + i * rows);
  }
};

template <class E>
struct MarkNaN {
  const E* a;
  LongDivider by_size;
  int32_t* info;

  __device__ void operator()(int64_t i) const {
    if (IsNaN(LoadGlobal(a + i))) info[by_size(i)] = kHoldsNaN;
  }
};

// Makes the permutation of given pivots, one per team.
struct MakePermutation {
  static constexpr int kMostThreads = kBlockThreads;
  const int32_t* pivots;
  int32_t* permutation;
  int count, size;
  bool in_shared;
  Offset<int32_t> order, copy;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    int32_t* const target = permutation + i * size;
    const int32_t* const steps = pivots + i * count;
    if (!in_shared) return team::PivotsToPermutation(team, count, steps, size, target);
    LoadArray(team, count, steps, copy.In(slice));
    team::PivotsToPermutation(team, count, copy.In(slice), size, order.In(slice));
    StoreArray(team, size, order.In(slice), target);
  }
};

void Lu(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result lu, Result pivots,
        Result permutation, Result info) {
  const BatchShape shape = SplitBatch(a, 2, "a");
  const int64_t batch = shape.batch, m = shape.rows, n = shape.cols, k = std::min(m, n);
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    T* const lu_data = Elements<T>(lu, batch, {m, n}, "lu");
    GpuLuProblem<Element<T>> problem{
        .batch = batch,
        .rows = ToInt(m),
        .cols = ToInt(n),
        .a = AsElements(Elements<T>(a, batch, {m, n}, "a")),
        .packed = AsElements(lu_data),
        .pivots = Elements<int32_t>(pivots, batch, {k}, "pivots"),
        .permutation = Elements<int32_t>(permutation, batch, {m}, "permutation"),
        .info = Elements<int32_t>(info, batch, {}, "info")};
    if (batch == 0) return;
    const GpuPath path = ChooseFactors<Element<T>>(m, n);
    if (path == GpuPath::kPanels) return PanelsLu<T>(stream, scratch, problem);
    if (path != GpuPath::kVendor) return FactorLu(stream, problem);
    T* const packed = scratch.Take<T>(batch * m * n);
    problem.packed = AsElements(packed);
    VendorLu<T>(stream, scratch, problem);
    Transpose(stream, batch, n, m, packed, m * n, lu_data, m * n);
  });
}

void LuPivotsToPermutation(cudaStream_t stream, ffi::AnyBuffer pivots, Result permutation) {
  const PermutationOperands given = ReadPermutationOperands(pivots, permutation);
  PivotsToPermutation(stream, given.batch, given.count, given.size, given.pivots,
                      given.permutation);
}

void LuSolve(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer lu, ffi::AnyBuffer pivots,
             ffi::AnyBuffer b, Result x, bool transpose, bool conjugate) {
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto systems = ReadSystems<T>(lu, b, x, true);
    const Pivots steps = ReadPivots(pivots, systems.batch, systems.n);
    const GivenFactors given{.with = GivenFactors::With::kLu,
                             .triangle = {.transpose = transpose, .conjugate = conjugate},
                             .pivots = steps.data,
                             .pivots_stride = steps.stride};
    Substitute(stream, scratch, given, systems);
  });
}

}  // namespace

template <class E>
void FactorLu(cudaStream_t stream, const GpuLuProblem<E>& problem) {
  using V = RealElement<E>;
  const int64_t rows = problem.rows, cols = problem.cols, size = problem.Size();
  const int count = problem.Count();
  SharedLayout layout(sizeof(V));
  const auto thread = [&] {
    const SmallLu<E> job{.problem = problem,
                         .matrix = {size, layout.Take<E>(size)},
                         .pivots = {count, layout.Take<V>(count)},
                         .permutation = {rows, layout.Take<V>(rows)},
                         .info = {1, layout.Take<V>(1)}};
    LaunchThreads(stream, job, problem.batch, layout);
  };
  const auto warp = [&](auto size) {
    const WarpLu<E, size> job(layout, problem);
    LaunchWarps(stream, job, problem.batch, layout);
  };
  const auto team = [&] {
    const TeamLu<E> job{.problem = problem, .offsets = {layout, problem.rows, problem.cols}};
    const int team_size = PanelTeamSize(std::max(rows, cols), layout.bytes());
    LaunchTeams(stream, job, problem.batch, team_size, layout);
  };
  LaunchOnPath(ChooseFactors<E>(rows, cols), On{GpuPath::kThread, thread},
               On{GpuPath::kWarp, [&] { WithWarpShape<kWarpLu<E>>(std::max(rows, cols), warp); }},
               On{GpuPath::kTeam, team});
}

template <class T>
void PanelsLu(cudaStream_t stream, DeviceScratch& scratch,
              const GpuLuProblem<Element<T>>& problem) {
  using E = Element<T>;
  const int64_t batch = problem.batch, size = problem.Size();
  const int m = problem.rows, n = problem.cols, count = problem.Count();
  Copy(stream, batch * size, problem.a, problem.packed);
  const PanelsProblem<E> panels{.a = problem.packed,
                                .rows = m,
                                .cols = n,
                                .pivots = problem.pivots,
                                .permutation = problem.permutation,
                                .of_block = scratch.Take<int32_t>(batch * m),
                                .of_panel = scratch.Take<int32_t>(batch * m),
                                .info = problem.info};
  const LentBlas lent(stream);
  // Ends the work on columns [first, last): solves beside them within [begin, end), and updates the
  // columns right of them.
  const auto finish = [&](const int32_t* order, int first, int last, int begin, int end) {
    SharedLayout layout(sizeof(Real<T>));
    const ExchangeAndSolve<E> job(layout, panels, order, first, last - first, begin, end);
    LaunchTeams(stream, job, batch * job.parts(), kBlockThreads, layout);
    T* const packed = reinterpret_cast<T*>(problem.packed);
    const auto part = [&](int row, int col) {
      return Submatrix<T>{
          .data = packed + static_cast<int64_t>(row) * n + col, .ld = n, .stride = size};
    };
    Multiply<T>(lent.get(), batch, m - last, end - last, last - first, T(-1),
                part(last, first).Read(), part(first, last).Read(), T(1), part(last, last));
  };
  for (int first = 0; first < count; first += kLuPanel<E>) {
    const int last = std::min(first + kLuPanel<E>, count);
    for (int k = first; k < last;) {
      const auto factor = [&]<int kRows>(std::integral_constant<int, kRows>) {
        using Job = FactorLuPanel<E, kRows>;
        const int end = std::min(k + Job::kCols, last);
        SharedLayout layout(sizeof(Real<T>));
        const Job job(layout, panels, k, end - k, k == first);
        LaunchTeams(stream, job, batch, job.Threads(), layout);
        return end;
      };
      const int end = m - k <= kPanelsLuRows / 2 ? factor(std::integral_constant<int, 2>{})
                                                 : factor(std::integral_constant<int, 4>{});
      finish(panels.of_panel, k, end, first, last);
      k = end;
    }
    finish(panels.of_block, first, last, 0, n);
  }
}

template <class T>
void VendorLu(cudaStream_t stream, DeviceScratch& scratch,
              const GpuLuProblem<Element<T>>& problem) {
  using E = Element<T>;
  const int64_t batch = problem.batch, size = problem.Size();
  const int m = problem.rows, n = problem.cols, count = problem.Count();
  int32_t *const pivots = problem.pivots, *const info = problem.info;
  if (size == 0) {
    Check(cudaMemsetAsync(info, 0, batch * sizeof(int32_t), stream), "cudaMemsetAsync");
  } else {
    auto* const packed = reinterpret_cast<T*>(problem.packed);
    Transpose(stream, batch, m, n, reinterpret_cast<const T*>(problem.a), size, packed, size);
    if (m == n && UseBatchedRoutine(batch, n)) {
      const LentBlas lent(stream);
      T** const pointers = MakePointers(stream, scratch, packed, size, batch);
      vendor::GetrfBatched<T>(lent.get(), n, pointers, n, pivots, info, ToInt(batch));
    } else {
      const LentSolver lent(stream);
      const vendor::Solver solver = lent.get().solver;
      T* const work = scratch.Take<T>(vendor::GetrfWork(solver, m, n, packed, m));
      for (int64_t i = 0; i < batch; ++i) {
        vendor::Getrf(solver, m, n, packed + i * size, m, work, pivots + i * count, info + i);
      }
    }
    LaunchTeams(stream, CheckPivots<E>{.problem = problem}, batch, kGlobalThreads,
                SharedLayout(sizeof(Real<T>)));
    ForEach(stream, batch * size,
            MarkNaN<E>{.a = problem.packed, .by_size = LongDivider(size), .info = info});
  }
  ForEach(stream, batch * count,
          CountFromZero{.pivots = pivots, .by_count = LongDivider(count), .size = m});
  PivotsToPermutation(stream, batch, count, m, pivots, problem.permutation);
}

void PivotsToPermutation(cudaStream_t stream, int64_t batch, int64_t count, int64_t size,
                         const int32_t* pivots, int32_t* permutation) {
  SharedLayout layout(4);
  const bool in_shared = (size + count) * 4 <= kPermutationBytes;
  const MakePermutation job{.pivots = pivots,
                            .permutation = permutation,
                            .count = ToInt(count),
                            .size = ToInt(size),
                            .in_shared = in_shared,
                            .order = layout.Take<int32_t>(in_shared ? size : 0),
                            .copy = layout.Take<int32_t>(in_shared ? count : 0)};
  LaunchTeams(stream, job, batch, std::min(TeamSize(size), kPermutationThreads), layout);
}

template void FactorLu<float>(cudaStream_t, const GpuLuProblem<float>&);
template void FactorLu<double>(cudaStream_t, const GpuLuProblem<double>&);
template void FactorLu<Complex<float>>(cudaStream_t, const GpuLuProblem<Complex<float>>&);
template void FactorLu<Complex<double>>(cudaStream_t, const GpuLuProblem<Complex<double>>&);

template void PanelsLu<float>(cudaStream_t, DeviceScratch&, const GpuLuProblem<float>&);
template void PanelsLu<double>(cudaStream_t, DeviceScratch&, const GpuLuProblem<double>&);
template void PanelsLu<std::complex<float>>(cudaStream_t, DeviceScratch&,
                                            const GpuLuProblem<Complex<float>>&);
template void PanelsLu<std::complex<double>>(cudaStream_t, DeviceScratch&,
                                             const GpuLuProblem<Complex<double>>&);

template void VendorLu<float>(cudaStream_t, DeviceScratch&, const GpuLuProblem<float>&);
template void VendorLu<double>(cudaStream_t, DeviceScratch&, const GpuLuProblem<double>&);
template void VendorLu<std::complex<float>>(cudaStream_t, DeviceScratch&,
                                            const GpuLuProblem<Complex<float>>&);
template void VendorLu<std::complex<double>>(cudaStream_t, DeviceScratch&,
                                             const GpuLuProblem<Complex<double>>&);

}  // namespace linalg::cuda

LINALG_HANDLER_AND_CAPTURED(linalg_lu, linalg::cuda::Lu);
LINALG_HANDLER(linalg_lu_pivots_to_permutation, linalg::cuda::LuPivotsToPermutation,
               LINALG_CAPTURED);
LINALG_HANDLER_AND_CAPTURED(linalg_lu_solve, linalg::cuda::LuSolve);
