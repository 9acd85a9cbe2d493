// The Python module linalg._cuda: the handlers as capsules, and the directories of CUDA's
// libraries. Importing it needs no GPU, no driver and no CUDA library.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "kernels/cuda/captured.h"
#include "kernels/cuda/vendor.h"
#include "kernels/module.h"

namespace nb = nanobind;

NB_MODULE(_cuda, m) {
  linalg::AddTargets<linalg::kCuda>(m);
  m.def(
      "captured_targets",
      [] {
        nb::dict targets;
#define LINALG_ADD_CAPTURED(name, call) \
  targets[#name] = nb::capsule(reinterpret_cast<void*>(name##_captured));
        LINALG_FOR_EACH_CAPTURED(LINALG_ADD_CAPTURED)
#undef LINALG_ADD_CAPTURED
        return targets;
      },
      nb::sig("def captured_targets() -> dict[str, object]"),
      "By target name, its handlers for calls that XLA may record.");
  m.def("runs_without_scratch", &linalg::cuda::RunsWithoutScratch, nb::arg("target"),
        nb::arg("dtype"), nb::arg("operands"), nb::arg("results"), nb::arg("shared"),
        "Whether a target takes matrices of these shapes without scratch memory on every GPU; "
        "`shared`, whether an operand serves the whole batch.");
  m.def("set_library_directories", &linalg::cuda::vendor::SetDirectories, nb::arg("directories"),
        "Where to look for cuSOLVER and cuBLAS after the dynamic linker has.");
  m.def("load", &linalg::cuda::vendor::Load, nb::call_guard<nb::gil_scoped_release>(),
        nb::sig("def load() -> None"), "Opens cuSOLVER and cuBLAS, unless that is done.");
  m.def(
      "device_count",
      [] {
        int count = 0;
        if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
        cudaGetLastError();  // else the next launch would report it
        return 0;
      },
      nb::sig("def device_count() -> int"), "The GPUs that CUDA finds; 0 without a driver.");
  m.def(
      "runtime_version",
      [] { return nb::make_tuple(CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10); },
      nb::sig("def runtime_version() -> tuple[int, int]"),
      "The version of CUDA it was built with.");
  m.def(
      "driver_version",
      [] {
        int version = 0;
        cudaDriverGetVersion(&version);
        return nb::make_tuple(version / 1000, version % 1000 / 10);
      },
      nb::sig("def driver_version() -> tuple[int, int]"),
      "The latest version of CUDA that the driver knows; (0, 0) without a driver.");
}
