"""What each room of the house must not know: the imports, attributes of modules and includes that
would break a boundary.

  python tools/check_rooms.py

prints file:line for each breach and exits with 1 if there is any. docs/architecture.md says why the
boundaries are where they are.
"""

import ast
import fnmatch
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
PRIVATE_JAX = ("jax._src", "jax.extend", "jax.interpreters")
PYTHON_API = ("Python.h", "nanobind/", "dlfcn.h")
BATCH_POLICY = (
    "kernels/cpu/batch.h", "kernels/cpu/problem.h", "kernels/cpu/substitution.h",
    "kernels/cpu/cache_blocks.h", "kernels/cpu/lanes.h", "kernels/cpu/object_pool.h",
    "kernels/cpu/tuning.h", "kernels/cuda/job.h", "kernels/cuda/launch.h", "kernels/cuda/tuning.h")
THREADS = ("thread", "mutex", "atomic", "future", "condition_variable")


class Rule(NamedTuple):
  """The files that match one of `files`, and none of `but`, know nothing that is `banned`, but for
  what is `allowed`."""

  files: tuple[str, ...]
  banned: tuple[str, ...]
  but: tuple[str, ...] = ()
  allowed: tuple[str, ...] = ()


RULES = [
    # Python: `banned` are modules.
    Rule(("*.py",),
         ("linalg._cpu_", "linalg._cuda", "linalg._isa", "linalg._targets._cpu",
          "linalg._targets._cuda", "linalg._targets._isa"),
         but=("linalg/_targets.py", "tests/api/test_registration.py", "tests/api/test_ffi.py",
              "tests/cuda/test_programs.py", "tests/support/random_calls.py")),
    Rule(("*.py",), PRIVATE_JAX, but=("linalg/_primitive.py",)),
    Rule(("linalg/_*.py", "linalg/scipy/*.py", "linalg/lax/*.py",
          "linalg/distributed/*.py"),
         ("linalg._targets", "linalg._primitive"),
         but=("linalg/__init__.py", "linalg/_accelerate.py", "linalg/_config.py",
              "linalg/_primitive.py", "linalg/_targets.py")),
    Rule(("linalg/_primitive.py",), ("linalg", "scipy")),
    Rule(("linalg/_targets.py", "linalg/_operands.py", "linalg/_public.py", "linalg/_algebra.py",
          "linalg/_checks.py"), ("linalg.ffi",)),
    Rule(("linalg/_verify.py", "linalg/_cases/*.py", "benchmarks/*.py", "examples/*.py"),
         ("linalg._",), allowed=("linalg._cases", "linalg.__version__")),
    Rule(("docs/*.py",), ("linalg._",)),
    Rule(("linalg/*.py", "examples/*.py"), ("linalg._cases",),
         but=("linalg/_verify.py", "linalg/_cases/*.py")),
    # C++: `banned` are headers.
    Rule(("kernels/*",), PYTHON_API,
         but=("kernels/module.h", "kernels/*/module.*", "kernels/*/isa.*",
              "kernels/cuda/vendor.cc")),
    Rule(("kernels/cuda/vendor.cc",), ("Python.h", "nanobind/")),
    Rule(("kernels/ffi.h", "kernels/cpu/batch.h"), ("kernels/",)),  # they are installed alone
    Rule(("kernels/aligned_memory.h",), ("kernels/", "xla/")),
    Rule(("kernels/handlers.h", "kernels/module.h"),
         ("kernels/arithmetic/", "kernels/small/", "kernels/team/", "kernels/blocked/",
          "kernels/cpu/", "kernels/cuda/")),
    Rule(("kernels/*/lapack.*", "kernels/cuda/vendor.*", "kernels/*/blas_threads.*"),
         ("xla/", "kernels/handlers.h", *BATCH_POLICY)),
    Rule(("kernels/arithmetic/*",),
         ("kernels/small/", "kernels/team/", "kernels/blocked/", "xla/", "kernels/ffi.h",
          "kernels/handlers.h", "kernels/cpu/", "kernels/cuda/", *THREADS)),
    Rule(("kernels/small/*",), ("kernels/team/", "kernels/blocked/")),
    Rule(("kernels/team/*",), ("kernels/small/", "kernels/blocked/")),
    Rule(("kernels/blocked/*",), ("kernels/team/",)),
    Rule(("kernels/small/*", "kernels/team/*", "kernels/blocked/*"),
         ("xla/", "kernels/ffi.h", "kernels/handlers.h", "kernels/cpu/", "kernels/cuda/",
          *THREADS)),
    Rule(("kernels/*/module.*",), BATCH_POLICY),
]


def modules(path: pathlib.Path) -> Iterator[tuple[int, str]]:
  """Every module that a Python file imports, and what it reaches as an attribute of one, with its
  line."""
  nodes = list(ast.walk(ast.parse(path.read_text(), str(path))))
  bound: dict[str, str] = {}  # what the names stand for that imports bind
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
  """The full name of an attribute of a module, or of an attribute of that."""
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
      ("linalg/_*.py", "linalg/scipy/*.py", "linalg/lax/*.py", "linalg/distributed/*.py")):
    yield from private_imports(name, path)
  if matches(("linalg/__init__.py", "linalg/*/__init__.py")) and "_cases" not in name:
    yield from logic(name, path)


def private_imports(name: str, path: pathlib.Path) -> Iterator[str]:
  """Names with an underscore stay in their own module."""
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("linalg."):
      for alias in node.names:
        if alias.name.startswith("_") and not alias.name.endswith("__"):
          yield f"{name}:{node.lineno}: must not know {alias.name}, private to {node.module}"


def logic(name: str, path: pathlib.Path) -> Iterator[str]:
  """The public names stand here, and nothing else: a docstring, imports, of which type
  checkers may not see one, and __all__."""
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
