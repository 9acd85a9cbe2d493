// The Python module linalg._isa, which says which builds of the handlers this machine can run. It
// runs on any machine, since it is asked first. CMakeLists.txt has the list of levels, the best
// last, and defines LINALG_FOR_EACH_X86_LEVEL as visit(level) of each.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

namespace nb = nanobind;

NB_MODULE(_isa, m) {
  m.def(
      "levels",
      [] {
        std::vector<std::string> levels;
        levels.push_back("baseline");
#if defined(__x86_64__)
#define visit(level) \
  if (__builtin_cpu_supports("x86-64-" #level)) levels.push_back(#level);
        LINALG_FOR_EACH_X86_LEVEL
#undef visit
#endif
        std::reverse(levels.begin(), levels.end());
        return levels;
      },
      nb::sig("def levels() -> list[str]"),
      "The levels of the instruction set that this machine has, the best first.");
}
