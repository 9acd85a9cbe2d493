"""The additions of linalg.scipy to jax.scipy.linalg, at degenerate points and where they fail."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.linalg
from jax.sharding import PartitionSpec as P

import cases
import derivatives
import linalg.scipy
import matrices
import selection
from quick import quick_compile, quick_jit
from sharded import KINDS, make_mesh, no_collectives, place


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


def test_logarithms_and_powers(rng):
  """A batch of different kinds against SciPy. A whole power keeps the dtype of the matrix."""
  a = np.stack([
      matrices.general(rng, (), 4, 4, np.float64), np.eye(4), 1e6 * np.eye(4) + np.eye(4, k=1),
      np.diag([1e-9, 1, 1e9, 2]) + 0.1 * np.eye(4, k=2), -np.eye(4),
      np.eye(4) - 1e-9 * np.eye(4, k=1),
      # Nearly triangular, which balancing would spoil.
      np.eye(4) + np.eye(4, k=1) + 1e-16 * np.eye(4, k=-1)])
  functions = quick_jit(lambda a: (
      linalg.scipy.logm(a), linalg.scipy.fractional_matrix_power(a, -1.6)))
  log, power = functions(a)
  for one, x, y in zip(a, log, power, strict=True):
    expected = scipy.linalg.logm(one)
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-13 * np.max(np.abs(expected)))
    expected = scipy.linalg.fractional_matrix_power(one, -1.6)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-12 * np.max(np.abs(expected)))
  cubes = quick_jit(lambda a: (
      linalg.scipy.fractional_matrix_power(a, 3.0), linalg.matrix_power(a, 3)))
  np.testing.assert_array_equal(*cubes(a))
  a[1], a[2] = np.ones((4, 4)), np.nan
  found, _ = functions(a)
  np.testing.assert_array_equal(np.isnan(found).all((1, 2)), [False, True, True] + 4 * [False])
  np.testing.assert_array_equal(np.asarray(found)[3:], np.asarray(log)[3:])
  with pytest.raises(linalg.LinAlgError, match=r"logm: the matrix at index \(1\) has no logarithm"):
    linalg.checked(linalg.scipy.logm)(a[:2])


@pytest.mark.extended
@cases.each_dtype(np.float64, np.float32)
def test_logarithms_and_powers_of_small_jordan_blocks(dtype):
  """Results are exact to rounding for tiny to large eigenvalues, and for two blocks in one
  matrix."""
  x = np.array(
      [1e-2, 1e-4, 1e-8, 1e-30, 1e-200, 1e200] if dtype == np.float64 else [1e-2, 1e-8, 1e-30])
  x = x.astype(dtype)
  a = np.kron(np.diag([1, 2]), np.eye(2)) * x[:, None, None] + np.kron(np.eye(2), np.eye(2, k=1))
  log, root, power = jax.jit(lambda a: (
      linalg.scipy.logm(a), linalg.scipy.fractional_matrix_power(a, 0.25),
      linalg.scipy.fractional_matrix_power(a, 1.5)))(a.astype(dtype))
  tolerance = 200 * np.finfo(dtype).eps
  for i, w in ((0, x.astype(np.float64)), (2, 2 * x.astype(np.float64))):
    for found, value, slope in (
        (log, np.log(w), 1 / w), (root, w**0.25, 0.25 * w**-0.75), (power, w**1.5, 1.5 * w**0.5)):
      kept = (abs(value) < np.finfo(dtype).max) & (abs(value) > np.finfo(dtype).tiny)
      for j in (i, i + 1):
        np.testing.assert_allclose(found[kept, j, j], value[kept], rtol=tolerance)
      np.testing.assert_allclose(found[kept, i, i + 1], slope[kept], rtol=tolerance)
  assert not np.asarray(log)[:, :2, 2:].any()


def test_exponents():
  """An exponent that is not a finite real number raises an error that names the exponent."""
  a = 4 * np.eye(2)
  power = linalg.scipy.fractional_matrix_power
  for t in (np.inf, -np.inf, np.nan, np.float32(np.inf)):
    with pytest.raises(ValueError, match="_power: t must be finite, got"):
      power(a, t)
  wrong = "fractional_matrix_power: t must be a real number, got <class"
  for t in (0.5j, np.complex128(0.5), "0.5", "x", None):
    with pytest.raises(TypeError, match=wrong):
      power(a, t)  # pyright: ignore[reportArgumentType]
  with pytest.raises(TypeError, match=r"fractional_matrix_power\(\) takes t as an option"):
    jax.jit(power)(a, 0.5)
  for t in (2, np.int64(2), 2.0, True):
    np.testing.assert_array_equal(power(a, t), 4.0 ** int(t) * np.eye(2))


@pytest.mark.extended
@cases.each_double
def test_derivatives_of_logarithms(dtype, rng):
  """The points are a defective matrix and the identity. The third derivative is refused."""
  points = [(x.astype(dtype),) for x in (2 * np.eye(2) + np.eye(2, k=1), np.eye(2))]
  derivatives.check_at_each(linalg.scipy.logm, points, rng, tolerance=1e-7)
  third = jax.grad(jax.grad(jax.grad(lambda x: linalg.scipy.logm(x * jnp.eye(1)).real[0, 0])))
  with pytest.raises(NotImplementedError, match="logm has derivatives of first and second order"):
    third(1.0)


# Functions of numbers, and another way to compute them for a matrix.
FUNCTIONS = {
    "exp": (jnp.exp, scipy.linalg.expm), "log": (jnp.log, scipy.linalg.logm),
    "inverse": (lambda x: 1 / x, np.linalg.inv), "cube": (lambda x: x**3, lambda a: a @ a @ a),
    # SciPy's exponential of a complex triangle divides by differences of its eigenvalues.
    "sine": (lambda x: jnp.sin(3 * x), lambda a: np.asarray(linalg.expm(3j * a)).imag)}


def _with_jordan_blocks(rng, *blocks):
  """X J X⁻¹ with blocks of (eigenvalue, size)."""
  jordan = scipy.linalg.block_diag(*(w * np.eye(n) + np.eye(n, k=1) for w, n in blocks))
  x = matrices.well_conditioned(rng, (), len(jordan), np.float64)
  return x @ jordan @ np.linalg.inv(x)


@selection.extended_for("exp", "log", "inverse", "sine")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, rng):
  """Separate, equal, nearly equal and scattered eigenvalues, with and without Jordan blocks."""
  f, expected = FUNCTIONS[name]
  near = 2 + np.array([0, 1e-12, 1e-8, 1e-4, 1e-2])
  a = np.stack([
      np.eye(5), 2 * np.eye(5) + np.eye(5, k=1), np.diag(near) + np.eye(5, k=1),
      np.diag(near) + np.triu(matrices.general(rng, (), 5, 5, np.float64), 1),
      np.diag([1e-3, 1e-3, 1, 1, 8]) + 1e-3 * np.eye(5, k=1),
      _with_jordan_blocks(rng, (1, 2), (3, 2), (1, 1)),
      3 * np.eye(5) + matrices.general(rng, (), 5, 5, np.float64) / 2])
  found, error = quick_jit(lambda a: linalg.scipy.funm(a, f, disp=False))(a)
  for i, (x, y) in enumerate(zip(a, found, strict=True)):
    size = np.max(np.abs(expected(x)))
    # An ill-conditioned similarity moves equal eigenvalues by the root of its rounding.
    np.testing.assert_allclose(y, expected(x), rtol=0, atol=1e-12 * size, err_msg=str(i))
  assert np.all(error < 1e-11)


def _with_signs(rng):
  """Two matrices with separate and with equal eigenvalues, and their sign."""
  x = matrices.well_conditioned(rng, (), 4, np.float64)
  inverse, signs = np.linalg.inv(x), np.array([1.0, -1, 1, -1])
  a = np.stack([x * values @ inverse for values in (signs * [1, 2, 3, 4], signs)])
  return a, x * signs @ inverse


@pytest.mark.extended
def test_functions_that_are_not_analytic(rng):
  """They work at separate eigenvalues, and at equal ones without a Jordan block. NumPy's do too."""
  a, expected = _with_signs(rng)
  for sign in (lambda z: jnp.sign(z.real), lambda z: np.sign(z.real)):
    np.testing.assert_allclose(linalg.scipy.funm(a, sign), np.stack(2 * [expected]), atol=1e-12)
  np.testing.assert_allclose(linalg.scipy.funm(a[0], jnp.sign), expected, atol=1e-12)
  np.testing.assert_array_equal(linalg.scipy.funm(-np.eye(3), jnp.log), 1j * np.pi * np.eye(3))


@pytest.mark.extended
def test_functions_at_jordan_blocks_where_they_are_not_analytic(rng):
  """The matrix has NaN, for itself alone, and an infinite estimate of the error."""
  a, _ = _with_signs(rng)
  defective = -np.eye(4) + np.eye(4, k=1)
  function = quick_jit(lambda a: linalg.scipy.funm(a, jnp.log, disp=False))
  found, error = function(np.stack([a[0], defective, a[1]]))
  np.testing.assert_array_equal(np.isnan(found).all((1, 2)), [False, True, False])
  np.testing.assert_array_equal(np.isinf(error), [False, True, False])
  same, _ = function(np.stack([a[0], a[0], a[1]]))
  np.testing.assert_array_equal(np.asarray(found)[::2], np.asarray(same)[::2])
  with pytest.raises(linalg.LinAlgError, match=r"funm: the matrix at index \(1\) has no such func"):
    linalg.checked(lambda a: linalg.scipy.funm(a, jnp.log))(np.stack([a[0], defective]))


@pytest.mark.extended
def test_estimated_errors(rng):
  """Within some powers of ten they are the errors, which grow with chains of close eigenvalues."""
  full = np.triu(matrices.general(rng, (), 24, 24, np.float64), 1)
  a = np.stack([
      scale * (np.diag(w) + off) for scale in (1, 1e-150) for w, off in (
          (np.arange(1.0, 25), full), (np.full(24, 2.0), np.eye(24, k=1)),
          (np.full(24, 2.0), full / 4), (2 + 1e-12 * np.arange(24), full / 4),
          (2 + 1e-3 * np.arange(24), np.eye(24, k=1)), (np.full(24, 4.0), np.eye(24, k=1)))])
  function = quick_jit(lambda a: linalg.scipy.funm(a, jnp.log, disp=False))
  found, estimate = function(a)
  expected = np.asarray(linalg.scipy.logm(a))
  norm = lambda x: np.abs(x).sum(-2).max(-1)
  error = norm(found - expected) / norm(expected)
  assert np.all(error < 5 * np.asarray(estimate)), (error, estimate)
  assert np.all(np.asarray(estimate) < 1e3 * error + 1e-13), (error, estimate)
  assert np.max(error) > 1e-11


@pytest.mark.extended
@cases.each_dtype(np.float32, np.float64, np.complex64)
def test_estimated_errors_beside_a_pole(dtype, rng):
  """Rounding a matrix or its contour nodes costs digits, which the estimate must count."""
  dtype = np.dtype(dtype)
  n, small = 4, dtype.type(2) ** (-48 if np.finfo(dtype).bits == 32 else -400)
  q = np.asarray(jnp.linalg.qr(matrices.general(rng, (), n, n, dtype))[0])
  jordan = np.eye(n) + np.eye(n, k=1)
  cluster = np.diag(1 + 1e-4 * np.arange(n)) + np.triu(rng.normal(size=(n, n)), 1) / n
  kinds = np.stack([jordan, q @ jordan @ q.conj().T, cluster, q @ cluster @ q.conj().T])
  distances = np.array([1, 0.1, 0.01, 0.003, 1e-3])
  poles = np.exp(0.3j) * distances + 1
  a = np.concatenate([
      scale * np.repeat(kinds, len(poles), 0).astype(dtype) for scale in (dtype.type(1), small)])
  complex_type = np.result_type(dtype, np.complex64)
  p = np.tile(poles, len(kinds)).astype(complex_type)
  p = np.concatenate([p, p * small.real])
  inverse = jax.vmap(lambda a, p: linalg.scipy.funm(a, lambda x: 1 / (x - p), disp=False))
  found, estimate = (np.asarray(x) for x in quick_jit(inverse)(a, p))
  assert not np.isnan(estimate).any()
  with mpmath.workdps(50):
    for i in np.flatnonzero(estimate < 1):
      shifted = mpmath.matrix(a[i].tolist()) - mpmath.mpmathify(complex(p[i])) * mpmath.eye(n)
      expected = shifted**-1
      difference = mpmath.matrix(found[i].tolist()) - expected
      error = mpmath.mnorm(difference, 1) / mpmath.mnorm(expected, 1)
      assert error < 10 * estimate[i], (i, error, estimate[i])
  assert np.sum(estimate < 1e-3) > len(a) / 4


@pytest.mark.extended
def test_many_equal_eigenvalues(rng):
  """There are more eigenvalues than points on a circle."""
  a = np.stack([2 * np.eye(40) + np.triu(matrices.general(rng, (), 40, 40, np.float64), 1) / 4,
                2 * np.eye(40)])
  found, expected = (
      quick_jit(jax.vmap(jax.value_and_grad(lambda a, f=f: jnp.sum(f(a).real))))(a)
      for f in (lambda a: linalg.scipy.funm(a, jnp.exp), linalg.expm))
  for x, y in zip(found, expected, strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-11)


@pytest.mark.extended
@pytest.mark.parametrize(("dtype", "scale", "tolerance"), [
    (np.float32, 1e-4, 1e-5), (np.float64, 1e-8, 1e-13), (np.float64, 1e-20, 1e-13)])
def test_derivatives_of_small_matrices(dtype, scale, tolerance):
  """The function varies on a larger scale than the matrices have."""
  a = scale * np.array([[2, 1], [0, 2]], dtype)
  e = np.array([[0.3, 1], [0.5, -0.2]], dtype)

  def derivatives_of(f):
    along = lambda t: jnp.sum(f(a + t * e).real)
    first = jax.grad(along)
    return quick_jit(lambda t: (first(t), jax.grad(first)(t), jax.grad(jax.grad(first))(t)))(
        dtype(0))

  np.testing.assert_allclose(
      derivatives_of(lambda a: linalg.scipy.funm(a, jnp.exp)), derivatives_of(linalg.expm),
      rtol=tolerance)


@pytest.mark.extended
@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_functions_of_small_and_large_matrices(scale):
  a = scale * np.array([[2.0, 1, 3], [0, 2, 1], [0, 0, 5]])
  for f, expected in (
      (lambda x: x / 2, a / 2), (lambda x: 1 / x, np.linalg.inv(a / scale) / scale),
      (jnp.sqrt, np.asarray(linalg.sqrtm(a / scale)) * scale**0.5)):
    found, error = linalg.scipy.funm(a, f, disp=False)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=0)
    assert error < 1e-13


@pytest.mark.extended
@cases.each_double
def test_derivatives_of_functions(dtype, rng):
  """The points are defective matrices, the identity and a general matrix. The third derivative is
  tested too."""
  points = [(x.astype(dtype),) for x in (
      2 * np.eye(3) + np.eye(3, k=1), np.eye(3), np.diag([1, 1, 3]) + np.eye(3, k=2),
      3 * np.eye(3) + matrices.general(rng, (), 3, 3, np.float64) / 2)]
  derivatives.check_at_each(
      lambda a: linalg.scipy.funm(a, jnp.sqrt), points, rng, tolerance=1e-7)
  third = lambda f: jax.grad(jax.grad(jax.grad(
      lambda x: jnp.sum(f(x * jnp.eye(3) + points[0][0].real).real))))(0.3)
  np.testing.assert_allclose(
      third(lambda a: linalg.scipy.funm(a, jnp.exp)), third(linalg.expm), rtol=1e-9)


@pytest.mark.extended
def test_numbers_that_a_function_refers_to(rng):
  """Derivatives by the numbers and by the matrix are right in any order and mode, and under
  `vmap`."""
  a = np.array([[2.0, 1], [0, 2]])  # f(A) = [[f(2), f'(2)], [0, f(2)]]
  weights = np.array([0.5, 2.0])

  def corner(a, p, c):
    q, c0, c1 = jnp.array([p, *c]).astype(complex)
    return linalg.scipy.funm(a, lambda x: c0 * x**q + c1 * jnp.exp(c0 * x)).real[0, 1]

  def expected(a, p, c):
    # The corner for a triangle with one eigenvalue, x = a₀₀ = a₁₁.
    x = (a[0, 0] + a[1, 1]) / 2
    return a[0, 1] * (c[0] * p * x ** (p - 1) + c[1] * c[0] * jnp.exp(c[0] * x))

  operands = (a, 3.0, weights)
  np.testing.assert_allclose(corner(*operands), expected(*operands), rtol=1e-13)
  for wanted in (1, 2, (1, 2)):
    for derivative in (jax.grad, jax.jacfwd, jax.hessian):
      found, right = (
          quick_jit(derivative(f, wanted))(*operands) for f in (corner, expected))
      for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-11)
  mixed = lambda f: jax.grad(lambda t: jax.grad(f, 1)(a + t * np.eye(2), 3.0, weights))(0.0)
  np.testing.assert_allclose(mixed(corner), mixed(expected), rtol=1e-11)
  other = lambda f: jax.grad(lambda p: jax.grad(
      lambda t: f(a + t * np.eye(2), p, weights))(0.0))(3.0)
  np.testing.assert_allclose(other(corner), other(expected), rtol=1e-11)
  powers = jnp.arange(1.0, 4)
  for f in (corner, jax.grad(corner, 1)):
    mapped = quick_jit(jax.vmap(f, (None, 0, None)))(a, powers, weights)
    np.testing.assert_allclose(mapped, [f(a, p, weights) for p in powers], rtol=1e-13)


# A function, the numbers it refers to, and the derivatives by them of the corner of f(A) for
# A = [[2, 1], [0, 2]]. The corner is f'(2).
REFERENCES = {
    "cancelling powers": (lambda x, p: x ** (p[0] - p[1]), np.ones(2), [0.5, -0.5]),
    "cancelling roots": (
        lambda x, p: p[0] * jnp.sqrt(x) + p[1] * (1 - jnp.sqrt(x)), np.ones(2),
        [8**-0.5, -(8**-0.5)]),
    "a function that is 0": (
        lambda x, p: jnp.log(x + p[0]) - jnp.log(x + p[1]), np.zeros(2), [-0.25, 0.25]),
    "large and small parts": (
        lambda x, p: 1e14 * x * p[0] + jnp.log(x) * p[1] + x**2, np.zeros(2), [1e14, 0.5]),
    "many": (lambda x, p: jnp.log(x) * jnp.sum(p) + x**2, np.zeros(7), np.full(7, 0.5)),
    "an imaginary part": (lambda x, p: x**2 + jnp.log(x) * p.imag, 3 + 0j, -0.5j),
    "a modulus": (lambda x, p: x * jnp.abs(p), 3 + 4j, 0.6 - 0.8j),
    "a conjugate": (lambda x, p: x**2 * jnp.conj(p), 3 + 4j, 4.0),
    "a product": (lambda x, p: x**2 * p, 3 + 4j, 4.0)}


@selection.one_in(2)
@selection.extended_for(
    "cancelling roots", "large and small parts", "an imaginary part", "a conjugate", "a product")
@pytest.mark.parametrize("name", REFERENCES)
def test_gradients_by_what_a_function_refers_to(name):
  f, p, expected = REFERENCES[name]

  def corner(p):
    p = jnp.asarray(p)
    with jax.numpy_dtype_promotion("standard"):
      return linalg.scipy.funm(np.array([[2.0, 1], [0, 2]]), lambda x: f(x, p)).real[0, 1]

  np.testing.assert_allclose(quick_jit(jax.grad(corner))(p), expected, rtol=1e-13)


@pytest.mark.extended
@selection.extended_for("Auto")
@KINDS
def test_what_a_function_refers_to_beside_sharded_matrices(kind, rng):
  """An array and a traced number. Only the slope of the number needs a collective, for its sum."""
  mesh = make_mesh(kind=kind)
  a = matrices.general(rng, (16,), 3, 3, np.float64)
  (placed,) = place((a,), mesh, "x")
  factors = np.arange(2.0, 4)
  function = lambda a, p: linalg.scipy.funm(a, lambda x: factors.astype(complex)[1] * x * p)
  compiled = quick_compile(function, (placed, 2.0 + 0j))
  no_collectives(compiled.as_text())
  np.testing.assert_allclose(compiled(placed, 2.0 + 0j), 6 * a, atol=1e-12)
  slope = jax.grad(lambda p, a: jnp.sum(function(a, p).real), holomorphic=False)
  np.testing.assert_allclose(quick_jit(slope)(2.0 + 0j, placed), 3 * a.sum(), rtol=1e-12)


def test_functions_under_shard_map(rng):
  """The function has a loop, and each shard has its own number."""
  a = matrices.general(rng, (16,), 3, 3, np.float64)
  numbers = np.arange(8.0)

  def function(a, p):
    p = p.astype(complex)[0]
    return linalg.scipy.funm(a, lambda x: jax.lax.fori_loop(0, 2, lambda i, y: y * x, x) + p)

  mapped = quick_jit(jax.shard_map(
      function, mesh=make_mesh(), in_specs=(P("x"), P("x")), out_specs=P("x")))
  expected = a @ a @ a + np.repeat(numbers, 2)[:, None, None] * np.eye(3)
  np.testing.assert_allclose(mapped(a, numbers), expected, atol=1e-11)


def test_functions_that_change():
  """A function that is called again is read again."""
  factor = 1.0
  f = lambda x: factor * x
  assert linalg.scipy.funm(np.eye(2), f)[0, 0] == 1
  factor = 3.0
  assert linalg.scipy.funm(np.eye(2), f)[0, 0] == 3


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


def _indefinite(rng, n, dtype, hermitian):
  """Five matrices: random, with a zero diagonal, diagonal, zero, and of rank one."""
  a = matrices.general(rng, (5,), n, n, dtype)
  a = a + np.swapaxes(a.conj() if hermitian else a, -1, -2)
  a[1][np.diag_indices(n)] = 0
  a[2] = np.diag(np.arange(n))
  a[3] = 0
  x = 2.0 ** np.arange(n)  # powers of two, so that no pivot is a rounding error
  a[4] = np.outer(x, x)
  return a


@cases.each_double
def test_ldl(dtype, rng):
  """The factors and pivots are SciPy's. One triangle is read. NaN stays in its matrix."""
  for n, hermitian, lower in (
      (2, True, True), (7, True, True), (7, True, False), (7, False, True), (7, False, False)):
    a = _indefinite(rng, n, dtype, hermitian)
    unread = np.tri(n, k=-1, dtype=bool)
    given = np.where(unread.T if lower else unread, np.nan, a)
    l, d, order = map(
        np.asarray, linalg.scipy.ldl(given, lower=lower, hermitian=hermitian))
    for one, *found in zip(a, l, d, order, strict=True):
      expected = scipy.linalg.ldl(one, lower=lower, hermitian=hermitian)
      for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-12)
    turned = np.swapaxes(l.conj() if hermitian else l, -1, -2)
    np.testing.assert_allclose(l @ d @ turned, a, rtol=0, atol=1e-12)
  swap = linalg.scipy.ldl(np.array([[0, 1], [1, 0]], dtype))
  for x, y in zip(swap, (np.eye(2), np.eye(2)[::-1], np.arange(2)), strict=True):
    np.testing.assert_array_equal(x, y)
  a[0, 3, 3] = np.inf
  again = linalg.scipy.ldl(a, lower=lower, hermitian=hermitian)
  assert np.isnan(again[0][0]).all() and np.isnan(again[1][0]).all()
  for x, y in zip(again, (l, d, order), strict=True):
    np.testing.assert_array_equal(x[1:], y[1:])
  with pytest.raises(linalg.LinAlgError, match=r"ldl: the matrix at index \(0\) has no factors"):
    linalg.checked(linalg.scipy.ldl)(a)


@cases.each_dtype(np.complex128, np.float32)
def test_ldl_keeps_small_blocks_beside_large_ones(dtype):
  """Pivots of both orders keep their digits at both ends of the range."""
  x = 1e20 if dtype == np.float32 else 1e200
  swap = np.array([[0, 1], [1, 0]])
  a = np.stack([
      np.diag([x, -1 / x, 1, -x]), scipy.linalg.block_diag(x * swap, swap / x),
      scipy.linalg.block_diag(x, swap / x, -1), np.finfo(dtype).max / 4 * np.eye(4)]).astype(dtype)
  l, d, _ = linalg.scipy.ldl(a)
  np.testing.assert_array_equal(l, np.broadcast_to(np.eye(4), l.shape))
  np.testing.assert_array_equal(d, a)
  # The Schur complement of the second pivot is -3 y.
  for y in (x, 1 / x):
    b = y * np.array([[0, 1, 1], [1, 0, 1], [1, 1, -1]])
    l, d, _ = linalg.scipy.ldl(b.astype(dtype))
    np.testing.assert_array_equal(l, [[1, 0, 0], [0, 1, 0], [1, 1, 1]])
    np.testing.assert_allclose(np.diagonal(d), [0, 0, -3 * y], rtol=1e-6)


@cases.each_dtype(np.complex128, np.complex64, np.float64, np.float32)
@pytest.mark.parametrize("n", [33, pytest.param(130, marks=pytest.mark.extended)])
def test_ldl_of_larger_matrices(n, dtype, rng):
  """The residual is small and the pivots are SciPy's, for Hermitian and symmetric matrices."""
  for hermitian in (True, False) if np.issubdtype(dtype, np.complexfloating) else (True,):
    turned = lambda x, hermitian=hermitian: np.swapaxes(x.conj() if hermitian else x, -1, -2)
    a = matrices.general(rng, (2,), n, n, dtype)
    a = a + turned(a)
    l, d, order = linalg.scipy.ldl(a, hermitian=hermitian)
    l, d = (np.asarray(x).astype(np.result_type(dtype, np.float64)) for x in (l, d))
    error = np.max(np.abs(l @ d @ turned(l) - a)) / np.max(np.abs(a))
    assert error < 3 * n * np.finfo(dtype).eps
    np.testing.assert_array_equal(order[0], scipy.linalg.ldl(a[0], hermitian=hermitian)[2])


@pytest.mark.extended
@cases.each_double
def test_derivatives_of_ldl(dtype, rng):
  """The matrices have pivots of order 2, either triangle, or are complex symmetric."""
  for hermitian, lower in ((True, True), (True, False), (False, True)):
    a = _indefinite(rng, 4, dtype, hermitian)[1]
    derivatives.check(
        lambda a, lower=lower, hermitian=hermitian: linalg.scipy.ldl(
            a, lower=lower, hermitian=hermitian)[:2], (a,), rng, tolerance=1e-6)


CONTINUOUS = (linalg.scipy.solve_continuous_are, scipy.linalg.solve_continuous_are)
DISCRETE = (linalg.scipy.solve_discrete_are, scipy.linalg.solve_discrete_are)


@pytest.mark.parametrize(
    "pair", [CONTINUOUS, pytest.param(DISCRETE, marks=pytest.mark.extended)],
    ids=["continuous", "discrete"])
def test_riccati(pair, rng):
  """Regulators of integrators and of an unstable system without costs; also E and S."""
  ours, theirs = quick_jit(pair[0]), pair[1]
  chain = np.eye(3, k=1) + (0 if pair is CONTINUOUS else np.eye(3))
  last = np.eye(3)[:, 2:]
  unstable = np.diag([2.0, 1.5, 0.5])
  zero, eye = np.zeros((3, 3)), np.eye(3)
  operands = [np.stack(x) for x in zip(
      (chain, last, eye, eye[:1, :1]), (chain, last, 1e-6 * eye, 1e2 * eye[:1, :1]),
      (unstable, np.ones((3, 1)), zero, eye[:1, :1]), strict=True)]
  for found, *one in zip(ours(*operands), *operands, strict=True):
    expected = theirs(*one)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.max(np.abs(expected)))
  e = eye + 0.3 * matrices.general(rng, (), 3, 3, np.float64)
  s = 0.1 * matrices.general(rng, (), 3, 1, np.float64)
  one = (chain, last, eye, eye[:1, :1], e, s)
  np.testing.assert_allclose(ours(*one), theirs(*one), rtol=1e-9, atol=1e-9)
  # Batches broadcast, and the Hermitian parts are taken.
  np.testing.assert_allclose(
      ours(operands[0], last, eye + np.triu(np.ones((3, 3)), 1), eye[:1, :1])[0],
      theirs(chain, last, (eye + np.ones((3, 3))) / 2, eye[:1, :1]), rtol=1e-9)


@cases.each_dtype(np.float32, np.float64)
def test_riccati_of_strongly_unstable_systems(dtype):
  """The balanced pencil keeps digits that inverses of R and of M + L would lose."""
  rng = np.random.default_rng(5)
  scales = np.array([1.0, 10.0, 100.0])
  a = scales[:, None, None] * rng.standard_normal((3, 4, 4))
  b = rng.standard_normal((3, 4, 2))
  q, r = scales[:, None, None] * np.eye(4), np.eye(2) / scales[:, None, None]
  operands = [x.astype(dtype) for x in (a, b, q, r)]
  found = np.asarray(quick_jit(DISCRETE[0])(*operands), np.float64)
  # SciPy in float64 loses 4, 6 and 8 digits itself.
  bounds = ([2e-6, 1e-2, 0.2] if dtype == np.float32 else [1e-13, 3e-11, 1e-7])
  for x, bound, *one in zip(found, bounds, *operands, strict=True):
    expected = DISCRETE[1](*(y.astype(np.float64) for y in one))
    np.testing.assert_allclose(x, expected, rtol=0, atol=bound * np.abs(expected).max())


@pytest.mark.extended
def test_discrete_riccati_of_singular_weights():
  """Values are right at R = 0 and R of rank one, and so is the derivative by R against a
  difference."""
  a, b = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 0.5]])
  solve = quick_jit(lambda r: jax.jvp(
      lambda r: DISCRETE[0](a, b, jnp.eye(2), r), (r,), (jnp.eye(2),)))
  for r in (np.zeros((2, 2)), np.diag([1.0, 0.0])):
    x, dx = solve(r)
    np.testing.assert_allclose(x, DISCRETE[1](a, b, np.eye(2), r), rtol=1e-13, atol=1e-13)
    step = 1e-5
    above, below = (DISCRETE[1](a, b, np.eye(2), r + t * np.eye(2)) for t in (step, -step))
    np.testing.assert_allclose(dx, (above - below) / (2 * step), rtol=0, atol=1e-8)


@pytest.mark.extended
def test_continuous_riccati_with_few_inputs():
  """|X| is 10⁷ to 10⁹. The residual is no larger than SciPy's, which is 10⁻⁷ to 10⁻⁵."""
  for seed in (0, 1):
    rng = np.random.default_rng(seed)
    rng.standard_normal((33, 33)), rng.standard_normal((33, 3))
    a, b = 1.5 * rng.standard_normal((65, 65)) / 65**0.5, rng.standard_normal((65, 3))
    found = np.asarray(quick_jit(CONTINUOUS[0])(a, b, np.eye(65), np.eye(3)))
    expected = CONTINUOUS[1](a, b, np.eye(65), np.eye(3))
    residual = lambda x, a=a, b=b: np.abs(a.T @ x + x @ a - x @ b @ b.T @ x + np.eye(65)).max()
    assert residual(found) < 3 * residual(expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.extended
def test_riccati_equations_without_a_solution():
  """Systems that no input reaches or that lie on the boundary have NaN; `checked` names them."""
  one = np.ones((1, 1))
  b = np.array([1.0, 0.0, 0.0, 1.0, 1.0, 1.0])[:, None, None]
  q = np.array([1.0, 0.0, 1.0, 1.0, 2.0, 0.0])[:, None, None]
  for ours, theirs in (CONTINUOUS, DISCRETE):
    # The last is on the boundary: an integrator without costs, continuous or discrete.
    on_boundary = 0.0 if ours is CONTINUOUS[0] else 1.0
    a = np.array([0.5, 1.0, 2.0, np.nan, 0.5, on_boundary])[:, None, None]
    found = quick_jit(ours)(a, b, q, one)
    np.testing.assert_array_equal(
        np.isnan(found[:, 0, 0]), [False, True, True, True, False, True])
    for i in (0, 4):
      np.testing.assert_allclose(found[i], theirs(a[i], b[i], q[i], one), rtol=1e-13)
    with pytest.raises(linalg.LinAlgError, match=rf"{ours.__name__}: the matrix at index \(2\)"):
      linalg.checked(ours)(a[[0, 0, 2]], b[[0, 0, 2]], q[[0, 0, 2]], one)
  with pytest.raises(ValueError, match=r"shapes.*solve_continuous_are\(\): a \(1, 1\), b \(2, 1\)"):
    CONTINUOUS[0](one, np.ones((2, 1)), one, one)


@pytest.mark.extended
def test_derivatives_of_riccati(rng):
  """Derivatives are right to second order for a discrete equation with S whose closed loop is
  defective."""
  a = np.eye(2, k=1) + 0.5 * np.eye(2)
  b = np.array([[0.0], [1.0]])
  derivatives.check(
      lambda a, b, c, s: linalg.scipy.solve_discrete_are(
          a, b, c @ c.mT, jnp.ones((*b.shape[:-2], 1, 1)), None, s),
      (a, b, np.zeros((2, 1)), np.zeros((2, 1))), rng, tolerance=1e-7)
