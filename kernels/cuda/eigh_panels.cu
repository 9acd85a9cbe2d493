// Hermitian eigenproblems of larger matrices, for a whole batch at a time.
//
// The reduction to tridiagonal form goes by panels of kEighPanel columns. A thread block takes the
// panel of a matrix (kernels/team/tridiagonal_panel.h), and one product of cuBLAS applies it to the
// rest of every matrix. So a panel takes two launches, whatever the batch.
//
// Eigenvalues without vectors take bisection, one thread for each. If vectors are wanted, the
// tridiagonal matrix is divided, and conquered level by level (kernels/team/divide_and_conquer.h).
// A level takes four launches of ours and two products, for all joins of all matrices. QL
// iteration, one thread for a matrix, would take 80 ms for n = 1024, and its rotations as long
// again.
//
// The vectors of the tridiagonal matrix are then multiplied by each panel's reflectors, from the
// last to the first, as Z - V (T (Vᴴ Z)). That is three products for each panel.
//
// Padding makes all leaves of one size: eigenvalues beyond the largest one, which nothing couples
// to the matrix. They are sorted to the end, and dropped.
#include <optional>

#include "kernels/cuda/eigh_problem.h"
#include "kernels/cuda/panels.h"
#include "kernels/cuda/passes.h"
#include "kernels/cuda/sturm.h"
#include "kernels/team/divide_and_conquer.h"
#include "kernels/team/tridiagonal_panel.h"

namespace linalg::cuda {
namespace {

// Columns [first, first + cols) of every matrix.
template <class E>
struct ReduceEighPanel {
  static constexpr int kMostThreads = kGlobalThreads;
  using V = RealElement<E>;

  // The memory of team::ReducePanel. `rows` are those of Vᴴ, Wᴴ and Vᴴ again: the first two thirds
  // and the last two are the factors of the update.
  struct Memory {
    int n, cols;
    E *a, *rows;
    double *d, *e;

    __device__ __forceinline__ E Matrix(int i, int j) const {
      return LoadGlobal(a + static_cast<int64_t>(i) * n + j);
    }
    __device__ __forceinline__ void SetReflector(int k, int i, E x) const {
      StoreGlobal<E>(x, a + static_cast<int64_t>(k) * n + i);
    }
    __device__ __forceinline__ E Panel(int l, int i) const { return LoadGlobal(rows + l * n + i); }
    __device__ __forceinline__ void SetPanel(int l, int i, E x) const {
      StoreGlobal<E>(x, rows + l * n + i);
      if (l < cols) StoreGlobal<E>(x, rows + (2 * cols + l) * n + i);
    }
    __device__ __forceinline__ void SetDiagonal(int k, V x) const { d[k] = x; }
    __device__ __forceinline__ void SetBeside(int k, V x) const { e[k] = x; }
  };

  int n, first, cols;
  E* a;
  E* rows;
  int64_t rows_size;
  E* t;  // of this panel of the first matrix, or null without vectors
  int64_t t_size;
  double* d;  // n for each matrix
  double* e;  // n - 1
  Offset<E> u, products, sums, z, head, taus, triangle;

  ReduceEighPanel(SharedLayout& layout, int n, int cols)
      : n(n),
        cols(cols),
        u(layout.Take<E>(n)),
        products(layout.Take<E>(int64_t{team::ProductRows(kGlobalThreads)} * n)),
        sums(layout.Take<E>(2 * cols * (team::kPanelLanes + 1))),
        z(layout.Take<E>(2 * cols)),
        head(layout.Take<E>(1)),
        taus(layout.Take<E>(cols)),
        triangle(layout.Take<E>(cols * (cols | 1))) {}

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const Memory memory{.n = n,
                        .cols = cols,
                        .a = a + i * n * n,
                        .rows = rows + i * rows_size,
                        .d = d + i * n,
                        .e = e + i * (n - 1)};
    const int ldt = cols | 1;
    const team::ReductionPanelWork<E> work{.u = u.In(slice),
                                           .products = products.In(slice),
                                           .sums = sums.In(slice),
                                           .z = z.In(slice),
                                           .head = head.In(slice),
                                           .taus = taus.In(slice),
                                           .t = triangle.In(slice),
                                           .ldt = ldt};
    team::ReducePanel(team, n, first, cols, memory, work);
    if (t == nullptr) return;
    const int left = ReflectorCount<E>(n) - first, reflectors = left < cols ? left : cols;
    E* const target = t + i * t_size;
    const team::Grid grid(team.size(), kEighPanel);
    team.Phase([&](int thread) {
      team::ForEachElement(grid, thread, 0, reflectors, 0, reflectors, [&](int col, int row) {
        const E x = row <= col ? work.t[row * ldt + col] : E{};
        StoreGlobal<E>(x, target + row * kEighPanel + col);
      });
    });
  }
};

team::DividedSizes SizesOf(int64_t n) { return {ToInt(n), kEighLeaf}; }

// Tridiagonal matrices: n diagonal elements, and n - 1 beside them.
struct Tridiagonals {
  team::DividedSizes sizes;
  const double* d;
  const double* e;

  __device__ __forceinline__ const double* Diagonal(int64_t matrix) const {
    return d + matrix * sizes.n;
  }
  __device__ __forceinline__ const double* Beside(int64_t matrix) const {
    return e + matrix * (sizes.n - 1);
  }
};

template <class V>
struct SolveEighLeaf {
  static constexpr int kMostThreads = kBlockThreads;
  static constexpr int64_t kUnit = alignof(team::RotationPair<V>);
  Tridiagonals matrices;
  LongDivider by_leaves;
  V* q;            // leaf by leaf
  double* values;  // leaf
  int32_t* left;   // elements that did not vanish
  int most_rotations, most_sweeps;
  Offset<V> vectors, rounded, shears;
  Offset<team::RotationPair<V>> rotations;
  Offset<double> diagonal, beside;
  Offset<team::QlSweep> sweeps;
  Offset<team::QlProgress> progress;
  Offset<int32_t> order;

  SolveEighLeaf(SharedLayout& layout, const Tridiagonals& matrices)
      : SolveEighLeaf(layout, matrices, matrices.sizes.leaf) {}

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const int64_t matrix = by_leaves(i);
    const int leaf = matrices.sizes.leaf;
    const team::LeafWork<V> work{.vectors = vectors.In(slice),
                                 .ld = leaf | 1,
                                 .rounded = rounded.In(slice),
                                 .d = diagonal.In(slice),
                                 .e = beside.In(slice),
                                 .record = {.shears = shears.In(slice),
                                            .most_rotations = most_rotations,
                                            .sweeps = sweeps.In(slice),
                                            .most_sweeps = most_sweeps},
                                 .rotations = rotations.In(slice),
                                 .order = order.In(slice),
                                 .progress = progress.In(slice)};
    const auto ordered =
        team::SolveLeaf(team, matrices.sizes, static_cast<int>(i - matrix * by_leaves.divisor()),
                        matrices.Diagonal(matrix), matrices.Beside(matrix), work);
    double* const target = values + i * leaf;
    team.Phase([&](int thread) {
      for (int k = thread; k < leaf; k += team.size()) target[k] = work.d[work.order[k]];
    });
    StoreMatrix(team, leaf, leaf, q + i * leaf * leaf,
                [&](int row, int col) { return work.vectors[row * work.ld + work.order[col]]; });
    StoreInfo(team, ordered.info, left + i);
  }

 private:
  SolveEighLeaf(SharedLayout& layout, const Tridiagonals& matrices, int leaf)
      : matrices(matrices),
        by_leaves(matrices.sizes.leaves),
        q(nullptr),
        values(nullptr),
        left(nullptr),
        most_rotations(leaf * leaf),
        most_sweeps(2 * leaf),
        vectors(layout.Take<V>(leaf * (leaf | 1))),
        rounded(layout.Take<V>(leaf)),
        shears(layout.Take<V>(most_rotations)),
        rotations(layout.Take<team::RotationPair<V>>(2 * leaf)),
        diagonal(layout.Take<double>(leaf)),
        beside(layout.Take<double>(leaf)),
        sweeps(layout.Take<team::QlSweep>(most_sweeps)),
        progress(layout.Take<team::QlProgress>(1)),
        order(layout.Take<int32_t>(leaf)) {}
};

// The joins of a level: matrices of order `size` from pairs of half of it.
struct EighLevel {
  Tridiagonals matrices;
  int size;
  LongDivider by_size, by_joins;  // by_joins: those of a matrix
  const double* halves;           // their eigenvalues
  team::Merge first;              // of the first matrix

  __device__ __forceinline__ team::Merge Merge(int64_t join) const {
    const int64_t at = join * size;
    return {.size = size,
            .poles = first.poles + at,
            .z = first.z + at,
            .exact = first.exact + at,
            .row = first.row + at,
            .rotations = first.rotations + at,
            .counts = first.counts + join,
            .roots = first.roots + at,
            .joined = first.joined + at,
            .values = first.values + at,
            .source = first.source + at};
  }
  __device__ __forceinline__ double Joint(int64_t join) const {
    const int64_t matrix = by_joins(join);
    const int place = static_cast<int>(join - matrix * by_joins.divisor());
    return matrices.sizes.Joint(matrices.Beside(matrix), place * size + size / 2);
  }
};

template <class V>
struct DeflateEigh {
  static constexpr int kMostThreads = kBlockThreads;
  EighLevel level;
  const V* q;  // the vectors of the halves
  Offset<double> d, z;
  Offset<int> row;

  DeflateEigh(SharedLayout& layout, const EighLevel& level, const V* q)
      : level(level),
        q(q),
        d(layout.Take<double>(level.size)),
        z(layout.Take<double>(level.size)),
        row(layout.Take<int>(level.size)) {}

  __device__ void Run(const Team& team, int64_t join, char* slice) const {
    const int half = level.size / 2;
    const double joint = level.Joint(join);
    const V* const last_row = q + (2 * join + 1) * half * half - half;
    const auto weight = [&](int r) -> double {
      if (r < half) return last_row[r];
      const double x = last_row[r];  // the first row of the second half follows
      return joint < 0 ? -x : x;
    };
    team::Deflate(team, Abs(joint), level.halves + join * level.size, weight, level.Merge(join),
                  team::DeflationWork{.d = d.In(slice), .z = z.In(slice), .row = row.In(slice)});
  }
};

// The passes over all eigenvalues of a level.
struct JoinEigenvalues {
  EighLevel level;

  __device__ void operator()(int64_t place) const {
    const int64_t join = level.by_size(place);
    team::JoinEigenvalue(level.Merge(join), Abs(level.Joint(join)),
                         static_cast<int>(place - join * level.size));
  }
};
struct PlaceEigenvalues {
  EighLevel level;

  __device__ void operator()(int64_t place) const {
    const int64_t join = level.by_size(place);
    team::PlaceEigenvalue(level.Merge(join), static_cast<int>(place - join * level.size));
  }
};
template <class V>
struct MergeColumns {
  EighLevel level;
  V* vectors;

  __device__ void operator()(int64_t place) const {
    const int64_t join = level.by_size(place), size = level.size;
    team::MergeColumn(level.Merge(join), static_cast<int>(place - join * size),
                      vectors + join * size * size);
  }
};

// Eigenvalues and vectors of tridiagonal matrices, at most `most` of them at a time.
template <class V>
class DivideAndConquer {
 public:
  DivideAndConquer(cudaStream_t stream, DeviceScratch& scratch, int64_t most, int64_t n)
      : stream_(stream), sizes_(SizesOf(n)) {
    const int64_t count = most * sizes_.padded, size = count * sizes_.padded;
    for (int64_t half = sizes_.leaf; 2 * half < sizes_.padded; half *= 2) last_ = 1 - last_;
    vectors_[last_] = scratch.Take<V>(size / 2);
    update_ = scratch.Take<V>(size);
    for (double*& x : values_) x = scratch.Take<double>(count);
    merge_ = {.size = 0,
              .poles = scratch.Take<double>(count),
              .z = scratch.Take<double>(count),
              .exact = scratch.Take<double>(count),
              .row = scratch.Take<int>(count),
              .rotations = scratch.Take<team::MergeRotation>(count),
              .counts = scratch.Take<team::Merge::Counts>(most * sizes_.leaves),
              .roots = scratch.Take<SecularRoot>(count),
              .joined = scratch.Take<double>(count),
              .values = nullptr,
              .source = scratch.Take<int>(count)};
    left_ = scratch.Take<int32_t>(most * sizes_.leaves);
  }

  static int64_t Bytes(int64_t n) {
    const int64_t padded = SizesOf(n).padded;
    constexpr int64_t kNumbers = 6 * sizeof(double) + 2 * sizeof(int) +
                                 sizeof(team::MergeRotation) + sizeof(SecularRoot) +
                                 sizeof(team::Merge::Counts) + sizeof(int32_t);
    return padded * (padded + padded / 2) * static_cast<int64_t>(sizeof(V)) + padded * kNumbers;
  }

  const team::DividedSizes& sizes() const { return sizes_; }
  // Results of the last Run: `padded` eigenvalues of each matrix, and failures of each leaf.
  const double* values() const { return values_[now_]; }
  const int32_t* left() const { return left_; }

  // Writes n by n vectors to `target`.
  void Run(vendor::Blas blas, int64_t count, const double* d, const double* e, V* target) {
    const Tridiagonals matrices{.sizes = sizes_, .d = d, .e = e};
    const int n = sizes_.n, padded = sizes_.padded;
    SharedLayout layout(SolveEighLeaf<V>::kUnit);
    SolveEighLeaf<V> leaf(layout, matrices);
    now_ = 0;
    // Free until the last level, and large enough for half of the padded matrix.
    vectors_[1 - last_] = target;
    leaf.q = vectors_[now_];
    leaf.values = values_[now_];
    leaf.left = left_;
    LaunchTeams(stream_, leaf, count * sizes_.leaves, 32, layout);
    for (int64_t half = sizes_.leaf; half < padded; half *= 2) {
      const int64_t size = 2 * half, joins = padded / size, all = count * joins;
      const V* const q = vectors_[now_];
      team::Merge merge = merge_;
      merge.values = values_[1 - now_];
      const EighLevel level{.matrices = matrices,
                            .size = ToInt(size),
                            .by_size = LongDivider(size),
                            .by_joins = LongDivider(joins),
                            .halves = values_[now_],
                            .first = merge};
      SharedLayout of_join(sizeof(double));
      const DeflateEigh<V> deflate(of_join, level, q);
      LaunchTeams(stream_, deflate, all, kBlockThreads, of_join);
      ForEach(stream_, all * size, JoinEigenvalues{.level = level});
      ForEach(stream_, all * size, PlaceEigenvalues{.level = level});
      ForEach(stream_, all * size, MergeColumns<V>{.level = level, .vectors = update_});
      const bool last = size == padded;
      V* const joined = last ? target : vectors_[1 - now_];
      const int64_t cols = last ? n : size;
      const auto multiply = [&](int64_t row, int64_t rows) {
        Multiply<V>(blas, all, rows, cols, half, V(1),
                    Submatrix<const V>{q + row * half, half, 2 * half * half},
                    Submatrix<const V>{update_ + row * size, size, size * size}, V(0),
                    Submatrix<V>{joined + row * cols, cols, (last ? n : size) * cols});
      };
      multiply(0, half);
      multiply(half, last ? n - half : half);
      now_ = 1 - now_;
    }
  }

 private:
  cudaStream_t stream_;
  team::DividedSizes sizes_;
  V* vectors_[2];
  V* update_;
  double* values_[2];
  team::Merge merge_;
  int32_t* left_;
  int last_ = 0;  // the array of the halves of the last level
  int now_ = 0;   // and of the current one
};

// info becomes the number of elements that did not vanish in any leaf.
struct MergeLeaves {
  int leaves;
  const int32_t* left;
  int32_t* info;

  __device__ void operator()(int64_t i) const {
    if (info[i] != 0) return;
    int32_t sum = 0;
    for (int k = 0; k < leaves; ++k) sum += left[i * leaves + k];
    info[i] = sum;
  }
};

// Rounds and scales the first n of `stride` eigenvalues of each matrix.
template <class V>
struct FinishValues {
  LongDivider by_n;
  int64_t stride;
  const double* from;
  const V* inverses;
  const int32_t* info;
  V* values;

  __device__ void operator()(int64_t place) const {
    const int64_t matrix = by_n(place), i = place - matrix * by_n.divisor();
    values[place] =
        info[matrix] != 0 ? NaN<V>() : inverses[matrix] * static_cast<V>(from[matrix * stride + i]);
  }
};

template <class E>
struct WriteComplex {
  const RealElement<E>* from;
  E* target;

  __device__ void operator()(int64_t i) const { StoreGlobal<E>(FromReal<E>(from[i]), target + i); }
};

template <class T>
class PanelEigh {
  using E = Element<T>;
  using V = RealElement<E>;

 public:
  PanelEigh(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
            const EighProblem<E>& problem)
      : stream_(stream), problem_(problem), n_(problem.n) {
    const bool vectors = problem.vectors != nullptr;
    const int64_t bytes = Bytes(n_, vectors);
    const int64_t parts = (batch * bytes + kPanelScratchBytes - 1) / kPanelScratchBytes;
    most_ = (batch + parts - 1) / parts;
    a_ = scratch.Take<T>(most_ * n_ * n_);
    rows_ = scratch.Take<T>(most_ * RowsSize());
    d_ = scratch.Take<double>(most_ * n_);
    e_ = scratch.Take<double>(most_ * (n_ - 1));
    if (vectors) {
      t_ = scratch.Take<T>(most_ * TSize());
      products_ = scratch.Take<T>(most_ * ProductsSize());
      if constexpr (kIsComplex<T>) real_ = scratch.Take<V>(most_ * n_ * n_);
      divided_.emplace(stream, scratch, most_, n_);
    } else {
      sturm_ = {.n = n_,
                .diagonal = d_,
                .beside = e_,
                .rows = scratch.Take<small::SturmRow<double>>(most_ * n_),
                .inverses = scratch.Take<double>(most_),
                .info = scratch.Take<int32_t>(most_)};
      values_ = scratch.Take<double>(most_ * n_);
    }
  }

  void Run(int64_t batch, const ScaledHermitian<E>& matrices) {
    const LentBlas lent(stream_);
    blas_ = lent.get();
    for (int64_t first = 0; first < batch; first += most_) {
      count_ = std::min(most_, batch - first);
      const EighProblem<E> problem = problem_.From(first);
      const V* const inverses = matrices.inverses + first;
      matrices.copy(first, count_, AsElements(a_));
      Reduce();
      if (problem.vectors != nullptr) {
        auto* const z = reinterpret_cast<T*>(problem.vectors);
        Solve(z);
        MultiplyByReflectors(z);
        const team::DividedSizes& sizes = divided_->sizes();
        ForEach(
            stream_, count_,
            MergeLeaves{.leaves = sizes.leaves, .left = divided_->left(), .info = problem.info});
        Finish(problem, inverses, sizes.padded, divided_->values());
        ForEach(stream_, count_ * n_ * n_,
                FillFailed<E>{
                    .x = problem.vectors, .by_size = LongDivider(n_ * n_), .info = problem.info});
      } else {
        LaunchTeams(stream_, sturm_, count_, kBlockThreads, SharedLayout(sizeof(double)));
        ForEach(stream_, count_ * n_,
                FindEigenvalue<double>{.prepared = sturm_, .values = values_});
        Finish(problem, inverses, n_, values_);
      }
    }
  }

 private:
  static int64_t Panels(int64_t n) { return (n + kEighPanel - 1) / kEighPanel; }
  int64_t RowsSize() const { return 3 * kEighPanel * n_; }
  int64_t TSize() const { return Panels(n_) * kEighPanel * kEighPanel; }
  int64_t ProductsSize() const { return 2 * kEighPanel * n_; }

  // Bytes of scratch memory of a matrix.
  static int64_t Bytes(int64_t n, bool vectors) {
    constexpr int64_t kElement = sizeof(T), kReal = sizeof(V);
    const int64_t reduction = n * (n + 3 * kEighPanel) * kElement;
    if (!vectors) return reduction;
    const int64_t real = kIsComplex<T> ? n * n * kReal : 0;
    return reduction + n * 3 * kEighPanel * kElement + real + DivideAndConquer<V>::Bytes(n);
  }

  void Reduce() {
    for (int64_t first = 0; first < n_; first += kEighPanel) {
      const int64_t cols = std::min<int64_t>(kEighPanel, n_ - first), next = first + cols;
      SharedLayout layout(sizeof(V));
      ReduceEighPanel<E> job(layout, ToInt(n_), ToInt(cols));
      job.first = ToInt(first);
      job.a = AsElements(a_);
      job.rows = AsElements(rows_);
      job.rows_size = RowsSize();
      job.t = t_ == nullptr ? nullptr : AsElements(t_ + first * kEighPanel);
      job.t_size = TSize();
      job.d = d_;
      job.e = e_;
      LaunchTeams(stream_, job, count_, kGlobalThreads, layout);
      const Submatrix<T> left{rows_ + next, n_, RowsSize()};
      const Submatrix<T> right{rows_ + cols * n_ + next, n_, RowsSize()};
      Multiply<T>(blas_, count_, n_ - next, n_ - next, 2 * cols, T(-1), left.Adjoint().Read(),
                  right.Read(), T(1), Submatrix<T>{a_ + next * n_ + next, n_, n_ * n_});
    }
  }

  void Solve(T* z) {
    if constexpr (kIsComplex<T>) {
      divided_->Run(blas_, count_, d_, e_, real_);
      ForEach(stream_, count_ * n_ * n_, WriteComplex<E>{.from = real_, .target = AsElements(z)});
    } else {
      divided_->Run(blas_, count_, d_, e_, z);
    }
  }

  // z := Q z. A reflector of column k changes the rows from k + 1 on.
  void MultiplyByReflectors(T* z) {
    const int64_t reflectors = ReflectorCount<E>(ToInt(n_));
    for (int64_t first = (Panels(n_) - 1) * kEighPanel; first >= 0; first -= kEighPanel) {
      const int64_t cols = std::min<int64_t>(kEighPanel, reflectors - first);
      if (cols <= 0) continue;
      const int64_t rows = n_ - first - 1;
      const Submatrix<T> vectors{a_ + first * n_ + first + 1, n_, n_ * n_};  // Vᴴ
      const Submatrix<T> below{z + (first + 1) * n_, n_, n_ * n_};
      const Submatrix<T> t{t_ + first * kEighPanel, kEighPanel, TSize()};
      const Submatrix<T> products{products_, n_, ProductsSize()},
          scaled{products_ + kEighPanel * n_, n_, ProductsSize()};
      Multiply<T>(blas_, count_, cols, n_, rows, T(1), vectors.Read(), below.Read(), T(0),
                  products);
      Multiply<T>(blas_, count_, cols, n_, cols, T(1), t.Read(), products.Read(), T(0), scaled);
      Multiply<T>(blas_, count_, rows, n_, cols, T(-1), vectors.Adjoint().Read(), scaled.Read(),
                  T(1), below);
    }
  }

  void Finish(const EighProblem<E>& problem, const V* inverses, int64_t stride,
              const double* values) {
    ForEach(stream_, count_ * n_,
            FinishValues<V>{.by_n = LongDivider(n_),
                            .stride = stride,
                            .from = values,
                            .inverses = inverses,
                            .info = problem.info,
                            .values = problem.values});
  }

  cudaStream_t stream_;
  EighProblem<E> problem_;
  int64_t n_;
  int64_t most_, count_ = 0;  // the matrices that go together
  T *a_, *rows_, *t_ = nullptr, *products_ = nullptr;
  V* real_ = nullptr;
  double *d_, *e_;
  std::optional<DivideAndConquer<V>> divided_;
  PrepareSturm<double> sturm_{};
  double* values_ = nullptr;
  vendor::Blas blas_ = nullptr;
};

}  // namespace

template <class T>
bool EighPanelsFit(int64_t n) {
  using E = Element<T>;
  using V = RealElement<E>;
  const team::DividedSizes sizes = SizesOf(n);
  const EighLevel level{.matrices = {.sizes = sizes, .d = nullptr, .e = nullptr},
                        .size = sizes.padded,
                        .by_size = LongDivider(1),
                        .by_joins = LongDivider(1),
                        .halves = nullptr,
                        .first = {}};
  return FitsInShared<ReduceEighPanel<E>>(sizeof(V), ToInt(n), kEighPanel) &&
         FitsInShared<DeflateEigh<V>>(sizeof(double), level, static_cast<const V*>(nullptr));
}

template <class T>
void SolveEighByPanels(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
                       const EighProblem<Element<T>>& problem,
                       const ScaledHermitian<Element<T>>& matrices) {
  PanelEigh<T>(stream, scratch, batch, problem).Run(batch, matrices);
}

#define LINALG_EIGH_BY_PANELS(T)                                            \
  template bool EighPanelsFit<T>(int64_t);                                  \
  template void SolveEighByPanels<T>(cudaStream_t, DeviceScratch&, int64_t, \
                                     const EighProblem<Element<T>>&,        \
                                     const ScaledHermitian<Element<T>>&);
LINALG_EIGH_BY_PANELS(float)
LINALG_EIGH_BY_PANELS(double)
LINALG_EIGH_BY_PANELS(std::complex<float>)
LINALG_EIGH_BY_PANELS(std::complex<double>)
#undef LINALG_EIGH_BY_PANELS

}  // namespace linalg::cuda
