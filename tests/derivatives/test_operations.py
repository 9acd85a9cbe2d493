"""Derivatives of every operation, in every mode and to second order.

A rule that is right to first order may lose a dependency on the operand in its own derivative, or
when it is transposed. Complex rules may lose a conjugate. Flags may lose the triangle that changes.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import derivatives
import linalg
import matrices
import selection
from quick import quick_jit

COMPILES = True
ONE_IN = 3


@selection.one_in(3)
@selection.extended_for("cholesky_update")
@cases.each_in_double(cases.DIFFERENTIABLE_CASES)
def test_square(case, dtype, rng):
  derivatives.check(
      lambda *x: case.invariant(case.results(*x)), case.operands(rng, (), 4, 4, dtype), rng)


@pytest.mark.parametrize(
    "shape, dtype", [((4, 2), np.complex128), ((4, 2), np.float64), ((2, 4), np.complex128)],
    ids=["tall-complex128", "tall-float64", "wide-complex128"])
@cases.each(cases.RECTANGULAR_CASES)
def test_rectangular(case, shape, dtype, rng):
  """A tall factor has a complement. A wide one has columns that follow the others."""
  derivatives.check(
      lambda *x: case.invariant(case.results(*x)), case.operands(rng, (), *shape, dtype), rng)


@pytest.mark.parametrize("shape", [(4, 2), (2, 4)], ids=["tall", "wide"])
def test_qr_pivoted_complete(shape, rng):
  """The permutation is constant. The factors change like those of the permuted columns."""
  derivatives.check(
      lambda a: linalg.qr(a, mode="complete", pivoting=True),
      (matrices.general(rng, (), *shape, np.complex128),), rng)


@cases.each_double
def test_one_triangle_of_a_hermitian_matrix(dtype, rng):
  """Without symmetrization only the named triangle counts, and only the real part of the
  diagonal."""

  def function(a):
    factors = [linalg.cholesky(a, upper=upper, symmetrize_input=False) for upper in (False, True)]
    spectra = [linalg.eigvalsh(a, uplo, symmetrize_input=False) for uplo in "LU"]
    eigh = [linalg.eigh(a, uplo, symmetrize_input=False) for uplo in "LU"]
    projectors = [jnp.einsum("...i,...j->...ij", v[..., 0], v[..., 0].conj()) for _, v in eigh]
    return factors, spectra, [w for w, _ in eigh], projectors

  derivatives.check(function, (matrices.positive_definite(rng, (), 3, dtype),), rng)


@cases.each_double
@pytest.mark.parametrize("left_side", [True, pytest.param(False, marks=pytest.mark.extended)])
def test_triangular_solve(left_side, dtype, rng):
  """Derivatives are right for every combination of flags."""
  names = ("lower", "transpose_a", "conjugate_a", "unit_diagonal")
  combinations = list(itertools.product([False, True], repeat=4))
  if dtype == np.float64:  # the operation has no conjugates
    combinations = [flags for flags in combinations if not flags[2]]

  def function(a, b):
    return [
        linalg.triangular_solve(
            a, b, left_side=left_side, **dict(zip(names, flags, strict=True)))
        for flags in combinations
    ]

  a = matrices.well_conditioned(rng, (), 3, dtype)
  shape = (3, 2) if left_side else (2, 3)
  derivatives.check(function, (a, matrices.general(rng, (), *shape, dtype)), rng)


@cases.each_double
def test_solves_with_factors(dtype, rng):
  """Cases are transposed and conjugated systems, and both triangles of a Cholesky factor."""
  packed, pivots, _ = linalg.lu(matrices.well_conditioned(rng, (), 3, dtype)[::-1])
  assert np.any(np.asarray(pivots) != np.arange(3))
  b = matrices.general(rng, (), 3, 2, dtype)
  derivatives.check(
      lambda packed, pivots, b: [
          linalg.lu_solve((packed, pivots), b, trans) for trans in (0, 1, 2)],
      (packed, pivots, b), rng)
  derivatives.check(
      lambda a, b: [linalg.cho_solve((a, lower), b) for lower in (True, False)]
      + [linalg.solve_triangular(a, b, trans, lower) for trans in "NTC" for lower in (True, False)],
      (matrices.well_conditioned(rng, (), 3, dtype), b), rng)


@cases.each_double
def test_fewer_reflectors_than_columns(dtype, rng):
  a, taus = matrices.general(rng, (), 4, 3, dtype), matrices.general(rng, (), 1, 2, dtype)[0]
  derivatives.check(linalg.householder_product, (a, taus), rng)


@pytest.mark.usefixtures("standard_promotion")
def test_programs(rng):
  """Derivatives are right for composed operations, with one operand in several positions."""

  def function(a, b):
    definite = a @ a.mT.conj() + 4 * jnp.eye(3)
    l = linalg.cholesky(definite)
    x = linalg.cho_solve((l, True), b)
    y = linalg.lu_solve(linalg.lu_factor(a), x) + linalg.solve(a, linalg.solve(definite, b))
    q, r = linalg.qr(a)
    z = linalg.inv(definite) @ q @ linalg.triangular_solve(r, b, left_side=True)
    return y * z, linalg.slogdet(definite).logabsdet * linalg.det(a)

  derivatives.check(
      function, (matrices.well_conditioned(rng, (), 3, np.complex128),
                 matrices.general(rng, (), 3, 2, np.complex128)), rng)


def test_vmap_of_grad(rng):
  """The gradients of a mapped batch are those of its matrices one by one."""
  a = matrices.positive_definite(rng, (5,), 3, np.complex128)

  def loss(a):
    q, r = linalg.qr(a)
    w, v = linalg.eigh(a)
    results = (
        linalg.cholesky(a), q, r, w, v[..., :1] @ v[..., :1].mT.conj(),
        linalg.solve(a, jnp.ones((3, 1), a.dtype)), linalg.slogdet(a).logabsdet)
    return sum(jnp.sum(jnp.abs(x) ** 2) for x in results)

  gradient = jax.grad(loss)
  one_by_one = quick_jit(gradient)
  expected = np.stack([one_by_one(one) for one in a])
  actual = quick_jit(jax.vmap(gradient))(a)
  np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
