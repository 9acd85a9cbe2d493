// LU factors as the handlers share them: by LAPACK in scratch memory, or one small matrix per lane.
#pragma once

#include <algorithm>
#include <memory>

#include "kernels/arithmetic/info.h"
#include "kernels/blocked/lu.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/tuning.h"
#include "kernels/small/lu.h"

namespace linalg {

// The factors of one matrix, column-major, in memory that serves one matrix after another.
template <class T>
class LapackLu {
 public:
  LapackLu(int64_t rows, int64_t cols)
      : rows_(rows),
        cols_(cols),
        lu_(Scratch<T>(rows * cols)),
        pivots_(Scratch<int32_t>(std::min(rows, cols))) {}

  // Factors the row-major `a`; returns info: 0, from 1 the first zero pivot, or kHoldsNaN.
  int Factor(ffi::ThreadPool& pool, const T* a) {
    if (rows_ == 0 || cols_ == 0) return 0;
    Transpose(pool, rows_, cols_, a, cols_, lu_.get(), rows_);
    int info = lapack::Getrf(ToInt(rows_), ToInt(cols_), lu_.get(), ToInt(rows_), pivots_.get());
    for (int64_t i = 0; i < pivot_count(); ++i) --pivots_[i];
    if (LacksReciprocal()) {
      blocked::LuFactors<T> factors(rows_, cols_);
      info = factors.Factor(a);
      Transpose(pool, rows_, cols_, factors.lu().data, factors.lu().ld, lu_.get(), rows_);
      std::copy_n(factors.pivots(), pivot_count(), pivots_.get());
    }
    return blocked::HoldsNaN<T>(cols_, rows_, {lu_.get(), rows_}) ? kHoldsNaN : info;
  }

  int64_t pivot_count() const { return std::min(rows_, cols_); }
  int32_t* pivots() { return pivots_.get(); }
  T* lu() { return lu_.get(); }

 private:
  // Whether some column was not divided by its pivot: OpenBLAS's getrf leaves it as it is, rows not
  // exchanged, where the pivot is subnormal; info is 0 then. So a pivot of 0 has others below it.
  bool LacksReciprocal() const {
    for (int64_t k = 0; k < pivot_count(); ++k) {
      const T* const pivot = lu_.get() + k * (rows_ + 1);
      const auto not_zero = [](T x) { return x != T(0); };
      if (HasNoReciprocal(*pivot)) return true;
      if (*pivot == T(0) && std::any_of(pivot, pivot + (rows_ - k), not_zero)) return true;
    }
    return false;
  }

  int64_t rows_, cols_;
  std::unique_ptr<T[]> lu_;
  std::unique_ptr<int32_t[]> pivots_;
};

// A group of small matrices in registers, and room for their factors.
template <class T, class V>
struct SmallGroup {
  int64_t first;  // the group's first matrix in the batch
  Element<T, V>* a;
  V* pivots;
  V* permutation;
  Element<T, V>* spare;  // as many elements as the caller asked for
};

// Loads a batch of small matrices and calls use(SmallGroup) for each group. `in_place` says that
// results overwrite `a`.
template <class T, class RowCount, class ColCount, class Use>
void ForEachSmallGroup(ffi::ThreadPool& pool, int64_t batch, RowCount rows, ColCount cols,
                       int64_t spare, const T* a, Use&& use, bool in_place = false) {
  constexpr int64_t kParts = kPartsOf<T>;
  const int64_t count = rows * cols * kParts, steps = std::min<int64_t>(rows, cols);
  const double nanoseconds =
      SmallNanoseconds(kLanes<T>, count, static_cast<double>(count) * kParts * steps);
  const auto use_group = [&]<class V>(int64_t i, V* registers) {
    V* pivots = registers + count;
    SmallGroup<T, V> group{.first = i,
                           .a = reinterpret_cast<Element<T, V>*>(registers),
                           .pivots = pivots,
                           .permutation = pivots + steps,
                           .spare = reinterpret_cast<Element<T, V>*>(pivots + steps + rows)};
    LoadElements(a + i * rows * cols, rows * cols, rows * cols, group.a);
    use(group);
  };
  ForEachGroup<T>(pool, batch, count + steps + rows + spare * kParts, nanoseconds, use_group,
                  in_place);
}

// Factors a batch of small matrices and calls use(SmallGroup, info) for each group.
template <class T, class Use>
void ForEachSmallLu(ffi::ThreadPool& pool, int64_t batch, int64_t rows, int64_t cols, int64_t spare,
                    const T* a, Use&& use, bool in_place = false) {
  const auto factor_and_use = [&](auto& group) {
    const auto singular = small::Lu(static_cast<int>(rows), static_cast<int>(cols), group.a,
                                    group.pivots, group.permutation);
    use(group, singular);
  };
  ForEachSmallGroup<T>(pool, batch, rows, cols, spare, a, factor_and_use, in_place);
}

}  // namespace linalg
