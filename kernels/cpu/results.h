// Access to the memory of results.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "kernels/aligned_memory.h"
#include "kernels/arithmetic/element.h"
#include "kernels/ffi.h"

namespace linalg {

// The elements of a result that holds matrices.
template <class T>
T* ResultElements(Result& result, int64_t batch, CoreShape core, std::string_view name) {
  T* const data = Elements<T>(result, batch, core, name);
  AdviseHugePages(data, static_cast<int64_t>(result->size_bytes()));
  return data;
}

// Null where a handler lacks this result.
template <class T>
T* ResultElements(Result* result, int64_t batch, CoreShape core, std::string_view name) {
  return result == nullptr ? nullptr : ResultElements<T>(*result, batch, core, name);
}

// The part of a result from `offset` on, or null.
template <class X>
X* PartOf(X* result, int64_t offset) {
  return result == nullptr ? nullptr : result + offset;
}

// Fills `count` elements of the result of a matrix that failed, if the result is wanted.
template <class X>
void FillWithNaN(int64_t count, X* result) {
  if (result != nullptr) std::fill_n(result, count, NaN<X>());
}

template <class T>
void WriteIdentity(int64_t n, T* a) {
  std::fill_n(a, n * n, T(0));
  for (int64_t i = 0; i < n; ++i) a[i * (n + 1)] = T(1);
}

}  // namespace linalg
