# %% [markdown]
# # Eigenvectors of a matrix that no device can hold
#
# A device's memory limits the matrices that `jnp.linalg.eigh` takes: A, V and a workspace must fit.
# `linalg.distributed.eigh` takes a matrix that several devices share. Here sixteen virtual devices
# have 1.5 MB each, and the matrix has 2.2 MB. The limit is counted, not enforced: a compiled
# program says how much a device holds.
#
# The matrix is a quantum particle's energy on a grid of points in a plane, in a well with some
# disorder. Its lowest states lie where the disorder is low.

# %%
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=16"

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import linalg.distributed as dist

jax.config.update("jax_enable_x64", True)

LIMIT = 1.5e6  # bytes of a device
SIDE = 22, 24  # points of the grid
N = SIDE[0] * SIDE[1]
SHARE = N * N * 8 / 16  # bytes of a device's part of the matrix

mesh = jax.make_mesh((4, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
disorder = 3 * np.random.default_rng(0).random(N)


def part(index):
  """The entries that one device has, made there: no process ever holds the matrix."""
  i, j = (np.arange(N)[one] for one in index)
  (row, column), (other_row, other_column) = (np.divmod(x, SIDE[1]) for x in (i, j))
  far = abs(row[:, None] - other_row) + abs(column[:, None] - other_column)
  return np.where(far == 1, -1.0, np.where(far == 0, 4 + disorder[j], 0.0))


a = jax.make_array_from_callback((N, N), NamedSharding(mesh, P("x", "y")), part)
print(f"the matrix {a.nbytes / 1e6:.2f} MB, a device's part {SHARE / 1e6:.2f} MB")
assert a.nbytes > LIMIT

# %% [markdown]
# ## What a device holds
#
# `report` reads the compiled program. The handler that solves the tridiagonal problem holds two
# more parts of the matrix, which XLA does not count.

# %%
with jax.set_mesh(mesh):
  program = jax.jit(lambda a: tuple(dist.eigh(a))).lower(a).compile()
found = dist.report(program)
held = found.arguments + found.results + found.temporaries
print(f"XLA counts {held / 1e6:.2f} MB, {held / SHARE:.1f} parts of the matrix")
print(f"with the handler's: {(held + 2 * SHARE) / 1e6:.2f} MB of {LIMIT / 1e6:.2f}")
assert held + 2 * SHARE < LIMIT
assert f"f64[{N},{N}]" not in (program.as_text() or "")  # no array of the matrix's size

# %% [markdown]
# ## Eigenvectors, and how good they are
#
# V is sharded as A is. Residual and orthogonality are sums over the devices.

# %%
w, v = program(a)
print(jax.typeof(v))
with jax.set_mesh(mesh):
  product = lambda x, y: jnp.matmul(x, y, out_sharding=P("x", "y"))
  residual = jnp.abs(product(a, v) - v * w).max()
  gap = jnp.abs(product(v.T, v) - jnp.eye(N)).max()
print(f"largest entry of A V - V diag(w): {residual:.1e}, of Vᵀ V - I: {gap:.1e}")
assert residual < 1e-12 and gap < 1e-12

# %% [markdown]
# ## The ten lowest states
#
# One program more would give a gradient: `jax.grad` of a function of w or V is sharded as A is.

# %%
density = np.sum(np.asarray(v)[:, :10] ** 2, axis=1)
np.testing.assert_allclose(density.sum(), 10)
assert np.corrcoef(density, disorder)[0, 1] < -0.2

fig, axes = plt.subplots(1, 2, figsize=(8, 3.4))
for ax, values, title in zip(
    axes, (disorder, density), ("disorder", "density of the ten lowest states"), strict=True):
  ax.imshow(values.reshape(SIDE))
  ax.set_title(title)
plt.show()
