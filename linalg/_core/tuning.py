"""Which operands go to handlers, on each platform, where XLA's own operations could take them too.

Operations ask this in their `suits=`. The tuning.h files of kernels/cpu and kernels/cuda decide how
a handler computes. No limit depends on the batch size, so a matrix has the same bits in any batch.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np


class Limit(NamedTuple):
  """The largest matrices that go to a handler: their rows and columns, and their bytes."""

  side: int
  nbytes: float = math.inf


# The limits of derivative rules whose fallback formulas are XLA's operations around our solves.
# CPU: benchmarks/crossovers/cpu_derivatives.json.
# CUDA: benchmarks/crossovers/cuda_derivatives.json.
# The formula of cofactors factors twice. Beyond its limit, a singular matrix would take long: its
# cofactors need complete pivoting, one element after the other.
# The CUDA handlers of eigh and svd, one team per matrix, were not compared with the formula.
CHOLESKY_DERIVATIVE = {"cpu": None, "cuda": Limit(16, nbytes=1152)}
EIGH_DERIVATIVE = {"cpu": Limit(32), "cuda": Limit(32)}
SVD_DERIVATIVE = {"cpu": Limit(32), "cuda": Limit(32)}
QR_DERIVATIVE = {"cpu": Limit(32), "cuda": Limit(8)}
# Matrices that are decomposed whole where a part of their spectrum is wanted; by the smaller side
# for singular values. Below them a part in float32 took up to five times as long as the whole, and
# above them about a tenth more at most, in rough runs of benchmarks/subset.py on two cores.
EIGH_SUBSET = {"cpu": Limit(128)}
SVD_SUBSET = {"cpu": Limit(64)}
# This limit was not measured.
EIGH_TRIDIAGONAL_SUBSET = {"cpu": Limit(32)}
COFACTORS = {"cpu": Limit(512), "cuda": Limit(12, nbytes=1152)}
# Positive definite systems with few right-hand sides that a team of threads solves with their
# log-determinants: matrix and right-hand sides fit every GPU. This limit was not measured.
POSITIVE_SOLVE_LOGDET = {"cpu": None, "cuda": Limit(128, nbytes=72 << 10)}
MOST_COLUMNS_OF_POSITIVE_SOLVE = {"cpu": math.inf, "cuda": 8}
# Derivatives of solutions with log-determinants. This limit was not measured.
POSITIVE_SOLVE_LOGDET_DERIVATIVE = {"cpu": Limit(48)}
# Square roots of triangles. Larger ones take a scan over columns. This limit was not measured.
TRIANGULAR_SQRT = {"cpu": Limit(64)}
# This limit was not measured. The handler reads and factors a matrix once. A determinant and an
# inverse apart do both twice, as long as one thread does all of it.
SLOGDET_INVERSE = {"cpu": None, "cuda": Limit(12, nbytes=1152)}


# The states and the observations of Kalman filters that go to a handler. These limits were not
# measured. On CUDA more would not fit in 99 KiB of shared memory, in float64.
MOST_STATES = {"cpu": 32, "cuda": 23}

# The elements of the gains of one model that a Kalman filter keeps, 128 MiB in float64. This limit
# was not measured.
MOST_GAINS = 1 << 24

# The pivots of one matrix, and the order of one updated factor, that `accelerate` leaves to JAX:
# XLA compiles a loop that is shorter than a call. Results for pivots are the same integers, and JAX
# has no batches of updates. So no bits depend on the batch.
# benchmarks/results/amd-epyc-routed-lone-2026-11-28.json.
MOST_PIVOTS_OF_XLA = 10
MOST_UPDATED_BY_XLA = 2

# Products with Q that `accelerate` takes from JAX; benchmarks/crossovers/cpu_accelerate_ormqr.json.
MOST_REFLECTORS = 128

# Real products of a batch with one right matrix that `accelerate` takes from JAX. XLA makes one
# large product of the batch; benchmarks/crossovers/cpu_accelerate_products.json.
# linalg.matmul takes them all, so that the bits do not depend on the batch.
MOST_OF_ONE_RIGHT_MATRIX = 16


class _Products(NamedTuple):
  """The products that go to a handler: their rows and columns, and the exceptions that stay
  XLA's."""

  side: int
  unrolled: Mapping[Any, int]  # real ones up to this size, which XLA unrolls
  shared_b: bool  # whether products with one right operand for the whole batch go to the handler


# The largest products that go to a handler.
# CPU: benchmarks/crossovers/cpu_products.json. CUDA: benchmarks/crossovers/cuda_products.json.
# XLA unrolls the smallest products into the loop that surrounds them.
# XLA makes one large product of a batch with one right operand.
_PRODUCTS = {
    "cpu": _Products(64, unrolled={np.dtype("f4"): 3, np.dtype("f8"): 3}, shared_b=True),
    "cuda": _Products(16, unrolled={np.dtype("f4"): 3}, shared_b=False)}
_LARGEST_PRODUCT = max(products.side for products in _PRODUCTS.values())


def within(limits: Mapping[str, Limit | None], operand: int = 0) -> Callable[..., bool]:
  """The rule `suits` of an operation that limits one operand; None is no limit."""

  def suits(platform: str, *types: Any, **attributes: Any) -> bool:
    limit, x = limits[platform], types[operand]
    if limit is None:
      return True
    rows, cols = x.shape[-2:]
    return _all_at_most((rows, cols), limit.side) and rows * cols * x.dtype.itemsize <= limit.nbytes

  return suits


def suits_products(platform: str, a: Any, b: Any, **conjugate: bool) -> bool:
  """The rule `suits` of products.

  XLA keeps real matrices times columns, and columns times rows. It fuses the latter with
  surrounding operations.
  """
  products = _PRODUCTS[platform]
  sizes = (*a.shape[-2:], *b.shape[-2:])
  if max(sizes) > products.side or (b.ndim < a.ndim and not products.shared_b):
    return False
  if jnp.issubdtype(a.dtype, jnp.complexfloating):
    return True
  return min(b.shape[-2:]) > 1 and max(sizes) > products.unrolled.get(a.dtype, 0)


def may_be_within(limits: Mapping[str, Limit], a: Any) -> bool:
  """Whether matrices of these sizes go to a handler on any platform."""
  return _all_at_most(a.shape[-2:], max(limit.side for limit in limits.values()))


def any_within(limits: Mapping[str, Limit], a: Any) -> bool:
  """Whether one side of matrices of these sizes is known to be within the limit of any platform."""
  side = max(limit.side for limit in limits.values())
  return any(isinstance(size, int) and size <= side for size in a.shape[-2:])


def may_be_small_products(a: Any, b: Any) -> bool:
  """Whether products of matrices of these sizes go to a handler on any platform."""
  return _all_at_most((*a.shape[-2:], *b.shape[-2:]), _LARGEST_PRODUCT)


def _all_at_most(sizes: Any, limit: int) -> bool:
  """Whether all sizes are known and at most `limit`. Sizes in jax.export may be unknown."""
  return all(isinstance(size, int) and size <= limit for size in sizes)
