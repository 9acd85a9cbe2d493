#include "kernels/blocked/svd.h"

#include <algorithm>
#include <complex>

#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/blocked/bidiagonalise.h"
#include "kernels/blocked/condensed_vectors.h"
#include "kernels/blocked/squares.h"
#include "kernels/blocked/triangular.h"

namespace linalg::blocked {

template <class T>
SingularValues<T>::SingularValues(int64_t rows, int64_t cols, bool full, bool vectors)
    : wide_(rows < cols),
      m_(std::max(rows, cols)),
      n_(std::min(rows, cols)),
      left_cols_(full ? m_ : n_),
      square_(n_, n_),
      left_reflectors_(n_, n_),
      work_(kBidiagonalRows, n_ + kTileRows),
      bidiagonal_(n_, vectors),
      right_taus_(new T[n_]),
      left_taus_(new T[n_]),
      diagonal_(new R[n_]),
      beside_(new R[n_]),
      wide_diagonal_(new double[n_]),
      wide_beside_(new double[n_]) {
  // No left reflector begins in the first row.
  std::fill_n(left_reflectors_.rows().data, n_, T(0));
  left_taus_[0] = T(0);
  if (m_ > n_) qr_.emplace(m_, n_, vectors ? n_ : 0);
  if (vectors) {
    reflectors_.emplace(n_, n_, 0);
    left_vectors_.emplace(m_, left_cols_);
  }
}

// Copies `a`, or its adjoint if it is wide, scaled by a power of two to a norm near 1. Returns the
// inverse of the scale, or 0 if `a` is not finite.
template <class T>
RealElement<T> SingularValues<T>::ReadScaled(const T* a, Rows<T> target) {
  RowExtent<Register<R>> extent;
  extent.Add(reinterpret_cast<const R*>(a), m_ * n_ * kPartsOf<T>);
  if (!extent.Finite()) return 0;
  R unscale;
  const R scale = extent.Scale(unscale);
  if (wide_) {
    CopyTransposed<true>(m_, n_, a, m_, target.data, target.ld);
  } else {
    for (int64_t k = 0; k < m_; ++k) std::copy_n(a + k * n_, n_, target.At(k, 0).data);
  }
  for (int64_t k = 0; k < m_; ++k) {
    R* const row = reinterpret_cast<R*>(target.At(k, 0).data);
    for (int64_t j = 0; j < n_ * kPartsOf<T>; ++j) row[j] *= scale;
  }
  return unscale;
}

template <class T>
int SingularValues<T>::Solve(const T* a, R* values, T* u, T* vh, const RunTasks& run_tasks) {
  const Rows<T> square = square_.rows();
  const R unscale = ReadScaled(a, qr_ ? qr_->matrix() : square);
  if (unscale == 0) return kNotFinite;
  const int64_t end = RoundUp(n_, kWidth<T>);
  if (qr_) qr_->Factor(run_tasks);
  for (int64_t i = 0; i < n_; ++i) {
    T* const row = square.At(i, 0).data;
    if (qr_) {
      std::fill_n(row, i, T(0));
      std::copy(qr_->matrix().At(i, i).data, qr_->matrix().At(i, n_).data, row + i);
    }
    std::fill(row + n_, row + end, T(0));
  }
  // The last rows of a pass may extend beyond the matrix.
  for (int64_t i = n_; i < n_ + kTileRows; ++i) std::fill_n(square.At(i, 0).data, end, T(0));
  Bidiagonalise(n_, square, left_reflectors_.rows(), work_.rows(), diagonal_.get(), beside_.get(),
                right_taus_.get(), left_taus_.get(), run_tasks);
  // Solves the adjoint of the lower bidiagonal matrix, which is upper bidiagonal.
  std::copy_n(diagonal_.get(), n_, wide_diagonal_.get());
  std::copy_n(beside_.get(), n_ - 1, wide_beside_.get());
  const int failed = bidiagonal_.Solve(wide_diagonal_.get(), wide_beside_.get(), run_tasks);
  for (int64_t i = 0; i < n_; ++i) {
    values[i] = static_cast<R>(wide_diagonal_[n_ - 1 - i] * unscale);
  }
  if (failed == 0 && u != nullptr) MakeVectors(u, vh, run_tasks);
  return failed;
}

template <class T>
void SingularValues<T>::MakeVectors(T* u, T* vh, const RunTasks& run_tasks) {
  const Rows<T> square = square_.rows(), left = left_vectors_->rows();
  const int64_t m = m_, n = n_, cols = left_cols_;
  // The matrix is left · B · rightᴴ. Bᴴ was solved, and its singular values ascend.
  SetReflectors<false>(n, left_reflectors_.rows(), n, left_taus_.get(), *reflectors_, run_tasks);
  ReadTransposed(n, n, Reversed(n, bidiagonal_.right()), left, run_tasks);
  reflectors_->MultiplyByQ(n, left, run_tasks);
  SetReflectors<true>(n, square, n, right_taus_.get(), *reflectors_, run_tasks);
  ReadTransposed(n, n, Reversed(n, bidiagonal_.left()), square, run_tasks);
  reflectors_->MultiplyByQ(n, square, run_tasks);
  if (qr_) {
    for (int64_t i = 0; i < m; ++i) {
      T* const row = left.At(i, 0).data;
      std::fill(row + (i < n ? n : 0), row + cols, T(0));
      if (n <= i && i < cols) row[i] = T(1);
    }
    qr_->MultiplyByQ(cols, left, run_tasks);
  }
  if (wide_) {
    CopyTransposed<true>(cols, m, left.data, left.ld, vh, m);
    CopyRows(n, n, square, u, run_tasks);
  } else {
    CopyRows(m, cols, left, u, run_tasks);
    CopyTransposed<true>(n, n, square.data, square.ld, vh, n);
  }
}

template class SingularValues<float>;
template class SingularValues<double>;
template class SingularValues<std::complex<float>>;
template class SingularValues<std::complex<double>>;

}  // namespace linalg::blocked
