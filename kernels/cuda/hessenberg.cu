// Hessenberg form, A = Q H Qᴴ, with a real subdiagonal.
//
// A team of threads per matrix works in shared memory where it fits, row-major. A larger matrix
// takes a block in global memory. cuSOLVER has no such routine. Nothing is iterated, so NaN and Inf
// pass through.
#include "kernels/team/hessenberg.h"

#include "kernels/cuda/launch.h"
#include "kernels/handlers.h"

namespace linalg::cuda {
namespace {

template <class E>
struct HessenbergProblem {
  int n;
  const E* a;
  E* h;
  E* q;  // or null, if it is not wanted
};

template <class E>
struct TeamHessenberg {
  static constexpr int kMostThreads = kGlobalThreads;
  HessenbergProblem<E> problem;
  Offset<E> matrix, taus, partial;
  int ld;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = problem.n;
    const int64_t offset = i * n * n;
    E* const a = matrix.In(slice);
    LoadMatrix(team, problem.a + offset, n, n, a, ld);
    team::Hessenberg(team, n, a, ld, taus.In(slice), partial.In(slice));
    StoreMatrix(team, n, n, problem.h + offset, team::HessenbergForm<E>{a, ld});
    if (problem.q == nullptr) return;
    team::HessenbergVectors(team, n, a, ld, taus.In(slice), partial.In(slice));
    StoreMatrix(team, n, n, problem.q + offset, team::HessenbergBasis<E>{a, ld});
  }
};

template <class E>
void RunHessenberg(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
                   const HessenbergProblem<E>& problem) {
  if (batch == 0) return;
  const int n = problem.n, team_size = LargeTeamSize(n);
  const int64_t ld = n | 1;
  ToInt(n * ld);  // a team counts elements in 32 bits
  SharedLayout layout(sizeof(RealElement<E>));
  const TeamHessenberg<E> job{.problem = problem,
                              .matrix = layout.Take<E>(n * ld),
                              .taus = layout.Take<E>(n),
                              .partial = layout.Take<E>(team_size),
                              .ld = ToInt(ld)};
  LaunchTeamsAnywhere(stream, scratch, job, batch, team_size, layout);
}

// `q` is null where a handler has no such result.
void ReduceBatch(cudaStream_t stream, DeviceScratch& scratch, ffi::AnyBuffer a, Result& h,
                 Result* q) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    T* const h_data = Elements<T>(h, batch, {n, n}, "h");
    T* const q_data = q != nullptr ? Elements<T>(*q, batch, {n, n}, "q") : nullptr;
    RunHessenberg<Element<T>>(stream, scratch, batch,
                              {.n = ToInt(n),
                               .a = AsElements(Elements<T>(a, batch, {n, n}, "a")),
                               .h = AsElements(h_data),
                               .q = AsElements(q_data)});
  });
}

void Hessenberg(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result h, Result q) {
  ReduceBatch(stream, scratch, a, h, &q);
}

void HessenbergH(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result h) {
  ReduceBatch(stream, scratch, a, h, nullptr);
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER_AND_CAPTURED(linalg_hessenberg, linalg::cuda::Hessenberg);
LINALG_HANDLER_AND_CAPTURED(linalg_hessenberg_h, linalg::cuda::HessenbergH);
