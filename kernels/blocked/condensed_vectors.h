// Back-transformation from tridiagonal or bidiagonal form: the small matrix's vectors and the
// reflectors of the reduction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/blocked/qr.h"
#include "kernels/blocked/squares.h"

namespace linalg::blocked {

// c (n, cols) = the transpose of z
template <class T>
void ReadTransposed(int64_t n, int64_t cols, Rows<double> z, Rows<T> c, const RunTasks& run_tasks) {
  using S = Square<double>;
  const auto read = [&](int64_t i, int64_t j) {
    const S x = S::ReadTransposed(z.At(j, i).data, z.ld);
    if constexpr (std::is_same_v<T, double>) {
      x.Write(c.At(i, j).data, c.ld);
    } else {
      double square[S::kSize * S::kSize];
      x.Write(square, S::kSize);
      const int64_t rows = std::min<int64_t>(S::kSize, n - i);
      const int64_t width = std::min<int64_t>(S::kSize, cols - j);
      for (int64_t k = 0; k < rows; ++k) {
        std::transform(square + k * S::kSize, square + k * S::kSize + width, c.At(i + k, j).data,
                       [](double y) { return T(static_cast<RealElement<T>>(y)); });
      }
    }
  };
  static_assert(kTaskRows % S::kSize == 0);
  ForEachPieceOfRows(run_tasks, n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += S::kSize) {
      for (int64_t j = 0; j < cols; j += S::kSize) read(i, j);
    }
  });
}

// Passes `count` reflectors of order n to `reflectors`. Their vectors, or the conjugates if
// kConjugate, lie in the rows of `vectors`, from the diagonal on.
template <bool kConjugate, class T>
void SetReflectors(int64_t n, Rows<T> vectors, int64_t count, const T* taus,
                   QrFactors<T>& reflectors, const RunTasks& run_tasks) {
  using S = Square<T>;
  const Rows<T> target = reflectors.matrix();
  const auto read = [&](int64_t i, int64_t j) {
    S x = S::ReadTransposed(vectors.At(j, i).data, vectors.ld);
    if constexpr (kConjugate) {
#pragma GCC unroll 16
      for (auto& row : x.x) row = S::Conj(row);
    }
    x.Write(target.At(i, j).data, target.ld);
  };
  static_assert(kTaskRows % S::kSize == 0);
  ForEachPieceOfRows(run_tasks, n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += S::kSize) {
      for (int64_t j = 0; j <= i; j += S::kSize) read(i, j);
    }
  });
  reflectors.Set(count, taus);
}

}  // namespace linalg::blocked
