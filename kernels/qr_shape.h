// Shapes of the handlers that make Q and R, on any backend.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ffi.h"

namespace linalg {

// Matrices are m by n with `count` reflectors. The first q_cols columns of Q are wanted, if any,
// and the first r_rows rows of R.
struct QrShape {
  int64_t batch, m, n;
  int64_t count = 0;
  int64_t q_cols = 0;
  int64_t r_rows = 0;
};

// The shapes of Q and R tell whether the reduced or the complete factors are wanted. R alone is
// wanted without `q`.
inline QrShape ReadQrShape(const ffi::AnyBuffer& a, const ffi::AnyBuffer* q,
                           const ffi::AnyBuffer& r) {
  const auto [batch, m, n] = SplitBatch(a, 2, "a");
  const int64_t k = std::min(m, n), r_rows = SplitBatch(r, 2, "r").rows;
  if (r_rows != k && r_rows != m) throw BadArgument("r", "have min(m, n) or m rows");
  const int64_t q_cols = q == nullptr ? 0 : SplitBatch(*q, 2, "q").cols;
  if (q != nullptr && q_cols != r_rows) {
    throw BadArgument("q", "have as many columns as r has rows");
  }
  return {.batch = batch, .m = m, .n = n, .count = k, .q_cols = q_cols, .r_rows = r_rows};
}

// R, and the reflectors packed below it.
inline QrShape ReadPackedShape(const ffi::AnyBuffer& a) {
  const auto [batch, m, n] = SplitBatch(a, 2, "a");
  return {.batch = batch, .m = m, .n = n, .count = std::min(m, n), .r_rows = m};
}

// Q from given reflectors.
inline QrShape ReadProductShape(const ffi::AnyBuffer& a, const ffi::AnyBuffer& taus) {
  const auto [batch, m, n] = SplitBatch(a, 2, "a");
  const int64_t k = SplitBatch(taus, 1, "taus").cols;
  if (m < n || n < k) throw BadArgument("a", "have rows >= columns >= the number of taus");
  return {.batch = batch, .m = m, .n = n, .count = k, .q_cols = n};
}

// The derivatives of A = Q R, where Q has the shape of A.
inline QrShape ReadDerivativeShape(const ffi::AnyBuffer& q) {
  const auto [batch, m, n] = SplitBatch(q, 2, "q");
  if (m < n) throw BadArgument("q", "have at least as many rows as columns");
  return {.batch = batch, .m = m, .n = n};
}

}  // namespace linalg
