"""Single calls of the library's handlers, with matrices whose sizes are all n."""

import ctypes
import sys

import jax
import jax.ffi
import numpy as np

import linalg

OPERATIONS = {
    value.name: value for name, module in sorted(sys.modules.items()) if name.startswith("linalg.")
    for values in vars(module).values()
    for value in (values if isinstance(values, tuple) else (values,))
    if isinstance(value, linalg.ffi.Operation)}
PIVOTS = ("linalg_lu_solve", 1)  # the operand of that rank


def call(
    handlers: ctypes.CDLL, target: str, n: int, dtype: np.dtype, batch: int, suffix: str = ""
) -> list[np.ndarray]:
  """Returns the results. `suffix` is "_captured" for the handler for calls that XLA may record."""
  name = f"ptx_{target}{suffix}"
  address = handlers.handler_of(f"{target}{suffix}".encode())
  jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(address), platform="cpu")
  operation = OPERATIONS[target]
  rng = np.random.default_rng(0)
  operands = [
      _operand(rng, batch, (n,) * rank, dtype if (target, rank) != PIVOTS else None)
      for rank in operation._rules.ranks]
  types = operation._rules.results(
      [x.shape[1:] for x in operands], [x.dtype for x in operands], **operation.attributes)
  results = [jax.ShapeDtypeStruct((batch, *shape), x) for shape, x in types]
  attributes = {key: np.bool_(value) for key, value in operation.attributes.items()}
  return [np.asarray(x) for x in jax.ffi.ffi_call(name, results)(*operands, **attributes)]


def _operand(rng, batch, shape, dtype):
  if dtype is None:
    return np.broadcast_to(np.arange(shape[-1], dtype=np.int32), (batch, *shape))
  x = rng.standard_normal((batch, *shape))
  if np.issubdtype(dtype, np.complexfloating):
    x = x + 1j * rng.standard_normal(x.shape)
  if len(shape) == 2:  # positive definite
    x = x @ np.conj(x.mT) / shape[-1] + np.eye(shape[-1])
  return x.astype(dtype)
