"""Options of `linalg.scipy` that JAX lacks: structures of matrices, indices, intervals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.sharding import AxisType

import cases
import derivatives
import linalg.scipy
import matrices
import selection
from linalg._catalogue import checks
from quick import quick_compile, quick_jit
from sharded import BATCH, close, make_mesh, moves_nothing, place, sharded_like

N = 5
# A structure, the triangle that is read, and the elements that are.
READ = {
    ("gen", False): lambda i, j: i == i,
    ("banded", False): lambda i, j: i == i,
    ("diagonal", False): lambda i, j: i == j,
    ("tridiagonal", False): lambda i, j: abs(i - j) <= 1,
    ("upper triangular", False): lambda i, j: i <= j,
    ("lower triangular", False): lambda i, j: i >= j,
    **{(name, lower): (lambda i, j: i >= j) if lower else (lambda i, j: i <= j)
       for name in ("sym", "her", "pos") for lower in (False, True)}}
STRUCTURES = pytest.mark.parametrize(("name", "lower"), READ)
LONG = {"gen": "general", "sym": "symmetric", "her": "hermitian", "pos": "positive definite"}


def _matrices(rng, batch, name, lower, dtype):
  """Matrices of a structure, and the same with NaN in the elements that are not read."""
  i, j = np.indices((N, N))
  a = matrices.general(rng, batch, N, N, dtype) + (4 * np.eye(N)).astype(dtype)
  if name == "sym":
    a = (a + np.swapaxes(a, -1, -2)) / 2
  elif name == "her":
    a = (a + checks.adjoint(a)) / 2
  elif name == "pos":
    a = a @ checks.adjoint(a) + np.eye(N, dtype=dtype)
  read = READ[name, lower](i, j)
  if name not in ("sym", "her", "pos"):
    a = np.where(read, a, 0)
  return a.astype(dtype), np.where(read, a, np.nan).astype(dtype)


@selection.all_dtypes
@STRUCTURES
def test_structures(name, lower, dtype, rng):
  """Solutions and inverses, for both of SciPy's names, of vectors and of transposed matrices."""
  a, spoilt = _matrices(rng, (3,), name, lower, dtype)
  b = matrices.general(rng, (3,), N, 2, dtype)
  inverts = name not in ("banded", "tridiagonal")

  @quick_jit
  def results(a, b):
    solve = lambda b, name, **options: linalg.scipy.solve(
        a, b, lower, assume_a=name, **options)
    return (
        solve(b, name), solve(b, LONG.get(name, name), transposed=True), solve(b[0, :, 0], name),
        *([linalg.scipy.inv(a, assume_a=name, lower=lower)] if inverts else []))

  x, transposed, vector, *inverse = results(spoilt, b)
  limit = 1e3 * np.finfo(dtype).eps
  np.testing.assert_allclose(x, np.linalg.solve(a, b), atol=limit)
  np.testing.assert_allclose(
      transposed, np.linalg.solve(np.swapaxes(a, -1, -2), b), atol=limit)
  np.testing.assert_allclose(vector, np.linalg.solve(a, b[0, :, :1])[..., 0], atol=limit)
  for y in inverse:
    np.testing.assert_allclose(y, np.linalg.inv(a), atol=limit)
  assert {y.dtype for y in (x, transposed, vector, *inverse)} == {dtype}


@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
def test_batches_of_vectors(transposed, rng):
  """Both names of positive definite matrices take them, where vectors and matrices look alike."""
  a, _ = _matrices(rng, (N,), "pos", False, np.dtype(np.float64))
  b = rng.standard_normal((N, N))
  expected = np.linalg.solve(a, b[..., None])[..., 0]
  for name in ("pos", "positive definite"):
    x = linalg.scipy.solve(a, b, assume_a=name, transposed=transposed)
    np.testing.assert_allclose(x, expected, rtol=1e-10)


def _dtypes_of_solutions(a, b):
  return [
      linalg.scipy.solve(
          jnp.eye(N, dtype=a), jnp.ones(N, b), assume_a=name, transposed=transposed).dtype
      for name in ("gen", "pos", "upper triangular", "tridiagonal") for transposed in (False, True)]


@pytest.mark.parametrize(
    ("dtype", "result"), [("bfloat16", "bfloat16"), ("float16", "float16"), ("int32", "float32")])
def test_dtypes_of_transposed(dtype, result):
  """The result has the dtype of the operands, also where JAX refuses to mix dtypes."""
  assert set(map(str, _dtypes_of_solutions(dtype, dtype))) == {result}


@pytest.mark.usefixtures("standard_promotion")
def test_mixed_dtypes_of_transposed():
  assert set(map(str, _dtypes_of_solutions("int8", "bfloat16"))) == {"bfloat16"}


def test_tuples_of_solve():
  """A tuple is no operand, in any position and with any option."""
  for a, b, position in (((1.0, 2.0), np.ones(2), 0), (np.ones((3, 2, 2)), ((1.0, 2.0),) * 3, 1)):
    for transposed in (False, True):
      with pytest.raises(TypeError, match=f"solve requires ndarray .* at position {position}"):
        linalg.scipy.solve(a, b, assume_a="pos", transposed=transposed)


@pytest.mark.parametrize("name", ["diagonal", "tridiagonal", "upper triangular", "pos", "gen"])
def test_singular_structures(name, rng):
  """A singular matrix has NaN for itself alone, and its neighbours keep their bits."""
  a, _ = _matrices(rng, (3,), name, False, np.dtype(np.float64))
  b = matrices.general(rng, (3,), N, 2, np.dtype(np.float64))
  singular = a.copy()
  singular[1, 2] = singular[1, :, 2] = 0
  solve = quick_jit(lambda a, b: linalg.scipy.solve(a, b, assume_a=name))
  inv = quick_jit(lambda a, b: linalg.scipy.inv(a, assume_a=name))
  for function in (solve, inv) if name != "tridiagonal" else (solve,):
    clean, found = function(a, b), function(singular, b)
    assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(found[::2], clean[::2])


def test_wrong_structures():
  """The error names the parameter, and the structures that there are."""
  with pytest.raises(ValueError, match="solve: assume_a must be one of 'gen', .*'banded', got 'g'"):
    linalg.scipy.solve(np.eye(2), np.ones(2), assume_a="g")
  with pytest.raises(ValueError, match="inv: assume_a must be one of .*, got 'banded'"):
    linalg.scipy.inv(np.eye(2), assume_a="banded")
  for structure in ("pos", None):  # SciPy's seventh argument
    with pytest.raises(TypeError, match="solve: check_finite must be True or False, got .*keyword"):
      linalg.scipy.solve([[4, 0], [1, 3]], [1, 1], True, False, False, True, structure)
  with pytest.raises(ValueError, match=r"Incompatible shapes.* solve\(\)"):
    linalg.scipy.solve(np.eye(3), np.ones(2), assume_a="diagonal")
  with pytest.raises(ValueError, match=r"inv\(\) must have shape"):
    linalg.scipy.inv(np.ones((2, 3)), assume_a="diagonal")


@selection.one_in(3)
@cases.each_double
@STRUCTURES
def test_derivatives(name, lower, dtype, rng):
  """In every mode to second order, along elements that are read."""
  a, _ = _matrices(rng, (), name, lower, np.dtype(dtype))
  b = matrices.general(rng, (), N, 1, np.dtype(dtype))

  def function(a, b):
    x = linalg.scipy.solve(a, b, lower, assume_a=name)
    if name in ("banded", "tridiagonal"):
      return x
    return x, linalg.scipy.inv(a, assume_a=name, lower=lower)

  derivatives.check(function, (a, b), rng, tolerance=1e-6)


@selection.one_in(3)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=lambda kind: kind.name)
@STRUCTURES
def test_sharded(name, lower, kind, rng):
  """Values and gradients of a sharded batch move nothing."""
  a, _ = _matrices(rng, (BATCH,), name, lower, np.dtype(np.float64))
  b = matrices.general(rng, (BATCH,), N, 2, np.dtype(np.float64))

  def value(a, b):
    x = linalg.scipy.solve(a, b, lower, assume_a=name)
    y = x if name in ("banded", "tridiagonal") else linalg.scipy.inv(
        a, assume_a=name, lower=lower)
    return x, y

  def function(a, b):
    results, pull = jax.vjp(value, a, b)
    return *results, *pull(results)

  sharded = place((a, b), make_mesh(kind=kind), "x")
  compiled = quick_compile(function, sharded)
  moves_nothing(compiled.as_text())
  results = compiled(*sharded)
  close(results, quick_jit(function)(a, b), 1e-10)
  sharded_like(results, make_mesh(kind=kind), "x")


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=lambda kind: kind.name)
@pytest.mark.parametrize("rows", [4, 7])
def test_indices_of_rows(rows, kind, rng):
  """`lu(p_indices=True)` gives SciPy's permutation, also of a sharded batch, and forms no P."""
  a = matrices.general(rng, (BATCH,), rows, N, np.dtype(np.float64))
  sharded = place((a,), make_mesh(kind=kind), "x")
  function = lambda a: linalg.scipy.lu(a, p_indices=True)
  compiled = quick_compile(function, sharded)
  moves_nothing(compiled.as_text())
  assert rows < N or f"{rows},{rows}]" not in compiled.as_text()
  p, l, u = map(np.asarray, compiled(*sharded))
  expected = scipy.linalg.lu(a, p_indices=True)[0]
  np.testing.assert_array_equal(p, expected)
  assert p.dtype == np.int32
  np.testing.assert_allclose(np.take_along_axis(l, p[..., None], -2) @ u, a, atol=1e-12)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_raw_factors(shape, rng):
  """The reflectors and scales of mode='raw' give Q, and R is beside them."""
  a = matrices.general(rng, (2,), *shape, np.dtype(np.complex128))
  (packed, scales), r = linalg.scipy.qr(a, mode="raw")
  assert (packed.shape, scales.shape) == (a.shape, (2, 4))
  q = linalg.householder_product(packed[..., :, :4], scales)
  np.testing.assert_allclose(q @ r, a, atol=1e-12)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (3, 0)])
def test_pivoted_raw_factors(shape, dtype, rng):
  """They are SciPy's. NaN in a matrix leaves its neighbours' bits."""
  a = matrices.general(rng, (3,), *shape, dtype)
  function = quick_jit(lambda a: linalg.scipy.qr(a, mode="raw", pivoting=True))
  found = function(a)
  (packed, scales), r, permutation = found
  for i in range(3 if a.size else 0):
    (expected, taus), factor, order = scipy.linalg.qr(a[i], mode="raw", pivoting=True)
    np.testing.assert_array_equal(permutation[i], order)
    for x, y in ((packed, expected), (scales, taus), (r, factor)):
      assert x.dtype == dtype
      np.testing.assert_allclose(x[i], y, atol=100 * np.finfo(dtype).eps)
  k = min(shape)
  assert (packed.shape, scales.shape, r.shape, permutation.shape) == (
      a.shape, (3, k), (3, k, shape[1]), (3, shape[1]))
  spoilt = a.copy()
  spoilt[1, 0] = np.nan
  for x, y in zip(jax.tree.leaves(function(spoilt)), jax.tree.leaves(found), strict=True):
    np.testing.assert_array_equal(x[::2], y[::2])


@pytest.mark.extended
@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_derivatives_of_pivoted_raw_factors(shape, rng):
  a = matrices.general(rng, (), *shape, np.dtype(np.float64))
  function = lambda a: linalg.scipy.qr(a, mode="raw", pivoting=True)[:2]
  derivatives.check(function, (a,), rng, tolerance=1e-6)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=lambda kind: kind.name)
def test_sharded_pivoted_raw_factors(kind, rng):
  a = matrices.general(rng, (BATCH,), 6, 4, np.dtype(np.float64))
  sharded = place((a,), make_mesh(kind=kind), "x")
  function = lambda a: linalg.scipy.qr(a, mode="raw", pivoting=True)
  compiled = quick_compile(function, sharded)
  moves_nothing(compiled.as_text())
  results = compiled(*sharded)
  close(results, quick_jit(function)(a), 1e-12)
  sharded_like(results, make_mesh(kind=kind), "x")


@pytest.mark.parametrize("only", [False, True], ids=["pairs", "values"])
def test_tridiagonal_in_an_interval(only, rng):
  """select='v' gives SciPy's eigenvalues; NaN follows where a batch has fewer."""
  d, e = rng.standard_normal((2, 8)), rng.standard_normal((2, 7))
  options = {"select": "v", "select_range": (-0.5, 1.2), "eigvals_only": only}
  found = linalg.scipy.eigh_tridiagonal(d, e, lapack_driver="stebz", **options)
  w = found if only else found[0]
  for i in range(2):
    expected = scipy.linalg.eigh_tridiagonal(d[i], e[i], **options)
    expected, *vectors = [expected] if only else expected
    count = len(expected)
    np.testing.assert_allclose(w[i, :count], expected, atol=1e-12)
    assert np.isnan(w[i, count:]).all()
    for v in vectors:
      np.testing.assert_allclose(np.abs(found[1][i, :, :count]), np.abs(v), atol=1e-10)
  with pytest.raises(TypeError, match="eigh_tridiagonal: the number of eigenvalues"):
    jax.jit(lambda d: linalg.scipy.eigh_tridiagonal(d, jnp.asarray(e), **options))(d)
  with pytest.raises(ValueError, match="eigh_tridiagonal: only one of select='v'"):
    linalg.scipy.eigh_tridiagonal(d, e, subset_by_index=(0, 2), **options)


def test_drivers():
  """SciPy's names of routines are checked as SciPy does."""
  a, d, e = np.eye(3), np.ones(3), np.ones(2)
  wrong = [
      (linalg.scipy.svd, (a,), {"lapack_driver": "gesvx"}, "must be one of gesdd, gesvd"),
      (linalg.scipy.null_space, (a,), {"lapack_driver": "gesvx"}, "must be one of gesdd, gesvd"),
      (linalg.scipy.eigh, (a,), {"driver": "gvx"}, "must be one of ev, evd"),
      (linalg.scipy.eigh, (a, a), {"driver": "evr"}, "must be one of gv, gvd"),
      (linalg.scipy.eigh, (a,), {"driver": "evd", "subset_by_index": [0, 1]}, "takes no subset"),
      (linalg.scipy.eigvalsh, (a,), {"driver": "ev", "subset_by_value": [0, 1]}, "takes no subset"),
      (linalg.scipy.eigh_tridiagonal, (d, e), {"lapack_driver": "sterf"}, "finds no eigenvectors"),
      (linalg.scipy.eigh_tridiagonal, (d, e),
       {"lapack_driver": "sterf", "eigvals_only": True, "subset_by_index": (0, 1)},
       "takes select='a' alone, and no subset"),
      (linalg.scipy.eigvalsh_tridiagonal, (d, e),
       {"lapack_driver": "stev", "select": "i", "select_range": (0, 1)}, "takes select='a' alone")]
  for function, operands, options, message in wrong:
    with pytest.raises(ValueError, match=f"^{function.__name__}: the driver .*{message}"):
      function(*operands, **options)
  with pytest.raises(TypeError, match="svd: the driver must be a string"):
    linalg.scipy.svd(a, lapack_driver=1.0)


def test_lists_in_a_pair():
  """A pair of lists is a pair of vectors, as in SciPy."""
  c, r, b = [4, 2, 1], [4, 3, 1], [5, 1, 4]
  np.testing.assert_allclose(
      linalg.scipy.solve_toeplitz((c, r), b), scipy.linalg.solve_toeplitz((c, r), b), rtol=1e-5)
