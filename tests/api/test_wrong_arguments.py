"""A call with wrong arguments gives one TypeError about the function that was called."""

import inspect
import re
import traceback

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linalg
import linalg.distributed
import linalg.lax
import linalg.scipy
import linalg.structured
from linalg._catalogue import CATALOGUE

EYE = np.eye(3)
MODULES = {
    x.__name__: x
    for x in (linalg, linalg.scipy, linalg.lax, linalg.structured, linalg.distributed)}


# The functions of matrices, and `checked`.
RECORDS = {
    name.removeprefix("linalg."): (getattr(MODULES[x.module], form), x)
    for x in CATALOGUE if x.name == "checked" or x.kind.page != "package"
    for form in x.names for name in [f"{x.module}.{form}"]}
FUNCTIONS = {name: function for name, (function, _) in RECORDS.items()}


# JAX's own functions, which raise JAX's errors.
STOCK = {name for name, function in FUNCTIONS.items() if function.__module__.startswith("jax")}
OPTIONS = [
    (name, parameter.name) for name, function in FUNCTIONS.items() if name not in STOCK
    for parameter in inspect.signature(function).parameters.values()
    if parameter.annotation in (
        bool, int, str, str | None, int | str, int | str | None, int | None, tuple[int, int] | None)
    or parameter.name in ("axis", "axes")]


def _operands(name):
  function, record = RECORDS[name]
  return record.arguments or (EYE,) * record.required(function.__name__)


def _refuses(call, name, *words):
  with pytest.raises(TypeError) as caught:
    call()
  name = name.rpartition(".")[2]
  message = str(caught.value)
  assert type(caught.value) is TypeError
  assert name in message
  for word in words:
    assert word in message
  # The message is short and shows no array. No second error follows it.
  assert len(message) < 400
  assert not re.search(r"abstract array|[Nn]on-hashable|\[\[", message)
  shown = "".join(traceback.format_exception(caught.value))
  assert shown.count(f"TypeError: {message}") == 1
  assert "direct cause" not in shown and "During handling" not in shown


@pytest.mark.parametrize("name", FUNCTIONS)
def test_unknown_keyword(name):
  for value in (1, "x", EYE):
    _refuses(lambda: FUNCTIONS[name](*_operands(name), foo=value), name, "'foo'")


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "block_diag"])
def test_too_many_arguments(name):
  _refuses(lambda: FUNCTIONS[name](*_operands(name), *range(20)), name, "positional")


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "block_diag"])
def test_missing_argument(name):
  _refuses(FUNCTIONS[name], name, "missing")


def _with_option(name, option, value):
  """A call whose option has a value, at its place if it has one."""
  function = FUNCTIONS[name]
  bound = inspect.signature(function).bind_partial(*_operands(name))
  bound.arguments[option] = value
  return function(*bound.args, **bound.kwargs)


# Options that are not looked at, or may be an array whose value is known.
LAX = {"overwrite_a", "overwrite_a_band", "overwrite_b", "check_finite", "turbo", "n", "ind",
       "blocksize", "p", "lapack_driver"}


@pytest.mark.parametrize("name, option", [x for x in OPTIONS if x[1] not in LAX])
def test_array_for_an_option(name, option):
  """An array of several elements, concrete or traced, is refused; a list is, too."""
  kind = "an array; got float64[3,3]"
  _refuses(lambda: _with_option(name, option, EYE), name, option, kind)
  _refuses(lambda: _with_option(name, option, jnp.asarray(EYE)), name, option, kind)
  _refuses(
      lambda: jax.eval_shape(lambda x: _with_option(name, option, x), EYE), name, option, kind)


def test_every_option_is_tried():
  assert {"full_matrices", "UPLO", "mode", "axis", "ord", "lower", "trans"} <= {
      option for _, option in OPTIONS}
  assert len(OPTIONS) > 60


def test_a_list_for_an_option():
  _refuses(lambda: linalg.norm(EYE, axis=[0, 1]), "norm", "axis", "list")
  _refuses(lambda: linalg.vector_norm(EYE, axis=(0, [1])), "vector_norm", "axis", "tuple")


def test_a_string_for_an_array():
  for call in (
      lambda: linalg.cholesky("a"), lambda: linalg.solve(EYE, "b"), lambda: linalg.diagonal("a"),
      lambda: linalg.lu_factor("a"), lambda: linalg.solve_triangular(EYE, "b")):
    with pytest.raises(TypeError, match="requires ndarray or scalar arguments, got <class 'str'>"):
      call()


def test_an_array_of_strings():
  """NumPy has arrays that JAX has not, alone or in a pair."""
  words = np.array([["a", "b", "c"]] * 3)
  for call, position in (
      (lambda: linalg.cholesky(words), 0), (lambda: linalg.lstsq(EYE, words), 1),
      (lambda: linalg.cho_solve((words, True), EYE), 0), (lambda: linalg.cho_logdet((words, 1)), 0),
      (lambda: linalg.lu_solve((EYE, words[0]), EYE), 0),
      (lambda: linalg.lu_slogdet((EYE, words[0])), 0),
      (lambda: linalg.scipy.cho_solve_banded((words, True), EYE), 0)):
    _refuses(call, "takes arrays of numbers, got <U1", f"at position {position}")
  _refuses(lambda: linalg.inv(np.array([[None]])), "inv", "numbers, got object")


@pytest.mark.parametrize("name", ["eigh", "eigh_ex", "eigvalsh"])
def test_a_pair_of_matrices(name):
  """scipy.linalg.eigh takes two matrices; here that is eigh_generalized."""
  _refuses(lambda: FUNCTIONS[name](EYE, EYE), name, "eigh_generalized(a, b)")
  _refuses(
      lambda: jax.jit(lambda a, b: FUNCTIONS[name](a, b))(EYE, EYE), name, "eigh_generalized(a, b)")


def test_factors_are_a_pair():
  """Catches a batch of two factors that is read as a factor with a flag or with pivots.

  Also catches factors of another kind.
  """
  two = np.stack([EYE, EYE])
  pivots = np.arange(3)
  for x in (EYE, two, (EYE,), (EYE, "x"), (EYE, None), ("x", True), ("x", pivots)):
    _refuses(lambda: linalg.cho_solve(x, EYE), "cho_solve", "c_and_lower", "cho_factor")
    _refuses(lambda: linalg.cho_logdet(x), "cho_logdet", "c_and_lower", "cho_factor")
    _refuses(
        lambda: linalg.scipy.cho_solve_banded(x, EYE), "cho_solve_banded", "cb_and_lower",
        "cholesky_banded")
    _refuses(lambda: linalg.lu_solve(x, EYE), "lu_solve", "lu_and_piv", "lu_factor")
    _refuses(lambda: linalg.lu_slogdet(x), "lu_slogdet", "lu_and_piv", "lu_factor")
  for call, got in (
      (lambda: linalg.cho_solve((EYE, pivots), EYE), "float64[3,3] and int64[3]"),
      (lambda: linalg.cho_logdet(linalg.lu_factor(EYE)), "float64[3,3] and int32[3]"),
      (lambda: linalg.lu_slogdet((EYE, True)), "float64[3,3] and bool[]"),
      (lambda: linalg.lu_slogdet((EYE, [0, 1, 2])), "float64[3,3] and <class 'list'>")):
    _refuses(call, "takes as", got)


def test_errors_from_within_are_left_alone():
  """A failure of the caller's own function is not a wrong argument, for any kind of exception."""

  def f(w):
    raise TypeError("mine")

  with pytest.raises(TypeError, match="mine"):
    linalg.funm_hermitian(EYE, f)


def test_transformed_functions_are_compiled_as_such():
  """JAX copies a function's attributes to the transformed function, so `lower` must not be one."""
  mapped = jax.jit(jax.vmap(linalg.solve, in_axes=(None, 0)))
  assert mapped.lower(EYE, np.ones((7, 3))).out_info.shape == (7, 3)
