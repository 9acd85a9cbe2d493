// Schur factors, A = Z T Zᴴ: T upper triangular, or quasi-triangular where A is real.
//
// One matrix per team of threads, in shared memory where it fits with Z, else in global memory, a
// block each. cuSOLVER has no such routine. A matrix that holds NaN or Inf, or whose iteration does
// not end, gets NaN; info is -1, or LAPACK's.
#include "kernels/cuda/schur_work.h"

#include "kernels/handlers.h"

namespace linalg::cuda {
namespace {

template <class E>
struct TeamSchur {
  static constexpr int kMostThreads = kGlobalThreads;
  int n;
  const E* a;
  E* form;
  E* vectors;
  int32_t* info_out;
  SchurPlaces places;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    using V = RealElement<E>;
    const team::SchurWork<E> work = SchurWorkAt<E>(slice, places);
    const int64_t size = static_cast<int64_t>(n) * n;
    LoadMatrix(team, a + i * size, n, n, work.Operand(), work.ld);
    V unscale = V(1);
    const int info = team::Schur<true>(team, n, work, team::Balanced<V>{}, unscale);
    const auto store = [&](E* target, V factor, const E* source) {
      StoreMatrix(team, n, n, target + i * size, [&](int row, int col) {
        return info != 0 ? NaN<E>() : factor * source[row * work.ld + col];
      });
    };
    store(form, unscale, work.t);
    store(vectors, V(1), work.z);
    team.Phase([&](int thread) {
      if (thread == 0) info_out[i] = info;
    });
  }
};

ffi::Error Schur(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
                 ffi::Result<ffi::AnyBuffer> form, ffi::Result<ffi::AnyBuffer> vectors,
                 ffi::Result<ffi::AnyBuffer> info) {
  return Guard("linalg_schur", [&] {
    const BatchShape shape = SplitSquareBatch(a, "a");
    const int64_t batch = shape.batch, size = shape.size();
    const int n = ToInt(shape.rows);
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      using E = Element<T>;
      T* const form_data = Elements<T>(form, batch * size, "the Schur form");
      T* const vectors_data = Elements<T>(vectors, batch * size, "the Schur vectors");
      Slice slice(sizeof(RealElement<E>));
      const SchurPlaces places = TakeSchurWork<E>(slice, n, LargeTeamSize(n), true);
      const TeamSchur<E> job{n,
                             AsElements(Elements<T>(a, batch * size, "a")),
                             AsElements(form_data),
                             AsElements(vectors_data),
                             Elements<int32_t>(info, batch, "info"),
                             places};
      Scratch scratch(allocator);
      LaunchTeamsAnywhere(stream, scratch, job, batch, LargeTeamSize(n), slice);
    });
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_schur, linalg::cuda::Schur);
