"""What is not among the distributed functions, and what to use for it."""

from typing import NoReturn

_ON_ONE_DEVICE = (
    "linalg.{name}, of a matrix that fits on a device: jax.device_put(a, jax.devices()[0]) or, on "
    "Explicit axes, jax.sharding.reshard(a, jax.P())")
_STACK = "of a stack, linalg.distributed.batched(linalg.{name}); or " + _ON_ONE_DEVICE
_LARGEST = (
    "for the largest of a positive semidefinite matrix, linalg.distributed.randomized_svd; "
    + _STACK)
_OF_GRAM = "of a Gram matrix, linalg.distributed.gram_inverse_pth_root; " + _STACK
_VALUES = "linalg.distributed.svdvals of a tall matrix; " + _STACK
_SHARDED_BY_XLA = "jax.numpy.{name}: XLA shards sums and products"
_OF_JAX_LINALG = _SHARDED_BY_XLA.replace("numpy", "numpy.linalg")


def _each(names: str, instead: str) -> dict[str, str]:
  return {name: instead.replace("{name}", name) for name in names.split()}


# By the name that is looked for, what to use. All of `linalg` that is for matrices stands here, or
# is there.
INSTEAD = {
    **_each("lu lu_ex", "linalg.distributed.lu_factor"),
    **_each("eigh eigh_ex eigvalsh", _LARGEST),
    **_each("eig eig_ex eigvals eigvals_ex schur schur_ex hessenberg", _STACK),
    **_each("inverse_pth_root", _OF_GRAM),
    **_each("expm sqrtm funm_hermitian matrix_power", _STACK),
    **_each("svd_ex", "linalg.distributed.svd of a tall matrix; " + _STACK),
    **_each("svdvals_ex cond matrix_rank matrix_norm", _VALUES),
    **_each("householder_product ormqr", "Q itself, linalg.distributed.qr of a tall matrix"),
    **_each("triangular_solve", "linalg.distributed.solve_triangular"),
    **_each("cholesky_update cholesky_update_ex", "linalg.distributed.cholesky of the sum"),
    **_each("eigh_generalized eigh_gauge_error eigh_tridiagonal rsf2csf", _ON_ONE_DEVICE),
    **_each("lu_pivots_to_permutation tensorinv tensorsolve", _ON_ONE_DEVICE),
    **_each("tridiagonal_solve tridiagonal_solve_ex", _ON_ONE_DEVICE),
    **_each("matmul outer vecdot tensordot cross trace diagonal matrix_transpose", _SHARDED_BY_XLA),
    **_each("multi_dot norm vector_norm", _OF_JAX_LINALG),
    **_each("congruence", "a @ x @ a.conj().mT + q: XLA shards sums and products"),
    **_each("cho_logdet", "the method logdet of what linalg.distributed.cho_factor returns"),
    **_each("lu_slogdet", "the method slogdet of what linalg.distributed.lu_factor returns"),
    **_each("block_diag", "jax.scipy.linalg.block_diag"),
}


class Missing(NotImplementedError, AttributeError):
  """A name that is not there: no attribute, to programs that ask what a module has."""


def refuse(name: str) -> NoReturn:
  """Raises the error of a name that the module has not."""
  if name not in INSTEAD:
    raise AttributeError(f"module 'linalg.distributed' has no attribute {name!r}")
  raise Missing(f"linalg.distributed has no {name}. Use {INSTEAD[name]}.")
