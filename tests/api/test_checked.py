"""`linalg.checked` names the matrix that failed. Without it, no check is compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import cases
import linalg
import selection
from sharded import with_kinds

N = 3


def _batch(shape, index, fail):
  """Returns identities, one of which fails at `index`."""
  a = np.tile(np.eye(N), (*shape, 1, 1))
  fail(a[index])
  return a


def _negative(a):
  a[1, 1] = -1


def _singular(a):
  a[1, 1] = 0


# The functions with handlers. test_checked_names.py has the composed ones.
CHECKED = {
    x.name: x for x in cases.CATALOGUE
    if x.module == "linalg" and x.fails and not x.is_composed}


GOOD = np.eye(N)


def _all(operands):
  """Calls every checked operation on its own operand, so one program covers all failures."""
  return {name: cases.failing(CHECKED[name], a) for name, a in operands.items()}


# A check of each kind, for factors and for iterations.
SOME = ("cholesky", "inv", "solve", "eigh")


def _message(name, index):
  return f"{name}: the matrix at index {index} {CHECKED[name].fails.message}"


def _raises(checked, *operands):
  with pytest.raises(linalg.LinAlgError) as caught:
    jax.block_until_ready(checked(*operands))
  assert isinstance(caught.value, np.linalg.LinAlgError)
  return str(caught.value)


def _check_each(function, shape, index, shown, put=jnp.asarray, names=tuple(CHECKED)):
  """Makes each operation of `function` fail in turn."""
  checked = linalg.checked(function)
  good = {name: put(np.tile(GOOD, (*shape, 1, 1))) for name in names}
  results = checked(good)
  for name in names:
    bad = np.tile(GOOD, (*shape, 1, 1))
    bad[index] = cases.failing_matrix(CHECKED[name])
    bad = put(bad)
    assert _raises(checked, good | {name: bad}) == _message(name, shown)
  return results


@pytest.mark.parametrize(
    "shape, index, shown",
    [((), (), "()"), pytest.param((4,), (2,), "(2)", marks=pytest.mark.extended),
     ((2, 3), (1, 2), "(1, 2)"), ((70, 2), (65, 0), "(65, 0)")],
    ids=str)
def test_names_operation_index_and_pivot(shape, index, shown):
  """The checked function also returns the same bits as the plain one where nothing fails."""
  results = _check_each(_all, shape, index, shown)
  good = np.tile(GOOD, (*shape, 1, 1))
  for name, function in CHECKED.items():
    np.testing.assert_array_equal(results[name], cases.failing(function, good))


def test_the_first_failure_is_named():
  a = _batch((5,), (4,), _negative)
  _negative(a[2])
  assert _raises(linalg.checked(linalg.cholesky), a) == _message("cholesky", "(2)")


@pytest.mark.parametrize("shape", [(0, N, N), (2, 0, N, N), (2, 0, 0)], ids=str)
def test_nothing_fails_in_an_empty_batch(shape):
  result = linalg.checked(lambda a: (linalg.cholesky(a), linalg.inv(a)))(np.zeros(shape))
  assert [x.shape for x in result] == [shape, shape]


def _loss(function):
  return lambda operands: sum(jnp.sum(jnp.abs(x)) for x in function(operands).values())


def _run_while(function):
  def run(operands):
    # The number of steps is unknown when the program is compiled.
    steps = jnp.int32(operands["inv"][-1, 0, 0] + 1)
    return jax.lax.fori_loop(0, steps, lambda _, total: total + _loss(function)(operands), 0.0)

  return run


TRANSFORMS = {
    "jit": jax.jit,
    "grad": lambda f: jax.grad(_loss(f)),
    "grad of jit": lambda f: jax.grad(_loss(jax.jit(f))),
    "jvp": lambda f: lambda a: jax.jvp(f, (a,), (a,)),
    "checkpoint": lambda f: jax.grad(_loss(jax.checkpoint(f))),
    "cond": lambda f: lambda a: jax.lax.cond(a["inv"][-1, 0, 0] > 0, _loss(f), lambda _: 0.0, a),
    "while": _run_while,
}


@selection.extended_for("grad")
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_inside_transforms(transform):
  # Each operation's rule takes part in plain gradients. It does not depend on jit or checkpoint.
  names = SOME if transform in ("grad of jit", "checkpoint") else tuple(CHECKED)
  _check_each(TRANSFORMS[transform](_all), (3,), (1,), "(1)", names=names)


VMAPPED = {
    "vmap": (jax.vmap(_all), "(1, 2)"),
    "in_axes": (jax.vmap(_all, in_axes=1), "(2, 1)"),
    "vmap of vmap": (jax.vmap(jax.vmap(_all)), "(1, 2)"),
    "vmap of grad": (jax.vmap(jax.grad(_loss(_all))), "(1, 2)"),
    "part of it": (lambda operands: jax.vmap(_all)(jax.tree.map(lambda x: x[1], operands)), "(2)"),
    "scan": (lambda operands: jax.lax.scan(lambda c, x: (c, _all(x)), 0, operands), "(2)"),
}


@pytest.mark.parametrize("transform", [
    pytest.param(name, marks=pytest.mark.extended)
    if name.startswith("vmap of") or name == "part of it" else name
    for name in VMAPPED])
def test_inside_vmap_and_scan(transform):
  """The index begins with the positions in mapped dimensions, outermost first.

  A step of a loop has only the index in its own batch.
  """
  function, shown = VMAPPED[transform]
  _check_each(function, (2, 3), (1, 2), shown)


@pytest.mark.xfail(strict=True, reason="JAX drops checkify's checks of a scan in reverse mode")
def test_inside_the_gradient_of_a_scan():
  loop = lambda a: jax.lax.scan(
      lambda total, x: (total + linalg.cholesky(x).sum(), None), 0.0, a)[0]
  bad = _batch((3,), (1,), _negative)
  assert _raises(linalg.checked(jax.grad(loop)), bad) == _message("cholesky", "()")


@selection.extended_for("(5, 1)", "(1, 6)")
@with_kinds(
    "shape, index, shown, spec",
    [((16,), (13,), "(13)", ("x",)), ((8, 2), (5, 1), "(5, 1)", ("x",)),
     ((2, 8), (1, 6), "(1, 6)", (None, "x"))])
def test_sharded_batch(kind, shape, index, shown, spec):
  """The failing matrix is on one device, and all devices report the same index."""
  mesh = jax.make_mesh((8,), ("x",), axis_types=(kind,))
  with jax.set_mesh(mesh):
    sharding = NamedSharding(mesh, PartitionSpec(*spec))
    put = lambda a: jax.device_put(a, sharding)
    results = _check_each(_all, shape, index, shown, put)
  for name, x in results.items():
    assert x.sharding.is_equivalent_to(sharding, x.ndim), name


def test_pytrees():
  """A checked function returns the function's own result, and each of its operations is checked."""

  def function(a, b):
    return {"factor": linalg.cholesky(a), "pair": (linalg.eigh(b), None, [linalg.inv(b)])}

  good, bad = np.eye(N), _batch((2,), (1,), _negative)
  result = linalg.checked(function)(good, good)
  assert jax.tree.structure(result) == jax.tree.structure(function(good, good))
  assert isinstance(result["pair"][0], linalg.EighResult)
  checked = linalg.checked(function)
  assert _raises(checked, bad, good) == _message("cholesky", "(1)")
  assert _raises(checked, good, _batch((2,), (0,), _singular)) == _message("inv", "(0)")


def test_keyword_arguments_and_name():
  def function(a, *, shift):
    """Its docstring."""
    return linalg.cholesky(a + shift * jnp.eye(N))

  checked = linalg.checked(function)
  assert (checked.__name__, checked.__doc__) == ("function", "Its docstring.")
  np.testing.assert_allclose(checked(np.eye(N), shift=3.0), 2 * np.eye(N))
  with pytest.raises(linalg.LinAlgError):
    checked(np.eye(N), shift=-3.0)


def test_nested():
  """A checked function may call another, as a user's function calls a library's."""
  inner = linalg.checked(linalg.cholesky)
  outer = linalg.checked(lambda a: 2 * inner(a))
  assert _raises(outer, _batch((2,), (1,), _negative)) == _message("cholesky", "(1)")


def _program(a):
  """Returns the traced and the compiled program of a function that JAX has not seen before."""

  def function(a):
    return _all(dict.fromkeys(CHECKED, a))

  return str(jax.make_jaxpr(function)(a)), jax.jit(function).lower(a).as_text()


def test_off_costs_nothing():
  """The program is the same before and after checks were used, in success, failure and error."""
  a = jnp.eye(N)
  before = _program(a)
  assert "check" not in before[0]
  assert "checkify" not in before[1]
  linalg.checked(linalg.cholesky)(a)
  with pytest.raises(linalg.LinAlgError):
    linalg.checked(linalg.cholesky)(-a)
  with pytest.raises(ValueError, match="must have shape"):
    linalg.checked(linalg.cholesky)(a[0])
  assert _program(a) == before


def test_off_compiles_no_more_than_the_handler():
  """An unused info is neither compared with zero nor counted."""
  text = jax.jit(linalg.cholesky).lower(np.tile(np.eye(N), (4, 1, 1))).compile().as_text()
  assert text.count("custom-call(") == 1
  for extra in (" compare(", " reduce(", " fusion(", " select("):
    assert extra not in text, text


def test_compiled_functions_are_checked():
  """JAX's cache must keep a function compiled without checks apart from the checked one."""
  function = jax.jit(lambda a: linalg.cholesky(a) * 2)
  bad = _batch((2,), (1,), _negative)
  for _ in range(2):
    assert np.isnan(function(bad)[1]).any()
    assert _raises(linalg.checked(function), bad) == _message("cholesky", "(1)")
  plain = linalg.cholesky(bad)
  assert np.isnan(plain[1]).any()


def test_ex_forms_do_not_raise():
  """Callers of _ex forms handle info themselves."""
  bad = _batch((2,), (1,), _singular)
  function = lambda a: (linalg.cholesky_ex(a)[1], linalg.lu_ex(a)[-1], linalg.inv_ex(a)[1],
                        linalg.solve_ex(a, jnp.ones((N, 1)))[1], linalg.eigh_ex(a)[-1])
  infos = linalg.checked(function)(bad)
  np.testing.assert_array_equal(infos, [[0, 2], [0, 2], [0, 2], [0, 2], [0, 0]])


def test_singular_is_no_failure_of_lu():
  """A singular matrix is no failure of lu, det or slogdet."""
  bad = _batch((2,), (1,), _singular)
  function = lambda a: (linalg.lu(a)[0], linalg.det(a), linalg.slogdet(a))
  assert linalg.checked(function)(bad)[1][1] == 0


def test_options():
  """Catches options that are mistaken for arrays, or for cache keys that cannot be hashed."""
  a = np.array([[2.0, 1.0], [9.0, 2.0]])
  upper = linalg.checked(linalg.cholesky)(a, upper=True, symmetrize_input=False)
  np.testing.assert_array_equal(upper, linalg.cholesky(a, upper=True, symmetrize_input=False))
  w, _ = linalg.checked(linalg.eigh)(a, UPLO="U", symmetrize_input=False)
  np.testing.assert_array_equal(w, linalg.eigvalsh(a, UPLO="U", symmetrize_input=False))
  with pytest.raises(linalg.LinAlgError, match="not positive definite"):
    linalg.checked(linalg.cholesky)(-a, upper=True)
