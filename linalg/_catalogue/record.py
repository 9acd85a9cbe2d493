"""The record of one public function."""

import functools
import importlib
import inspect
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from linalg._catalogue.case import Case

# The modules whose signatures the functions of a module follow, in this order.
FOLLOWED = {
    "linalg": ("jax.numpy.linalg", "jax.scipy.linalg", "jax.lax.linalg"),
    "linalg.scipy": ("jax.scipy.linalg", "scipy.linalg"),
    "linalg.lax": ("jax.lax.linalg",),
    "linalg.structured": (),
    "linalg.distributed": (),
}
MODULES = tuple(FOLLOWED)


class Kind(NamedTuple):
  """Where a function stands in the reference: a page of docs/reference and a section there."""

  page: str
  section: str = ""


class Behaviour(NamedTuple):
  """A function's results at degenerate input, or beyond its counterpart.

  Functions that share a Behaviour share a row of docs/functions.md.
  """

  text: str
  tests: tuple[str, ...]  # paths under tests/, with "::" and a name if one test shows it


class Failure(NamedTuple):
  """A matrix that fails, and what `linalg.checked` says about it.

  It is an identity with another middle entry. `call` takes a stack of such matrices. By default the
  stack replaces the first matrix of the record's arguments.
  """

  entry: float
  message: str
  call: Callable[..., Any] | None = None


_UNFACTORED = "{}: it holds NaN or Inf, or did not converge (info -1)."
INDEFINITE = Failure(-1, "is not positive definite: its leading minor of order 2 is not positive.")
SINGULAR = Failure(0, "is singular: pivot 2 of its LU factors is zero.")
NO_SPECTRUM = Failure(math.nan, _UNFACTORED.format("has no eigendecomposition"))
NO_SINGULAR_VALUES = Failure(math.nan, _UNFACTORED.format("has no singular values"))
NO_SCHUR_FORM = Failure(math.nan, _UNFACTORED.format("has no Schur form"))


@dataclass(frozen=True)
class Function:
  """The facts about one public function that its code does not tell.

  A function is recorded for the module that defines it. Others may export it too, see `namespaces`.
  Its `_ex` form, if there is one, has no record of its own.

  Attributes:
    name: the name in `module`.
    kind: its page and section of the reference.
    module: the module that it belongs to.
    classes: the public classes that the reference lists with it, such as that of its result.
    follows: the function whose signature it has, unless that is the first one of its name in
      FOLLOWED.
    differs: how it differs from its counterpart in jax.numpy.linalg.
    behaviours: rows of docs/functions.md.
    sharded: what to use for a matrix that several devices share, if linalg.distributed lacks the
      function or its `_ex` form. {name} stands for the name.
    fails: how it fails under `linalg.checked`, if it does.
    arguments: the arguments of a call. By default, each required parameter is a 3 by 3 matrix.
    results: expression, after the module's name -> its type for a type checker. `a` is an array and
      `flag` a bool. By default a call with an array for each required parameter returns an array.
    calls: suffix of a test's name -> a call that JAX's module takes too. A function that follows
      jax.numpy.linalg has call(module, a) for a stack of square matrices, and results of JAX's
      types. By default each required parameter is the stack. A function that follows JAX's other
      modules has call(module, a, p, b), and JAX's results. a is a general matrix, p a positive
      definite one, and b has two columns.
    cases: how it is called, checked and timed. The first is the usual way.
    no_cases: why a function has no cases.
  """

  name: str
  kind: Kind
  module: str = "linalg"
  classes: tuple[str, ...] = ()
  follows: str = ""
  differs: str = ""
  behaviours: tuple[Behaviour, ...] = ()
  sharded: str = ""
  fails: Failure | None = None
  arguments: tuple[Any, ...] = ()
  results: Mapping[str, str] = field(default_factory=dict)
  calls: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
  cases: tuple[Case, ...] = ()
  no_cases: str = ""

  @property
  def function(self) -> Callable[..., Any]:
    return getattr(importlib.import_module(self.module), self.name)

  @property
  def names(self) -> tuple[str, ...]:
    """The name, and that of the `_ex` form, if there is one."""
    ex = f"{self.name}_ex"
    return (self.name, ex) if ex in _public(self.module) else (self.name,)

  @property
  def full_name(self) -> str:
    """The name after that of the package: "cholesky", "scipy.cholesky"."""
    return f"{self.module}.{self.name}".removeprefix("linalg.")

  @property
  def summary(self) -> str:
    """The first line of its docstring."""
    return (inspect.getdoc(self.function) or "").partition("\n")[0]

  @property
  def namespaces(self) -> tuple[str, ...]:
    """The modules that export this same function."""
    return tuple(
        module for module in MODULES
        if self.name in _public(module)
        and getattr(importlib.import_module(module), self.name) is self.function)

  @property
  def counterpart(self) -> str | None:
    """The full name of the function whose signature it follows, or None."""
    if self.follows:
      return self.follows
    if self.kind.page == "package":
      return None
    return next((f"{module}.{self.name}" for module in self._modules_with_name()), None)

  @property
  def other_modules(self) -> tuple[str, ...]:
    """Modules that have a function of its name, but that it does not follow."""
    followed = (self.counterpart or "").rpartition(".")[0]
    return tuple(module for module in self._modules_with_name() if module != followed)

  def _modules_with_name(self) -> list[str]:
    return [x for x in FOLLOWED[self.module] if hasattr(importlib.import_module(x), self.name)]

  @property
  def own_parameters(self) -> tuple[str, ...]:
    """The keyword-only parameters that its counterpart lacks."""
    if self.counterpart is None:
      return ()
    module, _, name = self.counterpart.rpartition(".")
    theirs = inspect.signature(getattr(importlib.import_module(module), name)).parameters
    return tuple(
        x.name for x in inspect.signature(self.function).parameters.values()
        if x.kind == x.KEYWORD_ONLY and x.name not in theirs)

  @property
  def is_stock(self) -> bool:
    """Whether it is JAX's own function."""
    return self.function.__module__.startswith("jax")

  @property
  def is_composed(self) -> bool:
    """Whether it is composed of others in Python and has no handler of its own."""
    if self.cases:
      return all(case.composed for case in self.cases)
    return self.is_stock or self.function.__module__.startswith("linalg._functions.")

  def required(self, name: str = "") -> int:
    """The number of required parameters, also of another function if its name is given."""
    function = getattr(importlib.import_module(self.module), name or self.name)
    return sum(
        x.default is x.empty and x.kind != x.VAR_POSITIONAL
        for x in inspect.signature(function).parameters.values())

  def result_types(self) -> Mapping[str, str]:
    """`results`, or their default."""
    operands = ", ".join("a" * self.required())
    return self.results or {f"{self.name}({operands})": "Array"}

  def stock_calls(self) -> Mapping[str, Callable[..., Any]]:
    """`calls`, or their default, by the name with the suffix."""
    usual = lambda m, a: getattr(m, self.name)(*(a,) * self.required())
    calls = self.calls or {"": usual}
    return {" ".join(filter(None, (self.name, which))): call for which, call in calls.items()}


@functools.cache
def _public(module: str) -> frozenset[str]:
  return frozenset(importlib.import_module(module).__all__)


def functions_of(module: types.ModuleType) -> set[str]:
  """Returns the public functions of a module, without its classes."""
  return {
      name for name in module.__all__
      if callable(thing := getattr(module, name)) and not inspect.isclass(thing)}
