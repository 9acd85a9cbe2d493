#include "kernels/blocked/substitution.h"

#include <complex>

#include "kernels/blocked/triangular.h"

namespace linalg::blocked {

template <class T>
Substitution<T>::Substitution(int64_t n)
    : n_(n),
      edge_(kTileRows, n),
      divisors_(new Divisor<Element<T>>[static_cast<size_t>(RoundUp(n, kTileRows))]) {
  for (int64_t i = 0; i < kTileRows; ++i) std::fill_n(edge_.rows().At(i, 0).data, n, T(0));
  using One = Element<T>;
  for (int64_t i = n; i < RoundUp(n, kTileRows); ++i) divisors_[i] = Divisor<One>(FromReal<One>(1));
}

template <class T>
template <bool kConjugate>
void Substitution<T>::SolveLower(bool unit_diagonal, Strided<T> a, int64_t cols, Rows<T> x,
                                 const RunTasks& run_tasks) {
  const int64_t whole = n_ / kTileRows * kTileRows;
  const Rows<T> edge = edge_.rows();
  for (int64_t i = whole; i < n_; ++i) {
    for (int64_t j = 0; j < i; ++j) *edge.At(i - whole, j).data = a(i, j);
  }
  for (int64_t i = 0; !unit_diagonal && i < n_; ++i) {
    const auto pivot = *reinterpret_cast<const Element<T>*>(&a(i, i));
    divisors_[i] = Divisor<Element<T>>(kConjugate ? Conj(pivot) : pivot);
  }
  const Diagonal<T> diagonal{unit_diagonal ? nullptr : divisors_.get()};
  ForEachPieceOfColumns<T>(run_tasks, 0, cols, [&](int64_t begin, int64_t end) {
    const Rows<T> piece = x.At(0, begin);
    blocked::SolveLower<kConjugate>(whole, end - begin, a, diagonal, piece);
    if (whole == n_) return;
    ForEachGroupOfColumns<T>(
        0, end - begin, [&]<int kCols>(int64_t j, std::integral_constant<int, kCols>) {
          SolveLowerTile<kConjugate, kCols>(whole, edge.AsStrided(), diagonal, piece.At(0, j));
        });
  });
}

template <class T>
void Substitution<T>::Solve(const Triangle& triangle, const T* a, int64_t cols, Rows<T> x,
                            const RunTasks& run_tasks) {
  if (n_ == 0) return;
  const SubstitutionPass pass = PassWith(triangle);
  Strided<T> lower = pass.transpose ? Strided<T>{a, 1, n_} : Strided<T>{a, n_, 1};
  if (!pass.lower) {
    lower = Reversed(n_, lower);
    x = Reversed(n_, x);
  }
  if constexpr (kComplexElement<T>) {
    if (pass.conjugate) return SolveLower<true>(pass.unit_diagonal, lower, cols, x, run_tasks);
  }
  SolveLower<false>(pass.unit_diagonal, lower, cols, x, run_tasks);
}

template class Substitution<float>;
template class Substitution<double>;
template class Substitution<std::complex<float>>;
template class Substitution<std::complex<double>>;

}  // namespace linalg::blocked
