// Schur factors with the selected eigenvalues first, by LAPACK's trsen.
//
// A matrix that is not finite gets NaN, and info = -1. Eigenvalues that are too close to be
// exchanged give NaN too, and info = 1.
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/results.h"

namespace linalg {
namespace {

template <class T>
struct SchurReorderProblem {
  int64_t batch, n;
  const T *form, *vectors;
  const int32_t* select;
  T *new_form, *new_vectors;
  int32_t* info;

  bool IsEmpty() const { return n == 0; }
  void RunEmpty() const { std::fill_n(info, batch, 0); }

  CpuPath path() const { return CpuPath::kLapack; }

  void RunByLapack(ffi::ThreadPool& pool) const {
    const int64_t size = n * n;
    struct Work {
      lapack::Trsen<T> trsen;
      std::unique_ptr<int[]> select;
    };
    const auto make = [&] { return Work{lapack::Trsen<T>(n), Scratch<int>(n)}; };
    ForEachByLapack(pool, batch, n, LapackNanoseconds(12.0 * n * size), make,
                    [&](Work& work, int64_t i) {
                      const T *const from = form + i * size, *const basis = vectors + i * size;
                      T *const t = new_form + i * size, *const z = new_vectors + i * size;
                      info[i] = IterateIf(AllFinite(from, size) && AllFinite(basis, size), [&] {
                        const int exponent = ExponentOutOfRange(from, size);
                        Transpose(pool, n, n, from, n, t, n);
                        Transpose(pool, n, n, basis, n, z, n);
                        MultiplyByPowerOfTwo(-exponent, size, t);
                        std::copy_n(select + i * n, n, work.select.get());
                        const int failed = work.trsen(work.select.get(), t, z);
                        MultiplyByPowerOfTwo(exponent, size, t);
                        return failed;
                      });
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

void SchurReorder(ffi::ThreadPool pool, ffi::AnyBuffer form, ffi::AnyBuffer vectors,
                  ffi::AnyBuffer select, Result new_form, Result new_vectors, Result info) {
  const BatchShape shape = SplitSquareBatch(form, "the Schur form");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(form.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(
        pool,
        SchurReorderProblem<T>{
            .batch = batch,
            .n = n,
            .form = Elements<T>(form, batch, {n, n}, "the Schur form"),
            .vectors = Elements<T>(vectors, batch, {n, n}, "the Schur vectors"),
            .select = Elements<int32_t>(select, batch, {n}, "select"),
            .new_form = ResultElements<T>(new_form, batch, {n, n}, "the new Schur form"),
            .new_vectors = ResultElements<T>(new_vectors, batch, {n, n}, "the new Schur vectors"),
            .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_schur_reorder, linalg::SchurReorder);
