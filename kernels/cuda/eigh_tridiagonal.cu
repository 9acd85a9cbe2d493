// Eigenvalues and eigenvectors of Hermitian tridiagonal matrices.
//
// Eigenvalues without vectors take bisection, one thread per eigenvalue. Neighbouring threads read
// the same element of the same matrix at a time. Memory is proportional to n, and the n² divisions
// of a step are spread over n threads. If vectors are requested, the matrix is written out in full,
// because cuSOLVER has no routine for tridiagonal ones. A matrix that holds NaN or Inf gets NaN and
// info = -1.
#include "kernels/cuda/eigh_problem.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sturm.h"
#include "kernels/handlers.h"
#include "kernels/systems.h"

namespace linalg::cuda {
namespace {

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
