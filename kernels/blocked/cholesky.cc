#include "kernels/blocked/cholesky.h"

#include <bit>
#include <complex>
#include <limits>

#include "kernels/blocked/hermitian.h"

namespace linalg::blocked {
namespace {

// factor = the upper triangle u, or its adjoint.
template <class T>
void WriteFactor(int64_t n, bool lower, Rows<T> u, T* factor) {
  using S = Square<T>;
  using V = Register<T>;
  if (!lower) {
    for (int64_t i = 0; i < n; ++i) {
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
  // Squares that overlap near the diagonal leave what is above it to this.
  for (int64_t i = n % S::kSize == 0 ? n : std::max(n - 2 * S::kSize, int64_t{0}); i < n; ++i) {
    std::fill_n(factor + i * n + i + 1, n - i - 1, T(0));
  }
  const V columns = LaneNumbers<T>();
  ForEachSquareInUpper<T>(n, [&](int64_t i, int64_t j) {
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

// The rows of the tile on the diagonal, of which those below it, and the rows to its right, have
// multiples subtracted. A row r with the pivot p takes conj(r_k) (r / p) from row k: the pivots
// wait for each other, and so need not wait for square roots.
template <class T>
struct DiagonalTile {
  using R = RealElement<T>;
  using V = Register<T>;
  static constexpr int kRegisters = std::max(1, kTileRows / kWidth<T>);

  int first;                                          // its column in `rows`
  T rows[kTileRows][kRegisters * kWidth<T>] = {};     // their negatives, unscaled
  R reciprocals[kTileRows] = {};                      // of the pivots
  R roots[kTileRows] = {}, inverses[kTileRows] = {};  // the factor's diagonal, and its reciprocals

  // The factor of row i, and from 0 on, of what is below it.
  LINALG_INLINE Strided<T> Column(int i) const { return {rows[i] + first, 1, 0}; }

  // Takes row i, of which x has the negative; false if its pivot is not positive. Where the pivot's
  // reciprocal would be out of range, a power of two moves from it to the factors.
  template <int kCols>
  LINALG_INLINE bool Take(int i, const V (&x)[kCols]) {
    using Limits = std::numeric_limits<R>;
    constexpr R kLarge = uint64_t{1} << (Limits::digits + 5), kSmall = R(1) / 16;
#pragma GCC unroll 4
    for (int j = 0; j < kRegisters; ++j) Store<T>(x[j], rows[i] + j * kWidth<T>);
    const R pivot = -std::real(rows[i][first + i]);
    if (!(pivot > 0)) return false;  // NaN is not
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

// Divides the rows of a tile by the triangle on the diagonal, which is the tile's own if kFactor,
// and stores them. Returns 0, or from 1 the first of `count` rows whose pivot is not positive.
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
      row[j] = Spread<V>(diagonal.reciprocals[i]) * tile.x[i][j];
      Store<T>(Spread<V>(diagonal.inverses[i]) * tile.At(i, j), target.At(i, j * kWidth<T>).data);
    }
    tile.template SubtractOne<true>(i + 1, diagonal.Column(i), row);
  }
  return 0;
}

template <class T>
__attribute__((noinline)) int Factor(int64_t n, Rows<T> u) {
  for (int64_t i = 0; i < n; i += kTileRows) {
    const int rows = static_cast<int>(std::min<int64_t>(kTileRows, n - i));
    const int64_t first = i / kWidth<T> * kWidth<T>;
    DiagonalTile<T> diagonal{.first = static_cast<int>(i - first)};
    int failed = 0;
    const auto load = [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
      Tile<T, kTileRows, kCols> tile(u.At(i, j));
      tile.template Subtract<true>(i, u.At(0, i).ReadTransposed(), u.At(0, j));
      return tile;
    };
    const auto factor = [&]<int kCols>(int64_t j, std::integral_constant<int, kCols> of) {
      if constexpr (kCols >= DiagonalTile<T>::kRegisters) {
        auto tile = load(j, of);
        failed = DivideTile<true>(tile, rows, diagonal, u.At(i, j));
        for (int k = 0; k < rows; ++k) *u.At(i + k, i + k).data = diagonal.roots[k];
      }
    };
    const auto divide = [&](int64_t j, auto of) {
      auto tile = load(j, of);
      DivideTile<false>(tile, rows, diagonal, u.At(i, j));
    };
    ForEachGroupOfColumns<T, DiagonalTile<T>::kRegisters>(first, n, factor, divide);
    if (failed != 0) return static_cast<int>(i) + failed;
  }
  return 0;
}

}  // namespace

template <class T>
int Cholesky(int64_t n, HermitianPart part, const T* a, T* factor, const Workspace<T>& workspace) {
  const Rows<T> u = workspace.rows();
  ReadUpper(n, part, a, u);
  // Tiles on the diagonal begin left of it, and compute with numbers there too.
  for (int64_t i = 0; i < n; ++i) {
    const int64_t first = i / kTileRows * kTileRows / kWidth<T> * kWidth<T>;
    std::fill(u.At(i, first).data, u.At(i, i).data, T(0));
  }
  const int info = Factor(n, u);
  if (info == 0) WriteFactor(n, part.lower, u, factor);
  return info;
}

template int Cholesky(int64_t, HermitianPart, const float*, float*, const Workspace<float>&);
template int Cholesky(int64_t, HermitianPart, const double*, double*, const Workspace<double>&);
template int Cholesky(int64_t, HermitianPart, const std::complex<float>*, std::complex<float>*,
                      const Workspace<std::complex<float>>&);
template int Cholesky(int64_t, HermitianPart, const std::complex<double>*, std::complex<double>*,
                      const Workspace<std::complex<double>>&);

}  // namespace linalg::blocked
