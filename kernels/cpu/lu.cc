// LU with partial pivoting, and solves with given factors.
//
// Small matrices are factored in lanes; larger ones by getrf on a column-major copy in scratch
// memory. Pivots count from 0 and are turned into the permutation in the same pass. A singular
// matrix is not a failure: info is the 1-based index of the first zero pivot.
#include "kernels/cpu/lu_factors.h"

#include <algorithm>
#include <numeric>

#include "kernels/cpu/lapack_batch.h"
#include "kernels/cpu/substitution.h"
#include "kernels/handlers.h"
#include "kernels/small/solve.h"

namespace linalg {
namespace {

// permutation = the rows' order after the exchanges; an index outside the permutation is ignored.
void PivotsToPermutation(int64_t pivot_count, const int32_t* pivots, int64_t size,
                         int32_t* permutation) {
  std::iota(permutation, permutation + size, 0);
  for (int64_t i = 0; i < pivot_count; ++i) {
    const int64_t j = pivots[i];
    if (j >= 0 && j < size) std::swap(permutation[i], permutation[j]);
  }
}

void Lu(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::Result<ffi::AnyBuffer> lu,
        ffi::Result<ffi::AnyBuffer> pivots, ffi::Result<ffi::AnyBuffer> permutation,
        ffi::Result<ffi::AnyBuffer> info) {
  const BatchShape shape = SplitBatch(a, 2, "a");
  const auto [batch, rows, cols] = shape;
  const int64_t m = rows, n = cols, k = std::min(rows, cols);
  DispatchDtype(a.element_type(), [&, batch = batch]<class T>(std::type_identity<T>) {
    const T* a_data = Elements<T>(a, batch, {m, n}, "a");
    T* lu_data = ResultElements<T>(lu, batch, {m, n}, "lu");
    int32_t* pivots_data = Elements<int32_t>(pivots, batch, {k}, "pivots");
    int32_t* permutation_data = Elements<int32_t>(permutation, batch, {m}, "permutation");
    int32_t* info_data = Elements<int32_t>(info, batch, {}, "info");
    if (ChoosePath(Operation::kLu, m, n, kDtype<T>) == Path::kLanes) {
      const auto store = [&](auto& group, auto singular) {
        StoreElements(group.a, m * n, lu_data + group.first * m * n);
        StoreIntegers(group.pivots, k, pivots_data + group.first * k);
        StoreIntegers(group.permutation, m, permutation_data + group.first * m);
        StoreIntegers(&singular, 1, info_data + group.first);
      };
      return ForEachSmallLu<T>(pool, batch, m, n, 0, a_data, store, a_data == lu_data);
    }
    ForEachByLapack(pool, batch, k, LuNanoseconds(m, n), [&](int64_t first, int64_t last) {
      Factors<T> factors(m, n);
      for (int64_t i = first; i < last; ++i) {
        info_data[i] = factors.Factor(pool, a_data + i * m * n);
        Transpose(pool, n, m, factors.lu(), m, lu_data + i * m * n, n);
        std::copy(factors.pivots(), factors.pivots() + k, pivots_data + i * k);
        PivotsToPermutation(k, factors.pivots(), m, permutation_data + i * m);
      }
    });
  });
}

void LuPivotsToPermutation(ffi::ThreadPool pool, ffi::AnyBuffer pivots,
                           ffi::Result<ffi::AnyBuffer> permutation) {
  const BatchShape shape = SplitBatch(pivots, 1, "pivots");
  const int64_t k = shape.cols, m = SplitBatch(*permutation, 1, "permutation").cols;
  if (m < k) throw BadArgument("permutation_size", "be at least the number of pivots");
  const int32_t* pivots_data = Elements<int32_t>(pivots, shape.batch, {k}, "pivots");
  int32_t* permutation_data = Elements<int32_t>(permutation, shape.batch, {m}, "permutation");
  const double nanoseconds = 5.0 + static_cast<double>(m + k);
  ForEachRange(pool, shape.batch, nanoseconds, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      PivotsToPermutation(k, pivots_data + i * k, m, permutation_data + i * m);
    }
  });
}

// Solves op(a) x = b in place with the row-major factors of a.
template <class T>
void SubstituteLu(int64_t n, const T* lu, const int32_t* pivots, bool transpose, bool conjugate,
                  int64_t cols, T* b) {
  const Triangle l{
      .lower = true, .transpose = transpose, .conjugate = conjugate, .unit_diagonal = true};
  const Triangle u{.lower = false, .transpose = transpose, .conjugate = conjugate};
  if (!transpose) ExchangeRows(n, pivots, cols, b, false);
  SolveTriangular(transpose ? u : l, n, lu, n, cols, b);
  SolveTriangular(transpose ? l : u, n, lu, n, cols, b);
  if (transpose) ExchangeRows(n, pivots, cols, b, true);
}

void LuSolve(ffi::ThreadPool pool, ffi::AnyBuffer lu, ffi::AnyBuffer pivots, ffi::AnyBuffer b,
             ffi::Result<ffi::AnyBuffer> x, bool transpose, bool conjugate) {
  const BatchShape pivots_shape = SplitBatch(pivots, 1, "pivots");
  const int64_t pivots_stride = pivots.dimensions().size() == 1 ? 0 : pivots_shape.cols;
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto systems = ReadSystems<T>(lu, b, x, true);
    if (pivots_shape.cols != systems.n) throw BadArgument("pivots", "have one element per row");
    if (pivots_stride != 0 && pivots_shape.batch != systems.batch) {
      throw BadArgument("pivots", "have the batch size of b");
    }
    const auto* pivots_data = Elements<int32_t>(pivots, pivots_shape.batch, {systems.n}, "pivots");
    if (ChoosePath(Operation::kTriangularSolve, systems) == Path::kLanes) {
      const int n = static_cast<int>(systems.n), cols = static_cast<int>(systems.cols);
      return ForEachSmallSystem(
          pool, systems, systems.Operations(),
          [&](int64_t i, auto* matrix, auto* rhs, auto* steps) {
            LoadIntegers(pivots_data + i * pivots_stride, pivots_stride, n, steps);
            small::LuSolve(n, matrix, steps, false, transpose, conjugate, cols, rhs);
          });
    }
    ForEachSystem(pool, systems, systems.Operations(), [&](int64_t i, const T* matrix, T* rhs) {
      SubstituteLu(systems.n, matrix, pivots_data + i * pivots_stride, transpose, conjugate,
                   systems.cols, rhs);
    });
  });
}

}  // namespace
}  // namespace linalg

LINALG_HANDLER(linalg_lu, linalg::Lu);
LINALG_HANDLER(linalg_lu_pivots_to_permutation, linalg::LuPivotsToPermutation);
LINALG_HANDLER(linalg_lu_solve, linalg::LuSolve);
