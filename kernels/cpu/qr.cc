// QR by Householder reflectors, plain and column-pivoted, and the product of given reflectors.
//
// Small matrices run in lanes, or one at a time with columns in registers (kernels/small). Larger
// ones run in tiles (kernels/blocked). LAPACK takes very narrow matrices, large ones with few rows
// or columns, and pivoting beyond small ones. There geqrf or geqp3 factors a column-major copy, and
// orgqr makes Q in the same memory. Q and R are transposed as they are written.
#include "kernels/blocked/qr.h"
#include "kernels/arithmetic/columns.h"
#include "kernels/arithmetic/pack.h"
#include "kernels/arithmetic/reflector.h"
#include "kernels/cpu/cache_blocks.h"
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/once.h"
#include "kernels/cpu/problem.h"
#include "kernels/qr_shape.h"
#include "kernels/small/qr.h"
#include "kernels/small/qr_derivative.h"

namespace linalg {
namespace {

// Nanoseconds by LAPACK of the factors, and of Q or R.
inline double LapackQrNanoseconds(int64_t rows, int64_t cols) {
  const double m = static_cast<double>(rows), n = static_cast<double>(cols);
  return 2 * LapackNanoseconds(2 * m * n * std::min(m, n));
}

// Nanoseconds in tiles, with Q.
template <class T>
double BlockedQrNanoseconds(int64_t rows, int64_t cols) {
  const double m = static_cast<double>(rows), k = static_cast<double>(std::min(rows, cols));
  return BlockedNanoseconds<T>(m * static_cast<double>(cols) * k);
}

// The reflectors of one matrix, and the Q made from them, both column-major. The memory serves one
// matrix after another. Q has q_cols columns: 0 where it is not wanted.
template <class T>
class LapackQr {
 public:
  LapackQr(int64_t rows, int64_t cols, int64_t q_cols)
      : rows_(rows),
        cols_(cols),
        count_(std::min(rows, cols)),
        a_(Scratch<T>(rows * std::max(cols, q_cols))),
        taus_(Scratch<T>(count_)),
        work_(Scratch<T>(lapack::QrWorkSize(std::max(cols, q_cols)))) {}

  void Factor(ffi::ThreadPool& pool, const T* a) {
    if (count_ == 0) return;
    Transpose(pool, rows_, cols_, a, cols_, a_.get(), rows_);
    const auto factor = count_ <= kUnblockedReflectors ? &lapack::Geqr2<T> : &lapack::Geqrf<T>;
    factor(ToInt(rows_), ToInt(cols_), a_.get(), ToInt(rows_), taus_.get(), work_.get());
  }

  // Factors with column pivoting. `order` receives the original indices of the columns.
  void FactorPivoted(ffi::ThreadPool& pool, const T* a, int32_t* order) {
    std::fill(order, order + cols_, 0);
    if (count_ > 0) {
      Transpose(pool, rows_, cols_, a, cols_, a_.get(), rows_);
      const auto work = Scratch<T>(lapack::Geqp3Work(cols_));
      const auto real_work = Scratch<Real<T>>(lapack::Geqp3RealWork(cols_));
      lapack::Geqp3(ToInt(rows_), ToInt(cols_), a_.get(), ToInt(rows_), order, taus_.get(),
                    work.get(), real_work.get());
      for (int64_t j = 0; j < cols_; ++j) --order[j];
    } else {
      for (int64_t j = 0; j < cols_; ++j) order[j] = static_cast<int32_t>(j);
    }
  }

  // Takes given reflectors: row-major, below the diagonal of `a`.
  void Set(ffi::ThreadPool& pool, const T* a, int64_t count, const T* taus) {
    count_ = count;
    Transpose(pool, rows_, cols_, a, cols_, a_.get(), rows_);
    taus_ = Scratch<T>(count);
    std::copy(taus, taus + count, taus_.get());
  }

  // Writes the row-major `r` of r_rows rows: the upper triangle, zeros below.
  void WriteR(ffi::ThreadPool& pool, int64_t r_rows, T* r) const {
    const auto factors = [&](int64_t i, int64_t j) { return a_[j * rows_ + i]; };
    ForEachCacheBlock(pool, r_rows, cols_, [&](int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
      for (int64_t i = i0; i < i1; ++i) {
        for (int64_t j = j0; j < j1; ++j) r[i * cols_ + j] = WithoutReflectors(i, j, factors);
      }
    });
  }

  // Writes the factored matrix in LAPACK's format: R, and the reflectors below it.
  void WritePacked(ffi::ThreadPool& pool, T* packed, T* taus) const {
    Transpose(pool, cols_, rows_, a_.get(), rows_, packed, cols_);
    std::copy(taus_.get(), taus_.get() + count_, taus);
  }

  // Writes the row-major rows-by-q_cols Q. Overwrites the reflectors.
  void WriteQ(ffi::ThreadPool& pool, int64_t q_cols, T* q) {
    if (rows_ == 0 || q_cols == 0) return;
    const auto multiply = count_ <= kUnblockedReflectors ? &lapack::Org2r<T> : &lapack::Orgqr<T>;
    multiply(ToInt(rows_), ToInt(q_cols), ToInt(count_), a_.get(), ToInt(rows_), taus_.get(),
             work_.get());
    Transpose(pool, q_cols, rows_, a_.get(), rows_, q, q_cols);
  }

 private:
  int64_t rows_, cols_, count_;
  std::unique_ptr<T[]> a_, taus_, work_;
};

// QR of matrices of this shape. Results that are not wanted are null.
template <class T>
struct QrProblem : QrShape {
  const T* a;
  bool factored = false;  // `a` and `taus_in` hold reflectors already
  const T* taus_in = nullptr;
  int32_t* order = nullptr;  // wanted with column pivoting
  T* taus = nullptr;         // wanted with the reflectors below R
  T* r = nullptr;
  T* q = nullptr;

  CpuPath path() const {
    if (order != nullptr) {
      return std::max(m, n) <= kLanePivotedQr ? CpuPath::kLane : CpuPath::kLapack;
    }
    // Narrow matrices do not fill a block. A panel with few rows or columns is most of the matrix.
    const bool is_narrow = n < std::min(m / kNarrowQrRows, kNarrowQrColumns);
    const bool has_few_rows = m < n && m <= kFewQr;
    const int64_t most_in_lanes = is_narrow || has_few_rows ? kLaneQrOfFewRows : kLaneQr;
    if (std::max(m, n) <= most_in_lanes) return CpuPath::kLane;
    const bool is_mostly_panel =
        std::min(m, n) <= kFewQr && m * n * static_cast<int64_t>(sizeof(T)) > kTileFewQrBytes;
    return is_narrow || is_mostly_panel ? CpuPath::kLapack : CpuPath::kTile;
  }

  // One matrix per lane, or one at a time with its columns in registers.
  void RunInLanes(ffi::ThreadPool& pool) const {
    using One = Element<T, Real<T>>;
    using ColumnGroup = Element<T, Vector<Real<T>, kLanes<T>>>;
    const double operations = 2.0 * kParts * kParts * static_cast<double>(Size<1>() * count);
    if (std::max(m, n) <= kLaneQrPerLane) {
      const int64_t size = Size<1>() * kParts;
      ForEachGroup<T>(pool, batch, size, SmallNanoseconds(kLanes<T>, size, operations),
                      [&]<class V>(int64_t i, V* registers) {
                        using E = Element<T, V>;
                        Make<ColumnBlock<T, V>>(i, reinterpret_cast<E*>(registers));
                      });
    } else {
      constexpr int kWidth = kColumns<One, ColumnGroup>;
      const double nanoseconds = SmallNanoseconds(1, Size<1>() * kParts, operations / kLanes<T>);
      ForEachRange(pool, batch, nanoseconds, [&](int64_t first, int64_t last) {
        const Registers<ColumnGroup> memory(Size<kWidth>() / kWidth + 1);
        for (int64_t i = first; i < last; ++i) {
          Make<ColumnGroup>(i, reinterpret_cast<One*>(memory.get()));
        }
      });
    }
  }

  void RunInTiles(ffi::ThreadPool& pool) const {
    ForEachInTasks(
        pool, batch, BlockedQrNanoseconds<T>(m, n),
        [&] { return blocked::QrFactors<T>(m, n, q_cols); },
        [&](blocked::QrFactors<T>& factors, int64_t i, const blocked::RunTasks& run_tasks) {
          const T* const matrix = a + i * m * n;
          if (factored) {
            factors.Set(matrix, count, taus_in + i * count, run_tasks);
          } else {
            factors.Factor(matrix, run_tasks);
          }
          if (taus != nullptr) std::copy_n(factors.taus(), count, taus + i * count);
          if (r != nullptr) {
            blocked::ForEachPieceOfRows(run_tasks, r_rows, [&](int64_t begin, int64_t end) {
              for (int64_t k = begin; k < end; ++k) {
                T* const row = r + (i * r_rows + k) * n;
                const int64_t zeros = taus != nullptr ? 0 : std::min(k, n);
                std::fill_n(row, zeros, T(0));
                std::copy_n(factors.matrix().At(k, zeros).data, n - zeros, row + zeros);
              }
            });
          }
          if (q == nullptr) return;
          factors.MakeQ(run_tasks);
          blocked::CopyRows(m, q_cols, factors.matrix(), q + i * m * q_cols, run_tasks);
        });
  }

  void RunByLapack(ffi::ThreadPool& pool) const {
    const double nanoseconds = (order != nullptr ? 2 : 1) * LapackQrNanoseconds(m, n);
    ForEachByLapack(
        pool, batch, std::min(m, n), nanoseconds, [&] { return LapackQr<T>(m, n, q_cols); },
        [&](LapackQr<T>& factors, int64_t i) {
          const T* const matrix = a + i * m * n;
          if (factored) {
            factors.Set(pool, matrix, count, taus_in + i * count);
          } else if (order != nullptr) {
            factors.FactorPivoted(pool, matrix, order + i * n);
          } else {
            factors.Factor(pool, matrix);
          }
          if (taus != nullptr) {
            factors.WritePacked(pool, r + i * m * n, taus + i * count);
          } else if (r != nullptr) {
            factors.WriteR(pool, r_rows, r + i * r_rows * n);
          }
          if (q != nullptr) factors.WriteQ(pool, q_cols, q + i * m * q_cols);
        });
  }

 private:
  static constexpr int64_t kParts = kPartsOf<T>;

  // Rows of one matrix are whole registers. The padding is before the first column.
  template <int kWidth>
  static int64_t Stride(int64_t cols) {
    return (cols + kWidth - 1) / kWidth * kWidth;
  }

  template <int kWidth>
  int64_t Size() const {
    return m * Stride<kWidth>(std::max(n, q_cols)) + (m + 1) * count + (order != nullptr ? n : 0);
  }

  template <class E>
  static void Load(const T* source, int64_t rows, int64_t cols, int64_t stride, E* target) {
    using V = RealElement<E>;
    const int64_t group = rows * cols * kParts;
    if (stride == cols) {  // the rows follow one another: one long row
      cols = rows * cols;
      stride = cols;
      rows = 1;
    }
    for (int64_t i = 0; i < rows; ++i) {
      // Blocks compute with the padding too, so it must hold no slow numbers.
      std::fill_n(target + i * stride - (stride - cols), stride - cols, E{});
      PackLanes(reinterpret_cast<const Real<T>*>(source + i * cols), group, cols * kParts,
                reinterpret_cast<V*>(target + i * stride));
    }
  }

  template <class E>
  static void Store(const E* source, int64_t rows, int64_t cols, int64_t stride, T* target) {
    using V = RealElement<E>;
    const int64_t group = rows * cols * kParts;
    if (stride == cols) {
      cols = rows * cols;
      rows = 1;
    }
    for (int64_t i = 0; i < rows; ++i) {
      UnpackLanes(reinterpret_cast<const V*>(source + i * stride), group, cols * kParts,
                  reinterpret_cast<Real<T>*>(target + i * cols));
    }
  }

  // Makes the results of matrix `i`, or of as many from `i` on as E has lanes.
  template <class B, class E>
  void Make(int64_t i, E* memory) const {
    constexpr int kWidth = kColumns<E, B>;
    const int64_t stride = Stride<kWidth>(n), q_stride = Stride<kWidth>(q_cols);
    E* const vectors = memory + m * std::max(stride, q_stride);
    E* const scales = vectors + m * count;
    auto* const columns = reinterpret_cast<RealElement<E>*>(scales + count);
    const small::QrWork<E> work{.a = memory + (stride - n),
                                .ld = static_cast<int>(stride),
                                .vectors = vectors,
                                .taus = scales,
                                .q = memory + (q_stride - q_cols),
                                .ldq = static_cast<int>(q_stride),
                                .order = order == nullptr ? nullptr : columns};
    const int rows = static_cast<int>(m), cols = static_cast<int>(n);
    Load(a + i * m * n, m, n, stride, work.a);
    if (factored) Load(taus_in + i * count, 1, count, count, work.taus);
    const auto take = [&] {
      if (taus != nullptr) {
        small::PackReflectors(work.a, work.ld, rows, cols, work.vectors);
        Store(work.taus, 1, count, count, taus + i * count);
      }
      if (r != nullptr) Store(work.a, r_rows, n, stride, r + i * r_rows * n);
      if (q_stride > stride) std::fill_n(memory, m * q_stride, E{});
    };
    small::Qr<B>(rows, cols, static_cast<int>(count), factored, static_cast<int>(q_cols), work,
                 take);
    if (order != nullptr) StoreIntegers(columns, n, order + i * n);
    if (q != nullptr) Store(work.q, m, q_cols, q_stride, q + i * m * q_cols);
  }
};

template <class T>
QrProblem<T> ReadProblem(const QrShape& shape, const ffi::AnyBuffer& a) {
  return {shape, Elements<T>(a, shape.batch, {shape.m, shape.n}, "a")};
}

// Reads a problem that requests R, and Q if `q` is not null.
template <class T>
QrProblem<T> ReadProblem(const ffi::AnyBuffer& a, Result* q, Result& r) {
  auto problem = ReadProblem<T>(ReadQrShape(a, q == nullptr ? nullptr : &**q, *r), a);
  const auto [batch, m, n, count, q_cols, r_rows] = static_cast<const QrShape&>(problem);
  if (q != nullptr) problem.q = ResultElements<T>(*q, batch, {m, q_cols}, "q");
  problem.r = ResultElements<T>(r, batch, {r_rows, n}, "r");
  return problem;
}

void HouseholderQr(ffi::ThreadPool pool, ffi::AnyBuffer a, Result packed, Result taus) {
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    auto problem = ReadProblem<T>(ReadPackedShape(a), a);
    const int64_t batch = problem.batch;
    problem.r = ResultElements<T>(packed, batch, {problem.m, problem.n}, "the packed factors");
    problem.taus = Elements<T>(taus, batch, {problem.count}, "taus");
    RunOnPath(pool, problem);
  });
}

void HouseholderProduct(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer taus, Result q) {
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    auto problem = ReadProblem<T>(ReadProductShape(a, taus), a);
    const int64_t batch = problem.batch;
    problem.factored = true;
    problem.taus_in = Elements<T>(taus, batch, {problem.count}, "taus");
    problem.q = ResultElements<T>(q, batch, {problem.m, problem.n}, "q");
    RunOnPath(pool, problem);
  });
}

void Qr(ffi::ThreadPool pool, ffi::AnyBuffer a, Result q, Result r) {
  DispatchDtype(a.element_type(),
                [&]<class T>(std::type_identity<T>) { RunOnPath(pool, ReadProblem<T>(a, &q, r)); });
}

void QrR(ffi::ThreadPool pool, ffi::AnyBuffer a, Result r) {
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    RunOnPath(pool, ReadProblem<T>(a, nullptr, r));
  });
}

void QrPivoted(ffi::ThreadPool pool, ffi::AnyBuffer a, Result q, Result r, Result order) {
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    auto problem = ReadProblem<T>(a, &q, r);
    problem.order = Elements<int32_t>(order, problem.batch, {problem.n}, "the permutation");
    RunOnPath(pool, problem);
  });
}

// The derivatives of A = Q R, where Q has the shape of A. Callers use them for small matrices only.
template <class T>
struct QrDerivativeProblem {
  QrShape shape;
  const T *q, *r;
  // Operands: dA alone, or the cotangents of Q and R.
  const T* x;
  const T* dr = nullptr;
  // Results: dQ and dR, or A's cotangent alone.
  T* y;
  T* y_r = nullptr;

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    constexpr int64_t kParts = kPartsOf<T>;
    const int m = ToInt(shape.m), n = ToInt(shape.n);
    const int64_t size = shape.m * shape.n, square = shape.n * shape.n;
    const int64_t count = 2 * size + 3 * square;
    const double operations = 3.0 * static_cast<double>(size) * n * kParts * kParts;
    ForEachGroup<T>(pool, shape.batch, count * kParts,
                    SmallNanoseconds(kLanes<T>, count * kParts, operations),
                    [&]<class V>(int64_t i, V* registers) {
                      using E = Element<T, V>;
                      E* const matrix = reinterpret_cast<E*>(registers);
                      E *const triangle = matrix + size, *const target = triangle + square;
                      E *const work = target + size, *const other = work + square;
                      LoadElements(q + i * size, size, size, matrix);
                      LoadElements(r + i * square, square, square, triangle);
                      LoadElements(x + i * size, size, size, target);
                      if (dr == nullptr) {
                        small::QrJvp(m, n, matrix, triangle, target, work, other);
                        StoreElements(other, square, y_r + i * square);
                      } else {
                        LoadElements(dr + i * square, square, square, other);
                        small::QrVjp(m, n, matrix, triangle, target, work, other);
                      }
                      StoreElements(target, size, y + i * size);
                    });
  }
};

// Reads the operands of both derivatives. `x` is the first operand after the factors, `y` the first
// result.
template <class T>
QrDerivativeProblem<T> ReadDerivative(const ffi::AnyBuffer& q, const ffi::AnyBuffer& r,
                                      const ffi::AnyBuffer& x, Result& y) {
  const QrShape shape = ReadDerivativeShape(q);
  const int64_t batch = shape.batch, m = shape.m, n = shape.n;
  return {.shape = shape,
          .q = Elements<T>(q, batch, {m, n}, "q"),
          .r = Elements<T>(r, batch, {n, n}, "r"),
          .x = Elements<T>(x, batch, {m, n}, "the derivative"),
          .y = ResultElements<T>(y, batch, {m, n}, "the result")};
}

void QrJvp(ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer r, ffi::AnyBuffer da, Result dq,
           Result dr) {
  DispatchDtype(q.element_type(), [&]<class T>(std::type_identity<T>) {
    auto derivative = ReadDerivative<T>(q, r, da, dq);
    const QrShape& shape = derivative.shape;
    derivative.y_r = ResultElements<T>(dr, shape.batch, {shape.n, shape.n}, "dr");
    RunOnPath(pool, derivative);
  });
}

void QrVjp(ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer r, ffi::AnyBuffer q_ct,
           ffi::AnyBuffer r_ct, Result a_ct) {
  DispatchDtype(q.element_type(), [&]<class T>(std::type_identity<T>) {
    auto derivative = ReadDerivative<T>(q, r, q_ct, a_ct);
    const QrShape& shape = derivative.shape;
    derivative.dr = Elements<T>(r_ct, shape.batch, {shape.n, shape.n}, "the cotangent of r");
    RunOnPath(pool, derivative);
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_householder_qr, linalg::HouseholderQr);
LINALG_CPU_HANDLER(linalg_householder_product, linalg::HouseholderProduct);
LINALG_CPU_HANDLER(linalg_qr, linalg::Qr);
LINALG_CPU_HANDLER(linalg_qr_r, linalg::QrR);
LINALG_CPU_HANDLER(linalg_qr_jvp, linalg::QrJvp);
LINALG_CPU_HANDLER(linalg_qr_vjp, linalg::QrVjp);
LINALG_CPU_HANDLER(linalg_qr_pivoted, linalg::QrPivoted);
