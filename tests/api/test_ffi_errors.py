"""Handlers raise an error for operands and results that they cannot take, and never crash.

`jax.ffi.ffi_call` goes past every check in Python. The error names the target and the operand.
"""

import functools
import math
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import target_table

ONE_IN = 2

F64, F32, C128, I32 = np.float64, np.float32, np.complex128, np.int32
B, M, N, K = 3, 6, 4, 2
MATRIX, INFO = ((B, N, N), F64), ((B,), I32)


class Call:
  """A good call of a target, and how its operands and results may vary."""

  def __init__(self, target):
    self._tokens = target.operands, target.results
    self.operands, self.results = self.of_sizes(B, M, N, K)
    self.attributes = {
        name: target_table.ATTRIBUTES.get(name, True) for name in target.attributes}
    self.square = target.operands[0][1:] == "nn"
    # Whether the first operand may also be complex, since results do not tell its dtype.
    self.any_dtype = sum(x[0] == "T" for x in (*target.operands, *target.results)) == 1

  def of_sizes(self, b, m, n, k):
    """The types of the operands and of the results."""
    return [target_table.types(tokens, b, m, n, k) for tokens in self._tokens]

  def takes(self, what, side, i):
    """Whether a change that `_bad` makes to an operand (side 0) or result (1) is none to refuse."""
    token = self._tokens[side][i]
    if token.endswith("!"):  # of any length
      return what in ("longer", "other batch")
    if what == "as many elements" and not self.square:
      others = "".join(x[1:] for side in self._tokens for x in side if x != token)
      return not set(token[1:]) & set(others)  # both sizes are free
    if what != "longer" or (token[-1] == "k" and "count" in self.attributes):
      return False
    if token[-1] == "P":
      return True
    larger = {letter: size + (letter == token[-1]) for letter, size in zip("mnk", (M, N, K))}
    changed = self.of_sizes(B, **larger)
    changed[side][i] = (self.operands, self.results)[side][i]
    return token[-1] in larger and changed == [self.operands, self.results]


CALLS = {
    name.removeprefix("linalg_"): Call(target) for name, target in target_table.TARGETS.items()}
TARGETS = pytest.mark.parametrize("target", CALLS)


def _compile(target, operands, results, attributes, **options):
  types = [jax.ShapeDtypeStruct(*operand) for operand in operands]
  results = [jax.ShapeDtypeStruct(*result) for result in results]
  function = lambda *x: jax.ffi.ffi_call(f"linalg_{target}", results, **options)(*x, **attributes)
  return jax.jit(function).lower(*types).compile()


def _run(compiled, operands):
  values = [
      (np.broadcast_to(np.eye(*shape[-2:]), shape) if len(shape) > 1 else
      np.ones(shape)).astype(dtype) for shape, dtype in operands]
  return jax.block_until_ready(compiled(*values))


def _call(target, operands, results, attributes, **options):
  return _run(_compile(target, operands, results, attributes, **options), operands)


@functools.cache
def _compile_good(target):
  call = CALLS[target]
  return _compile(target, call.operands, call.results, call.attributes)


def _good_call(target):
  return _run(_compile_good(target), CALLS[target].operands)


def _refuses(target, operands, results, attributes, names=""):
  """The call fails with an error of the handler that names the target and what is wrong."""
  with pytest.raises(Exception) as refused:  # noqa: B017, JAX's own class
    _call(target, operands, results, attributes)
  message = str(refused.value)
  assert "INVALID_ARGUMENT" in message and f"linalg_{target}" in message, message
  assert names in message, message
  _good_call(target)  # the process still works


def _bad(shape, dtype):
  """Shapes and dtypes that are wrong for an operand or a result."""
  yield "int8", (shape, np.int8)
  yield "float16", (shape, np.float16)
  yield "other dtype", (shape, I32 if dtype == F64 else F64)
  yield "scalar", ((), dtype)
  yield "longer", ((*shape[:-1], shape[-1] + 1), dtype)
  yield "other batch", ((B + 1, *shape[1:]), dtype)
  if len(shape) == 3:
    yield "as many elements", ((B, shape[1] // 2, 2 * shape[2]), dtype)


def test_every_handler_is_called():
  """Every handler must have a call here."""
  assert {f"linalg_{target}" for target in CALLS} == cases.targets("cpu")


@TARGETS
def test_good_call(target):
  """The good calls, which the other tests alter."""
  _good_call(target)


@pytest.mark.extended
@TARGETS
def test_bad_operands(target):
  """Catches an operand that is read beyond its end, or as another type."""
  call = CALLS[target]
  for i, operand in enumerate(call.operands):
    for what, bad in _bad(*operand):
      if not call.takes(what, 0, i):
        operands = [*call.operands[:i], bad, *call.operands[i + 1 :]]
        _refuses(target, operands, call.results, call.attributes)


@pytest.mark.extended
@TARGETS
def test_bad_results(target):
  """Catches a result that is written beyond its end, or as another type."""
  call = CALLS[target]
  for i, (shape, dtype) in enumerate(call.results):
    # Operands may serve the whole batch, and results may not.
    for what, bad in (*_bad(shape, dtype), ("no batch", (shape[1:], dtype))):
      if not call.takes(what, 1, i):
        results = [*call.results[:i], bad, *call.results[i + 1 :]]
        _refuses(target, call.operands, results, call.attributes)


@TARGETS
def test_bad_dtype_of_operands(target):
  """The error for a dtype that LAPACK does not compute in names the operand and the dtypes."""
  call = CALLS[target]
  for bad in (np.int8, I32 if call.operands[0][1] == F64 else F64, np.float16):
    spoilt = [(shape, bad) for shape, _ in call.operands]
    _refuses(target, spoilt, call.results, call.attributes, names="must")


@TARGETS
def test_mixed_precision(target):
  """Catches a handler that assumes that the results' dtype follows from the operands'."""
  call = CALLS[target]
  (shape, dtype), *others = call.operands
  for other in {F32} if call.any_dtype else {F32, C128} - {dtype}:
    _refuses(target, [(shape, other), *others], call.results, call.attributes)


@TARGETS
def test_missing_attributes(target):
  """Catches an attribute that is read as false when it is missing or has another type.

  The message is XLA's.
  """
  call = CALLS[target]
  for name in call.attributes:
    rest = {key: value for key, value in call.attributes.items() if key != name}
    for spoilt in (rest, rest | {name: 1.5}):
      with pytest.raises(Exception, match="attribute|expected (PRED|S64)"):
        _call(target, call.operands, call.results, spoilt)


@pytest.mark.extended
@TARGETS
def test_attributes_of_other_types(target):
  """Catches a longer number, a list or a string that is read as a bool.

  Also catches an extra attribute, which would shift the others. The message is XLA's.
  """
  call = CALLS[target]
  # If a handler reads no attributes, XLA accepts any.
  for name in [*call.attributes, "unknown"] if call.attributes else []:
    number = np.int32(1) if name in target_table.ATTRIBUTES else np.int64(1)
    for value in (number, np.uint8(1), "true", np.ones(3), {"lower": True}):
      with pytest.raises(Exception, match="attribute|expected (PRED|S64)|dictionary"):
        _call(target, call.operands, call.results, call.attributes | {name: value})
  _good_call(target)


@pytest.mark.extended
@TARGETS
def test_number_of_buffers(target):
  """Catches a missing buffer that is taken for a present one. The message is XLA's."""
  call = CALLS[target]
  for operands, results in (
      (call.operands[:-1], call.results), ([*call.operands, MATRIX], call.results),
      (call.operands, call.results[:-1]), (call.operands, [*call.results, MATRIX])):
    with pytest.raises(Exception, match="[Ww]rong number of (arguments|results)"):
      _call(target, operands, results, call.attributes, has_side_effect=True)
  _good_call(target)


@pytest.mark.extended
@TARGETS
def test_results_in_the_memory_of_operands(target):
  """Catches a handler that hangs or writes out of bounds when a result overlaps an operand.

  The result of such a program is undefined.
  """
  call = CALLS[target]
  for i, operand in enumerate(call.operands):
    for j, result in enumerate(call.results):
      if operand == result:
        _call(target, call.operands, call.results, call.attributes, input_output_aliases={i: j})
  _good_call(target)


@pytest.mark.extended
@TARGETS
def test_no_elements_of_any_size(target):
  """Catches an overflow in the product of two sizes.

  Also catches work or memory for matrices without elements. Operands and results have no bytes, or
  nearly none.
  """
  call, large = CALLS[target], 2**33
  began = time.process_time()
  for b, m, n, k in (
      (0, large + 1, large, large - 1), (B, large, 0, 0), (B, 0, large, 0), (B, 0, 0, large)):
    operands, results = call.of_sizes(b, m, n, k)
    if max(math.prod(shape) for shape, _ in [*operands, *results]) > B:
      continue  # more than fits in memory
    function = jax.jit(lambda: jax.ffi.ffi_call(
        f"linalg_{target}", [jax.ShapeDtypeStruct(*x) for x in results], has_side_effect=True)(
            *(jnp.zeros(*x) for x in operands), **call.attributes))
    try:
      found = jax.block_until_ready(function())
    except (ValueError, jax.errors.JaxRuntimeError) as error:
      assert f"linalg_{target}" in str(error), error
    else:
      assert [x.shape for x in found] == [shape for shape, _ in results]
  _good_call(target)
  assert time.process_time() - began < 20, "it works on what is not there"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_other_calling_conventions(version):
  """Catches a handler that XLA would call with the bare pointers of its older conventions."""
  options = {"custom_call_api_version": version, "legacy_backend_config": ""}
  with pytest.raises(Exception, match="(?i)unimplemented|not found|no registered|custom call"):
    _call("cholesky", [MATRIX], [MATRIX, INFO], {}, **options)
  _good_call("cholesky")


@pytest.mark.parametrize("target", [target for target, call in CALLS.items() if call.square])
def test_not_square(target):
  """Catches a matrix of m by n elements taken for one of n by n."""
  call = CALLS[target]
  operands = [((B, 2, 8), F64), *call.operands[1:]]
  _refuses(target, operands, call.results, call.attributes, names="square")


def test_householder_product_of_a_wide_matrix():
  """Catches a check that is left to LAPACK, which would end the process."""
  for a, taus in (((2, 4), (2,)), ((4, 2), (3,))):
    _refuses("householder_product", [(a, F64), (taus, F64)], [(a, F64)], {}, names="a must")


def test_permutation_shorter_than_its_pivots():
  """Catches exchanges beyond the end of the permutation."""
  _refuses(
      "lu_pivots_to_permutation", [((3, 5), I32)], [((3, 4), I32)], {}, names="permutation_size")


def test_pivots_out_of_range():
  """Pivots are data: catches ones that make a handler write where it may not."""
  import linalg

  pivots = np.array([[-1, 2**31 - 1, 100, -(2**31)]], np.int32)
  np.testing.assert_array_equal(linalg.lu_pivots_to_permutation(pivots, 4), [[0, 1, 2, 3]])
  x = linalg.lu_solve((np.eye(4)[None], pivots), np.arange(4.0)[None, :, None])
  np.testing.assert_array_equal(x[0, :, 0], np.arange(4.0))
