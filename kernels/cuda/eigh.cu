// Eigenvalues and eigenvectors of Hermitian matrices.
//
// Tiny ones by the QL iteration of kernels/small, one matrix per thread in shared memory, up to
// kAloneEighBytes; up to kTeamEigh by Jacobi's method, one per team of threads there. Larger ones
// by cuSOLVER: XsyevBatched, piece by piece, or Xsyevd for a single matrix. It is given both
// triangles and asked for the upper one: of complex matrices it has failed on lower ones (jax
// issue 32641, CUDA.jl pull request 2577). A matrix that holds NaN or Inf goes to it as the
// identity; it gets NaN and info = -1.
#include "kernels/arithmetic/rotation.h"
#include "kernels/cuda/eigh_problem.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/iterative.h"
#include "kernels/handlers.h"
#include "kernels/small/eigh.h"
#include "kernels/team/eigh.h"

namespace linalg::cuda {
namespace {

template <class E, bool kVectors>
struct SmallEigh {
  using V = RealElement<E>;
  using Work = small::EigenWork<E, V>;
  EighProblem<E> of;
  Staged matrix, values, info;  // a slice begins with its Work, and that with the matrix

  __device__ void Load(int64_t first, int count, char* memory, int64_t bytes) const {
    matrix.Load(of.a, first, count, memory, bytes);
  }
  __device__ void Run(char* slice) const {
    *At<V>(slice, info.offset) = small::EigenHermitian<kVectors>(WorkIn(slice), of.n, of.part);
  }
  __device__ void Store(int64_t first, int count, char* memory, int64_t bytes) const {
    if constexpr (kVectors) matrix.Store(of.vectors, first, count, memory, bytes);
    values.Store(of.values, first, count, memory, bytes,
                 [&](char* slice, int place) { return WorkIn(slice).d[place]; });
    info.StoreIntegers<V>(of.info, first, count, memory, bytes);
  }

 private:
  __device__ Work WorkIn(char* slice) const { return Work(At<V>(slice, 0), of.n, kVectors); }
};

template <bool kVectors, class E>
bool RunSmallEigh(cudaStream_t stream, int64_t batch, const EighProblem<E>& of) {
  using V = RealElement<E>;
  using Work = small::EigenWork<E, V>;
  const int64_t n = of.n;
  // The iteration wants a last row. Eigenvalues alone have the same cut-off, and the same bits.
  if (n == 0 || Work::Size(n, true) * static_cast<int64_t>(sizeof(V)) > kAloneEighBytes) {
    return false;
  }
  Slice slice(sizeof(V));
  slice.Take<V>(Work::Size(n, kVectors));
  const Staged info(1, 1, slice.Take<V>(1));
  const SmallEigh<E, kVectors> job{of, Staged(n * n, n * n, 0), Staged(n, n, 0), info};
  LaunchAlone(stream, job, batch, slice);
  return true;
}

template <class E, bool kVectors>
struct TeamEigh {
  static constexpr int kMostThreads = kBlockThreads;
  using V = RealElement<E>;
  EighProblem<E> of;
  int ld, vectors, rotations, order;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = of.n;
    const int64_t size = static_cast<int64_t>(n) * n;
    E* const a = At<E>(slice, 0);
    E* const v = At<E>(slice, vectors);
    int32_t* const places = At<int32_t>(slice, order);
    LoadMatrix(team, of.a + i * size, n, n, a, ld);
    V unscale = V(1);
    const int info = team::Jacobi<kVectors>(team, n, of.part, a, ld, v,
                                            At<Rotation<E>>(slice, rotations), unscale);
    if (info == 0) team::SortDiagonal(team, n, a, ld, places);
    team.Phase([&](int thread) {
      for (int k = thread; k < n; k += team.size()) {
        of.values[i * n + k] = info != 0 ? NaN<V>() : unscale * Re(a[places[k] * ld + places[k]]);
      }
      if (thread == 0) of.info[i] = info;
    });
    if constexpr (kVectors) {
      StoreMatrix(team, n, n, of.vectors + i * size, [&](int row, int col) {
        return info != 0 ? NaN<E>() : v[row * ld + places[col]];
      });
    }
  }
};

// The Hermitian part with both triangles.
template <class E>
struct CopyHermitian {
  EighProblem<E> of;
  E* target;

  __device__ void operator()(int64_t place) const {
    const int64_t n = of.n, matrix = place / (n * n), i = place / n % n, j = place % n;
    const E* const a = of.a + matrix * n * n;
    const E x = of.part.At(i, j, [=](int64_t k, int64_t l) { return LoadGlobal(a + k * n + l); });
    // To the vendor, (j, i) of a column-major matrix: the operand's conjugate would be read there.
    StoreGlobal<E>(x, target + matrix * n * n + j * n + i);
  }
};

// In place scaled; the identity in place of what is not finite.
template <class E>
struct ScaleInPlace {
  FindScales<E> of;
  int64_t n;
  E* a;

  __device__ void operator()(int64_t place) const {
    using V = RealElement<E>;
    const int64_t matrix = place / of.size, i = place / n % n, j = place % n;
    StoreGlobal<E>(
        of.info[matrix] != 0 ? FromReal<E>(V(i == j)) : of.scales[matrix] * LoadGlobal(a + place),
        a + place);
  }
};

template <class T>
void VendorEigh(cudaStream_t stream, Scratch& scratch, int64_t batch,
                const EighProblem<Element<T>>& of) {
  using E = Element<T>;
  const int64_t n = of.n, size = n * n;
  T* const a = scratch.Take<T>(batch * size);
  E* const elements = AsElements(a);
  ForEach(stream, batch * size, CopyHermitian<E>{of, elements});
  const auto scales =
      MeasureBatch(stream, scratch, batch, size, static_cast<const E*>(elements), of.info);
  ForEach(stream, batch * size, ScaleInPlace<E>{scales, n, elements});
  const LentSolver lent(stream);
  const auto job = of.vectors != nullptr ? vendor::kVectors : vendor::kNoVectors;
  using Syev = vendor::Syev<T, Real<T>>;
  const int64_t piece = std::min(batch, Syev::MostBatch(n));
  const Syev syev(lent.get().solver, lent.get().parameters, job, vendor::kUpper, n, piece, a,
                  of.values);
  Workspace work(stream, scratch, syev);
  int32_t* const vendors_info = scratch.Take<int32_t>(batch);
  for (int64_t i = 0; i < batch; i += piece) {
    syev.Run(a + i * size, of.values + i * n, std::min(piece, batch - i), work.device(),
             work.host(), vendors_info + i);
    work.Release();
  }
  ForEach(stream, batch, MergeInfo{of.info, vendors_info});
  ForEach(stream, batch * n, ScaleBack<Real<T>>{of.values, n, scales.inverses, of.info});
  if (of.vectors != nullptr) {
    Transpose(stream, batch, n, n, static_cast<const T*>(a), size, reinterpret_cast<T*>(of.vectors),
              size);
    ForEach(stream, batch * size, FillFailed<E>{of.vectors, size, of.info});
  }
}

template <bool kVectors, class E>
bool RunTeamEigh(cudaStream_t stream, int64_t batch, const EighProblem<E>& of) {
  if (of.n > kTeamEigh) return false;
  Slice slice(sizeof(RealElement<E>));
  const int ld = of.n | 1;
  slice.Take<E>(of.n * ld);
  TeamEigh<E, kVectors> job{of, ld, 0, 0, 0};
  job.vectors = slice.Take<E>(kVectors ? of.n * ld : 0);
  job.rotations = slice.Take<Rotation<E>>(team::PairsOf(of.n));
  job.order = slice.Take<int32_t>(of.n);
  if (slice.bytes() > SharedBytes()) return false;
  LaunchTeams(stream, job, batch, TeamSize(of.n), slice);
  return true;
}

template <bool kVectors, class E>
bool RunOwnEigh(cudaStream_t stream, int64_t batch, const EighProblem<E>& of) {
  return RunSmallEigh<kVectors>(stream, batch, of) || RunTeamEigh<kVectors>(stream, batch, of);
}

ffi::Error Eigh(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
                ffi::Result<ffi::AnyBuffer> values, ffi::Result<ffi::AnyBuffer> vectors,
                ffi::Result<ffi::AnyBuffer> info, bool lower, bool symmetrize) {
  return Guard("linalg_eigh", [&] {
    const BatchShape shape = SplitSquareBatch(a, "a");
    const int64_t batch = shape.batch, n = shape.rows;
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      T* const vectors_data = Elements<T>(vectors, batch * n * n, "the eigenvectors");
      SolveEigh<T>(stream, allocator, batch,
                   {ToInt(n),
                    {lower, symmetrize},
                    AsElements(Elements<T>(a, batch * n * n, "a")),
                    AsElements(vectors_data),
                    Elements<Real<T>>(values, batch * n, "the eigenvalues"),
                    Elements<int32_t>(info, batch, "info")});
    });
  });
}

ffi::Error Eigvalsh(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
                    ffi::Result<ffi::AnyBuffer> values, ffi::Result<ffi::AnyBuffer> info,
                    bool lower, bool symmetrize) {
  return Guard("linalg_eigvalsh", [&] {
    const BatchShape shape = SplitSquareBatch(a, "a");
    const int64_t batch = shape.batch, n = shape.rows;
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      SolveEigh<T>(stream, allocator, batch,
                   {ToInt(n),
                    {lower, symmetrize},
                    AsElements(Elements<T>(a, batch * n * n, "a")),
                    nullptr,
                    Elements<Real<T>>(values, batch * n, "the eigenvalues"),
                    Elements<int32_t>(info, batch, "info")});
    });
  });
}

}  // namespace

template <class T>
void SolveEigh(cudaStream_t stream, ffi::ScratchAllocator& allocator, int64_t batch,
               const EighProblem<Element<T>>& of) {
  if (batch == 0) return;
  if (of.vectors != nullptr ? RunOwnEigh<true>(stream, batch, of)
                            : RunOwnEigh<false>(stream, batch, of)) {
    return;
  }
  Scratch scratch(allocator);
  VendorEigh<T>(stream, scratch, batch, of);
}

template void SolveEigh<float>(cudaStream_t, ffi::ScratchAllocator&, int64_t,
                               const EighProblem<float>&);
template void SolveEigh<double>(cudaStream_t, ffi::ScratchAllocator&, int64_t,
                                const EighProblem<double>&);
template void SolveEigh<std::complex<float>>(cudaStream_t, ffi::ScratchAllocator&, int64_t,
                                             const EighProblem<Complex<float>>&);
template void SolveEigh<std::complex<double>>(cudaStream_t, ffi::ScratchAllocator&, int64_t,
                                              const EighProblem<Complex<double>>&);

}  // namespace linalg::cuda

LINALG_HANDLER(linalg_eigh, linalg::cuda::Eigh);
LINALG_HANDLER(linalg_eigvalsh, linalg::cuda::Eigvalsh);
