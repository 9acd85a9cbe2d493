// Schur factors, A = Z T Zᴴ. T is upper triangular, or quasi-triangular where A is real.
//
// A team of threads per matrix works in shared memory if the matrix and Z fit. Otherwise a block
// works in global memory, with many shifts at a time for complex matrices. cuSOLVER has no such
// routine. A matrix that holds NaN or Inf, or whose iteration does not end, gets NaN; info is -1,
// or LAPACK's.
#include "kernels/cuda/schur_work.h"

#include "kernels/handlers.h"

namespace linalg::cuda {
namespace {

// Matrices are n by n.
template <class E>
struct SchurProblem {
  int n;
  const E* a;
  E* form;
  E* vectors;
  int32_t* info;
};

template <class E>
struct TeamSchur {
  static constexpr int kMostThreads = kGlobalThreads;
  SchurProblem<E> problem;
  SchurOffsets<E> offsets;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    RunWith(team, i, slice, team::PlainIteration());
  }

  template <class Iteration>
  __device__ void RunWith(const Team& team, int64_t i, char* slice,
                          const Iteration& iteration) const {
    const int n = problem.n;
    const int64_t offset = i * n * n;
    const team::SchurWork<E> work = offsets.In(slice);
    LoadMatrix(team, problem.a + offset, n, n, work.Input(), work.ld);
    const auto made = team::SchurFactors(team, n, work, iteration);
    StoreMatrix(team, n, n, problem.form + offset, made.form);
    StoreMatrix(team, n, n, problem.vectors + offset, made.vectors);
    StoreInfo(team, made.info, problem.info + i);
  }
};

void Schur(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result form,
           Result vectors, Result info) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch;
  const int n = ToInt(shape.rows);
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    using E = Element<T>;
    T* const form_data = Elements<T>(form, batch, {n, n}, "the Schur form");
    T* const vectors_data = Elements<T>(vectors, batch, {n, n}, "the Schur vectors");
    SharedLayout layout(sizeof(RealElement<E>));
    const SchurProblem<E> problem{.n = n,
                                  .a = AsElements(Elements<T>(a, batch, {n, n}, "a")),
                                  .form = AsElements(form_data),
                                  .vectors = AsElements(vectors_data),
                                  .info = Elements<int32_t>(info, batch, {}, "info")};
    if (batch == 0) return;
    const TeamSchur<E> job{.problem = problem,
                           .offsets = TakeSchurWork<E>(layout, n, LargeTeamSize(n), true)};
    LaunchSchur<E>(stream, scratch, job, batch, n, layout);
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER_AND_CAPTURED(linalg_schur, linalg::cuda::Schur);
