// Eigenvalues and eigenvectors of Hermitian matrices.
//
// Matrices up to kThreadEighBytes run the QL iteration of kernels/small in shared memory, one
// thread each.
//
// Matrices up to kTeamEigh take three launches, if shared memory suffices. A team per matrix
// reduces it to tridiagonal form. A thread per matrix iterates for the eigenvalues of that, so that
// many of these long chains run side by side. A team per matrix applies the rotations that the
// thread has recorded.
//
// Larger matrices go panel by panel in batches: eigh_panels.cu.
//
// Others take cuSOLVER: XsyevBatched, piece by piece, or Xsyevd for a single matrix. It gets both
// triangles. It reads the upper one of complex matrices, because it has failed on lower
// ones (jax issue 32641). The lower one of real matrices takes less time: cuda_eigh_triangle.json.
// A matrix that holds NaN or Inf is passed to it as the identity, and gets NaN and info = -1.
#include "kernels/cuda/eigh_path.h"
#include "kernels/cuda/eigh_problem.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/iterative.h"
#include "kernels/handlers.h"
#include "kernels/small/eigh.h"
#include "kernels/team/eigh.h"
#include "kernels/team/eigh_derivative.h"

namespace linalg::cuda {
namespace {

template <class E, bool kVectors>
struct SmallEigh {
  using V = RealElement<E>;
  using Work = small::EigenWork<E, V>;
  EighProblem<E> problem;
  Offset<V> work;         // a Work
  SharedArray<E> matrix;  // at its beginning
  SharedArray<V> values;
  SharedArray<V> info;

  __device__ void Load(const Block& block) const { matrix.Load(problem.a, block); }
  __device__ void Run(char* slice) const {
    *info.In(slice) = small::Eigh<kVectors>(WorkIn(slice), problem.n, problem.part);
  }
  __device__ void Store(const Block& block) const {
    if constexpr (kVectors) matrix.Store(problem.vectors, block);
    values.Store(problem.values, block,
                 [&](char* slice, int place) { return WorkIn(slice).d[place]; });
    info.StoreIntegers(problem.info, block);
  }

 private:
  __device__ Work WorkIn(char* slice) const { return Work(work.In(slice), problem.n, kVectors); }
};

template <bool kVectors, class E>
void RunSmallEigh(cudaStream_t stream, int64_t batch, const EighProblem<E>& problem) {
  using V = RealElement<E>;
  using Work = small::EigenWork<E, V>;
  const int64_t n = problem.n;
  SharedLayout layout(sizeof(V));
  const Offset<V> work = layout.Take<V>(small::SizeOf<Work>(problem.n, kVectors));
  const SmallEigh<E, kVectors> job{.problem = problem,
                                   .work = work,
                                   .matrix = {n * n, work.template As<E>()},
                                   .values = {n, work},
                                   .info = {1, layout.Take<V>(1)}};
  LaunchThreads(stream, job, batch, layout);
}

// Space for the recorded rotations and sweeps of the QL iteration:
// benchmarks/crossovers/cuda_eigh_notes.json. Beyond it, the team continues the iteration itself.
int64_t RecordedRotations(int64_t n) { return n * n + n * n / 4 + 8 * n; }
int64_t RecordedSweeps(int64_t n) { return 3 * n + 8; }

// Data that the three launches pass on, for each matrix of a piece of the batch.
template <class V>
struct EighNotes {
  struct Sum {
    int64_t bytes = 0;

    template <class X>
    X* Take(int64_t count) {
      bytes += count * static_cast<int64_t>(sizeof(X));
      return nullptr;
    }
  };

  int n;
  double* tridiagonals;  // d (n), and e beside it
  V* inverses;           // of the scales
  // The following are used only with vectors.
  team::QlRecord<V> records;  // of the first matrix
  team::QlProgress* progress;

  // `memory` is a DeviceScratch, or a Sum of the bytes that it would be asked for.
  template <class Memory>
  static EighNotes Take(Memory&& memory, int64_t n, int64_t piece, bool vectors) {
    EighNotes notes{.n = ToInt(n),
                    .tridiagonals = memory.template Take<double>(piece * 2 * n),
                    .inverses = memory.template Take<V>(piece),
                    .records = {.shears = nullptr,
                                .most_rotations = 0,
                                .sweeps = nullptr,
                                .most_sweeps = kQlSweeps * ToInt(n)},
                    .progress = nullptr};
    if (!vectors) return notes;
    const int64_t rotations = RecordedRotations(n), sweeps = RecordedSweeps(n);
    notes.records = {.shears = memory.template Take<V>(piece * rotations),
                     .most_rotations = rotations,
                     .sweeps = memory.template Take<team::QlSweep>(piece * sweeps),
                     .most_sweeps = ToInt(sweeps)};
    notes.progress = memory.template Take<team::QlProgress>(piece);
    return notes;
  }
  // The bytes of one matrix.
  static int64_t Bytes(int64_t n, bool vectors) {
    Sum sum;
    Take(sum, n, 1, vectors);
    return sum.bytes;
  }

  __device__ double* Diagonal(int64_t i) const { return tridiagonals + i * 2 * n; }
  __device__ team::QlRecord<V> Record(int64_t i) const {
    team::QlRecord<V> record = records;
    record.shears += i * records.most_rotations;
    record.sweeps += i * records.most_sweeps;
    return record;
  }
};

template <class E, bool kVectors>
struct ReduceEigh {
  static constexpr int kMostThreads = kBlockThreads;
  using V = RealElement<E>;
  EighProblem<E> problem;
  EighNotes<V> notes;
  Offset<E> matrix, w, product, taus;
  int ld;

  ReduceEigh(SharedLayout& layout, const EighProblem<E>& problem)
      : problem(problem),
        notes{},
        matrix(layout.Take<E>(int64_t{problem.n} * (problem.n | 1))),
        w(layout.Take<E>(problem.n)),
        product(layout.Take<E>(problem.n)),
        taus(layout.Take<E>(problem.n)),
        ld(problem.n | 1) {}

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = problem.n;
    const int64_t first = i * n * n;
    const team::ReductionWork<E> work{.a = matrix.In(slice),
                                      .ld = ld,
                                      .w = w.In(slice),
                                      .product = product.In(slice),
                                      .taus = taus.In(slice)};
    LoadMatrix(team, problem.a + first, n, n, work.a, ld);
    double* const d = notes.Diagonal(i);
    const int info =
        team::ReduceHermitian<kVectors>(team, n, problem.part, work, d, d + n, notes.inverses + i);
    if constexpr (kVectors) {
      StoreMatrix(team, n, n, problem.vectors + first,
                  [&](int row, int col) { return work.a[row * ld + col]; });
    }
    StoreInfo(team, info, problem.info + i);
  }
};

// One thread works on each matrix. Without vectors this is the last launch.
template <class E, bool kVectors>
struct IterateEigh {
  static constexpr int kMostThreads = kBlockThreads;
  using V = RealElement<E>;
  EighProblem<E> problem;
  EighNotes<V> notes;
  Offset<double> tridiagonal;

  __device__ void Run(const Team&, int64_t i, char* slice) const {
    const int n = problem.n;
    double *const d = tridiagonal.In(slice), *const e = d + n;
    double* const global = notes.Diagonal(i);
    for (int k = 0; k < 2 * n - 1; ++k) d[k] = global[k];
    if constexpr (kVectors) {
      notes.progress[i] = team::RecordedQl<true>(d, e, n, notes.Record(i));
      for (int k = 0; k < 2 * n - 1; ++k) global[k] = d[k];
    } else {
      const auto progress = team::RecordedQl<false>(d, e, n, notes.records);
      problem.info[i] = team::FinishEigvalsh(n, progress, d, problem.info[i], notes.inverses[i],
                                             problem.values + i * n);
    }
  }
};

template <class E>
struct RotateEigh {
  static constexpr int kMostThreads = kBlockThreads;
  using V = RealElement<E>;
  static constexpr int64_t kUnit = alignof(team::RotationPair<V>);
  EighProblem<E> problem;
  EighNotes<V> notes;
  Offset<E> matrix;
  Offset<team::RotationPair<V>> rotations;
  Offset<team::QlProgress> progress;
  Offset<int32_t> order;
  int ld;

  RotateEigh(SharedLayout& layout, const EighProblem<E>& problem)
      : problem(problem),
        notes{},
        matrix(layout.Take<E>(int64_t{problem.n} * (problem.n | 1))),
        rotations(layout.Take<team::RotationPair<V>>(2 * problem.n)),
        progress(layout.Take<team::QlProgress>(1)),
        order(layout.Take<int32_t>(problem.n)),
        ld(problem.n | 1) {}

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int n = problem.n;
    const team::RotationWork<E> work{.q = matrix.In(slice),
                                     .ld = ld,
                                     .rotations = rotations.In(slice),
                                     .order = order.In(slice),
                                     .progress = progress.In(slice)};
    E* const vectors = problem.vectors + i * n * n;
    LoadMatrix(team, vectors, n, n, work.q, ld);
    double* const d = notes.Diagonal(i);
    const auto made = team::FinishEigh(team, n, work, notes.Record(i), notes.progress[i], d, d + n,
                                       problem.info[i], notes.inverses[i], problem.values + i * n);
    StoreMatrix(team, n, n, vectors, made);
    StoreInfo(team, made.info, problem.info + i);
  }
};

template <bool kVectors, class E>
void RunTeamEigh(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
                 const EighProblem<E>& problem) {
  using V = RealElement<E>;
  const int64_t n = problem.n;
  SharedLayout reduction(sizeof(V)), rotation(RotateEigh<E>::kUnit), iteration(sizeof(double));
  ReduceEigh<E, kVectors> reduce(reduction, problem);
  IterateEigh<E, kVectors> iterate{
      .problem = problem, .notes = {}, .tridiagonal = iteration.Take<double>(2 * n)};
  RotateEigh<E> rotate(rotation, problem);
  using Notes = EighNotes<V>;
  const int64_t most = std::max<int64_t>(1, kEighNotesBytes / Notes::Bytes(n, kVectors));
  const int64_t pieces = (batch + most - 1) / most, piece = (batch + pieces - 1) / pieces;
  reduce.notes = iterate.notes = rotate.notes = Notes::Take(scratch, n, piece, kVectors);
  const int team_size = EighTeamSize(n, reduction.bytes());
  for (int64_t first = 0; first < batch; first += piece) {
    const int64_t count = std::min(piece, batch - first);
    reduce.problem = iterate.problem = rotate.problem = problem.From(first);
    LaunchTeams(stream, reduce, count, team_size, reduction);
    LaunchTeams(stream, iterate, count, 1, iteration);
    if constexpr (kVectors) LaunchTeams(stream, rotate, count, team_size, rotation);
  }
}

// Returns the elements of the operand that are read, and zeros elsewhere.
template <class E>
struct HermitianElements {
  EighProblem<E> problem;
  LongDivider by_n;

  __device__ E operator()(int64_t matrix, int64_t place) const {
    const int64_t n = problem.n, i = by_n(place), j = place - i * n;
    if (!problem.part.Reads(i, j)) return E{};
    const E x = LoadGlobal(problem.a + matrix * n * n + place);
    return i == j ? FromReal<E>(Re(x)) : x;
  }
};

// Writes the scaled Hermitian parts of matrices from `first` on, with both triangles. A matrix that
// is not finite is replaced by the identity.
template <class E>
struct CopyHermitian {
  FindScales<E, HermitianElements<E>> measured;
  MatrixElements elements;
  int64_t first;
  bool column_major;
  E* target;

  __device__ void operator()(int64_t place) const {
    using V = RealElement<E>;
    const EighProblem<E>& problem = measured.counted.problem;
    const auto [index, i, j] = elements(place);
    const int64_t n = problem.n, matrix = first + index;
    const E* const a = problem.a + matrix * n * n;
    const int64_t row = column_major ? j : i, col = column_major ? i : j;
    const E x =
        problem.part.At(row, col, [=](int64_t k, int64_t l) { return LoadGlobal(a + k * n + l); });
    StoreGlobal<E>(
        measured.info[matrix] != 0 ? FromReal<E>(V(i == j)) : measured.scales[matrix] * x,
        target + place);
  }
};

template <class E>
FindScales<E, HermitianElements<E>> MeasureHermitian(cudaStream_t stream, DeviceScratch& scratch,
                                                     int64_t batch, const EighProblem<E>& problem) {
  const int64_t n = problem.n;
  return MeasureBatch<E>(stream, scratch, batch, n * n,
                         HermitianElements<E>{.problem = problem, .by_n = LongDivider(n)},
                         problem.info);
}

template <class T>
void PanelsEigh(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
                const EighProblem<Element<T>>& problem) {
  using E = Element<T>;
  const int64_t n = problem.n;
  const auto measured = MeasureHermitian<E>(stream, scratch, batch, problem);
  const auto copy = [&](int64_t first, int64_t count, E* target) {
    ForEach(stream, count * n * n,
            CopyHermitian<E>{.measured = measured,
                             .elements = {n, n},
                             .first = first,
                             .column_major = false,
                             .target = target});
  };
  SolveEighByPanels<T>(stream, scratch, batch, problem,
                       {.copy = copy, .inverses = measured.inverses});
}

template <class T>
void VendorEigh(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
                const EighProblem<Element<T>>& problem) {
  using E = Element<T>;
  using Syev = vendor::Syev<T, Real<T>>;
  const int64_t n = problem.n, size = n * n;
  const LentSolver lent(stream);  // before anything that depends on the library
  const int64_t piece = std::min(batch, Syev::MostBatch(n));
  T* const a = scratch.Take<T>(piece * size);
  const auto measured = MeasureHermitian<E>(stream, scratch, batch, problem);
  const auto job = problem.vectors != nullptr ? vendor::kVectors : vendor::kNoVectors;
  const auto uplo = kIsComplex<T> ? vendor::kUpper : vendor::kLower;
  const Syev syev(lent.get().solver, lent.get().parameters, job, uplo, n, piece, a, problem.values);
  VendorWorkspace work(stream, scratch, syev);
  int32_t* const vendors_info = scratch.Take<int32_t>(batch);
  for (int64_t i = 0; i < batch; i += piece) {
    const int64_t count = std::min(piece, batch - i);
    ForEach(stream, count * size,
            CopyHermitian<E>{.measured = measured,
                             .elements = {n, n},
                             .first = i,
                             .column_major = true,
                             .target = AsElements(a)});
    syev.Run(a, problem.values + i * n, count, work.device(), work.host(), vendors_info + i);
    work.Release();
    if (problem.vectors == nullptr) continue;
    Transpose(stream, count, n, n, static_cast<const T*>(a), size,
              reinterpret_cast<T*>(problem.vectors + i * size), size);
  }
  ForEach(stream, batch, MergeInfo{.info = problem.info, .vendors = vendors_info});
  ForEach(stream, batch * n,
          ScaleBack<Real<T>>{.x = problem.values,
                             .by_count = LongDivider(n),
                             .inverses = measured.inverses,
                             .info = problem.info});
  if (problem.vectors != nullptr) {
    ForEach(
        stream, batch * size,
        FillFailed<E>{.x = problem.vectors, .by_size = LongDivider(size), .info = problem.info});
  }
}

template <bool kVectors, class T>
void RunPath(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
             const EighProblem<Element<T>>& problem) {
  using E = Element<T>;
  using V = RealElement<E>;
  const auto fits = [&] {
    return FitsInShared<ReduceEigh<E, kVectors>>(sizeof(V), problem) &&
           FitsInShared<RotateEigh<E>>(RotateEigh<E>::kUnit, problem);
  };
  const auto panels_fit = [&] { return EighPanelsFit<T>(problem.n); };
  LaunchOnPath(EighPath<T>(problem.n, batch, fits, panels_fit),
               On{GpuPath::kThread, [&] { RunSmallEigh<kVectors>(stream, batch, problem); }},
               On{GpuPath::kTeam, [&] { RunTeamEigh<kVectors>(stream, scratch, batch, problem); }},
               On{GpuPath::kPanels, [&] { PanelsEigh<T>(stream, scratch, batch, problem); }},
               On{GpuPath::kVendor, [&] { VendorEigh<T>(stream, scratch, batch, problem); }});
}

// `vectors` is null where a handler has no such result.
void RunEigh(cudaStream_t stream, DeviceScratch& scratch, ffi::AnyBuffer a, Result& values,
             Result* vectors, Result& info, HermitianPart part) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    T* const vectors_data =
        vectors != nullptr ? Elements<T>(*vectors, batch, {n, n}, "the eigenvectors") : nullptr;
    SolveEigh<T>(stream, scratch, batch,
                 {.n = ToInt(n),
                  .part = part,
                  .a = AsElements(Elements<T>(a, batch, {n, n}, "a")),
                  .vectors = AsElements(vectors_data),
                  .values = Elements<Real<T>>(values, batch, {n}, "the eigenvalues"),
                  .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

void Eigh(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result values,
          Result vectors, Result info, bool lower, bool symmetrize) {
  RunEigh(stream, scratch, a, values, &vectors, info, {.lower = lower, .symmetrize = symmetrize});
}

void Eigvalsh(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, Result values,
              Result info, bool lower, bool symmetrize) {
  RunEigh(stream, scratch, a, values, nullptr, info, {.lower = lower, .symmetrize = symmetrize});
}

// The derivatives are called for small matrices only. Each takes three products, by a team of
// threads in shared memory. A single thread would need its own three matrices.
template <class E>
struct EighDerivativeProblem {
  using V = RealElement<E>;
  int n;
  HermitianPart part;
  const V* w;
  const E* v;
  // Operands: dA only, or the cotangents of w and V.
  const V* dw = nullptr;
  const E* x;
  // Results: those of w and V, or only A's cotangent.
  V* y_w = nullptr;
  E* y;
};

template <class E, bool kBackward>
struct EighDerivative {
  static constexpr int kMostThreads = kBlockThreads;
  using V = RealElement<E>;
  EighDerivativeProblem<E> problem;
  Offset<E> vectors, x, y;
  Offset<V> values, changes;
  int ld;

  EighDerivative(SharedLayout& layout, const EighDerivativeProblem<E>& problem)
      : problem(problem),
        vectors(layout.Take<E>(int64_t{problem.n} * (problem.n | 1))),
        x(layout.Take<E>(int64_t{problem.n} * (problem.n | 1))),
        y(layout.Take<E>(int64_t{problem.n} * (problem.n | 1))),
        values(layout.Take<V>(problem.n)),
        changes(layout.Take<V>(problem.n)),
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
  SharedLayout layout(sizeof(RealElement<E>));
  const EighDerivative<E, kBackward> job(layout, problem);
  LaunchTeams(stream, job, batch, TeamSize(problem.n), layout);
}

// Reads the operands of both derivatives; `x` is n by n.
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

template <class T>
void SolveEigh(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
               const EighProblem<Element<T>>& problem) {
  if (batch == 0) return;
  if (problem.vectors != nullptr) {
    RunPath<true, T>(stream, scratch, batch, problem);
  } else {
    RunPath<false, T>(stream, scratch, batch, problem);
  }
}

template void SolveEigh<float>(cudaStream_t, DeviceScratch&, int64_t, const EighProblem<float>&);
template void SolveEigh<double>(cudaStream_t, DeviceScratch&, int64_t, const EighProblem<double>&);
template void SolveEigh<std::complex<float>>(cudaStream_t, DeviceScratch&, int64_t,
                                             const EighProblem<Complex<float>>&);
template void SolveEigh<std::complex<double>>(cudaStream_t, DeviceScratch&, int64_t,
                                              const EighProblem<Complex<double>>&);

}  // namespace linalg::cuda

LINALG_HANDLER_AND_CAPTURED(linalg_eigh, linalg::cuda::Eigh);
LINALG_HANDLER(linalg_eigh_jvp, linalg::cuda::EighJvp, LINALG_CAPTURED);
LINALG_HANDLER(linalg_eigh_vjp, linalg::cuda::EighVjp, LINALG_CAPTURED);
LINALG_HANDLER_AND_CAPTURED(linalg_eigvalsh, linalg::cuda::Eigvalsh);
