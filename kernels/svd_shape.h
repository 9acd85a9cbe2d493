// Shapes of the handlers for singular values and vectors, on any backend.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ffi.h"

namespace linalg {

// Matrices are m by n with k singular values. U is m by u_cols and Vᴴ is vh_rows by n. Both are
// square if `full`.
struct SvdShape {
  int64_t batch, m, n, k;
  bool full;
  int64_t u_cols, vh_rows;
};

// The shapes of U and Vᴴ tell whether the square factors are wanted. Both are null where values
// alone are.
inline SvdShape ReadSvdShape(const ffi::AnyBuffer& a, const ffi::AnyBuffer* u,
                             const ffi::AnyBuffer* vh) {
  const auto [batch, m, n] = SplitBatch(a, 2, "a");
  const int64_t k = std::min(m, n);
  const int64_t cols = u == nullptr ? k : SplitBatch(*u, 2, "u").cols;
  const int64_t rows = vh == nullptr ? k : SplitBatch(*vh, 2, "vh").rows;
  if (cols != k && cols != m) throw BadArgument("u", "have min(m, n) or m columns");
  const bool full = cols != k || rows != k;
  if (rows != (full ? n : k)) throw BadArgument("vh", "have n rows if u has m columns");
  return {.batch = batch,
          .m = m,
          .n = n,
          .k = k,
          .full = full,
          .u_cols = full ? m : k,
          .vh_rows = full ? n : k};
}

}  // namespace linalg
