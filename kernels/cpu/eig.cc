// Eigenvalues and eigenvectors of general matrices. Results are complex for every operand.
//
// Small matrices run in lanes (kernels/small/eig.h). Larger ones go to geev, on a column-major
// copy. Both give a real matrix's vectors as real and imaginary parts in neighbouring columns. A
// matrix that is not finite gets NaN, and info = -1.
#include "kernels/small/eig.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/results.h"
#include "kernels/cpu/schur.h"

namespace linalg {
namespace {

// Writes LAPACK's column-major vectors as row-major complex ones.
template <class T>
void WriteVectors(ffi::ThreadPool& pool, int64_t n, const std::complex<Real<T>>* w,
                  const T* vectors, std::complex<Real<T>>* target) {
  if constexpr (kIsComplex<T>) {
    Transpose(pool, n, n, vectors, n, target, n);
  } else {
    for (int64_t j = 0; j < n; ++j) {
      const T* re = vectors + j * n;
      const T* im = re + n;
      if (w[j].imag() == 0) {
        for (int64_t i = 0; i < n; ++i) target[i * n + j] = re[i];
      } else {
        for (int64_t i = 0; i < n; ++i) {
          target[i * n + j] = {re[i], im[i]};
          target[i * n + j + 1] = {re[i], -im[i]};
        }
        ++j;
      }
    }
  }
}

// `left` is null where left eigenvectors are not wanted, and `right` too where no vectors are.
template <class T>
struct EigProblem {
  using C = std::complex<Real<T>>;

  int64_t batch, n;
  const T* a;
  C *values, *left, *right;
  int32_t* info;

  bool IsEmpty() const { return n == 0; }
  void RunEmpty() const { std::fill_n(info, batch, 0); }

  CpuPath path() const { return n <= kLaneEig ? CpuPath::kLane : CpuPath::kLapack; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    right != nullptr ? RunInLanes<true>(pool) : RunInLanes<false>(pool);
  }

  void RunByLapack(ffi::ThreadPool& pool) const {
    const int64_t size = n * n;
    const double nanoseconds = LapackNanoseconds((right ? 25.0 : 10.0) * n * size);
    struct Work {
      lapack::Geev<T> geev;
      std::unique_ptr<T[]> matrix, left, right;
    };
    const auto make = [&] {
      return Work{.geev = lapack::Geev<T>(n, left != nullptr, right != nullptr),
                  .matrix = Scratch<T>(size),
                  .left = Scratch<T>(left ? size : 0),
                  .right = Scratch<T>(right ? size : 0)};
    };
    ForEachByLapack(pool, batch, n, nanoseconds, make, [&](Work& work, int64_t i) {
      const T* const source = a + i * size;
      C* const w = values + i * n;
      info[i] = IterateIf(AllFinite(source, size), [&] {
        const int exponent = ExponentOutOfRange(source, size);
        Transpose(pool, n, n, source, n, work.matrix.get(), n);
        MultiplyByPowerOfTwo(-exponent, size, work.matrix.get());
        const int failed = work.geev(work.matrix.get(), w, work.left.get(), work.right.get());
        MultiplyByPowerOfTwo(exponent, n, w);
        return failed;
      });
      C* const left_vectors = PartOf(left, i * size);
      C* const right_vectors = PartOf(right, i * size);
      if (info[i] != 0) {
        FillWithNaN(n, w);
        FillWithNaN(size, left_vectors);
        FillWithNaN(size, right_vectors);
        return;
      }
      if (left != nullptr) WriteVectors(pool, n, w, work.left.get(), left_vectors);
      if (right != nullptr) WriteVectors(pool, n, w, work.right.get(), right_vectors);
    });
  }

 private:
  template <bool kVectors>
  void RunInLanes(ffi::ThreadPool& pool) const {
    using Work = small::EigWork<Element<T, Vector<Real<T>, kLanes<T>>>>;
    const int order = ToInt(n);
    const int64_t count = n * n;
    const double operations = ((kVectors ? 60.0 : 24.0) * n + 400.0) * count;
    const double nanoseconds = SmallNanoseconds(kLanes<T>, 3 * count, operations);
    const int64_t size = small::SizeOf<Work>(n, left != nullptr, right != nullptr);
    ForEachGroup<T>(pool, batch, size, nanoseconds, [&]<class V>(int64_t i, V* registers) {
      using E = Element<T, V>;
      const small::EigWork<E> work(registers, order, left != nullptr, right != nullptr);
      LoadElements(a + i * count, count, count, work.schur.t);
      const V failed = small::Eig<kVectors>(work, order);
      StoreElements(work.values, n, n, values + i * n);
      StoreIntegers(&failed, 1, info + i);
      const auto write = [&](const E* vectors, C* target) {
        for (int row = 0; vectors != nullptr && row < order; ++row) {
          small::EigenvectorRow(order, work.schur.t, vectors, failed, row, work.x);
          StoreElements(work.x, n, count, target + i * count + row * n);
        }
      };
      write(work.left, left);
      write(work.right, right);
    });
  }
};

// `left` and `right` are null where a handler has no such result.
void RunEig(ffi::ThreadPool& pool, ffi::AnyBuffer a, Result& values, Result* left, Result* right,
            Result& info) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    using C = std::complex<Real<T>>;
    RunOnPath(pool,
              EigProblem<T>{.batch = batch,
                            .n = n,
                            .a = Elements<T>(a, batch, {n, n}, "a"),
                            .values = Elements<C>(values, batch, {n}, "the eigenvalues"),
                            .left = ResultElements<C>(left, batch, {n, n}, "the left eigenvectors"),
                            .right = ResultElements<C>(right, batch, {n, n}, "the eigenvectors"),
                            .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

void EigLeft(ffi::ThreadPool pool, ffi::AnyBuffer a, Result values, Result left, Result right,
             Result info) {
  RunEig(pool, a, values, &left, &right, info);
}

void Eig(ffi::ThreadPool pool, ffi::AnyBuffer a, Result values, Result right, Result info) {
  RunEig(pool, a, values, nullptr, &right, info);
}

void Eigvals(ffi::ThreadPool pool, ffi::AnyBuffer a, Result values, Result info) {
  RunEig(pool, a, values, nullptr, nullptr, info);
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_eig_left, linalg::EigLeft);
LINALG_CPU_HANDLER(linalg_eig, linalg::Eig);
LINALG_CPU_HANDLER(linalg_eigvals, linalg::Eigvals);
