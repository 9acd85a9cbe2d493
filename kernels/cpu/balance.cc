// Balancing of general matrices, B = T⁻¹ A T with a permuted diagonal T of powers of two.
//
// Matrices up to kLaneEig run in lanes (kernels/small/balance.h), larger ones alone by the same
// code. Once permuted, they are scaled to a norm near 1. B is then taken from A itself, since no
// power of two rounds unless it leaves the range. A matrix that is not finite gets NaN for B and T,
// and the identity for the permutation.
#include "kernels/small/balance.h"

#include <cmath>

#include "kernels/arithmetic/scale.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/results.h"

namespace linalg {
namespace {

template <class T>
struct BalanceProblem {
  int64_t batch, n;
  bool permute, scale;
  const T* a;
  T* balanced;
  Real<T>* diagonal;
  int32_t* order;

  bool IsEmpty() const { return n == 0; }
  void RunEmpty() const {}

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const int64_t count = n * n;
    const double operations = 20.0 * static_cast<double>(count);
    if (n > kLaneEig) {
      using V = Real<T>;
      ForEachInTurn(
          pool, batch, SmallNanoseconds(1, 2 * count, operations),
          [&] { return Registers<V>(Size()); },
          [&](Registers<V>& registers, int64_t i) { RunGroup<V>(i, registers.get()); });
      return;
    }
    ForEachGroup<T>(pool, batch, Size(), SmallNanoseconds(kLanes<T>, 2 * count, operations),
                    [&]<class V>(int64_t i, V* registers) { RunGroup<V>(i, registers); });
  }

 private:
  int64_t Size() const { return n * n * kPartsOf<T> + 2 * n; }

  template <class V>
  void RunGroup(int64_t i, V* registers) const {
    using E = Element<T, V>;
    const int rows = ToInt(n);
    const int64_t count = n * n;
    E* const x = reinterpret_cast<E*>(registers);
    small::Balanced<V> found;
    found.diagonal = registers + count * kPartsOf<T>;
    found.order = found.diagonal + n;
    LoadElements(a + i * count, count, count, x);
    Extent<E> extent;
    for (int64_t k = 0; k < count; ++k) extent.Add(x[k]);
    const auto finite = extent.Finite();
    V unscale;
    const V factor = extent.Scale(unscale);
    for (int64_t k = 0; k < count; ++k) x[k] = Choose(finite, x[k], E{});
    if (permute) {
      small::Permute(x, rows, found);
    } else {
      small::LeaveInPlace(rows, found);
    }
    // Scaled before, a small element could become 0, and seem to isolate an eigenvalue.
    for (int64_t k = 0; k < count; ++k) x[k] = factor * x[k];
    if (scale) small::Scale(x, rows, found);
    for (int k = 0; k < rows; ++k) {
      found.order[k] = finite ? found.order[k] : Number<V>(k);
      found.diagonal[k] = finite ? found.diagonal[k] : Broadcast<V>(NaN<Lane<V>>());
    }
    StoreElements(found.diagonal, n, diagonal + i * n);
    StoreIntegers(found.order, n, order + i * n);
    for (int64_t k = i; k < i + kLanesOf<V>; ++k) Gather(k);
  }

  // B of one matrix, whose diagonal and order are known.
  void Gather(int64_t i) const {
    const T* const from = a + i * n * n;
    T* const to = balanced + i * n * n;
    const Real<T>* const d = diagonal + i * n;
    const int32_t* const p = order + i * n;
    if (!std::isfinite(d[0])) return FillWithNaN(n * n, to);
    for (int64_t row = 0; row < n; ++row) {
      const int down = std::ilogb(d[row]);
      for (int64_t col = 0; col < n; ++col) {
        to[row * n + col] = TimesPowerOfTwo(from[p[row] * n + p[col]], std::ilogb(d[col]) - down);
      }
    }
  }

  static T TimesPowerOfTwo(T x, int exponent) {
    if (exponent == 0) return x;
    if constexpr (kIsComplex<T>) {
      return T(std::scalbn(x.real(), exponent), std::scalbn(x.imag(), exponent));
    } else {
      return std::scalbn(x, exponent);
    }
  }
};

void Balance(ffi::ThreadPool pool, ffi::AnyBuffer a, Result balanced, Result diagonal, Result order,
             bool permute, bool scale) {
  const BatchShape shape = SplitSquareBatch(a, "a");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool,
              BalanceProblem<T>{
                  .batch = batch,
                  .n = n,
                  .permute = permute,
                  .scale = scale,
                  .a = Elements<T>(a, batch, {n, n}, "a"),
                  .balanced = ResultElements<T>(balanced, batch, {n, n}, "the balanced matrix"),
                  .diagonal = Elements<Real<T>>(diagonal, batch, {n}, "the diagonal"),
                  .order = Elements<int32_t>(order, batch, {n}, "the order")});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_balance, linalg::Balance);
