// The Python module linalg._isa: which builds of the handlers this machine can run. Compiled for
// any machine, since it is what is asked first.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;

NB_MODULE(_isa, m) {
  m.def(
      "levels",
      [] {
        std::vector<std::string> levels;
#if defined(__x86_64__)
        if (__builtin_cpu_supports("x86-64-v4")) levels.push_back("v4");
        if (__builtin_cpu_supports("x86-64-v3")) levels.push_back("v3");
        if (__builtin_cpu_supports("x86-64-v2")) levels.push_back("v2");
#endif
        levels.push_back("baseline");
        return levels;
      },
      nb::sig("def levels() -> list[str]"),
      "The levels of the instruction set that this machine has, the best first.");
}
