// Products with the Q of Householder reflectors, without making Q.
//
// Small matrices run one reflector at a time, in lanes or with columns in registers
// (kernels/small). Larger ones run one block of reflectors at a time, in tiles (kernels/blocked).
// LAPACK's ormqr makes the blocks again for each matrix too, and uses none for one column.
//
// Products from the right are turned into products from the left: C Q = (Qᴴ Cᴴ)ᴴ.
#include "kernels/blocked/qr.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/once.h"
#include "kernels/cpu/problem.h"
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
    const bool has_few_vectors = c_vectors <= kFewOrmqrColumns;
    const int64_t most_in_lanes = has_few_vectors ? kLaneOrmqrOfFewColumns : kLaneOrmqr;
    return std::max(m, n) <= most_in_lanes ? CpuPath::kLane : CpuPath::kTile;
  }

  void RunInLanes(ffi::ThreadPool& pool) const {
    constexpr int64_t kParts = kPartsOf<T>;
    const int64_t matrix = m * n, columns = m * c_vectors;
    // Blocks of columns compute with a register's width before the first column.
    const int64_t size = (matrix + m * count + count + 2 * columns + kLanes<T>)*kParts;
    const double operations = 2.0 * kParts * kParts * static_cast<double>(columns * count);
    ForEachGroup<T>(pool, batch, size, SmallNanoseconds(kLanes<T>, size, operations),
                    [&]<class V>(int64_t i, V* registers) {
                      using E = Element<T, V>;
                      using B = ColumnBlock<T, V>;
                      E* const reflectors = reinterpret_cast<E*>(registers);
                      E *const vectors = reflectors + matrix, *const scales = vectors + m * count;
                      E *const turned = scales + count, *const x = AfterMargin<B>(turned + columns);
                      LoadElements(a + i * matrix, matrix, matrix, reflectors);
                      LoadElements(taus + i * count, count, count, scales);
                      LoadElements(c + i * columns, columns, columns, left ? x : turned);
                      const int rows = ToInt(m), cols = ToInt(c_vectors);
                      small::UnpackReflectors(reflectors, ToInt(n), rows, ToInt(count), vectors);
                      if (!left) Adjoint(cols, rows, turned, x);
                      small::MultiplyByQ<B>(adjoint, rows, cols, ToInt(count), vectors, scales, x);
                      if (!left) Adjoint(rows, cols, x, turned);
                      StoreElements(left ? x : turned, columns, product + i * columns);
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
  // The adjoint of a rows-by-cols matrix.
  template <class E>
  static void Adjoint(int rows, int cols, const E* source, E* target) {
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j) target[j * rows + i] = Conj(source[i * cols + j]);
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
