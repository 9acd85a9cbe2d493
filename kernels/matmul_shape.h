// Shapes of the handlers that multiply matrices, for every backend.
#pragma once

#include "kernels/ffi.h"

namespace linalg {

// A batch of c (m, n) = op(a) (m, depth) op(b) (depth, n), where op transposes if requested.
// Strides are in elements. The stride of an operand of rank 2 is 0: the whole batch shares it.
struct MatmulShape {
  BatchShape a, b, c;
  int64_t m, n, depth;
  int64_t a_stride, b_stride;
};

inline MatmulShape ReadMatmulShape(const ffi::AnyBuffer& a, const ffi::AnyBuffer& b,
                                   const ffi::AnyBuffer& c, bool transpose_a, bool transpose_b) {
  const BatchShape left = SplitBatch(a, 2, "a"), right = SplitBatch(b, 2, "b");
  const BatchShape product = SplitBatch(c, 2, "c");
  const int64_t m = transpose_a ? left.cols : left.rows, n = transpose_b ? right.rows : right.cols;
  const int64_t depth = transpose_a ? left.rows : left.cols;
  if ((transpose_b ? right.cols : right.rows) != depth) {
    throw BadArgument("b", "have the inner dimension of a");
  }
  if (product.rows != m || product.cols != n) throw BadArgument("c", "have the product's shape");
  const auto stride = [&](const ffi::AnyBuffer& buffer, const BatchShape& shape,
                          std::string_view name) -> int64_t {
    if (buffer.dimensions().size() == 2) return 0;
    if (shape.batch != product.batch) throw BadArgument(name, "have the batch size of c");
    return shape.size();
  };
  return {.a = left,
          .b = right,
          .c = product,
          .m = m,
          .n = n,
          .depth = depth,
          .a_stride = stride(a, left, "a"),
          .b_stride = stride(b, right, "b")};
}

}  // namespace linalg
