"""Derivative rules that have handlers: the handlers agree with the formulas."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import derivatives
import linalg
import selection
from linalg._catalogue import matrices, structured
from linalg._factorizations import (
  cholesky,
  cholesky_update,
  det,
  eigh,
  qr,
  solve,
  solve_logdet,
  svd,
)
from linalg.structured import _block_tridiagonal_operations as block_tridiagonal
from quick import quick_jit

ONE_IN = 5

SIZES = [1, 2, 4, 7, 13, 32]
CHOLESKY_SIZES = [*SIZES, 33, 70]  # in lanes and in tiles
ATTRIBUTES = [
    {"lower": lower, "symmetrize": symmetrize}
    for lower in (True, False) for symmetrize in (True, False)]


def _operands(rng, n, dtype, batch=(19,)):
  a = matrices.positive_definite(rng, batch, n, dtype)
  return a, matrices.general(rng, batch, n, n, dtype)


def _near(x, y, n):
  x, y = np.asarray(x), np.asarray(y)
  bound = (20 + 3 * n) * np.finfo(x.dtype).eps * np.abs(y).max(initial=0)
  assert x.dtype == y.dtype
  np.testing.assert_allclose(x, y, rtol=0, atol=bound)


def _near_by_gaps(found, expected, gaps, tangent):
  """Calls `_near` for derivatives of vectors, which divide by the nonzero `gaps` (batch, n, k)."""
  batch, n = gaps.shape[:2]
  # The rounding error of a difference of eigenvalues.
  steepest = (1 / np.min(gaps, axis=(-1, -2), initial=1, where=gaps > 0))[:, None, None]
  bound = 60 * n * np.finfo(tangent.dtype).eps * steepest * (1 + np.abs(tangent).max())
  for x, y in zip(found, expected, strict=True):
    assert x.dtype == y.dtype
    x, y = (np.reshape(z, (batch, n, -1)) for z in (x, y))
    assert np.all(np.abs(x - y) <= bound)


def _formula_and_transpose(formula, factors, tangent, cotangent):
  """formula(*factors), which is linear, of a tangent, and its transpose of a cotangent."""
  linear = formula(*factors)
  return linear(tangent), jax.linear_transpose(linear, tangent)(cotangent)[0]


@selection.all_dtypes
@pytest.mark.parametrize("attributes", ATTRIBUTES, ids=str)
@pytest.mark.parametrize("n", CHOLESKY_SIZES)
def test_cholesky(n, attributes, dtype, rng):
  """Both modes agree with the formula and its transpose."""
  a, x = _operands(rng, n, dtype)

  @quick_jit
  def both(a, x):
    factor, _ = cholesky.cholesky_p(a, **attributes)
    expected = _formula_and_transpose(
        lambda factor: lambda da: cholesky._tangent(factor, da, **attributes)[0], (factor,), x, x)
    rules = (cholesky.cholesky_jvp_p, cholesky.cholesky_vjp_p)
    return [rule(factor, x, **attributes) for rule in rules], expected

  for found, expected in zip(*both(a, x), strict=True):
    _near(found, expected, n)


@selection.all_dtypes
@pytest.mark.parametrize("n", CHOLESKY_SIZES)
def test_full_cholesky(n, dtype, rng):
  """`test_cholesky` along matrices that are not Hermitian; the upper triangle of the factor is not
  read."""
  a, x = _operands(rng, n, dtype)

  @quick_jit
  def both(a, x):
    factor, _ = cholesky.cholesky_p(a)
    expected = _formula_and_transpose(
        lambda factor: lambda da: cholesky._full_tangent(factor, da)[0], (factor,), x, x)
    spoilt = jnp.where(jnp.tri(n, dtype=bool), factor, jnp.nan)
    rules = (cholesky.cholesky_full_jvp_p, cholesky.cholesky_full_vjp_p)
    return [rule(spoilt, x) for rule in rules], expected

  for found, expected in zip(*both(a, x), strict=True):
    _near(found, expected, n)


def _updated(rng, n, dtype, batch=(19,)):
  """Upper factors, vectors that leave the matrices definite, and cotangents.

  The vector of matrix 3 leaves half of the rows as they are, and the diagonal there is negative.
  """
  a, x = _operands(rng, n, dtype, batch)
  r = np.array(linalg.cholesky(a, upper=True))
  z = matrices.general(rng, batch, n, 1, dtype)
  z /= 2 * np.linalg.norm(z, axis=-2, keepdims=True)
  if batch and batch[0] > 3:
    z[3, : n // 2] = 0
    r[3, : n // 2] *= -1
  return r, (np.conj(np.swapaxes(r, -1, -2)) @ z)[..., 0], x


@selection.all_dtypes
@pytest.mark.parametrize("downdate", [False, True])
@pytest.mark.parametrize("n", CHOLESKY_SIZES)
def test_cholesky_update(n, downdate, dtype, rng):
  """Cotangents are those of the transposed formula; below the diagonal of R they are 0."""
  r, w, x = _updated(rng, n, dtype)

  @quick_jit
  def both(r, w, x):
    formula = lambda dr, dw: cholesky_update._tangent(r, w, dr, dw, downdate=downdate)[0]
    expected = jax.linear_transpose(formula, r, w)(x)
    spoilt = jnp.where(jnp.tri(n, k=-1, dtype=bool), jnp.nan, r)
    return cholesky_update.cholesky_update_vjp_p(spoilt, w, x, downdate=downdate), expected

  found, expected = both(r, w, x)
  assert not np.any(np.tril(found[0], -1))
  for y, z in zip(found, expected, strict=True):
    assert np.isfinite(z).all()
    _near(y, z, n)


@selection.all_dtypes
@pytest.mark.parametrize("attributes", ATTRIBUTES, ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_eigh(n, attributes, dtype, rng):
  """Both modes agree with the formula and its transpose, at equal eigenvalues too."""
  a, x = _operands(rng, n, dtype)
  _, v, _ = eigh.eigh_p(a)
  w = np.sort(rng.standard_normal((len(a), n)), axis=-1).astype(v.real.dtype)
  w[3:5, n // 2 :] = w[3:5, n // 2, None]
  w[5] = 0
  cotangents = rng.standard_normal(w.shape).astype(w.dtype), matrices.general(
      rng, (len(a),), n, n, dtype)

  @quick_jit
  def both(w, v, x, cotangents):
    expected = _formula_and_transpose(
        lambda w, v: lambda da: tuple(eigh._tangents(w, v, da, **attributes)), (w, v), x,
        cotangents)
    return (
        eigh.eigh_jvp_p(w, v, x, **attributes), eigh.eigh_vjp_p(w, v, *cotangents, **attributes)
    ), expected

  (tangents, found), (forward, expected) = both(w, v, x, cotangents)
  gaps = np.abs(w[:, :, None] - w[:, None, :])
  _near_by_gaps((*tangents, found), (*forward, expected), gaps, x)


@selection.all_dtypes
@pytest.mark.parametrize("n", SIZES)
def test_svd(n, dtype, rng):
  """Derivatives are those of the formula and its transpose, also at equal and zero values."""
  a, x = _operands(rng, n, dtype)
  u, _, vh, _ = svd.svd_p(x)
  s = (np.arange(n, 0, -1) + rng.uniform(0, 0.5, (len(a), n))).astype(u.real.dtype)
  s[3:5, n // 2 :] = s[3:5, n // 2, None]
  s[5, n // 2 :] = 0
  s[6] = 0
  cotangents = [
      matrices.general(rng, (len(a),), n, n, dtype), rng.standard_normal(s.shape).astype(s.dtype),
      matrices.general(rng, (len(a),), n, n, dtype)]

  @quick_jit
  def both(u, s, vh, x, cotangents):
    expected = _formula_and_transpose(
        lambda u, s, vh: lambda da: svd._tangents(u, s, vh, da), (u, s, vh), x, cotangents)
    return (svd.square_jvp_p(u, s, vh, x), svd.square_vjp_p(u, s, vh, *cotangents)), expected

  (tangents, found), (forward, expected) = both(u, s, vh, a, cotangents)
  gaps = np.concatenate([np.abs(s[:, :, None] - s[:, None, :]), s[:, :, None]], axis=-1)
  _near_by_gaps((*tangents, found), (*forward, expected), gaps, a)


@selection.all_dtypes
@pytest.mark.parametrize("m, n", [(1, 1), (2, 2), (4, 4), (5, 3), (13, 4), (7, 7), (32, 32)])
def test_qr(m, n, dtype, rng):
  """Both modes agree with the formula and its transpose."""
  a, da, q_ct = (matrices.general(rng, (19,), m, n, dtype) for _ in range(3))
  r_ct = matrices.general(rng, (19,), n, n, dtype)

  @quick_jit
  def both(a, da, q_ct, r_ct):
    q, r = linalg.qr(a)
    expected = _formula_and_transpose(
        lambda q, r: lambda da: qr._thin_tangents(q, r, da), (q, r), da, [q_ct, r_ct])
    return (qr.thin_jvp_p(q, r, da), qr.thin_vjp_p(q, r, q_ct, r_ct)), expected

  (tangents, found), (forward, expected) = both(a + 2 * np.eye(m, n, dtype=dtype), da, q_ct, r_ct)
  for x, y in zip(tangents, forward, strict=True):
    np.testing.assert_allclose(
        x, y, rtol=0, atol=60 * n * np.finfo(dtype).eps * (1 + np.abs(y).max()))
  assert found.dtype == dtype
  np.testing.assert_allclose(
      found, expected, rtol=0, atol=60 * n * np.finfo(dtype).eps * np.abs(expected).max())


@selection.all_dtypes
@pytest.mark.parametrize("n, k", [(1, 1), (2, 3), (4, 1), (7, 2), (13, 1), (32, 1)])
def test_positive_solve_logdet(n, k, dtype, rng):
  """Forward and backward, against the formula and its transpose."""
  a, da = _operands(rng, n, dtype)
  x, db, x_ct = (matrices.general(rng, (19,), n, k, dtype) for _ in range(3))
  logdet_ct = rng.standard_normal(19).astype(a.real.dtype)

  @quick_jit
  def both(a, x, da, db, x_ct, logdet_ct):
    factor, _ = cholesky.cholesky_p(a)
    formula = lambda da, db: solve_logdet._tangents(factor, x, da, db)
    expected = formula(da, db), jax.linear_transpose(formula, da, db)([x_ct, logdet_ct])
    return (
        solve_logdet.positive_solve_logdet_jvp_p(factor, x, da, db),
        solve_logdet.positive_solve_logdet_vjp_p(factor, x, x_ct, logdet_ct)
    ), expected

  found, expected = both(a, x, da, db, x_ct, logdet_ct)
  for y, z in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    _near(y, z, n)


@selection.all_dtypes
@pytest.mark.parametrize("steps, d, k", [(1, 1, 1), (9, 1, 1), (5, 1, 2), (6, 2, 1), (4, 5, 3)])
def test_block_tridiagonal(steps, d, k, dtype, rng):
  """The transpose, against that of the formula; a system that fails, and the others' bits."""
  diagonal, lower, b = structured.definite(rng, (19,), steps, d, np.dtype(dtype))
  diagonal[3, steps // 2] *= -1
  x, x_ct = (matrices.general(rng, (19, steps), d, k, dtype) for _ in range(2))
  logdet_ct = rng.standard_normal(19).astype(b.real.dtype)

  @quick_jit
  def rule(*operands):
    return block_tridiagonal.solve_logdet_vjp_p(*operands)

  @quick_jit
  def transposed(diagonal, lower, x, x_ct, logdet_ct):
    kind = block_tridiagonal.operations_of(steps)
    formula = functools.partial(block_tridiagonal._tangents, kind, diagonal, lower, x)
    return jax.linear_transpose(
        lambda *tangents: tuple(formula(*tangents)), diagonal, lower, x)((x_ct, logdet_ct))

  operands = diagonal, lower, x, x_ct, logdet_ct
  found = [np.asarray(y) for y in rule(*operands)]
  keep = np.arange(19) != 3
  for y, z in zip(found, transposed(*operands), strict=True):
    assert np.isnan(y[3]).all()
    _near(y[keep], z[keep], 4 * steps * d)
  for some in (slice(2, 5), slice(7, 8), slice(0, 17)):
    for y, part in zip(found, rule(*(x[some] for x in operands)), strict=True):
      np.testing.assert_array_equal(part, y[some])


COFACTORS = pytest.mark.parametrize(
    "cofactors",
    [lambda a: det.det_cofactors_p(a)[1], lambda a: det._det_cofactors_fallback(a)[1]],
    ids=["handler", "fallback"])


@selection.all_dtypes
@COFACTORS
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 17, 32, 33, 38])
def test_cofactors(n, cofactors, dtype, rng):
  """Cofactors of matrices of every rank in one batch agree with those from singular values.

  The transpose of adj(U S Vᴴ) is det(U Vᴴ) V adj(S) Uᴴ.
  """
  a = matrices.general(rng, (23,), n, n, dtype)
  wide = np.result_type(dtype, np.float64)
  # Integers, so that a repeated or a zero row gives pivots that are exactly zero. Cofactors of
  # large integers leave float32's range.
  a = a * (2 if n < 33 else 1)
  a = np.round(a.real).astype(wide) + (1j * np.round(a.imag) if dtype.kind == "c" else 0)
  if n > 1:
    a[3, 1] = a[3, 0]
    a[4] = a[4] * (np.arange(n) != n // 2)
  if n > 3:
    a[5, 2:4] = a[5, :2]
    a[6] = 0
    a[7] = np.eye(n, k=1)  # of rank n - 1; all pivots except one are zero
  u, s, vh = np.linalg.svd(a)
  others = np.stack([np.prod(np.delete(s, k, -1), axis=-1) for k in range(n)], axis=-1)
  phase = np.linalg.det(u) * np.linalg.det(vh)
  adjoint = lambda x: np.swapaxes(x, -1, -2).conj()
  expected = phase[:, None, None] * (adjoint(vh) * others[:, None, :]) @ adjoint(u)
  found = np.asarray(quick_jit(cofactors)(jnp.asarray(a.astype(dtype)))).mT
  assert found.dtype == dtype
  # The effect of rounding A on the products of all singular values except one.
  bound = 100 * n * np.finfo(dtype).eps * s[:, 0] * np.prod(s[:, : max(n - 2, 0)], axis=-1)
  assert np.all(np.abs(found - expected).max(axis=(-1, -2)) <= bound)
  if n > 3:
    np.testing.assert_array_equal(found[6], 0)


@selection.all_dtypes
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 8, 33])
@pytest.mark.parametrize("function", [linalg.det, linalg.slogdet], ids=["det", "slogdet"])
def test_value_with_its_derivative(function, n, dtype, rng):
  """The bits are those of the value alone, also for singular matrices and for one with NaN."""
  a = np.round(matrices.general(rng, (23,), n, n, dtype) * 3).astype(dtype)
  if n > 1:
    a[3:9, 1] = 3 * a[3:9, 0]
    a[9, 0, 0] = np.nan
  alone = jax.tree.leaves(quick_jit(function)(a))
  along, _ = quick_jit(lambda a: jax.jvp(function, (a,), (a,)))(a)
  for x, y in zip(alone, jax.tree.leaves(along), strict=True):
    np.testing.assert_array_equal(x, y)


def test_cofactors_in_range(dtype):
  """The determinant alone would overflow, or the inverse would."""
  big, small = (1e30, 1e-42) if dtype == np.float32 else (1e200, 1e-320)
  for diagonal in (
      [big, big, 1 / big, 1 / big, 1 / big], [small, big, 1, 1 / big, 1], [big, big, big, 1, 0]):
    a = np.diag(np.asarray(diagonal, dtype))[None]
    wide = np.diagonal(a.real, axis1=-2, axis2=-1)[0].astype(np.longdouble)
    expected = np.diag([np.prod(np.delete(wide, k)) for k in range(5)])
    with np.errstate(over="ignore"):
      expected = expected.astype(dtype)
    np.testing.assert_allclose(det.det_cofactors_p(a)[1][0], expected, rtol=1e-5)


@pytest.mark.cpu
@pytest.mark.parametrize("operation, target, beyond", [
    (linalg.cholesky, "linalg_cholesky", 1), (lambda a: linalg.qr(a)[0], "linalg_qr", 0),
    (lambda a: linalg.svd(a)[0], "linalg_svd", 0)])
def test_which_sizes_have_handlers(operation, target, beyond, rng):
  """The handler is called once. Beyond the limit, except for Cholesky, other operations are
  faster."""
  for n, count in ((32, 1), (33, beyond)):
    a, x = _operands(rng, n, np.float32)
    gradient = jax.jit(jax.grad(lambda a, x=x: jnp.sum(operation(a) * x)))
    text = gradient.lower(a).compile().as_text()
    assert text.count(f'custom_call_target="{target}_vjp') == count
    tangent = jax.jit(lambda a, x: jax.jvp(operation, (a,), (x,)))
    text = tangent.lower(a, x).compile().as_text()
    assert text.count(f'custom_call_target="{target}_jvp') == count


def test_solve_factors_once(rng):
  """The solve passes the factors on, which are those of `lu`."""
  a, b = _operands(rng, 7, np.float64)
  text = jax.jit(jax.grad(lambda a: jnp.sum(linalg.solve(a, b)))).lower(a).compile().as_text()
  assert text.count('custom_call_target="linalg_solve_lu') == 1
  assert 'custom_call_target="linalg_lu"' not in text
  _, packed, pivots, _ = solve.solve_lu_p(a, b)
  expected = linalg.lu_factor(a)
  _near(packed, expected[0], 7)
  np.testing.assert_array_equal(pivots, expected[1])


def test_systems_without_elements():
  """Their info still has elements, so the handler is called."""
  operands = np.zeros((2, 0, 0)), np.zeros((2, 0, 3))
  (_, info), _ = jax.jvp(linalg.solve_ex, operands, operands)
  np.testing.assert_array_equal(info, [0, 0])


@selection.all_dtypes
@pytest.mark.parametrize("n", [3, 8, pytest.param(32, marks=pytest.mark.cpu)])
def test_bits_do_not_depend_on_the_batch(n, dtype, rng):
  a, x = _operands(rng, n, dtype, (37,))
  upper, w, _ = _updated(rng, n, dtype, (37,))
  a[30] = 0  # singular, and not positive definite

  @quick_jit
  def results(a, x, factor, q, r, upper, w):
    diagonal = jnp.diagonal(a, axis1=-2, axis2=-1).real
    return jax.tree.leaves((
        cholesky.cholesky_jvp_p(factor, x), cholesky.cholesky_vjp_p(factor, x),
        [cholesky_update.cholesky_update_vjp_p(upper, w, x, downdate=y) for y in (False, True)],
        det.det_cofactors_p(a), det.slogdet_inv_transposed_p(a),
        eigh.eigh_jvp_p(diagonal, q, x), eigh.eigh_vjp_p(diagonal, q, diagonal, x),
        qr.thin_jvp_p(q, r, a), qr.thin_vjp_p(q, r, a, x),
        solve_logdet.positive_solve_logdet_jvp_p(factor, x[..., :2], a, x[..., 1:3]),
        solve_logdet.positive_solve_logdet_vjp_p(factor, x[..., :2], a[..., :2], a[..., 0, 0].real),
        solve_logdet.solve_slogdet_inv_transposed_p(x, a[..., :1]),
        solve.solve_lu_p(x, a), svd.square_jvp_p(q, diagonal, q, x),
        svd.square_vjp_p(q, diagonal, q, a, diagonal, x)))

  operands = (a, x, linalg.cholesky(a), *linalg.qr(x), upper, w)
  whole = [np.asarray(y) for y in results(*operands)]
  for some in (slice(7, 36), slice(29, 32), slice(30, 31)):
    for y, part in zip(whole, results(*(x[some] for x in operands)), strict=True):
      np.testing.assert_array_equal(part, y[some])


@pytest.mark.cpu
@selection.all_dtypes
def test_large_cholesky(dtype, rng):
  """Matrices have several blocks of rows.

  The bits agree whether threads share a batch or one matrix.
  """
  a, x = _operands(rng, 300, dtype, (3,))
  factor = linalg.cholesky(a)

  @quick_jit
  def formula(factor, x):
    tangents = (
        functools.partial(cholesky._tangent, lower=True, symmetrize=True), cholesky._full_tangent)
    return [
        y for tangent in tangents for y in _formula_and_transpose(
            lambda factor, tangent=tangent: lambda da: tangent(factor, da)[0], (factor,), x, x)]

  rules = (
      cholesky.cholesky_jvp_p, cholesky.cholesky_vjp_p, cholesky.cholesky_full_jvp_p,
      cholesky.cholesky_full_vjp_p)
  for rule, expected in zip(rules, formula(factor, x), strict=True):
    whole = np.asarray(rule(factor, x))
    _near(whole, expected, 300)
    for i in range(3):
      np.testing.assert_array_equal(rule(factor[i], x[i]), whole[i])


def test_third_derivatives(rng):
  """The derivatives of a tangent are right to second order."""
  a, direction = _operands(rng, 3, np.float64, ())
  tangent = lambda a: jax.jvp(linalg.cholesky, (a,), (jnp.broadcast_to(direction, a.shape),))[1]
  derivatives.check(tangent, (a,), rng)


@pytest.mark.parametrize("n", [6, 60])
def test_a_failed_matrix_spoils_its_own_derivative_alone(n, rng):
  a, x = _operands(rng, n, np.float64, (20,))
  broken = a.copy()
  broken[11] = -a[11]
  gradient = jax.grad(lambda a: jnp.sum(linalg.cholesky(a) * x))
  expected, found = np.array(gradient(a)), np.array(gradient(broken))
  assert np.isnan(found[11]).all()
  np.testing.assert_array_equal(np.delete(found, 11, 0), np.delete(expected, 11, 0))


@pytest.mark.cpu
def test_sharded(rng):
  """The gradient is sharded like the batch."""
  mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
  a, x = (
      jax.device_put(y, NamedSharding(mesh, PartitionSpec("x")))
      for y in _operands(rng, 5, np.float64, (32,)))
  gradient = jax.jit(lambda a, x: jax.vjp(linalg.cholesky, a)[1](x)[0])
  compiled = gradient.lower(a, x).compile()
  assert "all-" not in compiled.as_text()
  found = compiled(a, x)
  assert found.sharding.spec[0] == "x"
  np.testing.assert_array_equal(found, gradient(np.asarray(a), np.asarray(x)))
