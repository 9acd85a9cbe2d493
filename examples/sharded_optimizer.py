"""A step of Muon and one of Shampoo on parameters that stay sharded, as FSDP shards them.

  python examples/sharded_optimizer.py

The parameters are a tall embedding and the square matrices of a few layers, as a stack. Both have
their rows sharded over eight devices.

- Muon orthogonalises a gradient by Newton's and Schulz's polynomials. For the embedding these are
  polynomials of its small Gram matrix. For the layers each device takes whole matrices of the
  stack.
- Polar factors, which the polynomials approximate, come in the same two ways.
- So do Shampoo's inverse fourth roots. The embedding has statistics on the side of its columns
  only, which are a small matrix too.

The steps are compared with NumPy's in double precision. Their traffic is compared with that of
JAX's own functions, whose programs are compiled but not run. Where optax is installed, Muon is
compared with its step as well.
"""

import importlib.util
import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import linalg
import linalg.distributed as dist

ROWS, WIDTH, LAYERS = 8192, 64, 8
SPECS = {"embedding": P("x", None), "layers": P(None, "x", None)}
RIDGE, EPSILON = 1e-6, 1e-12
STEPS, (X, X3, X5) = 5, (3.4445, -4.775, 2.0315)  # Muon's polynomial X x + X3 x³ + X5 x⁵


def newton_schulz(a):
  """Works on whole matrices, and on matrices whose rows are sharded."""
  a = a / (jnp.linalg.norm(a, axis=(-2, -1), keepdims=True) + 1e-8)
  for _ in range(STEPS):
    gram = a.mT @ a
    a = X * a + a @ (X3 * gram + X5 * gram @ gram)
  return a


def muon(gradients):
  """The gradients with singular values near 1."""
  return {
      "embedding": dist.newton_schulz(gradients["embedding"], (X, X3, X5), STEPS, axes="x"),
      "layers": dist.batched(newton_schulz, axes="x")(gradients["layers"])}


def stock_muon(gradients):
  return {name: newton_schulz(x) for name, x in gradients.items()}


def polar(gradients):
  """The direction of each gradient: its polar factor, whose singular values are all 1."""
  orthogonal = dist.batched(lambda a: linalg.polar(a)[0], axes="x")
  return {
      "embedding": dist.polar(gradients["embedding"], method="gram", axes="x")[0],
      "layers": orthogonal(gradients["layers"])}


def stock_polar(gradients):
  return {name: jax.vmap(by_svd)(x) if x.ndim == 3 else by_svd(x) for name, x in gradients.items()}


def by_svd(a):
  u, _, vh = jnp.linalg.svd(a, full_matrices=False)
  return u @ vh


def shampoo(gradients):
  """L^(-1/4) G R^(-1/4) of the layers, with the statistics of a first step, G Gᵀ and Gᵀ G, and
  G R^(-1/2) of the embedding."""

  def step(g):
    left, right = (
        linalg.inverse_pth_root(x, 4, ridge_epsilon=RIDGE, epsilon=EPSILON)
        for x in (g @ g.mT, g.mT @ g))
    return left @ g @ right

  g = gradients["embedding"]
  root = dist.gram_inverse_pth_root(g, 2, ridge_epsilon=RIDGE, epsilon=EPSILON, axes="x")
  return {"embedding": g @ root, "layers": dist.batched(step, axes="x")(gradients["layers"])}


def stock_shampoo(gradients):

  def root(a, p):
    w, v = jnp.linalg.eigh(a)
    w = jnp.maximum(w, 0)
    w = w + RIDGE * w[..., -1:] + EPSILON
    return (v * w[..., None, :] ** (-1 / p)) @ v.mT

  g, tall = gradients["layers"], gradients["embedding"]
  return {
      "embedding": tall @ root(tall.mT @ tall, 2),
      "layers": root(g @ g.mT, 4) @ g @ root(g.mT @ g, 4)}


def optax_muon(gradients):
  """The first step of optax's Muon: polynomials of the gradients, left to XLA to share out."""
  from optax import contrib  # pyright: ignore[reportMissingImports]

  each = {
      "embedding": contrib.MuonDimensionNumbers(0, 1), "layers": contrib.MuonDimensionNumbers(1, 2)}
  muon = contrib.scale_by_muon(weight_dimension_numbers=each)
  return muon.update(gradients, muon.init(gradients))[0]


def compare_with_optax(gradients, update, moved):
  """That its update is ours, and what a device receives for it."""
  if importlib.util.find_spec("optax") is None:
    print("muon: optax is not installed, and its step not compared")
    return
  program = jax.jit(optax_muon).lower(gradients).compile()
  for name, x in program(gradients).items():
    away = float(np.max(np.abs(x - update[name])))
    print(f"muon: optax's update of the {name} is ours to {away:.0e}")
    assert away < 1e-4
  theirs = dist.report(program).moved
  print(f"muon: by optax a device receives {theirs / 1e6:.2f} MB")
  assert moved < theirs / 4


def main() -> None:
  rng = np.random.default_rng(0)
  host = {
      "embedding": rng.standard_normal((ROWS, WIDTH), np.float32),
      "layers": rng.standard_normal((LAYERS, 2 * WIDTH, 2 * WIDTH), np.float32)
      + 64 * np.eye(2 * WIDTH, dtype=np.float32)}
  mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
  gradients = {
      name: jax.device_put(x, NamedSharding(mesh, SPECS[name])) for name, x in host.items()}
  share = sum(x.nbytes for x in host.values()) / mesh.size
  with jax.set_mesh(mesh):
    for step, stock in ((muon, stock_muon), (polar, stock_polar), (shampoo, stock_shampoo)):
      program = jax.jit(step).lower(gradients).compile()
      gathered = dist.report(jax.jit(stock).lower(gradients).compile())
      own = dist.report(program)
      print(f"{step.__name__}: a device receives {own.moved / 1e6:.2f} MB and holds "
            f"{(own.arguments + own.results + own.temporaries) / share:.1f} shares; by JAX's "
            f"functions {gathered.moved / 1e6:.2f} MB and "
            f"{(gathered.arguments + gathered.results + gathered.temporaries) / share:.1f}")
      assert own.moved < gathered.moved / 4
      updates = program(gradients)
      expected = exact(step, host)
      for name, x in updates.items():
        assert x.sharding.is_equivalent_to(gradients[name].sharding, x.ndim)
        np.testing.assert_allclose(x, expected[name], rtol=0, atol=1e-4)
      print(f"{step.__name__}: NumPy's step, and it lies where the parameters do")
      if step is muon:
        compare_with_optax(gradients, updates, own.moved)


def exact(step, gradients):
  """NumPy's steps, in double precision. For singular values σ, Shampoo's first step has
  σ / (σ² + s)^(1/2), where s is added to the eigenvalues of the statistics."""

  def update(g):
    u, s, vh = np.linalg.svd(g.astype(np.float64), full_matrices=False)
    if step is polar:
      return u @ vh
    if step is muon:
      s = s / np.linalg.norm(s, axis=-1, keepdims=True)
      for _ in range(STEPS):
        s = X * s + X3 * s**3 + X5 * s**5
      return (u * s[..., None, :]) @ vh
    shift = RIDGE * s[..., :1] ** 2 + EPSILON
    return (u * (s / np.sqrt(s**2 + shift))[..., None, :]) @ vh

  return {name: update(g) for name, g in gradients.items()}


if __name__ == "__main__":
  main()
