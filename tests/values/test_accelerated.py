"""JAX's own functions on this package's handlers have the same results, derivatives and NaN."""

import dataclasses
import doctest
import itertools
import re

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import pytest
from jax.lax import linalg as lax_linalg

import cases
import linalg
import matrices
import selection
from linalg._accelerate import switch
from linalg._factorizations import cholesky
from quick import quick_compile
from sharded import energy

ONE_IN = 3

HANDLER = re.compile(r'custom_call_target="(linalg_\w+?)(?:_captured)?"')
LAPACK = re.compile(r'custom_call_target="(lapack_\w+|\w+gtsv\w*)"')


def both(function, operands, products=False):
  """Returns JAX's results, the accelerated results, and the text of the accelerated program."""
  theirs = quick_compile(function, operands)(*operands)
  with linalg.accelerated(products=products):
    program = quick_compile(function, operands)
  return theirs, program(*operands), program.as_text()


def assert_near(ours, theirs, operands):
  """Checks that NaN agree and that only rounding differs.

  Condition numbers below 100 magnify rounding.
  """
  for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
    assert (x.shape, x.dtype) == (y.shape, y.dtype)
    x, y = np.asarray(x), np.asarray(y)
    if y.dtype.kind in "ib":
      np.testing.assert_array_equal(x, y)
      continue
    eps = np.finfo(operands[0].dtype).eps
    scale = np.max(np.abs(y), initial=1, where=np.isfinite(y))
    np.testing.assert_allclose(x, y, rtol=0, atol=3e3 * eps * scale)


# JAX computes these from products, or still calls LAPACK for them.
WITHOUT_HANDLERS = {"hessenberg", "hessenberg_h", "eigvalsh_tridiagonal", "matmul"}


def of_jax(case):
  """Converts a case to JAX's function."""

  def call(*operands):
    results = case.stock(*operands)
    return tuple(results) if isinstance(results, list) else results

  return dataclasses.replace(case, call=call)


def on_gpu():
  return jax.default_backend() == "gpu"


# Cases that are partly left out on a GPU.
GPU = {
    "lu": "cuBLAS chooses other pivots of complex matrices",
    "cholesky_update": "CUDA has no handler",
    "ormqr": "CUDA has no handler", "ormqr_right_adjoint": "CUDA has no handler",
    "schur": "jax has it on the CPU alone", "schur_complex": "jax has it on the CPU alone"}
STOCK = [
    of_jax(case) for case in cases.CASES
    if case.stock is not None and case.name not in WITHOUT_HANDLERS]


@cases.each(STOCK)
@pytest.mark.parametrize(
    "n", [6, *(pytest.param(n, marks=pytest.mark.extended) for n in (1, 3, 33))])
def test_results(case, dtype, n, rng):
  """Results are in JAX's order and conventions; signs that a decomposition leaves open may
  differ."""
  if dtype not in case.stock_dtypes or dtype not in case.dtypes:
    pytest.skip("jax has no such function of this dtype")
  if on_gpu() and case.name in GPU and (case.name != "lu" or dtype.kind == "c"):
    pytest.skip(GPU[case.name])
  operands = case.operands(rng, (7,), n, n, dtype)
  theirs, ours, text = both(case.results, operands)
  if "custom_call" in text:  # JAX has formulas for the smallest determinants
    assert HANDLER.search(text) and not LAPACK.search(text)
  assert jax.tree.structure(ours) == jax.tree.structure(theirs)
  for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
    assert (x.shape, x.dtype, x.weak_type) == (y.shape, y.dtype, y.weak_type)
  assert case.ratio(operands, [np.asarray(x) for x in ours]) <= case.limit
  if not case.unordered:
    assert_near(case.invariant(ours), case.invariant(theirs), operands)


@pytest.mark.cpu
def test_every_route_is_taken(rng):
  """A case above cannot pass because its handler was not called."""
  found = set()
  for case in [*STOCK, of_jax(cases.named("matmul"))]:
    operands = case.operands(rng, (2,), 4, 4, np.dtype(np.float32))
    with linalg.accelerated(products=True):
      text = jax.jit(case.results).lower(*operands).as_text()
    found |= set(re.findall(r"@(linalg_\w+)", text))
  assert found >= {
      "linalg_cholesky", "linalg_cholesky_update", "linalg_eig", "linalg_eig_left", "linalg_eigh",
      "linalg_eigvals", "linalg_householder_product", "linalg_householder_qr", "linalg_lu",
      "linalg_lu_pivots_to_permutation", "linalg_matmul", "linalg_ormqr", "linalg_qr",
      "linalg_qr_pivoted", "linalg_schur", "linalg_svd", "linalg_svdvals",
      "linalg_triangular_solve", "linalg_tridiagonal_solve"}


@cases.each([case for case in STOCK if case.differentiable])
@pytest.mark.parametrize(
    "products", [pytest.param(False, marks=pytest.mark.extended), True], ids=["plain", "products"])
def test_gradients(case, products, rng):
  """JAX's rules call the same primitives. This test runs them under vmap of reverse mode."""
  operands = case.operands(rng, (3,), 4, 4, np.dtype(np.float64))
  floating = [i for i, x in enumerate(operands) if x.dtype.kind in "fc"]
  gradient = jax.vmap(jax.grad(lambda *x: energy(case, 0, *x), tuple(floating)))
  try:
    theirs = quick_compile(gradient, operands)(*operands)
  except (NotImplementedError, ValueError, TypeError) as error:
    pytest.skip(f"jax has no derivative: {error}"[:200])
  with linalg.accelerated(products=products):
    ours = quick_compile(gradient, operands)(*operands)
  for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
    np.testing.assert_allclose(x, y, rtol=0, atol=1e-9 * np.max(np.abs(y), initial=1))


BACKWARD = f"linalg_cholesky{'_full' if jax.__version_info__ < (0, 11, 2) else ''}_vjp"


@selection.all_dtypes
@pytest.mark.parametrize("symmetrize", [False, True], ids=["as-it-is", "symmetrized"])
@pytest.mark.parametrize("n", [1, 4, 7, 32, 33, 50])
def test_derivatives_of_cholesky(n, symmetrize, dtype, rng):
  """One call takes the forward, backward and second derivatives along matrices that are not
  Hermitian. JAX's rule uses the whole matrix, or one triangle since 0.11.2. Only the matrix that
  has no factor is NaN."""
  a = matrices.positive_definite(rng, (3,), n, dtype)
  a[1] *= -1
  x = matrices.general(rng, (3,), n, n, dtype)
  factor = lambda a: lax_linalg.cholesky(a, symmetrize_input=symmetrize)

  def derivatives(a, x):
    backward = lambda a: jax.vjp(factor, a)[1](x)[0]
    return jax.jvp(factor, (a,), (x,))[1], backward(a), jax.jvp(backward, (a,), (x,))[1]

  # Each matrix has its own call: JAX's batched LAPACK calls may wait for each other.
  alone = quick_compile(derivatives, (a[0], x[0]))
  theirs = [np.stack(y) for y in zip(*(alone(*z) for z in zip(a, x, strict=True)), strict=True)]
  with linalg.accelerated():
    program = quick_compile(derivatives, (a, x))
  platform = "cuda" if on_gpu() else "cpu"
  if switch._CHOLESKY_JVP.runs_on(platform, *map(jax.typeof, (a, x))):
    assert BACKWARD in program.as_text()
  assert_near(program(a, x), theirs, (a, x))


TRIANGULAR = [
    dict(left_side=left, lower=lower, transpose_a=transpose, conjugate_a=conjugate,
         unit_diagonal=unit)
    for left in (False, True) for lower in (False, True) for transpose in (False, True)
    for conjugate in (False, True) for unit in (False, True)]


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_all_triangular_systems(dtype, rng):
  """The test covers every attribute of the primitive that all derivatives go through."""
  a = matrices.well_conditioned(rng, (3,), 5, dtype)
  b = matrices.general(rng, (3,), 5, 5, dtype)
  solve = lambda a, b: [lax_linalg.triangular_solve(a, b, **options) for options in TRIANGULAR]
  theirs, ours, text = both(solve, (a, b))
  assert set(HANDLER.findall(text)) == {"linalg_triangular_solve"} and not LAPACK.search(text)
  for x, y in zip(ours, theirs, strict=True):
    scale = np.max(np.abs(y))
    np.testing.assert_allclose(x, y, rtol=0, atol=1e3 * np.finfo(dtype).eps * scale)


@pytest.mark.parametrize("rows, steps", [(1, 1), (6, 6), (16, 9), (17, 17), (3, 0)])
def test_permutations_from_pivots(rows, steps, rng):
  """Row exchanges follow the order of the steps, even if a pivot is above its own step."""
  pivots = rng.integers(0, rows, (37, steps)).astype(np.int32)
  expected = np.tile(np.arange(rows, dtype=np.int32), (37, 1))
  for permutation, swaps in zip(expected, pivots, strict=True):
    for k, i in enumerate(swaps):
      permutation[[k, i]] = permutation[[i, k]]
  with linalg.accelerated():
    for batch in (slice(None), slice(0, 5), 0):
      found = quick_compile(
          lambda p: lax_linalg.lu_pivots_to_permutation(p, rows), (pivots[batch],))(pivots[batch])
      np.testing.assert_array_equal(found, expected[batch])


@pytest.mark.cpu
@pytest.mark.parametrize("n", [1, 2, 7, 16, 200])
def test_sorts(n, rng):
  """The sort that inverts permutations sorts any keys and their values, and is stable."""
  permutations = np.argsort(rng.random((20, 2, n))).astype(np.int32)
  any_keys = rng.integers(-3, 3, permutations.shape, np.int32)
  out_of_range = permutations + np.int32(rng.integers(-1, 2))
  extreme = rng.choice(np.array([-(2**31), 2**31 - 1, 0], np.int32), permutations.shape)
  values = rng.integers(-(2**31), 2**31, permutations.shape).astype(np.int32)
  mixed = np.where(rng.random((20, 2, 1)) < 0.05, any_keys, permutations)
  for keys in (permutations, any_keys, out_of_range, extreme, mixed):
    theirs, ours, text = both(jax.lax.sort_key_val, (keys, values))
    assert HANDLER.findall(text) == ["linalg_inverse_permutation"]
    for x, y in zip(ours, theirs, strict=True):
      np.testing.assert_array_equal(x, y)


def test_other_sorts_are_jaxs(rng):
  keys = rng.integers(0, 9, (4, 4), np.int32)
  for function in (
      lambda keys: jax.lax.sort_key_val(keys, keys, dimension=0),
      lambda keys: jax.lax.sort_key_val(keys.astype(np.float32), keys),
      lambda keys: jax.lax.sort((keys, keys), num_keys=2),
      lambda keys: jax.lax.sort((keys, keys, keys), num_keys=1), jnp.sort):
    theirs, ours, text = both(function, (keys,))
    assert not HANDLER.search(text)
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
      np.testing.assert_array_equal(x, y)


@pytest.mark.cpu
def test_no_sort_in_the_gradient_of_a_solve(rng):
  a, b = matrices.well_conditioned(rng, (3,), 5, np.float64), rng.standard_normal((3, 5, 2))
  gradient = jax.grad(lambda a, b: jnp.sum(jnp.linalg.solve(a, b) ** 2), (0, 1))
  theirs, ours, text = both(gradient, (a, b))
  assert "linalg_inverse_permutation" in HANDLER.findall(text) and " sort(" not in text
  assert_near(ours, theirs, (a, b))


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)], ids=str)
@pytest.mark.parametrize("options", [
    {}, {"full_matrices": False}, {"full_matrices": False, "pivoting": True}, {"pivoting": True}],
    ids=str)
def test_rectangular_qr(shape, options, rng):
  a = matrices.general(rng, (3,), *shape, np.complex64)
  theirs, ours, text = both(lambda a: lax_linalg.qr(a, **options), (a,))
  assert HANDLER.search(text) and not LAPACK.search(text)
  assert_near(ours, theirs, (a,))


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)], ids=str)
@pytest.mark.parametrize("full", [False, True])
def test_rectangular_svd(shape, full, rng):
  a = matrices.general(rng, (3,), *shape, np.complex64)
  theirs, (u, s, vh), text = both(lambda a: jnp.linalg.svd(a, full_matrices=full), (a,))
  assert HANDLER.search(text) and not LAPACK.search(text)
  assert [x.shape for x in theirs] == [u.shape, s.shape, vh.shape]
  u, s, vh = (np.asarray(x) for x in (u, s, vh))
  assert_near([s, (u[..., :4] * s[..., None, :]) @ vh[..., :4, :]], [theirs[1], a], (a,))


# Functions of a general matrix and of a positive definite matrix.
FAILING = {
    "cholesky": lambda a, s: lax_linalg.cholesky(s),
    "eig": lambda a, s: lax_linalg.eig(a)[0],
    "eigh": lambda a, s: lax_linalg.eigh(s)[1],
    "inv": lambda a, s: jnp.linalg.inv(a),
    "lu": lambda a, s: lax_linalg.lu(a),
    "qr": lambda a, s: lax_linalg.qr(a)[1],
    "schur": lambda a, s: jax.scipy.linalg.schur(s)[0],
    "slogdet": lambda a, s: jnp.linalg.slogdet(a),
    "solve": lambda a, s: jnp.linalg.solve(a, s),
    "svd": lambda a, s: jnp.linalg.svd(a)[1],
    "triangular_solve": lambda a, s: lax_linalg.triangular_solve(a, s, left_side=True),
    "tridiagonal_solve": lambda a, s: (
        lax_linalg.tridiagonal_solve(a[..., 0], a[..., 1], a[..., 2], s)),
}


# JAX has `schur` on the CPU only.
each_failing = pytest.mark.parametrize(
    "name", [pytest.param(x, marks=pytest.mark.cpu if x == "schur" else ()) for x in FAILING])


@each_failing
@pytest.mark.parametrize("n", [3, pytest.param(40, marks=pytest.mark.extended)])
def test_failures(name, n, rng):
  """NaN and infinities are where JAX has them, for matrices that cannot be factored or solved
  with."""
  a = matrices.well_conditioned(rng, (4,), n, np.float64)
  s = matrices.positive_definite(rng, (4,), n, np.float64)
  a[1, :, 0] = 0  # singular
  a[2] = 0
  s[1] = -s[1]
  s[2] = 0
  if on_gpu() and n == 40 and name in ("inv", "solve"):
    pytest.skip("cuBLAS chooses other pivots where a column is zero, and signs are permuted")
  theirs, ours, _ = both(FAILING[name], (a, s))
  for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
    np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
    np.testing.assert_array_equal(np.isposinf(np.real(x)), np.isposinf(np.real(y)))
    np.testing.assert_array_equal(np.isneginf(np.real(x)), np.isneginf(np.real(y)))


@each_failing
def test_nan_stays_in_its_matrix(name, rng):
  """A matrix that holds NaN has NaN in its results; its neighbours keep their bits."""
  a = matrices.well_conditioned(rng, (4,), 6, np.float64)
  s = matrices.positive_definite(rng, (4,), 6, np.float64)
  clean = FAILING[name]
  with linalg.accelerated():
    expected = quick_compile(clean, (a, s))(a, s)
    a[2, :3] = s[2, 0] = s[2, :, 0] = np.nan
    actual = quick_compile(clean, (a, s))(a, s)
  assert any(np.isnan(np.asarray(x)[2]).any() for x in jax.tree.leaves(actual))
  for x, y in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
    for i in (0, 1, 3):
      np.testing.assert_array_equal(np.asarray(x)[i], np.asarray(y)[i])


# The contracted dimensions of A and of B.
CONTRACTED = {"AB": (2, 1), "AᵀB": (1, 1), "ABᵀ": (2, 2), "AᵀBᵀ": (1, 2)}


@pytest.mark.parametrize("kind", CONTRACTED)
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_products(kind, dtype, rng):
  """Either operand of a product of batches may be transposed.

  XLA computes the product of two transposes.
  """
  of_a, of_b = CONTRACTED[kind]
  a = matrices.general(rng, (7,), *((4, 6) if of_a == 2 else (6, 4)), dtype)
  b = matrices.general(rng, (7,), *((6, 5) if of_b == 1 else (5, 6)), dtype)
  product = lambda a, b: jax.lax.dot_general(a, b, (([of_a], [of_b]), ([0], [0])))
  theirs, ours, text = both(product, (a, b), products=True)
  assert bool(HANDLER.search(text)) == (kind != "AᵀBᵀ")
  assert_near([ours], [theirs], (a, b))
  with linalg.accelerated():
    assert not HANDLER.search(quick_compile(product, (a, b)).as_text())  # not requested


# Products as programs write them. A and B are (7, 6, 4), S is (7, 4, 4), and one W (6, 4) serves
# the whole batch. Each has the handler that computes it and the number of transposes that XLA
# keeps.
WRITTEN = {
    "A Aᵀ": (lambda a, b, s, w: a @ a.mT, "matmul_transpose_b", 0),
    "Aᵀ B": (lambda a, b, s, w: a.mT @ b, "matmul_transpose_a", 0),
    "A S": (lambda a, b, s, w: a @ s, "matmul", 0),
    "Sᵀ Aᵀ": (lambda a, b, s, w: s.mT @ a.mT, "matmul_transpose_a", 1),
    "A (Sᵀ)ᵀ by einsum": (lambda a, b, s, w: jnp.einsum("bij,bkj->bik", a, s.mT), "matmul", 0),
    "W S": (lambda a, b, s, w: jax.vmap(lambda s: w @ s)(s), "matmul", 0),
    "Wᵀ A": (lambda a, b, s, w: jax.vmap(lambda a: w.T @ a)(a), "matmul_transpose_a", 0),
    "A Wᵀ": (lambda a, b, s, w: a @ w.T, "matmul_transpose_b", 0),
    "Bᵀ W": (lambda a, b, s, w: jax.vmap(lambda b: b.T @ w)(b), "matmul_transpose_a", 0),
    "W S, rows first": (lambda a, b, s, w: jnp.tensordot(w, s, (1, 1)), "matmul", 1),
}


@pytest.mark.cpu
@selection.all_dtypes
@pytest.mark.parametrize("written", WRITTEN)
def test_products_as_written(written, dtype, rng):
  """A transposed operand is read where it lies, and an operand shared by the batch is not
  copied."""
  function, handler, transposes = WRITTEN[written]
  shapes = [(7, 6, 4), (7, 6, 4), (7, 4, 4), (6, 4)]
  operands = [matrices.general(rng, x[:-2], *x[-2:], dtype) for x in shapes]
  theirs, ours, text = both(function, operands, products=True)
  assert [f"linalg_{handler}"] == HANDLER.findall(text)
  made = re.findall(r" copy\(", text)
  assert len(made) == transposes, text
  assert_near([ours], [theirs], operands)


@pytest.mark.cpu
def test_products_of_moved_batches(rng):
  """Under `vmap`, a product with one left matrix has the batch dimension after the rows. The next
  product reads it without a transpose, and so does the gradient."""
  s, w = matrices.general(rng, (7,), 4, 4, np.float64), rng.standard_normal((6, 4))
  congruence = jax.vmap(lambda s, w: w @ s @ w.T, (0, None))
  gradient = jax.grad(lambda s, w: jnp.sum(jnp.sin(congruence(s, w))))
  for function, handlers in (
      (congruence, ["matmul", "matmul_transpose_b"]),
      (gradient, ["matmul", "matmul", "matmul_transpose_a", "matmul_transpose_b"])):
    theirs, ours, text = both(function, (s, w), products=True)
    assert sorted(HANDLER.findall(text)) == [f"linalg_{name}" for name in handlers]
    assert " dot(" not in text
    assert_near([ours], [theirs], (s,))
  nested = jax.vmap(congruence, (1, None))
  theirs, ours, text = both(nested, (np.stack([s, 2 * s, 3 * s], 1), w), products=True)
  assert HANDLER.search(text)
  assert_near([ours], [theirs], (s,))


@pytest.mark.cpu
@pytest.mark.parametrize("of_b", [0, 1])
@pytest.mark.parametrize("batched", [False, True])
def test_products_of_transposes(batched, of_b, rng):
  """Operands have their dimensions in any order, and any of these is the batch."""
  x = rng.standard_normal((5, 6, 4))
  turns = [*itertools.permutations(range(3))]
  cases, handled = [], 0
  turns_of_b = turns if batched else [(0, 1), (1, 0)]
  for of_a, turn_a, turn_b in itertools.product(range(3), turns, turns_of_b):
    shape = [x.shape[d] for d in turn_a]
    for batch in set(range(3)) - {of_a} if batched else [None]:
      of_matrix = [7, 7]
      of_matrix[of_b] = shape[of_a]
      wanted = ([] if batch is None else [shape[batch]]) + of_matrix
      y = rng.standard_normal([wanted[d] for d in np.argsort(turn_b)])
      dims = (([of_a], [of_b + batched]), (([batch], [0]) if batched else ([], [])))
      cases.append((turn_a, turn_b, y, dims))
      # Whether the operands have the batch first, either as given or in memory.
      places_of_a = [(of_a, batch), (turn_a[of_a], None if batch is None else turn_a[batch])]
      places_of_b = [(of_b + batched, 0), (turn_b[of_b + batched], turn_b[0])]
      turned_a = {k == 1 for k, first in places_of_a if (first == 0 if batched else k > 0)}
      turned_b = {k == 1 + batched for k, first in places_of_b if first == 0 or not batched}
      handled += any(not (i and j) for i in turned_a for j in turned_b)

  def products(x, ys):
    return [
        jax.lax.dot_general(x.transpose(turn_a), y.transpose(turn_b), dims)
        for (turn_a, turn_b, _, dims), y in zip(cases, ys, strict=True)]

  theirs, ours, text = both(products, (x, [y for *_, y, _ in cases]), products=True)
  assert len(HANDLER.findall(text)) == handled > len(cases) / 4
  assert_near(ours, theirs, (x,))


@pytest.mark.cpu
def test_products_of_one_matrix_stay(rng):
  """XLA makes one large product of such a batch, which is as fast as the handler."""
  x, w = rng.standard_normal((7, 24, 24)), rng.standard_normal((24, 24))
  with linalg.accelerated(products=True):
    assert not HANDLER.search(quick_compile(jnp.matmul, (x, w)).as_text())
    assert HANDLER.search(quick_compile(jax.vmap(jnp.matmul, (None, 0)), (w, x)).as_text())


def test_symmetrized_by_the_handler(rng):
  """The handler takes the mean of a matrix and its transpose, which jax.numpy's function takes
  first. The program itself takes other means, and those of complex matrices."""
  a = matrices.well_conditioned(rng, (5,), 4, np.float64) + 9 * np.eye(4)
  theirs, ours, text = both(jnp.linalg.cholesky, (a,))
  assert "symmetrize = true" in text and "divide" not in text and "multiply" not in text
  assert_near([ours], [theirs], (a,))
  third = lambda a: lax_linalg.cholesky((a + a.mT) / 3, symmetrize_input=False)
  twice = lambda a: lax_linalg.cholesky((a + a) / 2, symmetrize_input=False)
  other = lambda a: lax_linalg.cholesky((a + a[::-1].mT) / 2, symmetrize_input=False)
  for function in (third, twice, other):
    theirs, ours, text = both(function, (a,))
    assert "symmetrize = false" in text
    assert_near([ours], [theirs], (a,))
  a = matrices.positive_definite(rng, (5,), 4, np.complex128)
  plain = lambda a: lax_linalg.cholesky((a + a.mT) / 2, symmetrize_input=False)
  for function in (plain, jnp.linalg.cholesky):
    theirs, ours, text = both(function, (a,))
    assert "symmetrize = false" in text
    assert_near([ours], [theirs], (a,))


def lowered(function, *operands):
  with linalg.accelerated():
    return jax.jit(function).lower(*operands).as_text()


def counts(dtype=np.int32, shape=(4, 4)):
  """Returns the row and the column of each element."""
  return [jax.lax.broadcasted_iota(dtype, shape, axis) for axis in (0, 1)]


def cut(mask, x, fill=0.0):
  """Makes masks by the program's own operations, because jax.numpy's functions are calls in it."""
  mask = jax.lax.broadcast_in_dim(mask, x.shape, range(x.ndim - mask.ndim, x.ndim))
  return jax.lax.select(mask, x, jax.lax.full_like(x, fill))


@pytest.mark.parametrize("batch", [(), (5,), (2, 3)], ids=str)
def test_triangle_of_the_factor(batch, rng):
  """JAX zeroes one triangle of a factor. The factor is triangular already, whether the matrix is
  positive definite or not."""
  a = matrices.positive_definite(rng, batch, 4, np.float64)
  if batch:
    a[1] = -a[1]
  for function in (
      lax_linalg.cholesky, lambda a: jax.scipy.linalg.cholesky(a, lower=True),
      jax.scipy.linalg.cholesky, jnp.linalg.cholesky,
      lambda a: cut(jax.lax.ge(*counts()), lax_linalg.cholesky(a))):
    theirs, ours, _ = both(function, (a,))
    assert "stablehlo.select" not in lowered(function, a)
    assert_near(ours, theirs, (a,))
    np.testing.assert_array_equal(np.asarray(ours) == 0, np.asarray(theirs) == 0)
    np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))


CUT = {
    "another diagonal": lambda l, row, col: cut(jax.lax.ge(row + 1, col), l),
    "no diagonal": lambda l, row, col: cut(jax.lax.gt(row, col), l),
    "the other triangle": lambda l, row, col: cut(jax.lax.ge(col, row), l),
    "what is equal": lambda l, row, col: cut(jax.lax.eq(row, col), l),
    "what is not in it": lambda l, row, col: cut(~jax.lax.ge(row, col), l),
    "ones": lambda l, row, col: cut(jax.lax.ge(row, col), l, 1.0),
    "a zero with a sign": lambda l, row, col: cut(jax.lax.ge(row, col), l, -0.0),
    "the rest": lambda l, row, col: jax.lax.select(
        jax.lax.ge(row, col), jax.lax.full_like(l, 0), l),
    "counters that are narrow": lambda l, row, col: cut(jax.lax.ge(*counts(np.int8)), l),
    "one row's": lambda l, row, col: cut(jax.lax.ge(*counts(shape=(1, 4))), l),
    "one column's": lambda l, row, col: cut(jax.lax.ge(*counts(shape=(4, 1))), l),
}


@pytest.mark.parametrize("name", CUT)
def test_other_parts_of_the_factor(name, rng):
  """The program itself cuts out other parts, or puts other numbers in place of the rest."""
  a = matrices.positive_definite(rng, (), 4, np.float64)
  function = lambda a: CUT[name](lax_linalg.cholesky(a), *counts())
  theirs, ours, _ = both(function, (a,))
  assert "stablehlo.select" in lowered(function, a)
  assert_near(ours, theirs, (a,))
  np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))


def test_parts_of_other_factors(rng):
  """Masks that cover the batch, and masks of an upper factor."""
  a = matrices.positive_definite(rng, (4,), 4, np.float64)
  of_batch = lambda a: cut(jax.lax.ge(*counts(shape=(4, 4, 4))), lax_linalg.cholesky(a))
  of_upper = lambda a: cut(
      jax.lax.ge(*counts()), cholesky.cholesky_p(a, lower=False, symmetrize=False)[0])
  for function in (of_batch, of_upper):
    theirs, ours, _ = both(function, (a,))
    assert "stablehlo.select" in lowered(function, a)
    assert_near(ours, theirs, (a,))


def test_choices_among_others(rng):
  """Programs without linear algebra select among one, two or three arrays and keys."""
  x, which = rng.standard_normal(6), np.arange(6) % 3
  key = jax.vmap(jax.random.key)(np.arange(6))
  for function in (
      lambda i, x: jax.lax.select_n(i, x), lambda i, x: jax.lax.select_n(i > 0, x, -x),
      lambda i, x: jax.lax.select_n(i, x, -x, 2 * x),
      jax.vmap(lambda i, x: jax.lax.switch(i, [jnp.sin, jnp.cos, jnp.tan], x)),
      lambda i, x: jax.random.key_data(jnp.where(i > 0, key, key[::-1]))):
    theirs, ours, _ = both(function, (which.astype(np.int32), x))
    np.testing.assert_array_equal(ours, theirs)


def numbers(text):
  """Returns the numbers that an example prints, without their signs."""
  found = re.findall(r"\d+\.?\d*(?:e[+-]?\d+)?", text)
  return np.array([float(x) for x in found])


@pytest.mark.extended
@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize(
    "module, least", [(jnp.linalg, 6), (jax.scipy.linalg, 6), (lax_linalg, 1)],
    ids=lambda x: getattr(x, "__name__", ""))
def test_examples_of_jax(module, least):
  """The examples in JAX's documentation; vectors whose signs are open may have other signs."""
  examples = [
      test for name in dir(module) if callable(getattr(module, name))
      for test in doctest.DocTestFinder(recurse=False).find(getattr(module, name), name)
      if test.examples]
  assert len(examples) >= least
  with jax.enable_x64(False), linalg.accelerated(products=True):
    for test in examples:
      scope = test.globs | {"jax": jax, "jnp": jnp, "np": np}
      for example in test.examples:
        lines = []
        checker = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
        one = doctest.DocTest([example], scope, test.name, None, None, None)
        checker.run(one, out=lines.append, clear_globs=False)
        scope = one.globs
        if lines and example.want:
          got = "".join(lines).partition("Got:\n")[2]
          assert got, f"{test.name}: {example.source} failed\n" + "".join(lines)
          expected, actual = numbers(example.want), numbers(got)
          np.testing.assert_allclose(
              actual, expected, atol=2e-5, rtol=2e-5, err_msg=f"{test.name}: {example.source}")
