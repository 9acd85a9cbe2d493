// Rank-one updates and downdates of Cholesky factors. Small factors are updated in lanes. Larger
// ones, and single ones, have neighbouring columns in a register.
#include "kernels/small/cholesky_update.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/once.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/results.h"

namespace linalg {
namespace {

template <bool kDowndate, class T>
struct CholeskyUpdateProblem {
  int64_t batch, n;
  const T *r, *w;
  T* factor;
  int32_t* info;

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    constexpr int64_t kParts = kPartsOf<T>;
    const int64_t size = n * n;
    const double operations = 2.0 * static_cast<double>(size);
    if (size * static_cast<int64_t>(sizeof(T)) > kLaneCholeskyUpdateBytes) {
      return ForEachInTurn(
          pool, batch, BlockedNanoseconds<T>(operations),
          [&] { return AllocateAligned(2 * padded() * sizeof(T)); },
          [&](const AlignedMemory& memory, int64_t i) { UpdateByRows(i, memory.get()); });
    }
    ForEachGroup<T>(pool, batch, (size + n) * kParts,
                    SmallNanoseconds(kLanes<T>, 2 * size * kParts, operations * kParts * kParts),
                    [&]<class V>(int64_t i, V* registers) {
                      if constexpr (kLanesOf<V> == 1) {
                        UpdateByRows(i, registers);  // as large as with all lanes
                      } else {
                        auto* const matrix = reinterpret_cast<Element<T, V>*>(registers);
                        auto* const v = matrix + size;
                        LoadElements(r + i * size, size, size, matrix);
                        LoadElements(w + i * n, n, n, v);
                        for (int64_t j = 0; j < n; ++j) v[j] = Conj(v[j]);
                        const V failed = small::CholeskyUpdate<kDowndate>(ToInt(n), matrix, v);
                        StoreIntegers(&failed, 1, info + i);
                        StoreElements(matrix, size, factor + i * size);
                      }
                    });
  }

 private:
  using E = Element<T>;
  using B = BlockOfOne<T>;

  int64_t padded() const { return PaddedColumns<E, B>(ToInt(n)); }

  // `memory` holds two padded rows.
  void UpdateByRows(int64_t i, void* memory) const {
    const int64_t size = n * n;
    E* const row = static_cast<E*>(memory);
    E* const v = row + padded();
    const E* const added = reinterpret_cast<const E*>(w + i * n);
    for (int64_t j = 0; j < n; ++j) v[j] = Conj(added[j]);
    T* const target = factor + i * size;
    info[i] = small::CholeskyUpdateByRows<kDowndate, B>(
        ToInt(n), reinterpret_cast<const E*>(r + i * size), row, v, reinterpret_cast<E*>(target));
    if (info[i] != 0) FillWithNaN(size, target);
  }
};

void CholeskyUpdate(ffi::ThreadPool pool, ffi::AnyBuffer r, ffi::AnyBuffer w, Result factor,
                    Result info, bool downdate) {
  const BatchShape shape = SplitSquareBatch(r, "r");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(r.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto run = [&]<bool kDowndate>(std::bool_constant<kDowndate>) {
      RunOnPath(pool, CholeskyUpdateProblem<kDowndate, T>{
                          .batch = batch,
                          .n = n,
                          .r = Elements<T>(r, batch, {n, n}, "r"),
                          .w = Elements<T>(w, batch, {n}, "w"),
                          .factor = ResultElements<T>(factor, batch, {n, n}, "the factor"),
                          .info = Elements<int32_t>(info, batch, {}, "info")});
    };
    downdate ? run(std::true_type()) : run(std::false_type());
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_cholesky_update, linalg::CholeskyUpdate);
