// QR by Householder reflectors, plain and column-pivoted, and the product of given reflectors.
//
// One thread per matrix works in shared memory up to kThreadQrBytes, without column pivoting. A
// team per matrix works in shared memory up to kTeamQrBytes, which holds 512 by 32 too. It is
// row-major throughout: R leaves before Q takes its place. A block per matrix does the same in
// global memory for larger matrices of a large batch. All larger ones with column pivoting go there
// too, because cuSOLVER lacks that. The others take cuSOLVER's geqrf and orgqr, one column-major
// copy after another.
#include "kernels/team/qr.h"

#include "kernels/arithmetic/reflector.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/passes.h"
#include "kernels/cuda/qr_path.h"
#include "kernels/cuda/qr_problem.h"
#include "kernels/handlers.h"
#include "kernels/qr_shape.h"
#include "kernels/small/qr.h"
#include "kernels/small/qr_derivative.h"

namespace linalg::cuda {
namespace {

// The reflectors' vectors are held as LAPACK packs them, column-major, with R beside them. So Q can
// take the place of the matrix before R is stored.
template <class E>
struct SmallQr {
  QrProblem<E> problem;
  SharedArray<E> matrix, scales, r, q;
  Divider by_cols;

  __device__ void Load(const Block& block) const {
    matrix.Load(problem.a, block);
    if (problem.factored) scales.Load(problem.taus_in, block);
  }
  __device__ void Run(char* slice) const {
    const int m = problem.m, n = problem.n;
    E* const a = matrix.In(slice);
    E* const packed = r.In(slice);
    const small::QrWork<E> work{.a = a,
                                .ld = n,
                                .vectors = packed,
                                .taus = scales.In(slice),
                                .q = a,
                                .ldq = problem.q_cols};
    small::Qr<E>(m, n, problem.count, problem.factored, problem.q_cols, work, [&] {
      if (problem.r_rows == 0) return;
      for (int i = 0; i < problem.count; ++i) {
        for (int j = i; j < n; ++j) packed[j * m + i] = a[i * n + j];
      }
    });
  }
  __device__ void Store(const Block& block) const {
    r.Store(problem.r, block, [&](char* slice, unsigned place) {
      const unsigned i = by_cols(place), j = place - i * problem.n;
      return problem.RAt(i, j, [&](int i, int j) { return r.In(slice)[j * problem.m + i]; });
    });
    if (problem.packed) scales.Store(problem.taus, block);
    q.Store(problem.q, block);
  }
};

template <class E>
void RunSmallQr(cudaStream_t stream, const QrProblem<E>& problem) {
  const int64_t m = problem.m, n = problem.n, r_size = problem.r_rows * n,
                q_size = m * problem.q_cols;
  SharedLayout layout(sizeof(RealElement<E>));
  const Offset<E> matrix = layout.Take<E>(m * problem.Columns()), packed = layout.Take<E>(m * n);
  const SmallQr<E> job{.problem = problem,
                       .matrix = {m * n, matrix},
                       .scales = {problem.count, layout.Take<E>(problem.count)},
                       .r = {r_size, packed},
                       .q = {q_size, matrix},
                       .by_cols = Divider(n)};
  LaunchThreads(stream, job, problem.batch, layout);
}

template <class E>
struct TeamQr {
  static constexpr int kMostThreads = kGlobalThreads;
  using V = RealElement<E>;
  QrProblem<E> problem;
  Offset<E> matrix, taus, partial;
  Offset<V> norms, squares;
  int ld;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int m = problem.m, n = problem.n, count = problem.count;
    const team::QrWork<E> work{.taus = taus.In(slice),
                               .partial = partial.In(slice),
                               .norms = norms.In(slice),
                               .squares = squares.In(slice)};
    E* const a = matrix.In(slice);
    LoadMatrix(team, problem.a + static_cast<int64_t>(m) * n * i, m, n, a, ld);
    if (problem.factored) {
      LoadArray(team, count, problem.taus_in + i * count, work.taus);
    }
    const auto take = [&] {
      if (problem.r_rows > 0) {
        const auto factors = [&](int row, int col) { return a[row * ld + col]; };
        StoreMatrix(team, problem.r_rows, n,
                    problem.r + static_cast<int64_t>(problem.r_rows) * n * i,
                    [&](int row, int col) { return problem.RAt(row, col, factors); });
      }
      if (problem.packed) StoreArray(team, count, work.taus, problem.taus + i * count);
    };
    team::Qr(team, m, n, count, problem.factored, problem.pivoted ? problem.order + i * n : nullptr,
             problem.q_cols, a, ld, work, take);
    if (problem.q_cols > 0) {
      StoreMatrix(team, m, problem.q_cols, problem.q + static_cast<int64_t>(m) * problem.q_cols * i,
                  [&](int row, int col) { return a[row * ld + col]; });
    }
  }
};

template <class E>
void RunTeamQr(cudaStream_t stream, DeviceScratch& scratch, const QrProblem<E>& problem,
               int team_size, int64_t ld) {
  using V = RealElement<E>;
  SharedLayout layout(sizeof(V));
  const TeamQr<E> job{.problem = problem,
                      .matrix = layout.Take<E>(problem.m * ld),
                      .taus = layout.Take<E>(problem.count),
                      .partial = layout.Take<E>(team_size),
                      .norms = layout.Take<V>(problem.pivoted ? problem.n : 0),
                      .squares = layout.Take<V>(problem.pivoted ? team_size : 0),
                      .ld = ToInt(ld)};
  LaunchTeamsAnywhere(stream, scratch, job, problem.batch, team_size, layout);
}

// The first r_rows rows of the upper triangles of column-major m by n matrices, row-major.
template <class E>
struct UpperTriangle {
  const E* a;
  E* r;
  int64_t m, a_size;
  MatrixElements elements;

  __device__ void operator()(int64_t place) const {
    const auto [matrix, i, j] = elements(place);
    const E* const factors = a + matrix * a_size;
    const auto at = [&](int64_t row, int64_t col) { return LoadGlobal(factors + col * m + row); };
    StoreGlobal<E>(WithoutReflectors(i, j, at), r + place);
  }
};

template <class T>
void VendorQr(cudaStream_t stream, DeviceScratch& scratch, const QrProblem<Element<T>>& problem) {
  const int64_t batch = problem.batch;
  const int m = problem.m, n = problem.n, count = problem.count;
  const int64_t input = static_cast<int64_t>(m) * n,
                column_major = static_cast<int64_t>(m) * problem.Columns();
  T* const a = scratch.Take<T>(batch * column_major);
  const auto* const given = reinterpret_cast<const T*>(problem.a);
  auto* const r = reinterpret_cast<T*>(problem.r);
  auto* const q = reinterpret_cast<T*>(problem.q);
  Transpose(stream, batch, m, n, given, input, a, column_major);
  const LentSolver lent(stream);
  const vendor::Solver solver = lent.get().solver;
  int32_t* const info = scratch.Take<int32_t>(1);
  const T* taus = reinterpret_cast<const T*>(problem.taus_in);
  if (!problem.factored) {
    T* const made =
        problem.packed ? reinterpret_cast<T*>(problem.taus) : scratch.Take<T>(batch * count);
    const int work_size = vendor::GeqrfWork(solver, m, n, a, m);
    T* const work = scratch.Take<T>(work_size);
    for (int64_t i = 0; i < batch; ++i) {
      vendor::Geqrf(solver, m, n, a + i * column_major, m, made + i * count, work, work_size, info);
    }
    taus = made;
  }
  if (problem.packed) {
    Transpose(stream, batch, n, m, static_cast<const T*>(a), column_major, r, input);
  } else if (problem.r_rows > 0) {
    // Only the first r_rows of the m rows are requested.
    const int64_t r_size = static_cast<int64_t>(problem.r_rows) * n;
    ForEach(stream, batch * r_size,
            UpperTriangle<Element<T>>{.a = AsElements(static_cast<const T*>(a)),
                                      .r = problem.r,
                                      .m = m,
                                      .a_size = column_major,
                                      .elements = {problem.r_rows, n}});
  }
  if (problem.q_cols > 0) {
    const int work_size = vendor::OrgqrWork(solver, m, problem.q_cols, count, a, m, taus);
    T* const work = scratch.Take<T>(work_size);
    for (int64_t i = 0; i < batch; ++i) {
      vendor::Orgqr(solver, m, problem.q_cols, count, a + i * column_major, m, taus + i * count,
                    work, work_size, info);
    }
    Transpose(stream, batch, problem.q_cols, m, static_cast<const T*>(a), column_major, q,
              static_cast<int64_t>(m) * problem.q_cols);
  }
}

template <class T>
void RunQr(cudaStream_t stream, DeviceScratch& scratch, const QrProblem<Element<T>>& problem) {
  if (problem.batch == 0) return;
  constexpr int64_t kBytes = sizeof(T);
  const int64_t m = problem.m, ld = problem.Columns() | 1;
  const QrSizes sizes{.m = m,
                      .n = problem.n,
                      .q_cols = problem.q_cols,
                      .count = problem.count,
                      .pivoted = problem.pivoted};
  const auto teams_of = [&](int team_size) { RunTeamQr(stream, scratch, problem, team_size, ld); };
  LaunchOnPath(QrPath(sizes, kBytes, problem.batch, SharedBytes()),
               On{GpuPath::kThread, [&] { RunSmallQr(stream, problem); }},
               On{GpuPath::kTeam,
                  [&] { teams_of(QrTeamSize(m, problem.Columns(), TeamQrBytes(sizes, kBytes))); }},
               On{GpuPath::kBlock, [&] { teams_of(kGlobalThreads); }},
               On{GpuPath::kVendor, [&] { VendorQr<T>(stream, scratch, problem); }});
}

template <class T>
QrProblem<Element<T>> ReadProblem(const QrShape& shape, const ffi::AnyBuffer& a) {
  return {.batch = shape.batch,
          .m = ToInt(shape.m),
          .n = ToInt(shape.n),
          .count = ToInt(shape.count),
          .a = AsElements(Elements<T>(a, shape.batch, {shape.m, shape.n}, "a")),
          .r_rows = ToInt(shape.r_rows),
          .q_cols = ToInt(shape.q_cols)};
}

// Launches for R, and for Q if it is requested.
template <class T>
QrProblem<Element<T>> ReadProblem(const ffi::AnyBuffer& a, Result* q, Result& r) {
  const QrShape shape = ReadQrShape(a, q == nullptr ? nullptr : &**q, *r);
  auto problem = ReadProblem<T>(shape, a);
  if (q != nullptr) {
    problem.q = AsElements(Elements<T>(*q, shape.batch, {shape.m, shape.q_cols}, "q"));
  }
  problem.r = AsElements(Elements<T>(r, shape.batch, {shape.r_rows, shape.n}, "r"));
  return problem;
}

void HouseholderQr(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result packed,
                   Result taus) {
  const QrShape shape = ReadPackedShape(a);
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    auto problem = ReadProblem<T>(shape, a);
    T* const packed_data =
        Elements<T>(packed, shape.batch, {shape.m, shape.n}, "the packed factors");
    problem.packed = true;
    problem.taus = AsElements(Elements<T>(taus, shape.batch, {shape.count}, "taus"));
    problem.r = AsElements(packed_data);
    RunQr<T>(stream, scratch, problem);
  });
}

void HouseholderProduct(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a,
                        ffi::AnyBuffer taus, Result q) {
  const QrShape shape = ReadProductShape(a, taus);
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    auto problem = ReadProblem<T>(shape, a);
    const T* const taus_data = Elements<T>(taus, shape.batch, {shape.count}, "taus");
    problem.factored = true;
    problem.taus_in = AsElements(taus_data);
    problem.q = AsElements(Elements<T>(q, shape.batch, {shape.m, shape.n}, "q"));
    RunQr<T>(stream, scratch, problem);
  });
}

void Qr(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result q, Result r) {
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    RunQr<T>(stream, scratch, ReadProblem<T>(a, &q, r));
  });
}

void QrR(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result r) {
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    RunQr<T>(stream, scratch, ReadProblem<T>(a, nullptr, r));
  });
}

void QrPivoted(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result q, Result r,
               Result order) {
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    auto problem = ReadProblem<T>(a, &q, r);
    problem.pivoted = true;
    problem.order = Elements<int32_t>(order, problem.batch, {problem.n}, "the permutation");
    RunQr<T>(stream, scratch, problem);
  });
}

// The derivatives of A = Q R with Q of the shape of A, along `x`, and backward for the cotangents
// `x` and `x_r`. They are called for small matrices only.
template <class E, bool kBackward>
struct QrDerivative {
  int m, n;
  const E *q, *r, *x, *x_r;
  E *y, *y_r;
  SharedArray<E> matrix, triangle, change, change_r;
  Offset<E> work;

  __device__ void Load(const Block& block) const {
    matrix.Load(q, block);
    triangle.Load(r, block);
    change.Load(x, block);
    if constexpr (kBackward) change_r.Load(x_r, block);
  }
  __device__ void Run(char* slice) const {
    if constexpr (kBackward) {
      small::QrVjp(m, n, matrix.In(slice), triangle.In(slice), change.In(slice), work.In(slice),
                   change_r.In(slice));
    } else {
      small::QrJvp(m, n, matrix.In(slice), triangle.In(slice), change.In(slice), work.In(slice),
                   change_r.In(slice));
    }
  }
  __device__ void Store(const Block& block) const {
    change.Store(y, block);
    if constexpr (!kBackward) change_r.Store(y_r, block);
  }
};

// `shape` is that of the first result y. R's derivative is the operand `x_r`, or the result `y_r`.
template <bool kBackward, class T>
void Differentiate(cudaStream_t stream, const QrShape& shape, const ffi::AnyBuffer& q,
                   const ffi::AnyBuffer& r, const ffi::AnyBuffer& x, const T* x_r, Result& y,
                   T* y_r) {
  using E = Element<T>;
  const int64_t batch = shape.batch, m = shape.m, n = shape.n;
  const int64_t size = m * n, square = n * n;
  const auto given = [&](const ffi::AnyBuffer& buffer, int64_t rows, std::string_view name) {
    const T* const data = Elements<T>(buffer, batch, {rows, n}, name);
    return AsElements(data);
  };
  SharedLayout layout(sizeof(RealElement<E>));
  const QrDerivative<E, kBackward> job{.m = ToInt(m),
                                       .n = ToInt(n),
                                       .q = given(q, m, "q"),
                                       .r = given(r, n, "r"),
                                       .x = given(x, m, "the derivative"),
                                       .x_r = AsElements(x_r),
                                       .y = AsElements(Elements<T>(y, batch, {m, n}, "the result")),
                                       .y_r = AsElements(y_r),
                                       .matrix = {size, layout.Take<E>(size)},
                                       .triangle = {square, layout.Take<E>(square)},
                                       .change = {size, layout.Take<E>(size)},
                                       .change_r = {square, layout.Take<E>(square)},
                                       .work = layout.Take<E>(square)};
  LaunchThreads(stream, job, batch, layout);
}

void QrJvp(cudaStream_t stream, ffi::AnyBuffer q, ffi::AnyBuffer r, ffi::AnyBuffer da, Result dq,
           Result dr) {
  const QrShape shape = ReadDerivativeShape(q);
  DispatchDtype(q.element_type(), [&]<class T>(std::type_identity<T>) {
    T* const made = Elements<T>(dr, shape.batch, {shape.n, shape.n}, "dr");
    Differentiate<false, T>(stream, shape, q, r, da, nullptr, dq, made);
  });
}

void QrVjp(cudaStream_t stream, ffi::AnyBuffer q, ffi::AnyBuffer r, ffi::AnyBuffer q_ct,
           ffi::AnyBuffer r_ct, Result a_ct) {
  const QrShape shape = ReadDerivativeShape(q);
  DispatchDtype(q.element_type(), [&]<class T>(std::type_identity<T>) {
    const T* const given = Elements<T>(r_ct, shape.batch, {shape.n, shape.n}, "the cotangent of r");
    Differentiate<true, T>(stream, shape, q, r, q_ct, given, a_ct, nullptr);
  });
}

}  // namespace

template <class T>
void SolveQr(cudaStream_t stream, DeviceScratch& scratch, const QrProblem<Element<T>>& problem) {
  RunQr<T>(stream, scratch, problem);
}

template void SolveQr<float>(cudaStream_t, DeviceScratch&, const QrProblem<float>&);
template void SolveQr<double>(cudaStream_t, DeviceScratch&, const QrProblem<double>&);
template void SolveQr<std::complex<float>>(cudaStream_t, DeviceScratch&,
                                           const QrProblem<Complex<float>>&);
template void SolveQr<std::complex<double>>(cudaStream_t, DeviceScratch&,
                                            const QrProblem<Complex<double>>&);

}  // namespace linalg::cuda

LINALG_HANDLER_AND_CAPTURED(linalg_householder_qr, linalg::cuda::HouseholderQr);
LINALG_HANDLER_AND_CAPTURED(linalg_householder_product, linalg::cuda::HouseholderProduct);
LINALG_HANDLER_AND_CAPTURED(linalg_qr, linalg::cuda::Qr);
LINALG_HANDLER(linalg_qr_jvp, linalg::cuda::QrJvp, LINALG_CAPTURED);
LINALG_HANDLER(linalg_qr_vjp, linalg::cuda::QrVjp, LINALG_CAPTURED);
LINALG_HANDLER_AND_CAPTURED(linalg_qr_r, linalg::cuda::QrR);
LINALG_HANDLER_AND_CAPTURED(linalg_qr_pivoted, linalg::cuda::QrPivoted);
