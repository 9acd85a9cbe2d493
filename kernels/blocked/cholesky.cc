#include "kernels/blocked/cholesky.h"

#include <bit>
#include <complex>

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
  for (int64_t i = std::max<int64_t>(n - 2 * S::kSize, 0); i < n; ++i) {
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

// Factors the tile on the diagonal: `rows` of its rows, which stand in `target` too, their diagonal
// elements from `diagonal` on. The diagonal's reciprocals go to `inverse`. Returns 0, or from 1 the
// first row whose pivot is not positive.
template <class T, int kRows, int kCols>
LINALG_INLINE int FactorTile(Tile<T, kRows, kCols>& tile, int rows, Rows<T> diagonal,
                             Rows<T> target, RealElement<T>* inverse) {
  using R = RealElement<T>;
  using V = Register<T>;
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    if (i >= rows) break;
    V row[kCols];
#pragma GCC unroll 8
    for (int j = 0; j < kCols; ++j) {
      row[j] = tile.At(i, j);
      Store<T>(row[j], target.At(i, j * kWidth<T>).data);
    }
    T* const place = diagonal.At(i, i).data;
    const R pivot = std::real(*place);
    if (!(pivot > 0)) return i + 1;  // NaN is not
    const R root = Sqrt(pivot);
    inverse[i] = 1 / root;
#pragma GCC unroll 8
    for (int j = 0; j < kCols; ++j) {
      row[j] = Spread<V>(inverse[i]) * row[j];
      Store<T>(row[j], target.At(i, j * kWidth<T>).data);
    }
    *place = root;
    tile.template SubtractOne<true>(i + 1, diagonal.ReadTransposed().At(0, i), row);
  }
  return 0;
}

template <class T>
__attribute__((noinline)) int Factor(int64_t n, Rows<T> u) {
  using V = Register<T>;
  // Registers that the triangle on the diagonal takes.
  constexpr int kOfTriangle = std::max(1, kTileRows / kWidth<T>);
  RealElement<T> inverse[kTileRows] = {};
  for (int64_t i = 0; i < n; i += kTileRows) {
    const Rows<T> triangle = u.At(i, i);
    const int rows = static_cast<int>(std::min<int64_t>(kTileRows, n - i));
    const int64_t first = i / kWidth<T> * kWidth<T>;
    int failed = 0;
    const auto load = [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
      Tile<T, kTileRows, kCols> tile(u.At(i, j));
      tile.template Subtract<true>(i, u.At(0, i).ReadTransposed(), u.At(0, j));
      return tile;
    };
    const auto factor = [&](int64_t j, auto count) {
      auto tile = load(j, count);
      failed = FactorTile(tile, rows, triangle, u.At(i, j), inverse);
    };
    const auto solve = [&](int64_t j, auto count) {
      auto tile = load(j, count);
      const auto divide = [&](int k, V x) { return Spread<V>(inverse[k]) * x; };
      tile.template Solve<true>(triangle.ReadTransposed(), divide, u.At(i, j));
    };
    ForEachGroupOfColumns<T, kOfTriangle>(first, n, factor, solve);
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
