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
import matrices
from one_matrix import AXES, PANEL, N, close, each_derivative, each_result, mesh_of, place
from quick import quick_compile, quick_jit


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
  def changes(factor, w, weight):
    larger = factor.update(w)
    both = factor.update(w, weight)
    found = factor.update(w[:, 0]), larger, larger.downdate(w[:, 1:]), both
    return [(y.lower(), y.info, y.logdet()) for y in found]

  factor = positive_factor(x)
  assert factor.n == N
  with jax.set_mesh(x.sharding.mesh):
    found = changes(factor, w, weight)
  products = [product(w[:, :1]), product(w), product(w[:, :1]), product(w, weight)]
  for (l, info, logdet), more in zip(found, products, strict=True):
    expected = np.linalg.cholesky(a + more)
    close(l, expected, dtype)
    close(logdet, 2 * np.log(np.diagonal(expected).real).sum(), dtype)
    assert info == 0 and l.dtype == dtype and l.sharding.is_equivalent_to(x.sharding, 2)


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
  def changes(factor, w, lost):
    return [(x.lower(), x.info) for x in (factor.update(w), factor.downdate(lost))]

  changed = [product(w.astype(np.complex128)), -product(lost.astype(np.complex128))]
  for (l, info), more in zip(changes(factor, w, lost), changed, strict=True):
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
    "downdate": lambda f, w, d: f.update(w).downdate(0.5 * w[:, :2])}


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


def test_messages():
  """Each panel takes three collectives: its rows are dealt, its diagonal block is gathered."""
  n, panel = 256, 16
  sharding = NamedSharding(*mesh_of("both", AxisType.Explicit))
  x = jax.ShapeDtypeStruct((n, n), np.float32, sharding=sharding)
  with jax.set_mesh(sharding.mesh):
    factor = jax.eval_shape(lambda a: dist.cho_factor(a, panel=panel), x)
    program = quick_compile(lambda f, w: f.update(w), (factor, np.ones(n, np.float32)))
  assert sum(dist.report(program).collectives.values()) == 3 * n // panel
  assert f"f32[{n},{n}]" not in program.as_text()


@pytest.mark.parametrize("call,error,message", [
    (lambda f, w: f.update(w[:3]), ValueError,
     r"Incompatible shapes for arguments to update\(\): the factor \(40, 40\) and w \(3,\)"),
    (lambda f, w: f.downdate(np.stack([w] * 2)), ValueError, r"use w\[..., None\]"),
    (lambda f, w: f.update(np.ones((2, N, 1))), ValueError, "changes one matrix .* w has no batch"),
    (lambda f, w: f.update(w, np.ones((2, 1))), ValueError, "so weight has no batch"),
    (lambda f, w: f.update(1j * w), TypeError, "takes real arrays, got complex128 as w"),
    (lambda f, w: f.update(w, 1j), TypeError, "takes a real weight"),
    (lambda f, w: f.update(w, np.ones(2)), ValueError, "weight"),
    (lambda f, w: f.update("w"), TypeError, "update requires ndarray or scalar"),
    (lambda f, w: f.update(jax.device_put(
        np.ones((N, 2)), NamedSharding(mesh_of("both")[0], P(None, "y")))),
     linalg.ffi.ShardingTypeError, r"the columns of w are sharded.*reshard\(w, "),
])
def test_errors(call, error, message):
  factor = positive_factor(place(np.eye(N), "both"))
  with pytest.raises(error, match=message):
    call(factor, np.ones(N))


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
