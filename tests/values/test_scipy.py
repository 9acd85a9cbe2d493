"""Spaces, linear matrix equations and Toeplitz systems, at degenerate points and failures."""

import jax
import numpy as np
import pytest
import scipy.linalg

import cases
import derivatives
import linalg.scipy
import matrices
from quick import quick_jit


def _of_rank(rng, rank, m, n, dtype):
  return matrices.general(rng, (), m, rank, dtype) @ matrices.general(rng, (), rank, n, dtype)


def _projector(q):
  return q @ q.mT.conj()


@cases.each_double
def test_pinvh(dtype, rng):
  """A batch of semidefinite matrices of several ranks, the cut-offs, and which triangle is read."""
  a = np.stack([matrices.with_eigenvalues(rng, np.array(w), dtype) for w in (
      [0.0, 0, 1, 2], [1.0, 1, 1, 1], [-1.0, 1e-17, 1, 3], [1e-3, 1, 2, 2])])
  inverse, ranks = linalg.scipy.pinvh(a, return_rank=True)
  np.testing.assert_array_equal(ranks, [2, 4, 3, 4])
  for x, y in zip(a, inverse, strict=True):
    np.testing.assert_allclose(y, scipy.linalg.pinvh(x), atol=1e-11)
  np.testing.assert_array_equal(linalg.scipy.pinvh(a, 1e-2, return_rank=True)[1], [2, 4, 3, 3])
  rtol = np.array([0, 0.4, 0.4, 0.6])
  np.testing.assert_array_equal(
      linalg.scipy.pinvh(a, rtol=rtol, return_rank=True)[1][1:], [4, 1, 2])
  upper = np.where(np.tri(4, k=-1, dtype=bool), np.nan, a)
  np.testing.assert_allclose(linalg.scipy.pinvh(upper, lower=False), inverse, atol=1e-11)


@cases.each_double
def test_spaces(dtype, rng):
  """The bases span SciPy's spaces, for any shape, also for matrices without entries."""
  for m, n, rank in ((5, 4, 2), (4, 5, 4), (3, 3, 0)):
    a = np.stack([_of_rank(rng, rank, m, n, dtype) for _ in range(2)])
    q, z = linalg.scipy.orth(a), linalg.scipy.null_space(a)
    assert q.shape == (2, m, rank) and z.shape == (2, n, n - rank)
    for x, y, w in zip(a, np.asarray(q), np.asarray(z), strict=True):
      np.testing.assert_allclose(_projector(y), _projector(scipy.linalg.orth(x)), atol=1e-13)
      np.testing.assert_allclose(
          _projector(w), _projector(scipy.linalg.null_space(x)), atol=1e-13)
  for shape in ((3, 0), (2, 0, 3)):
    *batch, m, n = shape
    a = np.zeros(shape, dtype)
    assert linalg.scipy.orth(a).shape == (*batch, m, 0)
    np.testing.assert_array_equal(
        linalg.scipy.null_space(a), np.broadcast_to(np.eye(n), (*batch, n, n)))


def test_size_of_spaces(rng):
  """Zeros follow the basis, also in a batch of several ranks. Without a size, the error says so."""
  a = np.stack([_of_rank(rng, rank, 4, 5, np.float64) for rank in (1, 2, 3)])
  a[1, 0, 0] = np.nan
  q, z = map(np.asarray, jax.jit(lambda a: (
      linalg.scipy.orth(a, size=2),
      jax.vmap(lambda a: linalg.scipy.null_space(a, size=6))(a)))(a))
  assert np.isnan(q[1]).all() and np.isnan(z[1]).all()
  np.testing.assert_array_equal(q[0, :, 1], 0)
  for i, rank in ((0, 1), (2, 3)):
    np.testing.assert_allclose(
        z[i].T @ z[i], np.diag(np.arange(6) < 5 - rank).astype(float), atol=1e-13)
    np.testing.assert_allclose(a[i] @ z[i], 0, atol=1e-13)
  assert linalg.scipy.orth(a[1:]).shape == (2, 4, 3)  # a matrix with NaN has no rank
  for function in (linalg.scipy.orth, linalg.scipy.null_space):
    with pytest.raises(ValueError, match=r"ranks, \[1, 3\].*`size`"):
      function(a)
    for traced in (jax.jit(function), jax.vmap(function)):
      with pytest.raises(TypeError, match="Pass it as `size`"):
        traced(a)


@pytest.mark.extended
@cases.each_double
def test_derivatives_of_spaces(dtype, rng):
  """Functions of the space, at constant rank and at equal singular values."""
  def spaces(x, y):
    a = x @ y
    return tuple(map(_projector, (
        linalg.scipy.orth(a, size=2), linalg.scipy.null_space(a, size=1))))

  derivatives.check(
      spaces, (matrices.general(rng, (), 4, 2, dtype), matrices.general(rng, (), 2, 3, dtype)),
      rng, tolerance=1e-7)
  equal = matrices.with_singular_values(rng, np.ones(2), 4, 2, dtype)
  derivatives.check(
      lambda a: _projector(linalg.scipy.orth(a, size=2)), (equal,), rng, tolerance=1e-7)


@pytest.mark.extended
def test_equations_without_a_unique_solution(rng):
  """Only the matrix whose eigenvalues meet has NaN, and `checked` names it."""
  a = matrices.general(rng, (3,), 4, 4, np.float64) / 8
  c = matrices.general(rng, (3,), 4, 4, np.float64)
  continuous, discrete, both = (np.array(a) for _ in range(3))
  continuous[1] = np.diag([1.0, 2, -1, 3])
  discrete[1] = np.diag([2.0, 0.5, 3, 4])
  both[1] = -a[1].T
  for function, operands, clean in (
      (linalg.scipy.solve_continuous_lyapunov, (continuous, c), (a, c)),
      (linalg.scipy.solve_discrete_lyapunov, (discrete, c), (a, c)),
      (linalg.scipy.solve_sylvester, (a, both, c), (a, a, c))):
    compiled = quick_jit(function)
    found = np.asarray(compiled(*operands))
    assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(found[::2], np.asarray(compiled(*clean))[::2])
    message = rf"{function.__name__}: the matrix at index \(1\) has no unique solution"
    with pytest.raises(linalg.LinAlgError, match=message):
      linalg.checked(function)(*operands)


@pytest.mark.extended
@cases.each_double
def test_derivatives_of_equations_at_defective_matrices(dtype, rng):
  a = np.diag(np.full(2, 0.5), 0) + np.eye(2, k=1)
  x = matrices.general(rng, (), 2, 2, dtype)
  a = (np.linalg.solve(x, a @ x)).astype(dtype)
  c = matrices.general(rng, (), 2, 2, dtype)
  derivatives.check(
      lambda a, c: (
          linalg.scipy.solve_sylvester(a, a, c), linalg.scipy.solve_discrete_lyapunov(a, c)),
      (a, c), rng, tolerance=1e-7)


@cases.each_double
def test_toeplitz(dtype, rng):
  """Vectors, Hermitian matrices from a column, batches that broadcast, and rectangular matrices."""
  def random(*shape):
    return matrices.general(rng, shape[:-1], 1, shape[-1], dtype)[..., 0, :]

  for n in (1, 2, 9, 40):
    c, r = random(2, 1, n), random(n)
    c[..., 0] = 4 * n
    b = matrices.general(rng, (3,), n, 2, dtype)
    x = np.asarray(linalg.scipy.solve_toeplitz((c, r), b))
    y = np.asarray(linalg.scipy.matmul_toeplitz((c, r), x))
    assert x.shape == y.shape == (2, 3, n, 2) and x.dtype == y.dtype == dtype
    np.testing.assert_allclose(y, np.broadcast_to(b, y.shape), rtol=0, atol=1e-13)
    for i, j in np.ndindex(2, 3):
      np.testing.assert_allclose(
          x[i, j], scipy.linalg.solve_toeplitz((c[i, 0], r), b[j]), rtol=0, atol=1e-13)
    column, vector = c[0, 0], b[0, :, 0]
    np.testing.assert_allclose(
        linalg.scipy.solve_toeplitz(column, vector),
        scipy.linalg.solve_toeplitz(column, vector), rtol=0, atol=1e-13)
  for m, n in ((5, 3), (3, 8), (1, 4), (4, 1)):
    c, r, x = random(m), random(n), random(n)
    np.testing.assert_allclose(
        linalg.scipy.matmul_toeplitz((c, r), x), scipy.linalg.toeplitz(c, r) @ x, atol=1e-13)
  np.testing.assert_array_equal(
      linalg.scipy.matmul_toeplitz((random(2, 3), random(0)), np.zeros((0, 4), dtype)),
      np.zeros((2, 3, 4)))


def test_singular_toeplitz(rng):
  """Only a matrix with a leading minor of 0 has NaN; `checked` names it. Wrong shapes fail."""
  c = rng.standard_normal((4, 3)) + [4, 0, 0]
  r = rng.standard_normal((4, 3))
  b = rng.standard_normal((4, 3, 1))
  clean = np.asarray(linalg.scipy.solve_toeplitz((c, r), b))
  c[1, 0] = 0
  c[2, :2], r[2, 1] = 1, 1
  found = np.asarray(linalg.scipy.solve_toeplitz((c, r), b))
  assert np.isnan(found[1:3]).all()
  np.testing.assert_array_equal(found[[0, 3]], clean[[0, 3]])
  with pytest.raises(scipy.linalg.LinAlgError):
    scipy.linalg.solve_toeplitz((c[2], r[2]), b[2])
  message = r"solve_toeplitz: the matrix at index \(1\) has a leading minor of 0"
  with pytest.raises(linalg.LinAlgError, match=message):
    linalg.checked(lambda *x: linalg.scipy.solve_toeplitz(x[:2], x[2]))(c, r, b)
  for function, operand in (
      (linalg.scipy.solve_toeplitz, "b"), (linalg.scipy.matmul_toeplitz, "x")):
    for shape in ((2,), (5, 3, 1)):
      right = np.ones(shape)
      message = rf"{function.__name__}\(\): c \(4, 3\), r \(4, 3\) and {operand} "
      with pytest.raises(ValueError, match=message):
        function((c, r), right)
  with pytest.raises(ValueError, match=r"a pair \(c, r\), got a tuple of 3"):
    linalg.scipy.solve_toeplitz((c, r, c), b)  # pyright: ignore[reportArgumentType]
