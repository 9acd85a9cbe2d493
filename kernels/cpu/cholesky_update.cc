// Rank-one updates and downdates of Cholesky factors, and their derivatives. Small factors are
// updated in lanes. Larger ones, and single ones, have neighbouring columns in a register.
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

template <bool kDowndate, class T>
struct CholeskyUpdateVjpProblem {
  int64_t batch, n;
  const T *r, *w, *ct;
  T *r_ct, *w_ct;

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    constexpr int64_t kParts = kPartsOf<T>;
    const int64_t size = n * n;
    const double operations = 6.0 * static_cast<double>(size);
    if (size * static_cast<int64_t>(sizeof(T)) > kLaneCholeskyUpdateBytes) {
      return ForEachInTurn(
          pool, batch, BlockedNanoseconds<T>(operations),
          [&] { return AllocateAligned(MemoryElements(padded()) * sizeof(T)); },
          [&](const AlignedMemory& memory, int64_t i) { RunByRows(i, memory.get()); });
    }
    ForEachGroup<T>(pool, batch, MemoryElements(n) * kParts,
                    SmallNanoseconds(kLanes<T>, 3 * size * kParts, operations * kParts * kParts),
                    [&]<class V>(int64_t i, V* registers) {
                      using L = Element<T, V>;
                      const Parts<L> parts(reinterpret_cast<L*>(registers), n, n);
                      LoadElements(r + i * size, size, size, parts.rows);
                      LoadElements(w + i * n, n, n, parts.v);
                      LoadElements(ct + i * size, size, size, parts.ct);
                      for (int64_t j = 0; j < n; ++j) {
                        parts.v[j] = Conj(parts.v[j]);
                        parts.v_ct[j] = L{};
                        std::fill_n(parts.ct + j * n, j, L{});
                      }
                      small::CholeskyUpdateVjp<kDowndate, L>(ToInt(n), n, parts.rows, parts.v,
                                                             parts.before, parts.ct, parts.v_ct);
                      for (int64_t j = 0; j < n; ++j) parts.v_ct[j] = Conj(parts.v_ct[j]);
                      StoreElements(parts.ct, size, r_ct + i * size);
                      StoreElements(parts.v_ct, n, w_ct + i * n);
                    });
  }

 private:
  using E = Element<T>;
  using B = BlockOfOne<T>;

  // The operands of small::CholeskyUpdateVjp in one piece of memory.
  template <class L>
  struct Parts {
    L *rows, *ct, *v, *v_ct, *before;

    Parts(L* memory, int64_t n, int64_t stride)
        : rows(memory),
          ct(rows + n * stride),
          v(ct + n * stride),
          v_ct(v + (n + 1) * stride),
          before(v_ct + stride) {}
  };
  int64_t MemoryElements(int64_t stride) const { return (3 * n + 2) * stride + 2 * n; }

  int64_t padded() const { return PaddedColumns<E, B>(ToInt(n)); }

  void RunByRows(int64_t i, void* memory) const {
    const int64_t size = n * n, stride = padded();
    const Parts<E> parts(static_cast<E*>(memory), n, stride);
    std::fill_n(parts.rows, MemoryElements(stride), E{});
    const E* const added = reinterpret_cast<const E*>(w + i * n);
    const E* const source = reinterpret_cast<const E*>(r + i * size);
    const E* const given = reinterpret_cast<const E*>(ct + i * size);
    E* const target = reinterpret_cast<E*>(r_ct + i * size);
    E* const added_ct = reinterpret_cast<E*>(w_ct + i * n);
    for (int64_t k = 0; k < n; ++k) {
      parts.v[k] = Conj(added[k]);
      std::copy_n(source + k * (n + 1), n - k, parts.rows + k * (stride + 1));
      std::copy_n(given + k * (n + 1), n - k, parts.ct + k * (stride + 1));
    }
    small::CholeskyUpdateVjp<kDowndate, B>(ToInt(n), stride, parts.rows, parts.v, parts.before,
                                           parts.ct, parts.v_ct);
    for (int64_t k = 0; k < n; ++k) {
      added_ct[k] = Conj(parts.v_ct[k]);
      std::fill_n(target + k * n, k, E{});
      std::copy_n(parts.ct + k * (stride + 1), n - k, target + k * (n + 1));
    }
  }
};

void CholeskyUpdateVjp(ffi::ThreadPool pool, ffi::AnyBuffer r, ffi::AnyBuffer w, ffi::AnyBuffer ct,
                       Result r_ct, Result w_ct, bool downdate) {
  const BatchShape shape = SplitSquareBatch(r, "r");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(r.element_type(), [&]<class T>(std::type_identity<T>) {
    const auto run = [&]<bool kDowndate>(std::bool_constant<kDowndate>) {
      RunOnPath(pool, CholeskyUpdateVjpProblem<kDowndate, T>{
                          .batch = batch,
                          .n = n,
                          .r = Elements<T>(r, batch, {n, n}, "r"),
                          .w = Elements<T>(w, batch, {n}, "w"),
                          .ct = Elements<T>(ct, batch, {n, n}, "the cotangent"),
                          .r_ct = ResultElements<T>(r_ct, batch, {n, n}, "the cotangent of r"),
                          .w_ct = ResultElements<T>(w_ct, batch, {n}, "the cotangent of w")});
    };
    downdate ? run(std::true_type()) : run(std::false_type());
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_cholesky_update, linalg::CholeskyUpdate);
LINALG_CPU_HANDLER(linalg_cholesky_update_vjp, linalg::CholeskyUpdateVjp);
