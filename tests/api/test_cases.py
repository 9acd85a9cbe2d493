"""The table of operations leaves nothing out: no handler and no public function."""

import inspect

import cases
import linalg
from linalg import _verify

# Public functions without a case, and why.
LEFT_OUT = {
    "cho_factor": "cholesky in another form, with a triangle that is not set to 0",
    "lu_factor": "lu without the permutation",
    "rsf2csf": "takes two results of schur; the invariant of its case calls it",
    "solve_triangular": "triangular_solve with other flags",
    "eigh_gauge_error": "takes a function",
    "multi_dot": "jax.numpy's own; takes no batch",
    "outer": "jax.numpy's own; takes no batch",
    "tensordot": "jax.numpy's own; takes no batch",
    "tensorinv": "takes no batch",
    "tensorsolve": "takes no batch",
}
# The handlers that no function calls but in its derivatives, or JAX's, beside those of derivative
# rules.
OF_DERIVATIVES = {
    "linalg_det_cofactors", "linalg_inverse_permutation", "linalg_slogdet_inv_transposed"}
# Those that an operation without a handler calls, as funm's does: a jaxpr does not show them.
WITHIN_OPERATIONS = {"linalg_parlett"}


def test_every_handler_is_called():
  """`python -m linalg` says that it runs every operation that has a handler."""
  called = set().union(*map(cases.targets_of, _verify.cases()))
  others = cases.targets("cpu") - called
  others = {x for x in others if not x.endswith(("_jvp", "_vjp"))}
  assert others == OF_DERIVATIVES | WITHIN_OPERATIONS


def test_every_function_has_a_case():
  functions = {
      name for name in linalg.__all__
      if inspect.isfunction(inspect.unwrap(getattr(linalg, name)))} - cases.OF_THE_PACKAGE
  functions = {name.removesuffix("_ex") for name in functions} | cases.OF_SCIPY
  assert functions >= LEFT_OUT.keys()
  names = [case.name for case in cases.TABLE]
  assert len(names) == len(set(names))
  with_cases, shown = (set(map(cases.function, some)) for some in (cases.TABLE, _verify.cases()))
  assert functions - with_cases == LEFT_OUT.keys()
  assert with_cases == shown
