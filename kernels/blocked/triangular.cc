// The functions of triangular.h that several factorisations call. A compiler takes long over them,
// so each is compiled once.
#include "kernels/blocked/triangular.h"

#include <complex>

namespace linalg::blocked {

template <bool kConjugate, class T>
void MulSub(int64_t rows, int64_t cols, int64_t depth, Strided<T> a, Rows<T> b, Rows<T> c) {
  for (int64_t k = 0; k < depth; k += kDepth) {
    const int64_t count = std::min(kDepth, depth - k);
    ForEachGroupOfColumns<T>(
        0, cols, [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
          MulSubColumns<kConjugate, kCols>(rows, count, a.At(0, k), b.At(k, j), c.At(0, j));
        });
  }
}

template <bool kConjugate, class T, class D>
void SolveLower(int64_t n, int64_t cols, Strided<T> a, D diagonal, Rows<T> x) {
  for (int64_t first = 0; first < n; first += kDepth) {
    const int64_t count = std::min(kDepth, n - first), next = first + count;
    const Strided<T> block = a.At(first, first);
    ForEachGroupOfColumns<T>(0, cols,
                             [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
                               for (int64_t i = 0; i < count; i += kTileRows) {
                                 SolveLowerTile<kConjugate, kCols>(
                                     i, block.At(i, 0), diagonal.From(first), x.At(first, j));
                               }
                             });
    MulSub<kConjugate>(n - next, cols, count, a.At(next, first), x.At(first, 0), x.At(next, 0));
  }
}

template <bool kConjugate, class T>
void SolveGivenLower(int64_t n, int64_t cols, Strided<T> a, Rows<T> x) {
  Divisor<Element<T>> divisors[kDepth];
  for (int64_t first = 0; first < n; first += kDepth) {
    const int64_t count = std::min(kDepth, n - first), next = first + count;
    const int64_t rows = (count + kTileRows - 1) / kTileRows * kTileRows;
    for (int64_t i = first; i < first + rows; ++i) {
      const auto pivot = *reinterpret_cast<const Element<T>*>(&a(i, i));
      divisors[i - first] = Divisor<Element<T>>(kConjugate ? Conj(pivot) : pivot);
    }
    SolveLower<kConjugate>(count, cols, a.At(first, first), Diagonal<T>{divisors}, x.At(first, 0));
    MulSub<kConjugate>(n - next, cols, count, a.At(next, first), x.At(first, 0), x.At(next, 0));
  }
}

#define LINALG_SOLVE_LOWER(conjugate, T, D) \
  template void SolveLower<conjugate>(int64_t, int64_t, Strided<T>, D<T>, Rows<T>);
#define LINALG_TRIANGULAR(conjugate, T)                                                     \
  template void MulSub<conjugate>(int64_t, int64_t, int64_t, Strided<T>, Rows<T>, Rows<T>); \
  LINALG_SOLVE_LOWER(conjugate, T, Diagonal)                                                \
  template void SolveGivenLower<conjugate>(int64_t, int64_t, Strided<T>, Rows<T>);
#define LINALG_EACH_TRIANGULAR(T) \
  LINALG_TRIANGULAR(false, T)     \
  LINALG_SOLVE_LOWER(false, T, UnitDiagonal)
LINALG_EACH_TRIANGULAR(float)
LINALG_EACH_TRIANGULAR(double)
LINALG_EACH_TRIANGULAR(std::complex<float>)
LINALG_EACH_TRIANGULAR(std::complex<double>)
LINALG_TRIANGULAR(true, std::complex<float>)
LINALG_TRIANGULAR(true, std::complex<double>)
#undef LINALG_EACH_TRIANGULAR
#undef LINALG_TRIANGULAR
#undef LINALG_SOLVE_LOWER

}  // namespace linalg::blocked
