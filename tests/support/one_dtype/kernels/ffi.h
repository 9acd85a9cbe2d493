// Replaces kernels/ffi.h. Handlers are compiled for LINALG_TEST_ELEMENT alone, in a quarter of the
// time, and refuse other dtypes. This folder must precede the project's root among the include
// directories.
#pragma once

#define LINALG_EACH_DTYPE(visit, declare, Of) visit(declare, LINALG_TEST_ELEMENT, Of)
#define DispatchDtype DispatchEveryDtype
#include_next "kernels/ffi.h"
#undef DispatchDtype

namespace linalg {

template <class Body>
void DispatchDtype(ffi::DataType dtype, Body&& body) {
  using T = LINALG_TEST_ELEMENT;
  if (dtype != kDtype<T>) throw std::invalid_argument("the dtype must be that of this test");
  body(std::type_identity<T>{});
}

}  // namespace linalg
