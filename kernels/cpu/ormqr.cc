// Products with the Q of Householder reflectors, without making Q.
//
// Small matrices run one reflector at a time (kernels/small), in lanes or one matrix at a time.
// Larger ones run one block of reflectors at a time, in tiles (kernels/blocked).
// LAPACK's ormqr makes the blocks again for each matrix too, and uses none for one column.
//
// Products from the right are turned into products from the left: C Q = (Qᴴ Cᴴ)ᴴ.
#include "kernels/blocked/qr.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/once.h"
#include "kernels/cpu/problem.h"
#include "kernels/small/few_columns.h"
#include "kernels/small/householder.h"

namespace linalg {
namespace {

// Q comes from `count` reflectors below the diagonal of m by n matrices. Q, or its adjoint, is
// multiplied by columns of C. From the right, rows of C are multiplied by the other of the two.
template <class T>
struct OrmqrProblem {
  int64_t batch, m, n, count;
  int64_t c_vectors;  // the columns, or the rows
  bool left, adjoint;
  const T *a, *taus, *c;
  T* product;

  // Lanes read all columns of the reflectors' matrix.
  CpuPath path() const {
    const int64_t most_in_lanes = HasFewVectors() ? kLaneOrmqrOfFewColumns : kLaneOrmqr;
    return std::max(m, n) <= most_in_lanes ? CpuPath::kLane : CpuPath::kTile;
  }

  void RunInLanes(ffi::ThreadPool& pool) const {
    if (batch < kLeastGroup<T>) return RunInTurn(pool);
    constexpr int64_t kParts = kPartsOf<T>;
    const int64_t matrix = m * n, columns = m * c_vectors;
    const int64_t size = (matrix + m * count + count + 2 * columns) * kParts;
    const double operations = 2.0 * kParts * kParts * static_cast<double>(columns * count);
    ForEachGroup<T>(pool, batch, size, SmallNanoseconds(kLanes<T>, size, operations),
                    [&]<class V>(int64_t i, V* registers) {
                      if constexpr (kLanesOf<V> > 1) {
                        using E = Element<T, V>;
                        E* const reflectors = reinterpret_cast<E*>(registers);
                        E *const vectors = reflectors + matrix, *const scales = vectors + m * count;
                        E *const turned = scales + count, *const x = turned + columns;
                        LoadElements(a + i * matrix, matrix, matrix, reflectors);
                        LoadElements(taus + i * count, count, count, scales);
                        LoadElements(c + i * columns, columns, columns, left ? x : turned);
                        const int rows = ToInt(m), cols = ToInt(c_vectors), k = ToInt(count);
                        small::UnpackReflectors(reflectors, ToInt(n), rows, k, vectors);
                        if (!left) Adjoint(cols, rows, turned, rows, x, cols);
                        small::MultiplyByQ<E>(adjoint, rows, cols, k, vectors, scales, x);
                        if (!left) Adjoint(rows, cols, x, cols, turned, rows);
                        StoreElements(left ? x : turned, columns, product + i * columns);
                      }
                    });
  }

  void RunInTiles(ffi::ThreadPool& pool) const {
    struct Work {
      blocked::QrFactors<T> factors;
      blocked::Workspace<T> columns;
    };
    const double operations = 2.0 * static_cast<double>(m * c_vectors * count);
    ForEachInTasks(
        pool, batch, BlockedNanoseconds<T>(operations),
        [&] { return Work{blocked::QrFactors<T>(m, n, 0), blocked::Workspace<T>(m, c_vectors)}; },
        [&](Work& work, int64_t i, const blocked::RunTasks& run_tasks) {
          const T* const source = c + i * m * c_vectors;
          T* const target = product + i * m * c_vectors;
          const blocked::Rows<T> x = work.columns.rows();
          work.factors.Set(a + i * m * n, count, taus + i * count, run_tasks);
          if (left) {
            blocked::CopyRows(m, c_vectors, source, x, run_tasks);
          } else {
            Transpose(pool, c_vectors, m, source, m, x.data, x.ld);
            for (int64_t k = 0; k < m; ++k) Conjugate(c_vectors, x.At(k, 0).data);
          }
          if (adjoint) {
            work.factors.MultiplyByAdjoint(c_vectors, x, run_tasks);
          } else {
            work.factors.MultiplyByQ(c_vectors, x, run_tasks);
          }
          if (left) {
            blocked::CopyRows(m, c_vectors, x, target, run_tasks);
          } else {
            Transpose(pool, m, c_vectors, x.data, x.ld, target, m);
            Conjugate(m * c_vectors, target);
          }
        });
  }

 private:
  using One = Element<T>;
  using ColumnsOfOne = BlockOfOne<T>;

  bool HasFewVectors() const { return c_vectors <= kFewOrmqrColumns; }

  // A batch that fills no lanes, to the bits that it would have in lanes.
  void RunInTurn(ffi::ThreadPool& pool) const {
    const int64_t padded = PaddedColumns<One, ColumnsOfOne>(ToInt(c_vectors));
    const int64_t size = IsAlmostVector() ? small::FewColumnsSize<One>(m, c_vectors, count)
                                          : m * (count + padded) * kPartsOf<T>;
    const double operations = 2.0 * static_cast<double>(m * c_vectors * count);
    ForEachRange(pool, batch, LapackNanoseconds(operations), [&](int64_t first, int64_t last) {
      const Registers<Vector<Real<T>, kLanes<T>>> memory(size / kLanes<T> + 1);
      for (int64_t i = first; i < last; ++i) {
        RunOne(i, ToInt(padded), reinterpret_cast<Real<T>*>(memory.get()));
      }
    });
  }

  bool IsAlmostVector() const { return c_vectors <= kFewOrmqrColumnsOfOne; }

  void RunOne(int64_t i, int padded, Real<T>* memory) const {
    const int64_t offset = i * m * c_vectors;
    const auto* const reflectors = reinterpret_cast<const One*>(a + i * m * n);
    const auto* const scales = reinterpret_cast<const One*>(taus + i * count);
    const auto* const source = reinterpret_cast<const One*>(c + offset);
    auto* const target = reinterpret_cast<One*>(product + offset);
    const int rows = ToInt(m), cols = ToInt(c_vectors), k = ToInt(count);
    if (IsAlmostVector()) {
      return small::MultiplyFewByQ<Vector<Real<T>, small::kChains>>(
          left, adjoint, rows, ToInt(n), cols, k, reflectors, scales, source, target, memory);
    }
    // Rows are padded to whole registers. A register over the end of a row would wait for the
    // stores of two rows.
    One *const vectors = reinterpret_cast<One*>(memory), *const x = vectors + m * count;
    small::UnpackReflectors(reflectors, ToInt(n), rows, k, vectors);
    if (padded != cols) std::fill_n(x, rows * padded, One{});
    if (left) {
      for (int r = 0; r < rows; ++r) std::copy_n(source + r * cols, cols, x + r * padded);
    } else {
      Adjoint(cols, rows, source, rows, x, padded);
    }
    small::MultiplyByQ<ColumnsOfOne>(adjoint, rows, padded, k, vectors, scales, x);
    if (left) {
      for (int r = 0; r < rows; ++r) std::copy_n(x + r * padded, cols, target + r * cols);
    } else {
      Adjoint(rows, cols, x, padded, target, rows);
    }
  }

  // The adjoint of a rows-by-cols matrix. Rows are `ld` apart.
  template <class E>
  static void Adjoint(int rows, int cols, const E* source, int ld, E* target, int target_ld) {
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j) target[j * target_ld + i] = Conj(source[i * ld + j]);
  }
};

void Ormqr(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer taus, ffi::AnyBuffer c,
           Result product, bool left, bool transpose) {
  const auto [batch, m, n] = SplitBatch(a, 2, "a");
  const int64_t count = SplitBatch(taus, 1, "taus").cols;
  if (count > std::min(m, n)) throw BadArgument("taus", "be no more than the sides of a");
  const BatchShape shape = SplitBatch(c, 2, "c");
  if ((left ? shape.rows : shape.cols) != m) {
    throw BadArgument(
        "c", std::string("have as many ") + (left ? "rows" : "columns") + " as a has rows");
  }
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool, OrmqrProblem<T>{.batch = batch,
                                    .m = m,
                                    .n = n,
                                    .count = count,
                                    .c_vectors = left ? shape.cols : shape.rows,
                                    .left = left,
                                    .adjoint = left == transpose,
                                    .a = Elements<T>(a, batch, {m, n}, "a"),
                                    .taus = Elements<T>(taus, batch, {count}, "taus"),
                                    .c = Elements<T>(c, batch, {shape.rows, shape.cols}, "c"),
                                    .product = ResultElements<T>(
                                        product, batch, {shape.rows, shape.cols}, "the product")});
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_ormqr, linalg::Ormqr);
