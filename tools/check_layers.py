"""Checks the import rules between layers.

  python tools/check_layers.py

prints file:line for each breach and exits with 1 if there is any. docs/layers.md gives the reasons.
"""

import ast
import fnmatch
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
COMPILED = tuple(
    f"linalg.{place}{module}" for place in ("", "_core.targets.")
    for module in ("_cpu_", "_cuda", "_isa"))
THREADS = ("thread", "mutex", "atomic", "future", "condition_variable")
BACKENDS = ("kernels/cpu/", "kernels/cuda/")
FFI = ("xla/", "kernels/ffi.h", "kernels/handlers.h")
NAMESPACES = ("linalg.scipy", "linalg.lax", "linalg.structured", "linalg.distributed",
              "linalg.lineax")


class Rule(NamedTuple):
  """Files that match `files`, without those that match `but`, must not import `banned`."""

  files: tuple[str, ...]
  banned: tuple[str, ...]
  but: tuple[str, ...] = ()
  allowed: tuple[str, ...] = ()


RULES = [
    # Python rules: `banned` are modules.
    # 1. The core does not depend on operations.
    Rule(("linalg/_core/*.py",),
         ("linalg._factorizations", "linalg._functions", "linalg._accelerate", *NAMESPACES)),
    # 2. Factorizations do not depend on functions composed of them.
    Rule(("linalg/_factorizations/*.py",),
         ("linalg._functions", "linalg._accelerate", *NAMESPACES)),
    # 3. Functions do not depend on their users.
    Rule(("linalg/_functions/*.py",), ("linalg._accelerate", *NAMESPACES)),
    # 4. Operations call handlers through linalg.ffi only.
    Rule(("linalg/_f*/*.py", "linalg/scipy/*.py", "linalg/lax/*.py", "linalg/structured/*.py",
          "linalg/distributed/*.py"),
         ("linalg._core.primitive", "linalg._core.targets")),
    # 5. Only these files use JAX beyond its public API.
    Rule(("*.py",), ("jax._src", "jax.extend", "jax.interpreters"),
         but=("linalg/_core/primitive.py", "linalg/_accelerate/reroute.py",
              "linalg/_accelerate/matchers.py")),
    # 6. Only these files import the compiled modules.
    Rule(("*.py",), COMPILED,
         but=("linalg/_core/targets.py", "tests/api/test_registration.py", "tests/api/test_ffi.py",
              "tests/cuda/test_programs.py", "tests/support/random_calls.py")),
    # 7. `import linalg` reads neither the catalogue nor the modules of `python -m linalg`.
    Rule(("linalg/*.py",), ("linalg._catalogue", "linalg._verify"),
         but=("linalg/_verify.py", "linalg/__main__.py", "linalg/_catalogue/*.py",
              "linalg/distributed/_missing.py")),
    # 8. Programs around the package use only its public names and the catalogue.
    Rule(("linalg/_verify.py", "linalg/_catalogue/*.py", "benchmarks/*.py", "examples/*.py",
          "docs/*.py"), ("linalg._",), allowed=("linalg._catalogue", "linalg.__version__")),
    # C++ rules: `banned` are headers.
    # 9. Only these files use Python or the dynamic linker.
    Rule(("kernels/*",), ("Python.h", "nanobind/", "dlfcn.h"),
         but=("kernels/module.h", "kernels/*/module.*", "kernels/*/isa.*",
              "kernels/cuda/vendor.cc")),
    # 10. Algorithms do not depend on FFI, threads or a backend.
    Rule(("kernels/arithmetic/*", "kernels/small/*", "kernels/team/*", "kernels/blocked/*"),
         (*FFI, *BACKENDS, *THREADS)),
    # 11. `arithmetic` is below `small`, `team` and `blocked`, and `small` is below `blocked`.
    Rule(("kernels/arithmetic/*",), ("kernels/small/", "kernels/team/", "kernels/blocked/")),
    Rule(("kernels/small/*",), ("kernels/team/", "kernels/blocked/")),
    Rule(("kernels/team/*",), ("kernels/small/", "kernels/blocked/")),
    Rule(("kernels/blocked/*",), ("kernels/team/",)),
    # 12. Headers that both backends share include neither.
    # Installed headers include no other header of this project.
    Rule(("kernels/handlers.h", "kernels/module.h"),
         ("kernels/arithmetic/", "kernels/small/", "kernels/team/", "kernels/blocked/", *BACKENDS)),
    Rule(("kernels/ffi.h", "kernels/cpu/batch.h", "kernels/aligned_memory.h"), ("kernels/",)),
    # 13. Wrappers of LAPACK and the vendor's libraries are functions without batches or handlers.
    Rule(("kernels/*/lapack.*", "kernels/cuda/vendor.*", "kernels/*/blas_threads.*"),
         ("xla/", "kernels/handlers.h", "kernels/*/tuning.h", "kernels/cpu/batch.h",
          "kernels/cpu/problem.h", "kernels/cpu/lanes.h", "kernels/cuda/launch.h")),
]


def modules(path: pathlib.Path) -> Iterator[tuple[int, str]]:
  """Yields every module that a Python file imports, and every attribute it uses of one, with
  lines."""
  nodes = list(ast.walk(ast.parse(path.read_text(), str(path))))
  bound: dict[str, str] = {}  # names that imports bind, and their meanings
  for node in nodes:
    if isinstance(node, ast.Import):
      for alias in node.names:
        top = alias.name.split(".")[0]
        bound.update({alias.asname: alias.name} if alias.asname else {top: top})
        yield node.lineno, alias.name
    elif isinstance(node, ast.ImportFrom):
      yield node.lineno, node.module or ""
      for alias in node.names:
        bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        yield node.lineno, f"{node.module}.{alias.name}"
  inner = {node.value for node in nodes if isinstance(node, ast.Attribute)}
  for node in nodes:
    if isinstance(node, ast.Attribute) and node not in inner and (name := dotted(node, bound)):
      yield node.lineno, name


def dotted(node: ast.expr, bound: dict[str, str]) -> str | None:
  """Returns the full name of a module's attribute, or of an attribute of that."""
  match node:
    case ast.Name(name):
      return bound.get(name)
    case ast.Attribute(value, name) if module := dotted(value, bound):
      return f"{module}.{name}"
  return None


def headers(path: pathlib.Path) -> Iterator[tuple[int, str]]:
  for line, text in enumerate(path.read_text().splitlines(), start=1):
    if match := re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', text):
      yield line, match[1]


def knows(name: str, banned: str, python: bool) -> bool:
  if "*" in banned:
    return fnmatch.fnmatch(name, banned)
  if banned.endswith(("/", "_")):
    return name.startswith(banned)
  return name == banned or (python and name.startswith(banned + "."))


def breaches(path: pathlib.Path) -> Iterator[str]:
  name = path.relative_to(ROOT).as_posix()
  python = path.suffix == ".py"
  matches = lambda patterns: any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
  rules = [r for r in RULES if matches(r.files) and not matches(r.but)]
  breaks = lambda used, rule: (
      any(knows(used, b, python) for b in rule.banned)
      and not any(knows(used, a, python) for a in rule.allowed))
  for line, used in modules(path) if python else headers(path):
    if any(breaks(used, rule) for rule in rules):
      yield f"{name}:{line}: must not know {used}"
  if python and matches(
      ("linalg/*.py",)):
    yield from private_imports(name, path)
  if matches(("linalg/__init__.py", "linalg/*/__init__.py")) and "_catalogue" not in name:
    yield from logic(name, path)


def private_imports(name: str, path: pathlib.Path) -> Iterator[str]:
  """Other modules must not import names with an underscore."""
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("linalg."):
      for alias in node.names:
        if alias.name.startswith("_") and not alias.name.endswith("__"):
          yield f"{name}:{node.lineno}: must not know {alias.name}, private to {node.module}"


def logic(name: str, path: pathlib.Path) -> Iterator[str]:
  """An `__init__.py` holds only a docstring, imports and __all__."""
  for node in ast.parse(path.read_text()).body:
    match node:
      case ast.Import() | ast.ImportFrom() | ast.Expr(ast.Constant()):
        pass
      case ast.Assign([ast.Name("__all__")]):
        pass
      case ast.If(ast.UnaryOp(ast.Not(), ast.Name("TYPE_CHECKING")), [ast.ImportFrom()], []):
        pass
      case _:
        yield f"{name}:{node.lineno}: must hold names alone"


def main() -> int:
  files = [
      path for folder in ("linalg", "kernels", "tests", "benchmarks", "examples", "docs", "tools")
      for path in sorted((ROOT / folder).rglob("*"))
      if path.suffix in (".py", ".h", ".hpp", ".cc", ".cu") and "build" not in path.parts]
  found = [line for path in files for line in breaches(path)]
  print(*found, sep="\n", end="\n" if found else "")
  return 1 if found else 0


if __name__ == "__main__":
  sys.exit(main())
