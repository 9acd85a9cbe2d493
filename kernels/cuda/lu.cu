// LU with partial pivoting, and solves with given factors.
//
// One matrix per thread or per team of threads where it fits in shared memory. Beyond, cuBLAS's
// getrfBatched, or cuSOLVER's getrf for one matrix after another, on a column-major copy. Pivots
// count from 0 and become the permutation on the device. A singular matrix is not a failure: info
// is the 1-based index of the first zero pivot.
#include "kernels/cuda/lu_factors.h"

#include "kernels/cuda/handles.h"
#include "kernels/cuda/passes.h"
#include "kernels/cuda/substitution.h"
#include "kernels/handlers.h"
#include "kernels/small/lu.h"
#include "kernels/small/triangular.h"
#include "kernels/team/lu.h"
#include "kernels/team/triangular.h"

namespace linalg::cuda {
namespace {

template <class E>
struct SmallLu {
  using V = RealElement<E>;
  int rows, cols;
  const E* a;
  E* packed;
  int32_t *pivots_out, *permutation_out, *info_out;
  Staged matrix, pivots, permutation, info;

  __device__ void Load(int64_t first, int count, char* memory, int64_t bytes) const {
    matrix.Load(a, first, count, memory, bytes);
  }
  __device__ void Run(char* slice) const {
    *At<V>(slice, info.offset) =
        small::Lu(rows, cols, At<E>(slice, matrix.offset), At<V>(slice, pivots.offset),
                  At<V>(slice, permutation.offset));
  }
  __device__ void Store(int64_t first, int count, char* memory, int64_t bytes) const {
    matrix.Store(packed, first, count, memory, bytes);
    pivots.StoreIntegers<V>(pivots_out, first, count, memory, bytes);
    permutation.StoreIntegers<V>(permutation_out, first, count, memory, bytes);
    info.StoreIntegers<V>(info_out, first, count, memory, bytes);
  }
};

template <class E>
struct TeamLu {
  static constexpr int kMostThreads = kBlockThreads;
  int rows, cols, ld;
  const E* a;
  E* packed;
  int32_t *pivots_out, *permutation_out, *info_out;
  int pivots, permutation;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    E* const matrix = At<E>(slice, 0);
    int32_t* const steps = At<int32_t>(slice, pivots);
    int32_t* const order = At<int32_t>(slice, permutation);
    const int64_t size = static_cast<int64_t>(rows) * cols;
    const int count = rows < cols ? rows : cols;
    LoadMatrix(team, a + i * size, rows, cols, matrix, ld);
    const int info = team::Lu(team, rows, cols, matrix, ld, steps, order);
    StoreMatrix(team, rows, cols, packed + i * size,
                [&](int row, int col) { return matrix[row * ld + col]; });
    team.Phase([&](int thread) {
      for (int k = thread; k < count; k += team.size()) pivots_out[i * count + k] = steps[k];
      for (int k = thread; k < rows; k += team.size()) permutation_out[i * rows + k] = order[k];
      if (thread == 0) info_out[i] = info;
    });
  }
};

// The vendor's pivots, from 1, to ours.
struct CountFromZero {
  int32_t* pivots;
  int64_t count, size;

  __device__ void operator()(int64_t i) const {
    // Where NaN was compared, anything may stand there.
    const int64_t k = i % count, pivot = int64_t{pivots[i]} - 1;
    pivots[i] = static_cast<int32_t>(pivot >= k && pivot < size ? pivot : k);
  }
};

// info from the factors, for the vendor's is not always right: 0, or from 1 the first pivot that is
// 0. What the vendor makes of a pivot whose reciprocal overflows may be anything, in its LU and in
// its substitution. So such a matrix is factored again, by a team in global memory, unless it is
// substituted with, where that pivot counts as 0.
template <class E>
struct CheckPivots {
  static constexpr int kMostThreads = kGlobalThreads;
  using V = RealElement<E>;

  int rows, cols;
  const E* a;
  E* packed;
  int32_t* pivots;
  int32_t* permutation;
  int32_t* info;
  bool substitutes;

  __device__ void Run(const Team& team, int64_t i, char*) const {
    const int64_t size = static_cast<int64_t>(rows) * cols;
    E* const factors = packed + i * size;
    constexpr V kTiny = Divisor<E>::kTiny;
    const bool strict = substitutes;
    int found = First(team, factors, [=](V x) { return x == V(0) || (strict && x < kTiny); });
    if (!strict && First(team, factors, [=](V x) { return x > V(0) && x < kTiny; }) != 0) {
      if (size <= std::numeric_limits<int>::max()) {
        found =
            FactorAgain(team, a + i * size, factors, pivots + i * Count(), permutation + i * rows);
      } else {  // too many for a team's integers: that they are wrong is said by NaN
        team.Phase([&](int thread) {
          if (thread == 0) factors[0] = NaN<E>();
        });
      }
    }
    team.Phase([&](int thread) {
      if (thread == 0) info[i] = found;
    });
  }

 private:
  __device__ int Count() const { return rows < cols ? rows : cols; }

  // The first pivot, from 1, whose magnitude is so, or 0.
  template <class Is>
  __device__ int First(const Team& team, const E* factors, Is&& is) const {
    const auto first = team.Best<V>([&](int thread) {
      team::Largest<V> best{V(0), -1};
      for (int k = thread; k < Count(); k += team.size()) {
        const V pivot = Magnitude(factors[static_cast<int64_t>(k) * rows + k]);
        if (is(pivot)) best = best.Better({V(1), k});
      }
      return best;
    });
    return first.index + 1;
  }

  __device__ int FactorAgain(const Team& team, const E* matrix, E* factors, int32_t* steps,
                             int32_t* order) const {
    LoadMatrix(team, matrix, rows, cols, factors, cols);
    const int found = team::Lu(team, rows, cols, factors, cols, steps, order);
    team.Phase([&](int thread) {  // the vendor's count from 1
      for (int k = thread; k < Count(); k += team.size()) ++steps[k];
    });
    if (rows == cols) {
      team::ApplyOperation(team, rows, factors, cols, true, false);
    } else {
      team.Phase([&](int thread) {
        if (thread == 0) small::Transpose(rows, cols, factors);
      });
    }
    return found;
  }
};

template <class E>
struct MarkNaN {
  const E* a;
  int64_t size;
  int32_t* info;

  __device__ void operator()(int64_t i) const {
    const auto magnitude = Magnitude(LoadGlobal(a + i));
    if (magnitude != magnitude) info[i / size] = -1;
  }
};

// The permutation of given pivots, one per team.
struct MakePermutation {
  static constexpr int kMostThreads = kBlockThreads;
  const int32_t* pivots;
  int32_t* permutation;
  int count, size;
  bool in_shared;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    int32_t* const target = permutation + i * size;
    const int32_t* const steps = pivots + i * count;
    if (!in_shared) return team::PivotsToPermutation(team, count, steps, size, target);
    int32_t* const order = At<int32_t>(slice, 0);
    int32_t* const copy = order + size;
    team.Phase([&](int thread) {
      for (int k = thread; k < count; k += team.size()) copy[k] = steps[k];
    });
    team::PivotsToPermutation(team, count, copy, size, order);
    team.Phase([&](int thread) {
      for (int k = thread; k < size; k += team.size()) target[k] = order[k];
    });
  }
};

ffi::Error Lu(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
              ffi::Result<ffi::AnyBuffer> lu, ffi::Result<ffi::AnyBuffer> pivots,
              ffi::Result<ffi::AnyBuffer> permutation, ffi::Result<ffi::AnyBuffer> info) {
  return Guard("linalg_lu", [&] {
    const BatchShape shape = SplitBatch(a, 2, "a");
    const int64_t batch = shape.batch, m = shape.rows, n = shape.cols, k = std::min(m, n);
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      T* const lu_data = Elements<T>(lu, batch * m * n, "lu");
      LuProblem<T> problem{batch,
                           m,
                           n,
                           Elements<T>(a, batch * m * n, "a"),
                           lu_data,
                           Elements<int32_t>(pivots, batch * k, "pivots"),
                           Elements<int32_t>(permutation, batch * m, "permutation"),
                           Elements<int32_t>(info, batch, "info")};
      if (batch == 0) return;
      if (UseOwnLu<T>(m, n)) return OwnLu(stream, problem);
      Scratch scratch(allocator);
      problem.packed = scratch.Take<T>(batch * m * n);
      VendorLu(stream, scratch, problem);
      Transpose(stream, batch, n, m, problem.packed, m * n, lu_data, m * n);
    });
  });
}

ffi::Error LuPivotsToPermutation(cudaStream_t stream, ffi::AnyBuffer pivots,
                                 ffi::Result<ffi::AnyBuffer> permutation) {
  return Guard("linalg_lu_pivots_to_permutation", [&] {
    const BatchShape shape = SplitBatch(pivots, 1, "pivots");
    const int64_t k = shape.cols, m = SplitBatch(*permutation, 1, "permutation").cols;
    if (m < k) throw BadArgument("permutation_size", "be at least the number of pivots");
    const int32_t* const steps = Elements<int32_t>(pivots, shape.batch * k, "pivots");
    int32_t* const target = Elements<int32_t>(permutation, shape.batch * m, "permutation");
    PivotsToPermutation(stream, shape.batch, k, m, steps, target);
  });
}

ffi::Error LuSolve(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer lu,
                   ffi::AnyBuffer pivots, ffi::AnyBuffer b, ffi::Result<ffi::AnyBuffer> x,
                   bool transpose, bool conjugate) {
  return Guard("linalg_lu_solve", [&] {
    Scratch scratch(allocator);
    const BatchShape shape = SplitBatch(pivots, 1, "pivots");
    const bool shared = pivots.dimensions().size() == 1;
    DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
      const auto systems = ReadSystems<T>(lu, b, x, true);
      if (shape.cols != systems.n) throw BadArgument("pivots", "have one element per row");
      if (!shared && shape.batch != systems.batch) {
        throw BadArgument("pivots", "have the batch size of b");
      }
      const Substitution substitution{
          .with = Substitution::With::kLu,
          .transpose = transpose,
          .conjugate = conjugate,
          .pivots = Elements<int32_t>(pivots, shape.batch * systems.n, "pivots"),
          .pivots_stride = shared ? 0 : systems.n};
      Substitute(stream, scratch, substitution, systems);
    });
  });
}

}  // namespace

template <class T>
void OwnLu(cudaStream_t stream, const LuProblem<T>& problem) {
  using E = Element<T>;
  const auto& [batch, m, n, a, packed, pivots, permutation, info, _] = problem;
  const int rows = ToInt(m), cols = ToInt(n);
  const int64_t size = m * n, count = std::min(m, n);
  Slice slice(sizeof(Real<T>));
  if (size * static_cast<int64_t>(sizeof(T)) + (m + n) * 4 <= kAloneBytes) {
    const Staged matrix(size, size, slice.Take<E>(size));
    const Staged steps(count, count, slice.Take<Real<T>>(count));
    const Staged order(m, m, slice.Take<Real<T>>(m));
    const Staged singular(1, 1, slice.Take<Real<T>>(1));
    const SmallLu<E> job{rows,   cols,        AsElements(a), AsElements(packed),
                         pivots, permutation, info,          matrix,
                         steps,  order,       singular};
    return LaunchAlone(stream, job, batch, slice);
  }
  const int ld = cols | 1;
  slice.Take<E>(m * ld);
  const int steps = slice.Take<int32_t>(count), order = slice.Take<int32_t>(m);
  const TeamLu<E> job{rows,   cols,        ld,   AsElements(a), AsElements(packed),
                      pivots, permutation, info, steps,         order};
  LaunchTeams(stream, job, batch, TeamSize(std::max(m, n)), slice);
}

template <class T>
void VendorLu(cudaStream_t stream, Scratch& scratch, const LuProblem<T>& problem) {
  using E = Element<T>;
  const auto& [batch, rows, cols, a, packed, pivots, permutation, info, _] = problem;
  const int m = ToInt(rows), n = ToInt(cols), count = std::min(m, n);
  const int64_t size = problem.size();
  if (size == 0) {
    Check(cudaMemsetAsync(info, 0, batch * sizeof(int32_t), stream), "cudaMemsetAsync");
  } else {
    Transpose(stream, batch, rows, cols, a, size, packed, size);
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
    const CheckPivots<E> check{.rows = m,
                               .cols = n,
                               .a = AsElements(a),
                               .packed = AsElements(packed),
                               .pivots = pivots,
                               .permutation = permutation,
                               .info = info,
                               .substitutes = problem.substitutes};
    LaunchTeams(stream, check, batch, kGlobalThreads, Slice(sizeof(Real<T>)));
    ForEach(stream, batch * size,
            MarkNaN<E>{AsElements(static_cast<const T*>(packed)), size, info});
  }
  ForEach(stream, batch * count, CountFromZero{pivots, count, m});
  PivotsToPermutation(stream, batch, count, m, pivots, permutation);
}

void PivotsToPermutation(cudaStream_t stream, int64_t batch, int64_t count, int64_t size,
                         const int32_t* pivots, int32_t* permutation) {
  Slice slice(4);
  const bool in_shared = (size + count) * 4 <= kBlockBytes / 2;
  if (in_shared) slice.Take<int32_t>(size + count);
  const MakePermutation job{pivots, permutation, ToInt(count), ToInt(size), in_shared};
  LaunchTeams(stream, job, batch, std::min(TeamSize(size), 32), slice);
}

#define LINALG_INSTANTIATE(T)                             \
  template void OwnLu(cudaStream_t, const LuProblem<T>&); \
  template void VendorLu(cudaStream_t, Scratch&, const LuProblem<T>&);
LINALG_INSTANTIATE(float)
LINALG_INSTANTIATE(double)
LINALG_INSTANTIATE(std::complex<float>)
LINALG_INSTANTIATE(std::complex<double>)
#undef LINALG_INSTANTIATE

}  // namespace linalg::cuda

LINALG_HANDLER(linalg_lu, linalg::cuda::Lu);
LINALG_HANDLER(linalg_lu_pivots_to_permutation, linalg::cuda::LuPivotsToPermutation,
               {xla::ffi::Traits::kCmdBufferCompatible});
LINALG_HANDLER(linalg_lu_solve, linalg::cuda::LuSolve);
