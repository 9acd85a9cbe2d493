"""Runs the comparison of this package and its peers in docs/peers.md.

If a peer fixes a problem, a test fails and the page must change.
"""

import contextlib
import importlib.metadata
import pathlib
import re

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import pytest
import scipy.linalg
from jax.sharding import AxisType

import linalg
import matrices
from sharded import collectives, make_mesh, place

pytestmark = pytest.mark.extended

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "peers.md").read_text()
HEADER = re.search(
    r"\| linalg \| jax ([\d.]+) \| NumPy ([\d.]+) \| SciPy ([\d.]+) \| torch.linalg ([\d.]+) ",
    PAGE)
# Maps each function to the letters of this package, jax, NumPy, SciPy and PyTorch; "–" means
# missing.
TABLE = {
    name: [cell.replace(" ", "").replace("2-D", "") for cell in cells.split("|")[:5]]
    for name, cells in re.findall(r"^\| `(\w+)` \| ([\wi\-– |]+)$", PAGE, re.MULTILINE)}
PEERS = {
    "jax": (1, (jnp.linalg, jax.scipy.linalg, jax.lax.linalg)),
    "numpy": (2, (np.linalg,)),
    "scipy": (3, (scipy.linalg,)),
}
EYE = np.eye(3)


def _operands(name, batch, rng):
  a = matrices.positive_definite(rng, batch, 3, np.dtype(np.float64))
  b = matrices.general(rng, batch, 3, 2, np.dtype(np.float64))
  factor = np.linalg.cholesky(a)
  x, y, z = (matrices.general(rng, batch, 3, 3, np.dtype(np.float64))[..., i] for i in range(3))
  return {
      "solve": (a, b),
      "lstsq": (a, b),
      "solve_triangular": (factor, b),
      "vector_norm": (x,),
      "eigh_tridiagonal": (np.arange(3) + x / 9, y[..., 1:]),
      "tridiagonal_solve": (x, y + 9, z, b),
      "cholesky_update": (factor.mT, x),
  }.get(name, (a,))


def _degenerate(name, rng):
  operands = _operands(name, (), rng)
  if name in ("vector_norm", "det"):
    return (np.zeros_like(operands[0]),)
  if name == "eigh_tridiagonal":
    return np.ones(3), np.zeros(2)
  return tuple(EYE if x.shape == (3, 3) else x for x in operands)


def _function(name, libraries):
  """Returns the function that the letters describe, from arrays to a list of arrays, or None."""
  function = next((getattr(x, name) for x in libraries if hasattr(x, name)), None)
  if function is None:
    return None
  options = {
      "vector_norm": {"axis": -1}, "norm": {"axis": (-2, -1)}, "solve_triangular": {"lower": True},
  }.get(name, {})

  def call(*operands):
    results = function(*operands, **options)
    results = results if isinstance(results, (tuple, list)) else (results,)
    # cho_factor also returns which triangle it is
    return [x for x in results if jnp.result_type(x) != jnp.bool_]

  return call


def _takes_batches(function, name, rng):
  operands = _operands(name, (2,), rng)
  results = function(*operands)
  for i in range(2):
    one = function(*(x[i] for x in operands))
    for x, y in zip(results, one, strict=True):
      np.testing.assert_allclose(np.asarray(x)[i], y, rtol=0, atol=1e-8)


def _has_finite_derivatives(function, operands):
  def loss(*operands):
    return sum(
        jnp.sum(jnp.abs(x) ** 2 * jnp.arange(1.0, x.size + 1).reshape(x.shape))
        for x in function(*operands) if jnp.issubdtype(x.dtype, jnp.inexact))

  gradients = jax.jit(jax.grad(loss, range(len(operands))))(*operands)
  slope = jax.jit(lambda *x: jax.jvp(loss, x, tuple(np.ones_like(y) for y in operands))[1])
  assert all(np.isfinite(x).all() for x in (*gradients, slope(*operands)))


def _stays_sharded(function, name, rng):
  operands = place(_operands(name, (16,), rng), make_mesh(kind=AxisType.Explicit), "x")
  assert not collectives(jax.jit(function).lower(*operands).compile().as_text())


def _takes_halves(function, name, rng):
  results = function(*(x.astype(np.float16) for x in _operands(name, (), rng)))
  assert np.dtype(results[0].dtype).name in ("float16", "complex64", "int32", "int64")


CHECKS = {
    "b": _takes_batches,
    "d": lambda function, name, rng: _has_finite_derivatives(function, _operands(name, (), rng)),
    "e": lambda function, name, rng: _has_finite_derivatives(function, _degenerate(name, rng)),
    "s": _stays_sharded,
    "h": _takes_halves,
}


def test_every_row_is_read():
  rows = re.search(r"\| linalg \| jax .*?\n\n", PAGE, re.DOTALL)[0].strip().splitlines()[2:]
  assert len(rows) == len(TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_ours(name, rng):
  function = _function(name, (linalg,))
  for letter in TABLE[name][0]:
    if letter == "i":
      assert hasattr(linalg, f"{name}_ex")
    else:
      CHECKS[letter](function, name, rng)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("name", TABLE)
def test_theirs(name, peer, rng):
  column, libraries = PEERS[peer]
  version = importlib.metadata.version(peer)
  if not f"{version}.".startswith(f"{HEADER[column]}."):
    pytest.skip(f"the page is about {peer} {HEADER[column]}, this is {version}")
  function = _function(name, libraries)
  if TABLE[name][column] == "–":
    assert function is None
    return
  for letter in "bdesh" if peer == "jax" else "b" if peer == "scipy" else "bh":
    try:
      CHECKS[letter](function, name, rng)
      passed = True
    except Exception:  # libraries raise various errors for unsupported arguments
      passed = False
    assert passed == (letter in TABLE[name][column]), letter


def _torch_checks(torch, name, rng):
  """The letters of PyTorch's function, or "–"."""
  function = getattr(torch.linalg, {"expm": "matrix_exp"}.get(name, name), None)
  if function is None:
    return "–"
  options = {
      "vector_norm": {"dim": -1}, "norm": {"dim": (-2, -1)}, "solve_triangular": {"upper": False},
  }.get(name, {})

  def call(*operands):
    results = function(*operands, **options)
    return list(results) if isinstance(results, tuple) else [results]

  def loss(*operands):
    return sum(
        torch.sum(torch.abs(x) ** 2 * torch.arange(1.0, x.numel() + 1).reshape(x.shape))
        for x in call(*operands) if x.is_floating_point() or x.is_complex())

  def tensors(arrays, dtype=torch.float64):
    return tuple(torch.tensor(np.asarray(x)).to(dtype) for x in arrays)

  def batches():
    operands = tensors(_operands(name, (2,), rng))
    results = call(*operands)
    for i in range(2):
      for x, y in zip(results, call(*(x[i] for x in operands)), strict=True):
        if not x.numel():
          continue  # lstsq returns no singular values
        torch.testing.assert_close(x[i], y, rtol=0, atol=1e-8)

  def derivatives(arrays):
    operands = tensors(arrays)
    gradients = torch.func.grad(loss, tuple(range(len(operands))))(*operands)
    slope = torch.func.jvp(loss, operands, tuple(map(torch.ones_like, operands)))[1]
    assert all(torch.isfinite(x).all() for x in (*gradients, slope))

  def halves():
    results = call(*tensors(_operands(name, (), rng), torch.float16))
    assert results[0].dtype in (torch.float16, torch.complex32, torch.int32, torch.int64)

  checks = {
      "b": batches, "d": lambda: derivatives(_operands(name, (), rng)),
      "e": lambda: derivatives(_degenerate(name, rng)), "h": halves}
  letters = ""
  for letter, check in checks.items():
    with contextlib.suppress(Exception):  # various errors for unsupported arguments
      check()
      letters += letter
  return letters + ("i" if hasattr(torch.linalg, f"{name}_ex") else "")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TABLE)
def test_torch(name, rng):
  torch = pytest.importorskip("torch", reason="PyTorch is not installed")
  if not torch.__version__.startswith(f"{HEADER[4]}."):
    pytest.skip(f"the page is about PyTorch {HEADER[4]}, this is {torch.__version__}")
  assert _torch_checks(torch, name, rng) == TABLE[name][4]


def test_stock_lstsq():
  with pytest.raises(TypeError):
    jnp.linalg.lstsq(jnp.ones((2, 3, 3)), jnp.ones((2, 3, 1)))
  gradient = jax.grad(lambda a: jnp.sum(jnp.linalg.lstsq(a, jnp.ones(3))[0]))(jnp.eye(3))
  assert np.isnan(gradient).any()


def test_numpy_lstsq():
  with pytest.raises(np.linalg.LinAlgError):
    np.linalg.lstsq(np.ones((2, 3, 3)), np.ones((2, 3, 1)))


def test_stock_norm():
  assert np.isnan(jax.grad(jnp.linalg.norm)(jnp.zeros(3))).any()
  assert jnp.linalg.norm(jnp.full(3, 1e200)) == np.inf


@pytest.mark.filterwarnings("ignore:overflow")
def test_numpy_norm():
  assert np.linalg.norm(np.full(3, 1e200)) == np.inf


def test_stock_spectral_function():
  def function(a):
    w, v = jnp.linalg.eigh(a)
    return jnp.sum((v * jnp.exp(w)[None]) @ v.T)

  assert np.isnan(jax.grad(function)(jnp.eye(3))).any()


def test_stock_funm():
  a = np.array([[2.0, 1], [0, 2]])
  for module in (jax.scipy.linalg, scipy.linalg):
    assert module.funm(a, lambda x: x**3)[0, 1] == 0  # not 3 x² = 12
  with pytest.raises((NotImplementedError, ValueError)):  # raised by schur, or by a loop
    jax.grad(lambda a: jax.scipy.linalg.funm(a, jnp.exp).real[0, 0])(a)


@pytest.mark.parametrize(
    "function", [jnp.linalg.inv, jax.scipy.linalg.expm], ids=["inv", "expm"])
def test_stock_on_explicit_meshes(function):
  (a,) = place((np.tile(np.eye(3), (8, 1, 1)),), make_mesh(kind=AxisType.Explicit), "x")
  with pytest.raises(Exception, match=r"(?i)shard|mesh|spec"):
    jax.jit(function)(a)
