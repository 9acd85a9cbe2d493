// Eigenvalues and eigenvectors of general matrices; complex, whatever the operand is.
//
// Small matrices go to kernels/small/eig.h, one per lane. Larger ones go to geev, on a column-major
// copy. Either way a real matrix's vectors come as real and imaginary parts in neighbouring
// columns. A matrix that holds NaN or Inf is not handed to LAPACK, whose iterations may not end on
// it: it gets NaN, and info = -1.
#include "kernels/small/eig.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/lapack_batch.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/results.h"
#include "kernels/handlers.h"

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

// One matrix per lane.
template <bool kVectors, class T>
void SmallEig(ffi::ThreadPool& pool, int64_t batch, int64_t n, const T* a,
              std::complex<Real<T>>* values, std::complex<Real<T>>* left,
              std::complex<Real<T>>* right, int32_t* info) {
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
    const auto write = [&](const E* vectors, std::complex<Real<T>>* target) {
      for (int row = 0; vectors != nullptr && row < order; ++row) {
        small::EigenvectorRow(order, work.schur.t, vectors, failed, row, work.x);
        StoreElements(work.x, n, count, target + i * count + row * n);
      }
    };
    write(work.left, left);
    write(work.right, right);
  });
}

template <class T>
void LapackEig(ffi::ThreadPool& pool, int64_t batch, int64_t n, const T* a,
               std::complex<Real<T>>* values, std::complex<Real<T>>* left,
               std::complex<Real<T>>* right, int32_t* info) {
  using C = std::complex<Real<T>>;
  const int64_t size = n * n;
  const double nanoseconds = LapackNanoseconds((right ? 25.0 : 10.0) * n * size);
  ForEachByLapack(pool, batch, n, nanoseconds, [&](int64_t first, int64_t last) {
    lapack::Geev<T> geev(n, left != nullptr, right != nullptr);
    const auto matrix = Scratch<T>(size);
    const auto left_columns = Scratch<T>(left ? size : 0);
    const auto right_columns = Scratch<T>(right ? size : 0);
    for (int64_t i = first; i < last; ++i) {
      C* const w = values + i * n;
      info[i] = kNotFinite;
      if (AllFinite(a + i * size, size)) {
        const int exponent = ExponentOutOfRange(a + i * size, size);
        Transpose(pool, n, n, a + i * size, n, matrix.get(), n);
        MultiplyByPowerOfTwo(-exponent, size, matrix.get());
        info[i] = geev(matrix.get(), w, left_columns.get(), right_columns.get());
        MultiplyByPowerOfTwo(exponent, n, w);
      }
      if (info[i] != 0) std::fill(w, w + n, NaN<C>());
      const auto write = [&](const T* columns, C* target) {
        if (target == nullptr) return;
        target += i * size;
        if (info[i] != 0) {
          std::fill(target, target + size, NaN<C>());
        } else {
          WriteVectors(pool, n, w, columns, target);
        }
      };
      write(left_columns.get(), left);
      write(right_columns.get(), right);
    }
  });
}

// Runs over the batch; `left` and `right` are where eigenvectors go, or null if they are not
// wanted.
template <class T>
void EigBatch(ffi::ThreadPool& pool, int64_t batch, int64_t n, const T* a,
              std::complex<Real<T>>* values, std::complex<Real<T>>* left,
              std::complex<Real<T>>* right, int32_t* info) {
  if (n == 0) return std::fill(info, info + batch, 0);
  TakePath(
      ChoosePath(Operation::kEig, n, n, kDtype<T>),
      [&] {
        right ? SmallEig<true>(pool, batch, n, a, values, left, right, info)
              : SmallEig<false>(pool, batch, n, a, values, left, right, info);
      },
      [&] { LapackEig(pool, batch, n, a, values, left, right, info); });
}

// `left` and `right` are null where a handler has no such result.
void RunEig(ffi::ThreadPool& pool, ffi::AnyBuffer a, Result& values, Result* left, Result* right,
            Result& info) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    using C = std::complex<Real<T>>;
    const auto vectors = [&](Result* result, std::string_view name) -> C* {
      return result ? ResultElements<C>(*result, batch, {n, n}, name) : nullptr;
    };
    EigBatch(pool, batch, n, Elements<T>(a, batch, {n, n}, "a"),
             Elements<C>(values, batch, {n}, "the eigenvalues"),
             vectors(left, "the left eigenvectors"), vectors(right, "the eigenvectors"),
             Elements<int32_t>(info, batch, {}, "info"));
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

LINALG_HANDLER(linalg_eig_left, linalg::EigLeft);
LINALG_HANDLER(linalg_eig, linalg::Eig);
LINALG_HANDLER(linalg_eigvals, linalg::Eigvals);
