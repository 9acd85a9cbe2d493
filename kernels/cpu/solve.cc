// Solutions of linear systems, and inverses, by LU with partial pivoting.
//
// Small matrices are factored in lanes, and what they solve is substituted there, larger ones in
// tiles; the largest go to getrf, trsm and getri, and to division where a pivot has no reciprocal.
// A matrix that is exactly singular, or whose factors hold NaN, gets NaN throughout.
#include <algorithm>
#include <memory>

#include "kernels/blocked/lu.h"
#include "kernels/cpu/lapack_batch.h"
#include "kernels/cpu/lu_factors.h"
#include "kernels/cpu/substitution.h"
#include "kernels/handlers.h"
#include "kernels/small/solve.h"

namespace linalg {
namespace {

template <class T>
void SmallSolve(ffi::ThreadPool& pool, const Systems<T>& systems, int32_t* info) {
  const int n = ToInt(systems.n), cols = ToInt(systems.cols);
  const int64_t matrix = systems.n * systems.n;
  const double factoring = static_cast<double>(matrix) * n / 3;
  if (systems.a_stride != 0 || systems.batch == 1) {
    return ForEachSmallSystem(pool, systems, factoring + systems.Operations(),
                              [&](int64_t i, auto* a, auto* x, auto* spare) {
                                const auto singular = small::Solve(n, a, spare, spare + n, cols, x);
                                StoreIntegers(&singular, 1, info + i);
                              });
  }
  // One matrix for the whole batch is factored once.
  const auto factors = Scratch<T>(matrix);
  const auto pivots = Scratch<int32_t>(n);
  ForEachSmallLu<T>(pool, 1, n, n, 0, systems.a, [&](auto& group, auto singular) {
    StoreElements(group.a, matrix, factors.get());
    StoreIntegers(group.pivots, n, pivots.get());
    StoreIntegers(&singular, 1, info);
  });
  std::fill(info + 1, info + systems.batch, info[0]);
  Systems<T> factored = systems;
  factored.a = factors.get();
  ForEachSmallSystem(pool, factored, systems.Operations(),
                     [&]<class E>(int64_t, E* a, E* x, RealElement<E>* spare) {
                       using V = RealElement<E>;
                       LoadIntegers(pivots.get(), 0, n, spare);
                       const V singular = Number<V>(info[0]);
                       small::SolveFactored(n, a, spare, singular, cols, x);
                     });
}

// One matrix after another on each thread; one for the whole batch is factored once.
// factor(factors, a) returns info, and start() what a thread calls with (factors, b, x) to
// substitute; they take so many nanoseconds.
template <class Factors, class T, class Factor, class Start>
void SolveInTurn(ffi::ThreadPool& pool, const Systems<T>& systems, int32_t* info, double factoring,
                 double substituting, Factor&& factor, Start&& start) {
  const int64_t n = systems.n, size = systems.size();
  const auto solve = [&](auto& substitute, Factors& factors, int64_t i) {
    T* const x = systems.x + i * size;
    if (info[i] != 0) return std::fill(x, x + size, NaN<T>());
    substitute(factors, systems.b + i * size, x);
  };
  if (systems.a_stride != 0 || systems.batch == 1) {
    return ForEachRange(pool, systems.batch, factoring + substituting,
                        [&](int64_t first, int64_t last) {
                          Factors factors(n, n);
                          auto substitute = start();
                          for (int64_t i = first; i < last; ++i) {
                            info[i] = factor(factors, systems.a + i * systems.a_stride);
                            solve(substitute, factors, i);
                          }
                        });
  }
  Factors common(n, n);
  ForEachRange(pool, 1, factoring, [&](int64_t, int64_t) {
    std::fill(info, info + systems.batch, factor(common, systems.a));
  });
  ForEachRange(pool, systems.batch, substituting, [&](int64_t first, int64_t last) {
    auto substitute = start();
    for (int64_t i = first; i < last; ++i) solve(substitute, common, i);
  });
}

template <class T>
void BlockedSolve(ffi::ThreadPool& pool, const Systems<T>& systems, int32_t* info) {
  using Factors = blocked::LuFactors<T>;
  AdviseHugePages(systems);
  const int64_t n = systems.n, cols = systems.cols;
  const auto start = [&] {
    return
        [n, cols, work = blocked::Workspace<T>(n, cols)](const Factors& factors, const T* b, T* x) {
          const blocked::Rows<T> rows = work.rows();
          for (int64_t k = 0; k < n; ++k) std::copy_n(b + k * cols, cols, rows.At(k, 0).data);
          factors.Solve(cols, rows);
          for (int64_t k = 0; k < n; ++k) std::copy_n(rows.At(k, 0).data, cols, x + k * cols);
        };
  };
  SolveInTurn<Factors>(
      pool, systems, info, BlockedLuNanoseconds<T>(n, n),
      BlockedNanoseconds<T>(systems.Operations()),
      [](Factors& factors, const T* a) { return factors.Factor(a); }, start);
}

// Replaces the n by cols matrix `x` by A⁻¹ x.
template <class T>
void Substitute(LapackLu<T>& factors, int64_t n, int64_t cols, T* x) {
  const LuSubstitution<T> substitution{
      .n = n, .lu = factors.lu(), .pivots = factors.pivots(), .column_major = true};
  substitution.Solve(cols, x);
}

template <class T>
void LapackSolve(ffi::ThreadPool& pool, const Systems<T>& systems, int32_t* info) {
  using Factors = LapackLu<T>;
  lapack::Load();
  AdviseHugePages(systems);
  const BlasThreads threads(ThreadsFor(systems.batch, systems.n));
  const auto substitute = [&](Factors& factors, const T* b, T* x) {
    std::copy_n(b, systems.size(), x);
    Substitute(factors, systems.n, systems.cols, x);
  };
  SolveInTurn<Factors>(
      pool, systems, info, LuNanoseconds(systems.n, systems.n),
      LapackNanoseconds(systems.Operations()),
      [&](Factors& factors, const T* a) { return factors.Factor(pool, a); },
      [&] { return substitute; });
}

// One matrix per lane.
template <class T>
void SmallInv(ffi::ThreadPool& pool, int64_t batch, int64_t n, const T* a, T* inverse,
              int32_t* info) {
  const int64_t size = n * n;
  ForEachSmallGroup<T>(pool, batch, n, n, size, a, [&](auto& group) {
    const auto singular =
        small::Inverse(static_cast<int>(n), group.a, group.pivots, group.permutation, group.spare);
    StoreElements(group.spare, size, inverse + group.first * size);
    StoreIntegers(&singular, 1, info + group.first);
  });
}

template <class T>
void BlockedInv(ffi::ThreadPool& pool, int64_t batch, int64_t n, const T* a, T* inverse,
                int32_t* info) {
  const int64_t size = n * n;
  ForEachRange(pool, batch, 3 * BlockedLuNanoseconds<T>(n, n), [&](int64_t first, int64_t last) {
    blocked::LuFactors<T> factors(n, n);
    const blocked::Workspace<T> work(n, n);
    for (int64_t i = first; i < last; ++i) {
      T* const target = inverse + i * size;
      info[i] = factors.Factor(a + i * size);
      if (info[i] != 0) {
        std::fill(target, target + size, NaN<T>());
      } else {
        factors.Invert(work.rows(), target);
      }
    }
  });
}

template <class T>
void LapackInv(ffi::ThreadPool& pool, int64_t batch, int64_t n, const T* a, T* inverse,
               int32_t* info) {
  const int64_t size = n * n;
  ForEachByLapack(pool, batch, n, 3 * LuNanoseconds(n, n), [&](int64_t first, int64_t last) {
    LapackLu<T> factors(n, n);
    const auto work = Scratch<T>(lapack::GetriWork(n));
    for (int64_t i = first; i < last; ++i) {
      T* const target = inverse + i * size;
      info[i] = factors.Factor(pool, a + i * size);
      if (info[i] != 0) {
        std::fill(target, target + size, NaN<T>());
      } else if (DiagonalHasNoReciprocal(n, factors.lu())) {
        WriteIdentity(n, target);
        Substitute(factors, n, n, target);
      } else if (n > 0) {
        for (int64_t k = 0; k < n; ++k) ++factors.pivots()[k];
        lapack::Getri(ToInt(n), factors.lu(), ToInt(n), factors.pivots(), work.get());
        Transpose(pool, n, n, factors.lu(), n, target, n);
      }
    }
  });
}

void Solve(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b, Result x, Result info) {
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto systems = ReadSystems<T>(a, b, x, true);
    int32_t* info_data = Elements<int32_t>(info, systems.batch, {}, "info");
    if (systems.batch == 0) return;
    TakePath(
        ChoosePath(Operation::kSolve, systems), [&] { SmallSolve(pool, systems, info_data); },
        [&] { BlockedSolve(pool, systems, info_data); },
        [&] { LapackSolve(pool, systems, info_data); });
  });
}

void Inv(ffi::ThreadPool pool, ffi::AnyBuffer a, Result inverse, Result info) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    const T* a_data = Elements<T>(a, batch, {n, n}, "a");
    T* inverse_data = ResultElements<T>(inverse, batch, {n, n}, "the inverse");
    int32_t* info_data = Elements<int32_t>(info, batch, {}, "info");
    TakePath(
        ChoosePath(Operation::kLu, n, n, kDtype<T>),
        [&] { SmallInv(pool, batch, n, a_data, inverse_data, info_data); },
        [&] { BlockedInv(pool, batch, n, a_data, inverse_data, info_data); },
        [&] { LapackInv(pool, batch, n, a_data, inverse_data, info_data); });
  });
}

}  // namespace
}  // namespace linalg

LINALG_HANDLER(linalg_solve, linalg::Solve);
LINALG_HANDLER(linalg_inv, linalg::Inv);
