// Derivatives of eigenvalues and eigenvectors of Hermitian matrices, which are called for small
// matrices alone: three products each, by a team of threads in shared memory. A thread would work
// in three matrices of its own.
#include "kernels/cuda/launch.h"
#include "kernels/handlers.h"
#include "kernels/team/eigh_derivative.h"

namespace linalg::cuda {
namespace {

template <class E>
struct EighDerivativeProblem {
  using V = RealElement<E>;
  int n;
  HermitianPart part;
  const V* w;
  const E* v;
  // Operands: dA alone, or the cotangents of w and V.
  const V* dw = nullptr;
  const E* x;
  // Results: those of w and V, or A's cotangent alone.
  V* y_w = nullptr;
  E* y;
};

template <class E, bool kBackward>
struct EighDerivative {
  static constexpr int kMostThreads = kBlockThreads;
  using V = RealElement<E>;
  EighDerivativeProblem<E> problem;
  Place<E> vectors, x, y;
  Place<V> values, changes;
  int ld;

  EighDerivative(Slice& slice, const EighDerivativeProblem<E>& problem)
      : problem(problem),
        vectors(slice.Take<E>(int64_t{problem.n} * (problem.n | 1))),
        x(slice.Take<E>(int64_t{problem.n} * (problem.n | 1))),
        y(slice.Take<E>(int64_t{problem.n} * (problem.n | 1))),
        values(slice.Take<V>(problem.n)),
        changes(slice.Take<V>(problem.n)),
        ld(problem.n | 1) {}

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = problem.n;
    const int64_t first = i * n, size = first * n;
    E* const v = vectors.In(slice);
    V* const dw = changes.In(slice);
    const team::EighDerivativeWork<E> work{
        .w = values.In(slice), .v = v, .x = x.In(slice), .y = y.In(slice), .ld = ld};
    LoadArray(team, n, problem.w + first, values.In(slice));
    LoadMatrix(team, problem.v + size, n, n, v, ld);
    LoadMatrix(team, problem.x + size, n, n, work.x, ld);
    if constexpr (kBackward) {
      LoadArray(team, n, problem.dw + first, dw);
      const auto made = team::EighVjp(team, n, work, problem.part, dw);
      StoreMatrix(team, n, n, problem.y + size, made);
    } else {
      team::EighJvp(team, n, work, problem.part, [=](int k, V change) { dw[k] = change; });
      StoreArray(team, n, dw, problem.y_w + first);
      StoreMatrix(team, n, n, problem.y + size,
                  [=](int row, int col) { return work.y[row * work.ld + col]; });
    }
  }
};

template <bool kBackward, class E>
void Differentiate(cudaStream_t stream, int64_t batch, const EighDerivativeProblem<E>& problem) {
  Slice slice(sizeof(RealElement<E>));
  const EighDerivative<E, kBackward> job(slice, problem);
  LaunchTeams(stream, job, batch, TeamSize(problem.n), slice);
}

// What both derivatives read, `x` being n by n.
template <class T>
EighDerivativeProblem<Element<T>> ReadDerivative(const BatchShape& shape, const ffi::AnyBuffer& w,
                                                 const ffi::AnyBuffer& v, const ffi::AnyBuffer& x,
                                                 Result& y, HermitianPart part) {
  const int64_t batch = shape.batch, n = shape.rows;
  const auto given = [&](const ffi::AnyBuffer& buffer, std::string_view name) {
    const T* const data = Elements<T>(buffer, batch, {n, n}, name);
    return AsElements(data);
  };
  return {.n = ToInt(n),
          .part = part,
          .w = Elements<Real<T>>(w, batch, {n}, "the eigenvalues"),
          .v = given(v, "the eigenvectors"),
          .x = given(x, "the derivative"),
          .y = AsElements(Elements<T>(y, batch, {n, n}, "the result"))};
}

void EighJvp(cudaStream_t stream, ffi::AnyBuffer w, ffi::AnyBuffer v, ffi::AnyBuffer da, Result dw,
             Result dv, bool lower, bool symmetrize) {
  const BatchShape shape = SplitSquareBatch(v, "the eigenvectors");
  DispatchDtype(v.element_type(), [&]<class T>(std::type_identity<T>) {
    auto problem =
        ReadDerivative<T>(shape, w, v, da, dv, {.lower = lower, .symmetrize = symmetrize});
    problem.y_w = Elements<Real<T>>(dw, shape.batch, {shape.rows}, "dw");
    Differentiate<false>(stream, shape.batch, problem);
  });
}

void EighVjp(cudaStream_t stream, ffi::AnyBuffer w, ffi::AnyBuffer v, ffi::AnyBuffer w_ct,
             ffi::AnyBuffer v_ct, Result a_ct, bool lower, bool symmetrize) {
  const BatchShape shape = SplitSquareBatch(v, "the eigenvectors");
  DispatchDtype(v.element_type(), [&]<class T>(std::type_identity<T>) {
    auto problem =
        ReadDerivative<T>(shape, w, v, v_ct, a_ct, {.lower = lower, .symmetrize = symmetrize});
    problem.dw =
        Elements<Real<T>>(w_ct, shape.batch, {shape.rows}, "the cotangent of the eigenvalues");
    Differentiate<true>(stream, shape.batch, problem);
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_eigh_jvp, linalg::cuda::EighJvp, LINALG_CAPTURED);
LINALG_HANDLER(linalg_eigh_vjp, linalg::cuda::EighVjp, LINALG_CAPTURED);
