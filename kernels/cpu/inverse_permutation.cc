// Sorts integer keys with their values, in one pass where the keys are a permutation.
//
// Every derivative of a solve in JAX inverts the permutation of LU's rows by a sort. XLA's sort
// calls a function for each comparison.
#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/cpu/batch.h"
#include "kernels/cpu/handler.h"
#include "kernels/ffi.h"

namespace linalg {
namespace {

// Puts keys and values in order if the keys are 0 to n - 1, each once. Otherwise it returns false.
bool PutInPlace(int64_t n, const int32_t* keys, const int32_t* values, int32_t* sorted_keys,
                int32_t* sorted_values) {
  std::fill_n(sorted_keys, n, -1);
  for (int64_t i = 0; i < n; ++i) {
    const int32_t key = keys[i];
    if (key < 0 || key >= n || sorted_keys[key] >= 0) return false;
    sorted_keys[key] = key;
    sorted_values[key] = values[i];
  }
  return true;
}

void InversePermutation(ffi::ThreadPool pool, ffi::AnyBuffer keys, ffi::AnyBuffer values,
                        Result sorted_keys, Result sorted_values) {
  const BatchShape shape = SplitBatch(keys, 1, "keys");
  const int64_t batch = shape.batch, n = shape.cols;
  const auto* const k = Elements<int32_t>(keys, batch, {n}, "keys");
  const auto* const v = Elements<int32_t>(values, batch, {n}, "values");
  auto* const to_k = Elements<int32_t>(sorted_keys, batch, {n}, "the sorted keys");
  auto* const to_v = Elements<int32_t>(sorted_values, batch, {n}, "the sorted values");
  const double nanoseconds = 5.0 + 3.0 * static_cast<double>(n);
  ForEachRange(pool, batch, nanoseconds, [&](int64_t first, int64_t last) {
    std::vector<std::pair<int32_t, int32_t>> pairs;
    for (int64_t i = first * n; i < last * n; i += n) {
      if (PutInPlace(n, k + i, v + i, to_k + i, to_v + i)) continue;
      pairs.clear();
      for (int64_t j = i; j < i + n; ++j) pairs.emplace_back(k[j], v[j]);
      std::ranges::stable_sort(pairs, {}, &std::pair<int32_t, int32_t>::first);
      for (int64_t j = 0; j < n; ++j) std::tie(to_k[i + j], to_v[i + j]) = pairs[j];
    }
  });
}

}  // namespace
}  // namespace linalg

LINALG_CPU_HANDLER(linalg_inverse_permutation, linalg::InversePermutation);
