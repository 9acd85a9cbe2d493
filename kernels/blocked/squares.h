// Squares of numbers that are transposed in registers.
#pragma once

#include <complex>
#include <cstring>

#include "kernels/arithmetic/pack.h"
#include "kernels/blocked/tile.h"

namespace linalg::blocked {

// The column of each lane, from 0.
template <class T>
LINALG_INLINE Register<T> LaneNumbers() {
  Register<T> x{};
  for (int lane = 0; lane < kLanesOf<Register<T>>; ++lane) {
    x[lane] = static_cast<RealElement<T>>(lane / kPartsOf<T>);
  }
  return x;
}

// A square is as wide as a register.
template <class T>
struct Square {
  static constexpr int kSize = kWidth<T>;
  using V = Register<T>;
  V x[kSize];

  static LINALG_INLINE Square Read(const T* source, int64_t ld) {
    Square square;
#pragma GCC unroll 16
    for (int i = 0; i < kSize; ++i) square.x[i] = Load<T>(source + i * ld);
    return square;
  }

  static LINALG_INLINE Square ReadTransposed(const T* source, int64_t ld) {
    Square square;
    if constexpr (sizeof(T) == 16) {
      for (int i = 0; i < kSize; ++i) {
        for (int j = 0; j < kSize; ++j) {
          std::memcpy(reinterpret_cast<char*>(&square.x[i]) + j * sizeof(T), source + j * ld + i,
                      sizeof(T));
        }
      }
    } else {
      using M = MoveType<sizeof(T)>;
      Vector<M, kSize> moved[kSize];
      PackSquare<kSize>(reinterpret_cast<const M*>(source), ld, moved);
#pragma GCC unroll 16
      for (int i = 0; i < kSize; ++i) square.x[i] = (V)moved[i];
    }
    return square;
  }

  // Adds 0, so that a zero imaginary part is +0.
  static LINALG_INLINE V Conj(V x) {
    if constexpr (kComplexElement<T>) {
      return ConjugatePairs(x) + V{};
    } else {
      return x;
    }
  }

  LINALG_INLINE void Write(T* target, int64_t ld) const {
#pragma GCC unroll 16
    for (int i = 0; i < kSize; ++i) Store<T>(x[i], target + i * ld);
  }
};

// target (rows, cols) = the transpose of `source`, or its adjoint with kConjugate
template <bool kConjugate, class T>
void CopyTransposed(int64_t rows, int64_t cols, const T* source, int64_t source_ld, T* target,
                    int64_t target_ld) {
  using S = Square<T>;
  constexpr int64_t kSize = S::kSize;
  const auto element = [&](int64_t i, int64_t j) {
    const T x = source[j * source_ld + i];
    if constexpr (kConjugate && kComplexElement<T>) {
      target[i * target_ld + j] = std::conj(x) + T(0);
    } else {
      target[i * target_ld + j] = x;
    }
  };
  const int64_t whole_rows = rows / kSize * kSize, whole_cols = cols / kSize * kSize;
  for (int64_t i = 0; i < whole_rows; i += kSize) {
    for (int64_t j = 0; j < whole_cols; j += kSize) {
      S x = S::ReadTransposed(source + j * source_ld + i, source_ld);
      if constexpr (kConjugate) {
#pragma GCC unroll 16
        for (auto& row : x.x) row = S::Conj(row);
      }
      x.Write(target + i * target_ld + j, target_ld);
    }
    for (int64_t k = i; k < i + kSize; ++k) {
      for (int64_t j = whole_cols; j < cols; ++j) element(k, j);
    }
  }
  for (int64_t i = whole_rows; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) element(i, j);
  }
}

}  // namespace linalg::blocked
