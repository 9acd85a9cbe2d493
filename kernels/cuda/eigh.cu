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
  EighProblem<E> problem;
  Place<V> work;     // a Work
  Staged<E> matrix;  // at its beginning
  Staged<V> values;
  Staged<V> info;

  __device__ void Load(const Block& block) const { matrix.Load(problem.a, block); }
  __device__ void Run(char* slice) const {
    *info.In(slice) = small::EigenHermitian<kVectors>(WorkIn(slice), problem.n, problem.part);
  }
  __device__ void Store(const Block& block) const {
    if constexpr (kVectors) matrix.Store(problem.vectors, block);
    values.Store(problem.values, block,
                 [&](char* slice, int place) { return WorkIn(slice).d[place]; });
    info.StoreIntegers(problem.info, block);
  }

 private:
  __device__ Work WorkIn(char* slice) const { return Work(work.In(slice), problem.n, kVectors); }
};

template <bool kVectors, class E>
bool RunSmallEigh(cudaStream_t stream, int64_t batch, const EighProblem<E>& problem) {
  using V = RealElement<E>;
  using Work = small::EigenWork<E, V>;
  const int64_t n = problem.n;
  // The iteration wants a last row. Eigenvalues alone have the same cut-off, and the same bits.
  if (n == 0 || Work::Size(n, true) * static_cast<int64_t>(sizeof(V)) > kAloneEighBytes) {
    return false;
  }
  Slice slice(sizeof(V));
  const Place<V> work = slice.Take<V>(Work::Size(n, kVectors));
  const SmallEigh<E, kVectors> job{.problem = problem,
                                   .work = work,
                                   .matrix = {n * n, {work.offset}},
                                   .values = {n, work},
                                   .info = {1, slice.Take<V>(1)}};
  LaunchAlone(stream, job, batch, slice);
  return true;
}

template <class E, bool kVectors>
struct TeamEigh {
  static constexpr int kMostThreads = kBlockThreads;
  EighProblem<E> problem;
  Place<E> matrix, vectors;
  Place<Rotation<E>> rotations;
  Place<int32_t> order;
  int ld;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = problem.n;
    const team::EighWork<E> work{.a = matrix.In(slice),
                                 .ld = ld,
                                 .v = vectors.In(slice),
                                 .rotations = rotations.In(slice),
                                 .order = order.In(slice)};
    LoadMatrix(team, problem.a + i * n * n, n, n, work.a, ld);
    const auto v =
        team::EigenHermitian<kVectors>(team, n, problem.part, work, problem.values + i * n);
    if constexpr (kVectors) StoreMatrix(team, n, n, problem.vectors + i * n * n, v);
    StoreInfo(team, v.info, problem.info + i);
  }
};

// The Hermitian part with both triangles.
template <class E>
struct CopyHermitian {
  EighProblem<E> problem;
  E* target;

  __device__ void operator()(int64_t place) const {
    const int64_t n = problem.n, matrix = place / (n * n), i = place / n % n, j = place % n;
    const E* const a = problem.a + matrix * n * n;
    const E x =
        problem.part.At(i, j, [=](int64_t k, int64_t l) { return LoadGlobal(a + k * n + l); });
    // To the vendor, (j, i) of a column-major matrix: the operand's conjugate would be read there.
    StoreGlobal<E>(x, target + matrix * n * n + j * n + i);
  }
};

// In place scaled; the identity in place of what is not finite.
template <class E>
struct ScaleInPlace {
  FindScales<E> problem;
  int64_t n;
  E* a;

  __device__ void operator()(int64_t place) const {
    using V = RealElement<E>;
    const int64_t matrix = place / problem.size, i = place / n % n, j = place % n;
    StoreGlobal<E>(problem.info[matrix] != 0 ? FromReal<E>(V(i == j))
                                             : problem.scales[matrix] * LoadGlobal(a + place),
                   a + place);
  }
};

template <class T>
void VendorEigh(cudaStream_t stream, Scratch& scratch, int64_t batch,
                const EighProblem<Element<T>>& problem) {
  using E = Element<T>;
  const int64_t n = problem.n, size = n * n;
  T* const a = scratch.Take<T>(batch * size);
  E* const elements = AsElements(a);
  ForEach(stream, batch * size, CopyHermitian<E>{problem, elements});
  const auto scales =
      MeasureBatch(stream, scratch, batch, size, static_cast<const E*>(elements), problem.info);
  ForEach(stream, batch * size, ScaleInPlace<E>{scales, n, elements});
  const LentSolver lent(stream);
  const auto job = problem.vectors != nullptr ? vendor::kVectors : vendor::kNoVectors;
  using Syev = vendor::Syev<T, Real<T>>;
  const int64_t piece = std::min(batch, Syev::MostBatch(n));
  const Syev syev(lent.get().solver, lent.get().parameters, job, vendor::kUpper, n, piece, a,
                  problem.values);
  Workspace work(stream, scratch, syev);
  int32_t* const vendors_info = scratch.Take<int32_t>(batch);
  for (int64_t i = 0; i < batch; i += piece) {
    syev.Run(a + i * size, problem.values + i * n, std::min(piece, batch - i), work.device(),
             work.host(), vendors_info + i);
    work.Release();
  }
  ForEach(stream, batch, MergeInfo{problem.info, vendors_info});
  ForEach(stream, batch * n, ScaleBack<Real<T>>{problem.values, n, scales.inverses, problem.info});
  if (problem.vectors != nullptr) {
    Transpose(stream, batch, n, n, static_cast<const T*>(a), size,
              reinterpret_cast<T*>(problem.vectors), size);
    ForEach(stream, batch * size, FillFailed<E>{problem.vectors, size, problem.info});
  }
}

template <bool kVectors, class E>
bool RunTeamEigh(cudaStream_t stream, int64_t batch, const EighProblem<E>& problem) {
  if (problem.n > kTeamEigh) return false;
  Slice slice(sizeof(RealElement<E>));
  const int ld = problem.n | 1;
  const TeamEigh<E, kVectors> job{.problem = problem,
                                  .matrix = slice.Take<E>(problem.n * ld),
                                  .vectors = slice.Take<E>(kVectors ? problem.n * ld : 0),
                                  .rotations = slice.Take<Rotation<E>>(team::PairsOf(problem.n)),
                                  .order = slice.Take<int32_t>(problem.n),
                                  .ld = ld};
  if (slice.bytes() > SharedBytes()) return false;
  LaunchTeams(stream, job, batch, TeamSize(problem.n), slice);
  return true;
}

template <bool kVectors, class E>
bool RunOwnEigh(cudaStream_t stream, int64_t batch, const EighProblem<E>& problem) {
  return RunSmallEigh<kVectors>(stream, batch, problem) ||
         RunTeamEigh<kVectors>(stream, batch, problem);
}

void Eigh(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
          ffi::Result<ffi::AnyBuffer> values, ffi::Result<ffi::AnyBuffer> vectors,
          ffi::Result<ffi::AnyBuffer> info, bool lower, bool symmetrize) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    T* const vectors_data = Elements<T>(vectors, batch * n * n, "the eigenvectors");
    SolveEigh<T>(stream, allocator, batch,
                 {.n = ToInt(n),
                  .part = {lower, symmetrize},
                  .a = AsElements(Elements<T>(a, batch * n * n, "a")),
                  .vectors = AsElements(vectors_data),
                  .values = Elements<Real<T>>(values, batch * n, "the eigenvalues"),
                  .info = Elements<int32_t>(info, batch, "info")});
  });
}

void Eigvalsh(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
              ffi::Result<ffi::AnyBuffer> values, ffi::Result<ffi::AnyBuffer> info, bool lower,
              bool symmetrize) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    SolveEigh<T>(stream, allocator, batch,
                 {.n = ToInt(n),
                  .part = {lower, symmetrize},
                  .a = AsElements(Elements<T>(a, batch * n * n, "a")),
                  .vectors = nullptr,
                  .values = Elements<Real<T>>(values, batch * n, "the eigenvalues"),
                  .info = Elements<int32_t>(info, batch, "info")});
  });
}

}  // namespace

template <class T>
void SolveEigh(cudaStream_t stream, ffi::ScratchAllocator& allocator, int64_t batch,
               const EighProblem<Element<T>>& problem) {
  if (batch == 0) return;
  if (problem.vectors != nullptr ? RunOwnEigh<true>(stream, batch, problem)
                                 : RunOwnEigh<false>(stream, batch, problem)) {
    return;
  }
  Scratch scratch(allocator);
  VendorEigh<T>(stream, scratch, batch, problem);
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
