# %% [markdown]
# # Finite elements along a rod
#
# Heat flows through rods of unequal material. Linear finite elements make a tridiagonal system of
# each. A thousand rods are a thousand tridiagonal solves in one call. Its derivative tells from the
# temperatures along a rod what the rod is made of.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import scipy.linalg

import linalg

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# ## The equation and its elements
#
# −(k u′)′ = f on [0, 1]: k is the conductivity, f the heating, u the temperature, held at 0 at the
# left end; no heat leaves the right one. Element i, between two of n + 1 nodes that are h = 1/n
# apart, has the conductivity k[i] and joins its two ends by k[i]/h. The node at the left end is
# left out.


# %%
def system(k):
  """The diagonals of the stiffness matrices; of those beside it the ends are not read."""
  k = k * k.shape[-1]
  right = jnp.concatenate([k[..., 1:], jnp.zeros_like(k[..., :1])], axis=-1)
  return -k, k + right, -right


@jax.jit
def temperatures(k, f):
  """At the nodes but the first, of the heating f at these nodes; k is (..., n)."""
  h = 1 / k.shape[-1]
  load = h * f * jnp.ones(k.shape[-1]).at[-1].set(0.5)
  return linalg.tridiagonal_solve(*system(k), load[..., None])[..., 0]


nodes = lambda n: np.arange(1, n + 1) / n

# %% [markdown]
# ## Is it right?
#
# A rod that conducts five times as well in its right half, heated evenly: by hand k u′ = 1 − x, and
# linear elements are exact at the nodes.

# %%
x = nodes(64)
k = np.where(x <= 0.5, 1.0, 5.0)
u = temperatures(k, np.ones(64))
by_hand = np.where(x <= 0.5, x - x**2 / 2, 3 / 8 + (x - x**2 / 2 - 3 / 8) / 5)
np.testing.assert_allclose(u, by_hand, rtol=1e-12)
print(f"two materials: largest error {np.abs(u - by_hand).max():.1e}")

# %% [markdown]
# With k = 1 + x and a heating such that u = sin(πx/2), the error falls by four with each halving of
# h.

# %%
sizes = 2 ** np.arange(2, 12)
errors = []
for n in sizes:
  x = nodes(n)
  f = (1 + x) * np.pi**2 / 4 * np.sin(np.pi * x / 2) - np.pi / 2 * np.cos(np.pi * x / 2)
  u = temperatures(1 + x - 0.5 / n, f)
  errors.append(np.abs(u - np.sin(np.pi * x / 2)).max())
order = np.log2(errors[-2] / errors[-1])
print(f"order of convergence: {order:.3f}")
assert abs(order - 2) < 0.02

figure, axis = plt.subplots(figsize=(5.4, 3))
axis.loglog(1 / sizes, errors, "o-", color="C0", label="linear elements")
axis.loglog(1 / sizes, 0.3 / sizes**2, "--", color="gray", label="proportional to h²")
axis.set(title="Error of the temperature of a rod with k = 1 + x", xlabel="length of an element, h",
         ylabel="largest error")
axis.legend()
plt.show()

# %% [markdown]
# ## Vibrations
#
# This matrix over the masses of the nodes has the squares of a bar's frequencies as eigenvalues:
# ((j − 1/2) π)² for an even bar. The free end has half a mass, so its row and column are scaled to
# keep the matrix symmetric. `eigh_tridiagonal` takes batches and has derivatives. Here they are by
# the stiffness of each element, and say where a crack would be heard most.


# %%
@jax.jit
def squared_frequencies(k):
  n = k.shape[-1]
  _, d, beside = system(k)
  scale = jnp.ones(n).at[-1].set(jnp.sqrt(2.0))
  return linalg.eigh_tridiagonal(
      n * d * scale**2, n * beside[..., :-1] * scale[:-1] * scale[1:], eigvals_only=True)


even = jnp.ones(200)
w = squared_frequencies(even)
print("squared frequencies over π²:", (w[:3] / np.pi**2).round(4))
np.testing.assert_allclose(w[:3] / np.pi**2, [0.25, 2.25, 6.25], rtol=1e-3)

sensitivity = jax.jit(jax.jacobian(lambda k: jnp.log(squared_frequencies(k)[:3]) / 2))(even) * 200
x = nodes(200) - 0.0025
np.testing.assert_allclose(sensitivity[0], np.cos(np.pi * x / 2) ** 2, atol=1e-3)

figure, axis = plt.subplots(figsize=(5.4, 3))
for j, style in enumerate(("-", "--", ":")):
  axis.plot(x, sensitivity[j], style, label=f"frequency {j + 1}")
axis.set(title="How much softness lowers a frequency, by where it is", xlabel="place along the bar",
         ylabel="d log frequency / d log stiffness", ylim=(-0.05, 1.25))
axis.legend(loc="upper center", ncols=3)
plt.show()

# %% [markdown]
# ## A thousand rods, seen from outside
#
# Each of a thousand rods has eight pieces of unknown conductivity. Its temperature is measured at
# 63 places, with an error of a thousandth. Gauss and Newton's iteration solves for all rods at
# once: the derivative of the solve by the eight logarithms, by `jacfwd`, and a batch of
# least-squares problems, which stock JAX has not.

# %%
RODS, PIECES, N = 1000, 8, 64
rng = np.random.default_rng(0)
true = rng.normal(0, 0.5, (RODS, PIECES))
heating = np.ones(N)
elements = lambda logs: jnp.repeat(jnp.exp(logs), N // PIECES, axis=-1)
measure = lambda logs: temperatures(elements(logs), heating)[..., :-1]
measured = np.asarray(measure(true)) + 1e-3 * rng.normal(size=(RODS, N - 1))


@jax.jit
def improve(logs, measured):
  jacobian = jax.vmap(jax.jacfwd(measure))(logs)
  left_over = measured - measure(logs)
  return logs + linalg.lstsq(jacobian, left_over[..., None])[0][..., 0], jacobian


jacobian = np.asarray(jax.jit(jax.jacfwd(measure))(true[0]))
differences = [
    (measure(true[0] + 1e-4 * e) - measure(true[0] - 1e-4 * e)) / 2e-4 for e in np.eye(PIECES)]
np.testing.assert_allclose(jacobian.T, differences, rtol=1e-6, atol=1e-7)

logs = jnp.zeros((RODS, PIECES))
for i in range(8):
  logs, jacobian = improve(logs, measured)
  print(f"step {i + 1}: median error of a conductivity "
        f"{np.median(np.abs(np.expm1(np.asarray(logs) - true))):.2%}")

covariance = 1e-6 * np.linalg.inv(np.asarray(jacobian.mT @ jacobian))
deviation = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
off = (np.asarray(logs) - true) / deviation
print(f"errors over the standard deviation that the Jacobian predicts: {off.std():.3f}")
assert 0.9 < off.std() < 1.1

# %% [markdown]
# The errors are as large as the linearised statistics say. The pieces near the right end, through
# which hardly any heat flows, are known worst.

# %%
edges = np.linspace(0, 1, PIECES + 1)
middle = (edges[1:] + edges[:-1]) / 2
figure, axis = plt.subplots(figsize=(5.4, 3))
axis.stairs(np.exp(true[0]), edges, color="gray", label="true")
found = np.asarray(logs)[0]
bars = np.exp(found + 1.96 * np.outer([-1, 1], deviation[0])) - np.exp(found)
axis.errorbar(middle, np.exp(found), np.abs(bars), fmt="o", color="C0", capsize=3,
              label="found, with 95% intervals")
axis.set(title="One of a thousand rods: what it is made of", xlabel="place along the rod",
         ylabel="conductivity")
axis.legend()
plt.show()

# %% [markdown]
# SciPy solves such a system by `solve_banded`, one at a time.

# %%
dl, d, du = (np.asarray(v) for v in system(elements(true[0])))
bands = np.stack([np.roll(du, 1), d, np.roll(dl, -1)])
load = np.r_[np.full(N - 1, 1 / N), 0.5 / N]
u = temperatures(elements(true[0]), heating)
np.testing.assert_allclose(u, scipy.linalg.solve_banded((1, 1), bands, load), rtol=1e-11)
