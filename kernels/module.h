// The parts of the Python module of every backend: the table of targets, and the version of the
// FFI.
#pragma once

#include <nanobind/nanobind.h>

#include "kernels/handlers.h"

namespace linalg {

template <Backends kBackend>
void AddTargets(nanobind::module_& m) {
  namespace nb = nanobind;
  m.def(
      "targets",
      [] {
        nb::dict targets;
#define LINALG_ADD_TARGET(name, backends, ...)                   \
  if constexpr (((backends) & kBackend) != 0) {                  \
    targets[#name] = nb::capsule(reinterpret_cast<void*>(name)); \
  }
        LINALG_FOR_EACH_TARGET(LINALG_ADD_TARGET)
#undef LINALG_ADD_TARGET
        return targets;
      },
      nb::sig("def targets() -> dict[str, object]"), "The handlers by target name, as capsules.");
  m.def(
      "signatures",
      [] {
        nb::dict signatures;
        for (const Target& target : kTargets) {
          if ((target.backends & kBackend) == 0) continue;
          nb::dict attributes;
          for (const char* attribute : target.attributes) {
            if (attribute == nullptr) continue;
            attributes[attribute] = nb::borrow(IsIndex(attribute) ? &PyLong_Type : &PyBool_Type);
          }
          signatures[nb::str(target.name.data(), target.name.size())] =
              nb::make_tuple(nb::str(target.signature.data(), target.signature.size()), attributes);
        }
        return signatures;
      },
      nb::sig("def signatures() -> dict[str, tuple[str, dict[str, type]]]"),
      "The operands and results of each target, and the types of its attributes.");
  m.def(
      "ffi_version", [] { return nb::make_tuple(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR); },
      nb::sig("def ffi_version() -> tuple[int, int]"),
      "The version of XLA's FFI that the handlers were compiled with.");
}

}  // namespace linalg
