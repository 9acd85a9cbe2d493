// Eigenvalues and eigenvectors of Hermitian matrices.
//
// Small matrices go to kernels/small/eigh.h, one per lane, and larger ones to kernels/blocked, in
// tiles. The largest go to syevd (heevd), by divide and conquer, in place in the output, which one
// pass fills with the lower triangle in column-major order. Without vectors syevd iterates by QL,
// whose rounding errors add up: in float32 the matrix is only reduced by LAPACK, and the QL
// iteration runs in float64. A matrix that holds NaN or Inf is not handed to LAPACK, whose
// iterations may not end on it: it gets NaN, and info = -1.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "kernels/arithmetic/hermitian.h"
#include "kernels/blocked/eigh.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/lapack_batch.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/spares.h"
#include "kernels/cpu/wide_eigvalsh.h"
#include "kernels/handlers.h"
#include "kernels/small/eigh.h"

namespace linalg {
namespace {

// Writes the Hermitian part of `a` as a column-major lower triangle; false if it is not finite.
template <class T>
bool CopyLower(ffi::ThreadPool& pool, int64_t n, HermitianPart part, const T* a, T* target) {
  std::atomic<bool> finite = true;
  ForEachInTriangle(pool, n, part, a, [&](int64_t i, int64_t j, T element) {
    if (part.lower) {
      target[j * n + i] = element;
    } else if constexpr (kIsComplex<T>) {
      target[i * n + j] = std::conj(element);
    } else {
      target[i * n + j] = element;
    }
    if (!(std::isfinite(std::real(element)) && std::isfinite(std::imag(element)))) {
      finite.store(false, std::memory_order_relaxed);
    }
  });
  return finite;
}

// One matrix per lane.
template <bool kVectors, class T>
void SmallEigh(ffi::ThreadPool& pool, int64_t batch, int64_t n, HermitianPart part, const T* a,
               T* vectors, Real<T>* values, int32_t* info) {
  using Row = Vector<Real<T>, kLanes<T>>;
  const int order = ToInt(n);
  const bool refine = n >= kLeastRefinedEigh;
  const int64_t count = n * n;
  const int64_t size = std::max<int64_t>(
      small::SizeOf<small::EigenWork<Element<T, Row>, Row>>(order, kVectors),
      (small::SizeOf<small::EigenWork<Element<T, Real<T>>, Row>>(order, kVectors) + kLanes<T> - 1) /
          kLanes<T>);
  const double operations = ((kVectors ? 7.0 : 1.5) * n + 100.0) * count;
  const double nanoseconds = SmallNanoseconds(kLanes<T>, count, operations);
  ForEachGroup<T>(pool, batch, size, nanoseconds, [&]<class V>(int64_t i, V* registers) {
    const auto solve = [&]<class R>(std::type_identity<R>) {
      const small::EigenWork<Element<T, V>, R> work(registers, order, kVectors);
      LoadElements(a + i * count, count, count, work.matrix);
      const V failed = small::EigenHermitian<kVectors>(work, order, part, refine);
      StoreElements(work.d, n, values + i * n);
      if constexpr (kVectors) StoreElements(work.matrix, count, vectors + i * count);
      StoreIntegers(&failed, 1, info + i);
    };
    if constexpr (kLanesOf<V> > 1) {
      solve(std::type_identity<V>());
    } else if (FillsRegisters(n, kLanes<T>)) {
      solve(std::type_identity<Row>());  // a single matrix has its rows in registers
    } else {
      solve(std::type_identity<Vector<Real<T>, 16 / sizeof(Real<T>)>>());
    }
  });
}

// In tiles, one after the other.
template <class T>
void BlockedEigh(ffi::ThreadPool& pool, int64_t batch, int64_t n, HermitianPart part, const T* a,
                 T* vectors, Real<T>* values, int32_t* info) {
  using Eigen = blocked::HermitianEigen<T>;
  const int64_t size = n * n;
  const bool wanted = vectors != nullptr;
  Spares<Eigen> spares;
  const auto solve = [&](Eigen& eigen, int64_t i) {
    T* const v = wanted ? vectors + i * size : nullptr;
    info[i] = eigen.Solve(part, a + i * size, values + i * n, v);
    if (info[i] == 0) return;
    std::fill_n(values + i * n, n, NaN<Real<T>>());
    if (wanted) std::fill_n(v, size, NaN<T>());
  };
  ForEachRange(pool, batch, BlockedEighNanoseconds<T>(n, wanted), [&](int64_t first, int64_t last) {
    spares.With([&] { return Eigen(n, wanted); },
                [&](Eigen& eigen) {
                  for (int64_t i = first; i < last; ++i) solve(eigen, i);
                });
  });
}

template <class T>
void LapackEigh(ffi::ThreadPool& pool, int64_t batch, int64_t n, HermitianPart part, const T* a,
                T* vectors, Real<T>* values, int32_t* info) {
  const int64_t size = n * n;
  const double nanoseconds = LapackNanoseconds((vectors ? 9.0 : 2.0) * n * size);
  ForEachByLapack(pool, batch, n, nanoseconds, [&](int64_t first, int64_t last) {
    const auto scratch = Scratch<T>(vectors ? 0 : size);
    const auto solve = [&](auto&& eigh) {
      for (int64_t i = first; i < last; ++i) {
        T* matrix = vectors ? vectors + i * size : scratch.get();
        Real<T>* w = values + i * n;
        info[i] = CopyLower(pool, n, part, a + i * size, matrix) ? eigh(matrix, w) : kNotFinite;
        if (info[i] != 0) std::fill(w, w + n, NaN<Real<T>>());
        if (!vectors) continue;
        if (info[i] != 0) {
          std::fill(matrix, matrix + size, NaN<T>());
        } else {
          TransposeInPlace(pool, n, matrix);
        }
      }
    };
    if constexpr (std::is_same_v<Real<T>, float>) {
      if (!vectors) return solve(WideEigvalsh<T>(n));
    }
    solve([n, syevd = lapack::Syevd<T>(n, vectors != nullptr)](T* matrix, Real<T>* w) mutable {
      return syevd('L', matrix, ToInt(n), w);
    });
  });
}

// Runs over the batch; `vectors` is where eigenvectors go, or null if only values are wanted.
template <class T>
void EighBatch(ffi::ThreadPool& pool, int64_t batch, int64_t n, HermitianPart part, const T* a,
               T* vectors, Real<T>* values, int32_t* info) {
  if (n == 0) return std::fill(info, info + batch, 0);
  TakePath(
      ChoosePath(vectors ? Operation::kEigh : Operation::kEigvalsh, n, n, kDtype<T>),
      [&] {
        vectors ? SmallEigh<true>(pool, batch, n, part, a, vectors, values, info)
                : SmallEigh<false>(pool, batch, n, part, a, vectors, values, info);
      },
      [&] { BlockedEigh(pool, batch, n, part, a, vectors, values, info); },
      [&] { LapackEigh(pool, batch, n, part, a, vectors, values, info); });
}

// `vectors` is null where a handler has no such result.
void RunEigh(ffi::ThreadPool& pool, ffi::AnyBuffer a, Result& values, Result* vectors, Result& info,
             HermitianPart part) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    EighBatch(pool, batch, n, part, Elements<T>(a, batch, {n, n}, "a"),
              vectors ? ResultElements<T>(*vectors, batch, {n, n}, "the eigenvectors") : nullptr,
              Elements<Real<T>>(values, batch, {n}, "the eigenvalues"),
              Elements<int32_t>(info, batch, {}, "info"));
  });
}

void Eigh(ffi::ThreadPool pool, ffi::AnyBuffer a, Result values, Result vectors, Result info,
          bool lower, bool symmetrize) {
  RunEigh(pool, a, values, &vectors, info, {lower, symmetrize});
}

void Eigvalsh(ffi::ThreadPool pool, ffi::AnyBuffer a, Result values, Result info, bool lower,
              bool symmetrize) {
  RunEigh(pool, a, values, nullptr, info, {lower, symmetrize});
}

}  // namespace
}  // namespace linalg

LINALG_HANDLER(linalg_eigh, linalg::Eigh);
LINALG_HANDLER(linalg_eigvalsh, linalg::Eigvalsh);
