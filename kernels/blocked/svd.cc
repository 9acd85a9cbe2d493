#include "kernels/blocked/svd.h"

#include <algorithm>
#include <cmath>
#include <complex>

#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/blocked/bidiagonalise.h"
#include "kernels/blocked/condensed_vectors.h"
#include "kernels/blocked/squares.h"
#include "kernels/blocked/triangular.h"

namespace linalg::blocked {

template <class T>
SingularValues<T>::SingularValues(int64_t rows, int64_t cols, bool full, bool vectors,
                                  Chosen chosen)
    : wide_(rows < cols),
      vectors_(vectors),
      m_(std::max(rows, cols)),
      n_(std::min(rows, cols)),
      chosen_(chosen),
      left_cols_(full ? m_ : chosen.count),
      square_(n_, n_),
      left_reflectors_(n_, n_),
      work_(kBidiagonalRows, n_ + kTileRows),
      few_vectors_(FewRows(), RoundUp(n_, kWidth<double>)),
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
  if (IsFew()) {
    few_.emplace(2 * n_, Chosen{2 * n_ - chosen.start - chosen.count, chosen.count}, vectors);
    zeros_.reset(new double[2 * n_]());
    in_turn_.reset(new double[2 * n_]);
    RowArena<double> rows(few_vectors_.rows());
    few_left_ = rows.Take(vectors ? chosen.count : 0);
    few_right_ = rows.Take(vectors ? chosen.count : 0);
  } else {
    MakeDivide();
  }
  if (vectors) {
    reflectors_.emplace(n_, n_, 0);
    left_vectors_.emplace(m_, left_cols_);
  }
}

template <class T>
bool SingularValues<T>::IsFew() const {
  return chosen_.count < n_ && TridiagonalPart::IsFew(chosen_.count, n_);
}

template <class T>
int64_t SingularValues<T>::FewRows() const {
  return IsFew() && vectors_ ? 2 * RowArena<double>::RowCount(chosen_.count)
                             : 2 * RowArena<double>::RowCount(0);
}

template <class T>
void SingularValues<T>::MakeDivide() {
  // Its values ascend.
  const Chosen ascending = {n_ - chosen_.start - chosen_.count, chosen_.count};
  if (!bidiagonal_) bidiagonal_.emplace(n_, vectors_, ascending);
}

// Returns false where a vector does not converge, or where a value is so small that the halves of
// its vector, which belong to two opposite eigenvalues, may be wrong.
template <class T>
bool SingularValues<T>::SolveFew(R unscale, R* values, const RunTasks& run_tasks) {
  constexpr double kLeastShare = 1.0 / 64;
  for (int64_t i = 0; i < n_; ++i) {
    in_turn_[2 * i] = wide_diagonal_[i];
    in_turn_[2 * i + 1] = i + 1 < n_ ? wide_beside_[i] : 0;
  }
  if (!few_->SolveOneByOne(zeros_.get(), in_turn_.get(), run_tasks)) return false;
  const int64_t count = chosen_.count;
  if (count > 0 && vectors_ && few_->Value(0) <= kLeastShare * few_->outside().norm) return false;
  for (int64_t j = 0; j < count; ++j) {
    values[j] = static_cast<R>(few_->Value(count - 1 - j) * unscale);
  }
  for (int64_t j = 0; vectors_ && j < count; ++j) {
    const double* const both = few_->vectors().At(count - 1 - j, 0).data;
    int k = 0;
    for (const Rows<double> side : {few_right_, few_left_}) {
      double* const row = side.At(j, 0).data;
      double sum = 0;
      for (int64_t i = 0; i < n_; ++i) {
        row[i] = both[2 * i + k];
        sum += row[i] * row[i];
      }
      const double inverse = 1 / std::sqrt(sum);
      for (int64_t i = 0; i < n_; ++i) row[i] *= inverse;
      ++k;
    }
  }
  left_rows_ = few_left_;
  right_rows_ = few_right_;
  return true;
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
  int failed = 0;
  if (!few_ || !SolveFew(unscale, values, run_tasks)) {
    MakeDivide();
    failed = bidiagonal_->Solve(wide_diagonal_.get(), wide_beside_.get(), run_tasks);
    const int64_t start = chosen_.start;
    for (int64_t i = 0; i < chosen_.count; ++i) {
      values[i] = static_cast<R>(wide_diagonal_[n_ - 1 - start - i] * unscale);
    }
    if (vectors_) {
      left_rows_ = Reversed(n_, bidiagonal_->left()).At(start, 0);
      right_rows_ = Reversed(n_, bidiagonal_->right()).At(start, 0);
    }
  }
  if (failed == 0 && u != nullptr) MakeVectors(u, vh, run_tasks);
  return failed;
}

template <class T>
void SingularValues<T>::MakeVectors(T* u, T* vh, const RunTasks& run_tasks) {
  const Rows<T> square = square_.rows(), left = left_vectors_->rows();
  const int64_t m = m_, n = n_, cols = left_cols_, count = chosen_.count;
  // The matrix is left · B · rightᴴ. Bᴴ was solved, and its singular values ascend.
  SetReflectors<false>(n, left_reflectors_.rows(), n, left_taus_.get(), *reflectors_, run_tasks);
  ReadTransposed(n, count, right_rows_, left, run_tasks);
  reflectors_->MultiplyByQ(count, left, run_tasks);
  SetReflectors<true>(n, square, n, right_taus_.get(), *reflectors_, run_tasks);
  ReadTransposed(n, count, left_rows_, square, run_tasks);
  reflectors_->MultiplyByQ(count, square, run_tasks);
  if (qr_) {
    for (int64_t i = 0; i < m; ++i) {
      T* const row = left.At(i, 0).data;
      std::fill(row + (i < n ? count : 0), row + cols, T(0));
      if (n <= i && i < cols) row[i] = T(1);
    }
    qr_->MultiplyByQ(cols, left, run_tasks);
  }
  if (wide_) {
    CopyTransposed<true>(cols, m, left.data, left.ld, vh, m);
    CopyRows(n, count, square, u, run_tasks);
  } else {
    CopyRows(m, cols, left, u, run_tasks);
    CopyTransposed<true>(count, n, square.data, square.ld, vh, n);
  }
}

template class SingularValues<float>;
template class SingularValues<double>;
template class SingularValues<std::complex<float>>;
template class SingularValues<std::complex<double>>;

}  // namespace linalg::blocked
