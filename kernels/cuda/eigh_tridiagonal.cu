// Eigenvalues and eigenvectors of Hermitian tridiagonal matrices.
//
// Eigenvalues without vectors take bisection, one thread per eigenvalue. Neighbouring threads read
// the same element of the same matrix at a time. Memory is proportional to n, and the n² divisions
// of a step are spread over n threads. If vectors are requested, the matrix is written out in full,
// because cuSOLVER has no routine for tridiagonal ones. A matrix that holds NaN or Inf gets NaN and
// info = -1.
#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/cuda/eigh_problem.h"
#include "kernels/cuda/launch.h"
#include "kernels/handlers.h"
#include "kernels/small/bisection.h"
#include "kernels/systems.h"
#include "kernels/team/largest.h"

namespace linalg::cuda {
namespace {

// Scales a matrix by a power of two, and makes the elements beside its diagonal real.
template <class E>
struct PrepareSturm {
  static constexpr int kMostThreads = kBlockThreads;
  using V = RealElement<E>;
  int64_t n;
  const V* diagonal;
  const E* beside;
  small::SturmRow<V>* rows;
  V* inverses;  // of the scales
  int32_t* info;

  __device__ void Run(const Team& team, int64_t matrix, char*) const {
    const V* const d = diagonal + matrix * n;
    const E* const e = beside + matrix * (n - 1);
    const V largest_d = team::LargestComponent<V>(team, n, [&](int64_t i) { return d[i]; });
    const V largest_e =
        team::LargestComponent<V>(team, n - 1, [&](int64_t i) { return LoadGlobal(e + i); });
    const V largest = largest_d > largest_e ? largest_d : largest_e;
    V inverse;
    const V scale = PowerOfTwoScale(largest, inverse);
    team.Phase([&](int thread) {
      for (int64_t i = thread; i < n; i += team.size()) {
        const E before = i == 0 ? E{} : LoadGlobal(e + i - 1);
        rows[matrix * n + i] = small::ScaledSturmRow(scale, d[i], before);
      }
      if (thread != 0) return;
      inverses[matrix] = inverse;
      info[matrix] = team::IsFinite(largest) ? 0 : kNotFinite;
    });
  }
};

template <class E>
struct FindEigenvalue {
  PrepareSturm<E> prepared;
  RealElement<E>* values;

  __device__ void operator()(int64_t place) const {
    using V = RealElement<E>;
    const int64_t n = prepared.n, matrix = place / n;
    values[place] = prepared.info[matrix] != 0
                        ? NaN<V>()
                        : prepared.inverses[matrix] *
                              small::BisectEigenvalue(n, prepared.rows + matrix * n, place % n);
  }
};

void EigvalshTridiagonal(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer diagonal,
                         ffi::AnyBuffer beside, Result values, Result info) {
  const TridiagonalShape shape = SplitTridiagonalBatch(diagonal, beside);
  const int64_t batch = shape.batch, n = shape.n;
  DispatchDtype(beside.element_type(), [&]<class T>(std::type_identity<T>) {
    using V = Real<T>;
    const PrepareSturm<Element<T>> job{
        .n = n,
        .diagonal = Elements<V>(diagonal, batch, {n}, "d"),
        .beside = AsElements(Elements<T>(beside, batch, {shape.beside}, "e")),
        .rows = scratch.Take<small::SturmRow<V>>(batch * n),
        .inverses = scratch.Take<V>(batch),
        .info = Elements<int32_t>(info, batch, {}, "info")};
    LaunchTeams(stream, job, batch, TeamSize(n), SharedLayout(sizeof(V)));
    ForEach(stream, batch * n,
            FindEigenvalue<Element<T>>{
                .prepared = job, .values = Elements<V>(values, batch, {n}, "the eigenvalues")});
  });
}

// Writes the diagonal and the upper triangle of Hermitian tridiagonal matrices.
template <class E>
struct WriteTridiagonal {
  int64_t n;
  MatrixElements elements;
  const RealElement<E>* diagonal;
  const E* beside;
  E* a;

  __device__ void operator()(int64_t place) const {
    const auto [matrix, i, j] = elements(place);
    E x{};
    if (i == j) x = FromReal<E>(diagonal[matrix * n + i]);
    if (i + 1 == j) x = LoadGlobal(beside + matrix * (n - 1) + i);
    StoreGlobal<E>(x, a + place);
  }
};

void EighTridiagonal(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer diagonal,
                     ffi::AnyBuffer beside, Result values, Result vectors, Result info) {
  const TridiagonalShape shape = SplitTridiagonalBatch(diagonal, beside);
  const int64_t batch = shape.batch, n = shape.n;
  DispatchDtype(beside.element_type(), [&]<class T>(std::type_identity<T>) {
    using E = Element<T>;
    T* const vectors_data = Elements<T>(vectors, batch, {n, n}, "the eigenvectors");
    E* const a = AsElements(scratch.Take<T>(batch * n * n));
    ForEach(
        stream, batch * n * n,
        WriteTridiagonal<E>{.n = n,
                            .elements = {n, n},
                            .diagonal = Elements<Real<T>>(diagonal, batch, {n}, "d"),
                            .beside = AsElements(Elements<T>(beside, batch, {shape.beside}, "e")),
                            .a = a});
    SolveEigh<T>(stream, scratch, batch,
                 {.n = ToInt(n),
                  .part = {.lower = false, .symmetrize = false},
                  .a = a,
                  .vectors = AsElements(vectors_data),
                  .values = Elements<Real<T>>(values, batch, {n}, "the eigenvalues"),
                  .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_eigvalsh_tridiagonal, linalg::cuda::EigvalshTridiagonal);
LINALG_HANDLER(linalg_eigh_tridiagonal, linalg::cuda::EighTridiagonal);
