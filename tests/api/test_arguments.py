"""Arguments of the replaced functions: dtypes, promotion, broadcasting and errors.

A program written for jax.numpy.linalg, jax.lax.linalg or jax.scipy.linalg must get the same results
here.
"""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import linalg
import matrices
from counterparts import FOLLOWING, PAIRS

ONE_IN = 2


def _parameters(function):
  return {
      name: (parameter.kind, parameter.default)
      for name, parameter in inspect.signature(function).parameters.items()}


@pytest.mark.parametrize("name", [x for x in linalg.__all__ if x.endswith("_ex")])
def test_ex_signature(name):
  """An _ex form takes the arguments of the plain function."""
  assert _parameters(getattr(linalg, name)) == _parameters(getattr(linalg, name[:-3]))


def test_numpy_integers():
  """Sizes may be NumPy integers."""
  permutation = linalg.lu_pivots_to_permutation(np.array([1, 1], np.int32), np.int64(3))
  np.testing.assert_array_equal(permutation, [1, 0, 2])


def test_result_types():
  a = np.eye(2)
  for name in ("qr", "eig", "eigh", "slogdet", "svd"):
    ours, stock = (function(a) for function in PAIRS[name])
    assert type(ours).__name__ == type(stock).__name__
    assert type(ours)._fields == type(stock)._fields
    assert getattr(linalg, type(ours).__name__) is type(ours)


EYE = np.eye(3)
# The functions with handlers that follow one of all dtypes.
CALLED = [
    name for name, x in FOLLOWING.items()
    if not x.is_composed and all(case.stock_dtypes == cases.DTYPES for case in x.cases)]


def _call(name, function, a):
  """A call with the arguments of the record: `a` for matrices, and a row of it for vectors."""

  def of_record(x):
    if not isinstance(x, np.ndarray):
      return x
    if x.dtype.kind != "f":
      return jnp.broadcast_to(x.astype(np.int32), (*a.shape[:-2], *x.shape))
    return a if x.ndim == 2 else a[..., 0, : x.shape[-1]]

  record = FOLLOWING[name]
  return function(*jax.tree.map(of_record, record.arguments or (EYE,) * record.required()))


DTYPES = (
    jnp.bool_, jnp.int8, jnp.int32, jnp.uint16, jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64,
    jnp.complex64, jnp.complex128)
HALF = (jnp.float16, jnp.bfloat16)


def _dtypes(function, name, a):
  leaves = jax.tree.leaves(jax.eval_shape(lambda a: _call(name, function, a), a))
  return [(x.shape, x.dtype, x.weak_type) for x in leaves if hasattr(x, "dtype")]


@functools.cache
def _takes_integers(name):
  """Some functions take only jax.lax's dtypes, so integers are an error."""
  try:
    _dtypes(PAIRS[name][1], name, jnp.ones((3, 3), jnp.int32))
  except TypeError:
    return False
  return True


@functools.cache
def _is_complex(name):
  """Whether real matrices have complex results, since no complex dtype has half precision."""
  types = _dtypes(PAIRS[name][1], name, jnp.ones((3, 3), jnp.float32))
  return any(jnp.issubdtype(dtype, jnp.complexfloating) for _, dtype, _ in types)


@pytest.mark.parametrize("x64", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("name", CALLED)
def test_result_dtypes(name, dtype, x64):
  """Result dtypes are stock's.

  They are the operand's or the default if stock JAX has none for half precision or integers.
  """
  ours, stock = PAIRS[name]
  with jax.enable_x64(x64):
    a = jnp.asarray(np.ones((3, 3), dtype))
    if name == "eigh_tridiagonal" and not jnp.issubdtype(dtype, jnp.inexact):
      with pytest.raises(TypeError, match="d and e must have a floating or complex dtype"):
        _dtypes(ours, name, a)
      return
    actual = _dtypes(ours, name, a)
    if dtype in HALF:
      wanted = jnp.complex64 if _is_complex(name) else dtype
      assert {d for _, d, _ in actual} <= {
          jnp.dtype(wanted), jnp.dtype(jnp.int32), jnp.dtype(bool)}
      a = jnp.ones((3, 3), jnp.float32)  # only the shapes are used
    elif not jnp.issubdtype(dtype, jnp.inexact) and not _takes_integers(name):
      a = jnp.sqrt(a)
    expected = _dtypes(stock, name, a)
  if dtype in HALF:
    actual = [(shape, jnp.float32 if d == dtype else d, weak) for shape, d, weak in actual]
  assert actual == expected


@pytest.mark.parametrize("dtype", HALF, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("name", CALLED)
def test_half_precision_is_rounded_once(name, dtype, rng):
  """Half precision is computed in float32 and then rounded; stock raises an error."""
  function = PAIRS[name][0]
  a = jnp.asarray(matrices.positive_definite(rng, (2,), 3, np.float32) / 4, dtype)
  half = jax.tree.leaves(_call(name, function, a))
  single = jax.tree.leaves(_call(name, function, a.astype(jnp.float32)))
  for x, y in zip(half, single, strict=True):
    if isinstance(x, bool):
      continue
    assert x.dtype == (y.dtype if y.dtype == jnp.int32 or _is_complex(name) else dtype)
    np.testing.assert_array_equal(x, y.astype(x.dtype))


def _weak(value):
  """Returns a weakly typed matrix, as arithmetic with Python scalars makes it."""
  weak = jnp.where(jnp.eye(3, dtype=bool), jax.lax.broadcast(value, (3, 3)), type(value)(0))
  assert weak.weak_type
  return weak


TWO_OPERANDS = {
    "solve": lambda f, a, b: f(a, b),
    "solve_triangular": lambda f, a, b: f(a, b),
    "cho_solve": lambda f, a, b: f((a, True), b),
    "lu_solve": lambda f, a, b: f((a, jnp.arange(3, dtype=jnp.int32)), b),
}


@pytest.mark.parametrize("name", TWO_OPERANDS)
@pytest.mark.usefixtures("standard_promotion")
def test_promotion(name):
  """Operands of two dtypes promote as in stock, including weak types and integers."""
  ours, stock = PAIRS[name]
  call = TWO_OPERANDS[name]
  dtypes = (jnp.int32, jnp.float32, jnp.float64, jnp.complex64)
  operands = [jnp.eye(3, dtype=dtype) for dtype in dtypes] + [_weak(2.0), _weak(2j)]
  for a in operands:
    for b in operands:
      actual, expected = (
          jax.eval_shape(lambda a, b, f=f: call(f, a, b), a, b) for f in (ours, stock))
      assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), (a.dtype, b.dtype)
      assert not actual.weak_type


@pytest.mark.parametrize("name", CALLED)
def test_weak_operands(name):
  """A weakly typed matrix has the default dtype, and the results are strongly typed."""
  ours, stock = PAIRS[name]
  for value in (2, 2.0, 2j) if _takes_integers(name) else (2.0, 2j):
    actual, expected = (_dtypes(f, name, _weak(value)) for f in (ours, stock))
    assert [x[:2] for x in actual] == [x[:2] for x in expected]
    # jax.numpy.matmul keeps weak types too.
    assert name == "matmul" or not any(weak for _, _, weak in actual)


def test_kinds_of_arrays():
  """Arrays of NumPy and JAX: read-only, strided and Fortran-ordered, traced or not."""
  a = np.array([[4.0, 1, 0], [1, 5, 2], [0, 2, 6]])
  expected = np.linalg.cholesky(a)
  readonly = a.copy()
  readonly.flags.writeable = False
  strided = np.kron(a, np.ones((2, 2)))[::2, ::2]
  for one in (a, np.asfortranarray(a), readonly, strided, jnp.asarray(a)):
    for function in (linalg.cholesky, jax.jit(linalg.cholesky)):
      np.testing.assert_allclose(function(one), expected, rtol=1e-14)


BATCHES = [((4,), ()), ((), (4,)), ((2, 1), (3,)), ((1,), (4,)), ((2, 3), (2, 3)), ((), ())]


@pytest.mark.parametrize("batches", BATCHES, ids=str)
def test_broadcasting(batches, rng):
  """Batch dimensions broadcast as in NumPy; every solve equals that of explicit copies."""
  batch_a, batch_b = batches
  batch = np.broadcast_shapes(*batches)
  a = matrices.positive_definite(rng, batch_a, 3, np.float64)
  b = matrices.general(rng, batch_b, 3, 2, np.float64)
  full_a, full_b = np.broadcast_to(a, (*batch, 3, 3)), np.broadcast_to(b, (*batch, 3, 2))
  calls = {
      **{name: lambda a, b, call=call, f=PAIRS[name][0]: call(f, a, b)
         for name, call in TWO_OPERANDS.items()},
      "solve_ex": lambda a, b: linalg.solve_ex(a, b)[0],
      "triangular_solve": lambda a, b: linalg.triangular_solve(a, b, left_side=True, lower=True),
      "right": lambda a, b: linalg.triangular_solve(a, jnp.swapaxes(b, -1, -2), transpose_a=True),
  }
  if len(batch_a) == len(batch_b) + 1:
    # This case is ambiguous: one dimension less makes a right-hand side of vectors.
    del calls["triangular_solve"], calls["right"]
  for name, call in calls.items():
    x = call(a, b)
    assert x.shape[:-2] == batch, name
    np.testing.assert_allclose(x, call(full_a, full_b), rtol=1e-12, atol=1e-14, err_msg=name)
  packed, pivots = linalg.lu_factor(a)
  np.testing.assert_allclose(
      linalg.lu_solve((packed, pivots), b), np.linalg.solve(full_a, full_b), rtol=1e-9)


@pytest.mark.parametrize("name", TWO_OPERANDS)
def test_strict_promotion(name):
  """JAX's strict promotion rejects two dtypes, as in stock, and accepts two ranks."""
  for function in PAIRS[name]:
    with pytest.raises(jax.dtypes.TypePromotionError, match="float(32|64)"):
      jax.eval_shape(
          lambda a, b, f=function: TWO_OPERANDS[name](f, a, b), jnp.eye(3, dtype=jnp.float32),
          jnp.eye(3, dtype=jnp.float64))
  batched = jax.eval_shape(
      lambda a, b: TWO_OPERANDS[name](PAIRS[name][0], a, b), jnp.ones((4, 3, 3)), jnp.ones((3, 2)))
  assert batched.shape == (4, 3, 2)


@pytest.mark.parametrize("name", TWO_OPERANDS)
@pytest.mark.usefixtures("standard_promotion")
def test_vectors(name, rng):
  """One-dimensional right-hand sides work for one matrix and for a batch."""
  ours, stock = PAIRS[name]
  b = matrices.general(rng, (), 3, 1, np.float64)[:, 0]
  for batch in ((), (4,), (2, 3)):
    a = matrices.positive_definite(rng, batch, 3, np.float64)
    if name == "lu_solve":
      a, pivots = linalg.lu_factor(a)
      actual, expected = (f((a, pivots), b) for f in (ours, stock))
    else:
      actual, expected = (TWO_OPERANDS[name](f, a, b) for f in (ours, stock))
    assert actual.shape == (*batch, 3)
    np.testing.assert_allclose(actual, expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["cho_solve", "lu_solve", "solve_triangular"])
def test_deprecated_batches_of_vectors(name, rng):
  """If b has one dimension less than a, it is a batch of vectors, with stock's warning."""
  a = matrices.positive_definite(rng, (4,), 3, np.float64)
  b = matrices.general(rng, (), 4, 3, np.float64)
  found = []
  for function in PAIRS[name]:
    if name == "lu_solve":
      first = linalg.lu_factor(a)
    else:
      first = a if name == "solve_triangular" else (a, True)
    with pytest.warns(FutureWarning, match=f"{name}: batched 1D solves") as warned:
      found.append(function(first, b))
    assert len(warned) == 1
  ours, stock = found
  assert ours.shape == (4, 3)
  np.testing.assert_allclose(ours, stock, rtol=1e-10)


def test_triangular_solve_of_vectors(rng):
  """If b has one dimension less than a, it is a batch of vectors on either side, as in jax.lax."""
  a = matrices.triangular(rng, (4,), 3, np.float64, lower=True)
  b = matrices.general(rng, (), 4, 3, np.float64)
  for left_side in (True, False):
    actual, expected = (
        f(a, b, left_side=left_side, lower=True) for f in PAIRS["triangular_solve"])
    assert actual.shape == (4, 3)
    np.testing.assert_allclose(actual, expected, rtol=1e-10)
