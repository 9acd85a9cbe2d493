# %% [markdown]
# # Principal components of data that no device holds
#
# A reactor's spectra are taken a hundred thousand times, and nobody knows how many substances are
# in it. Each spectrum is the sum of the substances' own, by their concentrations, and noise. The
# singular values of all spectra say how many substances there are. The right singular vectors span
# their spectra, and the left ones say where something was odd. The rows lie on eight devices, and
# nothing that is as long as the data leaves its device.

# %%
import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")  # virtual, on a CPU

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import linalg
import linalg.distributed as dist

mesh = jax.make_mesh((jax.device_count(),), ("sample",), axis_types=(AxisType.Auto,))
jax.set_mesh(mesh)
rows = NamedSharding(mesh, PartitionSpec("sample"))

# %% [markdown]
# ## The spectra
#
# Three substances, and a trace of a fourth, ten thousand times less than the others. The noise is
# ten times less again. Each device makes its own rows, in float32.

# %%
SAMPLES, WAVELENGTHS, NOISE, TRACE = 98_304, 96, 1e-5, 1e-4
PLACES = np.array([[0.2, 0.62], [0.35, 0.8], [0.5, 0.15], [0.9, 0.44]])
x = np.linspace(0, 1, WAVELENGTHS)
lines = np.exp(-(((x - PLACES[..., None]) / 0.05) ** 2)).sum(axis=1)
amounts = np.array([1, 1, 1, TRACE])


def measured(key):
  keys = jax.random.split(key)
  concentrations = amounts * jax.random.uniform(keys[0], (SAMPLES, len(lines)))
  return concentrations @ lines + NOISE * jax.random.normal(keys[1], (SAMPLES, WAVELENGTHS))


spectra = jax.jit(measured, out_shardings=rows)(jax.random.key(0))
print(f"{spectra.dtype}{list(spectra.shape)}, sharded as {spectra.sharding.spec}")
assert spectra.dtype == np.float32

# %% [markdown]
# ## How many substances?
#
# Each device factors its rows, the triangles R are gathered, and the singular values are those of
# one more factorisation. `report` counts what a compiled program moves.


# %%
def centred(spectra):
  return spectra - jnp.mean(spectra, axis=0)


def components(spectra):
  return dist.svd(centred(spectra), axes="sample")


compiled = lambda f, *operands: jax.jit(f).lower(*operands).compile()
program = compiled(components, spectra)
stock = compiled(lambda a: jnp.linalg.svd(centred(a), full_matrices=False), spectra)
u, s, vh = program(spectra)
print(f"the spectra are {spectra.nbytes / 1e6:.1f} MB, U stays {u.sharding.spec}")
for name, each in (("linalg.distributed", program), ("jax.numpy", stock)):
  print(f"{name}: a device receives {dist.report(each).moved / 1e6:.2f} MB")
assert dist.report(program).moved < dist.report(stock).moved / 50

# %% [markdown]
# The largest singular value of noise alone is about σ (√m + √n), of m samples and n wavelengths
# (Marchenko and Pastur). Anything above it is signal. A tenth more allows for chance.

# %%
edge = NOISE * (SAMPLES**0.5 + WAVELENGTHS**0.5)
count = int(jnp.sum(s > 1.1 * edge))
print("singular values", " ".join(f"{value:.4g}" for value in s[:6]))
print(f"of noise alone about {edge:.4g}: {count} substances")
assert count == len(lines)

# %% [markdown]
# ## Why not by the covariance matrix?
#
# Its eigenvalues are the squares of the singular values, and it is a sum over the samples, which
# moves even less. But squares of what is √ε of the largest drown in its rounding: in float32 that
# is 3·10⁻⁴, and the trace is below. NumPy, in float64 and with all rows in one place, is the judge.

# %%
by_covariance = compiled(lambda a: linalg.eigvalsh(centred(a).T @ centred(a))[::-1], spectra)
assert dist.report(by_covariance).moved < dist.report(program).moved
roots = np.sqrt(np.maximum(np.asarray(by_covariance(spectra)), 0))
gathered = np.asarray(spectra, np.float64)
gathered -= gathered.mean(axis=0)
true_u, true_s, true_vh = np.linalg.svd(gathered, full_matrices=False)
print("fourth singular value, of the first:")
for name, values in (("linalg.distributed", s), ("covariance", roots), ("float64", true_s)):
  print(f"  {name:18} {values[3] / values[0]:.3e}")
np.testing.assert_allclose(s, true_s, atol=1e-6 * true_s[0])
np.testing.assert_allclose(s[3], true_s[3], rtol=0.01)
assert abs(roots[3] / true_s[3] - 1) > 0.5

figure, axis = plt.subplots(figsize=(5.4, 3))
order = np.arange(1, 21)
axis.semilogy(order, s[:20] / s[0], "o", label="singular values")
axis.semilogy(order, np.maximum(roots[:20] / roots[0], 1e-6), "x", label="through the covariance")
axis.semilogy(order, true_s[:20] / true_s[0], color="C4", linewidth=1, label="float64")
axis.axhline(edge / true_s[0], color="C4", linestyle="--", linewidth=1, label="noise alone")
axis.set(title="A trace that the covariance matrix cannot see", xlabel="order",
         ylabel="of the largest", xticks=range(1, 21, 3))
axis.legend()
plt.show()

# %% [markdown]
# ## What do they look like?
#
# The first four right singular vectors span the substances' spectra. Least squares say how much of
# each spectrum they explain: all of it, of the trace up to the noise.

# %%
basis = np.asarray(vh[:count]).T
left = lines.T - basis @ (basis.T @ lines.T)
unexplained = np.linalg.norm(left, axis=0) / np.linalg.norm(lines, axis=1)
print("not explained of each spectrum:", unexplained.round(5))
assert np.all(unexplained < [1e-4, 1e-4, 1e-4, 1e-2])

figure, (above, below) = plt.subplots(2, figsize=(5.4, 3.6), sharex=True)
above.plot(x, lines[:3].T, color="C4", linewidth=1)
above.plot(x, lines[3], color="C1", linewidth=1)
above.set(title="The substances, and the trace", yticks=[])
below.plot(x, basis[:, :3], color="C0", linewidth=1)
below.plot(x, basis[:, 3], color="C1", linewidth=1)
below.set(title="The principal components", yticks=[], xlabel="wavelength")
plt.show()

# %% [markdown]
# ## Only the first few
#
# Where a handful of many components is wanted, `randomized_svd` looks at a random sketch of the
# data alone. `error` is the norm of all that its components leave out; the best ones leave out the
# remaining singular values.

# %%
sketch = compiled(
    lambda a, key: dist.randomized_svd(centred(a), count, key, axes="sample"), spectra,
    jax.random.key(1))
few = sketch(spectra, jax.random.key(1))
best = np.linalg.norm(true_s[count:])
print(f"left out: {few.error:.5f}, by the best {best:.5f}")
print(f"a device receives {dist.report(sketch).moved / 1e3:.0f} kB")
np.testing.assert_allclose(few.S[:3], true_s[:3], rtol=1e-5)
assert few.error < 1.05 * best

# %% [markdown]
# ## Which samples matter?
#
# Weigh the samples, and ask how the energy of the fourth component moves with each weight. One
# gradient answers for all of them, sharded as they are. Here sample 54,321 had a fault: a
# thousandth of the light was lost at one wavelength.


# %%
def energy(weights, spectra):
  return dist.svdvals(weights[:, None] * centred(spectra), axes="sample")[count - 1] ** 2


faulty = spectra.at[54_321, 40].add(-1e-3)
weights = jax.device_put(jnp.ones(SAMPLES), rows)
influence = compiled(jax.grad(energy), weights, faulty)
moves = influence(weights, faulty)
print(f"most influential: sample {int(jnp.argmax(moves))}; sharded as {moves.sharding.spec}")
print(f"a device receives {dist.report(influence).moved / 1e3:.0f} kB")

# %% [markdown]
# By hand it is 2 s² |u|², where u is the sample's element of the fourth left singular vector. NumPy
# gives the same for the data without the fault, as far as float32 knows a vector whose singular
# value is 12,000 times less than the first.

# %%
of_clean = np.asarray(influence(weights, spectra))
by_hand = 2 * (true_s[count - 1] * true_u[:, count - 1]) ** 2
off = np.linalg.norm(of_clean - by_hand) / np.linalg.norm(by_hand)
print(f"off by {off:.1e}")
assert off < np.finfo(np.float32).eps * true_s[0] / true_s[count - 1] * 4
