"""Random programs of several functions, compared with the same programs in many digits.

    python tests/support/random_programs.py --seconds 3600 --first-seed 0

A seed makes a program: its steps, shapes, dtype and mode. The command prints the seeds of programs
that fail. Small matrices are compared with mpmath, larger ones in single precision with NumPy in
double precision.

The tolerance is the change of the result when each step's result is rounded in the reference too.
Programs whose result roundings change beyond recognition are left out.
"""

import argparse
import dataclasses
import functools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":
  import quick

  os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
  os.environ["XLA_FLAGS"] = " ".join((
      os.environ.get("XLA_FLAGS", ""), quick.FLAGS, "--xla_force_host_platform_device_count=8"))
  import jax

  jax.config.update("jax_enable_x64", True)
  jax.config.update("jax_platforms", "cpu")

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import scipy.linalg
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import linalg
import linalg.scipy
import many_digits
import matrices
from linalg._catalogue import checks
from quick import quick_jit

MODES = ("jit", "eager", "vmap", "gradient", "second derivative", "sharded", "accelerated")
LIMIT = 100  # roundings
VACUOUS = 1e-2  # of the result: a tolerance as large as this shows nothing


class Double:
  """The references' decompositions in double precision."""

  inv, det, cholesky = np.linalg.inv, np.linalg.det, np.linalg.cholesky
  expm, log, sqrt, real, absolute = scipy.linalg.expm, np.log, np.sqrt, np.real, np.abs

  @staticmethod
  def eye(n):
    return np.eye(n)

  @staticmethod
  def eigh(a):
    return np.linalg.eigh((a + a.conj().T) / 2)

  @staticmethod
  def svd(a):
    return np.linalg.svd(a, full_matrices=False)

  @staticmethod
  def of_each(f, g):
    del g
    return f


class Many:
  """The references' decompositions by mpmath."""

  inv, det, cholesky = many_digits.inv, many_digits.det, many_digits.cholesky
  eigh, svd, expm = many_digits.eigh, many_digits.svd, many_digits.expm
  log, sqrt, real = (np.frompyfunc(f, 1, 1) for f in (mpmath.log, mpmath.sqrt, mpmath.re))
  absolute = np.frompyfunc(abs, 1, 1)

  @staticmethod
  def eye(n):
    return many_digits.exact(np.eye(n))

  @staticmethod
  def of_each(f, g):
    del f
    return np.frompyfunc(g, 1, 1)


def _adjoint(a):
  return a.conj().T if isinstance(a, np.ndarray) else a.mT.conj()


def _hermitian(a):
  return (a + _adjoint(a)) / 2


@dataclasses.dataclass(frozen=True)
class Step:
  """One function of a program.

  Attributes:
    takes: the kind of matrices that it takes: "general", "hermitian", "positive", "lower". "any" is
      for steps that are put after others, and "same" is what they give.
    gives: the kind that it returns, or "end" if no step can follow.
    call: (library, matrices, constant) -> matrices. The constant is a square matrix.
    reference: (arithmetic, matrix, constant) -> matrix, for one matrix.
    stock: whether the library may be JAX's.
    loops: whether its derivative takes long to compile.
  """

  takes: str
  gives: str
  call: Callable[..., Any]
  reference: Callable[..., Any]
  stock: bool = False
  loops: bool = False


def _spectral(f, g):
  """The reference of a function f(A) of Hermitian matrices; g is f in many digits."""

  def of(b, a, c):
    del c
    w, v = b.eigh(a)
    return (v * b.of_each(f, g)(w)) @ _adjoint(v)

  return of


def _through_eigh(la, x, c):
  del c
  w, v = la.eigh(x)
  return (v * jnp.exp(-w * w)[..., None, :].astype(v.dtype)) @ v.mT.conj()


def _lu_again(la, x, c):
  """P⁻¹ L U, which is A."""
  del c
  packed, _, order = linalg.lu(x)
  del la
  l = jnp.tril(packed, -1) + jnp.eye(x.shape[-1], dtype=x.dtype)
  back = jnp.argsort(order, axis=-1)
  return jnp.take_along_axis(l @ jnp.triu(packed), back[..., None], axis=-2)


def _polar_of(b, a, c):
  del c
  u, _, vh = b.svd(a)
  return u @ vh


def _polar_of_svd(la, x, c):
  del c
  u, _, vh = la.svd(x, full_matrices=False)
  return u @ vh


def _modulus_of(b, a, c):
  del c
  _, s, vh = b.svd(a)
  return (_adjoint(vh) * s) @ vh


def _modulus(la, x, c):
  del c
  _, s, vh = la.svd(x, full_matrices=False)
  return (vh.mT.conj() * s[..., None, :].astype(vh.dtype)) @ vh


def _positive_qr(la, x, c):
  del c
  q, r = la.qr(x)
  d = jnp.diagonal(r, axis1=-2, axis2=-1)
  phase = d / jnp.abs(d).astype(d.dtype)
  return q * phase[..., None, :]


def _q_of(b, a, c):
  del c
  r = _adjoint(b.cholesky(_adjoint(a) @ a))
  return a @ b.inv(r)


def _tall(x, c, stack):
  return stack([x, jnp.broadcast_to(c, x.shape) if stack is jnp.concatenate else c], axis=-2)


def _pinv_of(b, a, c):
  tall = _tall(a, c, np.concatenate)
  h = _adjoint(tall)
  return (b.inv(h @ tall) @ h)[:, : len(a)]


def _lstsq(la, x, c):
  del la
  rhs = jnp.broadcast_to(jnp.concatenate([c, -2 * c], axis=-2), (*x.shape[:-2], 2 * len(c), len(c)))
  return linalg.lstsq(_tall(x, c, jnp.concatenate), rhs)[0]


def _lstsq_of(b, a, c):
  tall = _tall(a, c, np.concatenate)
  h = _adjoint(tall)
  return b.inv(h @ tall) @ (h @ np.concatenate([c, -2 * c]))


def _kronecker_solution(b, left, right, c):
  """X of A X + X B = C."""
  n = len(c)
  kron = lambda x, y: (x[:, None, :, None] * y[None, :, None, :]).reshape(n * n, n * n)
  eye = b.eye(n)
  return (b.inv(kron(left, eye) + kron(eye, right.T)) @ c.reshape(-1, 1)).reshape(n, n)


def _constant(c, x):
  return jnp.broadcast_to(c, x.shape)


def _three_diagonals(x, diagonal, append):
  zero = diagonal(x)[..., :1] * 0
  below, above = diagonal(x, -1), diagonal(x, 1)
  return append([zero, below], -1), diagonal(x) * 0 + 4, append([above, zero], -1)


def _tridiagonal(la, x, c):
  del la
  diagonal = lambda x, k=0: jnp.diagonal(x, k, -2, -1)
  parts = _three_diagonals(x, diagonal, jnp.concatenate)
  return linalg.tridiagonal_solve(*parts, _constant(c, x))


def _tridiagonal_of(b, a, c):
  n = len(a)
  t = b.eye(n) * 4 + np.diag(np.diagonal(a, -1), -1) + np.diag(np.diagonal(a, 1), 1) if n > 1 else (
      b.eye(1) * 4)
  return b.inv(t) @ c


def _updated(la, x, c):
  del la
  return linalg.cholesky_update(x.mT.conj(), _constant(c, x)[..., 0, :]).mT.conj()


def _updated_of(b, a, c):
  w = c[0].conj()
  a = np.tril(a)
  return b.cholesky(a @ _adjoint(a) + w[:, None] * w[None, :].conj())


def _toeplitz_product(la, x, c):
  del la
  return linalg.scipy.matmul_toeplitz((x[..., 0], x[..., 0, :]), _constant(c, x))


def _toeplitz_product_of(b, a, c):
  del b
  n = len(a)
  t = np.array([[a[i - j, 0] if i >= j else a[0, j - i] for j in range(n)] for i in range(n)])
  return t @ c


def _sum_of_logarithms(b, values):
  return np.sum(b.log(values), keepdims=True)


def _scalar(x):
  return x[..., None]


def _sylvester_call(la, x, c):
  del la
  return linalg.scipy.solve_sylvester(x, x.mT, _constant(c, x))


STEPS = {
    # Scaling keeps every step's condition bounded, so that the next one is well conditioned too.
    "normalise": Step(
        "any", "same", lambda la, x, c: x / _norm(x), lambda b, a, c: a / _norm_of(b, a)),
    "gram": Step(
        "general", "positive",
        lambda la, x, c: la.matmul(x, x.mT.conj()) + jnp.eye(x.shape[-1], dtype=x.dtype),
        lambda b, a, c: a @ _adjoint(a) + b.eye(len(a)), stock=True),
    "hermitian part": Step(
        "general", "hermitian", lambda la, x, c: (x + x.mT.conj()) / 2,
        lambda b, a, c: _hermitian(a)),
    "shift": Step(
        "general", "general", lambda la, x, c: x + 3 * jnp.eye(x.shape[-1], dtype=x.dtype),
        lambda b, a, c: a + 3 * b.eye(len(a))),
    "inv": Step("general", "general", lambda la, x, c: la.inv(x), lambda b, a, c: b.inv(a),
                stock=True),
    "inv of positive": Step("positive", "positive", lambda la, x, c: la.inv(x),
                            lambda b, a, c: b.inv(a), stock=True),
    "solve": Step("general", "general", lambda la, x, c: la.solve(x, _constant(c, x)),
                  lambda b, a, c: b.inv(a) @ c, stock=True),
    "solve with one factor": Step(
        "general", "general", lambda la, x, c: la.solve(_constant(c, x), x),
        lambda b, a, c: b.inv(c) @ a, stock=True),
    "solve positive": Step(
        "positive", "general",
        lambda la, x, c: linalg.solve(x, _constant(c, x), assume_a="pos"),
        lambda b, a, c: b.inv(_hermitian(a)) @ c),
    "solve hermitian": Step(
        "positive", "general",
        lambda la, x, c: linalg.solve(x, _constant(c, x), assume_a="her"),
        lambda b, a, c: b.inv(_hermitian(a)) @ c),
    "pinv": Step("general", "general",
                 lambda la, x, c: la.pinv(_tall(x, c, jnp.concatenate))[..., : len(c)], _pinv_of,
                 stock=True),
    "lstsq": Step("general", "general", _lstsq, _lstsq_of),
    "matrix_power": Step("general", "general", lambda la, x, c: la.matrix_power(x, 2),
                         lambda b, a, c: a @ a, stock=True),
    "inverse power": Step("general", "general", lambda la, x, c: la.matrix_power(x, -2),
                          lambda b, a, c: b.inv(a @ a), stock=True),
    "lu": Step("general", "general", _lu_again, lambda b, a, c: a),
    "qr": Step("general", "general", _positive_qr, _q_of, stock=True),
    "polar": Step("general", "general", lambda la, x, c: linalg.polar(x)[0], _polar_of),
    "polar of svd": Step("general", "general", _polar_of_svd, _polar_of, stock=True),
    "modulus of svd": Step("general", "positive", _modulus, _modulus_of, stock=True),
    "modulus": Step("general", "positive", lambda la, x, c: linalg.polar(x)[1], _modulus_of),
    "expm": Step("general", "general", lambda la, x, c: linalg.expm(x / _norm(x)),
                 lambda b, a, c: b.expm(a / _norm_of(b, a))),
    "sylvester": Step("positive", "general", _sylvester_call,
                      lambda b, a, c: _kronecker_solution(b, a, a.T, c), loops=True),
    "lyapunov": Step(
        "positive", "general",
        lambda la, x, c: linalg.scipy.solve_continuous_lyapunov(x, _constant(c, x)),
        lambda b, a, c: _kronecker_solution(b, a, _adjoint(a), c), loops=True),
    "tridiagonal_solve": Step("general", "general", _tridiagonal, _tridiagonal_of),
    "matmul_toeplitz": Step("general", "general", _toeplitz_product, _toeplitz_product_of),
    "congruence": Step(
        "positive", "positive", lambda la, x, c: linalg.congruence(_constant(c, x), x),
        lambda b, a, c: c @ a @ _adjoint(c)),
    "cholesky": Step("positive", "lower", lambda la, x, c: la.cholesky(x),
                     lambda b, a, c: b.cholesky(_hermitian(a)), stock=True),
    "cholesky_update": Step("lower", "lower", _updated, _updated_of),
    "triangular_solve": Step(
        "lower", "general",
        lambda la, x, c: linalg.triangular_solve(x, _constant(c, x), left_side=True, lower=True),
        lambda b, a, c: b.inv(np.tril(a)) @ c),
    "cho_solve": Step("lower", "general",
                      lambda la, x, c: linalg.cho_solve((x, True), _constant(c, x)),
                      lambda b, a, c: b.inv(np.tril(a) @ _adjoint(np.tril(a))) @ c),
    "square of lower": Step("lower", "positive", lambda la, x, c: x @ x.mT.conj(),
                            lambda b, a, c: a @ _adjoint(a)),
    "through eigh": Step("hermitian", "hermitian", _through_eigh,
                         _spectral(lambda w: np.exp(-w * w), lambda w: mpmath.exp(-w * w)),
                         stock=True),
    "funm_hermitian": Step("hermitian", "hermitian",
                           lambda la, x, c: linalg.funm_hermitian(x, jnp.sin),
                           _spectral(np.sin, mpmath.sin)),
    "exponential": Step(
        "hermitian", "positive", lambda la, x, c: linalg.funm_hermitian(x / _norm(x), jnp.exp),
        lambda b, a, c: b.expm(_hermitian(a) / _norm_of(b, a))),
    "logarithm": Step("positive", "hermitian", lambda la, x, c: linalg.funm_hermitian(x, jnp.log),
                      _spectral(np.log, mpmath.log)),
    "inverse_pth_root": Step("positive", "positive", lambda la, x, c: linalg.inverse_pth_root(x, 2),
                             _spectral(lambda w: w**-0.5, lambda w: 1 / mpmath.sqrt(w))),
    "sqrtm": Step("positive", "positive",
                  lambda la, x, c: _of_dtype(linalg.sqrtm(x), x), _spectral(np.sqrt, mpmath.sqrt),
                  loops=True),
    "logm": Step("positive", "hermitian",
                 lambda la, x, c: _of_dtype(linalg.scipy.logm(x), x), _spectral(np.log, mpmath.log),
                 loops=True),
    "pinvh": Step("positive", "positive", lambda la, x, c: linalg.scipy.pinvh(x),
                  lambda b, a, c: b.inv(_hermitian(a))),
    # The last ones give vectors.
    "det": Step("general", "end", lambda la, x, c: _scalar(la.det(x / _norm(x))),
                lambda b, a, c: np.reshape(b.det(a / _norm_of(b, a)), 1), stock=True),
    "slogdet": Step(
        "general", "end", lambda la, x, c: _scalar(la.slogdet(x)[1]),
        lambda b, a, c: np.reshape(b.log(abs(b.det(a))), 1), stock=True),
    "norm": Step("general", "end", lambda la, x, c: _scalar(la.matrix_norm(x)),
                 lambda b, a, c: np.reshape(_frobenius(b, a), 1), stock=True),
    "nuclear norm": Step(
        "general", "end", lambda la, x, c: _scalar(la.matrix_norm(x, ord="nuc")),
        lambda b, a, c: np.reshape(b.svd(a)[1].sum(), 1), stock=True),
    "cond": Step("general", "end", lambda la, x, c: _scalar(la.cond(x)),
                 lambda b, a, c: np.reshape(b.svd(a)[1][0] / b.svd(a)[1][-1], 1), stock=True),
    "vector_norm": Step(
        "general", "end", lambda la, x, c: linalg.vector_norm(x, ord=3, axis=-1),
        lambda b, a, c: (b.absolute(a) ** 3).sum(-1) ** (1 / b.eye(1)[0, 0] / 3)),
    "eigvalsh": Step("hermitian", "end", lambda la, x, c: la.eigvalsh(x),
                     lambda b, a, c: b.eigh(a)[0], stock=True),
    "svdvals": Step("general", "end", lambda la, x, c: la.svdvals(x), lambda b, a, c: b.svd(a)[1],
                    stock=True),
    "eigvals": Step(
        "general", "end", lambda la, x, c: _scalar(jnp.sum(la.eigvals(x) ** 3, -1).real),
        lambda b, a, c: np.reshape(b.real(np.trace(a @ a @ a)), 1), stock=True),
    "cho_logdet": Step("lower", "end", lambda la, x, c: _scalar(linalg.cho_logdet((x, True))),
                       lambda b, a, c: 2 * _sum_of_logarithms(b, abs(np.diagonal(a)))),
}
_IS_ALSO = {
    "general": {"general"}, "hermitian": {"general", "hermitian"},
    "positive": {"general", "hermitian", "positive"}, "lower": {"general", "lower"}}
_ROUGH = {"inv", "inv of positive", "inverse power", "matrix_power", "congruence", "gram",
          "square of lower", "solve", "pinv", "lstsq", "sylvester", "lyapunov", "logm", "logarithm"}


def _of_dtype(x, like):
  return x.real.astype(like.dtype) if not jnp.iscomplexobj(like) else x.astype(like.dtype)


def _norm(x):
  norm = linalg.matrix_norm(x, keepdims=True) / float(np.sqrt(x.shape[-1]))
  return norm.astype(x.dtype)


def _frobenius(b, a):
  return b.sqrt((b.absolute(a) ** 2).sum())


def _norm_of(b, a):
  return _frobenius(b, a) / float(np.sqrt(len(a)))


@dataclasses.dataclass(frozen=True)
class Program:
  """A program that a seed makes. The constants are square matrices, one for each step."""

  seed: int
  mode: str
  dtype: np.dtype
  batch: tuple[int, ...]
  n: int
  steps: tuple[str, ...]

  def __str__(self):
    return (f"seed {self.seed}: {self.mode}, {self.dtype.name}, {self.batch}, n = {self.n}, "
            + ", ".join(self.steps))

  @functools.cached_property
  def data(self):
    """The operand, a direction, and the constants."""
    rng = np.random.default_rng((self.seed, 1))
    some = lambda batch: matrices.well_conditioned(rng, batch, self.n, self.dtype)
    scale = self.dtype.type(1 / np.sqrt(self.n + 1))
    constants = [scale * some(()) for _ in self.steps]
    operand = scale * some(self.batch)
    direction = matrices.general(rng, self.batch, self.n, self.n, self.dtype)
    return operand, direction, constants

  @property
  def in_double(self):
    """Whether double precision is enough for the reference."""
    return self.n > 5

  def call(self, x, library=linalg):
    for name, c in zip(self.steps, self.data[2], strict=True):
      step = STEPS[name]
      x = step.call(library if step.stock else linalg, x, jnp.asarray(c))
    return x

  def reference(self, x, noise=None):
    """The result for one matrix. `noise`: one matrix per step, by which its result is rounded."""
    b = Double if self.in_double else Many
    wide = checks.wide if self.in_double else many_digits.exact
    for k, (name, c) in enumerate(zip(self.steps, self.data[2], strict=True)):
      if noise is not None:
        x = x + x @ noise[k]
      x = STEPS[name].reference(b, x, wide(c))
    return np.asarray(x)


def make(seed) -> Program:
  """The program of a seed."""
  rng = np.random.default_rng((seed, 0))
  mode = MODES[rng.integers(len(MODES))]
  derived = mode in ("gradient", "second derivative")
  dtype = np.dtype([np.float32, np.float64, np.complex64, np.complex128][rng.integers(4)])
  large = np.finfo(dtype).eps > 1e-10 and not derived and rng.random() < 0.5
  n = int(rng.integers(6, 41) if large else rng.integers(1, 6))
  batches = [(2,), (4,), (2, 3)] if mode in ("sharded", "vmap") else [(), (1,), (3,), (2, 2), (0,)]
  batch = batches[rng.integers(len(batches))]
  count = int(rng.integers(3, 7))
  kind, steps = "general", []
  while len([x for x in steps if x != "normalise"]) < count:
    last = len([x for x in steps if x != "normalise"]) == count - 1
    fits = [
        name for name, step in STEPS.items()
        if step.takes in _IS_ALSO[kind] and (last or step.gives != "end")
        and not (derived and step.loops and rng.random() < 0.8)]
    name = fits[rng.integers(len(fits))]
    steps.append(name)
    kind = STEPS[name].gives
    if name in _ROUGH and kind != "end":
      steps.append("normalise")
  return Program(seed, mode, dtype, batch, n, tuple(steps))


def _mesh():
  return jax.make_mesh((2,), ("x",), axis_types=(AxisType.Explicit,), devices=jax.devices()[:2])


def _found(program):
  """The results of the program: the value, and the derivative along the direction if it has one."""
  x, dx, _ = program.data
  if program.mode == "eager":
    return [program.call(jnp.asarray(x))]
  if program.mode == "vmap":
    axis = (program.seed // 7) % (len(program.batch) + 1)
    call = quick_jit(jax.vmap(program.call, in_axes=axis))
    return [call(np.moveaxis(x, 0, axis))]
  if program.mode == "sharded":
    mesh = _mesh()
    placed = jax.device_put(x, NamedSharding(mesh, P("x")))
    compiled = quick_jit(program.call).lower(placed).compile()
    text = compiled.as_text()
    for name in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
      if name in text:
        raise AssertionError(f"the program has the collective {name}")
    return [compiled(placed)]
  if program.mode == "accelerated":
    with linalg.accelerated():
      return [quick_jit(lambda x: program.call(x, jnp.linalg))(x)]
  if program.mode == "jit":
    return [quick_jit(program.call)(x)]

  along = lambda x: jax.jvp(program.call, (x,), (dx,))[1]
  pair = lambda y, dy: jnp.sum((y * dy).real, axis=tuple(range(len(program.batch), y.ndim)))

  def derivatives(x):
    y, dy = jax.jvp(program.call, (x,), (dx,))
    ct = _cotangent(program, y.shape[len(program.batch):], y.dtype)
    ct = jnp.broadcast_to(ct, y.shape)
    gradient = jax.grad(lambda x: jnp.sum((ct * program.call(x)).real))
    if program.mode == "gradient":
      return y, dy, pair(gradient(x), dx)
    _, second = jax.jvp(along, (x,), (dx,))
    _, turned = jax.jvp(gradient, (x,), (dx,))
    return y, second, pair(turned, dx)

  return quick_jit(derivatives)(x)


def _cotangent(program, core, dtype):
  rng = np.random.default_rng((program.seed, 2))
  return matrices.general(rng, (), 1, int(np.prod(core)), np.dtype(dtype)).reshape(core)


def _expected(program, i, noise):
  """The exact results for one matrix of the batch."""
  x, dx = (y[i] for y in program.data[:2])
  if program.in_double:
    return [program.reference(checks.wide(x), noise)]
  x, dx = many_digits.exact(x), many_digits.exact(dx)
  if program.mode not in ("gradient", "second derivative"):
    return [program.reference(x, noise)]
  h = many_digits.STEP
  before, here, after = (program.reference(x + k * h * dx, noise) for k in (-1, 0, 1))
  slope = (
      (after - before) / (2 * h) if program.mode == "gradient" else
      (after - 2 * here + before) / h**2)
  ct = many_digits.exact(_cotangent(program, here.shape, _result_dtype(program)))
  return [here, slope, np.asarray(np.sum(Many.real(ct * slope)))]


def _result_dtype(program):
  real = np.finfo(program.dtype).dtype
  always_real = ("slogdet", "norm", "nuclear norm", "cond", "vector_norm", "eigvalsh", "svdvals",
                 "eigvals", "cho_logdet")
  return real if program.steps[-1] in always_real else program.dtype


def error(program) -> float:
  """The largest error, in roundings; NaN if roundings make the result meaningless.

  It is NaN too for a second derivative that does not exist: see `meets_equal_values`.
  """
  found = [np.asarray(x) for x in jax.device_get(_found(program))]
  rng = np.random.default_rng((program.seed, 3))
  eps = float(np.finfo(program.dtype).eps)
  worst = 0.0
  with mpmath.workdps(many_digits.DIGITS):
    for i in np.ndindex(program.batch):
      noises = [[
          eps * np.sign(rng.standard_normal((program.n, program.n))) for _ in program.steps]
          for _ in range(2)]
      exact = _expected(program, i, None)
      if not program.in_double:
        noises = [[many_digits.exact(e) for e in noise] for noise in noises]
      near = [_expected(program, i, noise) for noise in noises]
      # A derivative may be 0 where the result is not: it is of this size before terms cancel.
      order = ("gradient", "second derivative").index(program.mode) + 1 if len(exact) > 1 else 0
      x, dx = (np.linalg.norm(y[i]) for y in program.data[:2])
      uncancelled = float(np.abs(many_digits.rounded(exact[0])).max(initial=0)) * (
          dx / x) ** order if order else 0
      for k, y in enumerate(exact):
        wide = many_digits.rounded if not program.in_double else np.asarray
        norm = lambda z: float(np.abs(wide(z)).max(initial=0))
        # Subtract in many digits: the difference may be far below the result.
        x = checks.wide(found[k][i])
        difference = norm(x - y if program.in_double else many_digits.exact(x) - y)
        size = norm(y)
        unit = max(norm(z[k] - y) for z in near) + eps * (size + 1e-3 + uncancelled * (k > 0))
        if not np.isfinite(x).all():
          expected = program.mode == "second derivative" and meets_equal_values(program)
          return np.nan if expected else np.inf
        if unit > VACUOUS * max(size, 1e-3):
          return np.nan
        worst = max(worst, difference / unit)
  return worst


# Relative gaps between singular values, or eigenvalues, that count as equal.
_EQUAL = 1e-6
# Steps that return functions of separate vectors or values. Their second derivatives are NaN where
# two values are equal.
_OF_VALUES = {"polar of svd", "modulus of svd", "through eigh", "cond", "svdvals", "eigvalsh",
              "eigvals"}


def meets_equal_values(program) -> bool:
  """Whether a step of _OF_VALUES takes a matrix that has two equal singular values."""
  for x in np.reshape(program.data[0], (-1, program.n, program.n)):
    x = checks.wide(x)
    for name, c in zip(program.steps, program.data[2], strict=True):
      if name in _OF_VALUES:
        s = np.linalg.svd(x, compute_uv=False)
        if np.any(s[:-1] - s[1:] <= _EQUAL * s[0]):
          return True
      x = np.asarray(STEPS[name].reference(Double, x, checks.wide(c)))
  return False


def check(seed) -> float:
  """The error of a seed's program. Raises AssertionError if it is too large."""
  program = make(seed)
  found = error(program)
  assert not found > LIMIT, f"{program}: {found:.3g} roundings"
  return found


def main():
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--seconds", type=float, default=60)
  parser.add_argument("--first-seed", type=int, default=0)
  parser.add_argument("--seeds", type=int, nargs="*", help="these alone")
  options = parser.parse_args()
  end = time.monotonic() + options.seconds
  seeds = iter(options.seeds or range(options.first_seed, sys.maxsize))
  count = vacuous = 0
  failed = []
  for seed in seeds:
    if time.monotonic() > end:
      break
    try:
      found = check(seed)
      vacuous += np.isnan(found)
      if options.seeds:
        print(make(seed), found, flush=True)
    except Exception as wrong:  # any fault of a program is a finding
      failed.append(seed)
      print(f"{make(seed)}\n  {type(wrong).__name__}: {str(wrong)[:500]}", flush=True)
    count += 1
    if count % 50 == 0:
      print(f"{count} programs to seed {seed}, {vacuous} without meaning, failed: {failed}",
            flush=True)
      jax.clear_caches()
  print(f"{count} programs, {vacuous} without meaning, failed: {failed}")
  sys.exit(bool(failed))


if __name__ == "__main__":
  main()
