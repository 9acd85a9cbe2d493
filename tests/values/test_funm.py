"""Functions of general matrices: values, estimates of the error, and derivatives."""

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
