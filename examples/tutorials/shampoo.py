# %% [markdown]
# # Shampoo's step, and the blocks that break it
#
# Shampoo (Gupta, Koren and Singer, 2018) preconditions the gradient G of a matrix of weights from
# both sides: L and R gather G Gᵀ and Gᵀ G, and the step is L^(-1/4) G R^(-1/4). Real models have
# hundreds of such blocks. Their roots are one batched call, `linalg.inverse_pth_root`. Here it is
# compared with roots by `jnp.linalg.eigh`.

# %%
import statistics
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import scipy.linalg

import linalg

BLOCKS, N = 64, 32

# %% [markdown]
# ## Two roots
#
# Gathered statistics may be singular, so that a small part of the largest eigenvalue is added to
# the diagonal. Both do that; `epsilon` is for what has no largest eigenvalue yet.


# %%
@jax.jit
def root(a):
  return linalg.inverse_pth_root(a, 4, ridge_epsilon=1e-6, epsilon=1e-12)


@jax.jit
def stock_root(a):
  w, v = jnp.linalg.eigh(a)
  w = w + 1e-6 * w[..., -1:]
  return (v * w[..., None, :] ** -0.25) @ v.mT


rng = np.random.default_rng(0)
gradients = jnp.asarray(rng.normal(size=(BLOCKS, N, 4 * N)), jnp.float32)
usual = gradients @ gradients.mT

# %% [markdown]
# On usual blocks they agree, with each other and with SciPy's root in float64.

# %%
some = np.asarray(usual[:8], np.float64)
exact = np.stack([scipy.linalg.fractional_matrix_power(a, -0.25) for a in some])
for name, function in (("linalg", root), ("jax.numpy", stock_root)):
  error = np.abs(function(usual)[:8] - exact).max() / np.abs(exact).max()
  print(f"{name}: error {error:.1e}")
  assert error < 2e-5

# %% [markdown]
# ## Blocks of every day
#
# Some blocks are not usual:
#
# - Rows of an embedding that no batch has named yet have statistics of zeros.
# - A layer that has seen fewer gradients than it has rows has singular statistics.
# - Statistics that are kept in bfloat16, to save memory, are no longer exactly semidefinite.

# %%
few = gradients[..., :4] @ gradients[..., :4].mT
states = {
    "usual": usual,
    "zero": jnp.zeros_like(usual),
    "few gradients": few,
    "few gradients, bfloat16": few.astype(jnp.bfloat16).astype(jnp.float32),
}
fine = {}
for name, blocks in states.items():
  fine[name] = [int(jnp.isfinite(f(blocks)).all((-2, -1)).sum()) for f in (root, stock_root)]
  print(f"{name}: finite roots: linalg {fine[name][0]}, jax.numpy {fine[name][1]}")
  assert fine[name][0] == BLOCKS

figure, axis = plt.subplots(figsize=(5.4, 2.6))
place = np.arange(len(states))
for i, name in enumerate(("linalg", "jax.numpy")):
  counts = [found[i] for found in fine.values()]
  axis.barh(place + 0.2 * (2 * i - 1), counts, 0.36, color=f"C{i}", label=name)
  for y, count in zip(place, counts, strict=True):
    axis.text(count + 1, y + 0.2 * (2 * i - 1), str(count), va="center")
axis.set_yticks(place, list(states))
axis.invert_yaxis()
axis.set(title=f"Blocks with a finite root, of {BLOCKS}", xlabel="blocks", xlim=(0, 72))
axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=2)
plt.show()

# %% [markdown]
# One block of NaN spoils its weights in one step, and then all that are computed from them.
# Optimisers on `jnp.linalg` clamp eigenvalues by hand for that reason; `inverse_pth_root` with an
# epsilon counts those below zero as zero.
#
# ## Learning with it
#
# Sixty-four layers W are to learn W* from squares of A (W − W*) B, where A and B stretch some
# directions a hundred times as much as others. Gradient descent with the step that the most
# stretched one allows crawls along the others; the preconditioner learns the stretching from the
# gradients. The first eight layers are idle for 20 steps: their gradients are zero, and on
# `jnp.linalg` their weights are NaN when they wake.
#
# Both roots are one call. Two calls, which do not depend on one another, may bring a program on
# `jnp.linalg.eigh` to a halt: see [the questions](../faq.md).


# %%
def stretched():
  u, v = np.linalg.qr(rng.normal(size=(2, BLOCKS, N, N)))[0]
  return jnp.asarray(u * np.logspace(0, -2, N) @ v, jnp.float32)


left, right = stretched(), stretched()
goal = jnp.asarray(rng.normal(size=(BLOCKS, N, N)), jnp.float32)
awake_at = jnp.where(jnp.arange(BLOCKS) < 8, 20, 0)


def loss(weights, step):
  residual = left @ (weights - goal) @ right
  awake = (step >= awake_at)[:, None, None]
  return 0.5 * jnp.sum(jnp.where(awake, residual, 0) ** 2) / BLOCKS


def train(root, steps=150):
  def step(state, i):
    weights, l, r = state
    value, g = jax.value_and_grad(loss)(weights, i)
    g = BLOCKS * g
    if root is None:
      return (weights - g, l, r), value  # 1 is the largest eigenvalue of the Hessian
    l, r = l + g @ g.mT, r + g.mT @ g
    left_root, right_root = root(jnp.stack([l, r]))
    return (weights - left_root @ g @ right_root, l, r), value

  zero = jnp.zeros_like(goal)
  return np.asarray(jax.jit(lambda: jax.lax.scan(step, (zero,) * 3, jnp.arange(steps))[1])())


curves = {
    "gradient descent": train(None), "Shampoo on linalg": train(root),
    "Shampoo on jax.numpy": train(stock_root)}
for name, curve in curves.items():
  print(f"{name}: loss {curve[0]:.3g} at first, {curve[-1]:.3g} at last")
assert curves["Shampoo on linalg"][-1] < 0.3 * curves["gradient descent"][-1]

figure, axis = plt.subplots()
for (name, curve), style in zip(curves.items(), ("--", "-", ":"), strict=True):
  survived = "" if np.isfinite(curve[-1]) else f": NaN from step {np.isnan(curve).argmax()}"
  axis.semilogy(curve, style, label=name + survived)
axis.axvline(20, color="gray", linewidth=1)
axis.set(title="Loss of 64 layers, eight of which wake at step 20", xlabel="step", ylabel="loss")
axis.legend()
plt.show()

# %% [markdown]
# ## Time
#
# Both in turn, on the machine that built this page, which may have been busy: see
# [speed](../speed.md) for measurements.

# %%
times = {root: [], stock_root: []}
for _ in range(9):
  for function, seconds in times.items():
    begin = time.perf_counter()
    function(usual).block_until_ready()
    seconds.append(time.perf_counter() - begin)
ratio = statistics.median(b / a for a, b in zip(times[root], times[stock_root], strict=True))
print(f"{BLOCKS} roots of {N} × {N}: {1e3 * statistics.median(times[root]):.1f} ms; "
      f"jax.numpy takes {ratio:.1f} times as long")
