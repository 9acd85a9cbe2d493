"""Functions of linalg.scipy that are composed in Python, against SciPy's and at degenerate points.

Every call that the catalogue has for a function which JAX lacks is compared with SciPy's.
"""

import inspect
import warnings

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.linalg

import cases
import derivatives
import linalg.scipy
import matrices
import selection
from quick import quick_jit

FUNCTIONS = [
    x for x in cases.CATALOGUE
    if x.calls and (x.counterpart or "").startswith("scipy.linalg.")]
CALLS = [
    pytest.param(function.name, call, id=name.replace(" ", "-"))
    for function in FUNCTIONS for name, call in function.stock_calls().items()]


def _leaves(results):
  return results if isinstance(results, tuple) else (results,)


def _theirs(call, a, p, b):
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    return _leaves(call(scipy.linalg, a, p, b))


@selection.one_in(2)
@cases.each_double
@pytest.mark.parametrize(("name", "call"), CALLS)
def test_agrees_with_scipy(name, call, dtype, rng, standard_promotion):
  """Results have SciPy's structure, shapes and numbers, for one matrix and for lists."""
  if name == "eigvalsh_tridiagonal" and dtype is np.complex128:
    pytest.skip("SciPy takes real numbers alone")
  a = matrices.well_conditioned(rng, (), 4, np.dtype(dtype))
  p = matrices.positive_definite(rng, (), 4, np.dtype(dtype))
  p = (p + p.T.conj()) / 2
  b = matrices.general(rng, (), 4, 2, np.dtype(dtype))
  found, expected = _leaves(call(linalg.scipy, a, p, b)), _theirs(call, a, p, b)
  assert len(found) == len(expected)
  for x, y in zip(found, expected, strict=True):
    assert x.shape == np.shape(y)
    if name != "lstsq":  # SciPy 1.18 has complex residues
      assert jnp.iscomplexobj(x) == np.iscomplexobj(y)
    np.testing.assert_allclose(x, y, rtol=0, atol=1e-11 * max(np.max(np.abs(y), initial=0), 1))


def test_every_function_is_called():
  """It follows SciPy's signature, and has a case or a call."""
  beyond = {x for x in linalg.scipy.__all__ if not hasattr(jax.scipy.linalg, x)}
  assert {x.name for x in FUNCTIONS} <= beyond
  for function in FUNCTIONS:
    theirs = inspect.signature(getattr(scipy.linalg, function.name)).parameters
    assert list(inspect.signature(function.function).parameters) == [
        x for x in theirs if x != "disp"]


@pytest.mark.parametrize("name", ["cosm", "sinm", "tanm", "coshm", "sinhm", "tanhm"])
def test_trigonometric(name):
  """A batch of small, large and defective matrices, and one with NaN; real results."""
  call = getattr(linalg.scipy, name)
  jordan = np.eye(3) + np.eye(3, k=1)
  a = np.stack([
      1e-9 * jordan, 0.5 * jordan, 12 * np.diag([1.0, 0.3, -0.2]), np.full((3, 3), np.nan)])
  x = np.asarray(call(a))
  assert x.dtype == np.float64 and np.isnan(x[3]).all()
  of_number = getattr(np, name[:-1])
  np.testing.assert_allclose(np.diagonal(x[2]), of_number(np.diagonal(a[2])), rtol=1e-10)
  for i in (0, 1):
    expected = _jordan(name[:-1], a[i, 0, 0], a[i, 0, 1])
    np.testing.assert_allclose(x[i, 0], expected, rtol=1e-13, atol=1e-14 * abs(a[i, 0, 0]))
  np.testing.assert_allclose(np.asarray(call(a + 0j))[1], x[1], atol=1e-14)


def _jordan(name, value, beside):
  """The first row of the function of a block of order 3, by differences in many digits."""
  with mpmath.workdps(50):
    slopes = [mpmath.diff(getattr(mpmath, name), mpmath.mpf(value), k) for k in range(3)]
    return [float(x * mpmath.mpf(beside) ** k / (1, 1, 2)[k]) for k, x in enumerate(slopes)]


@cases.each_double
def test_signs(dtype, rng):
  """A batch with equal, defective and imaginary eigenvalues, with zeros, and with NaN."""
  basis = matrices.well_conditioned(rng, (), 4, np.dtype(dtype))
  of = lambda t: basis @ t @ np.linalg.inv(basis)
  defective = np.diag([2.0, 2, -1, -1]) + np.diag([1.0, 0, 1], 1)
  a = np.stack([
      of(np.diag([1.0, 1, -2, -2])), of(defective), of(np.diag([3.0, 2, 1, 1e-3])),
      of(np.diag([1.0, 0, 0, -1])), of(np.diag([0.0, 0, 3, 3])),
      of(scipy.linalg.block_diag([[0, 1], [-1, 0]], [[3, 1], [0, -2]])),
      np.full((4, 4), np.nan)]).astype(dtype)
  s = np.asarray(quick_jit(linalg.scipy.signm)(a))
  expected = of(np.diag([1.0, 1, -1, -1]))
  np.testing.assert_allclose(s[0], expected, atol=1e-12)
  np.testing.assert_allclose(s[1], expected, atol=1e-11)
  np.testing.assert_allclose(s[2], np.eye(4), atol=1e-11)
  np.testing.assert_allclose(s[3], of(np.diag([1.0, 0, 0, -1])), atol=1e-12)
  np.testing.assert_allclose(s[4], of(np.diag([0.0, 0, 1, 1])), atol=1e-11)
  np.testing.assert_allclose(s[5], scipy.linalg.signm(a[5]), atol=1e-11)
  np.testing.assert_allclose(s[5] @ s[5] @ s[5], s[5], atol=1e-11)
  assert np.isnan(s[6]).all()


@pytest.mark.extended
@cases.each_double
def test_derivatives_of_signs(dtype, rng):
  """Derivatives at equal eigenvalues and at a defective matrix; NaN where there is no sign."""
  basis = matrices.well_conditioned(rng, (), 3, np.dtype(dtype))
  for block in (np.diag([2.0, 2, -1]), np.diag([2.0, 2, -1]) + np.diag([1.0, 0], 1)):
    a = (basis @ block @ np.linalg.inv(basis)).astype(dtype)
    derivatives.check(linalg.scipy.signm, (a,), rng, tolerance=1e-6)
  slope = jax.grad(lambda a: jnp.sum(linalg.scipy.signm(a).real))
  assert np.isnan(slope(jnp.diag(jnp.array([1.0, 0.0])))).all()


def test_circulant(rng):
  """Lengths with and without factors, on both sides of the limit of direct transforms."""
  for n in (1, 2, 63, 64, 65, 97, 128):
    c = rng.standard_normal((2, 1, n))
    c[..., 0] += 3 * np.sqrt(n)
    b = rng.standard_normal((3, n))
    x = linalg.scipy.solve_circulant(c, b, baxis=-1, outaxis=-1)
    expected = scipy.linalg.solve_circulant(c, b, baxis=-1, outaxis=-1)
    assert x.shape == (2, 3, n)
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-13)
  assert linalg.scipy.solve_circulant(c[0], b.T, caxis=1).shape == (n, 3)
  assert linalg.scipy.solve_circulant(np.zeros(0), np.zeros((0, 2))).shape == (0, 2)
  with pytest.raises(ValueError, match="'caxis' must be from -1 to 0"):
    linalg.scipy.solve_circulant(np.ones(3), np.ones(3), caxis=1)
  with pytest.raises(ValueError, match="Incompatible shapes"):
    linalg.scipy.solve_circulant(np.ones(3), np.ones(4))


def test_singular_circulant():
  """A singular matrix has NaN, or the shortest solution; its neighbour has its own."""
  c = np.array([[1.0, 1, 0, 0], [2.0, 1, 0, 0]])
  b = np.array([1.0, 2, 3, 4])
  solve = lambda c: linalg.scipy.solve_circulant(c, b, baxis=-1, outaxis=-1)
  x = quick_jit(solve)(c)
  assert np.isnan(x[0]).all()
  np.testing.assert_allclose(scipy.linalg.circulant(c[1]) @ np.asarray(x[1]), b, atol=1e-14)
  shortest = linalg.scipy.solve_circulant(c[0], b, singular="lstsq")
  np.testing.assert_allclose(
      shortest, np.linalg.lstsq(scipy.linalg.circulant(c[0]), b, rcond=None)[0], atol=1e-14)
  assert np.isnan(linalg.scipy.solve_circulant(c[1], b, tol=1.5)).all()
  with pytest.raises(linalg.LinAlgError, match=r"index \(0\) is singular to rounding"):
    linalg.checked(solve)(c)
  slope = jax.jacfwd(lambda b: linalg.scipy.solve_circulant(c[0], b, singular="lstsq"))(b)
  np.testing.assert_allclose(slope, np.linalg.pinv(scipy.linalg.circulant(c[0])), atol=1e-14)


def test_angles_at_lower_ranks(rng):
  """Zeros follow SciPy's angles, in a batch of several ranks and in either order."""
  a = np.stack([rng.standard_normal((6, rank)) @ rng.standard_normal((rank, 3))
                for rank in (1, 2, 3)])
  b = np.stack([rng.standard_normal((6, rank)) @ rng.standard_normal((rank, 4))
                for rank in (3, 1, 4)])
  angles = quick_jit(linalg.scipy.subspace_angles)
  for found in (angles(a, b), angles(b, a)):
    for x, y, z in zip(found, a, b, strict=True):
      expected = scipy.linalg.subspace_angles(y, z)
      np.testing.assert_allclose(x[: len(expected)], expected, atol=1e-13)
      np.testing.assert_array_equal(x[len(expected) :], 0)
  same = angles(a[2], a[2] @ rng.standard_normal((3, 3)))
  assert np.max(np.abs(same)) < 1e-13


@pytest.mark.extended
@cases.each_double
def test_derivatives_of_a_rotation(dtype, rng):
  """Aᴴ B is twice a unitary matrix."""
  a = matrices.unitary(rng, 3, np.dtype(dtype)).astype(dtype)
  b = 2 * matrices.unitary(rng, 3, np.dtype(dtype)).astype(dtype)
  derivatives.check(linalg.scipy.orthogonal_procrustes, (a, b), rng, tolerance=1e-7)


def test_real_blocks(rng):
  """SciPy's form of matrices with 0, 1 and 2 pairs in one batch. One without its partner is NaN."""
  a = np.stack([
      np.diag([1.0, 2, 3, 4]), np.diag([1.0, 2, 3, 3]) + np.diag([0, 0, 5.0], 1)
      - np.diag([0, 0, 5.0], -1), scipy.linalg.block_diag([[0, 1], [-1, 0]], [[2, 3], [-3, 2]])])
  basis = matrices.well_conditioned(rng, (), 4, np.dtype(np.float64))
  w, v = np.linalg.eig(basis @ a @ np.linalg.inv(basis))
  found = quick_jit(linalg.scipy.cdf2rdf)(w, v)
  for i in range(3):
    for x, y in zip(found, scipy.linalg.cdf2rdf(w[i], v[i]), strict=True):
      np.testing.assert_allclose(x[i], y, atol=1e-14)
  w[2, 0] = 1
  assert np.isnan(linalg.scipy.cdf2rdf(w, v)[1][2]).all()
  with pytest.raises(linalg.LinAlgError, match=r"index \(2\) has an eigenvalue that is not real"):
    linalg.checked(linalg.scipy.cdf2rdf)(w, v)


def test_sketches(rng):
  """SciPy's sketches from the same numbers, and those of a key under jit."""
  a = rng.standard_normal((2, 30, 3))
  sketch, theirs = (m.clarkson_woodruff_transform for m in (linalg.scipy, scipy.linalg))
  for seed in ({"rng": 5}, {"seed": 5}):
    np.testing.assert_allclose(sketch(a, 4, **seed), theirs(a, 4, **seed), atol=1e-13)
  new = lambda: np.random.default_rng(7)
  np.testing.assert_allclose(sketch(a, 4, new()), theirs(a, 4, new()), atol=1e-13)
  assert not np.array_equal(sketch(a, 4), sketch(a, 4))
  eye = jnp.eye(30)
  for key in (jax.random.key(3), jax.random.PRNGKey(3)):
    s = np.asarray(jax.jit(lambda key: sketch(eye, 4, key))(key))
    np.testing.assert_array_equal(np.abs(s).sum(0), 1)
    assert set(np.unique(s)) == {-1, 0, 1} and (np.abs(s).sum(1) > 0).all()
    np.testing.assert_array_equal(s, sketch(eye, 4, seed=key))
  with pytest.raises(TypeError, match="only one of rng and seed"):
    sketch(a, 4, 1, seed=2)


def test_structure():
  """NaN, Inf and the diagonal count as in SciPy, for each matrix of a batch."""
  nan, inf = np.nan, np.inf
  a = np.array([
      [[nan, 1], [1, 2]], [[1, inf], [inf, 2]], [[1, nan], [nan, 2]], [[1, 2], [2.125, 1]],
      [[0, 0], [0, 0]], [[1, 0], [3, 1]]])
  for x in (a, a + 0j, a[2:] * 1j, a + np.array([[0, 1j], [-1j, 0]])):
    for name in ("issymmetric", "ishermitian"):
      for options in ({}, {"atol": 0.25}, {"rtol": 0.1}):
        found = getattr(linalg.scipy, name)(x, **options)
        expected = [getattr(scipy.linalg, name)(y, **options) for y in x]
        np.testing.assert_array_equal(found, expected, err_msg=f"{name} {options}")
    lower, upper = linalg.scipy.bandwidth(x)
    expected = [scipy.linalg.bandwidth(y) for y in x]
    np.testing.assert_array_equal(np.stack([lower, upper], -1), expected)


def test_intervals(rng):
  """Eigenvalues in (low, high] are SciPy's. In a batch NaN fills the missing places."""
  a = rng.standard_normal((2, 9, 9))
  a = a + a.swapaxes(-1, -2)
  for low, high in ((-1, 2), (0, 9), (70, 90)):
    expected = [scipy.linalg.eigvalsh(x, subset_by_value=(low, high)) for x in a]
    for x, y in zip(a, expected, strict=True):
      w, v = linalg.scipy.eigh(x, subset_by_value=(low, high))
      np.testing.assert_allclose(w, y, atol=1e-12)
      np.testing.assert_allclose(x @ v, v * w[None], atol=1e-12)
      tridiagonal = np.diagonal(x), np.diagonal(x, 1)
      np.testing.assert_allclose(
          linalg.scipy.eigvalsh_tridiagonal(*tridiagonal, "v", (low, high)),
          scipy.linalg.eigvalsh_tridiagonal(*tridiagonal, "v", (low, high)), atol=1e-12)
    found = linalg.scipy.eigvalsh(a, subset_by_value=(low, high))
    assert found.shape == (2, max(map(len, expected)))
    for x, y in zip(found, expected, strict=True):
      np.testing.assert_allclose(x[: len(y)], y, atol=1e-12)
      assert np.isnan(x[len(y) :]).all()
  # A matrix without eigenvalues has NaN, not an empty result.
  nan = np.full((3, 3), np.nan)
  np.testing.assert_array_equal(linalg.scipy.eigvalsh(nan, subset_by_value=(0, 1)), [np.nan])
  assert linalg.scipy.eigh(nan, subset_by_value=(0, 1))[1].shape == (3, 1)


def test_subsets_and_drivers():
  """Subsets by value, wrong indices and unknown drivers raise errors that say so."""
  a, d = np.eye(3), np.ones(3)
  for function in (
      lambda a: linalg.scipy.eigvalsh(a, subset_by_value=(0, 1)),
      lambda a: linalg.scipy.eigh(a, subset_by_value=(0, 1)),
      lambda a: linalg.scipy.eigvalsh_tridiagonal(a[0], a[0, 1:], "v", (0, 1))):
    with pytest.raises(TypeError, match="depends on the values of the matrix"):
      jax.jit(function)(a)
  for call in (
      lambda: linalg.scipy.eigvalsh(a, subset_by_value=(1, 0)),
      lambda: linalg.scipy.eigvalsh_tridiagonal(d, d[1:], "v")):
    with pytest.raises(ValueError, match="must be \\(low, high\\)"):
      call()
  for call in (
      lambda: linalg.scipy.eigvalsh(a, subset_by_index=(1, 3)),
      lambda: linalg.scipy.eigvalsh_tridiagonal(d, d[1:], "i", (2, 1))):
    with pytest.raises(ValueError, match="must be \\(first, last\\)"):
      call()
  for call in (
      lambda: linalg.scipy.eigvalsh(a, driver="none"),
      lambda: linalg.scipy.lstsq(a, d, lapack_driver="none"),
      lambda: linalg.scipy.eigvalsh_tridiagonal(d, d[1:], lapack_driver="none")):
    with pytest.raises(ValueError, match="the driver must be one of"):
      call()


def test_wrong_indices():
  """A subset by index is two integers, of a square matrix."""
  a, d = np.eye(3), np.ones(3)
  functions = [
      ("eigh_generalized: eigvals", lambda x: linalg.eigh_generalized(a, eigvals=x)),
      ("eigh: eigvals", lambda x: linalg.scipy.eigh(a, eigvals=x)),
      ("eigh: subset_by_index", lambda x: linalg.scipy.eigh(a, subset_by_index=x)),
      ("eigvalsh: subset_by_index", lambda x: linalg.scipy.eigvalsh(a, subset_by_index=x)),
      ("eigvalsh_tridiagonal: select_range",
       lambda x: linalg.scipy.eigvalsh_tridiagonal(d, d[1:], "i", x))]
  for name, function in functions:
    for wrong in ((0, 1, 2), (0,), (), 1, (2, 1), (-1, 1), (0, 3)):
      with pytest.raises(ValueError, match=rf"^{name} must be \(first, last\) with .* < 3, got"):
        function(wrong)
    for wrong in ((0.5, 1.7), (0.0, 1), "01"):
      with pytest.raises(TypeError, match=rf"^{name}\[0\] must be an integer, got"):
        function(wrong)
    with pytest.raises(TypeError, match="takes .* as an option"):
      jax.jit(lambda last, function=function: function((0, last)))(1)
  for function in (linalg.scipy.eigh, linalg.scipy.eigvalsh):
    for x in (1.0, d, a[:2]):
      with pytest.raises(ValueError, match=rf"a to {function.__name__}\(\) must have shape"):
        function(x, subset_by_index=(0, 0))
  with pytest.raises(ValueError, match=r"must have shapes \[\.\.\., n\] and"):
    linalg.scipy.eigvalsh_tridiagonal(1.0, 1.0, "i", (0, 0))


def test_batches_of_forms(rng):
  """The forms of `linalg`'s functions take batches, and right-hand sides in a vector."""
  a, b = rng.standard_normal((5, 4, 2)), rng.standard_normal(4)
  x, residues, rank, s = linalg.scipy.lstsq(a, b)
  assert x.shape == (5, 2) and residues.shape == (5,) and rank.shape == (5,) and s.shape == (5, 2)
  for i in range(5):
    expected = scipy.linalg.lstsq(a[i], b)
    np.testing.assert_allclose(x[i], expected[0], atol=1e-13)
    np.testing.assert_allclose(residues[i], expected[1], atol=1e-12)
  inverse, ranks = linalg.scipy.pinv(a, rtol=np.array([0, 0, 1.0, 0, 0]), return_rank=True)
  assert inverse.shape == (5, 2, 4)
  np.testing.assert_array_equal(ranks, [2, 2, 0, 2, 2])


def test_wrong_sizes_and_dimensions():
  """One error names the function and the parameter, and says what it takes."""
  x, v = np.eye(4), np.ones(3)
  for call, error, text in (
      (lambda: linalg.scipy.cossin(x, p=1.5, q=1), TypeError, "cossin: p must be an integer"),
      (lambda: linalg.scipy.cossin(x, p=1, q=4), ValueError, "cossin: q must be from 1 to 3"),
      (lambda: linalg.scipy.diagsvd(v, 3, "a"), TypeError, "diagsvd: N must be an integer"),
      (lambda: linalg.scipy.diagsvd(v, -1, 3), ValueError, "diagsvd: M must be at least 0"),
      (lambda: linalg.scipy.clarkson_woodruff_transform(x, 0), ValueError, "must be at least 1"),
      (lambda: linalg.scipy.clarkson_woodruff_transform(x, 2.5), TypeError, "sketch_size must be"),
      (lambda: linalg.scipy.solve_circulant(v, v, outaxis=1), ValueError,
       "'outaxis' must be from -1 to 0"),
      (lambda: linalg.scipy.eigvalsh_tridiagonal(v, v[:2], select="x"), ValueError,
       "eigvalsh_tridiagonal: select must be 'a', 'i' or 'v'")):
    with pytest.raises(error, match=text):
      call()
