// LU factors as the handlers share them: by LAPACK in scratch memory, or one small matrix per lane.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "kernels/arithmetic/divisor.h"
#include "kernels/arithmetic/info.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/range.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cpu/tuning.h"
#include "kernels/small/lu.h"

namespace linalg {

// The factors of one matrix, column-major, in memory that serves one matrix after another.
template <class T>
class Factors {
 public:
  Factors(int64_t rows, int64_t cols)
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
      Transpose(pool, rows_, cols_, a, cols_, lu_.get(), rows_);
      info = FactorByDivision();
    }
    const auto is_nan = [](T x) { return std::isnan(std::real(x)) || std::isnan(std::imag(x)); };
    return std::any_of(lu_.get(), lu_.get() + rows_ * cols_, is_nan) ? kHoldsNaN : info;
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

  // What getrf does, a column at a time, with pivots of any size.
  int FactorByDivision() {
    using E = Element<T, Real<T>>;
    E* const lu = reinterpret_cast<E*>(lu_.get());
    int info = 0;
    for (int64_t k = 0; k < pivot_count(); ++k) {
      E* const column = lu + k * rows_;
      int64_t largest = k;
      for (int64_t i = k + 1; i < rows_; ++i) {
        if (Magnitude(column[i]) > Magnitude(column[largest])) largest = i;
      }
      pivots_[k] = static_cast<int32_t>(largest);
      for (int64_t j = 0; largest != k && j < cols_; ++j) {
        std::swap(lu[j * rows_ + k], lu[j * rows_ + largest]);
      }
      if (Magnitude(column[k]) == 0) {
        if (info == 0) info = static_cast<int>(k + 1);
        continue;
      }
      const Divisor<E> divisor(column[k]);
      for (int64_t i = k + 1; i < rows_; ++i) column[i] = divisor.Divide(column[i]);
      for (int64_t j = k + 1; j < cols_; ++j) {
        E* const target = lu + j * rows_;
        const E above = target[k];
        for (int64_t i = k + 1; i < rows_; ++i) {
          target[i] = NegMulAdd(column[i], above, target[i]);
        }
      }
    }
    return info;
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
template <class T, class Rows, class Cols, class Use>
void ForEachSmallGroup(ffi::ThreadPool& pool, int64_t batch, Rows rows, Cols cols, int64_t spare,
                       const T* a, Use&& use, bool in_place = false) {
  constexpr int64_t kParts = kPartsOf<T>;
  const int64_t count = rows * cols * kParts, steps = std::min<int64_t>(rows, cols);
  const double nanoseconds =
      SmallNanoseconds(kLanes<T>, count, static_cast<double>(count) * kParts * steps);
  const auto use_group = [&]<class V>(int64_t i, V* registers) {
    V* pivots = registers + count;
    SmallGroup<T, V> group{i, reinterpret_cast<Element<T, V>*>(registers), pivots, pivots + steps,
                           reinterpret_cast<Element<T, V>*>(pivots + steps + rows)};
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
