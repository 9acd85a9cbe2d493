// Singular values and vectors.
//
// Jacobi's method takes tiny square matrices by one thread each, and others by a team of threads
// each. Teams work in shared memory or, if there are many matrices, in global memory. A wide matrix
// is factored as its adjoint.
//
// The rest take cuSOLVER, one after another. The routine gesvdj gets the row-major matrix in place,
// which it reads as the transpose: its U, in place, is Vᴴ. Xgesvdp and Xgesvd get at least as many
// rows as columns. A wide matrix in place has that: their U and V are then those of its transpose.
// A matrix that holds NaN or Inf is passed to all as the identity, and gets NaN and info = -1.
#include "kernels/team/svd.h"

#include <limits>
#include <optional>

#include "kernels/cuda/handles.h"
#include "kernels/cuda/iterative.h"
#include "kernels/cuda/svd_path.h"
#include "kernels/cuda/svd_problem.h"
#include "kernels/handlers.h"
#include "kernels/small/jacobi_svd.h"
#include "kernels/small/svd.h"
#include "kernels/svd_shape.h"
#include "kernels/team/svd_derivative.h"

namespace linalg::cuda {
namespace {

template <class E, bool kVectors>
struct SmallSvd {
  using V = RealElement<E>;
  using Work = ThreadSvdWork<E>;
  SvdProblem<E> problem;
  Offset<V> work;         // a Work
  SharedArray<E> matrix;  // at its beginning
  SharedArray<V> values;
  SharedArray<V> info;

  __device__ void Load(const Block& block) const { matrix.Load(problem.a, block); }
  __device__ void Run(char* slice) const {
    *info.In(slice) = small::Svd<kVectors>(WorkIn(slice), problem.n, problem.n, false);
  }
  __device__ void Store(const Block& block) const {
    if constexpr (kVectors) {
      matrix.Store(problem.u, block,
                   [&](char* slice, int place) { return WorkIn(slice).left[place]; });
      matrix.Store(problem.vh, block,
                   [&](char* slice, int place) { return WorkIn(slice).right[place]; });
    }
    values.Store(problem.s, block, [&](char* slice, int place) { return WorkIn(slice).s[place]; });
    info.StoreIntegers(problem.info, block);
  }

 private:
  __device__ Work WorkIn(char* slice) const {
    return Work(work.In(slice), problem.n, problem.n, false);
  }
};

// Matrices are square.
template <bool kVectors, class E>
void RunSmallSvd(cudaStream_t stream, int64_t batch, const SvdProblem<E>& problem) {
  using V = RealElement<E>;
  const int64_t n = problem.n;
  SharedLayout layout(sizeof(V));
  const Offset<V> work =
      layout.Take<V>(small::SizeOf<ThreadSvdWork<E>>(problem.n, problem.n, false));
  const SmallSvd<E, kVectors> job{.problem = problem,
                                  .work = work,
                                  .matrix = {n * n, work.template As<E>()},
                                  .values = {n, work},
                                  .info = {1, layout.Take<V>(1)}};
  LaunchThreads(stream, job, batch, layout);
}

template <class E, bool kVectors>
struct TeamSvd {
  static constexpr int kMostThreads = kGlobalThreads;
  using V = RealElement<E>;
  SvdProblem<E> problem;
  Offset<E> matrix, v;
  Offset<team::ColumnSums<E>> sums;
  Offset<V> values, norms;
  Offset<int32_t> order;
  Offset<E> taus, partial;
  int ld, ldv;

  __device__ void Run(const Team& team, int64_t index, char* slice) const {
    const int m = problem.Longer(), n = problem.Shorter();
    const team::SvdWork<E> work{.a = matrix.In(slice),
                                .ld = ld,
                                .v = v.In(slice),
                                .ldv = ldv,
                                .sums = sums.In(slice),
                                .values = values.In(slice),
                                .norms = norms.In(slice),
                                .order = order.In(slice),
                                .taus = taus.In(slice),
                                .partial = partial.In(slice)};
    Load(team, problem.a + index * m * n, work.a);
    const auto [u, v, info] =
        team::Svd<kVectors>(team, problem.m, problem.n, problem.Width(), work);
    StoreArray(team, n, work.values, problem.s + index * n);
    StoreInfo(team, info, problem.info + index);
    if constexpr (kVectors) {
      StoreMatrix(team, problem.m, problem.u_cols, problem.u + index * problem.LeftSize(), u);
      StoreMatrix(team, problem.vh_rows, problem.n, problem.vh + index * problem.RightSize(),
                  [&, v = v](int i, int j) { return Conj(v(j, i)); });
    }
  }

 private:
  __device__ void Load(const Team& team, const E* source, E* a) const {
    if (problem.Tall()) return LoadMatrix(team, source, problem.m, problem.n, a, ld);
    team.Phase([&](int thread) {
      for (int e = thread; e < problem.m * problem.n; e += team.size()) {
        a[e % problem.n * ld + e / problem.n] = Conj(LoadGlobal(source + e));
      }
    });
  }
};

template <bool kVectors, class E>
void RunTeamSvd(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
                const SvdProblem<E>& problem, int team_size) {
  using V = RealElement<E>;
  const int64_t m = problem.Longer(), n = problem.Shorter(), ldv = n | 1;
  SharedLayout layout(sizeof(V));
  const TeamSvd<E, kVectors> job{.problem = problem,
                                 .matrix = layout.Take<E>(m * problem.Ld()),
                                 .v = layout.Take<E>(kVectors ? n * ldv : 0),
                                 .sums = layout.Take<team::ColumnSums<E>>(team_size),
                                 .values = layout.Take<V>(n),
                                 .norms = layout.Take<V>(n),
                                 .order = layout.Take<int32_t>(n),
                                 .taus = layout.Take<E>(kVectors ? n : 0),
                                 .partial = layout.Take<E>(kVectors ? team_size : 0),
                                 .ld = problem.Ld(),
                                 .ldv = ToInt(ldv)};
  LaunchTeamsAnywhere(stream, scratch, job, batch, team_size, layout);
}

// factor(i, info) for each matrix, scaled, in `matrix`, or for its transpose.
template <class T, class Factor>
void FactorEach(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
                const SvdProblem<Element<T>>& problem, bool transpose, T* matrix, Factor&& factor) {
  using E = Element<T>;
  const auto scales = ForEachScaled(stream, scratch, batch, problem.m, problem.n, problem.a,
                                    transpose, matrix, problem.info, factor);
  const int64_t n = problem.Shorter();
  ForEach(stream, batch * n,
          ScaleBack<Real<T>>{.x = problem.s,
                             .by_count = LongDivider(n),
                             .inverses = scales.inverses,
                             .info = problem.info});
  if (!problem.vectors) return;
  ForEach(stream, batch * problem.LeftSize(),
          FillFailed<E>{
              .x = problem.u, .by_size = LongDivider(problem.LeftSize()), .info = problem.info});
  ForEach(stream, batch * problem.RightSize(),
          FillFailed<E>{
              .x = problem.vh, .by_size = LongDivider(problem.RightSize()), .info = problem.info});
}

// Xgesvd of a scaled matrix in `matrix`, tall and column-major.
template <class T>
class QrSvd {
 public:
  QrSvd(cudaStream_t stream, DeviceScratch& scratch, const SolverHandle& solver,
        const SvdProblem<Element<T>>& problem, T* matrix)
      : stream_(stream),
        problem_(problem),
        copied_(problem.vectors && problem.Tall()),
        matrix_(matrix),
        left_(copied_ ? scratch.Take<T>(problem.LeftSize()) : reinterpret_cast<T*>(problem.vh)),
        right_(copied_ ? scratch.Take<T>(problem.RightSize()) : reinterpret_cast<T*>(problem.u)),
        gesvd_(solver.solver, solver.parameters, problem.Longer(), problem.Shorter(),
               problem.vectors ? problem.Width() : 0, matrix, problem.s, left_, right_),
        work_(stream, scratch, gesvd_) {}

  void operator()(int64_t i, int32_t* info) {
    const int64_t n = problem_.Shorter();
    const bool in_place = problem_.vectors && !copied_;
    gesvd_.Run(matrix_, problem_.s + i * n, left_ + (in_place ? i * problem_.RightSize() : 0),
               right_ + (in_place ? i * problem_.LeftSize() : 0), work_.device(), work_.host(),
               info);
    work_.Release();
    if (!copied_) return;
    const auto write = [&](int64_t rows, int64_t cols, const T* source, Element<T>* target) {
      Transpose(stream_, 1, cols, rows, source, 0, reinterpret_cast<T*>(target), 0);
    };
    write(problem_.Longer(), problem_.Width(), left_, problem_.u + i * problem_.LeftSize());
    write(n, n, right_, problem_.vh + i * problem_.RightSize());
  }

 private:
  cudaStream_t stream_;
  SvdProblem<Element<T>> problem_;
  bool copied_;
  T *matrix_, *left_, *right_;
  vendor::Gesvd<T, Real<T>> gesvd_;
  VendorWorkspace work_;
};

template <class T>
void VendorSvd(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
               const SvdProblem<Element<T>>& problem) {
  T* const matrix = scratch.Take<T>(static_cast<int64_t>(problem.m) * problem.n);
  const LentSolver lent(stream);
  QrSvd<T> factor(stream, scratch, lent.get(), problem, matrix);
  FactorEach<T>(stream, scratch, batch, problem, problem.Tall(), matrix, factor);
}

// The conjugate of a column-major matrix, row-major.
template <class E>
struct WriteConjugate {
  int64_t rows;
  LongDivider by_cols;
  const E* source;
  E* target;

  __device__ void operator()(int64_t place) const {
    const int64_t i = by_cols(place), j = place - i * by_cols.divisor();
    StoreGlobal<E>(Conj(LoadGlobal(source + j * rows + i)), target + place);
  }
};

// The largest perturbation of singular values by Xgesvdp for which its results are taken. Rounding
// errors of the other routines are as large: a scaled matrix has a norm of at least 1.
template <class T>
double AllowedPerturbation(int64_t shorter) {
  return static_cast<double>(shorter) * std::numeric_limits<Real<T>>::epsilon();
}

// Takes Xgesvdp for one matrix after another. A matrix for which it is inaccurate or fails goes to
// Xgesvd.
template <class T>
void VendorPolarSvd(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
                    const SvdProblem<Element<T>>& problem) {
  using E = Element<T>;
  const int64_t m = problem.Longer(), n = problem.Shorter();
  const bool tall = problem.Tall(), in_place = problem.vectors && !tall;
  T* const scaled = scratch.Take<T>(m * n);
  T* const matrix = scratch.Take<T>(m * n);
  T* const v = scratch.Take<T>(n * n);
  // The transpose of a wide matrix has U in the place of Vᴴ, and V in the place of conjugate U.
  auto* const vh = reinterpret_cast<T*>(problem.vh);
  T* const left = in_place ? vh : scratch.Take<T>(problem.vectors ? problem.LeftSize() : m * n);
  const LentSolver lent(stream);
  const vendor::Gesvdp<T, Real<T>> gesvdp(lent.get().solver, lent.get().parameters, m, n,
                                          problem.vectors ? problem.Width() : 0, matrix, problem.s,
                                          left, v);
  VendorWorkspace work(stream, scratch, gesvdp);
  std::optional<QrSvd<T>> qr;
  FactorEach<T>(stream, scratch, batch, problem, tall, scaled, [&](int64_t i, int32_t* info) {
    Copy(stream, m * n, static_cast<const T*>(scaled), matrix);
    double perturbation = std::numeric_limits<double>::infinity();
    gesvdp.Run(matrix, problem.s + i * n, left + (in_place ? i * problem.RightSize() : 0), v,
               work.device(), work.host(), info, &perturbation);
    int32_t found;
    Check(cudaMemcpyAsync(&found, info, sizeof(found), cudaMemcpyDeviceToHost, stream),
          "cudaMemcpyAsync");
    work.Wait();
    // The estimate may be NaN.
    if (found != 0 || !(perturbation <= AllowedPerturbation<T>(n))) {
      if (!qr) qr.emplace(stream, scratch, lent.get(), problem, scaled);
      return (*qr)(i, info);
    }
    if (!problem.vectors) return;
    E* const u = problem.u + i * problem.LeftSize();
    if (tall) {
      Transpose(stream, 1, problem.Width(), m, static_cast<const T*>(left), 0,
                reinterpret_cast<T*>(u), 0);
    }
    // Vᴴ row-major is the conjugate of V column-major, element by element, as of one column.
    ForEach(stream, n * n,
            WriteConjugate<E>{.rows = tall ? n * n : n,
                              .by_cols = LongDivider(tall ? 1 : n),
                              .source = AsElements(v),
                              .target = tall ? problem.vh + i * problem.RightSize() : u});
  });
}

template <class T>
void VendorJacobiSvd(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
                     const SvdProblem<Element<T>>& problem) {
  using E = Element<T>;
  auto* const vh = reinterpret_cast<T*>(problem.vh);
  // gesvdj uses both as workspace, of this size, even without vectors.
  T* const left = problem.vectors ? vh : scratch.Take<T>(problem.RightSize());
  T* const right = scratch.Take<T>(problem.LeftSize());
  T* const matrix = scratch.Take<T>(static_cast<int64_t>(problem.m) * problem.n);
  const LentSolver lent(stream);
  const vendor::Gesvdj<T, Real<T>> gesvdj(lent.get().solver, lent.get().jacobi, problem.vectors,
                                          problem.full, problem.n, problem.m, matrix, problem.s,
                                          left, right);
  VendorWorkspace work(stream, scratch, gesvdj);
  FactorEach<T>(stream, scratch, batch, problem, false, matrix, [&](int64_t i, int32_t* info) {
    gesvdj.Run(matrix, problem.s + i * problem.Shorter(),
               left + (problem.vectors ? i * problem.RightSize() : 0), right, work.device(), info);
    if (!problem.vectors) return;
    ForEach(stream, problem.LeftSize(),
            WriteConjugate<E>{.rows = problem.m,
                              .by_cols = LongDivider(problem.LeftSize() / problem.m),
                              .source = AsElements(right),
                              .target = problem.u + i * problem.LeftSize()});
  });
}

// Calls factor(count, problem) once for these matrices, side by side in scratch memory. A call for
// each would take scratch memory anew.
template <class T, class Factor>
void ForMatrices(cudaStream_t stream, DeviceScratch& scratch, const std::vector<int64_t>& chosen,
                 const SvdProblem<Element<T>>& problem, Factor&& factor) {
  using E = Element<T>;
  using V = RealElement<E>;
  const auto count = static_cast<int64_t>(chosen.size());
  if (count == 0) return;
  const int64_t size = static_cast<int64_t>(problem.m) * problem.n, values = problem.Shorter();
  const int64_t left = problem.vectors ? problem.LeftSize() : 0;
  const int64_t right = problem.vectors ? problem.RightSize() : 0;
  E* const a = scratch.Take<E>(count * size);
  SvdProblem<E> part = problem;
  part.a = a;
  part.u = scratch.Take<E>(count * left);
  part.vh = scratch.Take<E>(count * right);
  part.s = scratch.Take<V>(count * values);
  part.info = scratch.Take<int32_t>(count);
  for (int64_t i = 0; i < count; ++i) {
    Copy(stream, size, problem.a + chosen[i] * size, a + i * size);
  }
  factor(count, part);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place = chosen[i];
    const E *const u = part.u + i * left, *const vh = part.vh + i * right;
    const V* const s = part.s + i * values;
    const int32_t* const info = part.info + i;
    if (problem.vectors) {
      Copy(stream, left, u, problem.u + place * left);
      Copy(stream, right, vh, problem.vh + place * right);
    }
    Copy(stream, values, s, problem.s + place * values);
    Copy(stream, 1, info, problem.info + place);
  }
}

template <bool kVectors, class T>
void RunPath(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
             const SvdProblem<Element<T>>& problem) {
  const int64_t m = problem.Longer(), n = problem.Shorter();
  const SvdSizes sizes{.longer = m, .shorter = n, .width = problem.Width(), .vectors = kVectors};
  const auto teams_of = [&](int team_size) {
    RunTeamSvd<kVectors>(stream, scratch, batch, problem, team_size);
  };
  const auto vendor = [&](int64_t count, const SvdProblem<Element<T>>& part) {
    switch (VendorSvdRoutine<T>(sizes)) {
      case SvdRoutine::kJacobi:
        return VendorJacobiSvd<T>(stream, scratch, count, part);
      case SvdRoutine::kPolar:
        return VendorPolarSvd<T>(stream, scratch, count, part);
      case SvdRoutine::kQr:
        return VendorSvd<T>(stream, scratch, count, part);
    }
  };
  LaunchOnPath(SvdPath<T>(sizes, batch, SharedBytes()),
               On{GpuPath::kThread, [&] { RunSmallSvd<kVectors>(stream, batch, problem); }},
               On{GpuPath::kTeam, [&] { teams_of(SvdTeamSize(m, n, TeamSvdBytes<T>(sizes))); }},
               On{GpuPath::kBlock, [&] { teams_of(kGlobalThreads); }},
               On{GpuPath::kPanels,
                  [&] {
                    const auto left = BlockJacobiSvd<T>(stream, scratch, batch, problem);
                    ForMatrices<T>(stream, scratch, left, problem, vendor);
                  }},
               On{GpuPath::kVendor, [&] { vendor(batch, problem); }});
}

template <class T>
void RunSvd(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
            const SvdProblem<Element<T>>& problem) {
  if (batch == 0) return;
  if (problem.Shorter() == 0) {
    Check(cudaMemsetAsync(problem.info, 0, batch * sizeof(int32_t), stream), "cudaMemsetAsync");
    if (!problem.vectors || !problem.full) return;
    using E = Element<T>;
    ForEach(stream, batch * problem.LeftSize(),
            WriteIdentity<E>{.elements = {problem.m, problem.m}, .x = problem.u});
    ForEach(stream, batch * problem.RightSize(),
            WriteIdentity<E>{.elements = {problem.n, problem.n}, .x = problem.vh});
    return;
  }
  if (problem.vectors) {
    RunPath<true, T>(stream, scratch, batch, problem);
  } else {
    RunPath<false, T>(stream, scratch, batch, problem);
  }
}

// `u` and `vh` are null where a handler has no such results.
void SvdBatch(cudaStream_t stream, DeviceScratch& scratch, const ffi::AnyBuffer& a, Result* u,
              Result& s, Result* vh, Result& info) {
  const SvdShape shape = ReadSvdShape(a, u ? &**u : nullptr, vh ? &**vh : nullptr);
  const int64_t batch = shape.batch, m = shape.m, n = shape.n;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    T* const u_data = u ? Elements<T>(*u, batch, {m, shape.u_cols}, "u") : nullptr;
    T* const vh_data = vh ? Elements<T>(*vh, batch, {shape.vh_rows, n}, "vh") : nullptr;
    RunSvd<T>(stream, scratch, batch,
              {.m = ToInt(m),
               .n = ToInt(n),
               .vectors = u != nullptr,
               .full = shape.full,
               .u_cols = ToInt(shape.u_cols),
               .vh_rows = ToInt(shape.vh_rows),
               .a = AsElements(Elements<T>(a, batch, {m, n}, "a")),
               .u = AsElements(u_data),
               .s = Elements<Real<T>>(s, batch, {shape.k}, "the singular values"),
               .vh = AsElements(vh_data),
               .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

void Svd(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result u, Result s,
         Result vh, Result info) {
  SvdBatch(stream, scratch, a, &u, s, &vh, info);
}

void Svdvals(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result s, Result info) {
  SvdBatch(stream, scratch, a, nullptr, s, nullptr, info);
}

// The derivatives, which are called for small square matrices only: four products each, by a team
// of threads in shared memory. The results of the last ones go straight to global memory.
template <class E>
struct SvdDerivativeProblem {
  using V = RealElement<E>;
  int n;
  const E* u;
  const V* s;
  const E* vh;
  // Operands: dA only, or the cotangents of U, s and Vᴴ.
  const E* x;
  const V* ds = nullptr;
  const E* y = nullptr;
  // Results: those of U, s and Vᴴ, or only A's cotangent.
  E* to_x;
  V* to_s = nullptr;
  E* to_y = nullptr;
};

template <class E, bool kBackward>
struct SvdDerivative {
  static constexpr int kMostThreads = kBlockThreads;
  using V = RealElement<E>;
  SvdDerivativeProblem<E> problem;
  Offset<E> u, vh, x, y, z = {};
  Offset<V> values, changes = {};
  int ld;

  SvdDerivative(SharedLayout& layout, const SvdDerivativeProblem<E>& problem)
      : problem(problem), ld(problem.n | 1) {
    const auto square = [&] { return layout.Take<E>(int64_t{problem.n} * ld); };
    u = square(), vh = square(), x = square(), y = square();
    if (kBackward) z = square();
    values = layout.Take<V>(problem.n);
    if (kBackward) changes = layout.Take<V>(problem.n);
  }

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = problem.n;
    const int64_t first = i * n, size = first * n;
    const team::SvdDerivativeWork<E> work{.s = values.In(slice),
                                          .u = u.In(slice),
                                          .vh = vh.In(slice),
                                          .x = x.In(slice),
                                          .y = y.In(slice),
                                          .ld = ld};
    const auto load = [&](const E* source, E* target) {
      LoadMatrix(team, source + size, n, n, target, ld);
    };
    const auto store_in = [=](E* target) {
      return [=](int row, int col, E element) {
        StoreGlobal<E>(element, target + size + row * n + col);
      };
    };
    LoadArray(team, n, problem.s + first, values.In(slice));
    load(problem.u, u.In(slice));
    load(problem.vh, vh.In(slice));
    load(problem.x, work.x);
    if constexpr (kBackward) {
      load(problem.y, work.y);
      LoadArray(team, n, problem.ds + first, changes.In(slice));
      team::SvdVjp(team, n, work, changes.In(slice), z.In(slice), store_in(problem.to_x));
    } else {
      team::SvdJvp(
          team, n, work, [&](int k, V change) { problem.to_s[first + k] = change; },
          store_in(problem.to_x), store_in(problem.to_y));
    }
  }
};

template <bool kBackward, class E>
void Differentiate(cudaStream_t stream, int64_t batch, const SvdDerivativeProblem<E>& problem) {
  SharedLayout layout(sizeof(RealElement<E>));
  const SvdDerivative<E, kBackward> job(layout, problem);
  LaunchTeams(stream, job, batch, TeamSize(problem.n), layout);
}

void SvdJvp(cudaStream_t stream, ffi::AnyBuffer u, ffi::AnyBuffer s, ffi::AnyBuffer vh,
            ffi::AnyBuffer da, Result du, Result ds, Result dvh) {
  const BatchShape shape = SplitSquareBatch(u, "U");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(u.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto square = [&](auto& buffer, std::string_view name) {
      return AsElements(Elements<T>(buffer, batch, {n, n}, name));
    };
    Differentiate<false>(stream, batch,
                         SvdDerivativeProblem<Element<T>>{
                             .n = ToInt(n),
                             .u = square(u, "U"),
                             .s = Elements<Real<T>>(s, batch, {n}, "the singular values"),
                             .vh = square(vh, "Vh"),
                             .x = square(da, "dA"),
                             .to_x = square(du, "dU"),
                             .to_s = Elements<Real<T>>(ds, batch, {n}, "ds"),
                             .to_y = square(dvh, "dVh")});
  });
}

void SvdVjp(cudaStream_t stream, ffi::AnyBuffer u, ffi::AnyBuffer s, ffi::AnyBuffer vh,
            ffi::AnyBuffer u_ct, ffi::AnyBuffer s_ct, ffi::AnyBuffer vh_ct, Result a_ct) {
  const BatchShape shape = SplitSquareBatch(u, "U");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(u.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto square = [&](auto& buffer, std::string_view name) {
      return AsElements(Elements<T>(buffer, batch, {n, n}, name));
    };
    Differentiate<true>(
        stream, batch,
        SvdDerivativeProblem<Element<T>>{
            .n = ToInt(n),
            .u = square(u, "U"),
            .s = Elements<Real<T>>(s, batch, {n}, "the singular values"),
            .vh = square(vh, "Vh"),
            .x = square(u_ct, "the cotangent of U"),
            .ds = Elements<Real<T>>(s_ct, batch, {n}, "the cotangent of the values"),
            .y = square(vh_ct, "the cotangent of Vh"),
            .to_x = square(a_ct, "the result")});
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER_AND_CAPTURED(linalg_svd, linalg::cuda::Svd);
LINALG_HANDLER(linalg_svd_jvp, linalg::cuda::SvdJvp, LINALG_CAPTURED);
LINALG_HANDLER(linalg_svd_vjp, linalg::cuda::SvdVjp, LINALG_CAPTURED);
LINALG_HANDLER_AND_CAPTURED(linalg_svdvals, linalg::cuda::Svdvals);
