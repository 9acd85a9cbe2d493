// Eigenvalues of Hermitian tridiagonal matrices, without vectors: bisection, an eigenvalue per
// thread. Neighbouring threads read the same element of the same matrix at a time. Memory is
// proportional to n, and the n² divisions per step are spread over n threads. A matrix that holds
// NaN or Inf gets NaN and info = -1.
#include "kernels/small/bisection.h"

#include "kernels/cuda/launch.h"
#include "kernels/handlers.h"
#include "kernels/team/scale.h"

namespace linalg::cuda {
namespace {

// Scales a matrix by a power of two, and makes real numbers of the elements beside its diagonal.
template <class E>
struct PrepareSturm {
  static constexpr int kMostThreads = kBlockThreads;
  using V = small::RealElement<E>;
  int64_t n;
  const V* diagonal;
  const E* above;
  small::SturmRow<V>* rows;
  V* inverses;  // of the scales
  int32_t* info;

  __device__ void Run(const Team& team, int64_t matrix, char*) const {
    const V* const d = diagonal + matrix * n;
    const E* const e = above + matrix * (n - 1);
    const V largest_d = team::LargestPart<V>(team, n, [&](int64_t i) { return d[i]; });
    const V largest_e =
        team::LargestPart<V>(team, n - 1, [&](int64_t i) { return LoadGlobal(e + i); });
    const V largest = largest_d > largest_e ? largest_d : largest_e;
    V inverse;
    const V scale = team::PowerOfTwoScale(largest, inverse);
    team.Phase([&](int thread) {
      for (int64_t i = thread; i < n; i += team.size()) {
        const E before = i == 0 ? E{} : scale * LoadGlobal(e + i - 1);
        rows[matrix * n + i] = {scale * d[i], small::NormAdd(before, V(0))};
      }
      if (thread != 0) return;
      inverses[matrix] = inverse;
      info[matrix] = largest <= std::numeric_limits<V>::max() ? 0 : -1;
    });
  }
};

template <class E>
struct FindEigenvalue {
  PrepareSturm<E> of;
  small::RealElement<E>* values;

  __device__ void operator()(int64_t place) const {
    using V = small::RealElement<E>;
    const int64_t n = of.n, matrix = place / n;
    values[place] =
        of.info[matrix] != 0
            ? NaN<V>()
            : of.inverses[matrix] * small::BisectEigenvalue(n, of.rows + matrix * n, place % n);
  }
};

ffi::Error EigvalshTridiagonal(cudaStream_t stream, ffi::ScratchAllocator allocator,
                               ffi::AnyBuffer diagonal, ffi::AnyBuffer above,
                               ffi::Result<ffi::AnyBuffer> values,
                               ffi::Result<ffi::AnyBuffer> info) {
  return Guard("linalg_eigvalsh_tridiagonal", [&] {
    const TridiagonalShape shape = SplitTridiagonalBatch(diagonal, above);
    const int64_t batch = shape.batch, n = shape.n;
    DispatchDtype(above.element_type(), [&]<class T>(std::type_identity<T>) {
      using V = Real<T>;
      Scratch scratch(allocator);
      const PrepareSturm<Element<T>> job{n,
                                         Elements<V>(diagonal, batch * n, "d"),
                                         AsElements(Elements<T>(above, batch * shape.beside, "e")),
                                         scratch.Take<small::SturmRow<V>>(batch * n),
                                         scratch.Take<V>(batch),
                                         Elements<int32_t>(info, batch, "info")};
      LaunchTeams(stream, job, batch, TeamSize(n), Slice(sizeof(V)));
      ForEach(stream, batch * n,
              FindEigenvalue<Element<T>>{job, Elements<V>(values, batch * n, "the eigenvalues")});
    });
  });
}

}  // namespace
}  // namespace linalg::cuda

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_eigvalsh_tridiagonal, linalg::cuda::EigvalshTridiagonal,
                              (linalg::Signature<2, 2, linalg::ffi::PlatformStream<cudaStream_t>,
                                                 linalg::ffi::ScratchAllocator>()));
