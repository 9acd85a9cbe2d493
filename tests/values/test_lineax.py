"""`linalg.lineax`: each solver in lineax's calls, under jit, vmap and derivatives."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linalg
import matrices
from quick import quick_jit

lx = pytest.importorskip("lineax", reason="lineax is optional, and is not installed")

import linalg.lineax as solvers  # noqa: E402

BATCH, T, D = 3, 3, 2
N = T * D
POSITIVE, NEGATIVE = lx.positive_semidefinite_tag, lx.negative_semidefinite_tag


def _dense(*tags):
  return lambda a: lx.MatrixLinearOperator(a, tags)


def _blocks(a):
  block = lambda i, j: a[D * i : D * (i + 1), D * j : D * (j + 1)]
  lower = jnp.stack([block(i + 1, i) for i in range(T - 1)])
  upper = jnp.stack([block(i, i + 1) for i in range(T - 1)])
  return lower, jnp.stack([block(i, i) for i in range(T)]), upper


def _of_blocks(*tags):
  return lambda a: solvers.BlockTridiagonalLinearOperator(*_blocks(a), tags)


def _of_diagonals(a):
  return lx.TridiagonalLinearOperator(*(jnp.diagonal(a, k) for k in (0, -1, 1)))


def _banded(a, width):
  i = np.arange(a.shape[-1]) // width
  return a * (abs(i[:, None] - i) <= 1)


def _square(rng, dtype):
  return matrices.well_conditioned(rng, (BATCH,), N, dtype)


def _definite(rng, dtype):
  return matrices.positive_definite(rng, (BATCH,), N, dtype)


def _dominant(rng, dtype):
  return _banded(_square(rng, dtype), D) + 9 * np.eye(N, dtype=dtype)


CASES = {
    "LU": (solvers.LU(), _dense(), _square),
    "QR": (solvers.QR(), _dense(), lambda rng, t: matrices.general(rng, (BATCH,), N + 2, N, t)),
    "QR, wide": (solvers.QR(), _dense(), lambda rng, t: matrices.general(rng, (BATCH,), 3, N, t)),
    "SVD": (solvers.SVD(), _dense(), lambda rng, t: matrices.general(rng, (BATCH,), N + 2, N, t)),
    "Cholesky": (solvers.Cholesky(), _dense(POSITIVE), _definite),
    "Cholesky, negative": (
        solvers.Cholesky(), _dense(NEGATIVE), lambda rng, t: -_definite(rng, t)),
    "Tridiagonal": (
        solvers.Tridiagonal(), _of_diagonals,
        lambda rng, t: _banded(_square(rng, t), 1) + 9 * np.eye(N, dtype=t)),
    "BlockTridiagonal": (solvers.BlockTridiagonal(), _of_blocks(), _dominant),
    "BlockTridiagonal, positive": (
        solvers.BlockTridiagonal(), _of_blocks(POSITIVE),
        lambda rng, t: _banded(_definite(rng, t), D) + 9 * np.eye(N, dtype=t))}


@pytest.mark.parametrize("name", CASES)
def test_solver(name, dtype, rng):
  """Solutions, and those of the transposed and conjugated systems through derivatives."""
  solver, operator, make = CASES[name]
  a = make(rng, dtype)
  b, moved = (matrices.general(rng, (BATCH,), a.shape[1], 1, dtype)[..., 0] for _ in range(2))
  da = make(rng, dtype)
  weights = matrices.general(rng, (), a.shape[-1], 1, dtype)[:, 0]

  def value(solve, a, b):
    return jnp.abs(jnp.vdot(weights, solve(a, b))) ** 2

  def by_solver(a, b):
    return lx.linear_solve(operator(a), b, solver).value

  def dense(a, b):
    if "Block" in name or name == "Tridiagonal":
      a = operator(a).as_matrix()
    return linalg.pinv(a) @ b

  def everything(solve):
    x, dx = jax.jvp(jax.vmap(solve), (a, b), (da, moved))
    return x, dx, jax.vmap(jax.grad(lambda a, b: value(solve, a, b), (0, 1)))(a, b)

  ours, theirs = quick_jit(lambda: (everything(by_solver), everything(dense)))()
  if "ositive" in name or "Cholesky" in name:
    # The entries that a definite operator reads are one triangle, or both: compare along dA alone.
    da = (da + np.conj(np.swapaxes(da, -1, -2))) / 2
    ours, theirs = quick_jit(lambda: (everything(by_solver), everything(dense)))()
    ours, theirs = ((*x[:2], x[2][1]) for x in (ours, theirs))
  for x, y in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
    scale = max(float(jnp.max(jnp.abs(y))), 1)
    np.testing.assert_allclose(x, y, atol=2e3 * np.finfo(dtype).eps * scale)


def test_pytrees_and_states(rng):
  """A state serves several vectors, and a structure may be a tree."""
  a = _square(rng, np.float64)[0]
  operator = lx.FunctionLinearOperator(
      lambda x: {"y": a[:2] @ jnp.concatenate(x), "z": a[2:] @ jnp.concatenate(x)},
      [jax.ShapeDtypeStruct((4,), np.float64), jax.ShapeDtypeStruct((2,), np.float64)])
  b = {"y": jnp.ones(2), "z": jnp.ones(4)}
  for solver in (solvers.LU(), solvers.QR(), solvers.SVD()):
    state = solver.init(operator, {})
    x = lx.linear_solve(operator, b, solver, state=state).value
    np.testing.assert_allclose(a @ np.concatenate(x), np.ones(N), atol=1e-11)
  assert solvers.SVD().init(operator, {})[0][3] == N


def test_multiples_of_blocks(rng, dtype):
  """Multiples, sums and tags of block-tridiagonal operators, in any order."""
  a = _banded(_definite(rng, dtype)[0], D) + 9 * np.eye(N, dtype=dtype)
  plain, positive = _of_blocks()(a), _of_blocks(POSITIVE)(a)
  tagged = lx.TaggedLinearOperator(lx.TaggedLinearOperator(plain, POSITIVE), lx.symmetric_tag)
  b = matrices.general(rng, (), N, 1, dtype)[:, 0]
  operators = [
      -plain, 2 * plain, plain / 2, plain + positive, -positive, 2 * positive, positive / -2,
      -(positive / 3) * 2, tagged, -tagged / 2, lx.TaggedLinearOperator(-positive, NEGATIVE)]
  solve = lambda operator: lx.linear_solve(operator, b, solvers.BlockTridiagonal()).value
  found = quick_jit(lambda: [solve(operator) for operator in operators])()
  for x, operator in zip(found, operators, strict=True):
    np.testing.assert_allclose(
        operator.as_matrix() @ x, b, atol=500 * np.finfo(dtype).eps * np.abs(b).max())
  # Definite ones keep one factor, and not the blocks.
  for operator in (-positive, tagged, -tagged):
    assert solvers.BlockTridiagonal().init(operator, {})[0][1] is not None
  with pytest.raises(ValueError, match="or multiples and sums of them"):
    solve(plain @ plain)


def test_tags_of_blocks():
  """A mark of lineax says what it says of lineax's own operators."""
  questions = {
      lx.symmetric_tag: lx.is_symmetric, lx.diagonal_tag: lx.is_diagonal,
      lx.tridiagonal_tag: lx.is_tridiagonal, lx.unit_diagonal_tag: lx.has_unit_diagonal,
      lx.lower_triangular_tag: lx.is_lower_triangular,
      lx.upper_triangular_tag: lx.is_upper_triangular,
      POSITIVE: lx.is_positive_semidefinite, NEGATIVE: lx.is_negative_semidefinite}
  a = jnp.eye(N)
  for dtype in (jnp.float32, jnp.complex64):
    for tags in ((), *((tag,) for tag in questions)):
      of_blocks, dense = (make(*tags)(a.astype(dtype)) for make in (_of_blocks, _dense))
      for question in questions.values():
        assert question(of_blocks) == question(dense), (tags, question)
  one = jnp.ones((1, 1, 1))
  single = solvers.BlockTridiagonalLinearOperator(one[:0], one, one[:0])
  assert lx.is_diagonal(single) and lx.is_tridiagonal(single) and lx.is_symmetric(single)


def test_singular():
  """lineax reports what NaN says."""
  for solver, operator in (
      (solvers.LU(), lx.MatrixLinearOperator(jnp.zeros((2, 2)))),
      (solvers.Cholesky(), lx.MatrixLinearOperator(-jnp.eye(2), POSITIVE))):
    found = lx.linear_solve(operator, jnp.ones(2), solver, throw=False)
    assert found.result == lx.RESULTS.singular
  x = lx.linear_solve(lx.MatrixLinearOperator(jnp.ones((2, 2))), jnp.ones(2), solvers.SVD()).value
  np.testing.assert_allclose(x, [0.5, 0.5], rtol=1e-6)


@pytest.mark.parametrize("solver, operator, text", [
    (solvers.LU(), lx.MatrixLinearOperator(jnp.ones((2, 3))), "square operator, got one of 2 by 3"),
    (solvers.Cholesky(), lx.MatrixLinearOperator(jnp.eye(2)), "marked as positive or negative"),
    (solvers.Tridiagonal(), lx.MatrixLinearOperator(jnp.eye(2)), "marked as tridiagonal"),
    (solvers.BlockTridiagonal(), lx.MatrixLinearOperator(jnp.eye(2)), "BlockTridiagonalLinear"),
])
def test_wrong_operators(solver, operator, text):
  with pytest.raises(ValueError, match=text):
    solver.init(operator, {})


def test_is_optional():
  """`import linalg` does not import lineax."""
  code = "import sys, linalg; assert 'lineax' not in sys.modules and 'equinox' not in sys.modules"
  subprocess.run([sys.executable, "-c", code], check=True)
