// Cholesky factors of Hermitian positive definite matrices, their derivatives, and solves with
// them.
//
// Small matrices are factored in lanes, larger ones in tiles. For the largest potrf works in place
// in the output: a row-major lower triangle is a column-major upper one, so neither the operand nor
// the factor is transposed. One pass over the operand copies the triangle, symmetrises it and
// clears the other one; a matrix that is not positive definite gets a triangle of NaN.
#include "kernels/blocked/cholesky.h"
#include "kernels/arithmetic/hermitian.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/lapack_batch.h"
#include "kernels/cpu/substitution.h"
#include "kernels/handlers.h"
#include "kernels/small/cholesky_derivative.h"
#include "kernels/small/solve.h"

namespace linalg {
namespace {

template <class T>
void ClearOtherTriangle(int64_t n, bool lower, T* a) {
  for (int64_t i = 0; i < n; ++i) {
    std::fill(a + i * n + (lower ? i + 1 : 0), a + i * n + (lower ? n : i), T(0));
  }
}

// What a matrix gets that is not positive definite.
template <class T>
void FillWithNaN(int64_t n, bool lower, T* factor) {
  ClearOtherTriangle(n, lower, factor);
  for (int64_t i = 0; i < n; ++i) {
    std::fill(factor + i * n + (lower ? 0 : i), factor + i * n + (lower ? i + 1 : n), NaN<T>());
  }
}

template <class T>
int CholeskyOne(ffi::ThreadPool& pool, int64_t n, HermitianPart part, const T* a, T* factor) {
  if (n == 0) return 0;
  ForEachInTriangle(pool, n, part, a,
                    [=](int64_t i, int64_t j, T element) { factor[i * n + j] = element; });
  ClearOtherTriangle(n, part.lower, factor);
  int info = lapack::Potrf(part.lower ? 'U' : 'L', ToInt(n), factor, ToInt(n));
  // Not every LAPACK finds that NaN is no positive pivot.
  for (int64_t i = 0, end = info == 0 ? n : info - 1; i < end; ++i) {
    if (std::real(factor[i * n + i]) > 0) continue;
    info = static_cast<int>(i + 1);
    break;
  }
  if (info != 0) FillWithNaN(n, part.lower, factor);
  return info;
}

template <class T>
void LapackCholesky(ffi::ThreadPool& pool, int64_t batch, int64_t n, HermitianPart part, const T* a,
                    T* factor, int32_t* info) {
  const double nanoseconds = LapackNanoseconds(n * n * n / 3.0);
  ForEachByLapack(pool, batch, n, nanoseconds, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      info[i] = CholeskyOne(pool, n, part, a + i * n * n, factor + i * n * n);
    }
  });
}

// One matrix after another on each thread.
template <class T>
void BlockedCholesky(ffi::ThreadPool& pool, int64_t batch, int64_t n, HermitianPart part,
                     const T* a, T* factor, int32_t* info) {
  ForEachRange(pool, batch, BlockedCholeskyNanoseconds<T>(n), [&](int64_t first, int64_t last) {
    const blocked::Workspace<T> workspace(n, n);
    for (int64_t i = first; i < last; ++i) {
      T* const target = factor + i * n * n;
      info[i] = blocked::Cholesky(n, part, a + i * n * n, target, workspace);
      if (info[i] != 0) FillWithNaN(n, part.lower, target);
    }
  });
}

// One matrix per lane.
template <class T>
void SmallCholesky(ffi::ThreadPool& pool, int64_t batch, int64_t n, HermitianPart part, const T* a,
                   T* factor, int32_t* info) {
  constexpr int64_t kParts = kPartsOf<T>;
  const int64_t size = n * n;
  const double nanoseconds =
      SmallNanoseconds(kLanes<T>, size * kParts, n * size / 6.0 * kParts * kParts);
  const auto factor_group = [&]<class V>(int64_t i, V* registers) {
    auto* matrix = reinterpret_cast<Element<T, V>*>(registers);
    LoadElements(a + i * size, size, size, matrix);
    const V failed = small::CholeskyFactor(matrix, static_cast<int>(n), part);
    StoreElements(matrix, size, factor + i * size);
    StoreIntegers(&failed, 1, info + i);
  };
  ForEachGroup<T>(pool, batch, size * kParts, nanoseconds, factor_group, a == factor);
}

void Cholesky(ffi::ThreadPool pool, ffi::AnyBuffer a, Result factor, Result info, bool lower,
              bool symmetrize) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    const T* a_data = Elements<T>(a, shape.batch, {n, n}, "a");
    T* factor_data = ResultElements<T>(factor, shape.batch, {n, n}, "the factor");
    int32_t* info_data = Elements<int32_t>(info, shape.batch, {}, "info");
    const HermitianPart part{lower, symmetrize};
    TakePath(
        ChoosePath(Operation::kCholesky, n, n, kDtype<T>),
        [&] { SmallCholesky(pool, shape.batch, n, part, a_data, factor_data, info_data); },
        [&] { BlockedCholesky(pool, shape.batch, n, part, a_data, factor_data, info_data); },
        [&] { LapackCholesky(pool, shape.batch, n, part, a_data, factor_data, info_data); });
  });
}

// The derivatives, which are called for small matrices alone: derivative(n, factor, x) overwrites
// x.
template <class Derivative>
void CholeskyDerivative(ffi::ThreadPool& pool, const ffi::AnyBuffer& factor,
                        const ffi::AnyBuffer& x, Result& y, Derivative&& derivative) {
  const BatchShape shape = SplitSquareBatch(factor, "the factor");
  const int64_t n = shape.rows, size = shape.size();
  DispatchDtype(factor.element_type(), [&]<class T>(std::type_identity<T>) {
    constexpr int64_t kParts = kPartsOf<T>;
    const T* factor_data = Elements<T>(factor, shape.batch, {n, n}, "the factor");
    const T* x_data = Elements<T>(x, shape.batch, {n, n}, "the derivative");
    T* y_data = ResultElements<T>(y, shape.batch, {n, n}, "the result");
    const double nanoseconds =
        SmallNanoseconds(kLanes<T>, 3 * size * kParts, n * size / 3.0 * kParts * kParts);
    ForEachGroup<T>(pool, shape.batch, 2 * size * kParts, nanoseconds,
                    [&]<class V>(int64_t i, V* registers) {
                      auto* matrix = reinterpret_cast<Element<T, V>*>(registers);
                      LoadElements(factor_data + i * size, size, size, matrix);
                      LoadElements(x_data + i * size, size, size, matrix + size);
                      derivative(static_cast<int>(n), matrix, matrix + size);
                      StoreElements(matrix + size, size, y_data + i * size);
                    });
  });
}

void CholeskyJvp(ffi::ThreadPool pool, ffi::AnyBuffer factor, ffi::AnyBuffer da, Result dfactor,
                 bool lower, bool symmetrize) {
  CholeskyDerivative(pool, factor, da, dfactor, [&](int n, auto* l, auto* x) {
    small::CholeskyJvp(n, l, HermitianPart{lower, symmetrize}, x);
  });
}

void CholeskyVjp(ffi::ThreadPool pool, ffi::AnyBuffer factor, ffi::AnyBuffer ct, Result a_ct,
                 bool lower, bool symmetrize) {
  CholeskyDerivative(pool, factor, ct, a_ct, [&](int n, auto* l, auto* x) {
    small::CholeskyVjp(n, l, HermitianPart{lower, symmetrize}, x);
  });
}

void CholeskySolve(ffi::ThreadPool pool, ffi::AnyBuffer factor, ffi::AnyBuffer b, Result x,
                   bool lower) {
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto systems = ReadSystems<T>(factor, b, x, true);
    SolveByPath(
        pool, systems,
        [&](int64_t, auto* matrix, auto* rhs, auto*) {
          small::CholeskySolve(static_cast<int>(systems.n), matrix, lower,
                               static_cast<int>(systems.cols), rhs);
        },
        [&](int64_t, const T* matrix, blocked::Rows<T> rhs, auto& substitution) {
          substitution.Solve(CholeskyTriangles(lower), matrix, systems.cols, rhs);
        },
        [&](int64_t, const T* matrix, T* rhs) {
          SolveTriangular(CholeskyTriangles(lower), systems.n, matrix, systems.cols, rhs);
        });
  });
}

}  // namespace
}  // namespace linalg

LINALG_HANDLER(linalg_cholesky, linalg::Cholesky);
LINALG_HANDLER(linalg_cholesky_jvp, linalg::CholeskyJvp);
LINALG_HANDLER(linalg_cholesky_vjp, linalg::CholeskyVjp);
LINALG_HANDLER(linalg_cholesky_solve, linalg::CholeskySolve);
