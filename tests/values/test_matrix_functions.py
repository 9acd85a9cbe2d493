"""Functions of matrices at degenerate spectra, in mixed batches, and where they fail."""

import re

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.linalg

import cases
import derivatives
import linalg
import matrices
from quick import quick_jit

SPECTRA = ([1.0, 2, 3, 4], [1.0, 1, 2, 2], [1.0, 1, 1, 1], [1, 1 + 1e-9, 1 + 1e-5, 2],
           [1, 1.001, 1.01, 2])


@cases.each_double
def test_funm_hermitian(dtype, rng):
  """Derivatives to second order are right at distinct, nearly equal and equal eigenvalues."""
  derivatives.check_at_each(
      lambda a: (linalg.funm_hermitian(a, jnp.exp), linalg.inverse_pth_root(a, 4)),
      [(matrices.with_eigenvalues(rng, np.array(spectrum), dtype),) for spectrum in SPECTRA], rng,
      tolerance=1e-7)


def test_funm_hermitian_complex_function(rng):
  """exp(iA) is a complex function of a real matrix."""
  a = matrices.hermitian(rng, (3,), 5, np.float64)
  u = linalg.funm_hermitian(a, lambda w: jax.lax.complex(jnp.cos(w), jnp.sin(w)))
  np.testing.assert_allclose(u, linalg.expm(1j * a), atol=1e-13)


def test_inverse_pth_root_with_ridge(rng):
  """Semidefinite matrices have a root once the diagonal is raised, and otherwise NaN."""
  a = matrices.with_eigenvalues(rng, np.array([0.0, 0, 1, 2]), np.float64) - 1e-12 * np.eye(4)
  root = linalg.inverse_pth_root(a, 2, ridge_epsilon=1e-2)
  np.testing.assert_allclose(root @ root @ (a + 0.02 * np.eye(4)), np.eye(4), atol=1e-9)
  assert np.isnan(linalg.inverse_pth_root(a, 2)).all()


@cases.each_double
@pytest.mark.parametrize("shape", [
    (5, 3), *(pytest.param(x, marks=pytest.mark.extended) for x in ((3, 3), (3, 5)))], ids=str)
def test_polar_at_equal_singular_values(shape, dtype, rng):
  """The polar factors on both sides are right, and so are their derivatives."""
  sides = ("right", "left")
  function = lambda a: [linalg.polar(a, side) for side in sides]
  a = matrices.with_singular_values(rng, np.array([2.0, 2, 1]), *shape, dtype)
  for found, side in zip(quick_jit(function)(a), sides, strict=True):
    for x, expected in zip(found, scipy.linalg.polar(a, side), strict=True):
      np.testing.assert_allclose(x, expected, atol=1e-13)
  derivatives.check(function, (a,), rng, tolerance=1e-7)


@cases.each_double
def test_expm(dtype, rng):
  """Each matrix of a batch is scaled by its own norm; the derivative is Fréchet's."""
  scales = np.array([1e-3, 0.1, 1, 10, 100])
  a = matrices.general(rng, (5,), 4, 4, dtype) * scales[:, None, None]
  direction = matrices.general(rng, (), 4, 4, dtype)
  values, slope, of_triangle = quick_jit(lambda a: (
      linalg.expm(a), jax.jvp(linalg.expm, (a[2],), (direction,))[1],
      linalg.expm(jnp.triu(a[2]), upper_triangular=True)))(a)
  for i, (x, y) in enumerate(zip(a, values, strict=True)):
    expected = scipy.linalg.expm(x)
    size = np.max(np.abs(expected))
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-14 * size * max(scales[i], 1) * 20)
  expected = scipy.linalg.expm_frechet(a[2], direction, compute_expm=False)
  np.testing.assert_allclose(slope, expected, rtol=0, atol=1e-14 * np.max(np.abs(expected)) * 20)
  np.testing.assert_allclose(of_triangle, scipy.linalg.expm(np.triu(a[2])), atol=1e-12)


def _exponential_and_derivative(a, e):
  """Returns both to 100 digits, from the exponential of [[A, E], [0, A]]."""
  n = len(a)
  with mpmath.workdps(100):
    result = mpmath.expm(mpmath.matrix(np.block([[a, e], [np.zeros_like(a), a]])), method="taylor")
    result = np.array(result.tolist(), complex)
  return result[:n, :n], result[:n, n:]


@pytest.mark.extended
def test_expm_of_matrices_with_smaller_powers(rng):
  """Values and derivatives are right where powers of A are far smaller than those of its norm.

  Nilpotent and triangular matrices are among them. Each result has the bits that it has alone.
  """
  nilpotent = 1e3 * np.triu(rng.standard_normal((4, 4)), 1)
  a = np.stack([
      *(np.array([[-0.05, -b, -c, d], [d, 0, 0, 0], [0, d, 0, 0], [0, 0, 0, 0]])
        for b, c, d in ((1e6, 1e12, 1e-6), (1e9, 1e19, 1e-12))),
      nilpotent, nilpotent + np.diag([1, -1, 0.5, -2]), 1e3 * np.eye(4, k=1) + np.eye(4, k=-3),
      np.kron([[0, 1e19], [1e-19, 0]], np.eye(2)), rng.standard_normal((4, 4))])
  direction = rng.standard_normal((4, 4))
  function = jax.jit(lambda a: jax.jvp(
      linalg.expm, (a,), (jnp.broadcast_to(direction, a.shape).astype(a.dtype),)))
  results = function(a)
  for i, one in enumerate(a):
    expected = _exponential_and_derivative(one, direction)
    for x, y, alone in zip(results, expected, function(a[i : i + 1]), strict=True):
      np.testing.assert_allclose(x[i], y, rtol=0, atol=2e-13 * np.max(np.abs(y)))
      np.testing.assert_array_equal(x[i], alone[0])
    np.testing.assert_allclose(results[0][i][0], expected[0][0], rtol=1e-12)
  overscaled = a[:4].astype(np.complex64)
  for one, x in zip(overscaled, linalg.expm(overscaled), strict=True):
    expected = _exponential_and_derivative(one.real.astype(np.float64), np.zeros((4, 4)))[0]
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-4 * np.max(np.abs(expected)))


@pytest.mark.parametrize("batch, conditions", [((), 1), ((1,), 1), ((2,), 0)], ids=str)
def test_one_matrix_is_squared_no_more_than_it_needs(batch, conditions):
  """A single matrix has a condition. A batch has none: over devices it would be a collective."""
  program = str(jax.make_jaxpr(linalg.expm)(jnp.zeros((*batch, 3, 3))))
  assert len(re.findall(r"\bcond\[", program)) == conditions


def test_expm_out_of_range():
  """Only a matrix whose scaling would exceed `max_squarings` has NaN."""
  diagonal = np.array([-1e6, -3e5, 0.0, np.nan])
  a = diagonal[:, None, None] * np.eye(2)
  result, squared = map(np.asarray, quick_jit(lambda a: (
      linalg.expm(a), linalg.expm(a[:1], max_squarings=18)))(a))
  assert np.isnan(result[[0, 3]]).all()
  np.testing.assert_allclose(result[1:3], [np.zeros((2, 2)), np.eye(2)], atol=1e-15)
  assert np.isfinite(squared).all()


@cases.each_double
def test_sqrtm(dtype, rng):
  """Cases are general matrices, negative eigenvalues, and a derivative at a multiple of I."""
  a = matrices.general(rng, (3,), 5, 5, dtype)
  root = np.asarray(quick_jit(linalg.sqrtm)(a))
  np.testing.assert_allclose(root @ root, a, atol=1e-12)
  for x, y in zip(a, root, strict=True):
    np.testing.assert_allclose(y, scipy.linalg.sqrtm(x), atol=1e-11)
  derivatives.check(linalg.sqrtm, (2 * np.eye(3, dtype=dtype),), rng, tolerance=1e-7)
  zero, defective = quick_jit(linalg.sqrtm)(np.stack([np.zeros((2, 2)), np.eye(2, k=1)]))
  np.testing.assert_array_equal(zero, np.zeros((2, 2)))
  assert np.isnan(defective).any()


@cases.each_double
def test_cholesky_update_and_downdate(dtype, rng):
  """Updates and downdates are right, also of ill-conditioned factors.

  `info` says where one fails.
  """

  @quick_jit
  def update_and_back(factor, w, inside):
    return linalg.cholesky_update(factor, w), linalg.cholesky_update(
        linalg.cholesky_update(factor, inside), inside, downdate=True)

  for condition in (1e2, 1e12):
    a = matrices.with_eigenvalues(rng, matrices.spectrum(rng, "geometric", 8, condition), dtype)
    factor = np.linalg.cholesky(a).conj().T
    w = matrices.general(rng, (), 8, 1, dtype)[:, 0]
    inside = factor.conj().T @ (0.1 * w)
    updated, back = map(np.asarray, update_and_back(factor, w, inside))
    np.testing.assert_allclose(
        updated.conj().T @ updated, a + np.outer(w, w.conj()), rtol=0, atol=1e-13)
    np.testing.assert_allclose(back, factor, rtol=0, atol=1e-12)
  w = np.zeros((2, 8), dtype)
  w[1, 2] = 10
  lowered, info = linalg.cholesky_update_ex(factor, w, downdate=True)
  assert info[0] == 0 and 1 <= info[1] <= 3
  np.testing.assert_allclose(lowered[0], factor, rtol=1e-12)
  assert np.isnan(lowered[1]).all()


@cases.each_double
@pytest.mark.parametrize("downdate", [False, True])
def test_derivative_of_an_ill_conditioned_cholesky_update(downdate, dtype, rng):
  """An update is homogeneous, so its derivative along its operands is the update itself.

  A rule that forms A would lose the small entries of R.
  """
  eigenvalues = matrices.spectrum(rng, "geometric", 8, 1e10)
  r = np.linalg.cholesky(matrices.with_eigenvalues(rng, eigenvalues, dtype)).conj().T
  p = matrices.general(rng, (), 8, 1, dtype)[:, 0]
  w = r.conj().T @ (0.3 * p / np.linalg.norm(p))
  update = quick_jit(lambda t: linalg.cholesky_update(t * r, t * w, downdate=downdate))
  factor, slope = jax.jvp(update, (jnp.ones((), dtype),), (jnp.ones((), dtype),))
  np.testing.assert_allclose(slope, factor, rtol=0, atol=1e-14)


@cases.each_dtype(np.float32, np.float64, np.complex64, np.complex128)
def test_derivative_of_a_cholesky_update_by_a_large_vector(dtype, rng):
  """Derivatives keep all digits for any ratio of |R| and |w|.

  For n = 1, R' is h = |(r, w)|, with dh / dr = r / h and dh / dw = w / h.
  """
  small = np.array([1, 1, 1, 1e-10]).astype(dtype)
  large = np.array([10, 1e3, 1e5, 1e10]).astype(dtype)

  @quick_jit
  def slopes(r, w, dr, dw):
    return jax.jvp(linalg.cholesky_update, (r, w), (dr, dw))

  r, w = small[:, None, None], large[:, None]
  grads = jax.grad(lambda r, w: linalg.cholesky_update(r, w).real.sum(), (0, 1))(
      jnp.asarray(r), jnp.asarray(w))
  h = np.hypot(small.real.astype(float), large.real.astype(float))
  tolerance = 4 * np.finfo(dtype).eps
  for found, x in zip(grads, (small, large), strict=True):
    np.testing.assert_allclose(np.asarray(found).ravel().real, x.real / h, rtol=tolerance)
  # R' is homogeneous in both operands: for dR = R and dw = w the derivative is R' itself.
  r = np.triu(matrices.general(rng, (), 3, 3, dtype)) + 2 * np.eye(3, dtype=dtype)
  w = 1e4 * matrices.general(rng, (), 3, 1, dtype)[:, 0]
  factor, slope = map(np.asarray, slopes(r, w, r, w))
  np.testing.assert_allclose(slope, factor, rtol=100 * tolerance)
  # Along R alone, rows after the first are of R's size, and lose no digits to |w|.
  along = np.asarray(slopes(r, w, r, 0 * w)[1])
  wide = np.complex128 if np.iscomplexobj(r) else np.float64
  exact = np.asarray(slopes(r.astype(wide), w.astype(wide), r.astype(wide), 0 * w.astype(wide))[1])
  np.testing.assert_allclose(along, exact, rtol=0, atol=100 * tolerance * np.abs(r).max())


@pytest.mark.cpu
@pytest.mark.parametrize("r, w", [
    ([[1, 3e38], [0, 1]], [1, -3e38]), ([[1, 1], [0, 1]], [0, np.inf]),
    ([[np.inf, 1], [0, 1]], [1, 0.1])], ids=str)
def test_cholesky_update_out_of_range(r, w):
  """A factor that is NaN has a nonzero `info`."""
  for dtype in (np.float32, np.complex64):
    for batch in (1, 16):
      factor, info = map(np.asarray, linalg.cholesky_update_ex(
          np.broadcast_to(np.array(r, dtype), (batch, 2, 2)), np.array(w, dtype)))
      assert (info > 0).all() and np.isnan(factor).all()


@pytest.mark.cpu
@pytest.mark.parametrize("n", [3, pytest.param(60, marks=pytest.mark.extended)])
def test_cholesky_update_of_a_singular_factor(n, rng):
  """The factor is JAX's. Its diagonal may be 0 or negative, and rows that w leaves out stay."""
  r = np.triu(rng.standard_normal((20, n, n)))
  r[:, 1, 1] = 0
  w = rng.standard_normal((20, n))
  w[10:, 0] = 0
  r[15:], w[15:] = 0, 0
  factor, info = map(np.asarray, linalg.cholesky_update_ex(r, w))
  expected = jax.jit(lambda r, w: jax.lax.map(lambda x: jax.lax.linalg.cholesky_update(*x), (r, w)))
  np.testing.assert_allclose(factor, expected(r, w), rtol=0, atol=1e-12)
  np.testing.assert_array_equal(factor[10:, 0], r[10:, 0])
  np.testing.assert_array_equal(info, 0)
  info = np.asarray(linalg.cholesky_update_ex(r, w, downdate=True)[1])
  assert (info[10:] == np.repeat([2, 1], 5)).all() and (info[:10] >= 1).all()


@cases.each_double
@pytest.mark.parametrize("lower", [False, True])
def test_solve_reads_one_triangle(lower, dtype, rng):
  """For assume_a='pos', 'her' and 'sym', the other triangle may hold NaN."""
  a = matrices.positive_definite(rng, (2,), 4, dtype)
  b = matrices.general(rng, (2,), 4, 3, dtype)
  read = np.tril(np.ones((4, 4), bool)) if lower else np.triu(np.ones((4, 4), bool))
  for kind in ("pos", "her", "sym"):
    whole = a if kind != "sym" else a + np.swapaxes(a, -1, -2)
    given = np.where(read, whole, np.nan)
    x = linalg.solve(given, b, assume_a=kind, lower=lower)
    np.testing.assert_allclose(x, np.linalg.solve(whole, b), atol=1e-12)
  assert np.isnan(linalg.solve(-a, b, assume_a="pos", lower=lower)).all()
  with pytest.raises(ValueError, match="assume_a"):
    linalg.solve(a, b, assume_a="banded")


def test_block_diag():
  """Batches broadcast. Vectors are rows. A call without operands gives an empty row."""
  a, b = np.ones((3, 1, 2, 2)), np.full((4, 1, 3), 2.0)
  result = linalg.block_diag(a, b, np.arange(2.0))
  assert result.shape == (3, 4, 4, 7)
  np.testing.assert_array_equal(
      result[0, 0], scipy.linalg.block_diag(a[0, 0], b[0], np.arange(2)))
  assert linalg.block_diag().shape == (1, 0)


def test_third_derivative_of_funm_hermitian():
  """The derivative raises an error, and is not 0 as for a constant operand."""
  third = jax.grad(jax.grad(jax.grad(
      lambda x: linalg.funm_hermitian(x * jnp.eye(2), lambda w: w**5)[0, 0])))
  with pytest.raises(NotImplementedError, match="third"):
    third(1.0)


@pytest.mark.extended
def test_parameters_of_a_function(rng):
  """Derivatives by A, by the parameters and by both, at equal eigenvalues.

  They equal those of another form, in which the parameters change the matrix. One parameter is
  shared by all matrices, and one has a value for each.
  """
  q = np.linalg.qr(rng.normal(size=(3, 4, 4)))[0]
  a = (q * np.array([1.0, 1.0, 2.0, 3.0])) @ q.mT
  c = rng.normal(size=a.shape)
  mu, t = np.array([1.1, 0.5, 2.0]), 0.7
  fermi = lambda w, mu, t: jax.nn.sigmoid((mu - w) / t)
  apart = lambda a, mu, t: linalg.funm_hermitian(a, fermi, args=(mu, t))
  inside = lambda a, mu, t: linalg.funm_hermitian(
      (a - jnp.expand_dims(mu, (-1, -2)) * np.eye(4)[None]) / t, lambda x: jax.nn.sigmoid(-x))

  # The value, and the derivative of the gradient in a direction that changes all operands.
  def both_orders(f):
    loss = lambda *operands: jnp.sum(c * jnp.sin(f(*operands)))
    return f(a, mu, t), jax.jvp(jax.grad(loss, (0, 1, 2)), (a, mu, t), (c, mu[::-1], 0.3))

  expected, got = quick_jit(lambda: (both_orders(inside), both_orders(apart)))()
  leaves = jax.tree.leaves_with_path(expected)
  for (path, x), y in zip(leaves, jax.tree.leaves(got), strict=True):
    np.testing.assert_allclose(y, x, rtol=1e-11, atol=1e-11, err_msg=jax.tree_util.keystr(path))
  each = quick_jit(jax.vmap(lambda mu: apart(a[0], mu, t)))(mu)
  np.testing.assert_allclose(each, apart(a[:1], mu, t), rtol=1e-12, atol=1e-12)


def test_parameters_in_other_forms():
  """A single parameter need not be in a sequence, whatever its shape. Complex ones are refused."""
  a = np.stack([np.diag([1.0, 2.0])] * 3)
  result = linalg.funm_hermitian(a, lambda w, mu: w * mu, args=np.arange(3.0))
  np.testing.assert_allclose(result, a * np.arange(3.0)[:, None, None], atol=1e-15)
  result = linalg.funm_hermitian(a, lambda w, mu, t: w * mu + t, args=[2.0, np.arange(3.0)])
  w = np.array([1.0, 2.0])
  np.testing.assert_allclose(
      jnp.diagonal(result, axis1=1, axis2=2), 2 * w + np.arange(3.0)[:, None], atol=1e-15)
  with pytest.raises(TypeError, match=r"args\[1\] must be real, got complex"):
    linalg.funm_hermitian(a, lambda w, x, y: w, args=(1.0, 1j))


def test_functions_of_traced_values_are_refused():
  """The error says to pass the value in `args`, where it has its derivative."""
  a = np.diag([1.0, 1.0, 2.0])
  through_f = lambda mu: jnp.trace(linalg.funm_hermitian(a, lambda x: jnp.exp(x - mu)))
  for function, mu in (
      (jax.grad(through_f), 1.0), (jax.jit(through_f), 1.0), (jax.vmap(through_f), np.ones(2))):
    with pytest.raises(TypeError, match=r"as one of args"):
      function(mu)
  through_args = lambda mu: jnp.trace(
      linalg.funm_hermitian(a, lambda x, mu: jnp.exp(x - mu), args=(mu,)))
  np.testing.assert_allclose(jax.grad(through_args)(1.0), -(2 + np.e), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64], ids=lambda dtype: dtype.__name__)
def test_a_function_that_knows_its_dtype(dtype):
  """`f` is called with numbers of the matrix's precision: strict promotion refuses others."""
  double = linalg.funm_hermitian(jnp.eye(2, dtype=dtype), lambda x: np.float32(2) * x)
  np.testing.assert_array_equal(double, 2 * np.eye(2, dtype=dtype))


@cases.each_double
def test_ormqr(dtype, rng):
  """Cases are both sides, few or no reflectors, broadcasting, and kernels for lanes and tiles.

  The upper triangle with the diagonal is not read.
  """
  shapes = [(7, 4, 4), (5, 5, 5), (4, 6, 4), (6, 3, 2), (3, 2, 0), (1, 1, 1), (200, 150, 150)]
  for m, n, k, cols in (*((*shape, shape[0] // 4 + 2) for shape in shapes),
                        (70, 60, 37, 8), (70, 60, 37, 9)):
    h, taus = linalg.qr(matrices.general(rng, (2,), m, n, dtype), mode="raw")
    a, taus = np.swapaxes(np.asarray(h), -1, -2), np.asarray(taus)[..., :k]
    square = np.zeros((2, m, m), dtype)
    square[..., :k] = a[..., :k]
    q = np.asarray(linalg.householder_product(square, taus))
    spoilt = np.where(np.tri(m, n, -1, dtype=bool), a, np.array(np.nan, dtype))
    c = matrices.general(rng, (3, 1), m, cols, dtype)
    turned = np.swapaxes(q, -1, -2).conj()
    for transpose, factor in ((False, q), (True, turned)):
      np.testing.assert_allclose(
          linalg.ormqr(spoilt, taus, c, transpose=transpose), factor @ c, atol=1e-13)
      np.testing.assert_allclose(
          linalg.ormqr(spoilt, taus, np.swapaxes(c, -1, -2), left=False, transpose=transpose),
          np.swapaxes(c, -1, -2) @ factor, atol=1e-13)


@cases.each_double
def test_determinants_of_factors(dtype, rng):
  """Factors come from this package, in either triangle, or from SciPy. Derivatives are right too.

  The batch has a determinant that is out of range, and a matrix without a Cholesky factor.
  """
  a = matrices.positive_definite(rng, (5,), 5, dtype)
  a[1] *= -1
  a[2] *= 1e-100
  sign, logarithm = np.linalg.slogdet(a)
  of_pivots = lambda a: linalg.lu_slogdet(linalg.lu_factor(a))
  for found, expected in zip(quick_jit(of_pivots)(a), (sign, logarithm), strict=True):
    np.testing.assert_allclose(found, expected, rtol=1e-12)
  np.testing.assert_allclose(
      linalg.lu_slogdet(scipy.linalg.lu_factor(a[1])), (sign[1], logarithm[1]), rtol=1e-12)
  logarithm[1] = np.nan
  functions = [lambda a: of_pivots(a).logabsdet]
  for lower in (False, True):
    of_triangle = lambda a, lower=lower: linalg.cho_logdet(linalg.cho_factor(a, lower))
    np.testing.assert_allclose(quick_jit(of_triangle)(a), logarithm, rtol=1e-12)
    np.testing.assert_allclose(
        linalg.cho_logdet(scipy.linalg.cho_factor(a[0], lower)), logarithm[0], rtol=1e-12)
    functions.append(of_triangle)
  da = a[0] + a[4]
  expected = np.trace(np.linalg.solve(a[3], da)).real
  for function in functions:
    assert function(a).dtype == np.float64
    np.testing.assert_allclose(jax.jvp(function, (a[3],), (da,))[1], expected, rtol=1e-12)


def test_determinants_of_degenerate_factors(rng):
  """Cases are phases and their derivatives, signs of row exchanges, zeros, NaN, and no batch."""
  a = matrices.general(rng, (6,), 4, 4, np.complex128)
  a[1, :, 2] = 0
  a[2, 0, 0] = np.nan
  packed, pivots = linalg.lu_factor(a)
  for x, y in zip(linalg.lu_slogdet((packed, pivots)), linalg.slogdet(a), strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-12)
  of_pivots = lambda a: linalg.lu_slogdet(linalg.lu_factor(a))
  derivatives.check(of_pivots, (a[3:],), rng, tolerance=1e-7)
  one = linalg.lu_slogdet((np.eye(4), pivots))
  assert one.logabsdet.shape == one.sign.shape == (6,)
  assert set(np.asarray(one.sign)) == {-1, 1}
  assert linalg.lu_slogdet((np.eye(3), np.array([7, -1, 2]))).sign == 1  # 7 and -1 exchange nothing
  np.testing.assert_array_equal(linalg.cho_logdet((np.diag([1.0, 0]), True)), -np.inf)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64], ids=lambda dtype: dtype.__name__)
def test_determinants_of_factors_with_subnormal_pivots(dtype):
  """XLA's comparisons and logarithms take subnormal pivots for zero. One pivot's size overflows."""
  phase = dtype(1 if dtype is np.float32 else 1 + 1j)
  for diagonal in ([1e-40, 1e30, 1e20], [3e38, 2e-3, 1]):
    a = phase * np.diag(diagonal).astype(dtype)
    for x, y in zip(
        linalg.lu_slogdet(linalg.lu_factor(a)), np.linalg.slogdet(a.astype(np.complex128)),
        strict=True):
      np.testing.assert_allclose(x, y, rtol=1e-5)


def test_errors_of_determinants_of_factors():
  a, pivots = np.eye(3), np.arange(3)
  for call, kind, message in (
      (lambda: linalg.cho_logdet(a), TypeError, "cho_logdet takes as c_and_lower the two values"),
      (lambda: linalg.cho_logdet((a[:2], True)), ValueError,
       r"cho_logdet\(\) must have shape \[..., n, n\], got \(2, 3\)"),
      (lambda: linalg.lu_slogdet(linalg.lu(a)), TypeError, "that lu_factor returns, got 3 of them"),
      (lambda: linalg.lu_slogdet((a[:2], pivots)), ValueError, r"lu_slogdet\(\) must have shape"),
      (lambda: linalg.lu_slogdet((a, a[0])), TypeError, r"lu_slogdet\(\) must be integers"),
      (lambda: linalg.lu_slogdet((a, pivots[:2])), ValueError,
       r"lu_slogdet\(\): factors \(3, 3\) and pivots \(2,\)"),
      (lambda: linalg.lu_slogdet((np.ones((2, 3, 3)), np.ones((4, 3), int))), ValueError,
       r"lu_slogdet\(\): factors \(2, 3, 3\) and pivots \(4, 3\)")):
    with pytest.raises(kind, match=message):
      call()
