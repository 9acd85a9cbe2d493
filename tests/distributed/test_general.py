"""General square matrices that several devices share: results are those of linalg's own
functions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import cases
import linalg
import linalg.distributed as dist
import matrices
from linalg.distributed import _cyclic, _layout, _lu_cyclic
from one_matrix import AXES, PANEL, N, close, each_derivative, each_result, mesh_of, place
from quick import quick_compile, quick_jit
from sharded import KINDS


@each_result
def test_results(layout, kind, dtype, rng):
  """The inverse is sharded like A, and x like b; other results are on all devices."""
  a = matrices.general(rng, (), N, N, dtype)
  b = matrices.general(rng, (), N, 2, dtype)
  x = place(a, layout, kind)
  factor = dist.lu_factor(x, panel=PANEL)
  assert factor.grid.padded == 48 and factor.info == 0
  check_factors(factor, a, dtype)
  columns = jax.device_put(b, NamedSharding(x.sharding.mesh, P("x", None)))
  for found in (factor.solve(columns), dist.lu_solve(factor, b)):
    close(found, np.linalg.solve(a, b), dtype, 1e4)
  assert factor.solve(columns).sharding.is_equivalent_to(columns.sharding, 2)
  close(dist.lu_solve(factor, b[:, 0], "T"), np.linalg.solve(a.T, b[:, 0]), dtype, 1e4)
  close(dist.lu_solve(factor, b, 2), np.linalg.solve(a.conj().T, b), dtype, 1e4)
  inverse, (sign, logdet) = factor.inverse(), factor.slogdet()
  close(inverse, np.linalg.inv(a), dtype, 1e4)
  assert inverse.sharding.is_equivalent_to(x.sharding, 2) and inverse.dtype == dtype
  expected = np.linalg.slogdet(a)
  close(sign, expected[0], dtype)
  close(logdet, expected[1], dtype)
  close(factor.det() / np.linalg.det(a), 1, dtype)
  assert sign.dtype == dtype and logdet.dtype == np.finfo(dtype).dtype
  assert sign.sharding.is_fully_replicated and logdet.sharding.is_fully_replicated


def check_factors(factor, a, dtype):
  """A[p] = L U, for factors that are far from each other in the layout."""
  order = np.asarray(factor.order)
  np.testing.assert_array_equal(order, np.broadcast_to(order[0], order.shape))
  order, n = order[0], len(a)
  np.testing.assert_array_equal(np.sort(order), np.arange(factor.grid.padded))
  np.testing.assert_array_equal(order[n:], np.arange(n, factor.grid.padded))
  packed = unrolled(factor.grid, np.asarray(factor.blocks))[:n, :n]
  l, u = np.tril(packed, -1) + np.eye(n), np.triu(packed)
  close(l @ u, a[order[:n]], dtype)
  return l


def unrolled(g, blocks):
  """The matrix from each device's part, by the layout that docs/distributed_algorithms.md draws."""
  found = np.zeros((g.padded, g.padded), blocks.dtype)
  t = np.arange(g.padded) // g.block
  for r in range(g.rows):
    for c in range(g.columns):
      rows, columns = t % g.rows == r, t // g.rows % g.columns == c
      found[np.ix_(rows, columns)] = blocks[r * g.columns + c]
  return found


@cases.each_dtype(np.float32, np.float64, np.complex64, np.complex128)
@pytest.mark.parametrize("n", [96, pytest.param(512, marks=pytest.mark.extended)])
def test_residuals(n, dtype, rng):
  """‖A x - b‖ / (‖A‖ ‖x‖) is at most 4 times linalg.solve's and 4 eps, and L stays small."""
  a, b = matrices.general(rng, (), n, n, dtype), matrices.general(rng, (), n, 1, dtype)
  factor = dist.lu_factor(place(a, "both"))

  def residual(x):
    x, wide = np.asarray(x, np.complex128), a.astype(np.complex128)
    return np.linalg.norm(wide @ x - b) / (np.linalg.norm(a) * np.linalg.norm(x))

  eps = np.finfo(dtype).eps
  assert residual(factor.solve(b)) <= 4 * residual(linalg.solve(a, b)) + 4 * eps
  assert np.abs(check_factors(factor, a, dtype)).max() < 8


def test_pivots_that_are_needed():
  """All devices' rows are exchanged for a matrix with zero leading minors, such as a
  permutation."""
  order = np.roll(np.arange(N), 13)[::-1]
  a = np.diag(np.arange(1.0, N + 1))[order]
  factor = dist.lu_factor(place(a, "both"), panel=PANEL)
  assert factor.info == 0
  check_factors(factor, a, np.float64)
  sign, logdet = factor.slogdet()
  assert factor.logdet() == logdet
  assert sign == np.linalg.slogdet(a)[0]
  close(logdet, np.linalg.slogdet(a)[1], np.float64)


def test_singular_but_for_rounding(rng):
  """Two equal columns: the determinant is 0, or rounding errors; on one device too."""
  good = matrices.general(rng, (), N, N, np.float64)
  bad = good.copy()
  bad[:, 29] = bad[:, 3]
  bound = np.linalg.slogdet(good)[1] + np.log(1e6 * np.finfo(np.float64).eps)
  for found in (dist.slogdet(place(bad, "both"), panel=PANEL), linalg.slogdet(bad)):
    assert found.sign == 0 or found.logabsdet < bound


@pytest.mark.extended
@pytest.mark.parametrize("layout", ["both", "columns"])
def test_singular(layout, rng):
  """info is the index of the first zero pivot; the determinant is 0, and solutions are NaN."""
  good = matrices.general(rng, (), N, N, np.float64)
  for order in (1, 17, 19, N):
    bad = good.copy()
    bad[:, order - 1] = 0
    x = place(bad, layout)
    factor = dist.lu_factor(x, panel=PANEL)
    assert factor.info == order == linalg.lu_ex(bad)[3]
    check_factors(factor, bad, np.float64)
    assert factor.slogdet() == (0, -np.inf) and factor.det() == 0
  solution, info = dist.solve_ex(x, np.ones(N))
  inverse, same = dist.inv_ex(x)
  assert info == same == N and np.isnan(solution).all() and np.isnan(inverse).all()
  for bad in (np.zeros((N, N)), np.ones((N, N)), np.diag(np.arange(N) % 2.0)):
    factor = dist.lu_factor(place(bad, layout), panel=PANEL)
    assert factor.info == linalg.lu_ex(bad)[3]
    check_factors(factor, bad, np.float64)
    assert factor.slogdet() == (0, -np.inf)
  # A determinant out of range is 0 or Inf, as in jax.numpy, but no intermediate result is.
  half = np.arange(N) < N // 2
  for diagonal, expected in (
      (np.full(N, 1e10), np.inf), (np.full(N, 1e-10), 0), (np.where(half, np.inf, 2.0), np.inf),
      (np.where(half, 1e200, 1e-200), 1)):
    a = np.diag(diagonal)
    close(dist.lu_factor(place(a, layout), panel=PANEL).det(), expected, np.float64)
    assert expected == 1 or jnp.linalg.det(a) == expected
  # A complex determinant has no NaN from 0 times a factor out of range.
  a = 1e10 * np.eye(N, dtype=np.complex64)
  assert dist.lu_factor(place(a, layout), panel=PANEL).det() == np.inf == linalg.det(a)


@pytest.mark.extended
def test_derivative_of_a_determinant_that_is_zero():
  """The whole derivative is NaN."""
  x = place(np.diag(np.arange(N, dtype=np.float64)), "both")
  gradient = quick_jit(jax.grad(lambda a: dist.det(a, axes=AXES, panel=PANEL)))
  with jax.set_mesh(x.sharding.mesh):
    assert np.isnan(gradient(x)).all()


@pytest.mark.extended
@pytest.mark.parametrize(
    "grid", [(2, 4), (8, 1), (1, 8)],
    ids=str)
def test_grids(grid, rng):
  """Catches code that is right only where the grid has more rows than columns, and several of
  both."""
  a = matrices.general(rng, (), N, N, np.float64)
  factor = dist.lu_factor(place(a, "rows"), panel=PANEL, grid=grid)
  assert (factor.grid.rows, factor.grid.columns) == grid
  check_factors(factor, a, np.float64)
  close(factor.inverse(), np.linalg.inv(a), np.float64, 1e4)
  for found, expected in zip(factor.slogdet(), np.linalg.slogdet(a), strict=True):
    close(found, expected, np.float64)


def test_nan(rng):
  """Makes all results NaN, and info -1 as linalg's."""
  bad = matrices.general(rng, (), N, N, np.float64)
  bad[21, 30] = np.nan
  factor = dist.lu_factor(place(bad, "both"), panel=PANEL)
  assert factor.info == -1 == linalg.lu_ex(bad)[3]
  for found in (factor.solve(np.ones(N)), factor.inverse(), *factor.slogdet(), factor.det()):
    assert np.isnan(found).all()


@pytest.mark.extended
def test_functions_of_one_call(rng):
  a, b = matrices.general(rng, (), N, N, np.float64), rng.standard_normal(N)
  x = place(a, "both")
  close(dist.solve(x, b), np.linalg.solve(a, b), np.float64, 1e4)
  close(dist.inv(x, panel=8, grid=(4, 2)), np.linalg.inv(a), np.float64, 1e4)
  for found, expected in zip(dist.slogdet(x), np.linalg.slogdet(a), strict=True):
    close(found, expected, np.float64)
  close(dist.det(x) / np.linalg.det(a), 1, np.float64)
  with jax.numpy_dtype_promotion("standard"):
    wide = dist.solve(place(a.astype(np.float32), "both"), b)
  assert wide.dtype == np.float64
  close(wide, np.linalg.solve(a.astype(np.float32).astype(np.float64), b), np.float64, 1e4)


@pytest.mark.extended
def test_small():
  """Matrices with no rows and with one: the rest of a panel is padding."""
  mesh, _ = mesh_of("both")
  with jax.set_mesh(mesh):
    assert dist.inv(np.zeros((0, 0))).shape == (0, 0)
    assert dist.slogdet(np.zeros((0, 0))) == (1, 0)
    assert dist.solve(np.full((1, 1), -4.0), np.ones(1)) == -0.25
    assert dist.slogdet(np.full((1, 1), -4.0)).sign == -1


@pytest.mark.parametrize("name,call", [
    ("solve", lambda a: dist.solve(a, np.ones(len(a)), axes=AXES)),
    pytest.param("inv", lambda a: dist.inv(a, axes=AXES), marks=pytest.mark.extended),
    pytest.param("lu_factor", lambda a: dist.lu_factor(a, axes=AXES).info,
                 marks=pytest.mark.extended)])
def test_checked(name, call):
  x = place(np.zeros((N, N)), "both")
  message = rf"^{name}: the matrix at index \(\) is singular: pivot 1"
  with jax.set_mesh(x.sharding.mesh), pytest.raises(linalg.LinAlgError, match=message):
    linalg.checked(call)(x)


def test_a_factor_is_a_pytree(rng):
  """A factor has one type, for traced and for concrete matrices, so branches and loops accept
  it."""
  a = matrices.general(rng, (), N, N, np.float64)
  x = place(a, "both")
  eager = dist.lu_factor(x)

  def several(factor, x):
    factor = jax.lax.cond(factor.info == 0, lambda: factor, lambda: dist.lu_factor(x, axes=AXES))
    return jax.lax.scan(lambda f, _: (f, f.info), factor, None, length=2)[0]

  with jax.set_mesh(x.sharding.mesh):
    traced = jax.jit(several)(eager, x)
  assert jax.tree.structure(traced) == jax.tree.structure(eager)
  close(dist.lu_solve(traced, a[:, 0]), np.eye(N)[0], np.float64, 1e4)


def determinants(library, a, **axes):
  """slogdet and det, the latter over its own value, which is large."""
  factor = dist.lu_factor(a, **axes) if library is dist else None
  sign, logarithm = factor.slogdet() if factor else linalg.slogdet(a)
  det = factor.det() if factor else linalg.det(a)
  return sum(x.real + x.imag for x in (sign, logarithm, det / jax.lax.stop_gradient(det)))


CALLS = {
    "solve": lambda library, a, b, **axes: library.solve(a, b, **axes),
    "transposed": lambda library, a, b, **axes: library.lu_solve(
        library.lu_factor(a, **axes), b, 1),
    "determinants": lambda library, a, b, **axes: determinants(library, a, **axes),
    "inv": lambda library, a, b, **axes: library.inv(a, **axes)}


def derivatives(call, library, **axes):
  """Derivatives are right: forward, reverse, and forward over reverse."""
  value = functools.partial(call, library, **axes)
  gradient = jax.grad(lambda a, b: jnp.sum(jnp.abs(value(a, b)) ** 3), (0, 1))
  return lambda a, b, da, db: (
      jax.jvp(value, (a, b), (da, db)), jax.jvp(gradient, (a, b), (da, db)))


@pytest.mark.extended
@each_derivative(CALLS, ("solve", AxisType.Explicit, np.complex128))
def test_derivatives(name, kind, dtype, rng):
  """Derivatives are those of linalg's functions; no device holds a matrix."""
  n = 24
  host = [matrices.general(rng, (), n, k, dtype) for k in (n, 2, n, 2)]
  lie = [place(x, "both", kind) if x.shape[1] == n else x for x in host]
  with jax.set_mesh(lie[0].sharding.mesh), jax.numpy_rank_promotion("allow"):
    program = quick_compile(derivatives(CALLS[name], dist, axes=AXES, panel=PANEL), lie)
    found = jax.tree.leaves(program(*lie))
    expected = jax.tree.leaves(quick_jit(derivatives(CALLS[name], linalg))(*host))
  letter = {np.dtype(np.complex128): "c128", np.dtype(np.float64): "f64"}[np.dtype(dtype)]
  grown = _cyclic.cyclic_of("", _layout.square_of("", lie[0], AXES), n, None, PANEL).padded
  assert grown == 32
  for size in {n, grown}:
    assert f"{letter}[{size},{size}]" not in program.as_text()
  for x, y in zip(found, expected, strict=True):
    close(x, y, dtype, 1e6)


@pytest.mark.extended
@KINDS
def test_vmap(kind, rng):
  """`vmap` over a dimension that no device shares, with gradients."""
  a = np.stack([matrices.general(rng, (), 24, 24, np.float64) for _ in range(2)])
  b = np.ones(24)
  mesh, _ = mesh_of("both", kind)
  x = jax.device_put(a, NamedSharding(mesh, P(None, "x", "y")))

  def loss(library, a, **axes):
    return jnp.sum(library.solve(a, b, **axes) ** 2) + library.slogdet(a, **axes).logabsdet

  with jax.set_mesh(mesh):
    both = jax.vmap(jax.value_and_grad(functools.partial(loss, dist, axes=AXES)))
    program = quick_compile(both, (x,))
    found = program(x)
  expected = jax.vmap(jax.value_and_grad(functools.partial(loss, linalg)))(jnp.asarray(a))
  for mine, theirs in zip(found, expected, strict=True):
    close(mine, theirs, np.float64, 1e6)
  assert "f64[24,24]" not in program.as_text() and "f64[2,24,24]" not in program.as_text()


@pytest.mark.parametrize(
    "n", [2, 40, *(pytest.param(n, marks=pytest.mark.extended) for n in (3, 97))])
def test_the_sign_of_a_permutation(n, rng):
  for _ in range(4):
    order = rng.permutation(n)
    is_odd = np.linalg.det(np.eye(n)[order]) < 0
    assert _lu_cyclic.is_odd(jnp.asarray(order, np.int32)) == is_odd


@pytest.mark.extended
def test_all_phases(rng, all_phases):
  a = matrices.general(rng, (), 256, 256, np.float64)
  factor = dist.lu_factor(place(a, "both"), panel=8)
  check_factors(factor, a, np.float64)
  close(factor.inverse(), np.linalg.inv(a), np.float64, 1e5)


@pytest.mark.parametrize("call,error,message", [
    (lambda x: dist.lu_factor(x[:8]), ValueError, r"one square matrix \[n, n\]"),
    (lambda x: dist.lu_factor(np.asarray(x)), ValueError, "needs a mesh"),
    (lambda x: dist.lu_solve((x, np.arange(N)), np.ones(N)), TypeError, "lu_factor returns"),
    (lambda x: dist.solve(x, np.ones(8)), ValueError, "Incompatible shapes"),
    (lambda x: dist.lu_solve(dist.lu_factor(x), np.ones(N), 3), ValueError, "trans must be"),
    (lambda x: dist.solve(x, np.ones(N), assume_a="her"), NotImplementedError, "both of its tri"),
    (lambda x: dist.slogdet(x, assume_a="sym"), NotImplementedError, "linalg.slogdet on one"),
    (lambda x: dist.inv(x, assume_a="other"), ValueError, "must be 'gen' or 'pos'"),
])
def test_errors(call, error, message):
  with pytest.raises(error, match=message):
    call(place(np.eye(N), "both"))
