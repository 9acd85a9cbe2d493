// Schur factors, A = Z T Zᴴ: T upper triangular, or quasi-triangular where A is real.
//
// Small matrices go to kernels/small/schur.h, one per lane. Larger ones go to gees, in place in T's
// result, which one pass fills with A in column-major order. A matrix that holds NaN or Inf is not
// handed to LAPACK, whose iterations may not end on it: it gets NaN, and info = -1.
#include "kernels/small/schur.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/lapack_batch.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/results.h"
#include "kernels/cpu/scaled_schur.h"
#include "kernels/handlers.h"

namespace linalg {
namespace {

// One matrix per lane.
template <class T>
void SmallSchur(ffi::ThreadPool& pool, int64_t batch, int64_t n, const T* a, T* form, T* vectors,
                int32_t* info) {
  using Work = small::SchurWork<Element<T, Vector<Real<T>, kLanes<T>>>>;
  const int order = ToInt(n);
  const int64_t count = n * n;
  const double operations = (45.0 * n + 400.0) * count;
  const double nanoseconds = SmallNanoseconds(kLanes<T>, 3 * count, operations);
  ForEachGroup<T>(pool, batch, small::SizeOf<Work>(n, true), nanoseconds,
                  [&]<class V>(int64_t i, V* registers) {
                    const small::SchurWork<Element<T, V>> work(registers, order, true);
                    LoadElements(a + i * count, count, count, work.t);
                    const V failed = small::SchurForm(work, order);
                    StoreElements(work.t, count, form + i * count);
                    StoreElements(work.z, count, vectors + i * count);
                    StoreIntegers(&failed, 1, info + i);
                  });
}

template <class T>
void LapackSchur(ffi::ThreadPool& pool, int64_t batch, int64_t n, const T* a, T* form, T* vectors,
                 int32_t* info) {
  const int64_t size = n * n;
  ForEachByLapack(pool, batch, n, LapackNanoseconds(25.0 * n * size),
                  [&](int64_t first, int64_t last) {
                    lapack::Gees<T> gees(n);
                    for (int64_t i = first; i < last; ++i) {
                      T* const t = form + i * size;
                      T* const z = vectors + i * size;
                      info[i] = kNotFinite;
                      if (AllFinite(a + i * size, size)) {
                        info[i] = ScaledSchur(gees, pool, n, a + i * size, t, z);
                      }
                      for (T* matrix : {t, z}) {
                        if (info[i] != 0) {
                          std::fill(matrix, matrix + size, NaN<T>());
                        } else {
                          TransposeInPlace(pool, n, matrix);
                        }
                      }
                    }
                  });
}

template <class T>
void SchurBatch(ffi::ThreadPool& pool, int64_t batch, int64_t n, const T* a, T* form, T* vectors,
                int32_t* info) {
  if (n == 0) return std::fill(info, info + batch, 0);
  TakePath(
      ChoosePath(Operation::kSchur, n, n, kDtype<T>),
      [&] { SmallSchur(pool, batch, n, a, form, vectors, info); },
      [&] { LapackSchur(pool, batch, n, a, form, vectors, info); });
}

void Schur(ffi::ThreadPool pool, ffi::AnyBuffer a, Result form, Result vectors, Result info) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    SchurBatch(pool, batch, n, Elements<T>(a, batch, {n, n}, "a"),
               ResultElements<T>(form, batch, {n, n}, "the Schur form"),
               ResultElements<T>(vectors, batch, {n, n}, "the Schur vectors"),
               Elements<int32_t>(info, batch, {}, "info"));
  });
}

}  // namespace
}  // namespace linalg

LINALG_HANDLER(linalg_schur, linalg::Schur);
