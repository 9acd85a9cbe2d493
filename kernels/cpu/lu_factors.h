// LU factors that several handlers share, one small matrix per lane.
#pragma once

#include <algorithm>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/once.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/results.h"
#include "kernels/cpu/tuning.h"
#include "kernels/small/lu.h"

namespace linalg {

static_assert(std::max(kLaneLu, kLaneTriangular) <= small::kMaxPivotRows);

// The path of every handler that factors by LU.
inline CpuPath LuPath(int64_t rows, int64_t cols) {
  return std::max(rows, cols) <= kLaneLu ? CpuPath::kLane : CpuPath::kTile;
}

// A group of small matrices in registers, and space for their factors.
template <class T, class V>
struct SmallGroup {
  int64_t first;  // the group's first matrix in the batch
  Element<T, V>* a;
  V* pivots;
  V* permutation;
  Element<T, V>* spare;  // as many elements as the caller asks for
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

// Stores determinants: as numbers or, where `det` is null, as signs and logarithms.
template <class T>
struct DeterminantOutputs {
  T* det = nullptr;
  T* sign = nullptr;
  Real<T>* logabsdet = nullptr;

  template <class E>
  void Store(int64_t i, const ScaledProduct<E>& product) const {
    if (det != nullptr) {
      const auto value = product.Value();
      return StoreElements(&value, 1, det + i);
    }
    const auto parts = product.InParts();
    StoreElements(&parts.sign, 1, sign + i);
    StoreElements(&parts.logarithm, 1, logabsdet + i);
  }
};

template <class T>
DeterminantOutputs<T> ReadSlogdet(Result& sign, Result& logabsdet, int64_t batch) {
  return {.sign = Elements<T>(sign, batch, {}, "sign"),
          .logabsdet = Elements<Real<T>>(logabsdet, batch, {}, "logabsdet")};
}

}  // namespace linalg
