// Hessenberg form, A = Q H Qᴴ, with a real subdiagonal.
//
// Small matrices run in lanes (kernels/small/hessenberg.h). Larger ones go to gehrd and orghr, on a
// column-major copy. Neither iterates, so NaN and Inf pass through.
#include "kernels/small/hessenberg.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/once.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/results.h"

namespace linalg {
namespace {

// `q` is null where it is not wanted.
template <class T>
struct HessenbergProblem {
  int64_t batch, n;
  const T* a;
  T *h, *q;

  bool IsEmpty() const { return n == 0; }
  void RunEmpty() const {}

  CpuPath path() const { return n <= kLaneHessenberg ? CpuPath::kLane : CpuPath::kLapack; }

  // One matrix per lane. A single matrix has its columns in registers.
  void RunInLanes(ffi::ThreadPool& pool) const {
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

  void RunByLapack(ffi::ThreadPool& pool) const {
    const int order = ToInt(n);
    const int64_t size = n * n;
    const double nanoseconds = LapackNanoseconds((q ? 14.0 / 3 : 10.0 / 3) * n * size);
    struct Work {
      std::unique_ptr<T[]> matrix, taus, work;
    };
    const auto make = [&] {
      return Work{.matrix = Scratch<T>(size),
                  .taus = Scratch<T>(n),
                  .work = Scratch<T>(lapack::HessenbergWork(n))};
    };
    ForEachByLapack(pool, batch, n, nanoseconds, make, [&](Work& memory, int64_t i) {
      T* const matrix = memory.matrix.get();
      Transpose(pool, n, n, a + i * size, n, matrix, n);
      lapack::Gehrd(order, matrix, memory.taus.get(), memory.work.get());
      T* const form = h + i * size;
      for (int64_t row = 0; row < n; ++row) {
        for (int64_t col = 0; col < n; ++col) {
          form[row * n + col] = row > col + 1 ? T(0) : matrix[col * n + row];
        }
      }
      if (q == nullptr) return;
      lapack::Orghr(order, matrix, memory.taus.get(), memory.work.get());
      Transpose(pool, n, n, matrix, n, q + i * size, n);
    });
  }
};

// `q` is null where a handler has no such result.
void RunHessenberg(ffi::ThreadPool& pool, ffi::AnyBuffer a, Result& h, Result* q) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool, HessenbergProblem<T>{.batch = batch,
                                         .n = n,
                                         .a = Elements<T>(a, batch, {n, n}, "a"),
                                         .h = ResultElements<T>(h, batch, {n, n}, "h"),
                                         .q = ResultElements<T>(q, batch, {n, n}, "q")});
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

LINALG_CPU_HANDLER(linalg_hessenberg, linalg::Hessenberg);
LINALG_CPU_HANDLER(linalg_hessenberg_h, linalg::HessenbergH);
