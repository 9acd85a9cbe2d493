// Schur factors, A = Z T Zᴴ. T is upper triangular, or quasi-triangular where A is real.
//
// Small matrices run in lanes (kernels/small/schur.h). Larger ones go to gees, in place in T's
// result, which one pass fills with A in column-major order. A matrix that is not finite gets NaN,
// and info = -1.
#include "kernels/cpu/schur.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/results.h"
#include "kernels/cpu/scaled_schur.h"

namespace linalg {

namespace small {
LINALG_SCHUR_ALL()
}  // namespace small

namespace {

template <class T>
struct SchurProblem {
  int64_t batch, n;
  const T* a;
  T *form, *vectors;
  int32_t* info;

  bool IsEmpty() const { return n == 0; }
  void RunEmpty() const { std::fill_n(info, batch, 0); }

  CpuPath path() const { return n <= kLaneEig ? CpuPath::kLane : CpuPath::kLapack; }

  void RunInLanes(ffi::ThreadPool& pool) const {
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

  void RunByLapack(ffi::ThreadPool& pool) const {
    const int64_t size = n * n;
    ForEachByLapack(
        pool, batch, n, LapackNanoseconds(25.0 * n * size), [&] { return lapack::Gees<T>(n); },
        [&](lapack::Gees<T>& gees, int64_t i) {
          const T* const matrix = a + i * size;
          T *const t = form + i * size, *const z = vectors + i * size;
          info[i] = IterateIf(AllFinite(matrix, size),
                              [&] { return ScaledSchur(gees, pool, n, matrix, t, z); });
          for (T* const factor : {t, z}) {
            if (info[i] != 0) {
              FillWithNaN(size, factor);
            } else {
              TransposeInPlace(pool, n, factor);
            }
          }
        });
  }
};

void Schur(ffi::ThreadPool pool, ffi::AnyBuffer a, Result form, Result vectors, Result info) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool, SchurProblem<T>{
                        .batch = batch,
                        .n = n,
                        .a = Elements<T>(a, batch, {n, n}, "a"),
                        .form = ResultElements<T>(form, batch, {n, n}, "the Schur form"),
                        .vectors = ResultElements<T>(vectors, batch, {n, n}, "the Schur vectors"),
                        .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_schur, linalg::Schur);
