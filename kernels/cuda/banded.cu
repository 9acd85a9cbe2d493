// Banded systems, banded Cholesky factors, and solves with them. One thread per matrix takes any
// size. Neighbouring threads read neighbouring words.
//
// Few long systems are solved as block-tridiagonal ones, in chunks. Their blocks are exchanged with
// no others, so a system that needs that is solved again by one thread.
//
// Few Cholesky factors take a team for each matrix, and so do solves with them: the window of the
// band is in shared memory. Teams and threads compute the same bits.
#include "kernels/small/banded.h"

#include "kernels/cuda/block_tridiagonal_solve.h"
#include "kernels/handlers.h"
#include "kernels/systems.h"
#include "kernels/team/banded.h"

namespace linalg::cuda {
namespace {

// Lays out the rows for elimination, element by element.
template <class E>
struct LayBandedRows {
  BandedSystems<E> systems;
  small::BandedRows rows;
  E* target;

  __device__ void operator()(int64_t place) const {
    const int64_t batch = systems.batch, width = systems.Width();
    const int64_t matrix = place % batch, slot = place / batch % width;
    const int row = static_cast<int>(place / batch / width);
    const int64_t col = rows.First(row) + slot, diagonal = row - col + systems.above;
    E x{};
    if (col <= rows.Last(row)) {
      x = LoadGlobal(systems.Diagonal(diagonal) + matrix * systems.Stride(diagonal) + col);
    }
    StoreGlobal<E>(x, target + place);
  }
};

template <class E>
struct SolveBandedSystems {
  BandedSystems<E> systems;
  small::BandedRows rows;
  E* matrices;
  E* x;
  const int32_t* suspects = nullptr;  // null: all systems

  __device__ void operator()(int64_t i) const {
    const int64_t batch = systems.batch;
    if (suspects != nullptr && suspects[i] == 0) {
      systems.info[i] = 0;
      return;
    }
    systems.info[i] = static_cast<int32_t>(small::SolveBanded<E, StridedVector<E>>(
        rows, {matrices + i, batch}, static_cast<int>(systems.cols), {x + i, batch}));
  }
};

// The order of the blocks that have all diagonals of a system.
int64_t BlockOrder(int64_t below, int64_t above) { return std::max<int64_t>({below, above, 1}); }

template <class E>
GpuPath BandedPath(const BandedSystems<E>& systems) {
  const int64_t d = BlockOrder(systems.below, systems.above), steps = (systems.n + d - 1) / d;
  const bool few = systems.batch <= kFewBanded && systems.cols > 0;
  return few && SolvesInChunks<E>(steps, d) ? GpuPath::kSteps : GpuPath::kThread;
}

// Writes the blocks of the rows, three in each row of blocks. Rows past the last are the
// identity's.
template <class E>
struct WriteBlocks {
  BandedSystems<E> systems;
  int64_t steps, d;
  MatrixElements elements;  // of rows of 3 d
  LongDivider by_d;
  E *lower, *diagonal, *upper;

  __device__ void operator()(int64_t place) const {
    const auto [matrix, row, slot] = elements(place);
    const int64_t t = by_d(row), part = slot < d ? 0 : slot < 2 * d ? 1 : 2;
    const int64_t col = (t - 1) * d + slot, offset = row - col + systems.above;
    if (t + part == 0 || t + part > steps) return;  // beside the first or the last block
    E x = FromReal<E>(RealElement<E>(row == col && row >= systems.n));
    if (row < systems.n && col >= 0 && col < systems.n && offset >= 0 && offset < systems.Width()) {
      x = LoadGlobal(systems.Diagonal(offset) + matrix * systems.Stride(offset) + col);
    }
    E* const blocks = part == 0 ? lower : part == 1 ? diagonal : upper;
    const int64_t block =
        part == 1 ? matrix * steps + t : matrix * (steps - 1) + (part == 0 ? t - 1 : t);
    StoreGlobal<E>(x, blocks + (block * d + row - t * d) * d + slot - part * d);
  }
};

// Right-hand sides with rows of zeros behind the last.
template <class E>
struct PadRows {
  MatrixElements elements;  // of the padded ones
  int64_t n, cols;
  const E* b;
  E* target;

  __device__ void operator()(int64_t place) const {
    const auto [matrix, row, col] = elements(place);
    StoreGlobal<E>(row < n ? LoadGlobal(b + (matrix * n + row) * cols + col) : E{}, target + place);
  }
};

// The solutions of suspects from one thread each, and of the other systems from chunks.
template <class E>
struct MergeSolutions {
  MatrixElements elements;
  int64_t batch, cols, padded;  // padded: the rows of solutions from chunks
  const int32_t* suspects;
  const E *of_threads, *of_chunks;
  E* x;

  __device__ void operator()(int64_t place) const {
    const auto [matrix, row, col] = elements(place);
    const E* const source = suspects[matrix] != 0
                                ? of_threads + (row * cols + col) * batch + matrix
                                : of_chunks + (matrix * padded + row) * cols + col;
    StoreGlobal<E>(LoadGlobal(source), x + place);
  }
};

// Solves all systems, or the suspects among them, with one thread each. Returns the solutions,
// interleaved.
template <class T>
T* SolveByThreads(cudaStream_t stream, DeviceScratch& scratch,
                  const BandedSystems<Element<T>>& systems, const T* b,
                  const int32_t* suspects = nullptr) {
  using E = Element<T>;
  const int64_t batch = systems.batch, n = systems.n, rhs_size = n * systems.cols;
  const small::BandedRows rows{ToInt(n), ToInt(systems.below), ToInt(systems.above)};
  T* const matrices = scratch.Take<T>(batch * n * systems.Width());
  T* const work = scratch.Take<T>(batch * rhs_size);
  ForEach(stream, batch * n * systems.Width(),
          LayBandedRows<E>{.systems = systems, .rows = rows, .target = AsElements(matrices)});
  Transpose(stream, 1, batch, rhs_size, b, 0, work, 0);
  ForEach(stream, batch,
          SolveBandedSystems<E>{.systems = systems,
                                .rows = rows,
                                .matrices = AsElements(matrices),
                                .x = AsElements(work),
                                .suspects = suspects});
  return work;
}

template <class T>
void SolveBandedInChunks(cudaStream_t stream, DeviceScratch& scratch,
                         const BandedSystems<Element<T>>& systems, const T* b, T* x) {
  using E = Element<T>;
  const int64_t batch = systems.batch, n = systems.n, cols = systems.cols;
  const int64_t d = BlockOrder(systems.below, systems.above), steps = (n + d - 1) / d;
  const int64_t size = d * d, padded = steps * d;
  T* const lower = scratch.Take<T>(batch * (steps - 1) * size);
  T* const diagonal = scratch.Take<T>(batch * steps * size);
  T* const upper = scratch.Take<T>(batch * (steps - 1) * size);
  T* const rhs = scratch.Take<T>(batch * padded * cols);
  T* const solution = scratch.Take<T>(batch * padded * cols);
  int32_t* const suspects = scratch.Take<int32_t>(batch);
  ForEach(stream, batch * padded * 3 * d,
          WriteBlocks<E>{.systems = systems,
                         .steps = steps,
                         .d = d,
                         .elements = {padded, 3 * d},
                         .by_d = LongDivider(d),
                         .lower = AsElements(lower),
                         .diagonal = AsElements(diagonal),
                         .upper = AsElements(upper)});
  ForEach(stream, batch * padded * cols,
          PadRows<E>{.elements = {padded, cols},
                     .n = n,
                     .cols = cols,
                     .b = AsElements(b),
                     .target = AsElements(rhs)});
  SolveLongBlockTridiagonal<T>(stream, scratch,
                               {.shape = {batch, steps, d},
                                .lower = lower,
                                .diagonal = diagonal,
                                .upper = upper,
                                .cols = cols,
                                .b = rhs,
                                .x = solution},
                               suspects);
  const T* const others = SolveByThreads(stream, scratch, systems, b, suspects);
  ForEach(stream, batch * n * cols,
          MergeSolutions<E>{.elements = {n, cols},
                            .batch = batch,
                            .cols = cols,
                            .padded = padded,
                            .suspects = suspects,
                            .of_threads = AsElements(others),
                            .of_chunks = AsElements(static_cast<const T*>(solution)),
                            .x = AsElements(x)});
}

void BandedSolve(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer upper,
                 ffi::AnyBuffer lower, ffi::AnyBuffer b, Result x, Result info) {
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const BandedSystems<T> given = ReadBandedSystems<T>(upper, lower, b, x, info);
    using E = Element<T>;
    const BandedSystems<E> systems{.batch = given.batch,
                                   .n = given.n,
                                   .below = given.below,
                                   .above = given.above,
                                   .cols = given.cols,
                                   .upper = AsElements(given.upper),
                                   .lower = AsElements(given.lower),
                                   .b = AsElements(given.b),
                                   .x = AsElements(given.x),
                                   .info = given.info};
    const int64_t batch = given.batch, rhs_size = given.n * given.cols;
    if (batch == 0) return;
    ToInt(rhs_size);
    ToInt(given.n + given.Width());  // past the last column of any row
    const auto thread = [&] {
      const T* const solutions = SolveByThreads(stream, scratch, systems, given.b);
      Transpose(stream, 1, rhs_size, batch, solutions, 0, given.x, 0);
    };
    LaunchOnPath(BandedPath(systems), On{GpuPath::kThread, thread},
                 On{GpuPath::kSteps,
                    [&] { SolveBandedInChunks<T>(stream, scratch, systems, given.b, given.x); }});
  });
}

// The places of banded triangles' elements: i beside the diagonal, in column k of the lower form.
// Elements below the last row are the corners.
template <class E>
struct BandElements {
  int n, width;
  bool lower;

  __device__ __forceinline__ int64_t Place(int i, int k) const {
    if (lower) return static_cast<int64_t>(i) * n + k;
    int col = k + i;
    while (col >= n) col -= n;
    return static_cast<int64_t>(width - 1 - i) * n + col;
  }
  __device__ __forceinline__ E Load(const E* source, int i, int k) const {
    if (i >= n - k) return E{};
    const E x = LoadGlobal(source + Place(i, k));
    return lower ? x : Conj(x);
  }
  __device__ __forceinline__ void Store(int i, int k, E x, E* target) const {
    const bool corner = i >= n - k;  // has no negative zeros
    StoreGlobal<E>(lower || corner ? x : Conj(x), target + Place(i, k));
  }
};

template <class E>
BandElements<E> ElementsOf(const BandedTriangles& shape) {
  return {ToInt(shape.n), ToInt(shape.width), shape.lower};
}

// Threads of a team. More than a warp pay where a step has many products.
int BandTeamSize(int64_t width) { return width <= kWarpBanded ? 32 : kBlockThreads; }

template <class E>
struct TeamBandedCholesky {
  static constexpr int kMostThreads = kBlockThreads;
  BandElements<E> elements;
  int columns, ld;
  const E* source;
  E* target;
  int32_t* info;
  Offset<E> ring;

  TeamBandedCholesky(SharedLayout& layout, const BandedTriangles& shape)
      : elements(ElementsOf<E>(shape)),
        columns(team::RingColumns(shape.width)),
        ld(ToInt(shape.width | 1)),
        source(nullptr),
        target(nullptr),
        info(nullptr),
        ring(layout.Take<E>(int64_t{columns} * ld)) {}

  __device__ void Run(const Team& team, int64_t matrix, char* slice) const {
    const int64_t first = matrix * elements.n * elements.width;
    const E* const from = source + first;
    E* const to = target + first;
    const BandElements<E> elements = this->elements;
    const team::ColumnRing<E> window{
        .data = ring.In(slice), .width = elements.width, .columns = columns, .ld = ld};
    const int failed = team::BandedCholesky(
        team, elements.n, window, [=](int i, int k) { return elements.Load(from, i, k); },
        [=](int i, int k, E x) { elements.Store(i, k, x, to); });
    StoreInfo(team, failed, info + matrix);
  }
};

// Solves for some of the right-hand sides of a matrix.
template <class E>
struct TeamBandedSolve {
  static constexpr int kMostThreads = kBlockThreads;
  BandElements<E> elements;
  ColumnUnits units;
  int columns, ld, ld_rows;
  const E* factor;
  const E* b;
  E* x;
  Offset<E> ring, rows;

  TeamBandedSolve(SharedLayout& layout, const BandedTriangles& shape, int64_t cols)
      : elements(ElementsOf<E>(shape)),
        units(shape.batch, cols, kBandedColumns),
        columns(team::RingColumns(shape.width)),
        ld(ToInt(shape.width | 1)),
        ld_rows(units.width | 1),
        factor(nullptr),
        b(nullptr),
        x(nullptr),
        ring(layout.Take<E>(int64_t{columns} * ld)),
        rows(layout.Take<E>(int64_t{columns} * ld_rows)) {}

  __device__ void Run(const Team& team, int64_t unit, char* slice) const {
    const auto [matrix, col, left] = units(unit);
    const BandElements<E> elements = this->elements;
    const int64_t pitch = units.cols, first = matrix * elements.n * pitch + col;
    const E* const from = factor + matrix * elements.n * elements.width;
    const E* const given = b + first;
    E* const solution = x + first;
    const team::ColumnRing<E> window{
        .data = ring.In(slice), .width = elements.width, .columns = columns, .ld = ld};
    const team::RowRing<E> sides{
        .data = rows.In(slice), .cols = left, .rows = columns, .ld = ld_rows};
    team::SolveBandedCholesky(
        team, elements.n, window, sides, [=](int i, int k) { return elements.Load(from, i, k); },
        [=](int k, int j) { return LoadGlobal(given + k * pitch + j); },
        [=](int k, int j, E y) { StoreGlobal<E>(y, solution + k * pitch + j); },
        [=](int k, int j) { return LoadGlobal(solution + k * pitch + j); });
  }
};

// Whether each matrix takes a team, and its window fits in shared memory.
template <class Job, class... Arguments>
GpuPath BandedTrianglesPath(int64_t unit, const BandedTriangles& shape, Arguments... arguments) {
  // A team counts rows in 32 bits, up to a ring past the last. A ring has at most 1024 columns.
  constexpr int64_t kMostRows = std::numeric_limits<int>::max() - 2048;
  const bool few = shape.batch <= kTeamBanded && shape.width <= kWidestBand && shape.n <= kMostRows;
  return few && FitsInShared<Job>(unit, shape, arguments...) ? GpuPath::kTeam : GpuPath::kThread;
}

// The columns of lower triangles from the diagonal down, 0 below the last row.
template <class E>
struct LayBandedColumns {
  BandedTriangles shape;
  const E* source;
  E* target;

  __device__ void operator()(int64_t place) const {
    const int64_t matrix = place % shape.batch, diagonal = place / shape.batch % shape.width;
    const int64_t col = place / shape.batch / shape.width;
    E x{};
    if (col < shape.Count(diagonal)) {
      x = LoadGlobal(source + matrix * shape.size() + shape.Begin(diagonal) + col);
    }
    StoreGlobal<E>(shape.lower ? x : Conj(x), target + place);
  }
};

template <class E>
struct FactorBandedColumns {
  BandedTriangles shape;
  E* columns;
  int32_t* info;

  __device__ void operator()(int64_t i) const {
    info[i] = static_cast<int32_t>(small::BandedCholesky<E, StridedVector<E>>(
        static_cast<int>(shape.n), static_cast<int>(shape.width), {columns + i, shape.batch}));
  }
};

// The factors from their columns.
template <class E>
struct StoreBandedFactors {
  BandedTriangles shape;
  const E* columns;
  const int32_t* info;
  E* target;

  __device__ void operator()(int64_t place) const {
    const int64_t matrix = place / shape.size(), row = place % shape.size() / shape.n;
    const int64_t diagonal = shape.lower ? row : shape.width - 1 - row;
    const int64_t col = place % shape.n - (shape.lower ? 0 : shape.Corner(diagonal));
    E x{};
    if (col >= 0 && col < shape.Count(diagonal)) {
      x = LoadGlobal(columns + (col * shape.width + diagonal) * shape.batch + matrix);
      if (!shape.lower) x = Conj(x);
    }
    StoreGlobal<E>(info[matrix] != 0 ? NaN<E>() : x, target + place);
  }
};

void CholeskyBanded(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer ab, Result factor,
                    Result info, bool lower) {
  const BandedTriangles shape = ReadBandedTriangles(ab, lower, "ab");
  const int64_t batch = shape.batch, n = shape.n, width = shape.width;
  DispatchDtype(ab.element_type(), [&]<class T>(std::type_identity<T>) {
    using E = Element<T>;
    const T* const source = Elements<T>(ab, batch, {width, n}, "ab");
    T* const target = Elements<T>(factor, batch, {width, n}, "the factor");
    int32_t* const failed = Elements<int32_t>(info, batch, {}, "info");
    if (batch == 0) return;
    ToInt(n);
    ToInt(width);
    const auto thread = [&] {
      E* const columns = AsElements(scratch.Take<T>(batch * shape.size()));
      ForEach(stream, batch * shape.size(),
              LayBandedColumns<E>{.shape = shape, .source = AsElements(source), .target = columns});
      ForEach(stream, batch,
              FactorBandedColumns<E>{.shape = shape, .columns = columns, .info = failed});
      ForEach(
          stream, batch * shape.size(),
          StoreBandedFactors<E>{
              .shape = shape, .columns = columns, .info = failed, .target = AsElements(target)});
    };
    const auto team = [&] {
      SharedLayout layout(sizeof(Real<T>));
      TeamBandedCholesky<E> job(layout, shape);
      job.source = AsElements(source);
      job.target = AsElements(target);
      job.info = failed;
      LaunchTeams(stream, job, batch, BandTeamSize(width), layout);
    };
    LaunchOnPath(BandedTrianglesPath<TeamBandedCholesky<E>>(sizeof(Real<T>), shape),
                 On{GpuPath::kThread, thread}, On{GpuPath::kTeam, team});
  });
}

template <class E>
struct SolveBandedFactored {
  BandedTriangles shape;
  int cols;
  E* columns;
  E* x;

  __device__ void operator()(int64_t i) const {
    small::SolveBandedCholesky<E, StridedVector<E>>(
        static_cast<int>(shape.n), static_cast<int>(shape.width), {columns + i, shape.batch}, cols,
        {x + i, shape.batch});
  }
};

void CholeskyBandedSolve(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer factor,
                         ffi::AnyBuffer b, Result x, bool lower) {
  const BandedTriangles shape = ReadBandedTriangles(factor, lower, "the factor");
  const int64_t batch = shape.batch, n = shape.n, width = shape.width;
  const int64_t cols = SplitBatch(b, 2, "b").cols;
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    using E = Element<T>;
    const T* const source = Elements<T>(factor, batch, {width, n}, "the factor");
    const T* const rhs = Elements<T>(b, batch, {n, cols}, "b");
    T* const target = Elements<T>(x, batch, {n, cols}, "x");
    if (batch == 0) return;
    ToInt(n * cols);
    ToInt(width);
    const auto thread = [&] {
      E* const columns = AsElements(scratch.Take<T>(batch * shape.size()));
      T* const work = scratch.Take<T>(batch * n * cols);
      ForEach(stream, batch * shape.size(),
              LayBandedColumns<E>{.shape = shape, .source = AsElements(source), .target = columns});
      Transpose(stream, 1, batch, n * cols, rhs, 0, work, 0);
      ForEach(stream, batch,
              SolveBandedFactored<E>{
                  .shape = shape, .cols = ToInt(cols), .columns = columns, .x = AsElements(work)});
      Transpose(stream, 1, n * cols, batch, static_cast<const T*>(work), 0, target, 0);
    };
    const auto team = [&] {
      SharedLayout layout(sizeof(Real<T>));
      TeamBandedSolve<E> job(layout, shape, cols);
      job.factor = AsElements(source);
      job.b = AsElements(rhs);
      job.x = AsElements(target);
      LaunchTeams(stream, job, job.units.count, BandTeamSize(width), layout);
    };
    const GpuPath path =
        cols == 0 ? GpuPath::kThread
                  : BandedTrianglesPath<TeamBandedSolve<E>>(sizeof(Real<T>), shape, cols);
    LaunchOnPath(path, On{GpuPath::kThread, thread}, On{GpuPath::kTeam, team});
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_banded_solve, linalg::cuda::BandedSolve);
LINALG_HANDLER(linalg_cholesky_banded, linalg::cuda::CholeskyBanded);
LINALG_HANDLER(linalg_cholesky_banded_solve, linalg::cuda::CholeskyBandedSolve);
