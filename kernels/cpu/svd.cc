// Singular values and vectors.
//
// Small matrices run in lanes (kernels/small): the smallest by jacobi_svd.h, others by qr_svd.h, or
// svdvals.h without vectors. Larger matrices run in tiles (kernels/blocked), and the largest by
// LAPACK's gesdd. A matrix that holds NaN or Inf gets NaN, and info = -1.
//
// LAPACK reads a row-major A as Aᵀ. The singular vectors of Aᵀ are those of A with left and right
// exchanged and conjugated. So LAPACK's VT and U are U and Vᴴ as they lie in memory, and nothing is
// transposed.
#include "kernels/blocked/svd.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/chosen.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/once.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/results.h"
#include "kernels/small/jacobi_svd.h"
#include "kernels/small/qr_svd.h"
#include "kernels/small/svd.h"
#include "kernels/small/svd_derivative.h"
#include "kernels/small/svdvals.h"
#include "kernels/svd_shape.h"

namespace linalg {
namespace {

// Nanoseconds in tiles of singular values, and of singular vectors if they are wanted.
template <class T>
double BlockedSvdNanoseconds(int64_t rows, int64_t cols, bool vectors) {
  const double k = static_cast<double>(std::min(rows, cols));
  const double operations = (static_cast<double>(std::max(rows, cols)) + k + 100) * k * k;
  return (vectors ? 4 : 1) * BlockedNanoseconds<T>(operations);
}

// `u` and `vh` are null if only singular values are requested. `full` requests square factors.
template <class T>
struct SvdProblem {
  using R = Real<T>;

  int64_t batch, m, n;
  bool full;
  const T* a;
  T* u;
  R* s;
  T* vh;
  int32_t* info;

  bool IsEmpty() const { return Count() == 0; }
  void RunEmpty() const {
    std::fill_n(info, batch, 0);
    if (u == nullptr || !full) return;
    for (int64_t i = 0; i < batch; ++i) {
      WriteIdentity(m, u + i * m * m);
      WriteIdentity(n, vh + i * n * n);
    }
  }

  CpuPath path() const {
    const int64_t most_in_lanes =
        u != nullptr ? ForDtype<T>(kLaneSvd, kLaneSvdComplex64, kLaneSvdFloat64, kLaneSvdComplex128)
                     : (kIsDouble<T> ? kLaneSvdvalsDouble : kLaneSvdvals);
    if (std::max(m, n) <= most_in_lanes) return CpuPath::kLane;
    const bool fills_tiles = kLeastTileSvd <= Count();
    const bool fits_memory =
        Count() <= kTileSvd && m * n * static_cast<int64_t>(sizeof(T)) <= kTileSvdBytes;
    return fills_tiles && fits_memory ? CpuPath::kTile : CpuPath::kLapack;
  }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const bool vectors = u != nullptr;
    if (TakesJacobi()) {
      vectors ? RunJacobi<true>(pool) : RunJacobi<false>(pool);
    } else {
      vectors ? RunQr(pool) : RunValues(pool);
    }
  }

  void RunInTiles(ffi::ThreadPool& pool) const {
    using Blocked = blocked::SingularValues<T>;
    const bool vectors = u != nullptr;
    ForEachInTasks(
        pool, batch, BlockedSvdNanoseconds<T>(m, n, vectors),
        [&] { return Blocked(m, n, full, vectors); },
        [&](Blocked& blocked, int64_t i, const blocked::RunTasks& run_tasks) {
          info[i] = blocked.Solve(a + i * m * n, s + i * Count(), PartOf(u, i * LeftSize()),
                                  PartOf(vh, i * RightSize()), run_tasks);
          if (info[i] != 0) Fail(i);
        });
  }

  void RunByLapack(ffi::ThreadPool& pool) const {
    const int64_t k = Count();
    const double flops = (u != nullptr ? 9.0 : 3.0) * static_cast<double>(m * n * k);
    struct Work {
      lapack::Gesdd<T> gesdd;
      std::unique_ptr<T[]> scratch;
    };
    const auto make = [&] {
      const char job = u == nullptr ? 'N' : full ? 'A' : 'S';
      return Work{.gesdd = lapack::Gesdd<T>(job, n, m), .scratch = Scratch<T>(m * n)};
    };
    ForEachByLapack(pool, batch, k, LapackNanoseconds(flops), make, [&](Work& work, int64_t i) {
      const T* const matrix = a + i * m * n;
      R* const values = s + i * k;
      T *const left = PartOf(u, i * LeftSize()), *const right = PartOf(vh, i * RightSize());
      info[i] = IterateIf(AllFinite(matrix, m * n), [&] {
        std::copy_n(matrix, m * n, work.scratch.get());
        return work.gesdd(work.scratch.get(), values, right, left);
      });
      if (info[i] != 0) Fail(i);
    });
  }

 private:
  int64_t Count() const { return std::min(m, n); }
  // One-sided Jacobi takes these, QR iteration the others.
  bool TakesJacobi() const {
    if (u == nullptr) return !kIsDouble<T> && std::max(m, n) <= kJacobiSvdvals;
    return Count() <=
           ForDtype<T>(kJacobiSvd, kJacobiSvdComplex64, kJacobiSvdFloat64, kJacobiSvdComplex128);
  }
  int64_t LeftSize() const { return m * (full ? m : Count()); }
  int64_t RightSize() const { return n * (full ? n : Count()); }
  void Fail(int64_t i) const {
    FillWithNaN(Count(), s + i * Count());
    FillWithNaN(LeftSize(), PartOf(u, i * LeftSize()));
    FillWithNaN(RightSize(), PartOf(vh, i * RightSize()));
  }

  // One matrix per lane. A single matrix has its columns in registers.
  void RunValues(ffi::ThreadPool& pool) const {
    using Full = Vector<R, kLanes<T>>;
    const int rows = ToInt(m), cols = ToInt(n);
    const double k = static_cast<double>(Count());
    const double operations = 2.0 * static_cast<double>(m * n) * k * kPartsOf<T> + 400.0 * k * k;
    ForEachGroup<T>(pool, batch, small::SizeOf<small::SvdvalsWork<Element<T, Full>>>(m, n),
                    SmallNanoseconds(kLanes<T>, m * n, operations),
                    [&]<class V>(int64_t i, V* registers) {
                      const small::SvdvalsWork<Element<T, V>> work(registers, rows, cols);
                      LoadElements(a + i * m * n, m * n, m * n, work.matrix);
                      const V failed = small::Svdvals<ColumnBlock<T, V>>(work, rows, cols);
                      StoreElements(work.values, Count(), s + i * Count());
                      StoreIntegers(&failed, 1, info + i);
                    });
  }

  // Methods for square matrices, of elements V or in lanes of V. A single matrix has its rows in
  // registers.
  template <class V>
  using RowOf = std::conditional_t<kLanesOf<V> == 1, small::JacobiRow<R>, V>;
  template <class V>
  using Jacobi = small::JacobiSvd<Element<T, V>, RowOf<V>>;
  template <class V>
  using Qr = small::QrSvd<Element<T, V>, RowOf<V>, ColumnBlock<T, V>>;

  // One matrix per lane. `operations` counts the method's own.
  template <bool kVectors, template <class> class Method>
  void RunMethod(ffi::ThreadPool& pool, double operations) const {
    using Full = Vector<R, kLanes<T>>;
    const int rows = ToInt(m), cols = ToInt(n);
    const int64_t k = Count();
    const int64_t size = std::max<int64_t>(
        small::SizeOf<small::SvdWork<Method<Full>>>(rows, cols, full),
        small::SizeOf<small::SvdWork<Method<R>>>(rows, cols, full) / kLanes<T> + 1);
    const double nanoseconds =
        SmallNanoseconds(kLanes<T>, m * n, operations + 200.0 * k * k + 4.0 * m * n * k);
    const auto run = [&]<class V>(int64_t i, V* registers) {
      const small::SvdWork<Method<V>> work(registers, rows, cols, full);
      LoadElements(a + i * m * n, m * n, m * n, work.matrix);
      const V failed = small::Svd<kVectors>(work, rows, cols, full);
      StoreElements(work.s, k, s + i * k);
      if constexpr (kVectors) {
        const bool tall = m >= n;
        StoreElements(tall ? work.left : work.right, LeftSize(), u + i * LeftSize());
        StoreElements(tall ? work.right : work.left, RightSize(), vh + i * RightSize());
      }
      StoreIntegers(&failed, 1, info + i);
    };
    ForEachGroup<T>(pool, batch, size, nanoseconds, run, /*in_place=*/false, kWideSvdGroupBytes);
  }

  template <bool kVectors>
  void RunJacobi(ffi::ThreadPool& pool) const {
    const double k = static_cast<double>(Count());
    RunMethod<kVectors, Jacobi>(pool,
                                (kVectors ? 32.0 : 18.0) * k * k * k * (kIsComplex<T> ? 3 : 1));
  }
  void RunQr(ffi::ThreadPool& pool) const {
    const double k = static_cast<double>(Count());
    RunMethod<true, Qr>(pool, (kIsComplex<T> ? 24.0 : 12.0) * k * k * k);
  }
};

// `u` and `vh` are null where a handler has no such results.
void RunSvd(ffi::ThreadPool& pool, const ffi::AnyBuffer& a, Result* u, Result& s, Result* vh,
            Result& info) {
  const SvdShape shape = ReadSvdShape(a, u ? &**u : nullptr, vh ? &**vh : nullptr);
  const int64_t batch = shape.batch, m = shape.m, n = shape.n;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool,
              SvdProblem<T>{.batch = batch,
                            .m = m,
                            .n = n,
                            .full = shape.full,
                            .a = Elements<T>(a, batch, {m, n}, "a"),
                            .u = ResultElements<T>(u, batch, {m, shape.u_cols}, "u"),
                            .s = Elements<Real<T>>(s, batch, {shape.k}, "the singular values"),
                            .vh = ResultElements<T>(vh, batch, {shape.vh_rows, n}, "vh"),
                            .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

void Svd(ffi::ThreadPool pool, ffi::AnyBuffer a, Result u, Result s, Result vh, Result info) {
  RunSvd(pool, a, &u, s, &vh, info);
}

void Svdvals(ffi::ThreadPool pool, ffi::AnyBuffer a, Result s, Result info) {
  RunSvd(pool, a, nullptr, s, nullptr, info);
}

// The bidiagonal form of matrix i.
template <class T, class R>
blocked::BidiagonalArrays<T, R> FormOf(const blocked::BidiagonalArrays<T, R>& form, int64_t i,
                                       int64_t m, int64_t n) {
  const int64_t k = std::min(m, n);
  return {PartOf(form.left, i * k * k),  PartOf(form.left_taus, i * k),
          PartOf(form.right, i * k * k), PartOf(form.right_taus, i * k),
          PartOf(form.tall, i * m * n),  PartOf(form.tall_taus, i * k),
          PartOf(form.d, i * k),         PartOf(form.e, i * k)};
}

// Chosen singular values, by their indices in descending order, and thin factors of them. `u` and
// `vh` are null where values alone are wanted. `below`, the next two, and the form are null where
// derivatives are not.
template <class T>
struct SvdSubsetProblem {
  using R = Real<T>;
  using Form = blocked::BidiagonalArrays<T, R>;

  int64_t batch, m, n;
  blocked::Chosen chosen;
  const T* a;
  T* u;
  R* s;
  T* vh;
  R *below, *above, *norm;
  Form form;
  int32_t* info;

  bool IsEmpty() const { return m * n == 0; }
  void RunEmpty() const {
    for (R* const number : {below, above, norm}) {
      if (number != nullptr) std::fill_n(number, batch, R(0));
    }
    std::fill_n(info, batch, 0);
  }

  CpuPath path() const { return CpuPath::kTile; }

  void RunInTiles(ffi::ThreadPool& pool) const {
    using Blocked = blocked::SingularValues<T>;
    const bool vectors = u != nullptr;
    const int64_t count = chosen.count;
    ForEachInTasks(
        pool, batch, BlockedSvdNanoseconds<T>(m, n, /*vectors=*/false),
        [&] { return Blocked(m, n, /*full=*/false, vectors, chosen); },
        [&](Blocked& blocked, int64_t i, const blocked::RunTasks& run_tasks) {
          R* const values = s + i * count;
          T *const left = PartOf(u, i * m * count), *const right = PartOf(vh, i * count * n);
          R outside[3];
          const Form own = FormOf(form, i, m, n);
          info[i] = blocked.Solve(a + i * m * n, values, left, right, below ? outside : nullptr,
                                  own, run_tasks);
          if (info[i] != 0) {
            std::fill_n(outside, 3, NaN<R>());
            FillWithNaN(count, values);
            FillWithNaN(m * count, left);
            FillWithNaN(count * n, right);
            FailForm(own);
          }
          if (below == nullptr) return;
          below[i] = outside[0];
          above[i] = outside[1];
          norm[i] = outside[2];
        });
  }

 private:
  void FailForm(const Form& own) const {
    const int64_t k = std::min(m, n);
    FillWithNaN(k * k, own.left);
    FillWithNaN(k * k, own.right);
    FillWithNaN(m * n, own.tall);
    for (T* const taus : {own.left_taus, own.right_taus, own.tall_taus}) FillWithNaN(k, taus);
    for (R* const numbers : {own.d, own.e}) FillWithNaN(k, numbers);
  }
};

// The results that a handler may lack.
struct SvdSubsetResults {
  Result *u = nullptr, *vh = nullptr, *below = nullptr, *above = nullptr, *norm = nullptr,
         *left = nullptr, *left_taus = nullptr, *right = nullptr, *right_taus = nullptr,
         *tall = nullptr, *tall_taus = nullptr, *d = nullptr, *e = nullptr;
};

void RunSvdSubset(ffi::ThreadPool& pool, const ffi::AnyBuffer& a, Result& s, Result& info,
                  const SvdSubsetResults& results, int64_t start, int64_t count) {
  const auto [batch, m, n] = SplitBatch(a, 2, "a");
  const int64_t k = std::min(m, n);
  const blocked::Chosen chosen =
      ReadChosen(*s, "the singular values", k, "min(m, n)", start, count);
  DispatchDtype(a.element_type(), [&, batch = batch, m = m, n = n]<class T>(std::type_identity<T>) {
    using R = Real<T>;
    RunOnPath(pool,
              SvdSubsetProblem<T>{
                  .batch = batch,
                  .m = m,
                  .n = n,
                  .chosen = chosen,
                  .a = Elements<T>(a, batch, {m, n}, "a"),
                  .u = ResultElements<T>(results.u, batch, {m, count}, "u"),
                  .s = Elements<R>(s, batch, {count}, "the singular values"),
                  .vh = ResultElements<T>(results.vh, batch, {count, n}, "vh"),
                  .below = ResultElements<R>(results.below, batch, {}, "the value below"),
                  .above = ResultElements<R>(results.above, batch, {}, "the value above"),
                  .norm = ResultElements<R>(results.norm, batch, {}, "the norm"),
                  .form = {ResultElements<T>(results.left, batch, {k, k}, "the left reflectors"),
                           ResultElements<T>(results.left_taus, batch, {k}, "the left taus"),
                           ResultElements<T>(results.right, batch, {k, k}, "the right reflectors"),
                           ResultElements<T>(results.right_taus, batch, {k}, "the right taus"),
                           ResultElements<T>(results.tall, batch, {m, n}, "the QR factors"),
                           ResultElements<T>(results.tall_taus, batch, {k}, "the QR factors' taus"),
                           ResultElements<R>(results.d, batch, {k}, "d"),
                           ResultElements<R>(results.e, batch, {k}, "e")},
                  .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

void SvdSubset(ffi::ThreadPool pool, ffi::AnyBuffer a, Result u, Result s, Result vh, Result info,
               int64_t count, int64_t start) {
  RunSvdSubset(pool, a, s, info, {.u = &u, .vh = &vh}, start, count);
}

void SvdSubsetFactored(ffi::ThreadPool pool, ffi::AnyBuffer a, Result u, Result s, Result vh,
                       Result below, Result above, Result norm, Result left, Result left_taus,
                       Result right, Result right_taus, Result tall, Result tall_taus, Result d,
                       Result e, Result info, int64_t count, int64_t start) {
  RunSvdSubset(pool, a, s, info,
               {&u, &vh, &below, &above, &norm, &left, &left_taus, &right, &right_taus, &tall,
                &tall_taus, &d, &e},
               start, count);
}

void SvdvalsSubset(ffi::ThreadPool pool, ffi::AnyBuffer a, Result s, Result info, int64_t count,
                   int64_t start) {
  RunSvdSubset(pool, a, s, info, {}, start, count);
}

// Solves beside the chosen vectors, given A's bidiagonal form. A itself, the values and the vectors
// are operands for the derivative, which Python has.
template <class T>
struct SvdSubsetSolveProblem {
  using R = Real<T>;

  int64_t batch, m, n;
  blocked::Chosen chosen;
  blocked::BidiagonalArrays<const T, const R> form;
  const T *b, *c;
  T *x, *y;

  bool IsEmpty() const { return m * n * chosen.count == 0; }
  void RunEmpty() const {}  // x and y have no elements

  CpuPath path() const { return CpuPath::kTile; }

  void RunInTiles(ffi::ThreadPool& pool) const {
    using Complement = blocked::SingularComplement<T>;
    const int64_t count = chosen.count;
    const double operations =
        16.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(count + 8);
    ForEachInTasks(
        pool, batch, BlockedNanoseconds<T>(operations), [&] { return Complement(m, n, chosen); },
        [&](Complement& complement, int64_t i, const blocked::RunTasks& run_tasks) {
          const int64_t left = i * m * count, right = i * n * count;
          if (!complement.Solve(FormOf(form, i, m, n), b + left, c + right, x + left, y + right,
                                run_tasks)) {
            FillWithNaN(m * count, x + left);
            FillWithNaN(n * count, y + right);
          }
        });
  }
};

void SvdSubsetSolve(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer left,
                    ffi::AnyBuffer left_taus, ffi::AnyBuffer right, ffi::AnyBuffer right_taus,
                    ffi::AnyBuffer tall, ffi::AnyBuffer tall_taus, ffi::AnyBuffer d,
                    ffi::AnyBuffer e, ffi::AnyBuffer s, ffi::AnyBuffer u, ffi::AnyBuffer vh,
                    ffi::AnyBuffer b, ffi::AnyBuffer c, Result x, Result y, int64_t count,
                    int64_t start) {
  const auto [batch, m, n] = SplitBatch(a, 2, "a");
  const int64_t k = std::min(m, n);
  const blocked::Chosen chosen = ReadChosen(s, "the singular values", k, "min(m, n)", start, count);
  DispatchDtype(a.element_type(), [&, batch = batch, m = m, n = n]<class T>(std::type_identity<T>) {
    using R = Real<T>;
    Elements<T>(a, batch, {m, n}, "a");
    Elements<R>(s, batch, {count}, "the singular values");
    Elements<T>(u, batch, {m, count}, "u");
    Elements<T>(vh, batch, {count, n}, "vh");
    RunOnPath(pool, SvdSubsetSolveProblem<T>{
                        .batch = batch,
                        .m = m,
                        .n = n,
                        .chosen = chosen,
                        .form = {Elements<T>(left, batch, {k, k}, "the left reflectors"),
                                 Elements<T>(left_taus, batch, {k}, "the left taus"),
                                 Elements<T>(right, batch, {k, k}, "the right reflectors"),
                                 Elements<T>(right_taus, batch, {k}, "the right taus"),
                                 Elements<T>(tall, batch, {m, n}, "the QR factors"),
                                 Elements<T>(tall_taus, batch, {k}, "the QR factors' taus"),
                                 Elements<R>(d, batch, {k}, "d"), Elements<R>(e, batch, {k}, "e")},
                        .b = Elements<T>(b, batch, {m, count}, "b"),
                        .c = Elements<T>(c, batch, {n, count}, "c"),
                        .x = ResultElements<T>(x, batch, {m, count}, "x"),
                        .y = ResultElements<T>(y, batch, {n, count}, "y")});
  });
}

// The factors of square matrices. Derivatives of small ones are computed here.
template <class T>
struct SquareFactors {
  int64_t batch, n;
  const T* u;
  const Real<T>* s;
  const T* vh;

  SquareFactors(const ffi::AnyBuffer& u_buffer, const ffi::AnyBuffer& s_buffer,
                const ffi::AnyBuffer& vh_buffer) {
    const BatchShape shape = SplitSquareBatch(u_buffer, "U");
    batch = shape.batch;
    n = shape.rows;
    u = Elements<T>(u_buffer, batch, {n, n}, "U");
    s = Elements<Real<T>>(s_buffer, batch, {n}, "the singular values");
    vh = Elements<T>(vh_buffer, batch, {n, n}, "Vh");
  }

  // Calls differentiate(i, matrices, values). `matrices` are U, Vh and space for three more.
  // `values` are the singular values and space for as many.
  template <class F>
  void ForEachGroupWith(ffi::ThreadPool& pool, F differentiate) const {
    constexpr int64_t kParts = kPartsOf<T>;
    const int64_t size = n * n, count = 5 * size * kParts + 2 * n;
    const double operations = 4.0 * static_cast<double>(size) * n * kParts * kParts;
    ForEachGroup<T>(pool, batch, count, SmallNanoseconds(kLanes<T>, count, operations),
                    [&]<class V>(int64_t i, V* registers) {
                      Element<T, V>* const matrices = reinterpret_cast<Element<T, V>*>(registers);
                      V* const values = registers + 5 * size * kParts;
                      LoadElements(u + i * size, size, size, matrices);
                      LoadElements(vh + i * size, size, size, matrices + size);
                      LoadElements(s + i * n, n, n, values);
                      differentiate(i, matrices, values);
                    });
  }
};

template <class T>
struct SvdJvpProblem {
  SquareFactors<T> factors;
  const T* da;
  T* du;
  Real<T>* ds;
  T* dvh;

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const int64_t n = factors.n, size = n * n;
    factors.ForEachGroupWith(pool, [&]<class E, class V>(int64_t i, E* matrices, V* values) {
      E *const x = matrices + 2 * size, *const turned = x + size;
      LoadElements(da + i * size, size, size, x);
      small::SvdJvp(ToInt(n), matrices, values, matrices + size, x, values + n, turned,
                    turned + size);
      StoreElements(turned, size, du + i * size);
      StoreElements(values + n, n, ds + i * n);
      StoreElements(x, size, dvh + i * size);
    });
  }
};

template <class T>
struct SvdVjpProblem {
  SquareFactors<T> factors;
  const T* u_ct;
  const Real<T>* s_ct;
  const T* vh_ct;
  T* a_ct;

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const int64_t n = factors.n, size = n * n;
    factors.ForEachGroupWith(pool, [&]<class E, class V>(int64_t i, E* matrices, V* values) {
      E *const x = matrices + 2 * size, *const y = x + size;
      LoadElements(u_ct + i * size, size, size, x);
      LoadElements(vh_ct + i * size, size, size, y);
      LoadElements(s_ct + i * n, n, n, values + n);
      small::SvdVjp(ToInt(n), matrices, values, matrices + size, values + n, x, y, y + size);
      StoreElements(x, size, a_ct + i * size);
    });
  }
};

void SvdJvp(ffi::ThreadPool pool, ffi::AnyBuffer u, ffi::AnyBuffer s, ffi::AnyBuffer vh,
            ffi::AnyBuffer da, Result du, Result ds, Result dvh) {
  DispatchDtype(u.element_type(), [&]<class T>(std::type_identity<T>) {
    const SquareFactors<T> factors(u, s, vh);
    const int64_t batch = factors.batch, n = factors.n;
    RunOnPath(pool, SvdJvpProblem<T>{.factors = factors,
                                     .da = Elements<T>(da, batch, {n, n}, "dA"),
                                     .du = ResultElements<T>(du, batch, {n, n}, "dU"),
                                     .ds = Elements<Real<T>>(ds, batch, {n}, "ds"),
                                     .dvh = ResultElements<T>(dvh, batch, {n, n}, "dVh")});
  });
}

void SvdVjp(ffi::ThreadPool pool, ffi::AnyBuffer u, ffi::AnyBuffer s, ffi::AnyBuffer vh,
            ffi::AnyBuffer u_ct, ffi::AnyBuffer s_ct, ffi::AnyBuffer vh_ct, Result a_ct) {
  DispatchDtype(u.element_type(), [&]<class T>(std::type_identity<T>) {
    const SquareFactors<T> factors(u, s, vh);
    const int64_t batch = factors.batch, n = factors.n;
    RunOnPath(pool, SvdVjpProblem<T>{
                        .factors = factors,
                        .u_ct = Elements<T>(u_ct, batch, {n, n}, "the cotangent of U"),
                        .s_ct = Elements<Real<T>>(s_ct, batch, {n}, "the cotangent of the values"),
                        .vh_ct = Elements<T>(vh_ct, batch, {n, n}, "the cotangent of Vh"),
                        .a_ct = ResultElements<T>(a_ct, batch, {n, n}, "the result")});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_svd, linalg::Svd);
LINALG_CPU_HANDLER(linalg_svd_jvp, linalg::SvdJvp);
LINALG_CPU_HANDLER(linalg_svd_subset, linalg::SvdSubset);
LINALG_CPU_HANDLER(linalg_svd_subset_factored, linalg::SvdSubsetFactored);
LINALG_CPU_HANDLER(linalg_svd_subset_solve, linalg::SvdSubsetSolve);
LINALG_CPU_HANDLER(linalg_svd_vjp, linalg::SvdVjp);
LINALG_CPU_HANDLER(linalg_svdvals, linalg::Svdvals);
LINALG_CPU_HANDLER(linalg_svdvals_subset, linalg::SvdvalsSubset);
