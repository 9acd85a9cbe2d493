"""Entries that an operation does not read may hold anything: NaN there changes no bit of a result.

The tests detect code that reads both triangles and uses one, or multiplies unwanted entries by
zero.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linalg
import matrices
from quick import quick_jit

ONE_IN = 3

SIZES = (1, 2, 5, 17, 40)
BOOLS = (False, True)
FLAGS = list(itertools.product(BOOLS, repeat=5))


def _spoilt(a, *, lower, unit_diagonal=False):
  """`a` with NaN outside the named triangle."""
  n = a.shape[-1]
  read = np.tri(n, k=-1 if unit_diagonal else 0, dtype=bool)
  return np.where(read if lower else read.T, a, np.array(np.nan, a.dtype))


def _assert_same_bits(actual, expected):
  actual, expected = jax.tree.leaves(actual), jax.tree.leaves(expected)
  for x, y in zip(actual, expected, strict=True):
    assert not np.isnan(y).any()
    np.testing.assert_array_equal(x, y)


# Operations on one triangle of a Hermitian matrix.
HERMITIAN = {
    "cholesky": lambda a, lower: linalg.cholesky(a, upper=not lower, symmetrize_input=False),
    "cho_factor": lambda a, lower: linalg.cho_factor(a, lower=lower)[0],
    "eigh": lambda a, lower: linalg.eigh(a, "L" if lower else "U", symmetrize_input=False),
    "eigvalsh": lambda a, lower: linalg.eigvalsh(
        a, "L" if lower else "U", symmetrize_input=False),
}
SYMMETRIZED = {
    "cholesky": lambda a, lower: linalg.cholesky(a, upper=not lower),
    "eigh": lambda a, lower: linalg.eigh(a, "L" if lower else "U"),
    "eigvalsh": lambda a, lower: linalg.eigvalsh(a, "L" if lower else "U"),
}


@pytest.mark.parametrize("lower", BOOLS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", HERMITIAN)
def test_unnamed_triangle(name, n, lower, dtype, rng):
  function = HERMITIAN[name]
  a = matrices.positive_definite(rng, (3,), n, dtype)
  a = (a + np.swapaxes(a, -1, -2).conj()) / 2
  expected = function(a, lower)
  _assert_same_bits(function(_spoilt(a, lower=lower), lower), expected)
  if name in SYMMETRIZED:
    _assert_same_bits(SYMMETRIZED[name](a, lower), expected)


@pytest.mark.parametrize("lower", BOOLS)
@pytest.mark.parametrize("name", HERMITIAN)
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128], ids=lambda dtype: dtype.__name__)
def test_imaginary_diagonal(name, lower, dtype, rng):
  """The imaginary part of the diagonal is ignored: a Hermitian matrix has none."""
  a = matrices.positive_definite(rng, (3,), 5, dtype)
  a = (a + np.swapaxes(a, -1, -2).conj()) / 2
  index = np.arange(5)
  expected = HERMITIAN[name](a, lower)
  for imaginary in (7j, complex(0, np.nan)):
    spoilt = a.copy()
    spoilt[:, index, index] += imaginary
    spoilt.real[:, index, index] = a.real[:, index, index]
    _assert_same_bits(HERMITIAN[name](spoilt, lower), expected)
    if name in SYMMETRIZED:
      _assert_same_bits(SYMMETRIZED[name](spoilt, lower), expected)


@pytest.mark.parametrize("name", HERMITIAN)
@pytest.mark.parametrize("lower", BOOLS)
def test_gradient_of_the_unnamed_triangle(name, lower, rng):
  """It is zero, NaN there or not: 0 * NaN in a derivative rule would spoil the rest."""
  a = matrices.positive_definite(rng, (2,), 4, np.complex128)
  loss = lambda a: sum(
      jnp.sum(jnp.sum(jnp.abs(x) ** 2, range(x.ndim - 1)) * jnp.arange(1.0, 5.0))
      for x in jax.tree.leaves(HERMITIAN[name](a, lower)))
  gradient = quick_jit(jax.grad(loss))
  actual = gradient(_spoilt(a, lower=lower))
  _assert_same_bits(actual, gradient(a))
  read = np.tri(4, dtype=bool)
  assert not np.any(np.where(read if lower else read.T, 0, actual))
  assert np.all(np.where(np.eye(4, dtype=bool), np.isreal(actual), True))


def _options(flags):
  return dict(zip(
      ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal"), flags, strict=True))


def _triangle(options):
  return {name: options[name] for name in ("lower", "unit_diagonal")}


@quick_jit
def _solve_with_all_flags(matrices, right_hand_sides):
  return [
      linalg.triangular_solve(a, b, **_options(flags))
      for flags, a, b in zip(FLAGS, matrices, right_hand_sides, strict=True)
  ]


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("n", [1, 5, 17])
def test_triangular_solve(n, columns, dtype, rng):
  """Every combination of flags reads its triangle, and no diagonal that is taken to be 1."""
  a = matrices.triangular(rng, (2,), n, dtype, lower=True) / 4
  a = a + np.swapaxes(np.tril(a, -1), -1, -2)
  b = matrices.general(rng, (2,), n, columns, dtype)
  operands = [(a, b if _options(flags)["left_side"] else np.swapaxes(b, -1, -2)) for flags in FLAGS]
  spoilt = [(_spoilt(a, **_triangle(_options(flags))), b) for flags, (a, b) in zip(FLAGS, operands)]
  solutions = _solve_with_all_flags(*zip(*operands))
  _assert_same_bits(_solve_with_all_flags(*zip(*spoilt)), solutions)
  for flags, (a, b), x in zip(FLAGS, operands, solutions, strict=True):
    options, x = _options(flags), np.asarray(x)
    op = np.tril(a) if options["lower"] else np.triu(a)
    op = np.where(np.eye(n, dtype=bool), np.ones((), dtype), op) if options["unit_diagonal"] else op
    op = np.swapaxes(op, -1, -2) if options["transpose_a"] else op
    op = op.conj() if options["conjugate_a"] else op
    multiply = lambda op, x: op @ x if options["left_side"] else x @ op
    limit = 30 * n * np.finfo(dtype).eps * multiply(np.abs(op), np.abs(x)).max()
    np.testing.assert_allclose(multiply(op, x), b, rtol=0, atol=limit, err_msg=str(options))


@pytest.mark.parametrize("lower", BOOLS)
@pytest.mark.parametrize("unit_diagonal", BOOLS)
def test_solve_triangular(lower, unit_diagonal, dtype, rng):
  """scipy.linalg's arguments name the same triangle and the same operation."""
  n = 5
  a = matrices.triangular(rng, (2,), n, dtype, lower=lower)
  b = matrices.general(rng, (2,), n, 2, dtype)
  spoilt = _spoilt(a, lower=lower, unit_diagonal=unit_diagonal)
  for names, transpose, conjugate in (((0, "N"), False, False), ((1, "T"), True, False),
                                      ((2, "C"), True, True)):
    expected = linalg.triangular_solve(
        a, b, left_side=True, lower=lower, transpose_a=transpose, conjugate_a=conjugate,
        unit_diagonal=unit_diagonal)
    for trans in names:
      _assert_same_bits(
          linalg.solve_triangular(spoilt, b, trans, lower, unit_diagonal), expected)


@pytest.mark.parametrize("flags", [(True, True, False, False, False),
                                   (False, False, True, True, True)], ids=str)
def test_gradient_of_triangular_solve(flags, rng):
  options = _options(flags)
  a = matrices.triangular(rng, (2,), 4, np.complex128, lower=options["lower"])
  b = matrices.general(rng, (2,), 4, 4, np.complex128)
  gradient = quick_jit(jax.grad(
      lambda a: jnp.sum(jnp.abs(linalg.triangular_solve(a, b, **options)) ** 2)))
  actual = gradient(_spoilt(a, **_triangle(options)))
  _assert_same_bits(actual, gradient(a))
  read = ~np.isnan(_spoilt(np.ones((4, 4)), **_triangle(options)))
  assert not np.any(np.where(read, 0, actual))


@pytest.mark.parametrize("lower", BOOLS)
def test_cho_solve(lower, dtype, rng):
  """The factor from SciPy's cho_factor holds arbitrary numbers in the other triangle."""
  a = matrices.positive_definite(rng, (2,), 5, dtype)
  factor = linalg.cholesky(a, upper=not lower)
  b = matrices.general(rng, (2,), 5, 2, dtype)
  expected = linalg.cho_solve((factor, lower), b)
  _assert_same_bits(
      linalg.cho_solve((_spoilt(np.asarray(factor), lower=lower), lower), b), expected)


def test_householder_product(dtype, rng):
  """The heads of the reflectors are 1, and R is stored above them."""
  h, taus = linalg.qr(matrices.general(rng, (2,), 5, 3, dtype), mode="raw")
  a = np.swapaxes(np.asarray(h), -1, -2)
  spoilt = np.where(np.tri(5, 3, -1, dtype=bool), a, np.array(np.nan, dtype))
  _assert_same_bits(
      linalg.householder_product(spoilt, taus), linalg.householder_product(a, taus))
