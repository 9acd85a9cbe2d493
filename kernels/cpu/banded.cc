// Banded systems, banded Cholesky factors, and solves with them.
//
// One matrix per lane whatever the bands: LAPACK is faster from about 100 diagonals on only
// (benchmarks/crossovers/cpu_banded.json).
#include "kernels/small/banded.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/results.h"
#include "kernels/systems.h"

namespace linalg {
namespace {

// Moves `count` elements of a diagonal from each matrix to every `step`-th element of the target,
// and back.
template <class E, class T>
void LoadDiagonal(const T* source, int64_t stride, int64_t count, E* target, int64_t step) {
  ForEachBlock<E>(count, [=](int64_t first, int64_t size, E* block) {
    LoadElements(source + first, stride, size, block);
    for (int64_t i = 0; i < size; ++i) target[(first + i) * step] = block[i];
  });
}
template <class E, class T>
void StoreDiagonal(const E* source, int64_t step, int64_t count, int64_t stride, T* target) {
  ForEachBlock<E>(count, [=](int64_t first, int64_t size, E* block) {
    for (int64_t i = 0; i < size; ++i) block[i] = source[(first + i) * step];
    StoreElements(block, size, stride, target + first);
  });
}

// Calls ForEachGroup for matrices of `size` elements and the given operations.
template <class T, class Run>
void ForEachBandedGroup(ffi::ThreadPool& pool, int64_t batch, int64_t size, double operations,
                        Run&& run) {
  constexpr int64_t kParts = kPartsOf<T>;
  ForEachGroup<T>(pool, batch, size * kParts,
                  SmallNanoseconds(kLanes<T>, size * kParts, operations * kParts * kParts), run);
}

template <class T>
struct BandedSolveProblem {
  BandedSystems<T> systems;

  bool IsEmpty() const { return systems.n == 0; }
  void RunEmpty() const { std::fill_n(systems.info, systems.batch, 0); }

  CpuPath path() const { return CpuPath::kLane; }

  // Loads the rows in the format of small::SolveBanded.
  template <class E>
  void Load(int64_t i, const small::BandedRows& rows, E* a) const {
    const int64_t n = systems.n, width = systems.Width();
    for (int64_t t = 0; t < width; ++t) {
      // Rows before `middle` begin at column 0. Each later one begins one column further.
      const int64_t first = std::max<int64_t>(t - systems.above, 0);
      const int64_t last = std::min(n, n + t - systems.above);
      const int64_t middle = std::clamp<int64_t>(systems.below + 1, first, std::max(first, last));
      const T* const diagonal =
          systems.Diagonal(t) + i * systems.Stride(t) + systems.above - t;  // by rows
      const auto load = [&](int64_t from, int64_t to, int64_t step) {
        if (from >= to) return;
        const int row = ToInt(from);
        E* const target = a + from * width + (from + systems.above - t) - rows.First(row);
        LoadDiagonal(diagonal + from, systems.Stride(t), to - from, target, step);
      };
      load(first, middle, width + 1);
      load(middle, last, width);
    }
    for (int row = 0; row < rows.n; ++row) {
      const int64_t count = rows.Last(row) - rows.First(row) + 1;
      std::fill(a + row * width + count, a + (row + 1) * width, E{});
    }
  }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const int64_t n = systems.n, cols = systems.cols, width = systems.Width();
    ToInt(n + width);  // past the last column of any row
    const small::BandedRows rows{ToInt(n), ToInt(systems.below), ToInt(systems.above)};
    const double operations =
        static_cast<double>(n) * (systems.below * (width + cols) + width * cols);
    AdviseHugePages(systems.x, systems.batch * n * cols * sizeof(T));
    ForEachBandedGroup<T>(
        pool, systems.batch, n * (width + cols), operations, [&]<class V>(int64_t i, V* registers) {
          auto* a = reinterpret_cast<Element<T, V>*>(registers);
          auto* x = a + n * width;
          Load(i, rows, a);
          LoadElements(systems.b + i * n * cols, n * cols, n * cols, x);
          const V info = small::SolveBanded<Element<T, V>>(rows, a, ToInt(cols), x);
          StoreElements(x, n * cols, systems.x + i * n * cols);
          StoreIntegers(&info, 1, systems.info + i);
        });
  }
};

void BandedSolve(ffi::ThreadPool pool, ffi::AnyBuffer upper, ffi::AnyBuffer lower, ffi::AnyBuffer b,
                 Result x, Result info) {
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool,
              BandedSolveProblem<T>{.systems = ReadBandedSystems<T>(upper, lower, b, x, info)});
  });
}

// Loads the columns of the lower triangle, from the diagonal down. Zeros stand below the last row.
template <class E, class T>
void LoadColumns(const BandedTriangles& shape, const T* source, E* a) {
  const int64_t n = shape.n, width = shape.width;
  for (int64_t t = 0; t < width; ++t) {
    const int64_t count = shape.Count(t);
    LoadDiagonal(source + shape.Begin(t), shape.size(), count, a + t, width);
    for (int64_t j = 0; j < n; ++j) {
      E& element = a[j * width + t];
      element = j >= count ? E{} : shape.lower ? element : Conj(element);
    }
  }
}

template <class T>
struct BandedCholeskyProblem {
  BandedTriangles shape;
  const T* ab;
  T* factor;
  int32_t* info;

  bool IsEmpty() const { return shape.n == 0; }
  void RunEmpty() const { std::fill_n(info, shape.batch, 0); }

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const int64_t n = shape.n, width = shape.width, size = shape.size();
    const double operations = static_cast<double>(size) * width / 2;
    ForEachBandedGroup<T>(pool, shape.batch, size, operations,
                          [&]<class V>(int64_t i, V* registers) {
                            using E = Element<T, V>;
                            auto* a = reinterpret_cast<E*>(registers);
                            LoadColumns(shape, ab + i * size, a);
                            const V failed = small::BandedCholesky<E>(ToInt(n), ToInt(width), a);
                            FillNaN(failed != V{}, size, a);
                            for (int64_t t = 0; t < width; ++t) {
                              const int64_t count = shape.Count(t);
                              T* const target = factor + i * size;
                              if (!shape.lower) {
                                for (int64_t j = 0; j < count; ++j)
                                  a[j * width + t] = Conj(a[j * width + t]);
                              }
                              StoreDiagonal(a + t, width, count, size, target + shape.Begin(t));
                              // The corner holds what stands below the last row.
                              StoreDiagonal(a + count * width + t, width, n - count, size,
                                            target + shape.CornerBegin(t));
                            }
                            StoreIntegers(&failed, 1, info + i);
                          });
  }
};

void CholeskyBanded(ffi::ThreadPool pool, ffi::AnyBuffer ab, Result factor, Result info,
                    bool lower) {
  const BandedTriangles shape = ReadBandedTriangles(ab, lower, "ab");
  const int64_t batch = shape.batch;
  DispatchDtype(ab.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool,
              BandedCholeskyProblem<T>{
                  .shape = shape,
                  .ab = Elements<T>(ab, batch, {shape.width, shape.n}, "ab"),
                  .factor = ResultElements<T>(factor, batch, {shape.width, shape.n}, "the factor"),
                  .info = Elements<int32_t>(info, batch, {}, "info")});
  });
}

template <class T>
struct BandedCholeskySolveProblem {
  BandedTriangles shape;
  int64_t cols;
  const T* factor;
  const T* b;
  T* x;

  bool IsEmpty() const { return shape.n == 0; }
  void RunEmpty() const {}

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    const int64_t n = shape.n, width = shape.width, size = shape.size();
    const double operations = 2.0 * size * cols;
    ForEachBandedGroup<T>(
        pool, shape.batch, size + n * cols, operations, [&]<class V>(int64_t i, V* registers) {
          using E = Element<T, V>;
          auto* a = reinterpret_cast<E*>(registers);
          auto* rhs = a + size;
          LoadColumns(shape, factor + i * size, a);
          LoadElements(b + i * n * cols, n * cols, n * cols, rhs);
          small::SolveBandedCholesky<E>(ToInt(n), ToInt(width), a, ToInt(cols), rhs);
          StoreElements(rhs, n * cols, x + i * n * cols);
        });
  }
};

void CholeskyBandedSolve(ffi::ThreadPool pool, ffi::AnyBuffer factor, ffi::AnyBuffer b, Result x,
                         bool lower) {
  const BandedTriangles shape = ReadBandedTriangles(factor, lower, "the factor");
  const int64_t batch = shape.batch, cols = SplitBatch(b, 2, "b").cols;
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool, BandedCholeskySolveProblem<T>{
                        .shape = shape,
                        .cols = cols,
                        .factor = Elements<T>(factor, batch, {shape.width, shape.n}, "the factor"),
                        .b = Elements<T>(b, batch, {shape.n, cols}, "b"),
                        .x = ResultElements<T>(x, batch, {shape.n, cols}, "x")});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_banded_solve, linalg::BandedSolve);
LINALG_CPU_HANDLER(linalg_cholesky_banded, linalg::CholeskyBanded);
LINALG_CPU_HANDLER(linalg_cholesky_banded_solve, linalg::CholeskyBandedSolve);
