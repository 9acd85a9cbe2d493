"""Positive definite matrices that several devices share: results are those of linalg's own
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
from linalg.distributed import _cyclic, _layout
from linalg.distributed._operations import solve_p
from linalg.distributed._redistribution import from_cyclic, to_cyclic
from one_matrix import AXES, PANEL, N, close, each_derivative, each_result, mesh_of, place
from quick import optimised_jit, quick_compile, quick_jit
from sharded import KINDS, make_mesh


def positive(rng, n, dtype):
  return matrices.positive_definite(rng, (), n, dtype)


def upper_is_not_read(a):
  """Puts NaN above the diagonal and an imaginary part on it. Neither may be read."""
  garbage = np.triu(np.full_like(a, np.nan), 1)
  diagonal = np.diag(np.full(len(a), 1j if np.iscomplexobj(a) else 0).astype(a.dtype))
  return np.tril(a) + garbage + diagonal


@each_result
def test_results(layout, kind, dtype, rng):
  """L and the inverse are sharded like A, and x like b; other results are on all devices."""
  a = positive(rng, N, dtype)
  b = matrices.general(rng, (), N, 2, dtype)
  x = place(upper_is_not_read(a), layout, kind)
  factor = dist.cho_factor(x, panel=PANEL)
  assert factor.grid.padded == 48
  l, inverse, logdet = factor.lower(), factor.inverse(), factor.logdet()
  close(l, np.linalg.cholesky(a), dtype)
  close(inverse, np.linalg.inv(a), dtype)
  close(logdet, np.linalg.slogdet(a)[1], dtype)
  assert logdet.dtype == np.finfo(dtype).dtype and factor.info == 0
  columns = jax.device_put(b, NamedSharding(x.sharding.mesh, P("x", None)))
  for found in (factor.solve(columns), dist.cho_solve(factor, b)):
    close(found, np.linalg.solve(a, b), dtype)
  assert factor.solve(columns).sharding.is_equivalent_to(columns.sharding, 2)
  close(factor.solve(b[:, 0]), np.linalg.solve(a, b[:, 0]), dtype)
  for matrix in (l, inverse):
    assert matrix.sharding.is_equivalent_to(x.sharding, 2) and matrix.dtype == dtype
  assert logdet.sharding.is_fully_replicated and factor.info.sharding.is_fully_replicated


@pytest.mark.extended
@cases.each_dtype(np.float32, np.float64, np.complex64, np.complex128)
@pytest.mark.parametrize("n", [96, 512])
def test_residuals(n, dtype, rng):
  """‖A - L Lᴴ‖ / ‖A‖ <= eps √n, in Frobenius norms."""
  a = positive(rng, n, dtype)
  l = np.asarray(dist.cholesky(place(a, "both")), np.complex128)
  residual = np.linalg.norm(a - l @ l.conj().T) / np.linalg.norm(a)
  assert residual <= np.finfo(dtype).eps * n**0.5


@pytest.mark.parametrize("layout", ["both", pytest.param("columns", marks=pytest.mark.extended)])
def test_failures(layout, rng):
  """info is the order of the first leading minor that is not positive; all results are NaN."""
  good = positive(rng, N, np.float64)
  for order in (1, 2, 19, 21, N):
    bad = good.copy()
    bad[order - 1, order - 1] = -1
    l, info = dist.cholesky_ex(place(bad, layout), panel=PANEL)
    assert info == order == linalg.cholesky_ex(bad)[1] and np.isnan(l).all()
  x = place(bad, layout)
  factor = dist.cho_factor(x)
  solution, info = dist.solve_ex(x, np.ones(N), assume_a="pos")
  inverse, same = dist.inv_ex(x, assume_a="pos")
  assert info == same == N
  sign = dist.slogdet(x, assume_a="pos").sign
  for found in (solution, inverse, factor.logdet(), factor.det(), sign):
    assert np.isnan(found).all()
  bad = np.where(np.arange(N) == 5, np.nan, good)
  assert dist.cholesky_ex(place(bad, layout))[1] == linalg.cholesky_ex(bad)[1]


def test_functions_of_one_call(rng):
  a, b = positive(rng, N, np.float64), rng.standard_normal(N)
  x = place(a, "both")
  close(dist.solve(x, b, assume_a="pos"), np.linalg.solve(a, b), np.float64)
  inverse = dist.inv(x, assume_a="pos", panel=np.int64(8), grid=(np.int64(4), 2))
  close(inverse, np.linalg.inv(a), np.float64)
  sign, logdet = dist.slogdet(x, assume_a="pos")
  close(logdet, np.linalg.slogdet(a)[1], np.float64)
  close(dist.det(x, assume_a="pos") / np.linalg.det(a), 1, np.float64)
  assert sign == 1
  half = dist.cholesky(jnp.asarray(x, jnp.bfloat16))
  assert half.dtype == jnp.bfloat16
  close(np.asarray(half, np.float64), np.linalg.cholesky(a), jnp.bfloat16, 8)


@pytest.mark.parametrize("name,call", [
    ("cholesky", lambda a: dist.cholesky(a, axes=AXES)),
    pytest.param("cho_factor", lambda a: dist.cho_factor(a, axes=AXES).info,
                 marks=pytest.mark.extended),
    *[pytest.param(name, functools.partial(call, axes=AXES, assume_a="pos"),
                   marks=pytest.mark.extended)
      for name, call in (
          ("solve", lambda a, **options: dist.solve(a, np.ones(len(a)), **options)),
          ("slogdet", dist.slogdet), ("inv", dist.inv))]])
def test_checked(name, call):
  x = place(-np.eye(N), "both")
  message = rf"^{name}: the matrix at index \(\) is not positive definite"
  with jax.set_mesh(x.sharding.mesh), pytest.raises(linalg.LinAlgError, match=message):
    linalg.checked(call)(x)


def test_vmap(rng):
  """`vmap` over a dimension that no device shares."""
  a = np.stack([positive(rng, N, np.float64) for _ in range(2)])
  mesh, _ = mesh_of("both", AxisType.Explicit)
  x = jax.device_put(a, NamedSharding(mesh, P(None, "x", "y")))
  program = quick_compile(jax.vmap(dist.cholesky), (x,))
  l = program(x)
  close(l, np.linalg.cholesky(a), np.float64)
  assert l.sharding.is_equivalent_to(x.sharding, 3)
  assert f"f64[2,{N},{N}]" not in program.as_text()


@pytest.mark.extended
@KINDS
def test_derivatives_under_vmap(kind, rng):
  """The operations' own batching rules give a gradient, and a Hessian, which maps over directions.

  Several devices share each matrix.
  """
  a = np.stack([positive(rng, 24, np.float64) for _ in range(2)])
  mesh, _ = mesh_of("both", kind)
  x = jax.device_put(a, NamedSharding(mesh, P(None, "x", "y")))

  def logdet(library, matrix, t):
    scaled = jnp.exp(t[0]) * matrix + t[1] * matrix**2
    if library is dist:
      return dist.slogdet(scaled, assume_a="pos", axes=AXES).logabsdet
    return linalg.slogdet(scaled).logabsdet

  def all_of(library):
    both = (dist if library is dist else linalg).cholesky
    options = {"axes": AXES} if library is dist else {"symmetrize_input": False}
    loss = lambda a: jnp.sum(jnp.sin(both(a, **options)))
    t = jnp.array([0.1, 0.2])
    return lambda a: (
        jax.vmap(jax.grad(loss))(a), jax.hessian(functools.partial(logdet, library, a[0]))(t))

  with jax.set_mesh(mesh):
    program = quick_compile(all_of(dist), (x,))
    found = program(x)
  for mine, theirs in zip(found, quick_jit(all_of(linalg))(a), strict=True):
    close(mine, theirs, np.float64, 1e4)
  assert "f64[24,24]" not in program.as_text() and "f64[2,24,24]" not in program.as_text()


def test_infinity_on_the_diagonal():
  """Infinity counts as positive, as in linalg.cholesky: below it the column is zero."""
  a = np.diag(np.where(np.arange(N) == 5, np.inf, 4.0)) + 1
  l, info = dist.cholesky_ex(place(a, "both"))
  assert info == 0
  np.testing.assert_allclose(l, linalg.cholesky(a, symmetrize_input=False), rtol=1e-12)


@pytest.mark.parametrize("a_dtype, b_dtype", [
    (np.float32, np.float64),
    pytest.param(np.float64, np.complex64, marks=pytest.mark.extended),
    pytest.param(np.complex64, np.int32, marks=pytest.mark.extended)], ids=lambda x: x.__name__)
def test_dtypes_of_both_operands(a_dtype, b_dtype, rng):
  """x has the dtype that both promote to, as in linalg.solve, and the accuracy of that dtype."""
  a, b = positive(rng, N, np.dtype(a_dtype)), np.arange(N).astype(b_dtype)
  with jax.numpy_dtype_promotion("standard"):
    x = dist.solve(place(a, "both"), b, assume_a="pos")
    same, _ = dist.solve_ex(place(a, "both"), b, assume_a="pos")
    expected = linalg.solve(a, b)
  assert x.dtype == same.dtype == expected.dtype
  for found in (x, same):
    close(found, expected, expected.dtype)


def test_empty():
  assert dist.cholesky(place(np.zeros((0, 0)), "both")).shape == (0, 0)
  assert dist.solve(place(np.eye(N), "both"), np.ones((N, 0)), assume_a="pos").shape == (N, 0)


def test_a_factor_is_compared_by_identity():
  factor = dist.cho_factor(place(np.eye(N), "both"))
  assert factor == factor and factor in {factor}


@pytest.mark.parametrize("n,devices", [
    (4160, (64, 1)), (4160, (1, 64)), (4096, (64, 1)), (5000, (8, 8)), (41, (4, 2)),
    (1000, (16, 1)), (65537, (1, 8)), (100_000, (32, 16))])
def test_padding(n, devices):
  """Padding adds less than a panel to a matrix, and little to the exchanged data."""
  mesh = jax.sharding.AbstractMesh(devices, ("x", "y"))
  spec = tuple((name,) if count > 1 else () for name, count in zip("xy", devices, strict=True))
  found = _cyclic.cyclic_of("", _layout.Layout(mesh, spec), n, None, None)
  assert n <= found.padded < n + found.width
  assert found.padded <= max(n + n // 16, n + found.devices - 1)
  exchanged = max(found.redistribution(k).growth for k in (0, 1))
  assert exchanged <= 1.25 if n > 1000 else exchanged <= 2.5


@pytest.mark.extended
@pytest.mark.parametrize(
    "axes", [(("x",), ("y",)), ("x", "y"), (None, ("x", "y"))], ids=["both", "rows", "columns"])
def test_uneven(axes, rng):
  """A size that the devices do not divide, inside `jit` on Auto axes: no device has the matrix."""
  n = N + 1
  mesh, _ = mesh_of("both")
  points, y = np.linspace(0, 1, n), rng.standard_normal(n)

  def likelihood(library, length, y):
    distances = jnp.asarray(points)[:, None] - jnp.asarray(points)[None]
    kernel = jnp.exp(-((distances / length) ** 2)) + jnp.eye(n)
    if library is dist:
      factor = dist.cho_factor(kernel, axes=axes, panel=PANEL)
      return y @ factor.solve(y) + factor.logdet() + jnp.sum(jnp.sin(factor.lower()))
    l = linalg.cholesky(kernel)
    return y @ linalg.cho_solve((l, True), y) + linalg.slogdet(kernel)[1] + jnp.sum(jnp.sin(l))

  calls = [jax.value_and_grad(functools.partial(likelihood, x), (0, 1)) for x in (dist, linalg)]
  with jax.set_mesh(mesh):
    program = quick_compile(calls[0], (0.1, y))
  found, expected = program(0.1, y), quick_jit(calls[1])(0.1, y)
  for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    close(x, y, np.float64)
  assert f"f64[{n},{n}]" not in program.as_text()


def test_a_factor_is_a_pytree(rng):
  """A factor has one type, for traced and for concrete matrices.

  Branches, loop carries and donation accept it.
  """
  a = positive(rng, N, np.float64)
  x = place(a, "both")
  eager = dist.cho_factor(x)
  expected = np.linalg.slogdet(a)[1]

  def several(factor, x):
    factor = jax.lax.cond(factor.info == 0, lambda: factor, lambda: dist.cho_factor(x, axes=AXES))
    factor, _ = jax.lax.scan(lambda f, _: (f, f.info), factor, None, length=2)
    return factor, factor.logdet()

  with jax.set_mesh(x.sharding.mesh):
    traced, logdet = jax.jit(several, donate_argnums=0)(eager, x)
  assert eager.a.is_deleted()
  assert jax.tree.structure(traced) == jax.tree.structure(eager)
  close(logdet, expected, np.float64)
  close(dist.cho_solve(traced, a[0]), np.eye(N)[0], np.float64)


@pytest.mark.extended
def test_other_devices(rng):
  """One program's trace serves meshes of the same shape."""
  a = positive(rng, N, np.float64)
  for devices in (jax.devices()[:2], jax.devices()[2:4]):
    mesh = make_mesh((2,), ("x",), devices=devices)
    l = dist.cholesky(jax.device_put(a, NamedSharding(mesh, P("x"))))
    assert l.sharding.device_set == set(devices)
    close(l, np.linalg.cholesky(a), np.float64)


@pytest.mark.extended
def test_where_it_is_asked(rng):
  """The array, axes= and the mesh of the context give the layout; a factor can be passed to jit."""
  a = positive(rng, N, np.float64)
  x = place(a, "both")
  expected = np.linalg.cholesky(a)
  with jax.set_mesh(x.sharding.mesh):
    by_rows = jax.jit(dist.cholesky)(x)
    both = jax.jit(lambda x: dist.cholesky(x, axes=("x", ("y",))))(x)
    columns = dist.cholesky(a, axes=(None, "y"))
    close(jax.jit(lambda f: f.logdet())(dist.cho_factor(x)), np.linalg.slogdet(a)[1], np.float64)
  for found, spec in ((by_rows, P(("x", "y"))), (both, P("x", "y")), (columns, P(None, "y"))):
    close(found, expected, np.float64)
    assert found.sharding.is_equivalent_to(NamedSharding(x.sharding.mesh, spec), 2)


@pytest.mark.extended
def test_bits_do_not_depend_on_the_layout(rng):
  """Bits agree in one grid at one panel width, also for a size that neither divides."""
  a = positive(rng, 56, np.float64)
  found = [
      np.asarray(dist.cholesky(place(a, layout), grid=(4, 2), panel=16))
      for layout in ("both", "rows twice", "columns")]
  for l in found[1:]:
    np.testing.assert_array_equal(l, found[0])


@pytest.mark.extended
def test_bits_do_not_depend_on_the_grid(rng):
  """Bits agree at one panel width, on one device or eight, where the products are large."""
  n, width = 1024, 64
  a = positive(rng, n, np.float64)
  expected = None
  for devices, grid in ((1, (1, 1)), (2, (2, 1)), (4, (2, 2)), (8, (4, 2)), (8, (8, 1))):
    mesh = make_mesh((devices,), ("x",), devices=jax.devices()[:devices])
    x = jax.device_put(a, NamedSharding(mesh, P("x", None)))
    with jax.set_mesh(mesh):
      l = np.asarray(optimised_jit(lambda a: dist.cholesky(a, grid=grid, panel=width))(x))
    expected = l if expected is None else expected
    np.testing.assert_array_equal(l, expected, f"{grid}")


CALLS = {
    "cholesky": lambda lib, a, b: lib["cholesky"](a),
    "solve": lambda lib, a, b: lib["solve"](a, b),
    "logdet": lambda lib, a, b: lib["logdet"](a),
    "inv": lambda lib, a, b: lib["inv"](a),
}


def logarithms(factor):
  """Returns twice the logarithm of the determinant, computed in two ways."""
  return factor.logdet() + jnp.log(factor.det().real)


MINE = {
    "cholesky": lambda a: dist.cholesky(a, axes=AXES, panel=PANEL),
    "solve": lambda a, b: dist.solve(a, b, assume_a="pos", axes=AXES, panel=PANEL),
    "logdet": lambda a: logarithms(dist.cho_factor(a, axes=AXES, panel=PANEL)),
    "inv": lambda a: dist.inv(a, assume_a="pos", axes=AXES, panel=PANEL)}


def hermitian(a):
  strict = jnp.tril(a, -1)
  return strict + strict.mT.conj() + jnp.diag(jnp.diagonal(a).real).astype(a.dtype)


LINALG = {
    "cholesky": lambda a: linalg.cholesky(a, symmetrize_input=False),
    "solve": lambda a, b: linalg.solve(hermitian(a), b),
    "logdet": lambda a: 2 * linalg.slogdet(hermitian(a)).logabsdet,
    "inv": lambda a: linalg.inv(hermitian(a))}


def derivatives(call, library):
  """Returns derivatives in forward, reverse, and forward over reverse mode."""
  value = lambda a, b: call(library, a, b)

  def loss(a, b):
    x = value(a, b)
    return jnp.sum(jnp.abs(x) ** 3)

  gradient = jax.grad(loss, (0, 1))
  slope = lambda a, b, da, db: sum(
      jnp.sum((x * y).real) for x, y in zip(gradient(a, b), (da, db), strict=True))

  def all_modes(a, b, da, db):
    return (
        jax.jvp(value, (a, b), (da, db))[1], gradient(a, b),
        jax.grad(slope, (0, 1))(a, b, da, db))

  return all_modes


@pytest.mark.extended
@each_derivative(CALLS, ("solve", AxisType.Auto, np.complex128))
def test_derivatives(name, kind, dtype, rng):
  """Derivatives are those of linalg's functions of the lower triangle; no device holds a matrix."""
  n = 24
  host = [positive(rng, n, dtype), *(matrices.general(rng, (), n, k, dtype) for k in (2, n, 2))]
  lie = [place(x, "both", kind) if x.shape[1] == n else x for x in host]
  with jax.set_mesh(lie[0].sharding.mesh), jax.numpy_rank_promotion("allow"):
    program = quick_compile(derivatives(CALLS[name], MINE), lie)
    found = jax.tree.leaves(program(*lie))
    letter = {np.dtype(np.complex128): "c128", np.dtype(np.float64): "f64"}[np.dtype(dtype)]
    grown = _cyclic.cyclic_of(
        "", _layout.square_of("", lie[0], AXES), n, None, PANEL).padded
    assert grown == 32
    for size in {n, grown}:
      assert f"{letter}[{size},{size}]" not in program.as_text()
  with jax.numpy_rank_promotion("allow"):
    expected = jax.tree.leaves(quick_jit(derivatives(CALLS[name], LINALG))(*host))
  for x, y in zip(found, expected, strict=True):
    close(x, y, dtype, 1e5)


@pytest.mark.extended
@pytest.mark.parametrize("transpose", [False, True])
def test_lower_triangle_of_a_solution(transpose, rng):
  """X op(L) = B reads B's lower triangle, and returns X's, with zeros above it."""
  n = 3 * PANEL
  l = np.tril(matrices.general(rng, (), n, n, np.float64)) + n * np.eye(n)
  b = matrices.general(rng, (), n, n, np.float64)
  lie = [place(x, "both") for x in (l, b)]
  grid = _cyclic.cyclic_of("", _layout.square_of("", lie[0], None), n, None, PANEL)

  def solved(l, b):
    l, b = (to_cyclic(grid, x) for x in (l, b))
    return from_cyclic(
        grid, solve_p(l, b, grid=grid, left=False, transpose=transpose, lower=True))

  expected = np.tril(np.linalg.solve(l, b.T).T) if transpose else np.tril(b) @ np.linalg.inv(l)
  close(quick_jit(solved)(*lie), expected, np.float64)


def test_messages():
  """Each panel takes four collectives, and each way to or from the block-cyclic layout eight."""
  n, panel = 256, 16
  x = jax.ShapeDtypeStruct((n, n), np.float32, sharding=NamedSharding(*mesh_of("both")))
  with jax.set_mesh(x.sharding.mesh):
    program = quick_compile(functools.partial(dist.cholesky, axes=AXES, panel=panel), (x,))
  assert sum(dist.report(program).collectives.values()) == 4 * n // panel + 2 * 8


def test_the_program_does_not_grow():
  """A larger matrix has more iterations of the program's loops, but not more loops."""
  lines = []
  for n in (2048, 8192):
    x = jax.ShapeDtypeStruct((n, n), np.float32, sharding=NamedSharding(*mesh_of("both")))
    with jax.set_mesh(x.sharding.mesh):
      text = jax.jit(lambda a: dist.cholesky(a, axes=AXES)).lower(x).as_text()
    lines.append(text.count("\n"))
  assert lines[0] == lines[1]


@pytest.mark.extended
def test_all_phases(rng, all_phases):
  a = positive(rng, 256, np.float64)
  factor = dist.cho_factor(place(a, "both"), panel=8)
  close(factor.lower(), np.linalg.cholesky(a), np.float64)
  close(factor.inverse(), np.linalg.inv(a), np.float64)
  gradient = jax.grad(lambda a: jnp.sum(dist.cholesky(a, panel=8) ** 3))(place(a, "both"))
  expected = jax.grad(
      lambda a: jnp.sum(linalg.cholesky(a, symmetrize_input=False) ** 3))(jnp.asarray(a))
  close(gradient, expected, np.float64, 1e5)


@pytest.mark.parametrize("call,error,message", [
    (lambda x: dist.cholesky(x[:8]), ValueError, r"one square matrix \[n, n\]"),
    (lambda x: dist.cholesky(x[None]), ValueError, "distributed.batched"),
    (lambda x: dist.cholesky(np.asarray(x)), ValueError, "needs a mesh"),
    *[(lambda x, axes=axes: dist.cholesky(x, axes=axes), ValueError, "must be different axes")
      for axes in ("z", ("x", "x"), ("x", ("x",)), ("x", 3), 3, (), (None, None))],
    (lambda x: dist.cholesky(x, grid=(2, 4)), ValueError, "grid of its sharding"),
    (lambda x: dist.cholesky(x, axes="x", grid=(3, 1)), ValueError, "whose product"),
    (lambda x: dist.cholesky(x, panel=12), ValueError, "multiple of the 8 devices"),
    (lambda x: dist.cholesky(x, panel=8.0), ValueError, "multiple of the 8 devices"),
    (lambda x: dist.cholesky(x, grid=4), ValueError, "must be a pair of numbers"),
    (lambda x: dist.solve(x, np.ones(8), assume_a="pos"), ValueError, "Incompatible shapes"),
    (lambda x: dist.solve(x, np.ones((2, N, 1)), assume_a="pos"), ValueError, "matrix being one"),
    (lambda x: dist.cho_solve((x, True), np.ones(N)), TypeError, "cho_factor returns"),
    (lambda x: dist.cholesky(x, axes=x), TypeError, "axes as an option"),
])
def test_errors(call, error, message):
  with pytest.raises(error, match=message):
    call(place(np.eye(N), "both"))


def test_inside_shard_map():
  x = place(np.eye(N), "both")
  inside = jax.shard_map(
      lambda a: dist.cholesky(a[:4, :4]), mesh=x.sharding.mesh, in_specs=x.sharding.spec,
      out_specs=x.sharding.spec)
  with pytest.raises(ValueError, match="inside jax.shard_map an array is a device's own"):
    inside(x)


def test_sharded_otherwise():
  """The ShardingTypeError says how to reshard."""
  x = place(np.eye(N), "both", AxisType.Explicit)
  with pytest.raises(linalg.ffi.ShardingTypeError, match=r"jax.sharding.reshard\(a, .*'y', 'x'"):
    dist.cholesky(x, axes=("y", ("x",)))
  on_all = jax.device_put(np.eye(N), NamedSharding(x.sharding.mesh, P()))
  with pytest.raises(linalg.ffi.ShardingTypeError, match=r"jax.sharding.reshard\(a, "):
    dist.cholesky(on_all)
