#include "kernels/blocked/svd.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>

#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/blocked/bidiagonalise.h"
#include "kernels/blocked/condensed_vectors.h"
#include "kernels/blocked/squares.h"
#include "kernels/blocked/triangular.h"

namespace linalg::blocked {

BidiagonalSubset::BidiagonalSubset(int64_t n, Chosen chosen, bool vectors)
    : n_(n),
      chosen_(chosen),
      vectors_(vectors),
      few_vectors_(FewRows(), RoundUp(n, kWidth<double>)),
      values_(new double[chosen.count]) {
  if (!IsFew()) {
    MakeDivide();
    return;
  }
  few_.emplace(2 * n, Chosen{2 * n - chosen.start - chosen.count, chosen.count}, vectors);
  zeros_.reset(new double[2 * n]());
  in_turn_.reset(new double[2 * n]);
  RowArena<double> rows(few_vectors_.rows());
  few_left_ = rows.Take(vectors ? chosen.count : 0);
  few_right_ = rows.Take(vectors ? chosen.count : 0);
}

bool BidiagonalSubset::IsFew() const {
  return chosen_.count < n_ && TridiagonalSubset::IsFew(chosen_.count, n_);
}

int64_t BidiagonalSubset::FewRows() const {
  return 2 * RowArena<double>::RowCount(IsFew() && vectors_ ? chosen_.count : 0);
}

void BidiagonalSubset::MakeDivide() {
  // Its values ascend.
  const Chosen ascending = {n_ - chosen_.start - chosen_.count, chosen_.count};
  if (!divide_) divide_.emplace(n_, vectors_, ascending);
}

// Returns false where a vector does not converge, or where a value is so small that the halves of
// its vector, which belong to two opposite eigenvalues, may be wrong.
bool BidiagonalSubset::SolveFew(const double* d, const double* e, const RunTasks& run_tasks) {
  constexpr double kLeastShare = 1.0 / 64;
  for (int64_t i = 0; i < n_; ++i) {
    in_turn_[2 * i] = d[i];
    in_turn_[2 * i + 1] = i + 1 < n_ ? e[i] : 0;
  }
  if (!few_->SolveOneByOne(zeros_.get(), in_turn_.get(), run_tasks)) return false;
  const int64_t count = chosen_.count;
  outside_ = few_->outside();
  if (count > 0 && vectors_ && few_->Value(0) <= kLeastShare * outside_.norm) return false;
  for (int64_t j = 0; j < count; ++j) values_[j] = few_->Value(count - 1 - j);
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
  left_ = few_left_;
  right_ = few_right_;
  return true;
}

int BidiagonalSubset::Solve(double* d, double* e, const RunTasks& run_tasks) {
  if (few_ && SolveFew(d, e, run_tasks)) return 0;
  MakeDivide();
  const int failed = divide_->Solve(d, e, run_tasks);
  const auto at = [&](int64_t i) { return d[n_ - 1 - std::clamp<int64_t>(i, 0, n_ - 1)]; };
  const int64_t start = chosen_.start, count = chosen_.count;
  for (int64_t i = 0; i < count; ++i) values_[i] = at(start + i);
  outside_ = {.below = at(start + count), .above = at(start - 1), .norm = at(0)};
  if (vectors_) {
    left_ = Reversed(n_, divide_->left()).At(start, 0);
    right_ = Reversed(n_, divide_->right()).At(start, 0);
  }
  return failed;
}

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
      bidiagonal_(n_, chosen, vectors),
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
void SingularValues<T>::WriteOutside(R unscale, R* outside) const {
  const Outside found = bidiagonal_.outside();
  constexpr R kInfinity = std::numeric_limits<R>::infinity();
  const bool to_the_last = chosen_.start + chosen_.count == n_;
  const R below = qr_ ? R(0) : -kInfinity;
  outside[0] = to_the_last ? below : static_cast<R>(found.below * unscale);
  outside[1] = chosen_.start == 0 ? kInfinity : static_cast<R>(found.above * unscale);
  outside[2] = static_cast<R>(found.norm * unscale);
}

template <class T>
void SingularValues<T>::WriteForm(R unscale, BidiagonalArrays<T, R> form,
                                  const RunTasks& run_tasks) {
  const auto write = [&](Rows<T> vectors, T* target) {
    for (int64_t i = 0; i < n_; ++i) {
      T* const row = target + i * n_;
      std::fill_n(row, i, T(0));
      std::copy(vectors.At(i, i).data, vectors.At(i, n_).data, row + i);
    }
  };
  write(left_reflectors_.rows(), form.left);
  write(square_.rows(), form.right);
  std::copy_n(left_taus_.get(), n_, form.left_taus);
  std::copy_n(right_taus_.get(), n_, form.right_taus);
  if (qr_) {
    CopyRows(m_, n_, qr_->matrix(), form.tall, run_tasks);
    std::copy_n(qr_->taus(), n_, form.tall_taus);
  } else {
    std::fill_n(form.tall, m_ * n_, T(0));
    std::fill_n(form.tall_taus, n_, T(0));
  }
  for (int64_t i = 0; i < n_; ++i) form.d[i] = diagonal_[i] * unscale;
  for (int64_t i = 0; i + 1 < n_; ++i) form.e[i] = beside_[i] * unscale;
  form.e[n_ - 1] = 0;
}

template <class T>
int SingularValues<T>::Solve(const T* a, R* values, T* u, T* vh, R* outside,
                             BidiagonalArrays<T, R> form, const RunTasks& run_tasks) {
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
  for (int64_t i = 0; i < chosen_.count; ++i) {
    values[i] = static_cast<R>(bidiagonal_.Value(i) * unscale);
  }
  if (outside != nullptr) WriteOutside(unscale, outside);
  if (failed == 0 && form.d != nullptr) WriteForm(unscale, form, run_tasks);
  if (failed == 0 && u != nullptr) MakeVectors(u, vh, run_tasks);
  return failed;
}

template <class T>
void SingularValues<T>::MakeVectors(T* u, T* vh, const RunTasks& run_tasks) {
  const Rows<T> square = square_.rows(), left = left_vectors_->rows();
  const int64_t m = m_, n = n_, cols = left_cols_, count = chosen_.count;
  // The matrix is left · B · rightᴴ. Bᴴ was solved, and its singular values ascend.
  SetReflectors<false>(n, left_reflectors_.rows(), n, left_taus_.get(), *reflectors_, run_tasks);
  ReadTransposed(n, count, bidiagonal_.right(), left, run_tasks);
  reflectors_->MultiplyByQ(count, left, run_tasks);
  SetReflectors<true>(n, square, n, right_taus_.get(), *reflectors_, run_tasks);
  ReadTransposed(n, count, bidiagonal_.left(), square, run_tasks);
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

template <class T>
SingularComplement<T>::SingularComplement(int64_t rows, int64_t cols, Chosen chosen)
    : wide_(rows < cols),
      m_(std::max(rows, cols)),
      n_(std::min(rows, cols)),
      chosen_(chosen),
      bidiagonal_(n_, chosen, /*vectors=*/true),
      tridiagonal_(2 * n_, Chosen{2 * n_ - chosen.start - chosen.count, chosen.count},
                   /*vectors=*/false),
      reflectors_(n_, n_, 0),
      square_(n_, n_),
      whole_(m_ > n_ ? m_ : 0, chosen.count),
      left_(n_, chosen.count),
      right_(n_, chosen.count),
      excluded_(2 * chosen.count, 2 * n_),
      row_(1, 2 * n_),
      wide_diagonal_(new double[n_]),
      wide_beside_(new double[n_]),
      zeros_(new double[2 * n_]()),
      in_turn_(new double[2 * n_]) {
  if (m_ > n_) qr_.emplace(m_, n_, 0);
}

template <class T>
template <bool kConjugate>
void SingularComplement<T>::ReadReflectors(const T* vectors, const T* taus,
                                           const RunTasks& run_tasks) {
  CopyRows(n_, n_, vectors, square_.rows(), run_tasks);
  SetReflectors<kConjugate>(n_, square_.rows(), n_, taus, reflectors_, run_tasks);
}

// A = L B Rᴴ with a bidiagonal B. In B's coordinates, the elements of x and y in turn solve a
// tridiagonal system.
template <class T>
bool SingularComplement<T>::Solve(BidiagonalArrays<const T, const R> form, const T* b, const T* c,
                                  T* x, T* y, const RunTasks& run_tasks) {
  const int64_t m = m_, n = n_, count = chosen_.count;
  double largest = 0, unscale;
  for (int64_t i = 0; i < n; ++i) {
    in_turn_[2 * i] = form.d[i];
    in_turn_[2 * i + 1] = form.e[i];
    largest = std::max({largest, std::abs(in_turn_[2 * i]), std::abs(in_turn_[2 * i + 1])});
  }
  const double scale = PowerOfTwoScale(largest, unscale);  // only its vectors are used
  for (int64_t i = 0; i < n; ++i) {
    wide_diagonal_[i] = scale * in_turn_[2 * i];
    wide_beside_[i] = scale * in_turn_[2 * i + 1];
  }
  if (tridiagonal_.Solve(zeros_.get(), in_turn_.get(), run_tasks) != 0) return false;
  // The vectors in the precision of T would not do: the solution's error along them is that of the
  // excluded rows, divided by the rounding errors of the shift.
  if (bidiagonal_.Solve(wide_diagonal_.get(), wide_beside_.get(), run_tasks) != 0) return false;
  for (int64_t j = 0; j < count; ++j) {
    double* const of_left = excluded_.rows().At(j, 0).data;
    double* const of_right = excluded_.rows().At(count + j, 0).data;
    const int64_t padded = RoundUp(2 * n, kWidth<double>);
    std::fill_n(of_left, padded, 0.0);
    std::fill_n(of_right, padded, 0.0);
    for (int64_t i = 0; i < n; ++i) {
      of_left[2 * i] = *bidiagonal_.right().At(j, i).data;
      of_right[2 * i + 1] = *bidiagonal_.left().At(j, i).data;
    }
  }
  tridiagonal_.Exclude(excluded_.rows(), 2 * count);

  // A wide matrix is handled as its adjoint.
  const Rows<T> whole = whole_.rows(), left = left_.rows(), right = right_.rows();
  CopyRows(m, count, wide_ ? c : b, qr_ ? whole : left, run_tasks);
  CopyRows(n, count, wide_ ? b : c, right, run_tasks);
  if (qr_) {
    qr_->Set(form.tall, n, form.tall_taus, run_tasks);
    qr_->MultiplyByAdjoint(count, whole, run_tasks);
    // Products write rows beyond their last.
    for (int64_t i = 0; i < n; ++i) std::copy_n(whole.At(i, 0).data, count, left.At(i, 0).data);
  }
  ReadReflectors<true>(form.right, form.right_taus, run_tasks);
  reflectors_.MultiplyByAdjoint(count, right, run_tasks);
  ReadReflectors<false>(form.left, form.left_taus, run_tasks);
  reflectors_.MultiplyByAdjoint(count, left, run_tasks);

  const auto part = [](Rows<T> columns, int64_t i, int64_t j, int k) -> R& {
    return reinterpret_cast<R*>(columns.At(i, j).data)[k];
  };
  const double gap = 8 * std::sqrt(static_cast<double>(n)) * std::numeric_limits<R>::epsilon();
  double* const row = row_.rows().data;
  for (int64_t j = 0; j < count; ++j) {
    const int64_t ascending = count - 1 - j;
    for (int k = 0; k < kPartsOf<T>; ++k) {
      for (int64_t i = 0; i < n; ++i) {
        row[2 * i] = part(left, i, j, k);
        row[2 * i + 1] = part(right, i, j, k);
      }
      tridiagonal_.SolveInComplement(ascending, gap, row, run_tasks);
      for (int64_t i = 0; i < n; ++i) {
        part(left, i, j, k) = static_cast<R>(row[2 * i]);
        part(right, i, j, k) = static_cast<R>(row[2 * i + 1]);
      }
    }
    // The adjoint maps what is left of a column to zero.
    const double value = tridiagonal_.Value(ascending);
    const bool zero = !(value > gap * tridiagonal_.outside().norm);
    const R inverse = static_cast<R>(zero ? 0 : 1 / value);
    for (int64_t i = n; i < m; ++i) {
      for (int k = 0; k < kPartsOf<T>; ++k) part(whole, i, j, k) *= inverse;
    }
  }
  reflectors_.MultiplyByQ(count, left, run_tasks);
  if (qr_) {
    for (int64_t i = 0; i < n; ++i) std::copy_n(left.At(i, 0).data, count, whole.At(i, 0).data);
    qr_->MultiplyByQ(count, whole, run_tasks);
  }
  ReadReflectors<true>(form.right, form.right_taus, run_tasks);
  reflectors_.MultiplyByQ(count, right, run_tasks);
  CopyRows(m, count, qr_ ? whole : left, wide_ ? y : x, run_tasks);
  CopyRows(n, count, right, wide_ ? x : y, run_tasks);
  return true;
}

#define LINALG_INSTANTIATE(T)       \
  template class SingularValues<T>; \
  template class SingularComplement<T>;
LINALG_INSTANTIATE(float)
LINALG_INSTANTIATE(double)
LINALG_INSTANTIATE(std::complex<float>)
LINALG_INSTANTIATE(std::complex<double>)
#undef LINALG_INSTANTIATE

}  // namespace linalg::blocked
