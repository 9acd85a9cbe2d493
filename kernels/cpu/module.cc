// The Python modules linalg._cpu_*, one per level of the instruction set. They hold the handlers as
// capsules, and find LAPACK.
#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>

#include "kernels/cpu/blas_threads.h"
#include "kernels/cpu/lapack.h"
#include "kernels/module.h"

namespace nb = nanobind;

namespace linalg {
namespace {

// Finds a routine in the C API of scipy.linalg.cython_lapack or cython_blas.
void* FindRoutine(const nb::dict& lapack, const nb::dict& blas, const std::string& name) {
  for (const nb::dict* api : {&lapack, &blas}) {
    if (api->contains(name.c_str())) {
      PyObject* capsule = nb::object((*api)[name.c_str()]).ptr();
      return PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    }
  }
  throw std::runtime_error("scipy.linalg has no routine " + name);
}

// Finds OpenBLAS's thread count functions in the library that SciPy's module is linked with. Their
// names depend on how it was built.
void FindBlasThreadFunctions(const void* routine) {
  Dl_info where;
  if (dladdr(routine, &where) == 0) return;
  void* module = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (module == nullptr) return;
  for (const std::string prefix : {"scipy_openblas", "openblas"}) {
    for (const std::string suffix : {"", "64_"}) {
      void* get = dlsym(module, (prefix + "_get_num_threads" + suffix).c_str());
      void* set = dlsym(module, (prefix + "_set_num_threads" + suffix).c_str());
      if (get != nullptr && set != nullptr) {
        return SetBlasThreadFunctions(reinterpret_cast<int (*)()>(get),
                                      reinterpret_cast<void (*)(int)>(set));
      }
    }
  }
}

// The function is looked up by name, because CPython 3.12's stable ABI lacks it. It is public from
// 3.13 on, and private before.
bool IsFinalizing() {
  for (const char* name : {"Py_IsFinalizing", "_Py_IsFinalizing"}) {
    if (void* function = dlsym(RTLD_DEFAULT, name)) {
      return reinterpret_cast<int (*)()>(function)() != 0;
    }
  }
  return false;
}

// Called once, from the thread that first needs LAPACK.
void LoadFromScipy() {
  if (IsFinalizing()) throw std::runtime_error("LAPACK is not loaded and Python is shutting down");
  const nb::gil_scoped_acquire gil;
  const auto api = [](const char* module) {
    return nb::cast<nb::dict>(nb::module_::import_(module).attr("__pyx_capi__"));
  };
  // Imports in jaxlib's order, since another thread may import them for jaxlib at the same time. In
  // another order each of the two threads could wait for a module that the other one has begun.
  const nb::dict blas = api("scipy.linalg.cython_blas"), lapack = api("scipy.linalg.cython_lapack");
  const auto fill = [&](const std::string& name, void** pointer) {
    *pointer = FindRoutine(lapack, blas, name);
  };
  lapack::routines<float>.ForEach(fill);
  lapack::routines<double>.ForEach(fill);
  lapack::routines<std::complex<float>>.ForEach(fill);
  lapack::routines<std::complex<double>>.ForEach(fill);
  FindBlasThreadFunctions(reinterpret_cast<const void*>(lapack::routines<double>.geqrf));
}

}  // namespace
}  // namespace linalg

NB_MODULE(LINALG_MODULE, m) {
  linalg::lapack::SetLoader(linalg::LoadFromScipy);
  linalg::AddTargets<linalg::kCpu>(m);
  // Releases the GIL: a handler may hold the lock that this waits for, and wait for the GIL.
  m.def("load", &linalg::lapack::Load, nb::call_guard<nb::gil_scoped_release>(),
        nb::sig("def load() -> None"), "Takes LAPACK from SciPy, unless that is done.");
  m.def(
      "blas_threads", [] { return linalg::lapack::Load(), linalg::UsersBlasThreads(); },
      nb::call_guard<nb::gil_scoped_release>(), nb::sig("def blas_threads() -> int"),
      "The user's number of OpenBLAS threads; 0 if SciPy's BLAS is not OpenBLAS.");
  m.def("allow_blas_threads", &linalg::AllowUsersBlasThreads, nb::arg("allowed"),
        "Whether one large matrix alone may use the user's BLAS threads.");
}
