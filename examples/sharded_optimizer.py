"""A step of Muon and one of Shampoo on parameters that stay sharded, as FSDP shards them.

  python examples/sharded_optimizer.py

The parameters are an embedding, tall, its rows sharded over eight devices, and the square matrices
of a few layers, as a stack whose rows are. Muon puts the unitary polar factor in place of a
gradient: the embedding's is made of the small matrix of its columns' products, and of the layers
each device makes a share, whole. Shampoo's inverse fourth roots come the same way as the latter,
and the embedding's statistics, on the side of its columns alone, are such a small matrix too.
Both steps are compared with NumPy's in double precision, and what they move with what JAX's own
functions do, whose programs are compiled but not run. Where optax is installed, Muon is compared
with its step as well.
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


def muon(gradients):
  """The direction of each gradient, all its singular values 1."""
  orthogonal = dist.batched(lambda a: linalg.polar(a)[0], axes="x")
  return {
      "embedding": dist.polar(gradients["embedding"], method="gram", axes="x")[0],
      "layers": orthogonal(gradients["layers"])}


def stock_muon(gradients):
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


def optax_muon(gradients, **options):
  """The first step of optax's Muon: polynomials of the gradients, left to XLA to share out."""
  from optax import contrib  # pyright: ignore[reportMissingImports]

  each = {
      "embedding": contrib.MuonDimensionNumbers(0, 1), "layers": contrib.MuonDimensionNumbers(1, 2)}
  muon = contrib.scale_by_muon(weight_dimension_numbers=each, **options)
  return muon.update(gradients, muon.init(gradients))[0]


def compare_with_optax(gradients, expected):
  """Its five steps bring singular values near 1; with steps that go on to 1 it gives our update."""
  if importlib.util.find_spec("optax") is None:
    print("muon: optax is not installed, and its step not compared")
    return
  program = jax.jit(optax_muon).lower(gradients).compile()
  for options, bound in (({}, 0.5), ({"ns_coeffs": (1.5, -0.5, 0.0), "ns_steps": 20}, 1e-4)):
    found = jax.jit(lambda x, options=options: optax_muon(x, **options))(gradients)
    away = max(
        float(np.max(np.linalg.norm(found[name] - x, 2, axis=(-2, -1))))
        for name, x in expected.items())
    print(f"muon: optax's update, {options or 'as it is'}, is {away:.1e} from the polar factors")
    assert away < bound
  print(f"muon: by optax a device receives {dist.report(program).moved / 1e6:.2f} MB")


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
    for step, stock in ((muon, stock_muon), (shampoo, stock_shampoo)):
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
    compare_with_optax(gradients, exact(muon, host))


def exact(step, gradients):
  """The same steps by NumPy, in double precision: with singular values σ, Shampoo's first step has
  σ / (σ² + s)^(1/2), where s is what is added to the statistics' eigenvalues."""

  def update(g):
    u, s, vh = np.linalg.svd(g.astype(np.float64), full_matrices=False)
    if step is muon:
      return u @ vh
    shift = RIDGE * s[..., :1] ** 2 + EPSILON
    return (u * (s / np.sqrt(s**2 + shift))[..., None, :]) @ vh

  return {name: update(g) for name, g in gradients.items()}


if __name__ == "__main__":
  main()
