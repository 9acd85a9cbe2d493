// Some rows of the singular vectors of real upper bidiagonal matrices.
//
// The divide and conquer of kernels/blocked finds all singular values, and the rows alone of the
// vectors. It computes in double precision. A matrix that is not finite gets NaN, and info = -1.
#include "kernels/blocked/bidiagonal_svd.h"

#include <algorithm>
#include <cmath>

#include "kernels/arithmetic/scale.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/results.h"
#include "kernels/systems.h"

namespace linalg {
namespace {

// Consecutive rows of the matrices of left and right vectors, from the first of `left_rows` and
// `right_rows`. Rows beyond the matrix are zero. Values descend.
template <class R>
struct BidiagonalSvdRowsProblem {
  int64_t batch, n, left_count, right_count;
  const R* diagonal;
  const R* beside;
  const int32_t* left_rows;
  const int32_t* right_rows;
  R* values;
  R* left;
  R* right;
  int32_t* info;

  bool IsEmpty() const { return n == 0; }
  void RunEmpty() const { std::fill_n(info, batch, 0); }
  CpuPath path() const { return CpuPath::kTile; }

  void RunInTiles(ffi::ThreadPool& pool) const {
    const double order = static_cast<double>(n);
    const double count = static_cast<double>(left_count + right_count);
    const double nanoseconds = BlockedNanoseconds<double>((count + 200) * order) * order;
    ForEachInTasks(
        pool, batch, nanoseconds, [] { return 0; },
        [&](int, int64_t i, const blocked::RunTasks& run_tasks) { Solve(i, run_tasks); });
  }

 private:
  using RowRange = blocked::BidiagonalSvd::RowRange;

  // Rows are not negative.
  RowRange RangeFrom(const int32_t* rows, int64_t i, int64_t count) const {
    const int64_t first = count > 0 ? rows[i * count] : 0;
    const int64_t begin = std::clamp<int64_t>(first, 0, n);
    return {begin, std::clamp<int64_t>(first + count, begin, n)};
  }

  // Values ascend in the solver.
  void Write(RowRange range, int64_t count, blocked::Rows<double> vectors, R* target) const {
    const int64_t kept = range.end - range.begin;
    for (int64_t j = 0; j < n; ++j) {
      const double* const vector = vectors.At(n - 1 - j, 0).data;
      for (int64_t k = 0; k < kept; ++k) target[k * n + j] = static_cast<R>(vector[k]);
    }
    std::fill(target + kept * n, target + count * n, R(0));
  }

  void Solve(int64_t i, const blocked::RunTasks& run_tasks) const {
    const R *const diagonal_of = diagonal + i * n, *const beside_of = beside + i * (n - 1);
    R* const s = values + i * n;
    R *const u = left + i * left_count * n, *const v = right + i * right_count * n;
    const RowRange left_range = RangeFrom(left_rows, i, left_count);
    const RowRange right_range = RangeFrom(right_rows, i, right_count);
    const auto d = Scratch<double>(n), e = Scratch<double>(n);
    double unscale = 1;
    std::copy_n(diagonal_of, n, d.get());
    std::copy_n(beside_of, n - 1, e.get());
    blocked::BidiagonalSvd solver(n, left_range, right_range);
    info[i] = IterateIf(AllFinite(diagonal_of, n) && AllFinite(beside_of, n - 1), [&] {
      double largest = 0;
      for (int64_t j = 0; j < n; ++j) largest = std::max(largest, std::abs(d[j]));
      for (int64_t j = 0; j < n - 1; ++j) largest = std::max(largest, std::abs(e[j]));
      const double scale = PowerOfTwoScale(largest, unscale);
      for (int64_t j = 0; j < n; ++j) d[j] *= scale;
      for (int64_t j = 0; j < n - 1; ++j) e[j] *= scale;
      return solver.Solve(d.get(), e.get(), run_tasks);
    });
    if (info[i] != 0) {
      FillWithNaN(n, s);
      FillWithNaN(left_count * n, u);
      FillWithNaN(right_count * n, v);
      return;
    }
    for (int64_t j = 0; j < n; ++j) s[j] = static_cast<R>(d[n - 1 - j] * unscale);
    Write(left_range, left_count, solver.left(), u);
    Write(right_range, right_count, solver.right(), v);
  }
};

void BidiagonalSvdRows(ffi::ThreadPool pool, ffi::AnyBuffer diagonal, ffi::AnyBuffer beside,
                       ffi::AnyBuffer left_rows, ffi::AnyBuffer right_rows, Result values,
                       Result left, Result right, Result info) {
  const TridiagonalShape shape = SplitTridiagonalBatch(diagonal, beside);
  const int64_t batch = shape.batch, n = shape.n;
  const int64_t left_count = SplitBatch(left_rows, 1, "left_rows").cols;
  const int64_t right_count = SplitBatch(right_rows, 1, "right_rows").cols;
  DispatchDtype(diagonal.element_type(), [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsComplex<T>) {
      throw BadArgument("d", "be real");
    } else {
      RunOnPath(pool,
                BidiagonalSvdRowsProblem<T>{
                    .batch = batch,
                    .n = n,
                    .left_count = left_count,
                    .right_count = right_count,
                    .diagonal = Elements<T>(diagonal, batch, {n}, "d"),
                    .beside = Elements<T>(beside, batch, {shape.beside}, "e"),
                    .left_rows = Elements<int32_t>(left_rows, batch, {left_count}, "left_rows"),
                    .right_rows = Elements<int32_t>(right_rows, batch, {right_count}, "right_rows"),
                    .values = Elements<T>(values, batch, {n}, "the singular values"),
                    .left = Elements<T>(left, batch, {left_count, n}, "the left vectors"),
                    .right = Elements<T>(right, batch, {right_count, n}, "the right vectors"),
                    .info = Elements<int32_t>(info, batch, {}, "info")});
    }
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_bidiagonal_svd_rows, linalg::BidiagonalSvdRows);
