#include "kernels/blocked/eigh.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>

#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/blocked/condensed_vectors.h"
#include "kernels/blocked/hermitian.h"
#include "kernels/blocked/tridiagonalise.h"

namespace linalg::blocked {
namespace {

// Calls body(row, count) for each row of the upper triangle and of the squares on the diagonal. The
// `count` real numbers of a row fill whole registers.
template <class T, class Body>
LINALG_INLINE void ForEachRow(int64_t n, Rows<T> a, Body&& body) {
  const int64_t last = RoundUp(n, kWidth<T>);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t first = i / kWidth<T> * kWidth<T>;
    body(reinterpret_cast<RealElement<T>*>(a.At(i, first).data), (last - first) * kPartsOf<T>);
  }
}

}  // namespace

template <class T>
TridiagonalForm<T>::TridiagonalForm(int64_t n, bool reflectors)
    : n_(n),
      workspace_(n, n),
      work_(kTridiagonalRows, n),
      reflectors_(reflectors ? n - 1 : 0, reflectors ? n - 1 : 0, 0),
      taus_(new T[n]()) {}

template <class T>
bool TridiagonalForm<T>::Reduce(HermitianPart part, const T* a, R* d, R* e, R& unscale,
                                const RunTasks& run_tasks) {
  const Rows<T> matrix = workspace_.rows(), work = work_.rows();
  const int64_t end = RoundUp(n_, kWidth<T>);
  ReadUpper(n_, part, a, matrix);
  for (int64_t i = 0; i < n_; ++i) {
    T* const row = matrix.At(i, 0).data;
    for (int64_t j = i / kWidth<T> * kWidth<T>; j < i; ++j) {
      row[j] = std::bit_cast<T>(Conj(std::bit_cast<Element<T>>(*matrix.At(j, i).data)));
    }
    std::fill(row + n_, row + end, T(0));
  }
  // The last rows of a pass may extend beyond the matrix.
  for (int64_t i = n_; i < end; ++i) std::fill_n(matrix.At(i, 0).data, end, T(0));
  RowExtent<Register<R>> extent;
  ForEachRow(n_, matrix, [&](const R* row, int64_t count) { extent.Add(row, count); });
  if (!extent.Finite()) return false;
  const R scale = extent.Scale(unscale);
  ForEachRow(n_, matrix, [&](R* row, int64_t count) {
    for (int64_t j = 0; j < count; ++j) row[j] *= scale;
  });
  Tridiagonalise(n_, matrix, work, d, e, taus_.get(), run_tasks);
  return true;
}

template <class T>
void TridiagonalForm<T>::PackReflectors(const RunTasks& run_tasks) {
  const int64_t count = ReflectorCount<Element<T>>(static_cast<int>(n_));
  if (count == 0) return;
  SetReflectors<false>(n_ - 1, matrix().At(0, 1), count, taus_.get(), reflectors_, run_tasks);
}

template <class T>
void TridiagonalForm<T>::MultiplyByQ(int64_t cols, Rows<T> c, const RunTasks& run_tasks) {
  if (ReflectorCount<Element<T>>(static_cast<int>(n_)) == 0) return;
  reflectors_.MultiplyByQ(cols, c.At(1, 0), run_tasks);
}

template <class T>
void TridiagonalForm<T>::MultiplyByAdjoint(int64_t cols, Rows<T> c, const RunTasks& run_tasks) {
  if (ReflectorCount<Element<T>>(static_cast<int>(n_)) == 0) return;
  reflectors_.MultiplyByAdjoint(cols, c.At(1, 0), run_tasks);
}

template <class T>
HermitianEigen<T>::HermitianEigen(int64_t n, bool vectors)
    : n_(n),
      form_(n, vectors),
      tridiagonal_(n, vectors),
      beside_(new R[n]),
      wide_diagonal_(new double[n]),
      wide_beside_(new double[n]) {}

template <class T>
int HermitianEigen<T>::Solve(HermitianPart part, const T* a, R* values, T* vectors,
                             const RunTasks& run_tasks) {
  R unscale;
  if (!form_.Reduce(part, a, values, beside_.get(), unscale, run_tasks)) return kNotFinite;
  std::copy_n(values, n_, wide_diagonal_.get());
  std::copy_n(beside_.get(), n_ - 1, wide_beside_.get());
  const int failed = tridiagonal_.Solve(wide_diagonal_.get(), wide_beside_.get(), run_tasks);
  for (int64_t i = 0; i < n_; ++i) values[i] = static_cast<R>(wide_diagonal_[i] * unscale);
  if (failed == 0 && vectors != nullptr) {
    form_.PackReflectors(run_tasks);
    ReadTransposed(n_, n_, tridiagonal_.vectors(), form_.matrix(), run_tasks);
    form_.MultiplyByQ(n_, form_.matrix(), run_tasks);
    CopyRows(n_, n_, form_.matrix(), vectors, run_tasks);
  }
  return failed;
}

template <class T>
ChosenEigen<T>::ChosenEigen(int64_t n, Chosen chosen, bool vectors)
    : n_(n),
      chosen_(chosen),
      form_(n, vectors),
      tridiagonal_(n, chosen, vectors),
      columns_(vectors ? n : 0, vectors ? chosen.count : 0),
      row_(1, n),
      d_(new R[n]),
      e_(new R[n]),
      wide_diagonal_(new double[n]),
      wide_beside_(new double[n]) {}

template <class T>
int ChosenEigen<T>::Solve(HermitianPart part, const T* a, R* values, R* outside, T* vectors,
                          FormArrays<T, R> form, const RunTasks& run_tasks) {
  R unscale;
  if (!form_.Reduce(part, a, d_.get(), e_.get(), unscale, run_tasks)) return kNotFinite;
  std::copy_n(d_.get(), n_, wide_diagonal_.get());
  std::copy_n(e_.get(), n_ - 1, wide_beside_.get());
  const int failed = tridiagonal_.Solve(wide_diagonal_.get(), wide_beside_.get(), run_tasks);
  if (failed != 0) return failed;
  for (int64_t i = 0; i < chosen_.count; ++i) {
    values[i] = static_cast<R>(tridiagonal_.Value(i) * unscale);
  }
  const Outside others = tridiagonal_.outside();
  outside[0] = static_cast<R>(others.below * unscale);
  outside[1] = static_cast<R>(others.above * unscale);
  outside[2] = static_cast<R>(others.norm * unscale);
  if (vectors == nullptr) return 0;
  if (form.reflectors != nullptr) {
    const int64_t reflectors = ReflectorCount<Element<T>>(static_cast<int>(n_));
    for (int64_t i = 0; i < n_; ++i) {
      T* const row = form.reflectors + i * n_;
      const int64_t first = i < reflectors ? i + 1 : n_;
      std::fill_n(row, first, T(0));
      std::copy_n(form_.matrix().At(i, first).data, n_ - first, row + first);
    }
    std::copy_n(form_.taus(), n_, form.taus);
    for (int64_t i = 0; i < n_; ++i) form.d[i] = d_[i] * unscale;
    for (int64_t i = 0; i + 1 < n_; ++i) form.e[i] = e_[i] * unscale;
    form.e[n_ - 1] = 0;
  }
  form_.PackReflectors(run_tasks);
  const Rows<T> columns = columns_.rows();
  ReadTransposed(n_, chosen_.count, tridiagonal_.vectors(), columns, run_tasks);
  form_.MultiplyByQ(chosen_.count, columns, run_tasks);
  CopyRows(n_, chosen_.count, columns, vectors, run_tasks);
  return 0;
}

template <class T>
bool ChosenEigen<T>::SolveInComplement(FormArrays<const T, const R> form, const T* b, T* x,
                                       const RunTasks& run_tasks) {
  const int64_t count = chosen_.count;
  std::copy_n(form.d, n_, wide_diagonal_.get());
  std::copy_n(form.e, n_ - 1, wide_beside_.get());
  if (tridiagonal_.Solve(wide_diagonal_.get(), wide_beside_.get(), run_tasks) != 0) return false;
  CopyRows(n_, n_, form.reflectors, form_.matrix(), run_tasks);
  std::copy_n(form.taus, n_, form_.taus());
  form_.PackReflectors(run_tasks);
  const Rows<T> columns = columns_.rows();
  CopyRows(n_, count, b, columns, run_tasks);
  form_.MultiplyByAdjoint(count, columns, run_tasks);
  const double gap = 8 * std::sqrt(static_cast<double>(n_)) * std::numeric_limits<R>::epsilon();
  double* const row = row_.rows().data;
  for (int64_t j = 0; j < count; ++j) {
    for (int k = 0; k < kPartsOf<T>; ++k) {
      const auto element = [&](int64_t i) -> R& {
        return reinterpret_cast<R*>(columns.At(i, j).data)[k];
      };
      for (int64_t i = 0; i < n_; ++i) row[i] = element(i);
      tridiagonal_.SolveInComplement(j, gap, row, run_tasks);
      for (int64_t i = 0; i < n_; ++i) element(i) = static_cast<R>(row[i]);
    }
  }
  form_.MultiplyByQ(count, columns, run_tasks);
  CopyRows(n_, count, columns, x, run_tasks);
  return true;
}

#define LINALG_INSTANTIATE(T)        \
  template class TridiagonalForm<T>; \
  template class HermitianEigen<T>;  \
  template class ChosenEigen<T>;
LINALG_INSTANTIATE(float)
LINALG_INSTANTIATE(double)
LINALG_INSTANTIATE(std::complex<float>)
LINALG_INSTANTIATE(std::complex<double>)
#undef LINALG_INSTANTIATE

}  // namespace linalg::blocked
