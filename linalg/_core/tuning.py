"""Which operands go to handlers, on each platform, where XLA's own operations could take them too.

Operations ask this in their `suits=`. What a handler does with what it is given stands in tuning.h
of kernels/cpu and of kernels/cuda. No size depends on the batch, so that a matrix has the same bits
in any.

Measured on the CPU: Intel Xeon with AVX-512, two cores, 22 November 2026. On CUDA: H100 (80 GB
HBM3, jax 0.11.2), on the same day, batches of 200000 matrices, or, of products, as many as fill
0.6 GB if those are more. Complex matrices were not measured there.
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


# Derivative rules, whose formulas are XLA's operations around our solves.
#
# CPU, n = 32, 512 matrices, on cores that others used too: the handlers take 1/9 (float32), 1/5 to
# 1/9 (float64) and 1/8 (complex64) of the formula's time for Cholesky's, and 1/3, 1/2.2 and 1/1.6
# for QR's; beyond, the registers of a group of matrices outgrow the first cache many times, but in
# tiles Cholesky's take 0.2 to 0.6 of it backward and 0.2 to 0.8 forward, at n = 33 to 512 in
# batches of 1, 16 and 256 (float32, float64; AMD EPYC, 26 November 2026, quiet).
# With the handler of eigenvectors a gradient of eigh takes 0.5 to 1 of its time with the formula
# (AMD EPYC, AVX-512, two cores, 23 November 2026, beside other work; float32 and float64, n = 3 to
# 32).
# With that of singular vectors one of svd is 1.03 to 1.85 times as fast as with the formula (the
# same machine, 25 November 2026, the cells of README's table, in turn in one process).
# Cofactors: the formula factors twice; beyond, those of a singular matrix, by complete pivoting, an
# element after the other, would take long.
#
# CUDA, times as fast as the formula, forward and backward, for square matrices:
#              n=4        n=8        n=12       n=16        n=8        n=12
#              float32                                      float64
#   Cholesky   1.4, 1.4   3.4, 3.7   3.3, 4.0   1.4, 1.6    4.1, 4.1   3.1, 3.2
#   QR         1.6, 1.4   1.2, 1.2   0.6, 0.7   0.3, 0.3    1.1, 1.2   0.5, 0.5
#   cofactors  2.0        4.3        1.8                    3.5        9.2
# Of eigenvectors and of singular vectors, a team each: not measured beside the formula.
# docs/cuda.md has whole gradients beside stock's, and what a model says.
CHOLESKY_DERIVATIVE = {"cpu": None, "cuda": Limit(16, nbytes=1152)}
EIGH_DERIVATIVE = {"cpu": Limit(32), "cuda": Limit(32)}
SVD_DERIVATIVE = {"cpu": Limit(32), "cuda": Limit(32)}
QR_DERIVATIVE = {"cpu": Limit(32), "cuda": Limit(8)}
COFACTORS = {"cpu": Limit(512), "cuda": Limit(12, nbytes=1152)}
# An inverse, transposed, with the determinant of its factors, on CUDA: not measured. It reads a
# matrix once and factors it once, where determinants and inverses apart do both twice, as far as
# one thread each does all of it.
SLOGDET_INVERSE = {"cpu": None, "cuda": Limit(12, nbytes=1152)}


# Products with Q that `accelerate` takes from JAX. Of single matrices of 256 and 1024 reflectors
# LAPACK's ormqr, which has both cores, takes 0.5 to 1.7 times as long as ours, of batches of 128
# reflectors 1.5 to 7 times (AMD EPYC with AVX-512, two cores, 24 November 2026).
MOST_REFLECTORS = 128

# Real products of a batch with one right matrix that `accelerate` takes from JAX: XLA makes one
# large product of the batch. Batches of 16, 128 and 1024 are in float32 0.9 to 3.9 times as fast by
# the handlers at n = 10 to 16, and 0.5 to 1.8 at 20 to 64; in float64 0.7 to 3.2 and 0.75 to 1.55;
# in complex64 1.1 to 3.4 at 10 to 64; with one left matrix, for which XLA has to move the batch,
# 0.9 to 6 in all three (AMD EPYC with AVX-512, two cores, 26 November 2026, quiet; in turn in one
# process). linalg.matmul takes them all, for bits that do not depend on the batch.
MOST_OF_ONE_RIGHT_MATRIX = 16


class _Products(NamedTuple):
  """The products that go to a handler: their rows and columns, and what stays XLA's of these."""

  side: int
  unrolled: Mapping[Any, int]  # real ones up to this size, which XLA unrolls
  shared_b: bool  # whether those go to the handler whose right operand serves the whole batch


# CPU: up to the limit the handlers multiply 1024 matrices 1.1 to 37 times as fast as XLA, and a
# single one as fast or faster (float32, float64, complex64; benchmarks/run.py --ops matmul). XLA
# unrolls the smallest in the loop of what stands around them.
#
# CUDA, times as fast as XLA in full precision:
#             n=2   n=3   n=4   n=6   n=8   n=12   n=16   n=24   n=32
#   float32   0.8   1.0   1.1   1.0   3.1   2.0    1.1    0.6    0.8
#   float64   14          4.6         1.2          1.0           0.8
# In float32 at n = 8 and 16, Aᵀ B: 2.2 and 1.0; A Bᵀ: 5.3 and 1.8; with one A for the whole batch:
# 2.3 and 1.9; with one B: 0.8 and 0.6, for XLA makes one large product of that.
_PRODUCTS = {
    "cpu": _Products(64, unrolled={np.dtype("f4"): 3, np.dtype("f8"): 3}, shared_b=True),
    "cuda": _Products(16, unrolled={np.dtype("f4"): 3}, shared_b=False)}
_LARGEST_PRODUCT = max(products.side for products in _PRODUCTS.values())


def within(limits: Mapping[str, Limit | None], operand: int = 0) -> Callable[..., bool]:
  """The rule `suits` of an operation of which one operand is limited; None is no limit."""

  def suits(platform: str, *types: Any, **attributes: Any) -> bool:
    limit, x = limits[platform], types[operand]
    if limit is None:
      return True
    rows, cols = x.shape[-2:]
    return _all_at_most((rows, cols), limit.side) and rows * cols * x.dtype.itemsize <= limit.nbytes

  return suits


def suits_products(platform: str, a: Any, b: Any, **conjugate: bool) -> bool:
  """The same of products. Real matrices times columns, and columns times rows, are XLA's, who fuses
  the latter with what stands around them."""
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


def may_be_small_products(a: Any, b: Any) -> bool:
  """Whether products of matrices of these sizes go to a handler on any platform."""
  return _all_at_most((*a.shape[-2:], *b.shape[-2:]), _LARGEST_PRODUCT)


def _all_at_most(sizes: Any, limit: int) -> bool:
  """Whether all sizes are known, which those of jax.export may not be, and no larger."""
  return all(isinstance(size, int) and size <= limit for size in sizes)
