// Eigenvalues and eigenvectors of Hermitian matrices.
//
// Small matrices run in lanes (kernels/small/eigh.h), larger ones in tiles (kernels/blocked). The
// largest go to syevd (heevd), in place in the output, which one pass fills with the lower triangle
// in column-major order. A matrix that is not finite gets NaN, and info = -1.
//
// Without vectors syevd iterates by QL, whose rounding errors add up. So in single precision LAPACK
// only reduces the matrix, and QL runs in float64 (wide_eigvalsh.h).
#include <algorithm>
#include <atomic>
#include <bit>

#include "kernels/arithmetic/hermitian.h"
#include "kernels/blocked/eigh.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/chosen.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/once.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/results.h"
#include "kernels/cpu/wide_eigvalsh.h"
#include "kernels/small/eigh.h"
#include "kernels/small/eigh_derivative.h"

namespace linalg {
namespace {

// Writes the Hermitian part of `a` as a column-major lower triangle. Returns false if it is not
// finite.
template <class T>
bool CopyLower(ffi::ThreadPool& pool, int64_t n, HermitianPart part, const T* a, T* target) {
  std::atomic<bool> finite = true;
  ForEachInTriangle(pool, n, part, a, [&](int64_t i, int64_t j, T element) {
    if (part.lower) {
      target[j * n + i] = element;
    } else {
      target[i * n + j] = std::bit_cast<T>(Conj(std::bit_cast<Element<T>>(element)));
    }
    if (!AllFinite(&element, 1)) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

// `vectors` is null where eigenvalues alone are wanted.
template <class T>
struct EighProblem {
  using R = Real<T>;

  int64_t batch, n;
  HermitianPart part;
  const T* a;
  T* vectors;
  R* values;
  int32_t* info;

  bool IsEmpty() const { return n == 0; }
  void RunEmpty() const { std::fill_n(info, batch, 0); }

  CpuPath path() const {
    const int64_t most_with_vectors = kIsDouble<T> ? kLaneEighDouble : kLaneEigh;
    if (n <= (vectors ? most_with_vectors : kLaneEigvalsh)) return CpuPath::kLane;
    return n <= kTileEigh ? CpuPath::kTile : CpuPath::kLapack;
  }

  void RunInLanes(ffi::ThreadPool& pool) const {
    vectors != nullptr ? RunInLanes<true>(pool) : RunInLanes<false>(pool);
  }

  void RunInTiles(ffi::ThreadPool& pool) const {
    using Eigen = blocked::HermitianEigen<T>;
    const int64_t size = n * n;
    const bool wanted = vectors != nullptr;
    ForEachInTasks(
        pool, batch, BlockedEighNanoseconds<T>(n, wanted), [&] { return Eigen(n, wanted); },
        [&](Eigen& eigen, int64_t i, const blocked::RunTasks& run_tasks) {
          T* const v = PartOf(vectors, i * size);
          info[i] = eigen.Solve(part, a + i * size, values + i * n, v, run_tasks);
          if (info[i] != 0) Fail(i);
        });
  }

  void RunByLapack(ffi::ThreadPool& pool) const {
    const int64_t size = n * n;
    const double nanoseconds = LapackNanoseconds((vectors ? 9.0 : 2.0) * n * size);
    const auto run = [&](auto make_solver, auto solve) {
      struct Work {
        decltype(make_solver()) solver;
        std::unique_ptr<T[]> scratch;
      };
      const auto make = [&] {
        return Work{.solver = make_solver(), .scratch = Scratch<T>(vectors ? 0 : size)};
      };
      ForEachByLapack(pool, batch, n, nanoseconds, make, [&](Work& work, int64_t i) {
        T* const matrix = vectors ? vectors + i * size : work.scratch.get();
        info[i] = IterateIf(CopyLower(pool, n, part, a + i * size, matrix),
                            [&] { return solve(work.solver, matrix, values + i * n); });
        if (info[i] != 0) {
          Fail(i);
        } else if (vectors != nullptr) {
          TransposeInPlace(pool, n, matrix);
        }
      });
    };
    if constexpr (std::is_same_v<R, float>) {
      if (vectors == nullptr) {
        return run([&] { return WideEigvalsh<T>(n); },
                   [](WideEigvalsh<T>& solver, T* matrix, R* w) { return solver(matrix, w); });
      }
    }
    run([&] { return lapack::Syevd<T>(n, vectors != nullptr); },
        [&](lapack::Syevd<T>& syevd, T* matrix, R* w) { return syevd('L', matrix, ToInt(n), w); });
  }

 private:
  template <bool kVectors>
  void RunInLanes(ffi::ThreadPool& pool) const {
    using Row = Vector<R, kLanes<T>>;
    const int order = ToInt(n);
    const bool refine = n >= (kVectors ? kLeastRefinedEigh : kLeastRefinedEigvalsh);
    // Elements of a scaled matrix are below 3, and its norm is below n times that.
    static_assert(3 * kLeastRefinedEigvalsh < 128, "more than small::RootFreeQl takes in float32");
    const int64_t count = n * n;
    const int64_t size = std::max<int64_t>(
        small::SizeOf<small::EigenWork<Element<T, Row>, Row>>(order, kVectors),
        (small::SizeOf<small::EigenWork<Element<T, R>, Row>>(order, kVectors) + kLanes<T> - 1) /
            kLanes<T>);
    const double operations = ((kVectors ? 7.0 : 1.5) * n + 100.0) * count;
    const double nanoseconds = SmallNanoseconds(kLanes<T>, count, operations);
    ForEachGroup<T>(pool, batch, size, nanoseconds, [&]<class V>(int64_t i, V* registers) {
      const auto solve = [&]<class RowOf>(std::type_identity<RowOf>) {
        const small::EigenWork<Element<T, V>, RowOf> work(registers, order, kVectors);
        LoadElements(a + i * count, count, count, work.matrix);
        const V failed = small::Eigh<kVectors>(work, order, part, refine);
        StoreElements(work.d, n, values + i * n);
        if constexpr (kVectors) StoreElements(work.matrix, count, vectors + i * count);
        StoreIntegers(&failed, 1, info + i);
      };
      if constexpr (kLanesOf<V> > 1) {
        solve(std::type_identity<V>());
      } else if (n > kLanes<T> / 2) {
        solve(std::type_identity<Row>());  // a single matrix has its rows in registers
      } else {
        solve(std::type_identity<Vector<R, 16 / sizeof(R)>>());
      }
    });
  }

  void Fail(int64_t i) const {
    FillWithNaN(n, values + i * n);
    FillWithNaN(n * n, PartOf(vectors, i * n * n));
  }
};

// `vectors` is null where a handler has no such result.
void RunEigh(ffi::ThreadPool& pool, ffi::AnyBuffer a, Result& values, Result* vectors, Result& info,
             HermitianPart part) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool, EighProblem<T>{
                        .batch = batch,
                        .n = n,
                        .part = part,
                        .a = Elements<T>(a, batch, {n, n}, "a"),
                        .vectors = ResultElements<T>(vectors, batch, {n, n}, "the eigenvectors"),
                        .values = Elements<Real<T>>(values, batch, {n}, "the eigenvalues"),
                        .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

void Eigh(ffi::ThreadPool pool, ffi::AnyBuffer a, Result values, Result vectors, Result info,
          bool lower, bool symmetrize) {
  RunEigh(pool, a, values, &vectors, info, {.lower = lower, .symmetrize = symmetrize});
}

void Eigvalsh(ffi::ThreadPool pool, ffi::AnyBuffer a, Result values, Result info, bool lower,
              bool symmetrize) {
  RunEigh(pool, a, values, nullptr, info, {.lower = lower, .symmetrize = symmetrize});
}

// A subset of the spectrum. Each matrix has three numbers of blocked::Outside.
template <class T>
struct EighSubsetProblem {
  using R = Real<T>;
  using Form = blocked::FormArrays<T, R>;

  int64_t batch, n;
  blocked::Chosen chosen;
  HermitianPart part;
  const T* a;
  T* vectors;
  R *values, *below, *above, *norm;
  Form form;
  int32_t* info;

  bool IsEmpty() const { return n == 0; }
  void RunEmpty() const {
    for (R* const number : {below, above, norm}) std::fill_n(number, batch, R(0));
    std::fill_n(info, batch, 0);
  }

  CpuPath path() const { return CpuPath::kTile; }

  void RunInTiles(ffi::ThreadPool& pool) const {
    using Eigen = blocked::ChosenEigen<T>;
    const bool wanted = vectors != nullptr;
    const int64_t size = n * n, count = chosen.count;
    ForEachInTasks(
        pool, batch, BlockedEighNanoseconds<T>(n, /*vectors=*/false),
        [&] { return Eigen(n, chosen, wanted); },
        [&](Eigen& eigen, int64_t i, const blocked::RunTasks& run_tasks) {
          R outside[3];
          const Form own = {PartOf(form.reflectors, i * size), PartOf(form.taus, i * n),
                            PartOf(form.d, i * n), PartOf(form.e, i * n)};
          info[i] = eigen.Solve(part, a + i * size, values + i * count, outside,
                                PartOf(vectors, i * n * count), own, run_tasks);
          if (info[i] != 0) {
            std::fill_n(outside, 3, NaN<R>());
            FillWithNaN(count, values + i * count);
            FillWithNaN(n * count, PartOf(vectors, i * n * count));
            FillWithNaN(size, own.reflectors);
            FillWithNaN(n, own.taus);
            FillWithNaN(n, own.d);
            FillWithNaN(n, own.e);
          }
          below[i] = outside[0];
          above[i] = outside[1];
          norm[i] = outside[2];
        });
  }
};

// The results that a handler may lack.
struct SubsetResults {
  Result *vectors = nullptr, *reflectors = nullptr, *taus = nullptr, *d = nullptr, *e = nullptr;
};

void RunEighSubset(ffi::ThreadPool& pool, ffi::AnyBuffer a, Result& values, Result& below,
                   Result& above, Result& norm, Result& info, const SubsetResults& results,
                   HermitianPart part, int64_t start, int64_t count) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  const blocked::Chosen chosen = ReadChosen(*values, "the eigenvalues", n, "n", start, count);
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    using R = Real<T>;
    RunOnPath(
        pool,
        EighSubsetProblem<T>{
            .batch = batch,
            .n = n,
            .chosen = chosen,
            .part = part,
            .a = Elements<T>(a, batch, {n, n}, "a"),
            .vectors = ResultElements<T>(results.vectors, batch, {n, count}, "the eigenvectors"),
            .values = Elements<R>(values, batch, {count}, "the eigenvalues"),
            .below = Elements<R>(below, batch, {}, "the eigenvalue below"),
            .above = Elements<R>(above, batch, {}, "the eigenvalue above"),
            .norm = Elements<R>(norm, batch, {}, "the norm"),
            .form = {ResultElements<T>(results.reflectors, batch, {n, n}, "the reflectors"),
                     ResultElements<T>(results.taus, batch, {n}, "taus"),
                     ResultElements<R>(results.d, batch, {n}, "d"),
                     ResultElements<R>(results.e, batch, {n}, "e")},
            .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

void EighSubset(ffi::ThreadPool pool, ffi::AnyBuffer a, Result values, Result vectors, Result below,
                Result above, Result norm, Result info, int64_t count, bool lower, int64_t start,
                bool symmetrize) {
  RunEighSubset(pool, a, values, below, above, norm, info, {.vectors = &vectors},
                {.lower = lower, .symmetrize = symmetrize}, start, count);
}

void EighSubsetFactored(ffi::ThreadPool pool, ffi::AnyBuffer a, Result values, Result vectors,
                        Result below, Result above, Result norm, Result reflectors, Result taus,
                        Result d, Result e, Result info, int64_t count, bool lower, int64_t start,
                        bool symmetrize) {
  RunEighSubset(pool, a, values, below, above, norm, info,
                {.vectors = &vectors, .reflectors = &reflectors, .taus = &taus, .d = &d, .e = &e},
                {.lower = lower, .symmetrize = symmetrize}, start, count);
}

void EigvalshSubset(ffi::ThreadPool pool, ffi::AnyBuffer a, Result values, Result below,
                    Result above, Result norm, Result info, int64_t count, bool lower,
                    int64_t start, bool symmetrize) {
  RunEighSubset(pool, a, values, below, above, norm, info, {},
                {.lower = lower, .symmetrize = symmetrize}, start, count);
}

// Solves with λ - A on the complement of the chosen vectors, given A's tridiagonal form. A itself,
// the values and the vectors are operands for the derivative, which Python has.
template <class T>
struct EighSubsetSolveProblem {
  using R = Real<T>;

  int64_t batch, n;
  blocked::Chosen chosen;
  blocked::FormArrays<const T, const R> form;
  const T* b;
  T* x;

  bool IsEmpty() const { return n * chosen.count == 0; }
  void RunEmpty() const {}

  CpuPath path() const { return CpuPath::kTile; }

  void RunInTiles(ffi::ThreadPool& pool) const {
    using Eigen = blocked::ChosenEigen<T>;
    const int64_t size = n * n, count = chosen.count;
    const double operations = 8.0 * static_cast<double>(size) * static_cast<double>(count + 8);
    ForEachInTasks(
        pool, batch, BlockedNanoseconds<T>(operations),
        [&] { return Eigen(n, chosen, /*vectors=*/true); },
        [&](Eigen& eigen, int64_t i, const blocked::RunTasks& run_tasks) {
          T* const own = x + i * n * count;
          if (!eigen.SolveInComplement(
                  {form.reflectors + i * size, form.taus + i * n, form.d + i * n, form.e + i * n},
                  b + i * n * count, own, run_tasks)) {
            FillWithNaN(n * count, own);
          }
        });
  }
};

void EighSubsetSolve(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer reflectors,
                     ffi::AnyBuffer taus, ffi::AnyBuffer d, ffi::AnyBuffer e, ffi::AnyBuffer w,
                     ffi::AnyBuffer v, ffi::AnyBuffer b, Result x, int64_t count, bool,
                     int64_t start, bool) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  const blocked::Chosen chosen = ReadChosen(w, "the eigenvalues", n, "n", start, count);
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    using R = Real<T>;
    Elements<T>(a, batch, {n, n}, "a");
    Elements<R>(w, batch, {count}, "the eigenvalues");
    Elements<T>(v, batch, {n, count}, "the eigenvectors");
    RunOnPath(pool, EighSubsetSolveProblem<T>{
                        .batch = batch,
                        .n = n,
                        .chosen = chosen,
                        .form = {Elements<T>(reflectors, batch, {n, n}, "the reflectors"),
                                 Elements<T>(taus, batch, {n}, "taus"),
                                 Elements<R>(d, batch, {n}, "d"), Elements<R>(e, batch, {n}, "e")},
                        .b = Elements<T>(b, batch, {n, count}, "b"),
                        .x = ResultElements<T>(x, batch, {n, count}, "x")});
  });
}

// The derivatives of eigenvalues and eigenvectors. Callers use them for small matrices only.
template <class T>
struct EighDerivativeProblem {
  using R = Real<T>;

  int64_t batch, n;
  HermitianPart part;
  const R* w;
  const T* v;
  // Operands: dA alone, or the cotangents of w and V.
  const R* dw = nullptr;
  const T* x;
  // Results: those of w and V, or A's cotangent alone.
  R* y_w = nullptr;
  T* y;

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    constexpr int64_t kParts = kPartsOf<T>;
    const int64_t size = n * n, count = 3 * size * kParts + 2 * n;
    const double operations = 3.0 * static_cast<double>(size) * n * kParts * kParts;
    ForEachGroup<T>(pool, batch, count, SmallNanoseconds(kLanes<T>, count, operations),
                    [&]<class V>(int64_t i, V* registers) {
                      using E = Element<T, V>;
                      E* const vectors = reinterpret_cast<E*>(registers);
                      E *const matrix = vectors + size, *const work = matrix + size;
                      V* const values = reinterpret_cast<V*>(work + size);
                      V* const changes = values + n;
                      LoadElements(w + i * n, n, n, values);
                      LoadElements(v + i * size, size, size, vectors);
                      LoadElements(x + i * size, size, size, matrix);
                      if (dw == nullptr) {
                        small::EighJvp(ToInt(n), values, vectors, part, matrix, changes, work);
                        StoreElements(changes, n, y_w + i * n);
                        StoreElements(work, size, y + i * size);
                      } else {
                        LoadElements(dw + i * n, n, n, changes);
                        small::EighVjp(ToInt(n), values, vectors, part, changes, matrix, work);
                        StoreElements(matrix, size, y + i * size);
                      }
                    });
  }
};

// Reads the operands of both derivatives. `x` is n by n.
template <class T>
EighDerivativeProblem<T> ReadDerivative(const ffi::AnyBuffer& w, const ffi::AnyBuffer& v,
                                        const ffi::AnyBuffer& x, Result& y, HermitianPart part) {
  const BatchShape shape = SplitSquareBatch(v, "the eigenvectors");
  const int64_t batch = shape.batch, n = shape.rows;
  return {.batch = batch,
          .n = n,
          .part = part,
          .w = Elements<Real<T>>(w, batch, {n}, "the eigenvalues"),
          .v = Elements<T>(v, batch, {n, n}, "the eigenvectors"),
          .x = Elements<T>(x, batch, {n, n}, "the derivative"),
          .y = ResultElements<T>(y, batch, {n, n}, "the result")};
}

void EighJvp(ffi::ThreadPool pool, ffi::AnyBuffer w, ffi::AnyBuffer v, ffi::AnyBuffer da, Result dw,
             Result dv, bool lower, bool symmetrize) {
  DispatchDtype(v.element_type(), [&]<class T>(std::type_identity<T>) {
    auto derivative = ReadDerivative<T>(w, v, da, dv, {.lower = lower, .symmetrize = symmetrize});
    derivative.y_w = Elements<Real<T>>(dw, derivative.batch, {derivative.n}, "dw");
    RunOnPath(pool, derivative);
  });
}

void EighVjp(ffi::ThreadPool pool, ffi::AnyBuffer w, ffi::AnyBuffer v, ffi::AnyBuffer w_ct,
             ffi::AnyBuffer v_ct, Result a_ct, bool lower, bool symmetrize) {
  DispatchDtype(v.element_type(), [&]<class T>(std::type_identity<T>) {
    auto derivative =
        ReadDerivative<T>(w, v, v_ct, a_ct, {.lower = lower, .symmetrize = symmetrize});
    derivative.dw = Elements<Real<T>>(w_ct, derivative.batch, {derivative.n},
                                      "the cotangent of the eigenvalues");
    RunOnPath(pool, derivative);
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_eigh, linalg::Eigh);
LINALG_CPU_HANDLER(linalg_eigh_jvp, linalg::EighJvp);
LINALG_CPU_HANDLER(linalg_eigh_vjp, linalg::EighVjp);
LINALG_CPU_HANDLER(linalg_eigh_subset, linalg::EighSubset);
LINALG_CPU_HANDLER(linalg_eigh_subset_factored, linalg::EighSubsetFactored);
LINALG_CPU_HANDLER(linalg_eigh_subset_solve, linalg::EighSubsetSolve);
LINALG_CPU_HANDLER(linalg_eigvalsh, linalg::Eigvalsh);
LINALG_CPU_HANDLER(linalg_eigvalsh_subset, linalg::EigvalshSubset);
