"""Under `checked` the error names the called function, even if it is composed of others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linalg
import selection

NAN = np.stack([np.eye(3), np.full((3, 3), np.nan)])
SINGULAR = np.stack([np.eye(3), np.diag([1.0, 0, 1])])
VALUES = "has no singular values"
SPECTRUM = "has no eigendecomposition"
FACTORS = "is singular: pivot 2 of its LU factors is zero"

COMPOSED = {
    "cholesky_update": (
        lambda r: linalg.cholesky_update(r, 2 * jnp.eye(3)[0], downdate=True),
        np.stack([3 * np.eye(3), np.eye(3)]),
        "is not positive definite after the downdate: its leading minor of order 1 is not pos"),
    "cond": (linalg.cond, NAN, VALUES),
    "eigh_gauge_error": (
        lambda a: linalg.eigh_gauge_error(lambda w, v: w.sum(), a), NAN, SPECTRUM),
    "expm": (linalg.expm, NAN, "has no LU factors"),
    "funm_hermitian": (lambda a: linalg.funm_hermitian(a, jnp.exp), NAN, SPECTRUM),
    "inverse_pth_root": (lambda a: linalg.inverse_pth_root(a, 2, epsilon=1.0), NAN, SPECTRUM),
    "lstsq": (lambda a: linalg.lstsq(a, jnp.ones((2, 3, 1))), NAN, VALUES),
    "matrix_norm": (lambda a: linalg.matrix_norm(a, ord="nuc"), NAN, VALUES),
    "matrix_power": (lambda a: linalg.matrix_power(a, -2), SINGULAR, FACTORS),
    "matrix_rank": (linalg.matrix_rank, NAN, VALUES),
    "norm": (lambda a: linalg.norm(a, 2, (-2, -1)), NAN, VALUES),
    "pinv": (linalg.pinv, NAN, VALUES),
    "polar": (linalg.polar, NAN, VALUES),
    "solve": (
        lambda a: linalg.solve(a, jnp.ones((3, 1)), assume_a="pos"), SINGULAR,
        "is not positive definite: its leading minor of order 2 is not positive"),
    "sqrtm": (linalg.sqrtm, NAN, "has no Schur form"),
    "tridiagonal_solve": (
        lambda a: linalg.tridiagonal_solve(
            jnp.zeros((2, 3)), jnp.diagonal(a, 0, 1, 2), jnp.zeros((2, 3)), jnp.ones((2, 3, 1))),
        SINGULAR, FACTORS),
}


@selection.extended_for("expm")
@pytest.mark.parametrize("name", COMPOSED)
def test_the_function_that_was_called(name):
  function, bad, what = COMPOSED[name]
  for call in (function, jax.jit(function)):
    with pytest.raises(linalg.LinAlgError, match=rf"^{name}: the matrix at index \(1\) {what}"):
      jax.block_until_ready(linalg.checked(call)(bad))


def test_functions_of_single_matrices():
  for name, call in {
      "tensorinv": lambda a: linalg.tensorinv(a.reshape(3, 3, 1), ind=1),
      "tensorsolve": lambda a: linalg.tensorsolve(a, jnp.ones(3))}.items():
    with pytest.raises(linalg.LinAlgError, match=rf"^{name}: the matrix at index \(\) {FACTORS}"):
      jax.block_until_ready(linalg.checked(call)(SINGULAR[1]))


def test_one_after_the_other():
  """Catches a call traced within one function that is named after another."""
  both = lambda a, b: (linalg.pinv(a), linalg.svd(b), linalg.polar(b))
  checked = linalg.checked(both)
  good = np.stack([np.eye(3)] * 2)
  for operands, name in (((NAN, good), "pinv"), ((good, NAN), "svd")):
    with pytest.raises(linalg.LinAlgError, match=f"^{name}: "):
      jax.block_until_ready(checked(*operands))
