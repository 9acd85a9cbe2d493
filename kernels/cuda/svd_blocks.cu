// Singular values and vectors of a batch by one-sided Jacobi with blocks of columns.
//
// A tall matrix, or the adjoint of a wide one, is scaled and factored as Q R, which makes Jacobi's
// method converge in few sweeps. The columns of Rᴴ are rotated. They and the columns of V are the
// rows of one row-major array, block by block. A round takes three launches, whatever the batch:
//
//   1. the products of the rows of each pair of blocks, by cuBLAS
//   2. the rotations that make these rows orthogonal, by a thread block for each pair
//   3. the rotated rows, by cuBLAS
//
// The blocks of a pair are neighbours and change places as they are rotated. Pairs begin at even
// blocks and at odd blocks in turn. After as many rounds as there are blocks, their order is
// reversed and each has met each other. Zeros before and after the rows of the batch give the first
// and last block a neighbour in the odd rounds. A pair of blocks of two matrices does not turn.
#include "kernels/cuda/handles.h"
#include "kernels/cuda/iterative.h"
#include "kernels/cuda/panels.h"
#include "kernels/cuda/qr_problem.h"
#include "kernels/cuda/svd_path.h"
#include "kernels/cuda/svd_problem.h"
#include "kernels/team/gram_jacobi.h"

namespace linalg::cuda {
namespace {

// The scaled matrices, or the adjoints of wide ones. Matrices that are not finite become the
// identity.
template <class E>
struct LoadTall {
  FindScales<E> measured;
  MatrixElements elements;  // of the tall matrices
  int64_t rows, cols;
  bool tall;
  E* target;

  __device__ void operator()(int64_t place) const {
    using V = RealElement<E>;
    const auto [matrix, i, j] = elements(place);
    E x = FromReal<E>(V(i == j));
    if (measured.info[matrix] == 0) {
      const E given = measured.counted(matrix, tall ? i * cols + j : j * rows + i);
      x = measured.scales[matrix] * (tall ? given : Conj(given));
    }
    StoreGlobal<E>(x, target + place);
  }
};

// Rows of the columns of Rᴴ, with those of the identity beside them. Rows beyond n are zero.
template <class E>
struct LoadRows {
  const E* r;
  int64_t n;
  MatrixElements elements;
  E* target;

  __device__ void operator()(int64_t place) const {
    using V = RealElement<E>;
    const auto [matrix, i, j] = elements(place);
    E x = FromReal<E>(V(i < n && j == i + n));
    if (i < n && j < n) x = Conj(LoadGlobal(r + (matrix * n + i) * n + j));
    StoreGlobal<E>(x, target + place);
  }
};

// The rotations of the pairs of blocks, `rows` rows each. The halves of a rotated pair are
// exchanged.
template <class E>
struct RotatePairs {
  static constexpr int kMostThreads = kGlobalThreads;
  using V = RealElement<E>;
  int rows;
  LongDivider by_pairs;  // pairs of a matrix
  bool odd;              // the first pair of a matrix has a block of the matrix before
  V tolerance;
  const E* products;
  E* rotations;
  const int32_t* turned_before;  // by matrix, of the sweep before; null in the first sweep
  int32_t* turned;
  int32_t* any;
  Offset<E> gram, rotation;
  Offset<team::GramRotation<E>> turns;

  __device__ void Run(const Team& team, int64_t pair, char* slice) const {
    const int64_t matrix = by_pairs(pair), size = static_cast<int64_t>(rows) * rows;
    const bool divided = odd && matrix * by_pairs.divisor() == pair;
    E* const target = rotations + pair * size;
    if (divided || (turned_before != nullptr && turned_before[matrix] == 0)) {
      return StoreMatrix(team, rows, rows, target,
                         [](int i, int j) { return FromReal<E>(V(i == j)); });
    }
    const int ld = rows | 1;
    const team::GramWork<E> work{.gram = gram.In(slice),
                                 .rotation = rotation.In(slice),
                                 .ld = ld,
                                 .rotations = turns.In(slice)};
    LoadMatrix(team, products + pair * size, rows, rows, work.gram, ld);
    const bool found = team::RotateGram(team, rows, tolerance, kSweepsOfPair, work);
    const int half = rows / 2;
    StoreMatrix(team, rows, rows, target, [=](int i, int j) {
      return work.rotation[(i < half ? i + half : i - half) * ld + j];
    });
    team.Each([&](int thread) {
      if (thread == 0 && found) turned[matrix] = *any = 1;
    });
  }
};

// The norms of the rows, by a warp each. Rounding errors of many rotations lengthen both parts of a
// row alike, so a singular value is their ratio. Without vectors the second part is missing.
template <class E>
struct NormsOfRows {
  static constexpr int kMostThreads = kBlockThreads;
  using V = RealElement<E>;
  int n;
  bool vectors;
  const E* rows;
  V* values;
  V* lengths;  // of the second parts

  __device__ void Run(const Team& team, int64_t row, char*) const {
    const int64_t width = vectors ? 2 * int64_t{n} : n;
    const auto norm = [&](const E* x) {
      return Sqrt(team.template Sum<V>([&](int thread) {
        V sum{};
        for (int j = thread; j < n; j += team.size()) sum = NormAdd(LoadGlobal(x + j), sum);
        return sum;
      }));
    };
    const V first = norm(rows + row * width),
            second = vectors ? norm(rows + row * width + n) : V(1);
    team.Each([&](int thread) {
      if (thread != 0) return;
      values[row] = second > V(0) ? first / second : V(0);
      lengths[row] = second;
    });
  }
};

// Sorts the singular values of a matrix. `status` becomes 1 where vectors are wanted and a row is
// too short for a direction.
template <class E>
struct SortValues {
  static constexpr int kMostThreads = kGlobalThreads;
  using V = RealElement<E>;
  int n, padded;
  bool vectors;
  const V* values;
  V* sorted;
  int32_t* order;
  const int32_t* unfinished;
  int32_t* status;
  Offset<V> copy;

  __device__ void Run(const Team& team, int64_t matrix, char* slice) const {
    V* const own = copy.In(slice);
    LoadArray(team, padded, values + matrix * padded, own);
    const bool lost = team.Any([&](int thread) {
      bool found = false;
      for (int j = thread; j < padded; j += team.size()) {
        const V value = own[j];
        int place = 0;
        for (int k = 0; k < padded; ++k) place += own[k] > value || (own[k] == value && k < j);
        if (place >= n) continue;
        StoreGlobal<V>(value, sorted + matrix * n + place);
        order[matrix * n + place] = j;
        found |= vectors && team::IsNull(value);
      }
      return found;
    });
    team.Each([&](int thread) {
      if (thread == 0) status[matrix] = lost || unfinished[matrix] != 0;
    });
  }
};

// The vectors of the sorted rows: those of R to `near`, n by n, and those of Q's side to `far`. A
// tall matrix has near = Vᴴ. A wide one has near = U, and far is conjugated.
template <class E>
struct WriteVectors {
  using V = RealElement<E>;
  MatrixElements elements;
  int64_t n, padded;
  bool tall;
  const E* rows;
  const V* sorted;
  const V* lengths;
  const int32_t* order;
  E* near;
  E* far;

  __device__ void operator()(int64_t place) const {
    const auto [matrix, k, j] = elements(place);
    const int64_t row = matrix * padded + order[matrix * n + k];
    const V length = lengths[row];
    const E* const x = rows + row * 2 * n + j;
    const E first = V(1) / (sorted[matrix * n + k] * length) * LoadGlobal(x);
    const E second = V(1) / length * LoadGlobal(x + n);
    if (tall) {
      StoreGlobal<E>(Conj(first), near + place);
      StoreGlobal<E>(second, far + place);
    } else {
      StoreGlobal<E>(first, near + (matrix * n + j) * n + k);
      StoreGlobal<E>(Conj(second), far + place);
    }
  }
};

// A part of the batch at a time.
template <class T>
class BlockJacobi {
  using E = Element<T>;
  using V = Real<T>;

 public:
  BlockJacobi(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
              const SvdProblem<E>& problem)
      : stream_(stream),
        problem_(problem),
        batch_(batch),
        n_(problem.Shorter()),
        rows_(2 * JacobiBlockRows<T>(n_)),
        pairs_((n_ + rows_ - 1) / rows_),
        padded_(pairs_ * rows_),
        width_(problem.vectors ? 2 * n_ : n_) {
    const int64_t most = std::max<int64_t>(
        1, kJacobiBlocksBytes / (2 * padded_ * (width_ + rows_) * static_cast<int64_t>(sizeof(T))));
    const int64_t parts = (batch + most - 1) / most;
    most_ = (batch + parts - 1) / parts;
    const int64_t edge = rows_ / 2 * width_, size = most_ * padded_ * width_ + 2 * edge;
    const int64_t pair_count = most_ * pairs_ + 1;
    for (T*& x : arrays_) {
      x = scratch.Take<T>(size);
      Check(cudaMemsetAsync(x, 0, edge * sizeof(T), stream), "cudaMemsetAsync");
    }
    products_ = scratch.Take<T>(pair_count * rows_ * rows_);
    rotations_ = scratch.Take<T>(pair_count * rows_ * rows_);
    for (int32_t*& x : turned_) x = scratch.Take<int32_t>(most_);
    any_ = scratch.Take<int32_t>(1);
    values_ = scratch.Take<V>(most_ * padded_);
    lengths_ = scratch.Take<V>(most_ * padded_);
    order_ = scratch.Take<int32_t>(most_ * n_);
    status_ = scratch.Take<int32_t>(batch);
    if (problem.vectors) far_ = scratch.Take<T>(most_ * n_ * n_);
  }

  // Returns the status of each matrix, given Q and R.
  std::vector<int32_t> Run(const T* q, const T* r) {
    const LentBlas lent(stream_);
    blas_ = lent.get();
    for (int64_t first = 0; first < batch_; first += most_) {
      const int64_t count = std::min(most_, batch_ - first);
      Load(count, r + first * n_ * n_);
      const int32_t* const unfinished = Orthogonalise(count);
      Sort(first, count, unfinished);
      if (problem_.vectors) Write(first, count, q + first * problem_.Longer() * n_);
    }
    std::vector<int32_t> status(batch_);
    Check(cudaMemcpyAsync(status.data(), status_, batch_ * sizeof(int32_t), cudaMemcpyDeviceToHost,
                          stream_),
          "cudaMemcpyAsync");
    Check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return status;
  }

 private:
  // The rows of the matrices, between rows of zeros.
  T* Rows(int array) const { return arrays_[array] + rows_ / 2 * width_; }

  void Load(int64_t count, const T* r) {
    const int64_t edge = rows_ / 2 * width_;
    for (T* const x : arrays_) {
      Check(cudaMemsetAsync(x + edge + count * padded_ * width_, 0, edge * sizeof(T), stream_),
            "cudaMemsetAsync");
    }
    now_ = 0;
    ForEach(stream_, count * padded_ * width_,
            LoadRows<E>{.r = AsElements(r),
                        .n = n_,
                        .elements = {padded_, width_},
                        .target = AsElements(Rows(now_))});
  }

  // Returns for each matrix whether its last sweep has turned it.
  const int32_t* Orthogonalise(int64_t count) {
    const int64_t blocks = 2 * pairs_;
    int32_t* before = nullptr;
    for (int sweep = 0;; ++sweep) {
      int32_t* const turned = turned_[sweep % 2];
      Check(cudaMemsetAsync(turned, 0, count * sizeof(int32_t), stream_), "cudaMemsetAsync");
      Check(cudaMemsetAsync(any_, 0, sizeof(int32_t), stream_), "cudaMemsetAsync");
      for (int64_t round = 0; round < blocks; ++round) {
        const bool odd = round % 2 != 0;
        if (odd && pairs_ == 1) continue;
        Round(count, odd, before, turned);
      }
      int32_t any;
      Check(cudaMemcpyAsync(&any, any_, sizeof(any), cudaMemcpyDeviceToHost, stream_),
            "cudaMemcpyAsync");
      Check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
      if (any == 0 || sweep + 1 == kJacobiSweeps) return turned;
      before = turned;
    }
  }

  void Round(int64_t count, bool odd, const int32_t* before, int32_t* turned) {
    const int64_t pairs = count * pairs_ + (odd ? 1 : 0), pair_size = rows_ * rows_;
    const int64_t start = odd ? -rows_ / 2 * width_ : 0;
    const Submatrix<T> x{Rows(now_) + start, width_, rows_ * width_},
        y{Rows(1 - now_) + start, width_, rows_ * width_}, products{products_, rows_, pair_size},
        rotations{rotations_, rows_, pair_size};
    Multiply<T>(blas_, pairs, rows_, rows_, n_, T(1), x.Read(), x.Adjoint().Read(), T(0), products);
    SharedLayout layout(sizeof(V));
    const int64_t elements = rows_ * (rows_ | 1);
    const RotatePairs<E> job{.rows = ToInt(rows_),
                             .by_pairs = LongDivider(pairs_),
                             .odd = odd,
                             .tolerance = JacobiTolerance<V>(ToInt(n_)),
                             .products = AsElements(products_),
                             .rotations = AsElements(rotations_),
                             .turned_before = before,
                             .turned = turned,
                             .any = any_,
                             .gram = layout.Take<E>(elements),
                             .rotation = layout.Take<E>(elements),
                             .turns = layout.Take<team::GramRotation<E>>(rows_ / 2)};
    LaunchTeams(stream_, job, pairs, rows_ == 64 ? kGlobalThreads : kGlobalThreads / 2, layout);
    Multiply<T>(blas_, pairs, rows_, width_, rows_, T(1), rotations.Read(), x.Read(), T(0), y);
    now_ = 1 - now_;
  }

  void Sort(int64_t first, int64_t count, const int32_t* unfinished) {
    LaunchTeams(stream_,
                NormsOfRows<E>{.n = ToInt(n_),
                               .vectors = problem_.vectors,
                               .rows = AsElements(Rows(now_)),
                               .values = values_,
                               .lengths = lengths_},
                count * padded_, 32, SharedLayout(sizeof(V)));
    SharedLayout layout(sizeof(V));
    const SortValues<E> job{.n = ToInt(n_),
                            .padded = ToInt(padded_),
                            .vectors = problem_.vectors,
                            .values = values_,
                            .sorted = problem_.s + first * n_,
                            .order = order_,
                            .unfinished = unfinished,
                            .status = status_ + first,
                            .copy = layout.Take<V>(padded_)};
    LaunchTeams(stream_, job, count, kGlobalThreads, layout);
  }

  void Write(int64_t first, int64_t count, const T* q) {
    const int64_t m = problem_.Longer();
    const bool tall = problem_.Tall();
    auto* const u = reinterpret_cast<T*>(problem_.u) + first * problem_.LeftSize();
    auto* const vh = reinterpret_cast<T*>(problem_.vh) + first * problem_.RightSize();
    ForEach(stream_, count * n_ * n_,
            WriteVectors<E>{.elements = {n_, n_},
                            .n = n_,
                            .padded = padded_,
                            .tall = tall,
                            .rows = AsElements(Rows(now_)),
                            .sorted = problem_.s + first * n_,
                            .lengths = lengths_,
                            .order = order_,
                            .near = AsElements(tall ? vh : u),
                            .far = AsElements(far_)});
    const Submatrix<const T> from{q, n_, m * n_};
    const Submatrix<T> far{far_, n_, n_ * n_};
    if (tall) {
      Multiply<T>(blas_, count, m, n_, n_, T(1), from, far.Transposed().Read(), T(0),
                  {u, n_, m * n_});
    } else {
      Multiply<T>(blas_, count, n_, m, n_, T(1), far.Read(), from.Adjoint(), T(0), {vh, m, m * n_});
    }
  }

  cudaStream_t stream_;
  SvdProblem<E> problem_;
  int64_t batch_, n_;
  int64_t rows_, pairs_;    // rows of a pair of blocks, and pairs of a matrix
  int64_t padded_, width_;  // rows of a matrix, and their length
  int64_t most_;            // matrices of a part
  T* arrays_[2];
  T *products_, *rotations_, *far_ = nullptr;
  int32_t* turned_[2];
  int32_t *any_, *order_, *status_;
  V *values_, *lengths_;
  int now_ = 0;  // the array with the rows
  vendor::Blas blas_ = nullptr;
};

}  // namespace

template <class T>
std::vector<int64_t> BlockJacobiSvd(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
                                    const SvdProblem<Element<T>>& problem) {
  using E = Element<T>;
  const int64_t m = problem.Longer(), n = problem.Shorter(), size = m * n;
  const auto measured = MeasureBatch<E>(stream, scratch, batch, size,
                                        WholeMatrix<E>{.a = problem.a, .size = size}, problem.info);
  T* const tall = scratch.Take<T>(batch * size);
  T* const r = scratch.Take<T>(batch * n * n);
  T* const q = problem.vectors ? scratch.Take<T>(batch * size) : nullptr;
  ForEach(stream, batch * size,
          LoadTall<E>{.measured = measured,
                      .elements = {m, n},
                      .rows = m,
                      .cols = n,
                      .tall = problem.Tall(),
                      .target = AsElements(tall)});
  SolveQr<T>(stream, scratch,
             {.batch = batch,
              .m = ToInt(m),
              .n = ToInt(n),
              .count = ToInt(n),
              .a = AsElements(tall),
              .r = AsElements(r),
              .r_rows = ToInt(n),
              .q = AsElements(q),
              .q_cols = problem.vectors ? ToInt(n) : 0});
  const auto status = BlockJacobi<T>(stream, scratch, batch, problem).Run(q, r);
  ForEach(stream, batch * n,
          ScaleBack<Real<T>>{.x = problem.s,
                             .by_count = LongDivider(n),
                             .inverses = measured.inverses,
                             .info = problem.info});
  if (problem.vectors) {
    ForEach(stream, batch * problem.LeftSize(),
            FillFailed<E>{
                .x = problem.u, .by_size = LongDivider(problem.LeftSize()), .info = problem.info});
    ForEach(
        stream, batch * problem.RightSize(),
        FillFailed<E>{
            .x = problem.vh, .by_size = LongDivider(problem.RightSize()), .info = problem.info});
  }
  std::vector<int64_t> left;
  for (int64_t i = 0; i < batch; ++i) {
    if (status[i] != 0) left.push_back(i);
  }
  return left;
}

template std::vector<int64_t> BlockJacobiSvd<float>(cudaStream_t, DeviceScratch&, int64_t,
                                                    const SvdProblem<float>&);
template std::vector<int64_t> BlockJacobiSvd<double>(cudaStream_t, DeviceScratch&, int64_t,
                                                     const SvdProblem<double>&);
template std::vector<int64_t> BlockJacobiSvd<std::complex<float>>(
    cudaStream_t, DeviceScratch&, int64_t, const SvdProblem<Complex<float>>&);
template std::vector<int64_t> BlockJacobiSvd<std::complex<double>>(
    cudaStream_t, DeviceScratch&, int64_t, const SvdProblem<Complex<double>>&);

}  // namespace linalg::cuda
