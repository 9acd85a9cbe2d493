"""`linalg.scipy` and `linalg.lax` can replace jax.scipy.linalg and jax.lax.linalg.

They have the names, the signatures and the results of the installed JAX's.
"""

import functools
import inspect
import pathlib
import re
import subprocess
import sys

import jax
import jax.lax.linalg
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import pytest
import scipy.linalg

import cases
import linalg
import linalg.lax
import linalg.scipy
import matrices
import selection
from quick import quick_jit

PAIRS = {"scipy": (linalg.scipy, jax.scipy.linalg), "lax": (linalg.lax, jax.lax.linalg)}
MODULES = pytest.mark.parametrize("module", PAIRS)
BATCH = 3


def _names(module):
  return {name for name in dir(module) if not name.startswith("_")}


def _functions(module):
  return {name for name in _names(module) if inspect.isfunction(inspect.unwrap(
      getattr(module, name)))}


@MODULES
def test_names(module):
  """The public names are exactly JAX's, plus those of SciPy.

  Names imported for other purposes are not public.
  """
  ours, stock = PAIRS[module]
  more = _names(ours) - _names(stock)
  assert _names(ours) == set(ours.__all__) == _names(stock) | more
  recorded = {x.name for x in cases.CATALOGUE if x.module == "linalg.scipy"}
  assert more <= (recorded & set(scipy.linalg.__all__) if module == "scipy" else set())


def _parameters(function):
  return [(x.name, x.kind, x.default) for x in inspect.signature(function).parameters.values()]


@MODULES
def test_signatures(module):
  """Parameters have JAX's names, kinds, order and defaults."""
  ours, stock = PAIRS[module]
  for name in _functions(stock):
    added = ADDED.get(name, set()) if module == "scipy" else set()
    mine = [x for x in _parameters(getattr(ours, name)) if x[0] not in added]
    assert mine == _parameters(getattr(stock, name)), name


# Keyword-only parameters that are ours, or SciPy's where JAX lacks them.
ADDED = {
    "eigh": {"subset_by_index", "subset_by_value", "driver"},
    "eigh_tridiagonal": {"subset_by_index", "check_finite", "lapack_driver"},
    "expm_frechet": {"check_finite"},
    "inv": {"assume_a", "lower"}, "lu": {"p_indices"},
    "null_space": {"size"}, "orth": {"size"},
    "schur": {"lwork", "overwrite_a", "sort", "check_finite"}, "solve": {"transposed"}}
# Parameters that some versions of SciPy lack: removed ones, and a new one that has no effect.
DEPRECATED = {"logm": {"disp"}, "signm": {"disp"}, "eigvals": {"overwrite_b"}}


def test_signatures_of_scipy():
  """Parameters of functions that JAX's module lacks have SciPy's names, order and defaults."""
  for name in _names(linalg.scipy) - _names(jax.scipy.linalg):
    ours = _parameters(getattr(linalg.scipy, name))
    added = ADDED.get(name, set())
    assert all(kind == inspect.Parameter.KEYWORD_ONLY for x, kind, _ in ours if x in added)
    theirs = [(x.name, x.default) for x in inspect.signature(
        getattr(scipy.linalg, name)).parameters.values()
        if x.name not in DEPRECATED.get(name, ())]
    assert [(x, default) for x, _, default in ours if x not in added] == theirs, name


def _places(parameters):
  """The place of each parameter in a call by position."""
  return {
      x: place for place, x in enumerate(
          y for y in parameters if parameters[y].kind != inspect.Parameter.KEYWORD_ONLY)}


def _differing(name):
  """Parameters that one side lacks, with another default, or that SciPy takes at another place, or
  alone takes by position."""
  ours, theirs = (
      dict(inspect.signature(getattr(module, name)).parameters)
      for module in (linalg.scipy, scipy.linalg))
  here, there = _places(ours), _places(theirs)
  return (ours.keys() ^ theirs.keys()) | {
      x for x in ours.keys() & theirs.keys()
      if ours[x].default != theirs[x].default
      or (x in there and here.get(x) != there[x])}


def test_parameters_that_differ():
  """The table of docs/signatures.md has all of them."""
  page = (pathlib.Path(__file__).parents[2] / "docs" / "signatures.md").read_text()
  section = re.search(r"^## Parameters that differ.*?(?=^## )", page, re.M | re.S)[0]
  version = re.search(r"SciPy (\d+\.\d+)", section)[1]
  if not scipy.__version__.startswith(f"{version}."):
    pytest.skip(f"the page is about SciPy {version}, this is {scipy.__version__}")
  listed = {}
  for names, parameters in re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", section, re.M):
    for name in re.findall(r"`(\w+)`", names):
      listed.setdefault(name, set()).update(re.findall(r"`(\w+)`", parameters))
  both = _functions(linalg.scipy) & set(scipy.linalg.__all__)
  assert len(both) > 90
  assert {x: y for x in both if (y := _differing(x))} == listed


@pytest.mark.parametrize("only", [False, True], ids=["pairs", "values"])
def test_subset_by_index(only):
  """SciPy's positional parameters work, the last included, with and without a second matrix."""
  g = np.random.default_rng(0).standard_normal((5, 5))
  a, b = g + g.T, g @ g.T + np.eye(5)
  for operands in ((a,), (a, b)):
    for subset in ((0, 0), (1, 3), (4, 4)):
      chosen = {"eigvals_only": only, "subset_by_index": subset}
      ours, stock = (f(*operands, **chosen) for f in (linalg.scipy.eigh, scipy.linalg.eigh))
      ours, stock = ((x,) if only else x for x in (ours, stock))
      np.testing.assert_allclose(ours[0], stock[0], rtol=1e-10)
      for x, y in zip(ours[1:], stock[1:]):
        np.testing.assert_allclose(np.abs(x), np.abs(y), atol=1e-10)
  for wrong in ((2, 1), (0, 5), (-1, 2)):
    with pytest.raises(ValueError, match="subset_by_index must be"):
      linalg.scipy.eigh(a, subset_by_index=wrong)
  with pytest.raises(ValueError, match="only one of eigvals"):
    linalg.scipy.eigh(a, eigvals=(0, 1), subset_by_index=(0, 1))


def test_names_that_are_elsewhere():
  """The error says so if a name is only in `linalg.scipy`."""
  for name in set(linalg.scipy.__all__) - set(linalg.__all__):
    with pytest.raises(AttributeError, match=rf"it is linalg\.scipy\.{name}, after `import"):
      getattr(linalg, name)
  with pytest.raises(AttributeError, match="no attribute 'nothing'$"):
    _ = linalg.nothing


def test_import_is_lazy():
  """`import linalg` reads neither module, and the import of another one does not either."""
  program = (
      "import sys, linalg; from linalg import distributed; "
      "print({'linalg.scipy', 'linalg.lax'} & set(sys.modules))")
  done = subprocess.run(
      [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
  assert done.stdout.strip() == "set()"


def _own(module):
  """Functions that are not JAX's and have no tests elsewhere."""
  ours, stock = PAIRS[module]
  return {
      x for x in _functions(stock) - cases.OF_SCIPY
      if getattr(ours, x) not in (getattr(stock, x), getattr(linalg, x, None))}


def _calls():
  """Each function is called in one way by default, and in all ways as `extended`."""
  for function in cases.CATALOGUE:
    for module, (_, stock) in PAIRS.items():
      if function.counterpart == f"{stock.__name__}.{function.name}" and function.calls:
        for name, call in function.stock_calls().items():
          yield pytest.param(
              module, call, id=f"{module}-{name.replace(' ', '-')}",
              marks=() if name in _own(module) else pytest.mark.extended)


CALLS = pytest.mark.parametrize(("module", "call"), list(_calls()))


@MODULES
def test_every_function_is_called(module):
  ids = {x.id for x in _calls()}
  assert {f"{module}-{name}" for name in _own(module)} <= ids


def test_lists():
  """Functions take lists where JAX's and SciPy's do, for options too."""
  a, b = [[4.0, 1.0], [1.0, 3.0]], [1.0, 2.0]
  for name, arguments in {
      "cholesky": (a,), "cho_solve": (linalg.cho_factor(np.array(a)), b),
      "lu": (a,), "qr": (a,), "solve_sylvester": (a, a, a), "solve_triangular": (a, b)}.items():
    ours, stock = (getattr(module, name)(*arguments) for module in PAIRS["scipy"])
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(stock), strict=True):
      np.testing.assert_allclose(x, y, rtol=0, atol=1e-6)
  banded = [[0.0, 1.0], [4.0, 3.0], [1.0, 0.0]]
  x = linalg.scipy.solve_banded([1, 1], banded, b)
  np.testing.assert_allclose(np.array(a) @ x, b, rtol=1e-6)


def _operands(rng, batch, n, dtype):
  return (
      matrices.well_conditioned(rng, batch, n, dtype),
      matrices.positive_definite(rng, batch, n, dtype), matrices.general(rng, batch, n, 2, dtype))


def _results(call, module):
  return lambda a, p, b: jax.tree.leaves(call(module, a, (p + p.mT.conj()) / 2, b))


def _mapped(function):
  """JAX has functions that `vmap` cannot map."""
  return lambda *operands: jax.lax.map(lambda x: function(*x), operands)


def _close(actual, expected, precision):
  assert len(actual) == len(expected)
  for x, y in zip(actual, expected, strict=True):
    assert (x.shape, x.dtype) == (y.shape, y.dtype)
    scale = np.max(np.abs(y), initial=1)
    np.testing.assert_allclose(x, y, rtol=0, atol=400 * precision * scale)


@selection.one_in(2)
@cases.each_dtype(np.complex128, np.float32)
@CALLS
def test_results(module, call, dtype, rng, standard_promotion):
  """A batch has JAX's shapes, dtypes and numbers, and so has the gradient if JAX has one.

  Gradients are compared as those of Hermitian matrices. If one triangle is read, JAX divides the
  gradient between the triangles in another way.
  """
  operands = _operands(rng, (BATCH,), 4, np.dtype(dtype))
  ours, stock = (_results(call, x) for x in PAIRS[module])
  ours, stock = jax.vmap(ours), _mapped(stock)
  types = jax.eval_shape(stock, *operands)
  inexact = [jnp.issubdtype(x.dtype, jnp.inexact) for x in types]
  weights = [matrices.general(rng, x.shape, 1, 1, x.dtype)[..., 0, 0] for x in types]

  def with_gradients(function, *operands):
    def loss(*operands):
      results = function(*operands)
      return sum(
          jnp.sum((x * w).real) for x, w, k in zip(results, weights, inexact) if k), results

    (_, results), gradients = jax.value_and_grad(loss, (0, 1, 2), has_aux=True)(*operands)
    return [*results, *gradients]

  both = [functools.partial(with_gradients, f) if any(inexact) else f for f in (stock, ours)]
  try:
    expected = quick_jit(both[0])(*operands)
  except (NotImplementedError, ValueError) as error:  # a primitive or a loop without a rule
    assert isinstance(error, NotImplementedError) or "everse-mode" in str(error), error
    both = [stock, ours]
    expected = quick_jit(both[0])(*operands)
  _close(quick_jit(both[1])(*operands), expected, float(np.finfo(dtype).eps))


@CALLS
def test_shapes_without_entries(module, call, standard_promotion):
  """Types are JAX's for an empty batch, and for matrices without rows if JAX has a result."""
  ours, stock = (_results(call, x) for x in PAIRS[module])
  for batch, n in ((0, 4), (2, 0)):
    types = [
        jax.ShapeDtypeStruct((batch, n, k), np.float32) for k in (n, n, 2 if n else 0)]
    try:
      expected = jax.eval_shape(_mapped(stock), *types)
    except (TypeError, ValueError, IndexError, ZeroDivisionError):
      assert n == 0
      continue
    found = jax.eval_shape(jax.vmap(ours), *types)
    assert [(x.shape, x.dtype) for x in found] == [(x.shape, x.dtype) for x in expected]


@pytest.mark.extended
@CALLS
def test_failures(module, call, rng, standard_promotion):
  """Results are NaN where JAX's are, for a matrix that holds NaN and for an indefinite one."""
  operands = _operands(rng, (BATCH,), 4, np.dtype(np.float64))
  for x in operands:
    x[1] = np.nan
  operands[1][2] *= -1
  ours, stock = (_results(call, x) for x in PAIRS[module])
  found = quick_jit(jax.vmap(ours))(*operands)
  expected = quick_jit(_mapped(stock))(*operands)
  for x, y in zip(found, expected, strict=True):
    if jnp.issubdtype(y.dtype, jnp.inexact):
      for i in range(BATCH):
        assert np.isnan(x[i]).all() or not np.isnan(y[i]).all()
        assert np.isnan(y[i]).any() or not np.isnan(x[i]).any()
