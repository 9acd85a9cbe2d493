"""Changes of factors that several devices share: results are those of linalg's factor objects."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import cases
import linalg
import linalg.distributed as dist
import linalg.scipy
import matrices
from linalg.distributed import _changes as changes
from linalg.distributed import _cyclic, _layout
from linalg.distributed._redistribution import from_cyclic, to_cyclic
from one_matrix import AXES, PANEL, N, close, each_derivative, each_result, mesh_of, place
from quick import quick_compile, quick_jit
from sharded import make_mesh


def with_methods(quick, others):
  """A test of several methods in one program, by default of the quick ones."""
  return pytest.mark.parametrize(
      "methods", [quick, pytest.param(others, marks=pytest.mark.extended)], ids=" ".join)


def positive(rng, n, dtype):
  return matrices.positive_definite(rng, (), n, dtype)


def general(rng, *shape, dtype):
  return matrices.general(rng, (), *shape, dtype)


def positive_factor(x):
  return dist.cho_factor(x, panel=PANEL)


def product(w, weight=1):
  return (w * weight) @ w.conj().T


@each_result
def test_updates(layout, kind, dtype, rng):
  """L of the changed matrix is sharded like A, for one column, for several, and for weights."""
  a, w = positive(rng, N, dtype), general(rng, N, 3, dtype=dtype)
  weight = np.array([0.5, -0.25, 0], np.finfo(dtype).dtype)
  x = place(a, layout, kind)

  @quick_jit
  def changed(factor, w, weight):
    larger = factor.update(w)
    both = factor.update(w, weight)
    found = factor.update(w[:, 0]), larger, larger.downdate(w[:, 1:]), both
    return [(y.lower(), y.info, y.logdet()) for y in found]

  factor = positive_factor(x)
  assert factor.n == N
  with jax.set_mesh(x.sharding.mesh):
    found = changed(factor, w, weight)
  products = [product(w[:, :1]), product(w), product(w[:, :1]), product(w, weight)]
  for (l, info, logdet), more in zip(found, products, strict=True):
    expected = np.linalg.cholesky(a + more)
    close(l, expected, dtype)
    close(logdet, 2 * np.log(np.diagonal(expected).real).sum(), dtype)
    assert info == 0 and l.dtype == dtype and l.sharding.is_equivalent_to(x.sharding, 2)


def with_last(a, columns, corner):
  corner = (corner + corner.conj().T) / 2
  return np.block([[a, columns], [columns.conj().T, corner]])


def without(a, index):
  return np.delete(np.delete(a, index, 0), index, 1)


def replaced(a, index, column, row=None):
  a = a.copy()
  a[:, index] = column
  a[index] = column.conj() if row is None else row
  if row is None:
    a[index, index] = column[index].real
  return a


@each_result
@with_methods(("append", "replace"), ("append within a panel", "delete"))
def test_changes_of_rows(layout, kind, dtype, methods, rng):
  """L of matrices with more or fewer rows, or with another one at a traced index."""
  a = positive(rng, N + 16, dtype)
  x = place(a[:N, :N], layout, kind)
  columns, corner = a[:N, N:], a[N:, N:]
  column = general(rng, N, 1, dtype=dtype)[:, 0] / 4 + np.where(np.arange(N) == 21, N, 0)
  column = column.astype(dtype)

  @quick_jit
  def changed(factor, columns, corner, column, index):
    calls = {
        "append": lambda: factor.append(columns, corner),
        "append within a panel": lambda: factor.append(columns[:, :8], corner[:8, :8]),
        "delete": lambda: factor.delete(index), "replace": lambda: factor.replace(index, column)}
    found = [calls[name]() for name in methods]
    blocks = [y.lower() if y.n % 8 == 0 else y.solve(jnp.ones(y.n, y.dtype)) for y in found]
    return [(*pair, y.logdet(), y.info) for *pair, y in zip(blocks, found)]

  factor = positive_factor(x)
  with jax.set_mesh(x.sharding.mesh):
    found = changed(factor, columns, corner, column, jnp.int32(21))
  b = a[:N, :N]
  expected = {"append": a, "append within a panel": a[:N + 8, :N + 8], "delete": without(b, 21),
              "replace": replaced(b, 21, column)}
  for (result, logdet, info), name in zip(found, methods, strict=True):
    b = expected[name]
    n = len(b)
    assert info == 0
    close(result, np.linalg.cholesky(b) if n % 8 == 0 else np.linalg.solve(b, np.ones(n)), dtype)
    close(logdet, np.linalg.slogdet(b)[1], dtype)
    if n % 8 == 0:
      assert result.sharding.is_equivalent_to(x.sharding, 2)


@pytest.mark.parametrize("layout", ["turned", "rows twice"])
def test_without(layout, rng):
  """Rows and columns move between devices, also where the axes are in another order than the
  mesh's."""
  a = rng.standard_normal((N, N))
  x = place(a, layout)
  grid = _cyclic.cyclic_of("", _layout.square_of("", x, None), N, None, PANEL)

  @quick_jit
  def moved(x, index):
    body = lambda x, index: changes.without(grid, x, index)
    return from_cyclic(grid, grid.map(body, "cs", "c", to_cyclic(grid, x), index))

  for index in (0, 5, 31, N - 1):
    found = np.asarray(moved(x, jnp.int32(index)))
    np.testing.assert_array_equal(found[:-1, :-1], without(a, index))
    assert not found[-1].any() and not found[:, -1].any()


def general_factor(x):
  return dist.lu_factor(x, panel=PANEL)


@each_result
@with_methods(("append", "delete"), ("update", "downdate", "replace"))
def test_changes_of_lu_factors(layout, kind, dtype, methods, rng):
  """The factors are those of the changed matrix."""
  a = general(rng, N + 1, N + 1, dtype=dtype) + 4 * np.eye(N + 1, dtype=dtype)[::-1]
  u, v = (general(rng, N, 2, dtype=dtype) for _ in range(2))
  b, corner = a[:N, :N], a[N, N]
  column, row = a[:N, N], a[N, :N]

  @quick_jit
  def changed(factor, u, v, column, row, corner, index):
    calls = {
        "update": lambda: factor.update(u, v),
        "downdate": lambda: factor.downdate(u[:, 0], v[:, 0]),
        "append": lambda: factor.append(column, row, corner),
        "delete": lambda: factor.delete(index),
        "replace": lambda: factor.replace(index, column, row)}
    found = [calls[name]() for name in methods]
    return [(y.solve(jnp.ones(y.n, dtype)), *y.slogdet(), y.info) for y in found]

  factor = general_factor(place(b, layout, kind))
  with jax.set_mesh(mesh_of(layout, kind)[0]):
    found = changed(factor, u, v, column, row, corner, jnp.int32(-5))
  expected = {
      "update": b + u @ v.conj().T, "downdate": b - u[:, :1] @ v[:, :1].conj().T, "append": a,
      "delete": without(b, N - 5), "replace": replaced(b, N - 5, column, row)}
  for (x, sign, logdet, info), name in zip(found, methods, strict=True):
    y = expected[name]
    assert info == 0
    close(x, np.linalg.solve(y, np.ones(len(y))), dtype, 1e4)
    close(sign, np.linalg.slogdet(y)[0], dtype)
    close(logdet, np.linalg.slogdet(y)[1], dtype)


@pytest.mark.extended
def test_failures_of_lu_factors(rng):
  a = general(rng, N, N, dtype=np.float64)
  factor, theirs = general_factor(place(a, "both")), linalg.factorize_lu(a)
  unit = np.eye(N)[3]
  changes = [
      (lambda f: f.replace(3, 0 * unit, 0 * unit), 4),
      (lambda f: f.append(0 * unit, unit, 0), N + 1), (lambda f: f.update(np.nan * unit, unit), -1),
      (lambda f: f.delete(jnp.int32(N)), -1),
      (lambda f: f.replace(jnp.int32(-N - 1), unit, unit), -1)]
  with jax.set_mesh(mesh_of("both")[0]):
    for change, info in changes:
      changed = change(factor)
      assert changed.info == info == change(theirs).info
      assert np.isnan(changed.solve(np.ones(changed.n))).all()


@pytest.mark.extended
@pytest.mark.parametrize("devices, grid", [
    (1, (1, 1)), (2, (2, 1)), (2, (1, 2)), (8, (8, 1)), (8, (2, 4)), (8, (1, 8))])
def test_each_index(devices, grid, rng):
  """Every index, where the last panel is full and where it holds one row."""
  mesh = make_mesh((devices,), ("x",), devices=jax.devices()[:devices])
  call = quick_jit(lambda f, i, x: [
      (y.logdet(), y.solve(jnp.ones(y.n)), y.info) for y in (f.delete(i), f.replace(i, x))])
  for n in (16, 17):
    a = positive(rng, n, np.float64)
    x = jax.device_put(a, NamedSharding(mesh, P("x"))) if n % devices == 0 else a
    with jax.set_mesh(mesh):
      factor = dist.cho_factor(x, axes="x", grid=grid, panel=8)
      for index in range(-n, n):
        column = rng.standard_normal(n) / 4
        column[index] = n
        expected = without(a, index), replaced(a, index, column)
        found = call(factor, jnp.int32(index), column)
        for (logdet, solution, info), b in zip(found, expected, strict=True):
          assert info == 0
          close(logdet, np.linalg.slogdet(b)[1], np.float64)
          close(solution, np.linalg.solve(b, np.ones(len(b))), np.float64)


@pytest.mark.extended
@cases.each_dtype(np.float32, np.float64, np.complex64, np.complex128)
@pytest.mark.parametrize("size", [1e-3, 1, 1e4])
def test_residuals(size, dtype, rng):
  """‖A' - L' L'ᴴ‖ <= 3 eps ‖A‖, or ‖A'‖ where that is larger; also of ill-conditioned matrices.

  A new factor of A' has up to 1.1 eps, and fails where w is large.
  """
  n, eps = 96, np.finfo(dtype).eps
  a = matrices.with_eigenvalues(rng, np.geomspace(1, 1e-4, n), dtype)
  a = (a if np.dtype(dtype).kind == "c" else a.real).astype(dtype)
  factor = dist.cho_factor(place(a, "both"), panel=32)
  wide = a.astype(np.complex128)
  z = np.linalg.qr(general(rng, n, 3, dtype=np.result_type(dtype, float)))[0]
  w = (size * general(rng, n, 3, dtype=dtype)).astype(dtype)
  lost = (0.999 * np.linalg.cholesky(wide) @ z).astype(dtype)

  @quick_jit
  def changed(factor, w, lost):
    return [(x.lower(), x.info) for x in (factor.update(w), factor.downdate(lost))]

  products = [product(w.astype(np.complex128)), -product(lost.astype(np.complex128))]
  for (l, info), more in zip(changed(factor, w, lost), products, strict=True):
    l = np.asarray(l, np.complex128)
    residual = np.linalg.norm(wide + more - l @ l.conj().T)
    assert info == 0
    assert residual <= 3 * eps * max(np.linalg.norm(wide), np.linalg.norm(wide + more))


def test_failures(rng):
  """info is the order of the first leading minor that is not positive, or not finite."""
  a = positive(rng, N, np.float64)
  l = np.linalg.cholesky(a)
  change = quick_jit(lambda f, w, v: [(y.lower(), y.info) for y in (f.downdate(w), f.update(v))])
  factor = positive_factor(place(a, "both"))
  with jax.set_mesh(mesh_of("both")[0]):
    for order in (1, 2, 19, 21, N):
      w, v = 1.01 * l[:, order - 1], np.where(np.arange(N) == order - 1, np.nan, 1.0)
      for found, info in change(factor, w, v):
        assert info == order and np.isnan(found).all()
      theirs = linalg.factorize_cholesky(a)
      assert theirs.downdate(w).info == theirs.update(v).info == order
    bad = a.copy()
    bad[4, 4] = -1
    for found, info in change(positive_factor(place(bad, "both")), l[:, 0], v):
      assert info == 5 and np.isnan(found).all()


@pytest.mark.extended
def test_failures_of_rows(rng):
  """A corner that is too small, a column that is too large, and an index out of range."""
  a = positive(rng, N, np.float64)
  factor, theirs = positive_factor(place(a, "both")), linalg.factorize_cholesky(a)
  columns = general(rng, N, 3, dtype=np.float64)
  corner = columns.T @ np.linalg.solve(a, columns) + np.diag([1, -1e-3, 1])
  column = np.where(np.arange(N) == 30, 1e3, 1.0)
  changes = [
      (lambda f: f.append(columns, corner), N + 2), (lambda f: f.replace(5, column), 31),
      (lambda f: f.replace(5, np.where(np.arange(N) == 5, -1.0, 0)), 6),
      (lambda f: f.replace(5, np.where(np.arange(N) == 8, np.nan, a[5])), 9),
      (lambda f: f.delete(jnp.int32(N)), -1), (lambda f: f.replace(jnp.int32(-N - 1), a[0]), -1)]
  with jax.set_mesh(mesh_of("both")[0]):
    for change, info in changes:
      changed = change(factor)
      assert changed.info == info == change(theirs).info
      assert np.isnan(changed.blocks).all() and np.isnan(changed.logdet())


@pytest.mark.extended
def test_to_nothing_and_back(rng):
  """Down to an empty matrix, and up again past several panels."""
  a = positive(rng, 24, np.float64)
  mesh = make_mesh((2,), ("x",), devices=jax.devices()[:2])
  with jax.set_mesh(mesh):
    factor = dist.cho_factor(a[:2, :2], axes="x", panel=4).delete(0).delete(0)
    assert factor.n == 0 and factor.logdet() == 0
    with pytest.raises(ValueError, match="empty factor"):
      factor.delete(0)
    for low, high in ((0, 3), (3, 4), (4, 13), (13, 24)):
      factor = factor.append(a[:low, low:high], a[low:high, low:high])
    close(factor.lower(), np.linalg.cholesky(a), np.float64)


@pytest.mark.extended
def test_unchanged_rows_keep_their_bits(rng):
  """Columns of L before the first nonzero number of w."""
  a = positive(rng, N, np.float64)
  factor = positive_factor(place(a, "both"))
  before = np.asarray(factor.lower())
  for first in (5, 16, 21, N):
    w = np.where(np.arange(N) >= first, 1.0, 0)
    for changed in (factor.update(w), factor.update(w, 0.25), factor.downdate(0.1 * w)):
      np.testing.assert_array_equal(np.asarray(changed.lower())[:, :first], before[:, :first])


CALLS = {
    "update": lambda f, w, d: f.update(w[:, 0]),
    "weights": lambda f, w, d: f.update(w, d),
    "downdate": lambda f, w, d: f.update(w).downdate(0.5 * w[:, :2]),
    "append": lambda f, w, d: f.append(w, 24 * jnp.eye(3, dtype=w.dtype) + w[:3]),
    "delete": lambda f, w, d: f.update(w).delete(jnp.int32(-5)),
    "replace": lambda f, w, d: f.replace(
        jnp.int32(7), w[:, 0] + jnp.where(jnp.arange(24) == 7, 24, 0).astype(w.dtype))}


def mine(a):
  return dist.cho_factor(a, axes=AXES, panel=PANEL)


def theirs(a):
  """linalg's object, of the lower triangle."""
  strict = jnp.tril(a, -1)
  a = strict + strict.mT.conj() + jnp.diag(jnp.diagonal(a).real).astype(a.dtype)
  return linalg.factorize_cholesky(a, symmetrize_input=False)


def derivatives(factor, change, result):
  """Derivatives in forward, reverse, and forward over reverse mode."""

  def value(*operands):
    return result(change(factor(operands[0]), *operands[1:]))

  def loss(*operands):
    return sum(jnp.sum(jnp.abs(x) ** 3) for x in jax.tree.leaves(value(*operands)))

  def all_modes(operands, tangents):
    places = tuple(range(len(operands)))
    gradient = jax.grad(loss, places)
    slope = lambda *operands: sum(
        jnp.sum((x * y).real) for x, y in zip(gradient(*operands), tangents, strict=True))
    return (jax.jvp(value, operands, tangents)[1], gradient(*operands),
            jax.grad(slope, places)(*operands))

  return all_modes


def same_derivatives(change, result, kind, dtype, operands, tangents, mine=mine, theirs=theirs):
  on_mesh = [place(x, "both", kind) if i == 0 else x for i, x in enumerate(operands)]
  moves = [place(x, "both", kind) if i == 0 else x for i, x in enumerate(tangents)]
  with jax.set_mesh(on_mesh[0].sharding.mesh), jax.numpy_rank_promotion("allow"):
    program = quick_compile(derivatives(mine, change, result), (tuple(on_mesh), tuple(moves)))
    found = jax.tree.leaves(program(tuple(on_mesh), tuple(moves)))
  with jax.numpy_rank_promotion("allow"):
    expected = jax.tree.leaves(
        quick_jit(derivatives(theirs, change, result))(tuple(operands), tuple(tangents)))
  for x, y in zip(found, expected, strict=True):
    close(x, y, dtype, 1e5)


def results_of(factor):
  b = jnp.asarray(np.cos(np.arange(factor.n)), factor.dtype)
  return factor.solve(b), factor.logdet()


@pytest.mark.extended
@each_derivative(CALLS, ("weights", AxisType.Auto, np.complex128))
def test_derivatives(name, kind, dtype, rng):
  """Derivatives by A, w and the weights are those of linalg's object."""
  n, real = 24, np.finfo(dtype).dtype
  shapes = (n, n), (n, 3), (3,)
  operands = [positive(rng, n, dtype), general(rng, n, 3, dtype=dtype),
              np.array([0.5, -0.2, 0], real)]
  tangents = [general(rng, *x[:1], *x[1:] or (1,), dtype=dtype) for x in shapes]
  tangents[2] = tangents[2][:, 0].real.astype(real)
  if name != "weights":
    operands, tangents = operands[:2], tangents[:2]
  change = lambda f, w, d=None: CALLS[name](f, w, d)
  same_derivatives(change, results_of, kind, dtype, operands, tangents)


SMALL = {
    "lower": lambda f, b: f.lower(), "upper": lambda f, b: f.upper,
    "matrix": lambda f, b: f.matrix(), "solve_half": lambda f, b: f.solve_half(b),
    "solve_half adjoint": lambda f, b: f.solve_half(b, adjoint=True),
    "quadratic": lambda f, b: f.quadratic(b)}


@each_result
def test_other_methods(layout, kind, dtype, rng):
  """Results are those of linalg's object, and sharded like A or like b."""
  a, b = positive(rng, N, dtype), general(rng, N, 2, dtype=dtype)
  x = place(np.tril(a) + np.triu(np.full_like(a, np.nan), 1), layout, kind)
  factor, other = positive_factor(x), linalg.factorize_cholesky(a)
  calls = lambda f, b: [call(f, b) for call in SMALL.values()] + [f.quadratic(b[:, 0])]
  with jax.set_mesh(x.sharding.mesh):
    found = quick_jit(calls)(factor, b)
  for y, z in zip(found, quick_jit(calls)(other, b), strict=True):
    assert (y.shape, y.dtype) == (z.shape, z.dtype)
    close(y, z, dtype)
    if y.shape == (N, N):
      assert y.sharding.is_equivalent_to(x.sharding, 2)
  columns = jax.device_put(b, NamedSharding(x.sharding.mesh, P("x")))
  assert factor.solve_half(columns).sharding.is_equivalent_to(columns.sharding, 2)
  close(factor.quadratic(columns), other.quadratic(b), dtype)


def test_failures_by_every_method(rng):
  """One small factor: what fails is NaN in every result, as in linalg's object."""
  n = 8
  a = positive(rng, n, np.float64)
  w = 3 * np.linalg.cholesky(a)[:, 4]
  columns, corner = general(rng, n, 2, dtype=np.float64), np.diag([1e3, -1.0])

  def results(factor, last):
    failed = (
        factor.downdate(w), factor.append(columns, corner), factor.delete(last + 9),
        factor.replace(last - 20, w), factor.delete(last), factor.replace(last, 9 * w))
    return [(x.info, x.matrix(), x.lower(), x.logdet()) for x in failed]

  x = place(a, "both", AxisType.Auto)
  with jax.set_mesh(x.sharding.mesh):
    found = quick_jit(results)(dist.cho_factor(x, panel=n), np.int32(2))
  expected = quick_jit(results)(linalg.factorize_cholesky(a), np.int32(2))
  assert [x[0] for x in found] == [x[0] for x in expected]
  assert [int(x[0]) for x in found[:5]] == [5, 10, -1, -1, 0]
  for of_one, others in zip(found, expected, strict=True):
    for y, z in zip(of_one[1:], others[1:], strict=True):
      np.testing.assert_allclose(y, z, rtol=1e-12, atol=1e-10)


def test_one_panel_on_one_device(rng):
  """XLA aborted the process (jax 0.10.2)."""
  n = 8
  a, b = positive(rng, n, np.complex128), general(rng, n, 2, dtype=np.complex128)
  large = 99 * np.eye(n, dtype=np.complex128)
  factor = dist.cho_factor(place(a, "one device", AxisType.Auto), panel=n)
  other = linalg.factorize_cholesky(a)
  for change in (
      lambda f: f, lambda f: f.append(b, large[:2, :2]), lambda f: f.replace(2, large[2])):
    x, y = (change(f) for f in (factor, other))
    close(x.matrix(), y.matrix(), np.complex128)
    rhs = np.ones(x.n, np.complex128)
    close(x.solve(rhs), y.solve(rhs), np.complex128)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_quadratic_rounds_once(dtype):
  """A⁻¹ b is out of range in float16, and bᴴ A⁻¹ b is not."""
  dtype = jnp.dtype(dtype)
  a, b = (6e-7 * np.eye(4)).astype(dtype), np.array([0.0625, 0, 0, 0], dtype)
  x = place(a, "both", AxisType.Auto)
  with jax.set_mesh(x.sharding.mesh):
    found = dist.cho_factor(x).quadratic(b)
  expected = linalg.factorize_cholesky(a).quadratic(b)
  assert found.dtype == dtype and np.isfinite(np.float64(expected))
  np.testing.assert_allclose(np.float64(found), np.float64(expected), rtol=1e-2)


@pytest.mark.extended
@each_derivative([name for name in SMALL if name != "lower"])
def test_derivatives_of_other_methods(name, kind, dtype, rng):
  n = 24
  operands, tangents = (
      [f(rng, n, dtype), general(rng, n, 2, dtype=dtype)]
      for f in (positive, lambda rng, n, dtype: general(rng, n, n, dtype=dtype)))
  with_operand = lambda f, b: SMALL[name](f, b)
  same_derivatives(with_operand, lambda x: x, kind, dtype, operands, tangents)


@each_result
def test_other_methods_of_lu_factors(layout, kind, dtype, rng):
  """P A = L U, with A as it was given."""
  a = general(rng, N, N, dtype=dtype)
  x = place(a, layout, kind)
  factor = general_factor(x)
  calls = lambda f: (f.permutation_matrix(), f.lower(), f.upper(), f.matrix, f.permutation)
  with jax.set_mesh(x.sharding.mesh):
    *found, order = quick_jit(calls)(factor)
  p, l, u, same = found
  for y in found:
    assert y.dtype == dtype and y.sharding.is_equivalent_to(x.sharding, 2)
  np.testing.assert_array_equal(same, a)
  np.testing.assert_array_equal(np.asarray(p) @ a, a[np.asarray(order)])
  np.testing.assert_array_equal(l, np.tril(l, -1) + np.eye(N))
  np.testing.assert_array_equal(u, np.triu(u))
  close(np.asarray(l) @ np.asarray(u), a[np.asarray(order)], dtype)
  assert factor.n == N and order.shape == (N,) and order.sharding.is_fully_replicated


@pytest.mark.extended
@each_derivative(["lower", "upper"])
def test_derivatives_of_lu_triangles(name, kind, dtype, rng):
  """They are those of linalg.scipy.lu, where both have the same pivots."""
  n = 24
  a = general(rng, n, n, dtype=dtype) + 24 * np.eye(n, dtype=dtype)[::-1]
  moves = general(rng, n, n, dtype=dtype)
  same_derivatives(
      lambda f: getattr(f, name)(), lambda x: x, kind, dtype, [a], [moves],
      mine=lambda a: dist.lu_factor(a, axes=AXES, panel=PANEL), theirs=_Triangles)


class _Triangles:
  def __init__(self, a):
    _, self.l, self.u = linalg.scipy.lu(a)

  def lower(self):
    return self.l

  def upper(self):
    return self.u


LU_CALLS = {
    "update": lambda f, u, v: f.update(u, v),
    "append": lambda f, u, v: f.append(u[:, 0], v[:, 0], 24 + u[0, 1]),
    "delete": lambda f, u, v: f.downdate(u, v).delete(jnp.int32(-5)),
    "replace": lambda f, u, v: f.replace(jnp.int32(7), u[:, 0], v[:, 0])}


@pytest.mark.extended
@each_derivative(LU_CALLS)
def test_derivatives_of_lu_factors(name, kind, dtype, rng):
  n = 24
  shapes = (n, n), (n, 2), (n, 2)
  operands, tangents = ([general(rng, *x, dtype=dtype) for x in shapes] for _ in range(2))
  operands[0] += 8 * np.eye(n, dtype=dtype)[::-1]
  same_derivatives(
      LU_CALLS[name], results_of, kind, dtype, operands, tangents,
      mine=lambda a: dist.lu_factor(a, axes=AXES, panel=PANEL), theirs=linalg.factorize_lu)


@pytest.mark.extended
def test_vmap(rng):
  """Over matrices and columns, and over columns alone."""
  a = np.stack([positive(rng, N, np.float64) for _ in range(2)])
  w = np.stack([general(rng, N, 2, dtype=np.float64) for _ in range(2)])
  mesh, _ = mesh_of("both", AxisType.Explicit)
  x = jax.device_put(a, NamedSharding(mesh, P(None, "x", "y")))
  with jax.set_mesh(mesh):
    found = quick_jit(jax.vmap(lambda a, w: positive_factor(a).update(w).lower()))(x, w)
    factor = positive_factor(x[0])
    columns = quick_jit(jax.vmap(lambda w: factor.update(w).lower()))(w)
  close(found, np.linalg.cholesky(a + w @ w.mT), np.float64)
  close(columns, np.linalg.cholesky(a[0] + w @ w.mT), np.float64)


def test_transformed_factors(rng):
  """vmap over operands, a scan that carries the factor, and derivatives with respect to it."""
  n = 8
  a = positive(rng, n, np.float64)
  rows, corners = general(rng, 2, n, dtype=np.float64), np.array([99.0, -1.0])

  def results(factor, rows, corners):
    deleted = jax.vmap(lambda i: factor.delete(i).logdet())(np.arange(n, dtype=np.int32))
    appended = jax.vmap(lambda row, corner: factor.append(row, corner).logdet())(rows, corners)
    replaced = jax.vmap(lambda row: factor.replace(0, row + 99 * np.eye(n)[0]).logdet())(rows)
    last, _ = jax.lax.scan(
        lambda f, row: (f.update(row).downdate(row / 2).replace(1, 99 * np.eye(n)[1]), None),
        factor, rows)
    return deleted, appended, replaced, last.logdet()

  x = place(a, "both", AxisType.Explicit)
  with jax.set_mesh(x.sharding.mesh):
    factor = dist.cho_factor(x, panel=n)
    found = quick_jit(results)(factor, rows, corners)
    slope = jax.grad(lambda f: f.logdet(), allow_int=True)(factor)
  expected = quick_jit(results)(linalg.factorize_cholesky(a), rows, corners)
  for y, z in zip(found, expected, strict=True):
    np.testing.assert_allclose(y, z, rtol=1e-12)
  assert np.array_equal(np.isnan(found[1]), [False, True]) and not np.any(slope.blocks)
  lower = np.tril(from_cyclic(factor.grid, slope.a))
  close((lower + lower.T) / 2, np.linalg.inv(a), np.float64)


@pytest.mark.parametrize("call,each,more,shares", [
    (lambda f, w: f.update(w), 3, 0, 2.2),
    pytest.param(lambda f, w: f.append(w, w[0]), 2, 0, 0.6, marks=pytest.mark.extended),
    pytest.param(lambda f, w: f.delete(w.astype(int)[0]), 3, 5, 4,
                 marks=pytest.mark.extended),
    pytest.param(lambda f, w: f.replace(w.astype(int)[0], w), 8, 1, 5.2,
                 marks=pytest.mark.extended)])
def test_messages(call, each, more, shares):
  """The number of collectives for each panel, and what a device receives.

  An update deals a panel's rows and returns them, and gathers its diagonal block.
  """
  n, panel = 256, 16
  sharding = NamedSharding(*mesh_of("both", AxisType.Explicit))
  x = jax.ShapeDtypeStruct((n, n), np.float32, sharding=sharding)
  with jax.set_mesh(sharding.mesh):
    factor = jax.eval_shape(lambda a: dist.cho_factor(a, panel=panel), x)
    program = quick_compile(call, (factor, np.ones(n, np.float32)))
  found = dist.report(program)
  assert sum(found.collectives.values()) == each * n // panel + more
  assert found.moved <= shares * 4 * n * n / 8
  assert f"f32[{n},{n}]" not in program.as_text()


@pytest.mark.parametrize("call,error,message", [
    (lambda f, w: f.update(w[:3]), ValueError,
     r"Incompatible shapes for arguments to update\(\): the factor \(40, 40\) and w \(3,\)"),
    (lambda f, w: f.downdate(np.stack([w] * 2)), ValueError, "use w.T"),
    (lambda f, w: f.update(np.ones((2, N, 1))), ValueError, "changes one matrix .* w has no batch"),
    (lambda f, w: f.update(w, np.ones((2, 1))), ValueError, "so weight has no batch"),
    (lambda f, w: f.update(1j * w), TypeError, "takes real arrays, got complex128 as w"),
    (lambda f, w: f.update(w, 1j), TypeError, "takes a real weight"),
    (lambda f, w: f.update(w, np.ones(2)), ValueError, "weight"),
    (lambda f, w: f.update("w"), TypeError, "update requires ndarray or scalar"),
    (lambda f, w: f.append(w[:3], 1), ValueError,
     r"arguments to append\(\): the factor \(40, 40\), columns \(3,\) and corner \(\)"),
    (lambda f, w: f.append(np.ones((2, N)), np.ones(2)), ValueError, "columns has no batch"),
    (lambda f, w: f.delete(N), ValueError, "index must be from -40 to 39, got 40"),
    (lambda f, w: f.delete(1.0), TypeError, "takes index as integers"),
    (lambda f, w: f.delete(jnp.array([0, 1])), ValueError, "index is one integer"),
    (lambda f, w: f.replace(0, w[:3]), ValueError, "the factor .40, 40. and column .3,."),
    (lambda f, w: f.replace(0, np.ones((2, N))), ValueError, "column has no batch"),
    (lambda f, w: f.update(jax.device_put(
        np.ones((N, 2)), NamedSharding(mesh_of("both")[0], P(None, "y")))),
     linalg.ffi.ShardingTypeError, r"the columns of w are sharded.*reshard\(w, "),
])
def test_errors(call, error, message):
  factor = positive_factor(place(np.eye(N), "both"))
  with pytest.raises(error, match=message):
    call(factor, np.ones(N))


@pytest.mark.parametrize("call,error,message", [
    (lambda f, w: f.update(w, w[:3]), ValueError, "the factor .40, 40., u .40,. and v .3,."),
    (lambda f, w: f.downdate(w, 1j * w), TypeError, "takes real arrays, got complex128 as v"),
    (lambda f, w: f.update(*[np.ones((2, N, 1))] * 2), ValueError, "u has no batch"),
    (lambda f, w: f.append(w, w[:3], 1), ValueError, "column .40,. and row .3,."),
    (lambda f, w: f.append(w, w, np.ones(2)), ValueError, "corner has no batch"),
    (lambda f, w: f.delete(-N - 1), ValueError, "index must be from -40 to 39"),
    (lambda f, w: f.replace(0, w, w[:3]), ValueError, "column .40,. and row .3,."),
])
def test_errors_of_lu_factors(call, error, message):
  with pytest.raises(error, match=message):
    call(general_factor(place(np.eye(N), "both")), np.ones(N))


def test_sizes_that_devices_do_not_divide():
  """Explicit axes share no such results; other results are there."""
  factor = positive_factor(place(np.eye(N), "both", AxisType.Explicit)).append(np.ones(N), N + 2)
  for name in ("lower", "inverse"):
    with pytest.raises(linalg.ffi.ShardingTypeError, match=rf"{name}: .* 41 rows and columns"):
      getattr(factor, name)()
  close(factor.logdet(), np.log(2), np.float64)


@pytest.mark.extended
def test_dtypes(rng):
  """A factor keeps its dtype, also a half one, and a scan carries it."""
  a = positive(rng, N, np.float64)
  factor = positive_factor(jnp.asarray(place(a, "both"), jnp.bfloat16))
  w = np.ones(N, jnp.bfloat16)
  with jax.set_mesh(mesh_of("both")[0]):
    found, _ = jax.jit(lambda f: jax.lax.scan(lambda f, _: (f.update(w), None), f, None, length=2))(
        factor)
  assert found.dtype == found.lower().dtype == jnp.bfloat16
  assert factor.update(w) is not factor and factor.update(np.zeros((N, 0), jnp.bfloat16)) is factor
  close(found.logdet().astype(float), np.linalg.slogdet(a + 2)[1], jnp.bfloat16, 8)


@pytest.mark.extended
def test_checked():
  factor = positive_factor(place(np.eye(N), "both"))
  message = r"^downdate: the matrix at index \(\) is not positive definite after the change"
  with jax.set_mesh(mesh_of("both")[0]), pytest.raises(linalg.LinAlgError, match=message):
    linalg.checked(lambda f: f.downdate(np.ones(N)).info)(factor)
