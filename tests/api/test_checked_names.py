"""Under `checked` the error names the called function, even if it is composed of others."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import linalg
import selection

NAN = np.stack([np.eye(3), np.full((3, 3), np.nan)])
SINGULAR = np.stack([np.eye(3), np.diag([1.0, 0, 1])])
FACTORS = "is singular: pivot 2 of its LU factors is zero"


@selection.extended_for("expm")
@cases.each_function(
    [x for x in cases.CATALOGUE if x.module == "linalg" and x.fails and x.is_composed])
def test_the_function_that_was_called(function):
  bad = np.stack([np.eye(3), cases.failing_matrix(function)])
  message = re.escape(f"{function.name}: the matrix at index (1) {function.fails.message}")
  call = functools.partial(cases.failing, function)
  for one in (call, jax.jit(call)):
    with pytest.raises(linalg.LinAlgError, match=rf"^{message}$"):
      jax.block_until_ready(linalg.checked(one)(bad))


def test_solve_of_positive_definite_matrices():
  solve = lambda a: linalg.solve(a, jnp.ones((3, 1)), assume_a="pos")
  message = r"^solve: the matrix at index \(1\) is not positive definite"
  with pytest.raises(linalg.LinAlgError, match=message):
    jax.block_until_ready(linalg.checked(solve)(SINGULAR))


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
