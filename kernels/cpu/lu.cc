// LU with partial pivoting and what is computed from it: substitutions, inverses, determinants.
//
// getrf on a column-major copy in scratch memory. Pivots become 0-based and are turned into the
// permutation in the same pass. A singular matrix is not a failure of the factorisation: info is
// the 1-based index of the first zero pivot, and only an inverse answers it with NaN.
#include <cmath>
#include <numeric>

#include "kernels/cpu/triangular.h"
#include "kernels/handlers.h"

namespace linalg {
namespace {

// permutation = the rows' order after the exchanges; an index outside the permutation is ignored.
void PivotsToPermutation(int64_t pivot_count, const int32_t* pivots, int64_t size,
                         int32_t* permutation) {
  std::iota(permutation, permutation + size, 0);
  for (int64_t i = 0; i < pivot_count; ++i) {
    const int64_t j = pivots[i];
    if (j >= 0 && j < size) std::swap(permutation[i], permutation[j]);
  }
}

// Exchanges the rows of the row-major `b` in the order of the pivots, or back.
template <class T>
void ExchangeRows(int64_t n, const int32_t* pivots, int64_t cols, T* b, bool back) {
  for (int64_t k = 0; k < n; ++k) {
    const int64_t i = back ? n - 1 - k : k, j = pivots[i];
    if (j != i && j >= 0 && j < n) std::swap_ranges(b + i * cols, b + (i + 1) * cols, b + j * cols);
  }
}

// |re| + |im|, by which LAPACK chooses pivots.
template <class T>
Real<T> Magnitude(T x) {
  return std::abs(std::real(x)) + std::abs(std::imag(x));
}

// getrf for n = 2, where a call of LAPACK takes ten times as long as the arithmetic.
template <class T>
int Factor2x2(T* lu, int32_t* pivots) {
  pivots[0] = Magnitude(lu[1]) > Magnitude(lu[0]);
  pivots[1] = 1;
  if (pivots[0] == 1) {
    std::swap(lu[0], lu[1]);
    std::swap(lu[2], lu[3]);
  }
  if (lu[0] != T(0)) lu[1] /= lu[0];
  lu[3] -= lu[1] * lu[2];
  return lu[0] == T(0) ? 1 : lu[3] == T(0) ? 2 : 0;
}

// The factors of one matrix, column-major, in memory that serves one matrix after another.
template <class T>
class Factors {
 public:
  Factors(int64_t rows, int64_t cols)
      : rows_(rows),
        cols_(cols),
        lu_(Scratch<T>(rows * cols)),
        pivots_(Scratch<int32_t>(std::min(rows, cols))) {}

  // Factors the row-major `a`; returns info.
  int Factor(ffi::ThreadPool& pool, const T* a) {
    if (rows_ == 0 || cols_ == 0) return 0;
    Transpose(pool, rows_, cols_, a, cols_, lu_.get(), rows_);
    if (rows_ == 2 && cols_ == 2) return Factor2x2(lu_.get(), pivots_.get());
    const int info =
        lapack::Getrf(ToInt(rows_), ToInt(cols_), lu_.get(), ToInt(rows_), pivots_.get());
    for (int64_t i = 0; i < pivot_count(); ++i) --pivots_[i];
    return info;
  }

  int64_t pivot_count() const { return std::min(rows_, cols_); }
  int32_t* pivots() { return pivots_.get(); }
  T* lu() { return lu_.get(); }

 private:
  int64_t rows_, cols_;
  std::unique_ptr<T[]> lu_;
  std::unique_ptr<int32_t[]> pivots_;
};

double LuNanoseconds(int64_t rows, int64_t cols) {
  const double m = static_cast<double>(rows), k = static_cast<double>(std::min(rows, cols));
  return LapackNanoseconds(m * static_cast<double>(cols) * k);
}

ffi::Error Lu(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::Result<ffi::AnyBuffer> lu,
              ffi::Result<ffi::AnyBuffer> pivots, ffi::Result<ffi::AnyBuffer> permutation,
              ffi::Result<ffi::AnyBuffer> info) {
  return Guard("linalg_lu", [&] {
    lapack::Load();
    const BatchShape shape = SplitBatch(a, 2, "a");
    const auto [batch, rows, cols] = shape;
    const int64_t m = rows, n = cols, k = std::min(rows, cols);
    DispatchDtype(a.element_type(), [&, batch = batch]<class T>(std::type_identity<T>) {
      const T* a_data = Elements<T>(a, batch * m * n, "a");
      T* lu_data = Elements<T>(lu, batch * m * n, "lu");
      int32_t* pivots_data = Elements<int32_t>(pivots, batch * k, "pivots");
      int32_t* permutation_data = Elements<int32_t>(permutation, batch * m, "permutation");
      int32_t* info_data = Elements<int32_t>(info, batch, "info");
      const BlasThreads threads(ThreadsFor(batch, k));
      ForEachRange(pool, batch, LuNanoseconds(m, n), [&](int64_t first, int64_t last) {
        Factors<T> factors(m, n);
        for (int64_t i = first; i < last; ++i) {
          info_data[i] = factors.Factor(pool, a_data + i * m * n);
          Transpose(pool, n, m, factors.lu(), m, lu_data + i * m * n, n);
          std::copy(factors.pivots(), factors.pivots() + k, pivots_data + i * k);
          PivotsToPermutation(k, factors.pivots(), m, permutation_data + i * m);
        }
      });
    });
  });
}

ffi::Error LuPivotsToPermutation(ffi::ThreadPool pool, ffi::AnyBuffer pivots,
                                 ffi::Result<ffi::AnyBuffer> permutation) {
  return Guard("linalg_lu_pivots_to_permutation", [&] {
    const BatchShape shape = SplitBatch(pivots, 1, "pivots");
    const int64_t k = shape.cols, m = SplitBatch(*permutation, 1, "permutation").cols;
    if (m < k) throw BadArgument("permutation_size", "be at least the number of pivots");
    const int32_t* pivots_data = Elements<int32_t>(pivots, shape.batch * k, "pivots");
    int32_t* permutation_data = Elements<int32_t>(permutation, shape.batch * m, "permutation");
    const double nanoseconds = 5.0 + static_cast<double>(m + k);
    ForEachRange(pool, shape.batch, nanoseconds, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        PivotsToPermutation(k, pivots_data + i * k, m, permutation_data + i * m);
      }
    });
  });
}

// Solves op(a) x = b in place with the row-major factors of a.
template <class T>
void SubstituteLu(int64_t n, const T* lu, const int32_t* pivots, bool transpose, bool conjugate,
                  int64_t cols, T* b) {
  const Triangle l{
      .lower = true, .transpose = transpose, .conjugate = conjugate, .unit_diagonal = true};
  const Triangle u{.lower = false, .transpose = transpose, .conjugate = conjugate};
  if (!transpose) ExchangeRows(n, pivots, cols, b, false);
  SolveTriangular(transpose ? u : l, n, lu, n, cols, b);
  SolveTriangular(transpose ? l : u, n, lu, n, cols, b);
  if (transpose) ExchangeRows(n, pivots, cols, b, true);
}

ffi::Error LuSolve(ffi::ThreadPool pool, ffi::AnyBuffer lu, ffi::AnyBuffer pivots, ffi::AnyBuffer b,
                   ffi::Result<ffi::AnyBuffer> x, bool transpose, bool conjugate) {
  return Guard("linalg_lu_solve", [&] {
    lapack::Load();
    const BatchShape rhs = SplitBatch(b, 2, "b");
    const int64_t n = rhs.rows;
    const BatchShape pivots_shape = SplitBatch(pivots, 1, "pivots");
    const bool shared_pivots = pivots.dimensions().size() == 1;
    if (!shared_pivots && pivots_shape.batch != rhs.batch) {
      throw BadArgument("pivots", "have the batch size of b");
    }
    const int32_t* pivots_data = Elements<int32_t>(pivots, pivots_shape.batch * n, "pivots");
    DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
      ForEachRightHandSide<T>(pool, lu, b, x, true, [&](int64_t i, const T* matrix, T* solution) {
        SubstituteLu(n, matrix, pivots_data + (shared_pivots ? 0 : i * n), transpose, conjugate,
                     rhs.cols, solution);
      });
    });
  });
}

ffi::Error Inv(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::Result<ffi::AnyBuffer> inverse,
               ffi::Result<ffi::AnyBuffer> info) {
  return Guard("linalg_inv", [&] {
    lapack::Load();
    const BatchShape shape = SplitSquareBatch(a, "a");
    const int64_t n = shape.rows, size = shape.size(), batch = shape.batch;
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      const T* a_data = Elements<T>(a, batch * size, "a");
      T* inverse_data = Elements<T>(inverse, batch * size, "the inverse");
      int32_t* info_data = Elements<int32_t>(info, batch, "info");
      const BlasThreads threads(ThreadsFor(batch, n));
      ForEachRange(pool, batch, 3 * LuNanoseconds(n, n), [&](int64_t first, int64_t last) {
        Factors<T> factors(n, n);
        const auto work = Scratch<T>(lapack::GetriWork(n));
        for (int64_t i = first; i < last; ++i) {
          T* target = inverse_data + i * size;
          info_data[i] = factors.Factor(pool, a_data + i * size);
          if (info_data[i] > 0) {
            std::fill(target, target + size, NaN<T>());
          } else if (n > 0) {
            for (int64_t k = 0; k < n; ++k) ++factors.pivots()[k];
            lapack::Getri(ToInt(n), factors.lu(), ToInt(n), factors.pivots(), work.get());
            Transpose(pool, n, n, factors.lu(), n, target, n);
          }
        }
      });
    });
  });
}

template <class T>
T Scale(T x, int exponent) {
  if constexpr (kIsComplex<T>) {
    return T(std::scalbn(x.real(), exponent), std::scalbn(x.imag(), exponent));
  } else {
    return std::scalbn(x, exponent);
  }
}

// The pivots on U's diagonal, negated where the factorisation exchanged rows: their product is the
// determinant.
template <class T, class Visit>
void ForEachSignedPivot(int64_t n, const T* lu, const int32_t* pivots, Visit&& visit) {
  for (int64_t i = 0; i < n; ++i) visit(pivots[i] == i ? lu[i * n + i] : -lu[i * n + i]);
}

// The sign (the phase of a complex determinant) and the logarithm of the magnitude; a singular
// matrix gives 0 and -inf.
template <class T>
void WriteSlogdet(int64_t n, const T* lu, const int32_t* pivots, T* sign, Real<T>* logabsdet) {
  T phase(1);
  Real<T> sum(0);
  ForEachSignedPivot(n, lu, pivots, [&](T pivot) {
    const Real<T> magnitude = std::abs(pivot);
    phase *= magnitude == 0 ? T(0) : pivot / magnitude;
    sum += std::log(magnitude);
  });
  *sign = phase;
  *logabsdet = sum;
}

// The product, its exponent kept apart so that it overflows or underflows only if the result does.
template <class T>
T Det(int64_t n, const T* lu, const int32_t* pivots) {
  T product(1);
  int64_t exponent = 0;
  ForEachSignedPivot(n, lu, pivots, [&](T pivot) {
    int shift = 0;
    std::frexp(std::max(std::abs(std::real(pivot)), std::abs(std::imag(pivot))), &shift);
    product *= Scale(pivot, -shift);
    exponent += shift;
    std::frexp(std::max(std::abs(std::real(product)), std::abs(std::imag(product))), &shift);
    product = Scale(product, -shift);
    exponent += shift;
  });
  return Scale(product, static_cast<int>(std::clamp<int64_t>(exponent, -100000, 100000)));
}

// Factors each matrix of the batch and calls write(index, lu, pivots).
template <class T, class Write>
void ForEachFactored(ffi::ThreadPool& pool, const BatchShape& shape, const ffi::AnyBuffer& a,
                     Write&& write) {
  const int64_t n = shape.rows;
  const T* a_data = Elements<T>(a, shape.batch * shape.size(), "a");
  const BlasThreads threads(ThreadsFor(shape.batch, n));
  ForEachRange(pool, shape.batch, LuNanoseconds(n, n), [&](int64_t first, int64_t last) {
    Factors<T> factors(n, n);
    for (int64_t i = first; i < last; ++i) {
      factors.Factor(pool, a_data + i * shape.size());
      write(i, factors.lu(), factors.pivots());
    }
  });
}

ffi::Error Slogdet(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::Result<ffi::AnyBuffer> sign,
                   ffi::Result<ffi::AnyBuffer> logabsdet) {
  return Guard("linalg_slogdet", [&] {
    lapack::Load();
    const BatchShape shape = SplitSquareBatch(a, "a");
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      T* sign_data = Elements<T>(sign, shape.batch, "sign");
      auto* logabsdet_data = Elements<Real<T>>(logabsdet, shape.batch, "logabsdet");
      ForEachFactored<T>(pool, shape, a, [&](int64_t i, const T* lu, const int32_t* pivots) {
        WriteSlogdet(shape.rows, lu, pivots, sign_data + i, logabsdet_data + i);
      });
    });
  });
}

ffi::Error Determinant(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::Result<ffi::AnyBuffer> det) {
  return Guard("linalg_det", [&] {
    lapack::Load();
    const BatchShape shape = SplitSquareBatch(a, "a");
    DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
      T* det_data = Elements<T>(det, shape.batch, "det");
      ForEachFactored<T>(pool, shape, a, [&](int64_t i, const T* lu, const int32_t* pivots) {
        det_data[i] = Det(shape.rows, lu, pivots);
      });
    });
  });
}

}  // namespace
}  // namespace linalg

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_lu, linalg::Lu,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_lu_pivots_to_permutation, linalg::LuPivotsToPermutation,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_lu_solve, linalg::LuSolve,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>()
                                  .Attr<bool>("transpose")
                                  .Attr<bool>("conjugate"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_inv, linalg::Inv,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_slogdet, linalg::Slogdet,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(linalg_det, linalg::Determinant,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::AnyBuffer>());
