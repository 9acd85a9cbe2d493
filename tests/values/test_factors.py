"""Factors as objects: changes of the matrix, failures, transforms, sharding and derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import linalg
import matrices
from linalg._catalogue import checks
from linalg._core.algebra import symmetrized
from quick import quick_jit
from sharded import make_mesh, moves_nothing

N = 6


def _definite(rng, batch, dtype, n=N):
  return matrices.positive_definite(rng, batch, n, dtype)


def _vector(rng, batch, dtype, n=N):
  return matrices.general(rng, batch, n, 1, dtype)[..., 0] * np.dtype(dtype).type(0.3)


def _bordered(a, column, corner):
  above = np.concatenate([a, column[..., None]], -1)
  below = np.concatenate([column.conj(), corner[..., None].astype(a.dtype)], -1)
  return np.concatenate([above, below[..., None, :]], -2)


def _without(a, i):
  kept = [j for j in range(a.shape[-1]) if j != i]
  return a[..., kept, :][..., kept]


def _exchanged(a, i, column):
  a = a.copy()
  a[..., :, i], a[..., i, :] = column, column.conj()
  a[..., i, i] = column[..., i].real
  return a


def _agrees(factor, a):
  a = checks.wide(a)
  eps = np.finfo(factor.upper.dtype).eps
  assert not np.any(factor.info)
  atol = 100 * eps * np.abs(a).max()
  np.testing.assert_allclose(factor.lower(), np.linalg.cholesky(a), atol=atol)
  np.testing.assert_array_equal(factor.upper, np.triu(factor.upper))


@pytest.mark.parametrize("batch", [(), (3,)])
def test_changes_of_a_cholesky_factor(batch, dtype, rng):
  """Each factor is that of the changed matrix."""
  a, w = _definite(rng, batch, dtype), _vector(rng, batch, dtype)
  corner = np.sum(np.abs(w) ** 2, -1) + 9
  factor = linalg.factorize_cholesky(a)
  _agrees(factor, a)
  _agrees(linalg.CholeskyFactor.from_factor(linalg.cho_factor(a)), a)
  columns = np.stack([w, 2 * w[..., ::-1]], -1)
  more = a + columns @ checks.adjoint(columns)
  _agrees(factor.update(columns), more)
  _agrees(linalg.factorize_cholesky(more).downdate(columns), a)
  larger = _bordered(a, w, corner)
  _agrees(factor.append(w, corner), larger)
  two = _bordered(larger, np.concatenate([w, 0 * w[..., :1]], -1), corner + 3)
  _agrees(factor.append(two[..., :N, N:], two[..., N:, N:]), two)
  delete, replace = jax.jit(lambda f, i: f.delete(i)), jax.jit(lambda f, *x: f.replace(*x))
  for i in range(N):
    _agrees(delete(factor, i), _without(a, i))
    column = w.copy()
    column[..., i] = corner
    _agrees(replace(factor, i, column), _exchanged(a, i, column))
  _agrees(factor.delete(-1), _without(a, N - 1))


def test_results_of_a_factor(dtype, rng):
  a, b = _definite(rng, (3,), dtype), matrices.general(rng, (3,), N, 2, dtype)
  factor = linalg.factorize_cholesky(a)
  near = functools.partial(np.testing.assert_allclose, rtol=1e4 * np.finfo(dtype).eps)
  inverse = np.linalg.inv(checks.wide(a))
  scale = 1e3 * np.finfo(dtype).eps * np.abs(inverse).max()
  near(factor.inverse(), inverse, atol=scale)
  near(factor.matrix(), a, atol=scale)
  form = checks.adjoint(b) @ inverse @ b
  near(factor.quadratic(b), np.diagonal(form, axis1=-2, axis2=-1).real, atol=scale)
  half = np.asarray(factor.solve_half(b))
  near(checks.adjoint(half) @ half, form, atol=10 * scale * np.abs(b).max() ** 2)
  near(factor.solve_half(half, adjoint=True), inverse @ b, atol=10 * scale * np.abs(b).max())
  sign, logdet = factor.slogdet()
  near(logdet, np.linalg.slogdet(checks.wide(a))[1], atol=1e-5)
  np.testing.assert_array_equal(sign, np.ones(3))


def test_weights(dtype, rng):
  """Weights of either sign and 0, one for each column and matrix. One that fails does so alone."""
  a = _definite(rng, (3,), dtype)
  factor = linalg.factorize_cholesky(a)
  w = np.stack([_vector(rng, (3,), dtype), _vector(rng, (3,), dtype)], -1)
  weights = np.array([[2, -0.1], [-0.2, 0], [0, 0.5]], np.finfo(dtype).dtype)
  update = quick_jit(lambda f, w, weight: f.update(w, weight))
  changed = a + (w * weights[:, None]) @ checks.adjoint(w)
  found = update(factor, w, weights)
  _agrees(found, changed)
  _agrees(factor.update(w[0], 2), a + 2 * w[0] @ checks.adjoint(w[0]))
  _agrees(factor.update(w[0, :, 0], -0.1), a - 0.1 * np.outer(w[0, :, 0], w[0, :, 0].conj()))
  np.testing.assert_array_equal(update(factor, w, 0 * weights).upper, factor.upper)
  for wrong, info in ((-1e4, None), (np.nan, 1)):
    weights[1, 0] = wrong
    failed = update(factor, w, weights)
    assert failed.info[1] == info if info else failed.info[1] > 0
    np.testing.assert_array_equal(np.delete(failed.info, 1), 0)
    assert np.isnan(failed.upper[1]).all()
    for other in (0, 2):
      np.testing.assert_array_equal(failed.upper[other], found.upper[other])


def test_derivatives_of_weighted_updates_by_large_vectors(dtype, rng):
  """They lose no digits where w is large beside R, nor at a weight of 0 or one nearly too low."""
  real = np.finfo(dtype).dtype
  small = 1e-5 if real == np.float32 else 1e-10

  def value(r, w, weight):
    return linalg.CholeskyFactor.from_factor((r, False)).update(w, weight).upper[0, 0].real

  gradients = quick_jit(jax.grad(value, (0, 1, 2)))
  r = np.triu(matrices.general(rng, (), 3, 3, dtype)) * real.type(small / 20)
  r[np.diag_indices(3)] = small
  for size in (1.0, 1 / small):
    w = np.array([size, 0.1 * size, 0.05 * size], dtype)
    for weight in (1.0, 0.0, *[-0.75 * (small / size) ** 2] * (size == 1.0)):
      weight = real.type(weight)
      given, by, factor = float(r[0, 0].real), float(w[0].real), float(weight)
      h = np.sqrt(given**2 + factor * by**2)
      expected = given / h, factor * by / h, by**2 / (2 * h)
      found = gradients(r, w, weight)
      for x, y in zip((found[0][0, 0], found[1][0], found[2]), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=100 * np.finfo(dtype).eps)


def test_failures_alone(dtype, rng):
  """A matrix that fails is NaN with its info. The bits of the others are those alone."""
  a, w = _definite(rng, (3,), dtype), _vector(rng, (3,), dtype)
  a[1] = -np.eye(N)
  factor = linalg.factorize_cholesky(a)
  np.testing.assert_array_equal(factor.info, [0, 1, 0])
  large = w.copy()
  large[2] = 0
  large[2, 3] = 1e3
  corner, zero = np.full(3, 20, dtype), np.array([20, 20, -1], dtype)
  column = w.copy()
  column[:, 2] = zero
  outside = jnp.array([0, 1, N])
  changes = {
      "downdate": (lambda f, w: f.downdate(w[..., None]), (large,), 4),
      "update": (lambda f, w: f.update(w[..., None]), (large,), 0),
      "append": (lambda f, w, d: f.append(w, d), (w, zero), N + 1),
      "append two": (lambda f, w, d: f.append(
          jnp.stack([w, 0 * w], -1), jnp.apply_along_axis(jnp.diag, -1, jnp.stack([d, d], -1))),
          (0 * w, zero), N + 1),
      "replace": (lambda f, w: f.replace(2, w), (column,), 3),
      "delete": (lambda f, i: f.delete(i), (outside,), -1),
      "delete and append": (lambda f, w, d: f.delete(0).append(w[..., 1:], d), (w, corner), 0)}
  for name, (change, operands, info) in changes.items():
    change = quick_jit(change)
    found = change(factor, *operands)
    np.testing.assert_array_equal(found.info, [0, 1, info], err_msg=name)
    failed = np.isnan(found.upper).all((-2, -1))
    np.testing.assert_array_equal(failed, [False, True, info != 0], err_msg=name)
    assert np.isnan(found.logdet()[1])
    alone = change(jax.tree.map(lambda x: x[0], factor), *(x[0] for x in operands))
    np.testing.assert_array_equal(found.upper[0], alone.upper, err_msg=name)


def test_window(rng):
  """A sliding window in a scan, each matrix at its own index, under vmap."""
  a = _definite(rng, (4,), np.float64)
  columns = _vector(rng, (4, 5), np.float64)
  places = rng.integers(0, N, (4, 5)).astype(np.int32)
  columns[np.arange(4)[:, None], np.arange(5), places] = 9

  def run(factor, places, columns):
    step = lambda factor, x: (factor.replace(*x), factor.logdet())
    return jax.lax.scan(step, factor, (places, columns))

  factor, _ = quick_jit(jax.vmap(run))(linalg.factorize_cholesky(a), places, columns)
  for i in range(4):
    for place, column in zip(places[i], columns[i], strict=True):
      a[i] = _exchanged(a[i], place, column)
  _agrees(factor, a)
  together = linalg.factorize_cholesky(a).delete(places[:, 0])
  for i in range(4):
    _agrees(jax.tree.map(lambda x, i=i: x[i], together), _without(a[i], places[i, 0]))


def _column(w, d):
  return jnp.where(jnp.arange(4) == 1, (d + 9).astype(w.dtype), w)


CHANGES = {
    "append": lambda f, w, d: f.append(w, d + 9),
    "delete": lambda f, w, d: f.delete(jnp.int32(1)),
    "replace": lambda f, w, d: f.replace(1, _column(w, d)),
    "update": lambda f, w, d: f.update(w),
    "downdate": lambda f, w, d: f.downdate(w * 0.3),
    "weighted": lambda f, w, d: f.update(w, (d - 2.1) / 10),
    "no weight": lambda f, w, d: f.update(jnp.stack([w, w**2], -1), d - 2)}


def _appended(a, w, d):
  return jnp.block([[a, w[:, None]], [w.conj()[None], (d + 9).astype(a.dtype).reshape(1, 1)]])


def _replaced(a, w, d):
  w = _column(w, d)
  return a.at[:, 1].set(w).at[1].set(w.conj())


DENSE = {
    "append": _appended,
    "delete": lambda a, w, d: jnp.delete(jnp.delete(a, 1, 0), 1, 1),
    "replace": _replaced,
    "update": lambda a, w, d: a + jnp.outer(w, w.conj()),
    "downdate": lambda a, w, d: a - 0.09 * jnp.outer(w, w.conj()),
    "weighted": lambda a, w, d: a + (d - 2.1) / 10 * jnp.outer(w, w.conj()),
    "no weight": lambda a, w, d: a + (d - 2).astype(a.dtype) * (
        jnp.outer(w, w.conj()) + jnp.outer(w**2, (w**2).conj()))}


QUICK = pytest.mark.parametrize("change", [
    pytest.param(x, marks=pytest.mark.extended if x in ("replace", "weighted") else ())
    for x in CHANGES])


@QUICK
def test_derivatives(change, rng):
  """First and second order, against those of the changed matrix."""
  dtype = np.complex128 if change in ("append", "no weight") else np.float64
  operands = _definite(rng, (), dtype, 4), _vector(rng, (), dtype, 4), np.float64(2)
  moved = _definite(rng, (), dtype, 4), _vector(rng, (), dtype, 4), np.float64(0.3)

  def by_factor(*x):
    factor = CHANGES[change](linalg.factorize_cholesky(x[0]), *x[1:])
    return factor.logdet() + factor.quadratic(jnp.arange(1.0, 1 + len(factor.upper)).astype(dtype))

  def dense(*x):
    a = DENSE[change](symmetrized(x[0]), *x[1:])
    b = jnp.arange(1.0, 1 + len(a)).astype(dtype)
    return linalg.slogdet(a)[1] + jnp.vdot(b, linalg.solve(a, b)).real

  @quick_jit
  def derivatives():
    return [
        jax.jvp(jax.value_and_grad(f, (0, 1, 2)), operands, moved) for f in (by_factor, dense)]

  for ours, theirs in zip(*map(jax.tree.leaves, derivatives()), strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-10)


@QUICK
def test_sharded(change, rng):
  """No collective, for values and gradients."""
  mesh = make_mesh()
  batch = NamedSharding(mesh, P(mesh.axis_names[0]))
  place = lambda x: jax.device_put(x, batch)
  a, w = _definite(rng, (8,), np.float64, 4), _vector(rng, (8,), np.float64, 4)

  def loss(a, w):
    one = lambda a, w: CHANGES[change](linalg.factorize_cholesky(a), w, jnp.sum(w * w)).logdet()
    return jax.vmap(jax.value_and_grad(one, (0, 1)))(a, w)

  moves_nothing(jax.jit(loss).lower(place(a), place(w)).compile().as_text())


def test_indices_of_a_sharded_batch(rng):
  """Indices that are not sharded, for a batch that is, in the types of an Explicit mesh."""
  a, w = _definite(rng, (8,), np.float64, 4), _vector(rng, (8,), np.float64, 4)
  index = np.arange(8) % 4
  w[np.arange(8), index] = 9
  methods = {
      linalg.factorize_cholesky: ("delete", "replace"),
      linalg.factorize_lu: ("delete", "replace"),
      linalg.factorize_qr: ("delete_column", "replace_column", "replace_row")}

  def changed(factorize, method, a, w):
    factor = factorize(a)
    vectors = (2 if factorize is linalg.factorize_lu else 1) if "replace" in method else 0
    matrix = getattr(factor, method)(jnp.asarray(index), *[w] * vectors).matrix
    return matrix() if callable(matrix) else matrix

  alone = changed(linalg.factorize_cholesky, "delete", a, w)
  with jax.set_mesh(make_mesh(kind=AxisType.Explicit)):
    a = jax.device_put(a, P("x"))
    for factorize, names in methods.items():
      for method in names:
        x = jax.eval_shape(lambda a, f=factorize, m=method: changed(f, m, a, w), a)
        assert x.sharding.spec[0] == "x"
    x = jax.jit(lambda a: changed(linalg.factorize_cholesky, "delete", a, w))(a)
  np.testing.assert_allclose(x, alone, atol=1e-12)


def test_indices_out_of_range(rng):
  """Wide integers do not wrap around. `info` is -1 whatever the change would find."""
  a, w = _definite(rng, (), np.float64), _vector(rng, (), np.float64)
  for index in (2**32 + 1, -N - 1):
    for kind in (np.array, lambda i: jnp.asarray(np.clip(i, -N - 1, N), jnp.int8)):
      assert linalg.factorize_cholesky(a).delete(kind(index)).info == -1
      assert linalg.factorize_cholesky(a).replace(kind(index), w).info == -1
      assert linalg.factorize_lu(a).delete(kind(index)).info == -1
      assert linalg.factorize_qr(a).delete_column(kind(index)).info == -1
  assert linalg.factorize_cholesky(a).delete(np.array(2**32 - 1, np.uint32)).info == -1
  _agrees(linalg.factorize_cholesky(a).delete(np.array(-N)), _without(a, 0))


def test_unusual_shapes(rng):
  """No column, one corner for all, and no row to delete."""
  a, w = _definite(rng, (3,), np.float64), _vector(rng, (), np.float64)
  factor = linalg.factorize_cholesky(a)
  _agrees(factor.append(np.zeros((N, 0)), np.zeros((0, 0))), a)
  one = linalg.factorize_cholesky(a[0])
  assert one.append(np.zeros((5, N, 0)), np.zeros((1, 0, 0))).upper.shape == (5, N, N)
  vectors = np.stack([w, -w, 2 * w])
  _agrees(factor.append(vectors, 9.0), _bordered(a, vectors, np.full(3, 9)))
  empty = [linalg.factorize_cholesky(np.zeros((0, 0))), linalg.factorize_lu(np.zeros((0, 0)))]
  for call in (*(x.delete for x in empty), linalg.factorize_qr(np.zeros((3, 0))).delete_column):
    for index in (0, np.array(0), jnp.int32(0)):
      with pytest.raises(ValueError, match="of an empty factor"):
        call(index)


def test_changes_of_lu_factors(dtype, rng):
  a, b = matrices.well_conditioned(rng, (2,), N, dtype), matrices.general(rng, (2,), N, 2, dtype)
  u, v = _vector(rng, (2,), dtype), _vector(rng, (2,), dtype)
  factor = linalg.factorize_lu(a)
  near = functools.partial(np.testing.assert_allclose, atol=1e4 * np.finfo(dtype).eps)
  near(factor.permutation_matrix() @ a, factor.lower() @ factor.upper())
  near(checks.adjoint(checks.wide(a)) @ np.asarray(factor.solve(b, "C")), b)
  near(a @ np.asarray(factor.inverse()), np.broadcast_to(np.eye(N), a.shape))
  changed = factor.update(u[..., None], v[..., None])
  near(changed.matrix, a + u[..., None] * v[..., None, :].conj())
  near(np.asarray(changed.matrix) @ np.asarray(changed.solve(b)), b)
  near(changed.downdate(u[..., None], v[..., None]).matrix, a)
  larger = factor.append(u, v, u[:, 0])
  assert larger.matrix.shape == (2, N + 1, N + 1)
  near(larger.delete(N).matrix, a)
  near(factor.delete(1).matrix, _without(a, 1))
  other = factor.replace(jnp.int32(1), u, v)
  near(other.matrix[:, 1], v)
  near(other.matrix[:, 2:, 1], u[:, 2:])
  np.testing.assert_array_equal(factor.delete(jnp.int32(N)).info, [-1, -1])
  singular = linalg.factorize_lu(np.ones((2, 2), dtype))
  assert singular.info == 2 and np.isnan(singular.solve(np.ones(2, dtype))).all()
  assert singular.logdet() == -np.inf


def test_changes_of_qr_factors(dtype, rng):
  a = matrices.general(rng, (2,), N, 3, dtype) + 3 * np.eye(N, 3, dtype=dtype)
  u, v = matrices.general(rng, (2,), N, 1, dtype), matrices.general(rng, (2,), 3, 1, dtype)
  factor = linalg.factorize_qr(a)
  near = functools.partial(np.testing.assert_allclose, atol=1e4 * np.finfo(dtype).eps)

  def agrees(factor, a):
    assert not np.any(factor.info)
    near(factor.matrix(), a)
    near(checks.adjoint(np.asarray(factor.q)) @ factor.q,
         np.broadcast_to(np.eye(factor.q.shape[-1]), factor.r.shape))

  row = np.swapaxes(v, -1, -2)
  agrees(factor.update(u, v), a + u @ checks.adjoint(v))
  agrees(factor.downdate(u, v), a - u @ checks.adjoint(v))
  agrees(factor.append_rows(row), np.concatenate([a, row], -2))
  agrees(factor.append_columns(u), np.concatenate([a, u], -1))
  agrees(factor.delete_row(jnp.int32(2)), np.delete(a, 2, -2))
  agrees(factor.delete_column(1), np.delete(a, 1, -1))
  other = a.copy()
  other[:, 2] = v[..., 0]
  agrees(factor.replace_row(2, v[..., 0]), other)
  other = a.copy()
  other[..., 1] = u[..., 0]
  agrees(factor.replace_column(-2, u[..., 0]), other)
  near(factor.solve(u), np.linalg.pinv(a) @ u)
  near(factor.inverse(), np.linalg.pinv(a))
  near(factor.logdet(), np.linalg.slogdet(checks.adjoint(a) @ a)[1] / 2)
  square = matrices.well_conditioned(rng, (2,), N, dtype)
  for mine, theirs in zip(
      linalg.factorize_qr(square).slogdet(), np.linalg.slogdet(square), strict=True):
    near(mine, theirs)
  np.testing.assert_array_equal(factor.delete_row(jnp.int32(N)).info, [-1, -1])


@pytest.mark.parametrize("kind", ["cholesky", "lu", "qr"])
def test_derivatives_of_objects(kind, rng):
  """Derivatives to the object, and through the factorization to A."""
  a = _definite(rng, (2,), np.float64)
  b = _vector(rng, (), np.float64)
  factorize = getattr(linalg, f"factorize_{kind}")
  loss = lambda f: jnp.sum(jnp.sin(f.logdet())) + jnp.sum(f.solve(b[:, None]) ** 2)
  assert "allow_int=True" in type(factorize(a)).__doc__

  def by_grad(a):
    factor, pull = jax.vjp(factorize, a)
    return pull(jax.grad(loss, allow_int=True)(factor))[0]

  def by_vjp(a):
    factor, pull = jax.vjp(factorize, a)
    return pull(jax.vjp(loss, factor)[1](1.0)[0])[0]

  def dense(a):
    a = symmetrized(a) if kind == "cholesky" else a
    x = jnp.linalg.solve(a, jnp.broadcast_to(b[:, None], (2, N, 1)))
    return jnp.sum(jnp.sin(jnp.linalg.slogdet(a)[1])) + jnp.sum(x**2)

  expected = quick_jit(jax.grad(dense))(a)
  for gradient in (by_grad, by_vjp):
    np.testing.assert_allclose(quick_jit(gradient)(a), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_factors_that_are_there(batch, dtype, rng):
  """`from_factor` takes what cho_factor, lu_factor and qr return, here and in SciPy."""
  a = _definite(rng, batch, dtype) + matrices.well_conditioned(rng, batch, N, dtype)
  b = matrices.general(rng, batch, N, 2, dtype)
  near = functools.partial(np.testing.assert_allclose, atol=2e4 * np.finfo(dtype).eps)
  definite = _definite(rng, batch, dtype)
  tall = matrices.general(rng, batch, N, 4, dtype)
  factors = {
      "cholesky": (linalg.CholeskyFactor.from_factor(linalg.cho_factor(definite)), definite),
      "lu": (linalg.LUFactor.from_factor(linalg.lu_factor(a)), a),
      "qr": (linalg.QRFactor.from_factor(linalg.qr(tall)), tall),
      "complete qr": (linalg.QRFactor.from_factor(linalg.qr(tall, mode="complete")), tall)}
  if not batch:
    factors |= {
        "SciPy's cholesky": (
            linalg.CholeskyFactor.from_factor(scipy.linalg.cho_factor(definite)), definite),
        "SciPy's lu": (linalg.LUFactor.from_factor(scipy.linalg.lu_factor(a)), a),
        "SciPy's qr": (linalg.QRFactor.from_factor(scipy.linalg.qr(tall)), tall)}
  for name, (factor, whole) in factors.items():
    assert (factor.n, factor.dtype) == (whole.shape[-1], dtype), name
    assert factor.info.shape == batch and factor.info.dtype == np.int32 and not np.any(factor.info)
    matrix = factor.matrix() if callable(factor.matrix) else factor.matrix
    near(matrix, whole, err_msg=name)
    near(factor.solve(b), np.linalg.pinv(checks.wide(whole)) @ b, err_msg=name)
    assert factor.lower().shape[-2:] == (factor.n, factor.n)


def test_info_of_factors_that_are_there(dtype):
  """The first zero of the diagonal, and -1 for NaN."""
  u = np.broadcast_to(np.eye(3, dtype=dtype), (3, 3, 3)).copy()
  u[1, 1, 1] = u[1, 2, 2] = 0
  u[2, 0, 1] = np.nan
  pivots = np.broadcast_to(np.arange(3, dtype=np.int32), (3, 3))
  for factor in (linalg.LUFactor.from_factor((u, pivots)), linalg.QRFactor.from_factor((u, u))):
    np.testing.assert_array_equal(factor.info, [0, 2, -1])
    x = np.isnan(factor.solve(np.ones((3, 1), dtype)))
    np.testing.assert_array_equal(x.all((-2, -1)), [False, True, True])
    assert not x[0].any()
  outside = linalg.LUFactor.from_factor((u[[0, 0]], np.array([[0, 3, 2], [0, 0, 2]], np.int32)))
  np.testing.assert_array_equal(outside.info, [-1, -1])


def test_derivatives_of_factors_that_are_there(rng):
  """The gradient by A, through LU factors that lu_factor returns."""
  a, b = matrices.well_conditioned(rng, (), N, np.float64), _vector(rng, (), np.float64)
  solve = lambda a: jnp.sum(linalg.LUFactor.from_factor(linalg.lu_factor(a)).solve(b) ** 2)
  expected = quick_jit(jax.grad(lambda a: jnp.sum(jnp.linalg.solve(a, b) ** 2)))(a)
  np.testing.assert_allclose(quick_jit(jax.grad(solve))(a), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.usefixtures("standard_promotion")
def test_operands_of_another_dtype(rng):
  """Changed factors keep their dtype, as a scan needs. Solutions promote."""
  a, w = _definite(rng, (), np.float32), _vector(rng, (), np.float64)
  positive, general, tall = (
      getattr(linalg, f"factorize_{kind}")(a) for kind in ("cholesky", "lu", "qr"))
  for changed in (
      positive.update(w), positive.update(w, 2.0), positive.append(w, 9.0),
      positive.replace(0, w + 9), general.update(w, w), general.append(w, w, 9.0),
      general.replace(1, w, w), tall.downdate(w, w), tall.append_rows(w), tall.replace_row(0, w)):
    assert changed.dtype == np.float32
    assert {x.dtype.name for x in jax.tree.leaves(changed)} == {"float32", "int32"}
  for factor in (positive, general, tall):
    assert factor.solve(w).dtype == np.float64
    assert factor.solve(w.astype(np.complex64)).dtype == np.complex64
  for call in (lambda: general.update(1j * w, w), lambda: tall.append_rows(1j * w)):
    with pytest.raises(TypeError, match="takes real arrays"):
      call()
  assert positive.append(w.astype(np.float32), 9).dtype == np.float32
  half = linalg.factorize_cholesky(a.astype(jnp.float16))
  assert half.upper.dtype == np.float32 and half.logdet().dtype == jnp.float16


def test_operands_under_strict_promotion():
  """Changes of another dtype are an error, as in jax.numpy; a real corner or weight is none."""
  a, w = np.eye(3, dtype=np.float32), np.ones(3)
  positive, general, tall = (
      getattr(linalg, f"factorize_{kind}")(a) for kind in ("cholesky", "lu", "qr"))
  same = w.astype(np.float32)
  with jax.numpy_dtype_promotion("strict"):
    for call in (
        lambda: positive.update(w), lambda: positive.update(same, np.float64(1)),
        lambda: positive.append(same, np.float64(9)), lambda: general.update(same, w),
        lambda: general.replace(0, w, same), lambda: tall.append_rows(w),
        lambda: tall.downdate(w, same)):
      with pytest.raises(jax.dtypes.TypePromotionError):
        call()
    _agrees(positive.update(same, 2.0), a + 2 * np.outer(same, same))


def test_wrong_arguments():
  factor = linalg.factorize_cholesky(np.eye(3))
  for call, error, text in (
      (lambda: factor.delete(3), ValueError, "index must be from -3 to 2, got 3"),
      (lambda: factor.delete(0.5), TypeError, "takes index as integers"),
      (lambda: factor.append(np.ones(2), 1.0), ValueError, "columns"),
      (lambda: factor.append(np.ones((3, 2)), np.ones((3, 3))), ValueError, "corner"),
      (lambda: factor.update(np.ones(4)), ValueError, "w"),
      (lambda: factor.update(np.ones((4, 3))), ValueError, r"use w\[..., None\]"),
      (lambda: factor.downdate(np.ones((4, 3))), ValueError, r"use w\[..., None\]"),
      (lambda: linalg.factorize_lu(np.eye(3)).update(np.ones((4, 3)), np.ones((4, 3))), ValueError,
       r"u \(4, 3\) and v \(4, 3\).* use u\[..., None\] and v\[..., None\]"),
      (lambda: linalg.factorize_qr(np.eye(3)).update(np.ones((4, 3)), np.ones((4, 3))), ValueError,
       r"use u\[..., None\] and v\[..., None\]"),
      (lambda: factor.update(np.ones((3, 2)), np.ones(3)), ValueError, r"weight \(3,\)"),
      (lambda: factor.update(np.ones(3), 1j), TypeError, "takes a real weight"),
      (lambda: linalg.factorize_qr(np.ones((2, 4, 3))).append_columns(np.ones((2, 4))), ValueError,
       r"use columns\[..., None\]"),
      (lambda: linalg.factorize_qr(np.ones((4, 3))).append_columns(np.ones((4, 2))), ValueError,
       r"append_columns\(\) of columns \(4, 2\) to 3 others makes matrices wider than tall"),
      (lambda: linalg.factorize_lu(np.eye(3)).downdate(np.ones(4), np.ones(4)), ValueError,
       r"downdate\(\)"),
      (lambda: linalg.factorize_qr(np.eye(3)).downdate(np.ones(4), np.ones(4)), ValueError,
       r"downdate\(\)"),
      (lambda: factor.update(np.ones(3), "x"), TypeError, "position 1"),
      (lambda: linalg.factorize_lu(np.eye(3)).update(np.ones(3), 1j * np.ones(3)), TypeError,
       "as v"),
      (lambda: factor.replace(0, np.ones(2)), ValueError, "column"),
      (lambda: linalg.LUFactor.from_factor(np.eye(3)), TypeError, "lu_and_piv the two values that"),
      (lambda: linalg.LUFactor.from_factor((np.eye(3), np.arange(2))), ValueError, "pivots"),
      (lambda: linalg.LUFactor.from_factor((np.eye(3), np.ones(3))), TypeError, "be integers"),
      (lambda: linalg.QRFactor.from_factor((np.eye(3), np.eye(2))), ValueError, r"r \(2, 2\)"),
      (lambda: linalg.QRFactor.from_factor((np.eye(2), np.ones((2, 3)))), ValueError, "q"),
      (lambda: factor.update(1j * np.ones(3)), TypeError, "takes real arrays"),
      (lambda: linalg.factorize_qr(np.ones((2, 3))), ValueError, "m >= n"),
      (lambda: linalg.factorize_qr(np.ones((3, 2))).slogdet(), ValueError, "square")):
    with pytest.raises(error, match=text):
      call()
