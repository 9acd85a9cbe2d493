// Singular values and vectors.
//
// Small matrices go to kernels/small, one per lane: to jacobi_svd.h, or without vectors,
// except for the smallest of float32, to svdvals.h. Larger ones go to gesdd, by divide and conquer.
// A row-major A is Aᵀ in column-major order, whose singular vectors are those of A with the sides
// exchanged and conjugated twice: U and Vᴴ are LAPACK's VT and U as they lie in memory, and nothing
// is transposed. A matrix that holds NaN or Inf is not handed to LAPACK, whose iterations may not
// end on it: it gets NaN, and info = -1.
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/lapack_batch.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/results.h"
#include "kernels/handlers.h"
#include "kernels/small/jacobi_svd.h"
#include "kernels/small/svdvals.h"
#include "kernels/svd_shape.h"

namespace linalg {
namespace {

// `u` and `vh` are null if only values are wanted; `full` if they are square.
template <class T>
struct Svd {
  int64_t m, n;
  bool full;
  const T* a;
  T* u;
  Real<T>* s;
  T* vh;
  int32_t* info;

  void Run(ffi::ThreadPool& pool, int64_t batch) const {
    const int64_t k = std::min(m, n);
    if (k == 0) return RunEmpty(batch);
    const Operation operation = u == nullptr ? Operation::kSvdvals : Operation::kSvd;
    TakePath(
        ChoosePath(operation, m, n, kDtype<T>),
        [&] {
          if (u != nullptr) {
            RunJacobi<true>(pool, batch);
          } else if (std::is_same_v<Real<T>, float> && std::max(m, n) <= kJacobiSvdvals) {
            RunJacobi<false>(pool, batch);
          } else {
            RunValues(pool, batch);
          }
        },
        [&] { RunLapack(pool, batch); });
  }

 private:
  int64_t LeftSize() const { return m * (full ? m : std::min(m, n)); }
  int64_t RightSize() const { return n * (full ? n : std::min(m, n)); }

  void RunLapack(ffi::ThreadPool& pool, int64_t batch) const {
    const int64_t k = std::min(m, n);
    const double flops = (u != nullptr ? 9.0 : 3.0) * static_cast<double>(m * n * k);
    const char job = u == nullptr ? 'N' : full ? 'A' : 'S';
    ForEachByLapack(pool, batch, k, LapackNanoseconds(flops), [&](int64_t first, int64_t last) {
      lapack::Gesdd<T> gesdd(job, n, m);
      const auto scratch = Scratch<T>(m * n);
      for (int64_t i = first; i < last; ++i) {
        const T* matrix = a + i * m * n;
        T* const left = u == nullptr ? nullptr : u + i * LeftSize();
        T* const right = u == nullptr ? nullptr : vh + i * RightSize();
        info[i] = kNotFinite;
        if (AllFinite(matrix, m * n)) {
          std::copy(matrix, matrix + m * n, scratch.get());
          info[i] = gesdd(scratch.get(), s + i * k, right, left);
        }
        if (info[i] == 0) continue;
        std::fill_n(s + i * k, k, NaN<Real<T>>());
        if (u == nullptr) continue;
        std::fill_n(left, LeftSize(), NaN<T>());
        std::fill_n(right, RightSize(), NaN<T>());
      }
    });
  }

  // One matrix per lane.
  void RunValues(ffi::ThreadPool& pool, int64_t batch) const {
    using Lanes = Vector<Real<T>, kLanes<T>>;
    const int rows = ToInt(m), cols = ToInt(n);
    const double k = static_cast<double>(std::min(m, n));
    const double operations = 2.0 * static_cast<double>(m * n) * k * kPartsOf<T> + 400.0 * k * k;
    ForEachGroup<T>(pool, batch, small::SizeOf<small::SvdvalsWork<Element<T, Lanes>>>(m, n),
                    SmallNanoseconds(kLanes<T>, m * n, operations),
                    [&]<class V>(int64_t i, V* registers) {
                      const small::SvdvalsWork<Element<T, V>> work(registers, rows, cols);
                      LoadElements(a + i * m * n, m * n, m * n, work.matrix);
                      const V failed = small::Svdvals(work, rows, cols);
                      StoreElements(work.values, std::min(m, n), s + i * std::min(m, n));
                      StoreIntegers(&failed, 1, info + i);
                    });
  }

  // One matrix per lane, by one-sided Jacobi.
  template <bool kVectors>
  void RunJacobi(ffi::ThreadPool& pool, int64_t batch) const {
    using Row = small::JacobiRow<Real<T>>;
    using Lanes = Vector<Real<T>, kLanes<T>>;
    const int rows = ToInt(m), cols = ToInt(n);
    const int64_t k = std::min(m, n);
    const int64_t size = std::max<int64_t>(
        small::SizeOf<small::JacobiWork<Element<T, Lanes>, Lanes>>(rows, cols, full),
        small::SizeOf<small::JacobiWork<Element<T, Real<T>>, Row>>(rows, cols, full) / kLanes<T> +
            1);
    const double operations = (kVectors ? 32.0 : 18.0) * k * k * k * (kIsComplex<T> ? 3 : 1) +
                              200.0 * k * k + 4.0 * m * n * k;
    const double nanoseconds = SmallNanoseconds(kLanes<T>, m * n, operations);
    ForEachGroup<T>(pool, batch, size, nanoseconds, [&]<class V>(int64_t i, V* registers) {
      using E = Element<T, V>;
      using R = std::conditional_t<kLanesOf<V> == 1, Row, V>;
      const small::JacobiWork<E, R> work(registers, rows, cols, full);
      LoadElements(a + i * m * n, m * n, m * n, work.matrix);
      const V failed = small::JacobiSvd<kVectors>(work, rows, cols, full);
      StoreElements(work.s, k, s + i * k);
      if constexpr (kVectors) {
        const bool tall = m >= n;
        StoreElements(tall ? work.left : work.right, LeftSize(), u + i * LeftSize());
        StoreElements(tall ? work.right : work.left, RightSize(), vh + i * RightSize());
      }
      StoreIntegers(&failed, 1, info + i);
    });
  }

  void RunEmpty(int64_t batch) const {
    std::fill(info, info + batch, 0);
    if (u == nullptr || !full) return;
    for (int64_t i = 0; i < batch; ++i) {
      WriteIdentity(m, u + i * m * m);
      WriteIdentity(n, vh + i * n * n);
    }
  }
};

// `u` and `vh` are null where a handler has no such results.
void RunSvd(ffi::ThreadPool& pool, const ffi::AnyBuffer& a, Result* u, Result& s, Result* vh,
            Result& info) {
  const SvdShape shape = ReadSvdShape(a, u ? &**u : nullptr, vh ? &**vh : nullptr);
  const int64_t batch = shape.batch, m = shape.m, n = shape.n;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    Svd<T>{.m = m,
           .n = n,
           .full = shape.full,
           .a = Elements<T>(a, batch, {m, n}, "a"),
           .u = u ? ResultElements<T>(*u, batch, {m, shape.u_cols}, "u") : nullptr,
           .s = Elements<Real<T>>(s, batch, {shape.k}, "the singular values"),
           .vh = vh ? ResultElements<T>(*vh, batch, {shape.vh_rows, n}, "vh") : nullptr,
           .info = Elements<int32_t>(info, batch, {}, "info")}
        .Run(pool, batch);
  });
}

void SvdHandler(ffi::ThreadPool pool, ffi::AnyBuffer a, Result u, Result s, Result vh,
                Result info) {
  RunSvd(pool, a, &u, s, &vh, info);
}

void Svdvals(ffi::ThreadPool pool, ffi::AnyBuffer a, Result s, Result info) {
  RunSvd(pool, a, nullptr, s, nullptr, info);
}

}  // namespace
}  // namespace linalg

LINALG_HANDLER(linalg_svd, linalg::SvdHandler);
LINALG_HANDLER(linalg_svdvals, linalg::Svdvals);
