// General block-tridiagonal systems: block elimination with pivoting inside the diagonal blocks.
#include "kernels/cpu/block_tridiagonal.h"
#include "kernels/cpu/handler.h"
#include "kernels/small/block_tridiagonal.h"

namespace linalg {
namespace {

// The most memory of a group in lanes. A larger system is alone, in no more memory than its
// operands have.
constexpr int64_t kMostGroupBytes = int64_t{1} << 26;

template <class T>
struct BlockTridiagonalSolveProblem {
  BlockTridiagonalShape shape;
  int64_t cols;
  const T* lower;
  const T* diagonal;
  const T* upper;
  const T* b;
  T* x;
  int32_t* info;

  bool IsEmpty() const { return shape.IsEmpty(); }
  void RunEmpty() const { std::fill_n(info, shape.batch, 0); }

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const int64_t n = shape.d, run = BlocksOfRun(n);
    const double d = static_cast<double>(n), steps = static_cast<double>(shape.steps);
    const int64_t runs = 3 * run * shape.block() + (run + 1) * n * cols, results = n * (n + cols);
    constexpr int64_t kParts = kPartsOf<T>;
    const double k = static_cast<double>(cols);
    const double operations = steps * d * d * (d / 3 + 2 * d + 3 * k) * kParts * kParts;
    const double moved = steps * (5 * d * d + 4 * d * k) * kParts;
    const int64_t size = (runs + shape.steps * results) * kParts + 2 * n;  // in registers
    const double nanoseconds = SmallNanoseconds(kLanes<T>, static_cast<int64_t>(moved), operations);
    DispatchSizes<T>(n, 1, [&](auto order, auto) {
      const auto run_group = [&]<class V>(int64_t i, V* registers) {
        auto* const memory = reinterpret_cast<Element<T, V>*>(registers);
        RunGroup(SizeInLanes<T, V, false>(order), i, memory,
                 reinterpret_cast<V*>(memory + runs + shape.steps * results));
      };
      if (size * kRegisterBytes > kMostGroupBytes) {
        const int64_t registers = (size + kLanes<T> - 1) / kLanes<T>;
        return ForEachGroupOf<1, T>(pool, shape.batch, registers, nanoseconds, run_group, false);
      }
      // The solutions of all steps are written once and read once, which needs no cache.
      ForEachGroup<T>(pool, shape.batch, size, nanoseconds, run_group, /*in_place=*/false,
                      kWideGroupBytes + shape.steps * results * kParts * kRegisterBytes);
    });
  }

 private:
  // Each step leaves [G, y] = D⁻¹ [U, b], where D is the eliminated diagonal block and U the block
  // on its right.
  template <class E, class N>
  void RunGroup(N n, int64_t i, E* memory, RealElement<E>* pivots) const {
    using V = RealElement<E>;
    const int64_t steps = shape.steps, block = n * n, run = BlocksOfRun(n), below = shape.below();
    const int k = ToInt(cols), width = n + k;
    const int64_t size = static_cast<int64_t>(n) * k, result = static_cast<int64_t>(n) * width;
    BlockRun<E, T> diagonals(memory, block, steps * block);
    BlockRun<E, T> lowers(memory + run * block, block, below * block);
    BlockRun<E, T> uppers(memory + 2 * run * block, block, below * block);
    BlockRun<E, T> columns(memory + 3 * run * block, size, steps * size);
    E* const after = memory + 3 * run * block + run * size;  // x of the step after a run
    E* const results = after + size;
    V bad_block{}, bad_row{};
    for (int64_t first = 0; first < steps; first += run) {
      const int64_t last = std::min(steps, first + run), last_upper = std::min(last, below);
      const int64_t first_lower = std::max<int64_t>(first - 1, 0);
      diagonals.Load(diagonal + i * steps * block, first, last);
      lowers.Load(lower + i * below * block, first_lower, last - 1);
      uppers.Load(upper + i * below * block, first, last_upper);
      columns.Load(b + i * steps * size, first, last);
      for (int64_t t = first; t < last; ++t) {
        E* const a = diagonals.At(t);
        E* const own = results + t * result;
        for (int row = 0; row < n; ++row) {
          if (t < below) {
            std::copy_n(uppers.At(t) + row * n, n, own + row * width);
          } else {
            std::fill_n(own + row * width, n, E{});
          }
          std::copy_n(columns.At(t) + row * k, k, own + row * width + n);
        }
        if (t > 0) {
          const E* const previous = own - result;
          const E* const l = lowers.At(t - 1);
          small::AddProduct<false, false>(n, n, n, l, n, previous, width, a, n);
          small::AddProduct<false, false>(n, k, n, l, n, previous + n, width, own + n, width);
        }
        const V bad = small::Solve<E>(n, a, pivots, pivots + n, width, own);
        const auto fails = (bad != V{}) & (bad_row == V{});
        bad_row = fails ? bad : bad_row;
        bad_block = fails ? Number<V>(t) : bad_block;
      }
    }
    const E* next = nullptr;  // x of the step after
    for (int64_t last = steps; last > 0;) {
      const int64_t first = std::max<int64_t>(last - run, 0);
      if (next != nullptr) next = (std::copy_n(next, size, after), after);
      columns.Begin(first);
      for (int64_t t = last - 1; t >= first; --t) {
        E* const own = results + t * result;
        if (next != nullptr) {
          small::AddProduct<false, false>(n, k, n, own, width, next, k, own + n, width);
        }
        E* const y = columns.At(t);
        for (int row = 0; row < n; ++row) std::copy_n(own + row * width + n, k, y + row * k);
        next = y;
      }
      columns.Store(x + i * steps * size, first, last);
      last = first;
    }
    StoreBlockInfo(n, bad_block, bad_row, info + i);
    if (!Any(bad_row != V{})) return;
    for (int64_t system = i; system < i + kLanesOf<V>; ++system) {
      if (info[system] != 0) FillWithNaN(steps * size, x + system * steps * size);
    }
  }
};

void BlockTridiagonalSolve(ffi::ThreadPool pool, ffi::AnyBuffer lower, ffi::AnyBuffer diagonal,
                           ffi::AnyBuffer upper, ffi::AnyBuffer b, Result x, Result info) {
  const BatchShape beside = SplitBatch(lower, 3, "lower");
  if (beside.rows != beside.cols) throw BadArgument("lower", "hold square blocks");
  const BlockTridiagonalShape shape = ReadBlockTridiagonalShape(diagonal);
  const int64_t batch = shape.batch, steps = shape.steps, d = shape.d;
  const int64_t cols = SplitBatch(b, 3, "b").cols;
  DispatchDtype(diagonal.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool, BlockTridiagonalSolveProblem<T>{
                        .shape = shape,
                        .cols = cols,
                        .lower = Elements<T>(lower, batch, {shape.below(), d, d}, "lower"),
                        .diagonal = Elements<T>(diagonal, batch, {steps, d, d}, "diagonal"),
                        .upper = Elements<T>(upper, batch, {shape.below(), d, d}, "upper"),
                        .b = Elements<T>(b, batch, {steps, d, cols}, "b"),
                        .x = ResultElements<T>(x, batch, {steps, d, cols}, "x"),
                        .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_block_tridiagonal_solve, linalg::BlockTridiagonalSolve);
