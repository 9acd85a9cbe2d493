// QZ factors of pencils, A = Q S Zᴴ and B = Q T Zᴴ, and their reordering. S is upper triangular, or
// quasi-triangular where A and B are real. T is upper triangular with a diagonal that is not
// negative.
//
// LAPACK computes them, in place in the results, which hold column-major matrices until the end.
// Both matrices are scaled by powers of two, since gges does not scale all of its results back. A
// pencil that is not finite gets NaN, and info = -1.
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/results.h"

namespace linalg {
namespace {

template <class T>
struct QzFactors {
  T *s, *t, *q, *z;
  std::complex<Real<T>>* alpha;
  T* beta;

  QzFactors Of(int64_t n, int64_t i) const {
    const int64_t matrix = i * n * n;
    return {s + matrix, t + matrix, q + matrix, z + matrix, alpha + i * n, beta + i * n};
  }

  void Scale(int64_t n, int of_s, int of_t) const {
    MultiplyByPowerOfTwo(of_s, n * n, s);
    MultiplyByPowerOfTwo(of_t, n * n, t);
    MultiplyByPowerOfTwo(of_s, n, alpha);
    MultiplyByPowerOfTwo(of_t, n, beta);
  }

  // Makes the diagonal of T not negative: tgsen leaves signs in the blocks of a real T.
  void TurnSigns(int64_t n) const {
    for (int64_t j = 0; j < n; ++j) {
      if (std::real(t[j * (n + 1)]) >= 0) continue;
      for (T* const factor : {s, t, z}) {
        for (int64_t i = 0; i < n; ++i) factor[j * n + i] = -factor[j * n + i];
      }
    }
  }

  // Makes the factors row-major, or NaN.
  void Finish(ffi::ThreadPool& pool, int64_t n, int info) const {
    for (T* const factor : {s, t, q, z}) {
      if (info != 0) {
        FillWithNaN(n * n, factor);
      } else {
        TransposeInPlace(pool, n, factor);
      }
    }
    if (info == 0) return;
    FillWithNaN(n, alpha);
    FillWithNaN(n, beta);
  }
};

template <class T>
struct QzProblem {
  int64_t batch, n;
  const T *a, *b;
  QzFactors<T> factors;
  int32_t* info;

  bool IsEmpty() const { return n == 0; }
  void RunEmpty() const { std::fill_n(info, batch, 0); }

  CpuPath path() const { return CpuPath::kLapack; }

  void RunByLapack(ffi::ThreadPool& pool) const {
    const int64_t size = n * n;
    ForEachByLapack(
        pool, batch, n, LapackNanoseconds(66.0 * n * size), [&] { return lapack::Gges<T>(n); },
        [&](lapack::Gges<T>& gges, int64_t i) {
          const T *const left = a + i * size, *const right = b + i * size;
          const QzFactors<T> own = factors.Of(n, i);
          info[i] = IterateIf(AllFinite(left, size) && AllFinite(right, size), [&] {
            const int of_a = ExponentOutOfRange(left, size);
            const int of_b = ExponentOutOfRange(right, size);
            Transpose(pool, n, n, left, n, own.s, n);
            Transpose(pool, n, n, right, n, own.t, n);
            MultiplyByPowerOfTwo(-of_a, size, own.s);
            MultiplyByPowerOfTwo(-of_b, size, own.t);
            const int failed = gges(own.s, own.t, own.alpha, own.beta, own.q, own.z);
            own.Scale(n, of_a, of_b);
            return failed;
          });
          own.Finish(pool, n, info[i]);
        });
  }
};

template <class T>
struct QzReorderProblem {
  int64_t batch, n;
  const T *s, *t, *q, *z;
  const int32_t* select;
  QzFactors<T> factors;
  int32_t* info;

  bool IsEmpty() const { return n == 0; }
  void RunEmpty() const { std::fill_n(info, batch, 0); }

  CpuPath path() const { return CpuPath::kLapack; }

  void RunByLapack(ffi::ThreadPool& pool) const {
    const int64_t size = n * n;
    struct Work {
      lapack::Tgsen<T> tgsen;
      std::unique_ptr<int[]> select;
    };
    const auto make = [&] { return Work{lapack::Tgsen<T>(n), Scratch<int>(n)}; };
    ForEachByLapack(
        pool, batch, n, LapackNanoseconds(24.0 * n * size), make, [&](Work& work, int64_t i) {
          const QzFactors<T> own = factors.Of(n, i);
          bool finite = true;
          for (const T* const factor : {s, t, q, z}) finite &= AllFinite(factor + i * size, size);
          info[i] = IterateIf(finite, [&] {
            const int of_s = ExponentOutOfRange(s + i * size, size);
            const int of_t = ExponentOutOfRange(t + i * size, size);
            Transpose(pool, n, n, s + i * size, n, own.s, n);
            Transpose(pool, n, n, t + i * size, n, own.t, n);
            Transpose(pool, n, n, q + i * size, n, own.q, n);
            Transpose(pool, n, n, z + i * size, n, own.z, n);
            MultiplyByPowerOfTwo(-of_s, size, own.s);
            MultiplyByPowerOfTwo(-of_t, size, own.t);
            std::copy_n(select + i * n, n, work.select.get());
            const int failed =
                work.tgsen(work.select.get(), own.s, own.t, own.alpha, own.beta, own.q, own.z);
            own.TurnSigns(n);
            own.Scale(n, of_s, of_t);
            return failed;
          });
          own.Finish(pool, n, info[i]);
        });
  }
};

template <class T>
QzFactors<T> FactorsIn(int64_t batch, int64_t n, Result& s, Result& t, Result& q, Result& z,
                       Result& alpha, Result& beta) {
  return {.s = ResultElements<T>(s, batch, {n, n}, "the form of a"),
          .t = ResultElements<T>(t, batch, {n, n}, "the form of b"),
          .q = ResultElements<T>(q, batch, {n, n}, "the left vectors"),
          .z = ResultElements<T>(z, batch, {n, n}, "the right vectors"),
          .alpha = Elements<std::complex<Real<T>>>(alpha, batch, {n}, "alpha"),
          .beta = Elements<T>(beta, batch, {n}, "beta")};
}

void Qz(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b, Result s, Result t, Result q,
        Result z, Result alpha, Result beta, Result info) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool, QzProblem<T>{.batch = batch,
                                 .n = n,
                                 .a = Elements<T>(a, batch, {n, n}, "a"),
                                 .b = Elements<T>(b, batch, {n, n}, "b"),
                                 .factors = FactorsIn<T>(batch, n, s, t, q, z, alpha, beta),
                                 .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

void QzReorder(ffi::ThreadPool pool, ffi::AnyBuffer s, ffi::AnyBuffer t, ffi::AnyBuffer q,
               ffi::AnyBuffer z, ffi::AnyBuffer select, Result new_s, Result new_t, Result new_q,
               Result new_z, Result alpha, Result beta, Result info) {
  const BatchShape shape = SplitSquareBatch(s, "s");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(s.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool, QzReorderProblem<T>{
                        .batch = batch,
                        .n = n,
                        .s = Elements<T>(s, batch, {n, n}, "s"),
                        .t = Elements<T>(t, batch, {n, n}, "t"),
                        .q = Elements<T>(q, batch, {n, n}, "q"),
                        .z = Elements<T>(z, batch, {n, n}, "z"),
                        .select = Elements<int32_t>(select, batch, {n}, "select"),
                        .factors = FactorsIn<T>(batch, n, new_s, new_t, new_q, new_z, alpha, beta),
                        .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_qz, linalg::Qz);
LINALG_CPU_HANDLER(linalg_qz_reorder, linalg::QzReorder);
