// Products of small matrices. They are computed one after another, with rows in registers
// (kernels/small).
//
// XLA multiplies batches of them in a slow loop (benchmarks/crossovers/cpu_matmul.json). The Python
// side leaves other products to XLA.
//
// Rows are computed in whole registers, so each row reads and writes numbers beyond its matrix.
// Within a range of the batch these belong to the next matrix, which is computed later. At the end
// of a range, copies replace them.
#include "kernels/cpu/handler.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/problem.h"
#include "kernels/cpu/results.h"
#include "kernels/matmul_shape.h"
#include "kernels/small/mul_sub.h"
#include "kernels/small/product.h"

namespace linalg {
namespace {

// Calls body with a register's bytes as a constant: the narrowest register that holds `row_bytes`,
// or the widest one.
template <class Body>
void WithProductRegister(int64_t row_bytes, Body&& body) {
  if constexpr (kRegisterBytes > 32) {
    if (row_bytes > 32) return body(std::integral_constant<int, kRegisterBytes>());
  }
  if constexpr (kRegisterBytes > 16) {
    if (row_bytes > 16) return body(std::integral_constant<int, 32>());
  }
  body(std::integral_constant<int, 16>());
}

// The number of rows that are computed at once, each in one register or two. It is the most that
// fit in the registers.
template <bool kComplex>
inline constexpr int kMostProductRows = kComplex || !kManyRegisters ? 4 : 8;

// Nanoseconds of a product: a fixed cost, and a rate that the narrowest registers reach.
inline double ProductNanoseconds(size_t real_bytes, double operations) {
  return 5.0 + 0.0125 * static_cast<double>(real_bytes) * operations;
}

// A batch of c (m, n) = op(a) (m, depth) op(b) (depth, n), where op transposes, conjugates, both or
// neither. An operand of rank 2 is shared by the whole batch.
template <class T>
struct MatmulProblem {
  using R = Real<T>;
  static constexpr bool kComplex = kIsComplex<T>;
  static constexpr int kParts = kPartsOf<T>;

  const R* a;
  const R* b;
  R* c;
  int64_t batch;
  int64_t a_stride, b_stride;  // in reals, to the next product's operand: 0 if all share one
  int m, n, depth;
  bool transpose_a, transpose_b, conjugate_a, conjugate_b;

  bool IsEmpty() const { return m == 0 || n == 0; }
  void RunEmpty() const {}

  CpuPath path() const { return CpuPath::kLane; }

  void RunInLanes(ffi::ThreadPool& pool) const {
    WithProductRegister(int64_t{n} * sizeof(T), [&](auto bytes) {
      RunIn<Vector<R, bytes / static_cast<int>(sizeof(R))>>(pool);
    });
  }

 private:
  // Divides rows into blocks of about the same height. The last two may overlap.
  template <class V>
  void RunIn(ffi::ThreadPool& pool) const {
    constexpr int kMost = kMostProductRows<kComplex>;
    const int blocks = (m + kMost - 1) / kMost;
    RunInBlocks<kMost, V>((m + blocks - 1) / blocks, pool);
  }

  template <int kRows, class V>
  void RunInBlocks(int rows, ffi::ThreadPool& pool) const {
    if constexpr (kRows > 1) {
      if (rows < kRows) return RunInBlocks<kRows - 1, V>(rows, pool);
    }
    const double operations = double(m) * n * depth * kParts * kParts;
    ForEachRange(pool, batch, ProductNanoseconds(sizeof(R), operations),
                 [&](int64_t first, int64_t last) { RunRange<kRows, V>(first, last); });
  }

  template <int kRows, class V>
  void RunRange(int64_t first, int64_t last) const {
    constexpr int kWidth = kLanesOf<V>;
    const int cols = n * kParts;
    const int64_t b_size = int64_t{depth} * cols, c_size = int64_t{m} * cols;
    // Numbers beyond a matrix that are touched with it. Only the batch's last matrices lack them.
    const int64_t behind_c = std::max(0, kWidth - cols);
    const int64_t behind_b = transpose_b ? behind_c * depth : behind_c;
    const int64_t panels_size =
        transpose_b ? int64_t{small::RegistersFor<V>(cols)} * depth * kWidth : 0;
    const Registers<V> memory((panels_size + b_size + behind_b + c_size + behind_c) / kWidth + 1);
    R* const panels = reinterpret_cast<R*>(memory.get());
    R* const b_copy = panels + panels_size;
    R* const c_copy = b_copy + b_size + behind_b;

    const auto right_operand = [&](int64_t i) -> small::RightOperand<R> {
      const R* source = b + i * b_stride;
      if ((b_stride == 0 ? 0 : (batch - 1 - i) * b_stride) < behind_b) {
        std::copy_n(source, b_size, b_copy);
        std::fill_n(b_copy + b_size, behind_b, R(0));
        source = b_copy;
      }
      if (!transpose_b) return {.data = source, .row = cols, .next = kWidth, .in_panels = false};
      small::TransposeToPanels<kComplex, V>(n, depth, source, panels);
      return {.data = panels, .row = kWidth, .next = int64_t{depth} * kWidth, .in_panels = true};
    };
    const auto left_operand = [&](int64_t i) -> Strided<R> {
      const R* const matrix = a + i * a_stride;
      return transpose_a ? Strided<R>{matrix, kParts, int64_t{m} * kParts}
                         : Strided<R>{matrix, int64_t{depth} * kParts, kParts};
    };
    small::RightOperand<R> right{};
    int64_t i = first;
    if (m == kRows && cols <= kWidth) {
      // A tiny product is one block, and needs no copies.
      const auto before_copies = [](int64_t end, int64_t stride, int64_t behind) {
        return behind == 0 ? end : stride == 0 ? 0 : end - (behind + stride - 1) / stride;
      };
      const int64_t end =
          std::min(before_copies(batch, b_stride, behind_b), before_copies(last, c_size, behind_c));
      for (; i < end; ++i) {
        if (!transpose_b) {
          right = {.data = b + i * b_stride, .row = cols, .next = 0, .in_panels = false};
        } else if (i == first || b_stride != 0) {
          right = right_operand(i);
        }
        R* const target[] = {c + i * c_size};
        small::ProductBlock<kComplex, kRows, 1, V>(depth, left_operand(i), right.data, right.row,
                                                   right.next, conjugate_a != conjugate_b,
                                                   conjugate_b, target, cols);
      }
    }
    for (bool begins = true; i < last; ++i, begins = false) {
      if (begins || b_stride != 0) right = right_operand(i);
      const Strided<R> left = left_operand(i);
      R* const target = c + i * c_size;
      const bool at_end = (last - 1 - i) * c_size < behind_c;
      small::Product<kComplex, kRows, V>(m, cols, depth, left, right, conjugate_a != conjugate_b,
                                         conjugate_b, at_end ? c_copy : target);
      if (at_end) std::copy_n(c_copy, c_size, target);
    }
  }
};

void Multiply(ffi::ThreadPool& pool, const ffi::AnyBuffer& a, const ffi::AnyBuffer& b, Result& c,
              bool transpose_a, bool transpose_b, bool conjugate_a, bool conjugate_b) {
  const MatmulShape shape = ReadMatmulShape(a, b, *c, transpose_a, transpose_b);
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    using R = Real<T>;
    const auto elements = [](auto& buffer, const BatchShape& shape, std::string_view name) {
      return Elements<T>(buffer, shape.batch, {shape.rows, shape.cols}, name);
    };
    const MatmulProblem<T> problem{
        .a = reinterpret_cast<const R*>(elements(a, shape.a, "a")),
        .b = reinterpret_cast<const R*>(elements(b, shape.b, "b")),
        .c = reinterpret_cast<R*>(ResultElements<T>(c, shape.c.batch, {shape.m, shape.n}, "c")),
        .batch = shape.c.batch,
        .a_stride = shape.a_stride * MatmulProblem<T>::kParts,
        .b_stride = shape.b_stride * MatmulProblem<T>::kParts,
        .m = ToInt(shape.m),
        .n = ToInt(shape.n),
        .depth = ToInt(shape.depth),
        .transpose_a = transpose_a,
        .transpose_b = transpose_b,
        .conjugate_a = conjugate_a,
        .conjugate_b = conjugate_b};
    RunOnPath(pool, problem);
  });
}

void Matmul(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b, Result c, bool conjugate_a,
            bool conjugate_b) {
  Multiply(pool, a, b, c, false, false, conjugate_a, conjugate_b);
}

void MatmulTransposeA(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b, Result c,
                      bool conjugate_a, bool conjugate_b) {
  Multiply(pool, a, b, c, true, false, conjugate_a, conjugate_b);
}

void MatmulTransposeB(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b, Result c,
                      bool conjugate_a, bool conjugate_b) {
  Multiply(pool, a, b, c, false, true, conjugate_a, conjugate_b);
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_matmul, linalg::Matmul);
LINALG_CPU_HANDLER(linalg_matmul_transpose_a, linalg::MatmulTransposeA);
LINALG_CPU_HANDLER(linalg_matmul_transpose_b, linalg::MatmulTransposeB);
