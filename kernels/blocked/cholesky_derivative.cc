#include "kernels/blocked/cholesky_derivative.h"

#include <bit>
#include <complex>

#include "kernels/blocked/squares.h"
#include "kernels/blocked/triangular.h"

namespace linalg::blocked {
namespace {

// Columns of a piece. A triangle's zeros are skipped piece by piece.
template <class T>
inline constexpr int64_t kPieceColumns = RoundUp(kTileRegisters * kWidth<T>, kTileRows);

// c (rows, cols) = -a (rows, depth) b (depth, cols)
template <class T>
void NegatedProduct(int64_t rows, int64_t cols, int64_t depth, Strided<T> a, Rows<T> b, Rows<T> c) {
  ForEachGroupOfColumns<T>(0, cols, [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
    MulSubColumns<false, kCols, /*kNew=*/true>(rows, depth, a, b.At(0, j), c.At(0, j));
  });
}

}  // namespace

// target = the lower triangle of the source or of its adjoint, negated with kNegate, with zeros
// above.
template <class T>
template <bool kNegate>
void CholeskyDerivative<T>::ReadLower(bool lower, const T* source, Rows<T> target,
                                      const RunTasks& run_tasks) const {
  ForEachPieceOfRows(run_tasks, n_, [&](int64_t begin, int64_t end) {
    if (!lower) {
      CopyTransposed<true>(end - begin, n_, source + begin, n_, target.At(begin, 0).data,
                           target.ld);
    }
    for (int64_t i = begin; i < end; ++i) {
      T* const row = target.At(i, 0).data;
      const T* const from = lower ? source + i * n_ : row;
      for (int64_t j = 0; j <= i; ++j) row[j] = kNegate ? -from[j] : from[j];
      std::fill(row + i + 1, row + n_, T(0));
    }
  });
}

// x = the negatives of the elements get(i, j).
template <class T>
template <class Get>
void CholeskyDerivative<T>::ReadNegatives(Get&& get, const RunTasks& run_tasks) const {
  ForEachPieceOfRows(run_tasks, n_, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < n_; ++j) *x_.rows().At(i, j).data = std::bit_cast<T>(-get(i, j));
    }
  });
}

// result = the lower triangle of y, or its adjoint, with zeros in the other triangle.
template <class T>
void CholeskyDerivative<T>::WriteTangent(bool lower, T* result, const RunTasks& run_tasks) const {
  const Rows<T> y = y_.rows();
  ForEachPieceOfRows(run_tasks, n_, [&](int64_t begin, int64_t end) {
    if (!lower) {
      CopyTransposed<true>(end - begin, n_, y.At(0, begin).data, y.ld, result + begin * n_, n_);
    }
    for (int64_t i = begin; i < end; ++i) {
      T* const row = result + i * n_;
      if (lower) std::copy_n(y.At(i, 0).data, i + 1, row);
      std::fill(row + (lower ? i + 1 : 0), row + (lower ? n_ : i), T(0));
    }
  });
}

// result = the cotangent of the operand, given x, the cotangent of its Hermitian part.
template <class T>
void CholeskyDerivative<T>::WriteCotangent(HermitianPart part, T* result,
                                           const RunTasks& run_tasks) const {
  using R = RealElement<T>;
  const Rows<T> x = x_.rows(), y = y_.rows();
  ForEachPieceOfRows(run_tasks, n_, [&](int64_t begin, int64_t end) {
    CopyTransposed<true>(end - begin, n_, x.At(0, begin).data, x.ld, y.At(begin, 0).data, y.ld);
    for (int64_t i = begin; i < end; ++i) {
      const T *const own = x.At(i, 0).data, *const adjoint = y.At(i, 0).data;
      T* const row = result + i * n_;
      const auto sums = [&](int64_t first, int64_t last, R factor) {
        for (int64_t j = first; j < last; ++j) row[j] = factor * own[j] + factor * adjoint[j];
      };
      if (part.symmetrize) {
        sums(0, n_, R(0.5));
      } else {
        sums(part.lower ? 0 : i + 1, part.lower ? i : n_, R(1));
        sums(i, i + 1, R(0.5));
        std::fill(row + (part.lower ? i + 1 : 0), row + (part.lower ? n_ : i), T(0));
      }
    }
  });
}

template <class T>
template <class Use>
void CholeskyDerivative<T>::ForEachPiece(const RunTasks& run_tasks, Use&& use) const {
  constexpr int64_t kColumns = kPieceColumns<T>;
  static_assert(kColumns % kWidth<T> == 0, "pieces share no register");
  RunPieces(run_tasks, (n_ + kColumns - 1) / kColumns, 0, n_, kColumns, use);
}

template <class T>
void CholeskyDerivative<T>::Transpose(Rows<T> source, Rows<T> target,
                                      const RunTasks& run_tasks) const {
  ForEachPieceOfRows(run_tasks, n_, [&](int64_t begin, int64_t end) {
    CopyTransposed<false>(end - begin, n_, source.At(0, begin).data, source.ld,
                          target.At(begin, 0).data, target.ld);
  });
}

// Applies Φᵀ to columns [first, last) of y: keeps the upper triangle and halves the diagonal. Only
// the rows above `last` were computed.
template <class T>
void CholeskyDerivative<T>::TakeUpper(int64_t first, int64_t last) const {
  for (int64_t i = first; i < n_; ++i) {
    T* const row = y_.rows().At(i, 0).data;
    std::fill(row + first, row + std::min(i, last), T(0));
    if (i < last) row[i] *= RealElement<T>(0.5);
  }
}

// y = L Φ(L⁻¹ dA L⁻ᴴ), where x is the negative of dA.
template <class T>
void CholeskyDerivative<T>::Tangent(const RunTasks& run_tasks) const {
  const Rows<T> l = l_.rows(), x = x_.rows(), y = y_.rows();
  ForEachPiece(run_tasks, [&](int64_t begin, int64_t end) {
    SolveGivenLower<false>(n_, end - begin, l.AsStrided(), x.At(0, begin));
  });
  Transpose(x, y, run_tasks);
  ForEachPiece(run_tasks, [&](int64_t begin, int64_t end) {
    SolveGivenLower<kComplexElement<T>>(end, end - begin, l.AsStrided(), y.At(0, begin));
    TakeUpper(begin, end);
  });
  Transpose(y, x, run_tasks);
  ForEachPiece(run_tasks, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < n_; i += kPieceColumns<T>) {
      const int64_t rows = std::min(kPieceColumns<T>, n_ - i);
      NegatedProduct(rows, end - begin, i + rows - begin, l.At(i, begin).AsStrided(),
                     x.At(begin, begin), y.At(i, begin));
    }
  });
}

// x = L⁻ᵀ Φ(Lᵀ dL) conj(L)⁻¹, where x is the negative of dL's lower triangle, with zeros above it.
template <class T>
void CholeskyDerivative<T>::Cotangent(const RunTasks& run_tasks) const {
  const Rows<T> l = l_.rows(), x = x_.rows(), y = y_.rows();
  ForEachPiece(run_tasks, [&](int64_t begin, int64_t end) {
    NegatedProduct(end, end - begin, n_ - begin, x.At(begin, 0).Transposed(), l.At(begin, begin),
                   y.At(0, begin));
    TakeUpper(begin, end);
    SolveGivenLower<kComplexElement<T>>(end, end - begin, Reversed(end, l.Transposed()),
                                        Reversed(end, y.At(0, begin)));
  });
  Transpose(y, x, run_tasks);
  ForEachPiece(run_tasks, [&](int64_t begin, int64_t end) {
    SolveGivenLower<false>(n_, end - begin, Reversed(n_, l.Transposed()),
                           Reversed(n_, x.At(0, begin)));
  });
}

template <class T>
void CholeskyDerivative<T>::FullJvp(const T* l, const T* x, T* result, const RunTasks& run_tasks) {
  ReadLower<false>(true, l, l_.rows(), run_tasks);
  ReadNegatives([=, this](int64_t i, int64_t j) { return x[i * n_ + j]; }, run_tasks);
  Tangent(run_tasks);
  WriteTangent(true, result, run_tasks);
}

template <class T>
void CholeskyDerivative<T>::FullVjp(const T* l, const T* x, T* result, const RunTasks& run_tasks) {
  ReadLower<false>(true, l, l_.rows(), run_tasks);
  ReadLower<true>(true, x, x_.rows(), run_tasks);
  Cotangent(run_tasks);
  CopyRows(n_, n_, x_.rows(), result, run_tasks);
}

template <class T>
void CholeskyDerivative<T>::Jvp(HermitianPart part, const T* factor, const T* x, T* result,
                                const RunTasks& run_tasks) {
  const auto get = [=, this](int64_t i, int64_t j) {
    return std::bit_cast<Element<T>>(x[i * n_ + j]);
  };
  ReadLower<false>(part.lower, factor, l_.rows(), run_tasks);
  ReadNegatives([&](int64_t i, int64_t j) { return part.At(i, j, get); }, run_tasks);
  Tangent(run_tasks);
  WriteTangent(part.lower, result, run_tasks);
}

template <class T>
void CholeskyDerivative<T>::Vjp(HermitianPart part, const T* factor, const T* x, T* result,
                                const RunTasks& run_tasks) {
  ReadLower<false>(part.lower, factor, l_.rows(), run_tasks);
  ReadLower<true>(part.lower, x, x_.rows(), run_tasks);
  Cotangent(run_tasks);
  WriteCotangent(part, result, run_tasks);
}

template class CholeskyDerivative<float>;
template class CholeskyDerivative<double>;
template class CholeskyDerivative<std::complex<float>>;
template class CholeskyDerivative<std::complex<double>>;

}  // namespace linalg::blocked
