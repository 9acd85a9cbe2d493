#include "kernels/blocked/cholesky.h"

#include <bit>
#include <complex>
#include <limits>

#include "kernels/blocked/hermitian.h"

namespace linalg::blocked {
namespace {

// The rows of a block. A large matrix is factored block by block.
inline constexpr int64_t kBlockRows = 128;

// Tiles on the diagonal may begin up to this many columns left of it.
template <class T>
inline constexpr int64_t kLeftOfDiagonal = kTileRows + kTileRegisters * kWidth<T>;

// Writes rows [first, last) of the upper triangle u to the factor, or their adjoint to its columns
// if `lower`. Writes zeros to the other triangle there. The conditions of ForEachSquareInUpper
// apply.
template <class T>
void WriteFactor(int64_t n, int64_t first, int64_t last, bool lower, Rows<T> u, T* factor) {
  using S = Square<T>;
  using V = Register<T>;
  if (!lower) {
    for (int64_t i = first; i < last; ++i) {
      std::fill_n(factor + i * n, i, T(0));
      std::copy_n(u.At(i, i).data, n - i, factor + i * n + i);
    }
    return;
  }
  if (n < S::kSize) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i; j < n; ++j) {
        factor[i * n + j] = T(0);
        const auto x = Conj(std::bit_cast<Element<T>>(*u.At(i, j).data));
        factor[j * n + i] = std::bit_cast<T>(x + Element<T>{});  // +0, as in the squares
      }
    }
    return;
  }
  // Near the end of the diagonal squares overlap, so they cannot write the zeros above it.
  const int64_t apart_from_end = n % S::kSize == 0 ? n : n - 2 * S::kSize;
  for (int64_t i = std::max(first, apart_from_end); i < last; ++i) {
    std::fill_n(factor + i * n + i + 1, n - i - 1, T(0));
  }
  const V columns = LaneNumbers<T>();
  ForEachSquareInUpper<T>(n, first, last, [&](int64_t i, int64_t j) {
    S x = S::ReadTransposed(u.At(i, j).data, u.ld);
    const bool apart = j >= i + S::kSize;
#pragma GCC unroll 16
    for (int k = 0; k < S::kSize; ++k) {
      x.x[k] = S::Conj(x.x[k]);
      if (!apart) x.x[k] = columns <= Number<V>(j - i + k) ? x.x[k] : V{};
    }
    x.Write(factor + j * n + i, n);
    if (apart) S{}.Write(factor + i * n + j, n);
  });
}

}  // namespace

// The rows of a tile on the diagonal, as left factors for the rows below and to the right. A row r
// with the pivot p subtracts conj(r_k) (r / p) from row k. So only the pivots depend on each other,
// and none waits for a square root.
template <class T>
struct DiagonalTile {
  using R = RealElement<T>;
  using V = Register<T>;
  static constexpr int kRegisters = std::max(1, kTileRows / kWidth<T>);

  int first;                                          // its column in `rows`
  T rows[kTileRows][kRegisters * kWidth<T>] = {};     // the negatives, unscaled
  R reciprocals[kTileRows] = {};                      // of the pivots
  R roots[kTileRows] = {}, inverses[kTileRows] = {};  // the factor's diagonal and its reciprocals

  // The left factors of row i, indexed by the tile's rows.
  LINALG_INLINE Strided<T> Column(int i) const { return {rows[i] + first, 1, 0}; }

  // Stores row i, whose negative is x. Returns false if its pivot is not positive. If the pivot's
  // reciprocal is out of range, a power of two moves from the reciprocal to the left factors.
  template <int kCols>
  LINALG_INLINE bool Take(int i, const V (&x)[kCols]) {
    using Limits = std::numeric_limits<R>;
    constexpr R kLarge = uint64_t{1} << (Limits::digits + 5), kSmall = R(1) / 16;
#pragma GCC unroll 4
    for (int j = 0; j < kRegisters; ++j) Store<T>(x[j], rows[i] + j * kWidth<T>);
    const R pivot = -std::real(rows[i][first + i]);
    if (!(pivot > 0)) return false;  // also for NaN
    roots[i] = Sqrt(pivot);
    inverses[i] = 1 / roots[i];
    reciprocals[i] = 1 / pivot;
    if (!(reciprocals[i] >= Limits::min() && reciprocals[i] <= Limits::max())) [[unlikely]] {
      const R scale = pivot < 1 ? kLarge : kSmall;
      reciprocals[i] = 1 / (scale * pivot);
      for (T& element : rows[i]) element *= scale;
    }
    return true;
  }
};

namespace {

// Divides the rows of a tile by the triangle on the diagonal and stores them. kFactor marks the
// tile that is that triangle. Returns 0, or the 1-based index of the first of `count` rows whose
// pivot is not positive.
template <bool kFactor, class T, int kCols>
LINALG_INLINE int DivideTile(Tile<T, kTileRows, kCols>& tile, int count, DiagonalTile<T>& diagonal,
                             Rows<T> target) {
  using V = Register<T>;
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
    if (kFactor && i >= count) break;
    if (kFactor && !diagonal.Take(i, tile.x[i])) return i + 1;
    V row[kCols];
#pragma GCC unroll 8
    for (int j = 0; j < kCols; ++j) {
      row[j] = Widen<V>(diagonal.reciprocals[i]) * tile.x[i][j];
      Store<T>(Widen<V>(diagonal.inverses[i]) * tile.At(i, j), target.At(i, j * kWidth<T>).data);
    }
    tile.template SubtractOne<true>(i + 1, diagonal.Column(i), row);
  }
  return 0;
}

// The tile at (i, j), minus the products of the block's rows above it, from row `first` on.
template <int kCols, class T>
LINALG_INLINE Tile<T, kTileRows, kCols> Reduced(Rows<T> u, int64_t first, int64_t i, int64_t j) {
  Tile<T, kTileRows, kCols> tile(u.At(i, j));
  tile.template Subtract<true>(i - first, u.At(first, i).Transposed(), u.At(first, j));
  return tile;
}

}  // namespace

template <class T>
CholeskyFactor<T>::CholeskyFactor(int64_t n) : n_(n), workspace_(n, n) {
  // No two tasks write to the same tile or square, or to elements that a masked square covers.
  static_assert(kTaskColumns<T> % (kTileRegisters * kWidth<T>) == 0);
  static_assert(kTaskColumns<T> % kTileRows == 0 && kBlockRows % kPanel<T> == 0);
  static_assert(kBlockRows % kTileRows == 0 && kBlockRows % kWidth<T> == 0);
  static_assert(kTaskRows % Square<T>::kSize == 0 && kTaskRows >= 2 * Square<T>::kSize);
  const int64_t rows = std::min(n, kBlockRows);
  const bool is_one_block = rows == n;
  for (Block& block : blocks_) {
    if (is_one_block && &block != blocks_) continue;
    block.diagonal.resize((rows + kTileRows - 1) / kTileRows);
    if (is_one_block) continue;
    block.left = AllocateAligned(rows * RoundUp(n, kTileRows) * static_cast<int64_t>(sizeof(T)));
  }
}

template <class T>
CholeskyFactor<T>::~CholeskyFactor() = default;
template <class T>
CholeskyFactor<T>::CholeskyFactor(CholeskyFactor&&) noexcept = default;

// Factors rows [first, last) in these columns alone. Returns 0, or the 1-based index of the first
// pivot that is not positive.
template <class T>
__attribute__((noinline)) int CholeskyFactor<T>::FactorTriangle(int64_t first, int64_t last,
                                                                Block& block) {
  const Rows<T> u = workspace_.rows();
  block.first = first;
  block.last = last;
  for (int64_t i = first; i < last; i += kTileRows) {
    const int rows = static_cast<int>(std::min<int64_t>(kTileRows, n_ - i));
    const int64_t left = i / kWidth<T> * kWidth<T>;
    DiagonalTile<T>& diagonal = block.diagonal[(i - first) / kTileRows];
    diagonal.first = static_cast<int>(i - left);
    int failed = 0;
    const auto factor = [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
      if constexpr (kCols >= DiagonalTile<T>::kRegisters) {
        auto tile = Reduced<kCols>(u, first, i, j);
        failed = DivideTile<true>(tile, rows, diagonal, u.At(i, j));
        for (int k = 0; k < rows; ++k) *u.At(i + k, i + k).data = diagonal.roots[k];
      }
    };
    const auto divide = [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
      auto tile = Reduced<kCols>(u, first, i, j);
      DivideTile<false>(tile, rows, diagonal, u.At(i, j));
    };
    ForEachGroupOfColumns<T, DiagonalTile<T>::kRegisters>(left, last, factor, divide);
    if (failed != 0) return static_cast<int>(i) + failed;
  }
  return 0;
}

// Divides the block's rows by its triangle, in columns [first, last).
template <class T>
__attribute__((noinline)) void CholeskyFactor<T>::DivideColumns(int64_t first, int64_t last,
                                                                Block& block) {
  const Rows<T> u = workspace_.rows();
  ForEachGroupOfColumns<T>(
      first, last, [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
        for (int64_t i = block.first; i < block.last; i += kTileRows) {
          auto tile = Reduced<kCols>(u, block.first, i, j);
          DiagonalTile<T>& diagonal = block.diagonal[(i - block.first) / kTileRows];
          DivideTile<false>(tile, kTileRows, diagonal, u.At(i, j));
        }
      });
  for (int64_t j = first; j < last; j += kTileRows) {
    T* target = block.Left(j);
    for (int64_t k = block.first; k < block.last; ++k, target += kTileRows) {
      std::copy_n(u.At(k, j).data, kTileRows, target);
    }
  }
}

// Trailing update: subtracts the products of the block's rows from the rows below, up to
// `rows_end`, in columns [first, last) of the upper triangle.
template <class T>
__attribute__((noinline)) void CholeskyFactor<T>::SubtractProducts(int64_t rows_end, int64_t first,
                                                                   int64_t last,
                                                                   const Block& block) {
  const Rows<T> u = workspace_.rows();
  ForEachGroupOfColumns<T>(first, last,
                           [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
                             const Rows<T> right = u.At(block.first, j);
                             const int64_t end = std::min(rows_end, j + kCols * kWidth<T>);
                             for (int64_t i = block.last; i < end; i += kTileRows) {
                               Prefetch<kTileRows, kCols>(u.At(i + kTileRows, j));
                               Tile<T, kTileRows, kCols> tile(u.At(i, j));
                               tile.template Subtract<true>(block.last - block.first,
                                                            {block.Left(i), 1, kTileRows}, right);
                               tile.Store(u.At(i, j));
                             }
                           });
}

template <class T>
int CholeskyFactor<T>::FactorBlocks(const RunTasks& run_tasks) {
  int64_t last = std::min(n_, kBlockRows);
  int info = FactorTriangle(0, last, blocks_[0]);
  for (int step = 0; last < n_ && info == 0; ++step) {
    Block &block = blocks_[step % 2], &next = blocks_[(step + 1) % 2];
    ForEachPieceOfColumns<T>(run_tasks, last, n_,
                             [&](int64_t j, int64_t end) { DivideColumns(j, end, block); });
    const int64_t next_last = std::min(n_, last + kBlockRows);
    RunAheadOfPieces<T, /*kLastFirst=*/true>(
        run_tasks, next_last, n_,
        [&](int64_t j, int64_t end) { SubtractProducts(n_, j, end, block); },
        [&] {
          SubtractProducts(next_last, last, next_last, block);
          info = FactorTriangle(last, next_last, next);
        });
    last = next_last;
  }
  return info;
}

template <class T>
int CholeskyFactor<T>::Factor(HermitianPart part, const T* a, T* factor,
                              const RunTasks& run_tasks) {
  const Rows<T> u = workspace_.rows();
  ForEachPieceOfRows(run_tasks, n_, [&](int64_t begin, int64_t end) {
    ReadUpper(n_, begin, end, part, a, u);
    // Tiles on the diagonal begin left of it and compute with these elements.
    for (int64_t i = begin; i < end; ++i) {
      std::fill(u.At(i, std::max(i - kLeftOfDiagonal<T>, int64_t{0})).data, u.At(i, i).data, T(0));
    }
  });
  const int info = FactorBlocks(run_tasks);
  if (info != 0) return info;
  ForEachPieceOfRows(run_tasks, n_, [&](int64_t begin, int64_t end) {
    WriteFactor(n_, begin, end, part.lower, u, factor);
  });
  return 0;
}

template class CholeskyFactor<float>;
template class CholeskyFactor<double>;
template class CholeskyFactor<std::complex<float>>;
template class CholeskyFactor<std::complex<double>>;

}  // namespace linalg::blocked
