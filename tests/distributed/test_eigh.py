"""Hermitian matrices that several devices share: eigenvalues, eigenvectors and functions."""

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
from linalg._catalogue import checks
from one_matrix import AXES, N, close, counted, each_derivative, each_result, mesh_of, place
from quick import quick_compile, quick_jit
from sharded import make_mesh

# LAPACK's threshold for its symmetric eigenvalue problems.
LIMIT = 60


def hermitian(rng, n, dtype):
  x = matrices.general(rng, (), n, n, dtype)
  return x + x.conj().T


def check(a, w, v):
  """LAPACK's ratios: the residual and the orthogonality."""
  a, w, v = (np.asarray(x) for x in (a, w, v))
  eps, wide = checks.eps(v), checks.wide(v)
  assert np.all(np.diff(w) >= 0)
  assert checks.orthogonality(v) <= LIMIT
  assert checks.factorisation(a, (wide * checks.wide(w)) @ checks.adjoint(wide), eps) <= LIMIT


def check_subset(some, w, v, first):
  """Eigenvalues have the bits of all. Vectors may differ in the last ones: products of XLA do.

  They have the signs of all. So a difference of some roundings is a difference of vectors.
  """
  values, vectors = (np.asarray(x) for x in some)
  last = first + len(values)
  np.testing.assert_array_equal(values, np.asarray(w)[first:last])
  assert checks.orthogonality(vectors) <= LIMIT
  close(vectors, np.asarray(v)[:, first:last], vectors.dtype, 10)


@each_result
def test_results(layout, kind, dtype, rng):
  """V is sharded like A; eigenvalues and info are on all devices."""
  a = hermitian(rng, N, dtype)
  x = place(a, layout, kind)
  w, v, info = dist.eigh_ex(x)
  check(a, w, v)
  assert info == 0 and info.dtype == np.int32
  assert v.sharding.is_equivalent_to(x.sharding, 2) and v.dtype == dtype
  assert w.sharding.is_fully_replicated and info.sharding.is_fully_replicated
  assert w.dtype == np.finfo(dtype).dtype
  close(w, np.linalg.eigvalsh(a), dtype)


@pytest.mark.parametrize("layout, n, dtype", [
    ("both", N, np.complex128),
    *[pytest.param(*x, marks=pytest.mark.extended) for x in (
        ("rows", N, np.float32), ("columns", N, np.float64), ("turned", N, np.complex64),
        *(("both", n, np.float64) for n in (1, 2, 3, 13, 41, 130)))]])
def test_results_in_a_grid(layout, n, dtype, rng, in_a_grid):
  """Eigenpairs, eigenvalues alone and a subset, also of sizes that no panel divides."""
  a = hermitian(rng, n, dtype)
  mesh, spec = mesh_of(layout)
  axes = tuple(spec) + (None,) * (2 - len(spec))
  with jax.set_mesh(mesh):
    (w, v), alone, some = quick_jit(lambda a: (
        tuple(dist.eigh(a, axes=axes)), dist.eigvalsh(a, axes=axes),
        tuple(dist.eigh(a, axes=axes, subset_by_index=(n // 2, n)))))(a)
  check(a, w, v)
  np.testing.assert_array_equal(alone, w)
  check_subset(some, w, v, n // 2)


def check_types(types):
  """Checks the decompositions of named matrices, as one batch."""
  a = np.stack(list(types.values()))
  mesh, _ = mesh_of("both")
  with jax.set_mesh(mesh):
    w, v, info = quick_jit(lambda a: dist.eigh_ex(a, axes=AXES))(a)
  assert not np.any(info)
  for one in zip(a, w, v, strict=True):
    check(*one)


@pytest.mark.extended
def test_matrix_types_in_a_grid(in_a_grid):
  """LAPACK's test matrices, as one batch."""
  n = 20
  types = matrices.hermitian_types(np.random.default_rng(1), n, np.float64)
  types |= {"zero": np.zeros((n, n)), "identity": np.eye(n)}
  types |= {f"scaled by {x}": types["geometric"] * x for x in (1e150, 1e-150)}
  check_types(types)


@pytest.mark.extended
@pytest.mark.parametrize("name", ["eigh", "svd"])
def test_bits_in_any_layout(name, rng):
  """On eight devices they do not depend on how the matrix is sharded."""
  a = hermitian(rng, N, np.float64)
  mesh = make_mesh((4, 2), ("x", "y"), AxisType.Explicit)
  specs = (P("x", "y"), P(("x", "y"), None), P(None, ("x", "y")), P("y", "x"))
  found = [getattr(dist, name)(jax.device_put(a, NamedSharding(mesh, spec))) for spec in specs]
  for other in found[1:]:
    for mine, theirs in zip(other, found[0], strict=True):
      np.testing.assert_array_equal(mine, theirs)


@pytest.mark.extended
@pytest.mark.parametrize("layout", ["both", "rows", "columns"])
def test_values_alone(layout, rng):
  """They are those of `eigh`, bit for bit."""
  x = place(hermitian(rng, N, np.complex128), layout)
  np.testing.assert_array_equal(dist.eigvalsh(x), dist.eigh(x).eigenvalues)
  some = dist.eigvalsh(x, subset_by_index=(N - 3, N))
  np.testing.assert_array_equal(some, dist.eigvalsh(x)[-3:])


@pytest.mark.extended
@pytest.mark.parametrize("layout", ["both", "rows", "columns", "rows twice"])
@pytest.mark.parametrize("subset", [(0, 4), (N - 5, N), (7, 8)])
def test_subsets(layout, subset, rng):
  """The wanted eigenvectors, and their derivatives, are columns of all."""
  a = hermitian(rng, N, np.float64)
  x, (first, last) = place(a, layout, AxisType.Explicit), subset
  check_subset(dist.eigh(x, subset_by_index=subset), *dist.eigh(x), first)

  def loss(eigh, a):
    w, v = eigh(a)
    return jnp.sum(w**2) + jnp.sum(jnp.abs(v) ** 4)

  with jax.set_mesh(x.sharding.mesh):
    mine = quick_jit(jax.grad(
        functools.partial(loss, functools.partial(dist.eigh, subset_by_index=subset))))(x)
  cut = lambda a: (y[..., first:last] for y in linalg.eigh(a))
  close(mine, jax.grad(functools.partial(loss, cut))(a), np.float64, 1e5)


def test_a_subset_is_that_of_linalg(rng):
  """Values, and the derivative of `eigvalsh`."""
  a = hermitian(rng, 16, np.float64)
  x = place(a, "rows", AxisType.Explicit)

  def slope(eigvalsh, a):
    return jax.grad(lambda a: jnp.sum(eigvalsh(a, subset_by_index=(13, 15)) ** 2))(a)

  with jax.set_mesh(x.sharding.mesh):
    for subset in ((13, 15), (5, 5)):
      w, v = quick_jit(lambda a, s=subset: tuple(dist.eigh(a, subset_by_index=s)))(x)
      close(w, linalg.eigvalsh(a, subset_by_index=subset), np.float64)
      assert v.shape == (16, len(w))
    mine = quick_jit(functools.partial(slope, dist.eigvalsh))(x)
  close(mine, slope(linalg.eigvalsh, jnp.asarray(a)), np.float64, 1e4)


@pytest.mark.extended
@cases.each_dtype(np.float32, np.complex128)
@pytest.mark.parametrize("n", [1, 2, 3, 20, 50])
def test_matrix_types(n, dtype):
  """LAPACK's test matrices, and some that are named after their authors, as one batch."""
  types = matrices.hermitian_types(np.random.default_rng(1), n, dtype)
  types |= matrices.named_types(n, dtype)[0]
  types |= {"zero": np.zeros((n, n), dtype), "identity": np.eye(n, dtype=dtype)}
  if np.finfo(dtype).bits == 64:
    types |= {f"scaled by {x}": types["geometric"] * x for x in (1e150, 1e-150)}
  check_types(types)


@pytest.mark.extended
def test_a_larger_matrix(rng, all_phases):
  """Merges in several blocks, all stages, and panels of the full width."""
  n = 600
  for a in (hermitian(rng, n, np.float64), matrices.named_types(n, np.float64)[0]["wilkinson"]):
    x = place(a, "both")
    w, v = dist.eigh(x)
    check(a, w, v)
    np.testing.assert_array_equal(w, dist.eigvalsh(x))


@pytest.mark.extended
@pytest.mark.parametrize("n", [0, 1, 2, 7, 13, 41])
def test_sizes_that_devices_do_not_divide(n, rng):
  a = hermitian(rng, n, np.complex128)
  mesh, _ = mesh_of("both")
  with jax.set_mesh(mesh):
    w, v = quick_jit(lambda a: tuple(dist.eigh(a, axes=AXES)))(a)
  assert w.shape == (n,) and v.shape == (n, n)
  check(a, w, v)


@pytest.mark.extended
def test_batches(rng):
  """A matrix that fails is NaN, and the others have the bits that they have alone."""
  stack = np.stack([hermitian(rng, 24, np.float64) for _ in range(3)])
  stack[1, 3, 5] = np.nan
  mesh, _ = mesh_of("both", AxisType.Explicit)
  x = jax.device_put(stack, NamedSharding(mesh, P(None, "x", "y")))
  w, v, info = dist.eigh_ex(x)
  np.testing.assert_array_equal(info, [0, -1, 0])
  assert np.isnan(w[1]).all() and np.isnan(v[1]).all()
  assert v.sharding.is_equivalent_to(x.sharding, 3)
  for i in (0, 2):
    alone = dist.eigh(place(stack[i], "both", AxisType.Explicit))
    for found, expected in zip((w[i], v[i]), alone, strict=True):
      np.testing.assert_array_equal(found, expected)
  mapped = quick_jit(jax.vmap(dist.eigvalsh))(x)
  np.testing.assert_array_equal(mapped, w)


def _projector(v, k):
  """A function of the eigenvectors that does not depend on their phases."""
  return jnp.abs(v[:, :k]) ** 2


def _of_both(pair, c):
  w, v = pair
  return jnp.sum(jnp.sin(w)) + jnp.sum(_projector(v, 4) * c[:, :4].real)


LOSSES = {
    "eigh": lambda m, a, c: _of_both(m.eigh(a), c),
    "eigvalsh": lambda m, a, c: jnp.sum(m.eigvalsh(a) ** 3),
    "funm_hermitian": lambda m, a, c: jnp.sum(
        (m.funm_hermitian(a, lambda w, t: jnp.tanh(w - t), args=(0.3,)) * c).real),
    "inverse_pth_root": lambda m, a, c: jnp.sum(
        (m.inverse_pth_root(a + 40 * jnp.eye(len(a), dtype=a.dtype), 4, ridge_epsilon=1e-3)
         * c).real),
    "eigh_generalized": lambda m, a, c: _of_both(
        m.eigh_generalized(a, c + 40 * jnp.eye(len(a), dtype=a.dtype)), c),
}


class _OnDevices:
  """The functions of linalg.distributed, with the axes of "both"."""

  def __getattr__(self, name):
    return functools.partial(getattr(dist, name), axes=AXES)


@each_derivative(LOSSES)
def test_derivatives(name, kind, dtype, rng):
  """Both modes agree with one device, and no device holds a matrix."""
  n = 24
  a, c, direction = (hermitian(rng, n, dtype) for _ in range(3))
  lie = [place(x, "both", kind) for x in (a, c, direction)]

  def derivatives(module, a, c, direction):
    loss = functools.partial(LOSSES[name], module)
    slope = jax.jvp(lambda a: loss(a, c), (a,), (direction,))[1]
    return jax.grad(loss)(a, c), slope

  with jax.set_mesh(lie[0].sharding.mesh):
    if name in ("inverse_pth_root", "eigh_generalized"):
      found = quick_jit(functools.partial(derivatives, _OnDevices()))(*lie)
    else:
      program = quick_compile(functools.partial(derivatives, _OnDevices()), lie)
      found = program(*lie)
      for letter in ("f64", "c128"):
        assert f"{letter}[{n},{n}]" not in program.as_text()
  with jax.numpy_rank_promotion("allow"):
    expected = quick_jit(functools.partial(derivatives, linalg))(a, c, direction)
  if name == "eigh_generalized":
    # linalg's reads the lower triangle of A, so its gradient lies there.
    found, expected = (
        (np.asarray(x[0]) + np.asarray(x[0]).conj().T, x[1]) for x in (found, expected))
  for mine, theirs in zip(found, expected, strict=True):
    close(mine, theirs, dtype, 1e6)


@pytest.mark.extended
def test_second_derivatives(rng):
  a, direction = (hermitian(rng, 24, np.float64) for _ in range(2))

  def product(eigvalsh, a, direction):
    slope = jax.grad(lambda a: jnp.sum(eigvalsh(a) ** 3))
    return jax.jvp(slope, (a,), (direction,))[1]

  lie = [place(x, "both", AxisType.Explicit) for x in (a, direction)]
  with jax.set_mesh(lie[0].sharding.mesh):
    found = quick_jit(functools.partial(product, dist.eigvalsh))(*lie)
  close(found, product(linalg.eigvalsh, jnp.asarray(a), direction), np.float64, 1e6)


@pytest.mark.extended
@pytest.mark.parametrize("dtype, power", [(np.float64, 500), (np.float32, 60)])
def test_scales_of_roots(dtype, power):
  """Second derivatives stay in range where those of w^(-1/4) do not."""
  n = 8
  e = np.add.outer(np.arange(n), np.arange(n)).astype(dtype) / n
  a = np.diag(np.arange(1, n + 1)).astype(dtype)

  def results(scale, t):
    x, unit = scale * (a + t * e), scale**0.25
    return (dist.inverse_pth_root(x, 4, axes="x") * unit,
            dist.inverse_pth_root(x, 4, epsilon=scale, axes="x") * unit)

  def second(scale):
    one = jnp.ones_like(scale)
    first = lambda t: jax.jvp(functools.partial(results, scale), (t,), (one,))[1]
    return jax.jvp(first, (0 * scale,), (one,))[1]

  with jax.set_mesh(mesh_of("one device")[0]):
    program = quick_jit(second)
    of_one = program(dtype(1))
    for scale in (dtype(2.0**power), dtype(2.0**-power)):
      for found, expected in zip(program(scale), of_one, strict=True):
        close(found, expected, dtype, 100)


@pytest.mark.extended
def test_equal_eigenvalues():
  """First derivatives are those of linalg's functions; second derivatives are NaN."""
  n = 16
  a = np.diag(np.repeat([1.0, 2.0], n // 2))
  c = np.add.outer(np.arange(n), np.arange(n)) / n
  x = place(a, "both", AxisType.Explicit)
  losses = {
      "spectral sum": lambda m, a: jnp.sum(m.eigvalsh(a) ** 3),
      "function": lambda m, a: jnp.sum(m.funm_hermitian(a, jnp.sqrt) ** 2)}
  with jax.set_mesh(x.sharding.mesh):
    for loss in losses.values():
      mine = quick_jit(jax.grad(functools.partial(loss, dist)))(x)
      close(mine, jax.grad(functools.partial(loss, linalg))(jnp.asarray(a)), np.float64)
      program = quick_jit(lambda x, c, loss=loss: jax.jvp(
          jax.grad(functools.partial(loss, dist)), (x,), (c,))[1])
      assert np.isnan(program(x, place(c, "both", AxisType.Explicit))).any()


@pytest.mark.extended
@cases.each_dtype(np.float64, np.complex128)
def test_pairs(dtype, rng):
  a, b = hermitian(rng, N, dtype), matrices.positive_definite(rng, (), N, dtype)
  lie = [place(x, "both", AxisType.Explicit) for x in (a, b)]
  w, v = dist.eigh_generalized(*lie)
  assert v.sharding.is_equivalent_to(lie[0].sharding, 2)
  v = np.asarray(v)
  close(a @ v, b @ v * np.asarray(w), dtype, 1e5)
  close(v.conj().T @ b @ v, np.eye(N), dtype, 1e5)
  some = dist.eigh_generalized(*lie, subset_by_index=(2, 6))
  close(some.eigenvectors, v[:, 2:6], dtype)
  indefinite = place(-np.eye(N, dtype=dtype), "both", AxisType.Explicit)
  assert all(np.isnan(x).all() for x in dist.eigh_generalized(lie[0], indefinite))


@pytest.mark.extended
def test_functions_of_stacks(rng):
  stack = np.stack([matrices.positive_definite(rng, (), 24, np.float64) for _ in range(2)])
  mesh, _ = mesh_of("both", AxisType.Explicit)
  x = jax.device_put(stack, NamedSharding(mesh, P(None, "x", "y")))
  with jax.set_mesh(mesh):
    close(dist.inverse_pth_root(x, 2), linalg.inverse_pth_root(stack, 2), np.float64, 1e4)
    t = jnp.array([0.1, 0.2])
    f = lambda w, t: jnp.sin(w * t)
    found = dist.funm_hermitian(x, f, args=(t,))
  close(found, linalg.funm_hermitian(stack, f, args=(t,)), np.float64, 1e4)


def _slope(a):
  w, v = dist.eigh(a)
  return jnp.sum(w**2) + jnp.sum(v**4)


PROGRAMS = {"eigh": lambda a: tuple(dist.eigh(a)), "eigvalsh": dist.eigvalsh,
            "gradient": jax.grad(_slope)}


@pytest.mark.extended
@pytest.mark.parametrize("name, layout, n, shares, words", [
    ("eigh", "both", 1024, 5, 7), ("eigh", "rows twice", 1024, 5, 7),
    ("eigh", "columns", 1000, 5.5, 7.5), ("eigvalsh", "both", 1024, 4.5, 4.6),
    ("gradient", "both", 1024, 8.5, 14)])
def test_memory_and_words(name, layout, n, shares, words, all_phases):
  """The shares that a device holds, and the words that it receives, in n² / √P."""
  held, received, _ = counted(
      PROGRAMS[name], NamedSharding(*mesh_of(layout, AxisType.Explicit)), n)
  assert held <= shares and received <= words


@pytest.mark.parametrize("call,error,message", [
    (lambda x: dist.eigh(x[:8]), ValueError, r"square matrices \[..., n, n\]"),
    (lambda x: dist.eigvalsh(np.asarray(x)), ValueError, "needs a mesh"),
    (lambda x: dist.eigh(x, subset_by_index=(3, 2)), ValueError, "subset_by_index.*start <= stop"),
    (lambda x: dist.eigh(x, subset_by_index=(0, N + 1)), ValueError, "subset_by_index"),
    (lambda x: dist.eigvalsh(x, subset_by_index=3), ValueError, "must be .start, stop"),
    (lambda x: dist.eigh(x, axes="z"), ValueError, "must be different axes"),
    (lambda x: dist.eigh_generalized(x, place(np.eye(16), "both")), ValueError, "Incompatible"),
    (lambda x: dist.inverse_pth_root(x, 0), ValueError, "must not be 0"),
])
def test_errors(call, error, message):
  with pytest.raises(error, match=message):
    call(place(np.eye(N), "both"))


def test_a_constant_function(rng):
  """f may return one number for all eigenvalues."""
  x = place(hermitian(rng, 8, np.float64), "one device", AxisType.Explicit)
  with jax.set_mesh(x.sharding.mesh):
    value, slope = quick_jit(jax.value_and_grad(
        lambda x: jnp.sum(dist.funm_hermitian(x, lambda w: 3.0))))(x)
  close(value, 24, np.float64)
  close(slope, np.zeros((8, 8)), np.float64)


@pytest.mark.parametrize("b,spec,error,message", [
    (np.eye(8), P("y", "x"), linalg.ffi.ShardingTypeError, "b is .* must be sharded as a is"),
    (np.ones((8, 16)), P("x", "y"), ValueError, "b .*8, 16")])
def test_errors_of_pairs(b, spec, error, message):
  mesh = make_mesh((4, 2), ("x", "y"), AxisType.Explicit)
  a = jax.device_put(np.eye(8), NamedSharding(mesh, P("x", "y")))
  b = jax.device_put(b, NamedSharding(mesh, spec))
  with pytest.raises(error, match=message):
    dist.eigh_generalized(a, b)


def test_empty_matrices():
  a = np.zeros((0, 0))
  with jax.set_mesh(make_mesh((4, 2), ("x", "y"))):
    found = dist.funm_hermitian(a, jnp.exp, axes=AXES), dist.inverse_pth_root(a, 2, axes=AXES)
    w, v = dist.eigh_generalized(a, a, axes=AXES)
  assert w.shape == (0,)
  assert all(x.shape == (0, 0) and x.dtype == a.dtype for x in (*found, v))


@pytest.mark.extended
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_no_eigenpairs(kind, rng):
  """An empty subset, called without `jit`."""
  w, v = dist.eigh(place(hermitian(rng, N, np.float64), "both", kind), subset_by_index=(5, 5))
  assert w.shape == (0,) and v.shape == (N, 0)


@pytest.mark.extended
@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto])
def test_a_sharded_batch(kind, rng):
  """The batch lies on one axis of the mesh, and the matrices on others.

  A matrix that fails is NaN, and the others have the bits that they have alone. No device holds a
  matrix.
  """
  n = 24
  mesh = make_mesh((2, 2, 2), ("z", "x", "y"), kind)
  a = np.stack([hermitian(rng, n, np.complex128) for _ in range(4)])
  a[2, 3, 5] = np.nan
  x = jax.device_put(a, NamedSharding(mesh, P("z", "x", "y")))
  w, v, info = dist.eigh_ex(x)
  np.testing.assert_array_equal(info, [0, 0, -1, 0])
  assert v.sharding.is_equivalent_to(x.sharding, 3)
  for found in (w, info):
    assert found.sharding.is_equivalent_to(NamedSharding(mesh, P("z")), found.ndim)
  np.testing.assert_array_equal(dist.eigvalsh(x), w)
  w, v = np.asarray(w), np.asarray(v)
  alone = make_mesh((2, 2), ("x", "y"), kind, devices=jax.devices()[:4])
  for i in (0, 1, 3):
    check(a[i], w[i], v[i])
    one = dist.eigh(jax.device_put(a[i], NamedSharding(alone, P("x", "y"))))
    for mine, theirs in zip((w[i], v[i]), one, strict=True):
      np.testing.assert_array_equal(mine, theirs)
  some = jax.device_get(dist.eigh(x, subset_by_index=(3, 7)))
  for i in (0, 1, 3):
    check_subset([x[i] for x in some], w[i], v[i], 3)
  with jax.set_mesh(mesh):
    program = quick_compile(lambda a: tuple(dist.eigh(a, axes=AXES)), (x,))
  for count in (2, 4):
    assert f"c128[{count},{n},{n}]" not in program.as_text()


@pytest.mark.extended
@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto])
@pytest.mark.parametrize("name", ["eigh", "eigvalsh", "funm_hermitian", "inverse_pth_root"])
def test_derivatives_of_a_sharded_batch(name, kind, rng):
  """They are those of linalg's functions, matrix by matrix."""
  n = 16
  mesh = make_mesh((2, 2, 2), ("z", "x", "y"), kind)
  a, c, direction = (
      np.stack([hermitian(rng, n, np.float64) for _ in range(2)]) for _ in range(3))
  lie = [jax.device_put(x, NamedSharding(mesh, P("z", "x", "y"))) for x in (a, c, direction)]

  def one(module, a, c):
    if name == "eigh":
      w, v = module.eigh(a)
      return jnp.sum(jnp.sin(w)) + jnp.sum(jnp.abs(v[..., :4]) ** 2 * c[..., :4])
    if name == "eigvalsh":
      return jnp.sum(module.eigvalsh(a) ** 3)
    if name == "funm_hermitian":
      t = jnp.array([0.3, 0.4])
      return jnp.sum(module.funm_hermitian(a, lambda w, t: jnp.tanh(w - t), args=(t,)) * c)
    return jnp.sum(module.inverse_pth_root(a + 40 * np.eye(n), 4, ridge_epsilon=1e-3) * c)

  def derivatives(module, a, c, direction):
    loss = lambda a: one(module, a, c)
    return jax.grad(loss)(a), jax.jvp(loss, (a,), (direction,))[1]

  with jax.set_mesh(mesh), jax.numpy_rank_promotion("allow"):
    found = quick_jit(functools.partial(derivatives, _OnDevices()))(*lie)
    expected = derivatives(linalg, *map(jnp.asarray, (a, c, direction)))
  for mine, theirs in zip(found, expected, strict=True):
    close(mine, theirs, np.float64, 1e6)


@pytest.mark.extended
@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto])
def test_a_sharded_batch_of_pairs(kind, rng):
  """One matrix B that is not positive definite spoils its own pair. B may serve the whole batch."""
  n = 16
  mesh = make_mesh((2, 2, 2), ("z", "x", "y"), kind)
  a = np.stack([hermitian(rng, n, np.complex128) for _ in range(4)])
  b = np.stack([matrices.positive_definite(rng, (), n, np.complex128) for _ in range(4)])
  spoilt = b.copy()
  spoilt[1] -= 2 * np.linalg.norm(b[1]) * np.eye(n)
  put = lambda x, *spec: jax.device_put(x, NamedSharding(mesh, P(*spec)))
  x, y = put(a, "z", "x", "y"), put(b, "z", "x", "y")
  w, v = dist.eigh_generalized(x, y)
  assert v.sharding.is_equivalent_to(x.sharding, 3)
  assert w.sharding.is_equivalent_to(NamedSharding(mesh, P("z")), 2)
  found = jax.device_get(dist.eigh_generalized(x, put(spoilt, "z", "x", "y")))
  assert all(np.isnan(z[1]).all() for z in found)
  for mine, theirs in zip(found, (w, v), strict=True):
    np.testing.assert_array_equal(mine[[0, 2, 3]], np.asarray(theirs)[[0, 2, 3]])
  shared = jax.device_get(dist.eigh_generalized(x, put(b[0], "x", "y")))
  some = jax.device_get(dist.eigh_generalized(x, y, subset_by_index=(2, 6)))
  w, v = jax.device_get((w, v))
  for i in range(4):
    for (values, vectors), one in (((w, v), b[i]), (shared, b[0])):
      values, vectors = values[i], vectors[i]
      close(a[i] @ vectors, one @ vectors * values, np.complex128, 1e5)
      close(vectors.conj().T @ one @ vectors, np.eye(n), np.complex128, 1e5)
    close(some.eigenvectors[i], v[i][:, 2:6], np.complex128)

  def slopes(module, a, b):
    loss = lambda a, b: jnp.sum(jnp.sin(module.eigh_generalized(a, b)[0]))
    return jax.grad(loss, (0, 1))(a, b)

  with jax.set_mesh(mesh):
    found = quick_jit(functools.partial(slopes, dist))(x, y) if kind == AxisType.Explicit \
        else quick_jit(functools.partial(slopes, _Specified()))(x, y)
  expected = slopes(linalg, a, b)
  sums = lambda x: np.asarray(x) + np.asarray(x).conj().swapaxes(1, 2)
  for mine, theirs in zip(found, expected, strict=True):
    close(sums(mine), sums(theirs), np.complex128, 1e6)


class _Specified:
  """The functions of linalg.distributed, with the sharding of a batch."""

  def __getattr__(self, name):
    return functools.partial(getattr(dist, name), axes=P("z", "x", "y"))


OF_BATCHES = {
    "eigvalsh": lambda m, a: m.eigvalsh(a),
    "eigh": lambda m, a: tuple(m.eigh(a)),
    "gradient": lambda m, a: jax.grad(lambda a: jnp.sum(m.eigvalsh(a) ** 3))(a),
    "eigh_generalized": lambda m, a: tuple(m.eigh_generalized(a, a)),
    "inverse_pth_root": lambda m, a: m.inverse_pth_root(a, 2),
    "svd": lambda m, a: tuple(m.svd(a)), "qr": lambda m, a: tuple(m.qr(a)),
    "polar": lambda m, a: m.polar(a), "pinv": lambda m, a: m.pinv(a)}


@pytest.mark.parametrize("name", [
    "eigvalsh", *[pytest.param(x, marks=pytest.mark.extended) for x in list(OF_BATCHES)[1:]]])
def test_a_specification(name):
  """On Auto axes inside `jit` a batch moves no more than on Explicit axes, which show its sharding.

  No device holds more than its own matrices.
  """
  n, found = 16, {}
  for kind in (AxisType.Auto, AxisType.Explicit):
    mesh = make_mesh((2, 2, 2), ("z", "x", "y"), kind)
    module = _Specified() if kind == AxisType.Auto else dist
    x = jax.ShapeDtypeStruct(
        (4, n, n), np.float64, sharding=NamedSharding(mesh, P("z", "x", "y")))
    with jax.set_mesh(mesh):
      program = quick_compile(functools.partial(OF_BATCHES[name], module), (x,))
    found[kind] = dist.report(program).moved
    for count in (2, 4):
      assert f"f64[{count},{n},{n}]" not in program.as_text()
  assert 0 < found[AxisType.Auto] <= found[AxisType.Explicit]


@pytest.mark.parametrize("axes", [P("x", "y", None, None), P(None, "x", "x"), P("w", "x")])
def test_errors_of_specifications(axes):
  a = jax.device_put(np.zeros((2, 8, 8)), NamedSharding(mesh_of("both")[0], P()))
  with pytest.raises(ValueError, match="at most 3 entries.* of different axes"):
    dist.eigh(a, axes=axes)


def test_errors_of_sharded_batches():
  """A batch on all axes leaves none for the matrix. Pairs are sharded alike."""
  mesh = make_mesh((4, 2), ("x", "y"), AxisType.Explicit)
  put = lambda *spec: jax.device_put(np.zeros((8, 8, 8)), NamedSharding(mesh, P(*spec)))
  with pytest.raises(ValueError, match="sharded over all axes of the mesh; use linalg.eigh"):
    dist.eigh(put(("x", "y")))
  for spec in (("x", "y"), ("y", "x"), (None, "x", "y")):
    with pytest.raises(linalg.ffi.ShardingTypeError, match=r"b is .*reshard\(b, .*'x', None, 'y'"):
      dist.eigh_generalized(put("x", None, "y"), put(*spec))
  # The axes of B's batch may be those of A's matrices, or of another batch dimension.
  message = r"reshard\(b, .*\(None, 'x', None\)\)"
  with pytest.raises(linalg.ffi.ShardingTypeError, match=message):
    dist.eigh_generalized(put(None, "x", None), put("x", None, "y"))
  put = lambda *spec: jax.device_put(np.zeros((4, 4, 8, 8)), NamedSharding(mesh, P(*spec)))
  message = r"reshard\(b, .*\('y', None, 'x', None\)\)"
  with pytest.raises(linalg.ffi.ShardingTypeError, match=message):
    dist.eigh_generalized(put("y", None, "x", None), put(None, "y", "x", None))


def test_error_of_a_batch_of_one():
  """A batch dimension of one matrix is not proposed to be sharded, and what is proposed works."""
  mesh = make_mesh((2, 2, 2), ("z", "x", "y"), AxisType.Explicit)
  put = lambda size, *spec: jax.device_put(
      np.broadcast_to(np.eye(8), (size, 8, 8)), NamedSharding(mesh, P(*spec)))
  a = put(4, "z", "x", None)
  with pytest.raises(linalg.ffi.ShardingTypeError, match=r"reshard\(b, .*\(None, 'x', None\)\)"):
    dist.eigh_generalized(a, put(1, None, "y", None))
  w, _ = dist.eigh_generalized(a, put(1, None, "x", None))
  np.testing.assert_array_equal(w, np.ones((4, 8)))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_errors_of_specified_batches(kind):
  """A specification of A does not hide the sharding of B."""
  mesh = make_mesh((2, 2, 2), ("z", "x", "y"), kind)
  put = lambda *spec: jax.device_put(np.zeros((4, 8, 8)), NamedSharding(mesh, P(*spec)))
  with pytest.raises(linalg.ffi.ShardingTypeError, match=r"b is .*reshard\(b, .*'z', 'x', None\)"):
    dist.eigh_generalized(put("z", "x", None), put("y", "x", None), axes=P("z", "x", None))


@pytest.mark.extended
def test_checked(rng):
  x = place(np.where(np.eye(N) == 1, np.nan, 0), "one device")
  with pytest.raises(linalg.LinAlgError, match="eigendecomposition"):
    linalg.checked(lambda a: dist.eigh(a, axes="x"))(x)
