// Eigenvalues and eigenvectors of general matrices; complex, whatever the operand is.
//
// By the Schur form of one matrix per team of threads, in shared memory where that fits, else in
// global memory; a few matrices beyond kTeamEig by cuSOLVER's geev, which has no left vectors, on a
// column-major copy of one after another. A real matrix's vectors come from it as real and
// imaginary parts in neighbouring columns, and are put together here. A matrix that holds NaN or
// Inf, which gets NaN and info = -1, goes to it as the identity.
#include <mutex>

#include "kernels/cuda/handles.h"
#include "kernels/cuda/iterative.h"
#include "kernels/cuda/schur_work.h"
#include "kernels/handlers.h"
#include "kernels/team/eigenvectors.h"

namespace linalg::cuda {
namespace {

// What is made of n by n matrices: vectors that are not wanted are null.
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
  EigProblem<T> of;
  SchurPlaces places;
  int diagonal, order, x;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = of.n;
    const team::SchurWork<E> work = SchurWorkAt<E>(slice, places);
    const team::Balanced<V> balanced{At<V>(slice, diagonal), At<int32_t>(slice, order)};
    LoadMatrix(team, of.a + i * of.Size(), n, n, work.Operand(), work.ld);
    V unscale = V(1);
    const int info = team::Schur<kVectors>(team, n, work, balanced, unscale);
    const E* const t = kVectors ? work.t : work.Operand();
    team.Phase([&](int thread) {
      for (int k = thread; k < n; k += team.size()) {
        of.values[i * n + k] = info != 0 ? NaN<C>() : unscale * team::Eigenvalue(n, t, work.ld, k);
      }
      if (thread == 0) of.info[i] = info;
    });
    if constexpr (kVectors) {
      for (int side = 0; side < 2; ++side) {
        const bool left = side == 0;
        C* const target = left ? of.left : of.right;
        if (target == nullptr) continue;
        C* const vectors = target + i * of.Size();
        if (info != 0) {
          StoreMatrix(team, n, n, vectors, [](int, int) { return NaN<C>(); });
        } else {
          team::SchurEigenvectors(team, n, t, work.z, work.ld, balanced, left, At<C>(slice, x),
                                  work.ld, vectors);
        }
      }
    }
  }
};

template <bool kVectors, class T>
void RunTeamEig(cudaStream_t stream, Scratch& scratch, int64_t batch, const EigProblem<T>& of) {
  using E = Element<T>;
  using V = RealElement<E>;
  Slice slice(sizeof(V));
  TeamEig<T, kVectors> job{of, TakeSchurWork<E>(slice, of.n, LargeTeamSize(of.n), kVectors), 0, 0,
                           0};
  job.diagonal = slice.Take<V>(of.n);
  job.order = slice.Take<int32_t>(of.n);
  job.x = slice.Take<Complex<V>>(kVectors ? of.n * int64_t{job.places.ld} : 0);
  LaunchTeamsAnywhere(stream, scratch, job, batch, LargeTeamSize(of.n), slice);
}

// Xgeev has a race between host threads before CUDA 13.0 Update 1.
std::mutex geev_mutex;

// Row-major complex vectors from the real columns of a matrix with eigenvalues w.
template <class V>
struct JoinColumns {
  int64_t n;
  const Complex<V>* w;
  const V* columns;
  Complex<V>* target;

  __device__ void operator()(int64_t place) const {
    const int64_t i = place / n, j = place % n;
    const V sign = LoadGlobal(w + j).im;
    Complex<V> x{columns[j * n + i], V(0)};
    // The first of a pair is that with the positive imaginary part. After an iteration that failed
    // one may lack the other.
    if (sign > V(0) && j + 1 < n) x.im = columns[(j + 1) * n + i];
    if (sign < V(0) && j > 0) x = {columns[(j - 1) * n + i], -x.re};
    StoreGlobal(x, target + place);
  }
};

template <class T>
void VendorEig(cudaStream_t stream, Scratch& scratch, int64_t batch, const EigProblem<T>& of) {
  using C = std::complex<Real<T>>;
  const int64_t n = of.n, size = of.Size();
  T* const matrix = scratch.Take<T>(size);
  T* const columns = of.right != nullptr ? scratch.Take<T>(size) : nullptr;
  const LentSolver lent(stream);
  const auto job = of.right != nullptr ? vendor::kVectors : vendor::kNoVectors;
  C* const values = reinterpret_cast<C*>(of.values);
  const vendor::Geev<T, C> geev(lent.get().solver, lent.get().parameters, job, n, matrix, values,
                                columns);
  Workspace work(stream, scratch, geev);
  const auto run = [&](int64_t i, int32_t* info) {
    C* const w = values + i * n;
    // Under the mutex nothing but Xgeev is waited for: what is on the stream before it may need
    // another device, whose thread may want the mutex.
    Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    {
      const std::lock_guard<std::mutex> lock(geev_mutex);
      geev.Run(matrix, w, columns, work.device(), work.host(), info);
      work.Wait();
    }
    if (of.right == nullptr) return;
    auto* const target = of.right + i * size;
    if constexpr (kIsComplex<T>) {
      Transpose(stream, 1, n, n, static_cast<const T*>(columns), 0, reinterpret_cast<T*>(target),
                0);
    } else {
      ForEach(stream, size, JoinColumns<T>{n, AsElements(w), columns, target});
    }
  };
  const auto scales = ForEachScaled(stream, scratch, batch, n, n, of.a, true, matrix, of.info, run);
  ForEach(stream, batch * n, ScaleBack<Element<C>>{of.values, n, scales.inverses, of.info});
  if (of.right == nullptr) return;
  ForEach(stream, batch * size, FillFailed<Element<C>>{of.right, size, of.info});
}

using Result = ffi::Result<ffi::AnyBuffer>;

// `left` and `right` are null where a handler has no such result.
ffi::Error RunEig(std::string_view target, cudaStream_t stream, ffi::ScratchAllocator& allocator,
                  ffi::AnyBuffer a, Result& values, Result* left, Result* right, Result& info) {
  return Guard(target, [&] {
    const BatchShape shape = SplitSquareBatch(a, "a");
    const int64_t batch = shape.batch, n = shape.rows;
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      using C = std::complex<Real<T>>;
      const auto vectors = [&](Result* result, std::string_view name) {
        return result != nullptr ? AsElements(Elements<C>(*result, batch * n * n, name)) : nullptr;
      };
      const EigProblem<T> of{ToInt(n),
                             AsElements(Elements<T>(a, batch * n * n, "a")),
                             AsElements(Elements<C>(values, batch * n, "the eigenvalues")),
                             vectors(left, "the left eigenvectors"),
                             vectors(right, "the eigenvectors"),
                             Elements<int32_t>(info, batch, "info")};
      if (batch == 0) return;
      Scratch scratch(allocator);
      if (n > kTeamEig && batch < kGlobalBatch && left == nullptr) {
        VendorEig(stream, scratch, batch, of);
      } else if (right != nullptr) {
        RunTeamEig<true>(stream, scratch, batch, of);
      } else {
        RunTeamEig<false>(stream, scratch, batch, of);
      }
    });
  });
}

ffi::Error EigLeft(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
                   Result values, Result left, Result right, Result info) {
  return RunEig("linalg_eig_left", stream, allocator, a, values, &left, &right, info);
}

ffi::Error Eig(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
               Result values, Result right, Result info) {
  return RunEig("linalg_eig", stream, allocator, a, values, nullptr, &right, info);
}

ffi::Error Eigvals(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
                   Result values, Result info) {
  return RunEig("linalg_eigvals", stream, allocator, a, values, nullptr, nullptr, info);
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_eig_left, linalg::cuda::EigLeft);
LINALG_HANDLER(linalg_eig, linalg::cuda::Eig);
LINALG_HANDLER(linalg_eigvals, linalg::cuda::Eigvals);
