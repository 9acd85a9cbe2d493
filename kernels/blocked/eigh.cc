#include "kernels/blocked/eigh.h"

#include <algorithm>
#include <complex>

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
HermitianEigen<T>::HermitianEigen(int64_t n, bool vectors)
    : n_(n),
      workspace_(n, n),
      work_(kTridiagonalRows, n),
      tridiagonal_(n, vectors),
      reflectors_(vectors ? n - 1 : 0, vectors ? n - 1 : 0, 0),
      taus_(new T[n]),
      beside_(new R[n]),
      wide_diagonal_(new double[n]),
      wide_beside_(new double[n]) {}

template <class T>
int HermitianEigen<T>::Solve(HermitianPart part, const T* a, R* values, T* vectors,
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
  if (!extent.Finite()) return kNotFinite;
  R unscale;
  const R scale = extent.Scale(unscale);
  ForEachRow(n_, matrix, [&](R* row, int64_t count) {
    for (int64_t j = 0; j < count; ++j) row[j] *= scale;
  });
  Tridiagonalise(n_, matrix, work, values, beside_.get(), taus_.get(), run_tasks);
  std::copy_n(values, n_, wide_diagonal_.get());
  std::copy_n(beside_.get(), n_ - 1, wide_beside_.get());
  const int failed = tridiagonal_.Solve(wide_diagonal_.get(), wide_beside_.get(), run_tasks);
  for (int64_t i = 0; i < n_; ++i) values[i] = static_cast<R>(wide_diagonal_[i] * unscale);
  if (failed == 0 && vectors != nullptr) MakeVectors(vectors, run_tasks);
  return failed;
}

// Multiplies the eigenvectors of the tridiagonal matrix by the reflectors.
template <class T>
void HermitianEigen<T>::MakeVectors(T* vectors, const RunTasks& run_tasks) {
  const Rows<T> matrix = workspace_.rows();
  const int64_t count = ReflectorCount<Element<T>>(static_cast<int>(n_));
  if (count > 0) {
    SetReflectors<false>(n_ - 1, matrix.At(0, 1), count, taus_.get(), reflectors_, run_tasks);
  }
  ReadTransposed(n_, tridiagonal_.vectors(), matrix, run_tasks);
  if (count > 0) reflectors_.MultiplyByQ(n_, matrix.At(1, 0), run_tasks);
  CopyRows(n_, n_, matrix, vectors, run_tasks);
}

template class HermitianEigen<float>;
template class HermitianEigen<double>;
template class HermitianEigen<std::complex<float>>;
template class HermitianEigen<std::complex<double>>;

}  // namespace linalg::blocked
