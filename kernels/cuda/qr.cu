// QR by Householder reflectors, plain and column-pivoted, and the product of given reflectors.
//
// One thread per matrix works in shared memory up to kThreadQrBytes, without column pivoting. A
// team per matrix works in shared memory up to kTeamQrBytes, which holds 512 by 32 too. It is
// row-major throughout: R leaves before Q takes its place. Larger matrices go panel by panel: a
// block per matrix makes the panel's reflectors, and cuBLAS applies them for the whole batch. A
// block per matrix in global memory takes those whose panels shared memory cannot hold, and all
// larger ones with column pivoting, because cuSOLVER lacks that. One or a few large matrices take
// cuSOLVER's geqrf and orgqr, one column-major copy after another.
#include "kernels/team/qr.h"

#include "kernels/arithmetic/reflector.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda/panels.h"
#include "kernels/cuda/passes.h"
#include "kernels/cuda/qr_path.h"
#include "kernels/cuda/qr_problem.h"
#include "kernels/handlers.h"
#include "kernels/qr_shape.h"
#include "kernels/small/qr.h"
#include "kernels/small/qr_derivative.h"
#include "kernels/team/qr_panel.h"

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
  ToInt(problem.m * ld);  // a team counts elements in 32 bits
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

// A panel of every matrix: m rows and n columns of `a`, which is row-major. The reflectors' product
// is I - U Vᴴ. V and U are columns of larger row-major matrices, with `rows_above` rows of zeros
// above those of the panel.
template <class E>
struct QrPanel {
  static constexpr int kMostThreads = kGlobalThreads;
  using V = RealElement<E>;
  int m, n;
  const E* a;  // with reflectors below the diagonal, if they are `given` with their taus
  int64_t ld, stride;
  bool given;
  const E* taus_in;
  E* factors;  // R and zeros, or the reflectors if `packed`; where `a` is, unless they are given
  bool packed;
  E* taus;  // if packed
  int64_t taus_stride;
  E *v, *u;  // null if no product follows
  int rows_above;
  int64_t ld_reflectors, reflectors_stride;
  Offset<E> matrix, taus_at, inverses, partial, t;
  Offset<V> squares;

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int ld_shared = n | 1;
    const team::PanelWork<E> work{.taus = taus_at.In(slice),
                                  .inverses = inverses.In(slice),
                                  .partial = partial.In(slice),
                                  .squares = squares.In(slice),
                                  .t = t.In(slice),
                                  .ldt = ld_shared};
    E* const panel = matrix.In(slice);
    const E* const source = a + i * stride;
    team::Move<E>(
        team, m, n, [=, this](int row, int col) { return LoadGlobal(source + row * ld + col); },
        [=](int row, int col, E x) { panel[row * ld_shared + col] = x; });
    if (given) {
      LoadArray(team, n, taus_in + i * taus_stride, work.taus);
      team::GivenPanel(team, m, n, panel, ld_shared, work);
    } else {
      team::FactorPanel(team, m, n, panel, ld_shared, work);
      E* const target = factors + i * stride;
      team::Move<E>(
          team, m, n,
          [=, this](int row, int col) {
            return packed || row <= col ? panel[row * ld_shared + col] : E{};
          },
          [=, this](int row, int col, E x) { StoreGlobal<E>(x, target + row * ld + col); });
      if (packed) StoreArray(team, n, work.taus, taus + i * taus_stride);
    }
    if (v == nullptr) return;
    const int64_t first = i * reflectors_stride;
    const auto put = [&](int row, int col, E x, E y) {
      const int64_t place = first + row * ld_reflectors + col;
      StoreGlobal<E>(x, v + place);
      StoreGlobal<E>(y, u + place);
    };
    team.Each([&](int thread) {
      team::ForEachElement(team::Grid(team.size(), n), thread, 0, n, 0, rows_above,
                           [&](int col, int row) { put(row, col, E{}, E{}); });
    });
    team::StorePanel(team, m, n, panel, ld_shared, work,
                     [&](int row, int col, E x, E y) { put(rows_above + row, col, x, y); });
  }
};

template <class E>
void LaunchPanel(cudaStream_t stream, int64_t batch, QrPanel<E> job) {
  using V = RealElement<E>;
  SharedLayout layout(sizeof(V));
  job.matrix = layout.Take<E>(static_cast<int64_t>(job.m) * (job.n | 1));
  job.taus_at = layout.Take<E>(job.n);
  job.inverses = layout.Take<E>(job.n);
  job.partial = layout.Take<E>(kGlobalThreads);
  job.squares = layout.Take<V>(kGlobalThreads);
  job.t = layout.Take<E>(job.n * (job.n | 1));
  LaunchTeams(stream, job, batch, kGlobalThreads, layout);
}

// The first `rows` rows of the upper triangles of row-major matrices.
template <class E>
struct UpperRows {
  const E* a;
  E* r;
  int64_t a_size;
  MatrixElements elements;
  int64_t n;

  __device__ void operator()(int64_t place) const {
    const auto [matrix, i, j] = elements(place);
    const E* const factors = a + matrix * a_size;
    const auto at = [&](int64_t row, int64_t col) { return LoadGlobal(factors + row * n + col); };
    StoreGlobal<E>(WithoutReflectors(i, j, at), r + place);
  }
};

// QR by panels. Panels that lie side by side form a block. Each panel changes the other columns of
// its block, and the block changes the columns beyond it: few wide products are faster than many
// narrow ones. The factors are made in `r` if that has all rows, else in `q`, else in scratch
// memory.
template <class T>
class PanelQr {
  using E = Element<T>;

 public:
  PanelQr(cudaStream_t stream, DeviceScratch& scratch, const QrProblem<E>& problem)
      : stream_(stream), problem_(problem), m_(problem.m), n_(problem.n) {
    const int64_t shared = SharedBytes();
    for (int64_t first = 0; first < problem.count; first += blocks_.back().cols) {
      const int64_t width = QrPanelColumns(m_ - first, sizeof(T), shared);
      blocks_.push_back(
          {first, std::min(kPanelsOfBlock * width, problem.count - first), width, m_ - first});
      widest_ = std::max(widest_, blocks_.back().cols);
    }
    reflectors_size_ = m_ * (problem.q_cols > 0 ? problem.count : widest_);
    products_size_ = widest_ * problem.Columns();
    const bool own = !problem.factored && problem.r_rows < m_ && problem.q_cols < n_;
    const int64_t factors_size = own ? m_ * n_ : 0;
    const int64_t bytes =
        (2 * reflectors_size_ + products_size_ + factors_size) * static_cast<int64_t>(sizeof(T));
    const int64_t parts = (problem.batch * bytes + kPanelScratchBytes - 1) / kPanelScratchBytes;
    most_ = (problem.batch + parts - 1) / parts;
    v_ = scratch.Take<T>(most_ * reflectors_size_);
    u_ = scratch.Take<T>(most_ * reflectors_size_);
    products_ = scratch.Take<T>(most_ * products_size_);
    if (own) factors_ = scratch.Take<T>(most_ * factors_size);
  }

  void Run() {
    const LentBlas lent(stream_);
    blas_ = lent.get();
    for (first_ = 0; first_ < problem_.batch; first_ += most_) {
      count_ = std::min(most_, problem_.batch - first_);
      if (!problem_.factored) Factor();
      if (problem_.q_cols > 0) MakeQ();
    }
  }

 private:
  // The block's reflectors are H = I - U Vᴴ, where V and U have `rows` rows: those from row `first`
  // of the matrix on.
  struct Block {
    int64_t first, cols, width, rows;

    int64_t end() const { return first + cols; }
  };
  struct Panel {
    int64_t first, cols;

    int64_t end() const { return first + cols; }
  };

  template <class Body>
  void ForEachPanel(const Block& block, Body&& body) {
    for (int64_t first = block.first; first < block.end(); first += block.width) {
      body(Panel{first, std::min(block.width, block.end() - first)});
    }
  }

  // V or U from a row of the matrix and a reflector on.
  Submatrix<T> ReflectorsFrom(T* data, const Block& block, int64_t row, int64_t reflector) const {
    if (problem_.q_cols > 0) data += block.first * m_;
    return {data + (row - block.first) * block.cols + (reflector - block.first), block.cols,
            reflectors_size_};
  }

  template <class X>
  X* OfTaus(X* taus, const Panel& panel) const {
    return taus == nullptr ? nullptr : taus + first_ * problem_.count + panel.first;
  }

  // Makes the reflectors of a panel in `factors`, or reads those that are given.
  void Reflect(const Block& block, const Panel& panel, E* factors) {
    const bool last = panel.end() == n_ && problem_.q_cols == 0;
    const int64_t place = panel.first * n_ + panel.first;
    const E* const given = problem_.a + first_ * m_ * n_;
    const auto from = [&](T* data) {
      return last ? nullptr
                  : AsElements(ReflectorsFrom(data, block, block.first, panel.first).data);
    };
    LaunchPanel<E>(stream_, count_,
                   {.m = ToInt(m_ - panel.first),
                    .n = ToInt(panel.cols),
                    .a = (factors == nullptr ? given : factors) + place,
                    .ld = n_,
                    .stride = m_ * n_,
                    .given = problem_.factored,
                    .taus_in = OfTaus(problem_.taus_in, panel),
                    .factors = factors == nullptr ? nullptr : factors + place,
                    .packed = problem_.packed,
                    .taus = OfTaus(problem_.taus, panel),
                    .taus_stride = problem_.count,
                    .v = from(v_),
                    .u = from(u_),
                    .rows_above = ToInt(panel.first - block.first),
                    .ld_reflectors = block.cols,
                    .reflectors_stride = reflectors_size_});
  }

  // x -= left (rightᴴ x) for `count` reflectors, rows of x from `row` on, and columns from `col` to
  // `end`. The matrices x are row-major with `cols` columns. Their first `zeros` rows here are
  // zero.
  void Apply(Submatrix<T> left, Submatrix<T> right, int64_t count, T* x, int64_t cols, int64_t row,
             int64_t col, int64_t end, int64_t zeros = 0) {
    const int64_t rows = m_ - row, width = end - col;
    if (width == 0) return;
    const Submatrix<T> products{products_, width, products_size_};
    const Submatrix<T> changed{x + row * cols + col, cols, m_ * cols};
    const auto below = [=](Submatrix<T> part) {
      part.data += zeros * part.ld;
      return part;
    };
    Multiply<T>(blas_, count_, count, width, rows - zeros, T(1), below(right).Adjoint().Read(),
                below(changed).Read(), T(0), products);
    Multiply<T>(blas_, count_, rows, width, count, T(-1), left.Read(), products.Read(), T(1),
                changed);
  }

  // Joins a panel to those before it in its block: (I - U Vᴴ) (I - U₂ V₂ᴴ) = I - U Vᴴ - U₃ V₂ᴴ,
  // where U₃ = U₂ - U (Vᴴ U₂).
  void Join(const Block& block, const Panel& panel) {
    const int64_t before = panel.first - block.first;
    if (before == 0) return;
    const Submatrix<T> products{products_, panel.cols, products_size_};
    const auto from = [&](T* data, int64_t row, int64_t reflector) {
      return ReflectorsFrom(data, block, row, reflector);
    };
    Multiply<T>(blas_, count_, before, panel.cols, m_ - panel.first, T(1),
                from(v_, panel.first, block.first).Adjoint().Read(),
                from(u_, panel.first, panel.first).Read(), T(0), products);
    Multiply<T>(blas_, count_, block.rows, panel.cols, before, T(-1),
                from(u_, block.first, block.first).Read(), products.Read(), T(1),
                from(u_, block.first, panel.first));
  }

  void Factor() {
    E* const r = problem_.r + first_ * problem_.r_rows * n_;
    E* made = AsElements(factors_);
    if (problem_.r_rows == m_) {
      made = r;
    } else if (factors_ == nullptr) {
      made = problem_.q + first_ * m_ * n_;
    }
    T* const factors = reinterpret_cast<T*>(made);
    Copy(stream_, count_ * m_ * n_, problem_.a + first_ * m_ * n_, made);
    for (const Block& block : blocks_) {
      const bool joined = problem_.q_cols > 0 || block.end() < n_;
      ForEachPanel(block, [&](const Panel& panel) {
        const auto of = [&](T* data) {
          return ReflectorsFrom(data, block, panel.first, panel.first);
        };
        Reflect(block, panel, made);
        Apply(of(v_), of(u_), panel.cols, factors, n_, panel.first, panel.end(), block.end());
        if (joined) Join(block, panel);
      });
      const auto of = [&](T* data) {
        return ReflectorsFrom(data, block, block.first, block.first);
      };
      Apply(of(v_), of(u_), block.cols, factors, n_, block.first, block.end(), n_);
    }
    if (made != r && problem_.r_rows > 0) {
      ForEach(
          stream_, count_ * problem_.r_rows * n_,
          UpperRows<E>{
              .a = made, .r = r, .a_size = m_ * n_, .elements = {problem_.r_rows, n_}, .n = n_});
    }
  }

  // The blocks from the last to the first change the rows and columns from theirs on. Before that,
  // the columns of a block are those of the identity: they become I - U Vᴴ, and the block's rows of
  // the other columns are zero.
  void MakeQ() {
    const int64_t cols = problem_.q_cols;
    E* const made = problem_.q + first_ * m_ * cols;
    T* const q = reinterpret_cast<T*>(made);
    ForEach(stream_, count_ * m_ * cols, WriteIdentity<E>{.elements = {m_, cols}, .x = made});
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
      if (problem_.factored) {
        ForEachPanel(*block, [&](const Panel& panel) {
          Reflect(*block, panel, nullptr);
          Join(*block, panel);
        });
      }
      const Submatrix<T> u = ReflectorsFrom(u_, *block, block->first, block->first);
      const Submatrix<T> v = ReflectorsFrom(v_, *block, block->first, block->first);
      const Submatrix<T> own{q + block->first * cols + block->first, cols, m_ * cols};
      Multiply<T>(blas_, count_, block->rows, block->cols, block->cols, T(-1), u.Read(),
                  v.Adjoint().Read(), T(1), own);
      Apply(u, v, block->cols, q, cols, block->first, block->end(), cols, block->cols);
    }
  }

  cudaStream_t stream_;
  QrProblem<E> problem_;
  int64_t m_, n_;
  std::vector<Block> blocks_;
  int64_t widest_ = 0, reflectors_size_ = 0, products_size_ = 0;
  int64_t most_ = 0, first_ = 0, count_ = 0;  // the matrices that go together
  T *v_ = nullptr, *u_ = nullptr, *products_ = nullptr, *factors_ = nullptr;
  vendor::Blas blas_ = nullptr;
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
               On{GpuPath::kPanels, [&] { PanelQr<T>(stream, scratch, problem).Run(); }},
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
