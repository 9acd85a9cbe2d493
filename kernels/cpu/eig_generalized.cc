// Eigenvalues α / β and eigenvectors of pencils, β A v = α B v, by LAPACK's ggev.
//
// Both matrices are scaled by powers of two, since ggev does not scale all of its results back.
// Vectors have length 1 and a real largest element, as those of geev have. A pencil that is not
// finite gets NaN, and info = -1.
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/results.h"

namespace linalg {
namespace {

// Writes one column-major vector as a row-major complex one, of length 1 and with a real largest
// element, or its conjugate where `sign` is -1.
template <class R>
void WriteNormalized(int64_t n, const std::complex<R>* vector, R sign, std::complex<R>* target) {
  using C = std::complex<R>;
  // The largest element in LAPACK's norm is 1, so that no square leaves the range.
  R length = 0, largest = -1;
  C phase(1);
  for (int64_t i = 0; i < n; ++i) length += std::norm(vector[i]);
  length = std::sqrt(length);
  int64_t place = 0;
  for (int64_t i = 0; i < n; ++i) {
    const R size = std::abs(vector[i]);
    if (size > largest) {
      largest = size;
      place = i;
    }
  }
  if (vector[place].imag() != 0) phase = std::conj(vector[place]) / largest;
  for (int64_t i = 0; i < n; ++i) {
    C x = vector[i] * phase / length;
    if (i == place) x = C(x.real(), 0);
    target[i * n] = C(x.real(), sign * x.imag());
  }
}

template <class T>
void WriteVectors(int64_t n, const std::complex<Real<T>>* alpha, const T* vectors,
                  std::complex<Real<T>>* column, std::complex<Real<T>>* target) {
  using R = Real<T>;
  for (int64_t j = 0; j < n; ++j) {
    const T* const own = vectors + j * n;
    bool pair = false;
    if constexpr (kIsComplex<T>) {
      std::copy_n(own, n, column);
    } else {
      pair = alpha[j].imag() != 0 && j + 1 < n;
      for (int64_t i = 0; i < n; ++i) column[i] = {own[i], pair ? own[n + i] : T(0)};
    }
    WriteNormalized(n, column, R(1), target + j);
    if (pair) WriteNormalized(n, column, R(-1), target + ++j);
  }
}

// `left` and `right` are null where those vectors are not wanted.
template <class T>
struct EigGeneralizedProblem {
  using C = std::complex<Real<T>>;

  int64_t batch, n;
  const T *a, *b;
  C* alpha;
  T* beta;
  C *left, *right;
  int32_t* info;

  bool IsEmpty() const { return n == 0; }
  void RunEmpty() const { std::fill_n(info, batch, 0); }

  CpuPath path() const { return CpuPath::kLapack; }

  void RunByLapack(ffi::ThreadPool& pool) const {
    const int64_t size = n * n;
    const bool of_left = left != nullptr, of_right = right != nullptr;
    struct Work {
      lapack::Ggev<T> ggev;
      std::unique_ptr<T[]> a, b, left, right;
      std::unique_ptr<C[]> column;
    };
    const auto make = [&] {
      return Work{.ggev = lapack::Ggev<T>(n, of_left, of_right),
                  .a = Scratch<T>(size),
                  .b = Scratch<T>(size),
                  .left = Scratch<T>(of_left ? size : 0),
                  .right = Scratch<T>(of_right ? size : 0),
                  .column = Scratch<C>(n)};
    };
    const double flops = of_left ? 66.0 : of_right ? 54.0 : 30.0;
    const double nanoseconds = LapackNanoseconds(flops * n * size);
    ForEachByLapack(pool, batch, n, nanoseconds, make, [&](Work& work, int64_t i) {
      const T *const first = a + i * size, *const second = b + i * size;
      C* const numerators = alpha + i * n;
      T* const denominators = beta + i * n;
      info[i] = IterateIf(AllFinite(first, size) && AllFinite(second, size), [&] {
        const int of_a = ExponentOutOfRange(first, size);
        const int of_b = ExponentOutOfRange(second, size);
        Transpose(pool, n, n, first, n, work.a.get(), n);
        Transpose(pool, n, n, second, n, work.b.get(), n);
        MultiplyByPowerOfTwo(-of_a, size, work.a.get());
        MultiplyByPowerOfTwo(-of_b, size, work.b.get());
        const int failed = work.ggev(work.a.get(), work.b.get(), numerators, denominators,
                                     work.left.get(), work.right.get());
        MultiplyByPowerOfTwo(of_a, n, numerators);
        MultiplyByPowerOfTwo(of_b, n, denominators);
        return failed;
      });
      if (info[i] != 0) {
        FillWithNaN(n, numerators);
        FillWithNaN(n, denominators);
        FillWithNaN(size, PartOf(left, i * size));
        FillWithNaN(size, PartOf(right, i * size));
        return;
      }
      const auto write = [&](const T* vectors, C* target) {
        WriteVectors(n, numerators, vectors, work.column.get(), target + i * size);
      };
      if (of_left) write(work.left.get(), left);
      if (of_right) write(work.right.get(), right);
    });
  }
};

// `left` and `right` are null where a handler has no such results.
void RunEigGeneralized(ffi::ThreadPool& pool, ffi::AnyBuffer a, ffi::AnyBuffer b, Result& alpha,
                       Result& beta, Result* left, Result* right, Result& info) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    using C = std::complex<Real<T>>;
    RunOnPath(pool, EigGeneralizedProblem<T>{
                        .batch = batch,
                        .n = n,
                        .a = Elements<T>(a, batch, {n, n}, "a"),
                        .b = Elements<T>(b, batch, {n, n}, "b"),
                        .alpha = Elements<C>(alpha, batch, {n}, "alpha"),
                        .beta = Elements<T>(beta, batch, {n}, "beta"),
                        .left = ResultElements<C>(left, batch, {n, n}, "the left eigenvectors"),
                        .right = ResultElements<C>(right, batch, {n, n}, "the right eigenvectors"),
                        .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

void EigGeneralized(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b, Result alpha,
                    Result beta, Result right, Result info) {
  RunEigGeneralized(pool, a, b, alpha, beta, nullptr, &right, info);
}

void EigLeftGeneralized(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b, Result alpha,
                        Result beta, Result left, Result right, Result info) {
  RunEigGeneralized(pool, a, b, alpha, beta, &left, &right, info);
}

void EigvalsGeneralized(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b, Result alpha,
                        Result beta, Result info) {
  RunEigGeneralized(pool, a, b, alpha, beta, nullptr, nullptr, info);
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_eig_generalized, linalg::EigGeneralized);
LINALG_CPU_HANDLER(linalg_eig_left_generalized, linalg::EigLeftGeneralized);
LINALG_CPU_HANDLER(linalg_eigvals_generalized, linalg::EigvalsGeneralized);
