// Hessenberg form, A = Q H Qᴴ, with a real subdiagonal.
//
// One matrix per team of threads, row-major, in shared memory where it fits; a larger one per block
// in global memory. cuSOLVER has no such routine. Nothing is iterated: NaN and Inf pass through.
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
  HessenbergProblem<E> of;
  int ld, matrix, taus, partial;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    using V = RealElement<E>;
    const int n = of.n;
    const int64_t size = static_cast<int64_t>(n) * n;
    E* const a = At<E>(slice, matrix);
    LoadMatrix(team, of.a + i * size, n, n, a, ld);
    team::Hessenberg(team, n, a, ld, At<E>(slice, taus), At<E>(slice, partial));
    StoreMatrix(team, n, n, of.h + i * size,
                [&](int row, int col) { return row > col + 1 ? E{} : a[row * ld + col]; });
    if (of.q == nullptr) return;
    team::HessenbergVectors(team, n, a, ld, At<E>(slice, taus), At<E>(slice, partial));
    StoreMatrix(team, n, n, of.q + i * size, [&](int row, int col) {
      return row == 0 || col == 0 ? FromReal<E>(V(row == col)) : a[row * ld + col - 1];
    });
  }
};

template <class E>
void RunHessenberg(cudaStream_t stream, ffi::ScratchAllocator& allocator, int64_t batch,
                   const HessenbergProblem<E>& of) {
  const int64_t ld = of.n | 1;
  Slice slice(sizeof(RealElement<E>));
  TeamHessenberg<E> job{of, static_cast<int>(ld), 0, 0, 0};
  job.matrix = slice.Take<E>(of.n * ld);
  job.taus = slice.Take<E>(of.n);
  job.partial = slice.Take<E>(LargeTeamSize(of.n));
  Scratch scratch(allocator);
  LaunchTeamsAnywhere(stream, scratch, job, batch, LargeTeamSize(of.n), slice);
}

ffi::Error Hessenberg(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
                      ffi::Result<ffi::AnyBuffer> h, ffi::Result<ffi::AnyBuffer> q) {
  return Guard("linalg_hessenberg", [&] {
    const BatchShape shape = SplitSquareBatch(a, "a");
    const int64_t batch = shape.batch, n = shape.rows;
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      T* const h_data = Elements<T>(h, batch * n * n, "h");
      T* const q_data = Elements<T>(q, batch * n * n, "q");
      RunHessenberg<Element<T>>(stream, allocator, batch,
                                {ToInt(n), AsElements(Elements<T>(a, batch * n * n, "a")),
                                 AsElements(h_data), AsElements(q_data)});
    });
  });
}

ffi::Error HessenbergH(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
                       ffi::Result<ffi::AnyBuffer> h) {
  return Guard("linalg_hessenberg_h", [&] {
    const BatchShape shape = SplitSquareBatch(a, "a");
    const int64_t batch = shape.batch, n = shape.rows;
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      T* const h_data = Elements<T>(h, batch * n * n, "h");
      RunHessenberg<Element<T>>(
          stream, allocator, batch,
          {ToInt(n), AsElements(Elements<T>(a, batch * n * n, "a")), AsElements(h_data), nullptr});
    });
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_hessenberg, linalg::cuda::Hessenberg);
LINALG_HANDLER(linalg_hessenberg_h, linalg::cuda::HessenbergH);
