// The mean of the functions of a triangular matrix over several diagonals, one diagonal per lane.
// Where no eigenvalues are close, all diagonals are equal, and one register is enough. Also the
// square root, one matrix per lane.
#include "kernels/small/parlett.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/once.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/results.h"

namespace linalg {
namespace {

template <class T>
struct ParlettProblem {
  int64_t batch, n, count;
  const T *t, *x, *values;
  const Real<T>* tolerance;
  T* mean;

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const double size = static_cast<double>(n);
    ForEachInTurn(
        pool, batch, BlockedNanoseconds<T>(static_cast<double>(count) * size * size * size / 3),
        [&] { return AllocateAligned(((n + 4) * sizeof(Widest) + sizeof(Scalar)) * n); },
        [&](const AlignedMemory& memory, int64_t i) { Average(i, memory.get()); });
  }

 private:
  using Scalar = Element<T>;
  using Widest = ElementInLanes<T>;

  // `memory` holds (n + 4) n of the widest elements and n numbers.
  void Average(int64_t i, void* memory) const {
    const T *const diagonals = x + i * count * n, *const functions = values + i * count * n;
    Scalar* const sum = reinterpret_cast<Scalar*>(mean + i * n * n);
    std::fill_n(sum, n * n, Scalar{});
    const bool same = AllRowsEqual(diagonals) && AllRowsEqual(functions);
    const int64_t needed = same ? std::min<int64_t>(count, 1) : count;
    int64_t first = 0;
    for (; first + kLanes<T> <= needed; first += kLanes<T>) {
      AddGroup<Widest>(i, first, memory, sum);
    }
    for (; first < needed; ++first) AddGroup<Scalar>(i, first, memory, sum);
    const Real<T> share = Real<T>{1} / static_cast<Real<T>>(needed);
    for (int64_t k = 0; k < n * n; ++k) sum[k] = share * sum[k];
  }

  bool AllRowsEqual(const T* rows) const {
    for (int64_t k = n; k < count * n; ++k) {
      if (rows[k] != rows[k - n]) return false;
    }
    return true;
  }

  // The functions for as many diagonals as E has lanes, from the first one on.
  template <class E>
  void AddGroup(int64_t i, int64_t first, void* memory, Scalar* sum) const {
    E *const f = static_cast<E*>(memory), *const diagonal = f + n * n,
             *const function = diagonal + n, *const column = function + n,
             *const vector = column + n;
    Scalar* const right = reinterpret_cast<Scalar*>(vector + n);
    const int64_t offset = (i * count + first) * n;
    LoadElements(x + offset, n, n, diagonal);
    LoadElements(values + offset, n, n, function);
    for (int64_t j = 0; j < n; ++j) f[j * n + j] = function[j];
    small::Parlett(ToInt(n), reinterpret_cast<const Scalar*>(t + i * n * n), diagonal, tolerance[i],
                   f, column, vector, right);
    for (int64_t row = 0; row < n; ++row) {
      for (int64_t j = row; j < n; ++j) {
        sum[row * n + j] = sum[row * n + j] + SumOfLanes(f[row * n + j]);
      }
    }
  }
};

void Parlett(ffi::ThreadPool pool, ffi::AnyBuffer t, ffi::AnyBuffer x, ffi::AnyBuffer values,
             ffi::AnyBuffer tolerance, Result mean) {
  const BatchShape shape = SplitSquareBatch(t, "t");
  const int64_t batch = shape.batch, n = shape.rows, count = SplitBatch(x, 2, "x").rows;
  DispatchDtype(t.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool, ParlettProblem<T>{
                        .batch = batch,
                        .n = n,
                        .count = count,
                        .t = Elements<T>(t, batch, {n, n}, "t"),
                        .x = Elements<T>(x, batch, {count, n}, "x"),
                        .values = Elements<T>(values, batch, {count, n}, "values"),
                        .tolerance = Elements<Real<T>>(tolerance, batch, {}, "the tolerance"),
                        .mean = ResultElements<T>(mean, batch, {n, n}, "the mean")});
  });
}

template <class T>
struct TriangularSqrtProblem {
  int64_t batch, n;
  const T *t, *root;
  T* r;

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    constexpr int64_t kParts = kPartsOf<T>;
    const int64_t size = n * n, count = (size + n) * kParts;
    const double nanoseconds =
        SmallNanoseconds(kLanes<T>, count, static_cast<double>(n * size) / 6 * kParts * kParts);
    ForEachGroup<T>(pool, batch, count, nanoseconds, [&]<class V>(int64_t i, V* registers) {
      auto* const matrix = reinterpret_cast<Element<T, V>*>(registers);
      auto* const diagonal = matrix + size;
      LoadElements(t + i * size, size, size, matrix);
      LoadElements(root + i * n, n, n, diagonal);
      small::TriangularSqrt(ToInt(n), diagonal, matrix);
      StoreElements(matrix, size, r + i * size);
    });
  }
};

void TriangularSqrt(ffi::ThreadPool pool, ffi::AnyBuffer t, ffi::AnyBuffer root, Result r) {
  const BatchShape shape = SplitSquareBatch(t, "t");
  const int64_t batch = shape.batch, n = shape.rows;
  DispatchDtype(t.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool, TriangularSqrtProblem<T>{.batch = batch,
                                             .n = n,
                                             .t = Elements<T>(t, batch, {n, n}, "t"),
                                             .root = Elements<T>(root, batch, {n}, "the root"),
                                             .r = ResultElements<T>(r, batch, {n, n}, "r")});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_parlett, linalg::Parlett);
LINALG_CPU_HANDLER(linalg_triangular_sqrt, linalg::TriangularSqrt);
