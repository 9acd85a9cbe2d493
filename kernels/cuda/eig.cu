// Eigenvalues and eigenvectors of general matrices. Results are complex for real operands too.
//
// A team of threads computes the Schur form of a matrix, in shared memory if it fits, otherwise in
// global memory. A few matrices beyond kTeamEig take cuSOLVER's geev instead, one after another, on
// a column-major copy. geev has no left vectors. It returns a real matrix's vectors as real and
// imaginary parts in neighbouring columns, which are joined here. A matrix that holds NaN or Inf is
// passed to it as the identity, and gets NaN and info = -1.
#include <mutex>

#include "kernels/cuda/eig_path.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/iterative.h"
#include "kernels/cuda/schur_work.h"
#include "kernels/handlers.h"
#include "kernels/team/eig.h"

namespace linalg::cuda {
namespace {

// Matrices are n by n. Vectors that are not requested are null.
template <class T>
struct EigProblem {
  using E = Element<T>;
  using C = Complex<RealElement<E>>;
  int n;
  const E* a;
  C* values;
  C* left;
  C* right;
  int32_t* info;

  __host__ __device__ int64_t Size() const { return static_cast<int64_t>(n) * n; }
};

template <class T, bool kVectors>
struct TeamEig {
  static constexpr int kMostThreads = kGlobalThreads;
  using E = Element<T>;
  using V = RealElement<E>;
  using C = Complex<V>;
  EigProblem<T> problem;
  SchurOffsets<E> offsets;
  Offset<V> diagonal;
  Offset<int32_t> order;
  Offset<C> x;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    RunWith(team, i, slice, team::PlainIteration());
  }

  template <class Iteration>
  __device__ void RunWith(const Team& team, int64_t i, char* slice,
                          const Iteration& iteration) const {
    const int n = problem.n;
    const int64_t offset = i * problem.Size();
    const team::SchurWork<E> work = offsets.In(slice);
    const team::Balanced<V> balanced{diagonal.In(slice), order.In(slice)};
    LoadMatrix(team, problem.a + offset, n, n, work.Input(), work.ld);
    const int info =
        team::Eig<kVectors>(team, n, work, iteration, balanced, x.In(slice), problem.values + i * n,
                            problem.left != nullptr ? problem.left + offset : nullptr,
                            problem.right != nullptr ? problem.right + offset : nullptr);
    StoreInfo(team, info, problem.info + i);
  }
};

template <bool kVectors, class T>
void RunTeamEig(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
                const EigProblem<T>& problem) {
  using E = Element<T>;
  using V = RealElement<E>;
  SharedLayout layout(sizeof(V));
  const auto offsets = TakeSchurWork<E>(layout, problem.n, LargeTeamSize(problem.n), kVectors);
  const TeamEig<T, kVectors> job{
      .problem = problem,
      .offsets = offsets,
      .diagonal = layout.Take<V>(problem.n),
      .order = layout.Take<int32_t>(problem.n),
      .x = layout.Take<Complex<V>>(kVectors ? problem.n * int64_t{offsets.ld} : 0)};
  LaunchSchur<E>(stream, scratch, job, batch, problem.n, layout);
}

// Xgeev has a race between host threads before CUDA 13.0 Update 1.
std::mutex geev_mutex;

// Row-major complex vectors from the real columns of a matrix with eigenvalues w.
template <class V>
struct JoinColumns {
  int64_t n;
  MatrixElements elements;
  const Complex<V>* w;
  const V* columns;
  Complex<V>* target;

  __device__ void operator()(int64_t place) const {
    const auto [matrix, i, j] = elements(place);
    const V sign = LoadGlobal(w + j).im;
    Complex<V> x{columns[j * n + i], V(0)};
    // The first of a pair has the positive imaginary part. After a failed iteration, an eigenvalue
    // may lack its conjugate.
    if (sign > V(0) && j + 1 < n) x.im = columns[(j + 1) * n + i];
    if (sign < V(0) && j > 0) x = {columns[(j - 1) * n + i], -x.re};
    StoreGlobal(x, target + place);
  }
};

template <class T>
void VendorEig(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
               const EigProblem<T>& problem) {
  using C = std::complex<Real<T>>;
  const int64_t n = problem.n, size = problem.Size();
  T* const matrix = scratch.Take<T>(size);
  T* const columns = problem.right != nullptr ? scratch.Take<T>(size) : nullptr;
  const LentSolver lent(stream);
  const auto job = problem.right != nullptr ? vendor::kVectors : vendor::kNoVectors;
  C* const values = reinterpret_cast<C*>(problem.values);
  const vendor::Geev<T, C> geev(lent.get().solver, lent.get().parameters, job, n, matrix, values,
                                columns);
  VendorWorkspace work(stream, scratch, geev);
  const auto run = [&](int64_t i, int32_t* info) {
    C* const w = values + i * n;
    // Synchronise before locking, so that only Xgeev is waited for under the mutex. Earlier work on
    // the stream may need another device, whose thread may want the mutex.
    Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    {
      const std::lock_guard<std::mutex> lock(geev_mutex);
      geev.Run(matrix, w, columns, work.device(), work.host(), info);
      work.Wait();
    }
    if (problem.right == nullptr) return;
    auto* const target = problem.right + i * size;
    if constexpr (kIsComplex<T>) {
      Transpose(stream, 1, n, n, static_cast<const T*>(columns), 0, reinterpret_cast<T*>(target),
                0);
    } else {
      ForEach(stream, size,
              JoinColumns<T>{.n = n,
                             .elements = {n, n},
                             .w = AsElements(w),
                             .columns = columns,
                             .target = target});
    }
  };
  const auto scales =
      ForEachScaled(stream, scratch, batch, n, n, problem.a, true, matrix, problem.info, run);
  ForEach(stream, batch * n,
          ScaleBack<Element<C>>{.x = problem.values,
                                .by_count = LongDivider(n),
                                .inverses = scales.inverses,
                                .info = problem.info});
  if (problem.right == nullptr) return;
  ForEach(stream, batch * size,
          FillFailed<Element<C>>{
              .x = problem.right, .by_size = LongDivider(size), .info = problem.info});
}

// `left` and `right` are null where a handler has no such result.
void RunEig(cudaStream_t stream, DeviceScratch& scratch, ffi::AnyBuffer a, Result& values,
            Result* left, Result* right, Result& info) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    using C = std::complex<Real<T>>;
    const auto vectors = [&](Result* result, std::string_view name) {
      return result != nullptr ? AsElements(Elements<C>(*result, batch, {n, n}, name)) : nullptr;
    };
    const EigProblem<T> problem{
        .n = ToInt(n),
        .a = AsElements(Elements<T>(a, batch, {n, n}, "a")),
        .values = AsElements(Elements<C>(values, batch, {n}, "the eigenvalues")),
        .left = vectors(left, "the left eigenvectors"),
        .right = vectors(right, "the eigenvectors"),
        .info = Elements<int32_t>(info, batch, {}, "info")};
    if (batch == 0) return;
    const auto team = [&] {
      if (right != nullptr) {
        RunTeamEig<true>(stream, scratch, batch, problem);
      } else {
        RunTeamEig<false>(stream, scratch, batch, problem);
      }
    };
    GpuPath path = EigPath<T>(n, left != nullptr, batch, SharedBytes());
    if (path == GpuPath::kVendor && !vendor::HasGeev()) path = GpuPath::kBlock;
    LaunchOnPath(path, On{GpuPath::kTeam, team}, On{GpuPath::kBlock, team},
                 On{GpuPath::kVendor, [&] { VendorEig(stream, scratch, batch, problem); }});
  });
}

void EigLeft(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result values,
             Result left, Result right, Result info) {
  RunEig(stream, scratch, a, values, &left, &right, info);
}

void Eig(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result values, Result right,
         Result info) {
  RunEig(stream, scratch, a, values, nullptr, &right, info);
}

void Eigvals(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result values,
             Result info) {
  RunEig(stream, scratch, a, values, nullptr, nullptr, info);
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER_AND_CAPTURED(linalg_eig_left, linalg::cuda::EigLeft);
LINALG_HANDLER_AND_CAPTURED(linalg_eig, linalg::cuda::Eig);
LINALG_HANDLER_AND_CAPTURED(linalg_eigvals, linalg::cuda::Eigvals);
