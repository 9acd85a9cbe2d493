"""Inverse roots of sharded Gram matrices: results are linalg.inverse_pth_root's of A Aᴴ."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import linalg
import linalg.distributed as dist
import matrices
import selection
from one_matrix import close
from quick import quick_compile, quick_jit
from sharded import KINDS, make_mesh

ROWS, N = 48, 4
OPTIONS = {"ridge_epsilon": 1e-3, "epsilon": 1e-2}
BY_ROWS = P(("x", "y"), None)


def place(x, kind=AxisType.Auto, spec=BY_ROWS):
  return jax.device_put(x, NamedSharding(make_mesh((4, 2), ("x", "y"), kind), spec))


def of_gram(a, p, **options):
  return linalg.inverse_pth_root(a.mT.conj() @ a, p, **options)


@selection.extended_for("Auto")
@KINDS
@pytest.mark.parametrize("dtype", [
    np.complex128, *[pytest.param(x, marks=pytest.mark.extended)
                     for x in (np.float32, np.float64, np.complex64)]])
def test_results(kind, dtype, rng):
  """Cases are tall and wide matrices with uneven rows, with and without epsilons."""
  a = matrices.general(rng, (), ROWS, N, dtype)
  for x in (place(a, kind), place(a.T, kind, P(None, ("x", "y")))):
    found = dist.gram_inverse_pth_root(x, 4, **OPTIONS)
    small = a if x.shape == a.shape else a.conj()
    close(found, of_gram(small, 4, **OPTIONS), dtype)
    assert found.sharding.is_fully_replicated and found.dtype == dtype
  close(dist.gram_inverse_pth_root(place(a, kind), 2), of_gram(a, 2), dtype)
  with jax.set_mesh(make_mesh((4, 2), ("x", "y"))):
    close(dist.gram_inverse_pth_root(a[:-1], 2), of_gram(a[:-1], 2), dtype)


@pytest.mark.parametrize("kind", [
    AxisType.Explicit, pytest.param(AxisType.Auto, marks=pytest.mark.extended)],
    ids=lambda x: x.name)
def test_batch(kind, rng):
  """A batch may be sharded over another axis and have an epsilon for each matrix."""
  a = matrices.general(rng, (4,), ROWS, N, np.float64)
  x = place(a, kind, P("x", "y", None))
  epsilon = np.arange(1.0, 5)
  found = dist.gram_inverse_pth_root(x, 2, epsilon=epsilon)
  close(found, of_gram(a, 2, epsilon=epsilon), np.float64)


@pytest.mark.parametrize("name,s,kind", [
    pytest.param(name, s, kind, id=f"{name}-{kind.name}", marks=pytest.mark.extended)
    for name, s in (("separate", (3.0, 2, 1, 0.5)), ("equal", (3.0, 2, 2, 2)),
                    ("nearly equal", (3.0, 2, 2 - 1e-12, 2 - 1e-13)))
    for kind in (AxisType.Auto, AxisType.Explicit)[name != "equal" :]])
def test_derivatives(name, s, kind, rng):
  """All modes are right, at equal eigenvalues too, and no device has A.

  The largest eigenvalue stays distinct, because `ridge_epsilon` takes a part of it.
  """
  u, _ = np.linalg.qr(matrices.general(rng, (), ROWS, N, np.float64))
  v, _ = np.linalg.qr(matrices.general(rng, (), N, N, np.float64))
  a, da = u * s @ v, matrices.general(rng, (), ROWS, N, np.float64)

  def all_of(root):
    loss = lambda a: jnp.sum(jnp.sin(root(a, 4, **OPTIONS)))
    return lambda a, da: (
        jax.jvp(lambda a: root(a, 4, **OPTIONS), (a,), (da,)), jax.jvp(jax.grad(loss), (a,), (da,)))

  mine = all_of(lambda *args, **options: dist.gram_inverse_pth_root(
      *args, **options, axes=("x", "y")))
  lie = place(a, kind), place(da, kind)
  with jax.set_mesh(lie[0].sharding.mesh):
    program = quick_compile(mine, lie)
    found = program(*lie)
  expected = quick_jit(all_of(of_gram))(a, da)
  for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    close(x, y, np.float64, 1e4)
  assert f"f64[{ROWS},{N}]" not in program.as_text()


def test_what_moves():
  """The program moves one sum of n² numbers, and the largest entry."""
  x = place(np.zeros((ROWS, N), np.float32), AxisType.Explicit)
  program = quick_jit(lambda a: dist.gram_inverse_pth_root(a, 4, **OPTIONS)).lower(x).compile()
  found = dist.report(program)
  assert set(found.collectives) == {"all-reduce"} and found.moved <= 4 * (N * N + 1)


@pytest.mark.parametrize("size", [1e-25, 1.0, 1e25])
def test_scale(size, rng):
  """Squares neither overflow nor underflow."""
  a = matrices.general(rng, (), ROWS, N, np.float32)
  found = dist.gram_inverse_pth_root(place((size * a).astype(np.float32)), 4, ridge_epsilon=1e-3)
  close(found * np.float32(size**0.5), of_gram(a, 4, ridge_epsilon=1e-3), np.float32)


def test_epsilon_above_the_matrix(rng):
  """The root of a matrix that is small beside epsilon is that of epsilon, and batches may mix."""
  a = matrices.general(rng, (2,), ROWS, N, np.float32)
  a[0] *= np.float32(1e-25)
  x = jax.device_put(a, NamedSharding(make_mesh((4, 2), ("x", "y"), AxisType.Auto), P(None, "x")))
  for epsilon in (10.0, np.array([10, 0.5], np.float32)):
    found = dist.gram_inverse_pth_root(x, 4, epsilon=epsilon)
    close(found[0], 10**-0.25 * np.eye(N), np.float32, 10)
    close(found[1], of_gram(a, 4, epsilon=epsilon)[1], np.float32)


def test_zero_and_nan():
  zero = np.zeros((ROWS, N), np.float32)
  close(dist.gram_inverse_pth_root(place(zero), 2, **OPTIONS), 10 * np.eye(N), np.float32)
  assert np.isnan(dist.gram_inverse_pth_root(place(zero), 2)).all()
  bad = np.where(np.arange(ROWS)[:, None] == 7, np.nan, zero + np.eye(ROWS, N))
  assert np.isnan(dist.gram_inverse_pth_root(place(bad), 2, **OPTIONS)).all()


@pytest.mark.parametrize("call,error,message", [
    (lambda: dist.gram_inverse_pth_root(place(np.eye(ROWS, N)), 0), ValueError, "must not be 0"),
    (lambda: dist.gram_inverse_pth_root(np.eye(ROWS, N), 2), ValueError, "needs a mesh"),
    (lambda: dist.gram_inverse_pth_root(place(np.eye(ROWS, 8), spec=P("x", "y")), 2),
     linalg.ffi.ShardingTypeError, "columns of the matrix are sharded")])
def test_errors(call, error, message):
  with pytest.raises(error, match=message):
    call()
