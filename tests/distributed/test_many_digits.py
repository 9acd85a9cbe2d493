"""Values and derivatives of spectra of sharded matrices, against 90 digits."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import cases
import linalg.distributed as dist
import many_digits
import matrices
from one_matrix import AXES
from quick import quick_jit
from sharded import make_mesh

N = 8
# In units of eps times the largest entry of the exact result.
UNITS = {"value": 100, "first": 1e4, "second": 1e6}


def _eigh(a):
  w, v = dist.eigh(a, axes=AXES)
  return w, v.mT[:, :, None] * v.mT.conj()[:, None, :]


def _svd(a):
  u, s, vh = dist.svd(a, axes=AXES)
  return s, u.mT[:, :, None] * vh[:, None, :]


OURS = {
    "eigh": _eigh, "eigvalsh": lambda a: (dist.eigvalsh(a, axes=AXES),), "svd": _svd,
    "svdvals": lambda a: (dist.svdvals(a, axes=AXES),),
    "polar": lambda a: tuple(dist.polar(a, axes=AXES))}


@pytest.mark.extended
@cases.each_dtype(np.float64, np.complex128)
@pytest.mark.parametrize("name", OURS)
def test_derivatives(name, dtype, rng):
  """Values, and first and second derivatives along a line."""
  a, da = (matrices.general(rng, (), N, N, dtype) for _ in range(2))
  if name.startswith("eig"):
    a, da = (x + x.conj().T for x in (a, da))
  mesh = make_mesh((2, 2), ("x", "y"), AxisType.Auto, devices=jax.devices()[:4])
  lie = [jax.device_put(x, NamedSharding(mesh, P("x", "y"))) for x in (a, da)]

  def derivatives(a, da):
    first = lambda a: jax.jvp(OURS[name], (a,), (da,))
    (value, slope), (_, second) = jax.jvp(first, (a,), (da,))
    return value, slope, second

  with jax.set_mesh(mesh), jax.numpy_rank_promotion("allow"):
    found = quick_jit(derivatives)(*lie)
  oracle = many_digits.ORACLES[name]
  with mpmath.workdps(many_digits.DIGITS):
    exact = many_digits.derivatives(oracle, *[[many_digits.exact(x)] for x in (a, da)])
    expected = [[many_digits.rounded(y) for y in x] for x in exact]
  for kind, mine, theirs in zip(UNITS, found, expected, strict=True):
    for x, y in zip(mine, theirs[: len(mine)], strict=True):  # the oracle of svd has more
      error = np.max(np.abs(np.asarray(x) - y))
      limit = UNITS[kind] * jnp.finfo(dtype).eps * max(np.max(np.abs(y)), 1)
      assert error <= limit, (name, kind, error / limit)
