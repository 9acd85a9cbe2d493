// Hessenberg form, A = Q H Qᴴ, with a real subdiagonal.
//
// Small matrices go to kernels/small/hessenberg.h, one per lane. Larger ones go to gehrd and orghr,
// on a column-major copy. They iterate nothing: NaN and Inf pass through.
#include "kernels/small/hessenberg.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/lapack_batch.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/results.h"
#include "kernels/handlers.h"

namespace linalg {
namespace {

// One matrix per lane; a single one with columns in lanes.
template <class T>
void SmallHessenberg(ffi::ThreadPool& pool, int64_t batch, int64_t n, const T* a, T* h, T* q) {
  const int order = ToInt(n);
  const int64_t count = n * n;
  const double operations = (q ? 14.0 / 3 : 10.0 / 3) * static_cast<double>(n * count) / 2;
  const double nanoseconds = SmallNanoseconds(kLanes<T>, 3 * count, operations * kPartsOf<T>);
  ForEachGroup<T>(pool, batch, (2 * count + n) * kPartsOf<T>, nanoseconds,
                  [&]<class V>(int64_t i, V* registers) {
                    using E = Element<T, V>;
                    using B = ColumnBlock<T, V>;
                    E* const matrix = AfterMargin<B>(reinterpret_cast<E*>(registers));
                    E* const reflectors = matrix + count;
                    E* const taus = reflectors + count;
                    LoadElements(a + i * count, count, count, matrix);
                    small::Hessenberg<B>(matrix, order, reflectors, taus);
                    StoreElements(matrix, count, h + i * count);
                    if (q == nullptr) return;
                    small::HessenbergVectors<B>(matrix, order, reflectors, taus);
                    StoreElements(matrix, count, q + i * count);
                  });
}

template <class T>
void LapackHessenberg(ffi::ThreadPool& pool, int64_t batch, int64_t n, const T* a, T* h, T* q) {
  const int order = ToInt(n);
  const int64_t size = n * n;
  const double nanoseconds = LapackNanoseconds((q ? 14.0 / 3 : 10.0 / 3) * n * size);
  ForEachByLapack(pool, batch, n, nanoseconds, [&](int64_t first, int64_t last) {
    const auto matrix = Scratch<T>(size), taus = Scratch<T>(n);
    const auto work = Scratch<T>(lapack::HessenbergWork(n));
    for (int64_t i = first; i < last; ++i) {
      Transpose(pool, n, n, a + i * size, n, matrix.get(), n);
      lapack::Gehrd(order, matrix.get(), taus.get(), work.get());
      T* const form = h + i * size;
      for (int64_t row = 0; row < n; ++row) {
        for (int64_t col = 0; col < n; ++col) {
          form[row * n + col] = row > col + 1 ? T(0) : matrix[col * n + row];
        }
      }
      if (q == nullptr) continue;
      lapack::Orghr(order, matrix.get(), taus.get(), work.get());
      Transpose(pool, n, n, matrix.get(), n, q + i * size, n);
    }
  });
}

// Runs over the batch; `q` is null if it is not wanted.
template <class T>
void HessenbergBatch(ffi::ThreadPool& pool, int64_t batch, int64_t n, const T* a, T* h, T* q) {
  if (n == 0) return;
  TakePath(
      ChoosePath(Operation::kHessenberg, n, n, kDtype<T>),
      [&] { SmallHessenberg(pool, batch, n, a, h, q); },
      [&] { LapackHessenberg(pool, batch, n, a, h, q); });
}

// `q` is null where a handler has no such result.
void RunHessenberg(ffi::ThreadPool& pool, ffi::AnyBuffer a, Result& h, Result* q) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    HessenbergBatch(pool, batch, n, Elements<T>(a, batch, {n, n}, "a"),
                    ResultElements<T>(h, batch, {n, n}, "h"),
                    q ? ResultElements<T>(*q, batch, {n, n}, "q") : nullptr);
  });
}

void Hessenberg(ffi::ThreadPool pool, ffi::AnyBuffer a, Result h, Result q) {
  RunHessenberg(pool, a, h, &q);
}

void HessenbergH(ffi::ThreadPool pool, ffi::AnyBuffer a, Result h) {
  RunHessenberg(pool, a, h, nullptr);
}

}  // namespace
}  // namespace linalg

LINALG_HANDLER(linalg_hessenberg, linalg::Hessenberg);
LINALG_HANDLER(linalg_hessenberg_h, linalg::HessenbergH);
