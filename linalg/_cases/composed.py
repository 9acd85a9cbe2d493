"""The functions that are composed in Python, as cases."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import scipy.linalg

import linalg
from linalg._cases import matrices
from linalg._cases.case import Case
from linalg._cases.distance import case_of as _case
from linalg._cases.factors import cholesky_factor, cholesky_product, lu_factors, lu_product
from linalg._cases.operands import (
    general,
    hermitian,
    positive_definite,
    square,
    two_square,
    two_vectors,
    vector,
    with_columns,
)
from linalg._cases.timed import (
    GENERAL,
    TALL,
    TALL_COLUMN,
    Timed,
    called,
)

# Why a matrix has other last bits in other batches.
SUMS = "XLA sums a few arrays in other orders than many"
LOOPS = "XLA fuses products and sums in a loop over rows or not, by the batch's size (jax 0.12)"
PRODUCTS = "XLA compiles products of complex numbers, or of small matrices, by the batch's size"


def _two_triples(rng, batch, m, n, dtype):
  return two_vectors(rng, batch, m, 3, dtype)


def _overdetermined(rng, batch, m, n, dtype):
  """With residuals that are not rounding."""
  del m
  a = matrices.general(rng, batch, n + 3, n, dtype) + 3 * np.eye(n + 3, n, dtype=dtype)
  return a, matrices.general(rng, batch, n + 3, 2, dtype)


def _slogdet_of_factors(packed, pivots):
  return tuple(np.linalg.slogdet(lu_product(packed, pivots)))


def _lstsq_oracle(a, b):
  k = min(a.shape)
  if not a.size:
    x = np.zeros((a.shape[1], b.shape[1]))
    return x, np.sum(np.abs(b) ** 2, axis=0), 0, np.zeros(0)
  x = np.linalg.pinv(a) @ b
  s = np.linalg.svd(a, compute_uv=False)
  return x, np.sum(np.abs(b - a @ x) ** 2, axis=0), k, s


def _spectral(function):
  def oracle(a):
    w, v = np.linalg.eigh(a)
    return ((v * function(w)) @ v.conj().T,)

  return oracle


def _polar_oracle(side):
  def oracle(a):
    if not a.size:
      n = a.shape[1] if side == "right" else a.shape[0]
      return a, np.zeros((n, n))
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    p = vh.conj().T * s @ vh if side == "right" else u * s @ u.conj().T
    return u @ vh, p

  return oracle


def _norm_oracle(order):
  return lambda a: (np.linalg.norm(a, order) if a.size else 0.0,)


def _matrix_norm(library, order):
  return lambda a: library.matrix_norm(a, ord=order)


def _vector_norm(library, order):
  return lambda x: library.vector_norm(x, ord=order, axis=-1)


def _expm(a):
  return scipy.linalg.expm(a) if a.size else a


def _scaled(rng, batch, m, n, dtype):
  (a,) = general(rng, batch, n, n, dtype)
  return (a * dtype.type(2 / np.sqrt(max(n, 1))),)


COMPOSED: tuple[Case, ...] = (
    _case("congruence", linalg.congruence, two_square, (2, 2), lambda a, x: (a @ x @ a.conj().T,),
          lambda a, x: a @ x @ a.mT.conj()),
    _case("congruence_adjoint", lambda a, x: linalg.congruence(a, x, a, adjoint_a=True), two_square,
          (2, 2), lambda a, x: (a.conj().T @ x @ a + a,),
          lambda a, x: a.mT.conj() @ x @ a + a, variant=True),
    _case("norm", lambda a: linalg.norm(a, axis=(-2, -1)), general, (2,), _norm_oracle("fro"),
          lambda a: jnp.linalg.norm(a, axis=(-2, -1)), rectangular=True, varying={0: SUMS}),
    *(_case(f"matrix_norm_{order}", _matrix_norm(linalg, order), general, (2,),
            _norm_oracle(order), _matrix_norm(jnp.linalg, order), 2, rectangular=True,
            variant=order != 2, varying={} if order == 2 else {0: SUMS})
      for order in (2, "nuc", 1, np.inf)),
    _case("matrix_norm_-2", _matrix_norm(linalg, -2), square, (2,),
          lambda a: (np.linalg.norm(a, -2),), _matrix_norm(jnp.linalg, -2), 20, empty=False,
          variant=True),
    *(_case(f"vector_norm_{order}", _vector_norm(linalg, order), vector, (1,),
            _norm_oracle(order), _vector_norm(jnp.linalg, order), 4, empty=order > 1,
            variant=order != 3, varying={0: SUMS})
      for order in (3, 2, 0.5, -1)),
    _case("cond", linalg.cond, square, (2,), lambda a: (np.linalg.cond(a),), jnp.linalg.cond, 20,
          empty=False,
          timed=Timed((GENERAL,), lambda n: 8 * n**3 / 3,
                      called("linalg.cond", "numpy", "torch", "cupy"))),
    _case("cond_1", lambda a: linalg.cond(a, 1), square, (2,), lambda a: (np.linalg.cond(a, 1),),
          lambda a: jnp.linalg.cond(a, 1), 20, empty=False, variant=True, varying={0: SUMS}),
    _case("cho_logdet", lambda l: linalg.cho_logdet((l, True)), cholesky_factor, (2,),
          lambda l: (np.linalg.slogdet(cholesky_product(l))[1],), condition=10,
          varying={0: SUMS}),
    _case("lu_slogdet", lambda *factors: linalg.lu_slogdet(factors), lu_factors, (2, 1),
          _slogdet_of_factors, condition=10, varying={1: SUMS}),
    _case("matrix_rank", linalg.matrix_rank, square, (2,), lambda a: (np.linalg.matrix_rank(a),),
          jnp.linalg.matrix_rank, differentiable=False),
    _case("matrix_power", lambda a: linalg.matrix_power(a, 3), square, (2,),
          lambda a: (np.linalg.matrix_power(a, 3),), lambda a: jnp.linalg.matrix_power(a, 3)),
    _case("matrix_power_-2", lambda a: linalg.matrix_power(a, -2), square, (2,),
          lambda a: (np.linalg.matrix_power(a, -2),), lambda a: jnp.linalg.matrix_power(a, -2),
          100, variant=True),
    _case("pinv", linalg.pinv, square, (2,), lambda a: (np.linalg.pinv(a),), jnp.linalg.pinv, 20,
          timed=Timed((GENERAL,), lambda n: 24 * n**3,
                      called("linalg.pinv", "numpy", "torch", "cupy"))),
    _case("pinv_hermitian", lambda a: linalg.pinv(a, hermitian=True), positive_definite, (2,),
          lambda a: (np.linalg.pinv(a),), lambda a: jnp.linalg.pinv(a, hermitian=True), 20,
          variant=True),
    _case("lstsq", linalg.lstsq, _overdetermined, (2, 2), _lstsq_oracle,
          jax.vmap(jnp.linalg.lstsq), 20,
          invariant=lambda results: (results[0], results[1], results[3]), varying={1: SUMS},
          timed=Timed((TALL, TALL_COLUMN), lambda n: 56 * n**3, called("linalg.lstsq", "torch"))),
    _case("expm", linalg.expm, _scaled, (2,), lambda a: (_expm(a),), jax.scipy.linalg.expm, 10,
          varying={0: PRODUCTS}, stock_hangs=True,
          timed=Timed((GENERAL,), lambda n: 16 * n**3, called("linalg.matrix_exp", "torch"))),
    _case("sqrtm", linalg.sqrtm, positive_definite, (2,),
          lambda a: (_spectral(np.sqrt)(a)[0] + 0j,), jax.vmap(jax.scipy.linalg.sqrtm), 10),
    _case("polar", linalg.polar, square, (2,), _polar_oracle("right"),
          jax.vmap(jax.scipy.linalg.polar), 20, stock_hangs=True),
    _case("polar_left", lambda a: linalg.polar(a, "left"), square, (2,), _polar_oracle("left"),
          jax.vmap(lambda a: jax.scipy.linalg.polar(a, "left")), 20, variant=True,
          stock_hangs=True),
    _case("funm_hermitian", lambda a: linalg.funm_hermitian(a, jnp.sin), hermitian, (2,),
          _spectral(np.sin), condition=20),
    _case("inverse_pth_root", lambda a: linalg.inverse_pth_root(a, 4), positive_definite, (2,),
          _spectral(lambda w: w**-0.25), condition=20),
    _case("solve_pos", lambda a, b: linalg.solve(a, b, assume_a="pos"),
          with_columns(positive_definite), (2, 2), lambda a, b: (np.linalg.solve(a, b),),
          lambda a, b: jax.scipy.linalg.solve(a, b, assume_a="pos"), 20, variant=True),
    _case("solve_her", lambda a, b: linalg.solve(a, b, assume_a="her"),
          with_columns(positive_definite), (2, 2), lambda a, b: (np.linalg.solve(a, b),),
          lambda a, b: jax.scipy.linalg.solve(a, b, assume_a="her"), 20, variant=True),
    _case("block_diag", linalg.block_diag, two_square, (2, 2),
          lambda a, b: (scipy.linalg.block_diag(a, b),), jax.vmap(jax.scipy.linalg.block_diag),
          zeros=True),
    _case("trace", linalg.trace, general, (2,), lambda a: (np.trace(a),), jnp.linalg.trace, 20,
          rectangular=True, varying={0: SUMS}),
    _case("diagonal", lambda a: linalg.diagonal(a, offset=1), general, (2,),
          lambda a: (np.diagonal(a, 1),), lambda a: jnp.linalg.diagonal(a, offset=1),
          rectangular=True),
    _case("matrix_transpose", linalg.matrix_transpose, general, (2,), lambda a: (a.T,),
          jnp.linalg.matrix_transpose, rectangular=True),
    _case("vecdot", linalg.vecdot, two_vectors, (1, 1), lambda x, y: (np.vdot(x, y),),
          jnp.linalg.vecdot, 20, varying={0: SUMS}),
    _case("cross", linalg.cross, _two_triples, (1, 1), lambda x, y: (np.cross(x, y),),
          jnp.linalg.cross, empty=False, varying={0: PRODUCTS}),
)
