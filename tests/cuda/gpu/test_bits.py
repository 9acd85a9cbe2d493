"""A matrix has the same bits in any batch on a GPU, also in one of more than 2³¹ elements."""

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import linalg
import linalg.scipy
import matrices
from gpu_calls import HANDLED, alone_and_bad, gpus, put

pytestmark = pytest.mark.gpu
ALL_DTYPES = True


# Operations on whole matrices whose results are unique, or come from a fixed algorithm.
FACTORED = [x for x in HANDLED if x.name in (
    "cholesky", "lu", "qr", "solve", "inv", "det", "slogdet", "eigh", "svd")]


@cases.each(FACTORED)
@pytest.mark.parametrize("n", [5, 20, 40, 80, 110])
def test_bits_do_not_depend_on_the_batch(case, dtype, n, rng):
  batch = 300 if n < 40 else 40
  operands = case.operands(rng, (batch,), n, n, dtype)
  if (case.name == "svd" and n > 64) or (dtype == np.complex128 and n > 80):
    pytest.skip("the routine, or cuBLAS's products of complex128, depend on the batch")
  alone_and_bad(case, operands, [slice(0, 1), slice(batch - 3, None)])


@cases.each([x for x in FACTORED if x.name not in ("eigh", "svd")])
@pytest.mark.parametrize("n", [160, 352, 600])
def test_bits_by_panels_do_not_depend_on_the_batch(case, dtype, n, rng):
  """One matrix alone may go to the vendor's routine instead."""
  if dtype == np.complex128:
    pytest.skip("cuBLAS's products of complex128 depend on the batch")
  operands = case.operands(rng, (40,), n, n, dtype)
  alone_and_bad(case, operands, [slice(0, 2), slice(20, 37)])


@pytest.mark.parametrize("n", [160, 352, 600])
def test_bits_of_eigh_by_panels_do_not_depend_on_the_batch(dtype, n, rng):
  """Fewer matrices go to the vendor's routine."""
  if dtype == np.complex128:
    pytest.skip("cuBLAS's products of complex128 depend on the batch")
  alone_and_bad(
      cases.named("eigh"), (matrices.hermitian(rng, (40,), n, dtype),),
      [slice(0, 12), slice(20, 37)])


@pytest.mark.parametrize("n", [8, 160])
@pytest.mark.parametrize("name", ["cholesky", "lu", "qr", "solve", "inv", "det", "eigh"])
def test_more_elements_than_32_bits_count(name, n):
  """More than 2³¹ elements in more than 65,535 matrices. Copies of a matrix have its bits."""
  limit = (gpus()[0].memory_stats() or {}).get("bytes_limit", 0)
  if limit < 56 << 30:
    pytest.skip("takes up to 56 GiB of a GPU's memory")
  few = 1000
  count = -(-(2**31 + 2**20) // (few * n * n))
  make = matrices.positive_definite if name == "cholesky" else matrices.well_conditioned
  some = make(np.random.default_rng(0), (few,), n, np.float32)
  run = lambda a: (
      linalg.solve(a, a[..., :1]) if name == "solve" else getattr(linalg, name)(a))
  if name == "lu":
    run = linalg.scipy.lu_factor

  @jax.jit
  def both_ends(some):
    many = jnp.broadcast_to(some, (count, *some.shape)).reshape(-1, n, n)
    found = jax.tree.leaves(run(many))
    return [x[:few] for x in found], [x[-few:] for x in found]

  expected = [np.asarray(x) for x in jax.tree.leaves(jax.jit(run)(*put((some,))))]
  for end in both_ends(*put((some,))):
    for x, y in zip(end, expected, strict=True):
      np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("n", [129, 200, 512, 1024])
def test_bits_of_lu_do_not_depend_on_the_batch(dtype, n, rng):
  a = matrices.general(rng, (9,), n, n, dtype)
  whole = [np.asarray(x) for x in linalg.lu_ex(*put((a,)))]
  for alone, x in zip(linalg.lu_ex(*put((a[-1:],))), whole, strict=True):
    np.testing.assert_array_equal(alone, x[-1:])
