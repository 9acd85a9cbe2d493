"""Single calls of the library's handlers, with matrices whose sizes are all n."""

import ctypes
import sys

import jax
import jax.ffi
import numpy as np

import linalg
import target_table

OPERATIONS = {
    value.name: value for name, module in sorted(sys.modules.items()) if name.startswith("linalg.")
    for values in vars(module).values()
    for value in (values if isinstance(values, tuple) else (values,))
    if isinstance(value, linalg.ffi.Operation)}


def call(
    handlers: ctypes.CDLL, target: str, n: int, dtype: np.dtype, batch: int, suffix: str = ""
) -> list[np.ndarray]:
  """Returns the results. `suffix` is "_captured" for the handler for calls that XLA may record."""
  name = f"ptx_{target}{suffix}"
  address = handlers.handler_of(f"{target}{suffix}".encode())
  jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(address), platform="cpu")
  operands = operands_of(target, n, dtype, batch)
  results = [
      jax.ShapeDtypeStruct((batch, *shape), x) for shape, x in results_of(target, operands)]
  attributes = {key: np.bool_(value) for key, value in OPERATIONS[target].attributes.items()}
  return [np.asarray(x) for x in jax.ffi.ffi_call(name, results)(*operands, **attributes)]


def operands_of(target: str, n: int, dtype: np.dtype, batch: int) -> list[np.ndarray]:
  rng = np.random.default_rng(0)
  return [_operand(rng, batch, n, token, dtype) for token in target_table.TARGETS[target].operands]


def results_of(target: str, operands: list[np.ndarray]) -> list[tuple[tuple[int, ...], np.dtype]]:
  """Returns the shapes for one matrix, and the dtypes."""
  operation = OPERATIONS[target]
  return operation._rules.results(
      [x.shape[x.ndim - rank:] for x, rank in zip(operands, operation._rules.ranks, strict=True)],
      [x.dtype for x in operands], **operation.attributes)


def _operand(rng, batch, n, token, dtype):
  """An operand as the table of targets describes it, with all sizes n."""
  kind, core, batches = token[0], (n,) * target_table.rank(token), (batch,) * ("!" not in token)
  if kind == "I":
    return np.broadcast_to(np.arange(n, dtype=np.int32), (*batches, *core))
  x = rng.standard_normal((*batches, *core))
  if kind == "R":
    return np.abs(x).astype(np.finfo(dtype).dtype)
  if np.issubdtype(dtype, np.complexfloating):
    x = x + 1j * rng.standard_normal(x.shape)
  if len(core) == 2:  # positive definite
    x = x @ np.conj(x.mT) / n + np.eye(n)
  return x.astype(dtype)
