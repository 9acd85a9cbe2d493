"""Pencils A - λ B: QZ, its order, eigenvalues and vectors; and Schur forms in a chosen order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import linalg
import linalg.scipy
import matrices
from linalg.scipy._eig import (
  eig_generalized_p,
  eig_left_generalized_p,
  eigvals_generalized_p,
)
from linalg.scipy._qz import qz_p, qz_reorder_p
from linalg.scipy._schur import schur_reorder_p


def _general(rng, *shape, dtype=np.float64):
  return matrices.general(rng, (), *shape, np.dtype(dtype))


def _arrays(results):
  return jax.tree.map(np.asarray, results)


def _check_qz(a, b, s, t, q, z, tolerance=1e-13):
  n = len(a)
  close = lambda x, y: np.testing.assert_allclose(x, y, atol=tolerance * max(np.abs(y).max(), 1))
  close(q @ s @ z.conj().T, a)
  close(q @ t @ z.conj().T, b)
  close(q.conj().T @ q, np.eye(n))
  close(z.conj().T @ z, np.eye(n))
  assert not np.tril(t, -1).any() and not np.tril(s, -2).any()
  assert (np.diagonal(t).real >= 0).all()


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_qz(n, dtype, rng):
  """Factors and their order are SciPy's; a pencil's bits do not depend on its neighbours."""
  a, b = (np.stack([_general(rng, n, n, dtype=dtype) for _ in range(3)]) for _ in range(2))
  b[1, -1] = np.nan
  output = "complex" if np.dtype(dtype).kind == "c" else "real"
  results = _arrays(linalg.scipy.qz(a, b))
  assert all(np.isnan(x[1]).all() for x in results)
  for i in (0, 2):
    _check_qz(a[i], b[i], *(x[i] for x in results))
    for x, y in zip(results, scipy.linalg.qz(a[i], b[i], output), strict=True):
      np.testing.assert_allclose(abs(x[i]), abs(y), atol=1e-12)
    for x, y in zip(results, linalg.scipy.qz(a[i], b[i]), strict=True):
      np.testing.assert_array_equal(x[i], y)
  with pytest.raises(ValueError, match="Use ordqz"):
    linalg.scipy.qz(a, b, sort="lhp")


@pytest.mark.parametrize("output", ["real", "complex"])
@pytest.mark.parametrize("sort", ["lhp", "rhp", "iuc", "ouc"])
def test_ordqz(sort, output, rng):
  a, b = _general(rng, 7, 7), _general(rng, 7, 7)
  s, t, alpha, beta, q, z = _arrays(linalg.scipy.ordqz(a, b, sort, output))
  _check_qz(a, b, s, t, q, z)
  theirs = scipy.linalg.ordqz(a, b, sort, output)
  np.testing.assert_allclose(alpha / beta, theirs[2] / theirs[3], rtol=1e-10)
  np.testing.assert_allclose(abs(s), abs(theirs[0]), atol=1e-11)


def test_ordqz_by_a_function(rng):
  """It acts on arrays, also under `jit` and `vmap`, and may choose one of a complex pair."""
  a, b = np.stack([_general(rng, 6, 6) for _ in range(2)]), _general(rng, 6, 6)
  upper = lambda alpha, beta: alpha.imag > 0
  call = lambda a: linalg.scipy.ordqz(a, b, upper)
  results = jax.jit(call)(a)
  for x, y in zip(results, jax.vmap(call)(a), strict=True):
    np.testing.assert_array_equal(x, y)
  s, t, alpha, _, q, z = _arrays(results)
  for i in range(2):
    _check_qz(a[i], b, s[i], t[i], q[i], z[i])
    pairs = alpha[i].imag != 0
    assert (pairs[:-1] | ~pairs[1:]).all()
  with pytest.raises(ValueError, match="sort must be"):
    linalg.scipy.ordqz(a, b, "left")


@pytest.mark.cpu
def test_left_vectors_when_asked(rng):
  """Neither a value nor a derivative computes left vectors that nobody asked for."""
  a, b = _general(rng, 3, 3), _general(rng, 3, 3)
  for left in (False, True):
    value = lambda a, b, left=left: jnp.abs(linalg.scipy.eig(a, b, left=left)[1]).sum()
    for function in (value, jax.grad(value)):
      text = jax.jit(function).lower(a, b).as_text()
      assert ("@linalg_eig_left_generalized" in text) == left
      assert ("@linalg_eig_generalized" in text) != left


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_eigenvalues_of_pencils(dtype, rng):
  """Left and right vectors, and pairs, are SciPy's up to phases."""
  a, b = _general(rng, 6, 6, dtype=dtype), _general(rng, 6, 6, dtype=dtype)
  w, left, right = _arrays(linalg.scipy.eig(a, b, left=True))
  theirs = scipy.linalg.eig(a, b, left=True)
  np.testing.assert_allclose(w, theirs[0], rtol=1e-10)
  for x, y in ((left, theirs[1]), (right, theirs[2])):
    np.testing.assert_allclose(abs(np.sum(x.conj() * y, axis=0)), 1, rtol=1e-12)
    largest = np.take_along_axis(x, np.argmax(abs(x), 0)[None], 0)
    np.testing.assert_array_equal(largest.imag, 0)
  np.testing.assert_allclose(a @ right, b @ right * w, atol=1e-11)
  np.testing.assert_allclose(left.conj().T @ a, w[:, None] * (left.conj().T @ b), atol=1e-11)
  pairs = np.asarray(linalg.scipy.eigvals(a, b, homogeneous_eigvals=True))
  np.testing.assert_allclose(
      pairs, scipy.linalg.eigvals(a, b, homogeneous_eigvals=True), atol=1e-12)
  alone = linalg.scipy.eig(a, b, left=True, right=False)
  np.testing.assert_array_equal(alone[0], w)
  np.testing.assert_array_equal(alone[1], left)
  np.testing.assert_allclose(linalg.scipy.eig(a, b, right=False), w, rtol=1e-10)
  # Without b, they are those of linalg.eig.
  for x, y in zip(linalg.scipy.eig(a), linalg.eig(a), strict=True):
    np.testing.assert_array_equal(x, y)
  np.testing.assert_array_equal(
      linalg.scipy.eigvals(a, homogeneous_eigvals=True),
      np.stack([linalg.eigvals(a), np.ones(6)]))


def test_singular_pencils():
  """Infinite and zero eigenvalues are exact, and (0, 0) of a singular pencil gives NaN."""
  a, b = np.diag([1.0, 0, 3, 0]), np.diag([2.0, 4, 0, 0])
  w = np.asarray(linalg.scipy.eigvals(a, b))
  np.testing.assert_array_equal(w[:3], [0.5, 0, np.inf])
  assert np.isnan(w[3])
  their_w = scipy.linalg.eigvals(a, b)
  np.testing.assert_array_equal(np.isnan(w), np.isnan(their_w))
  np.testing.assert_array_equal(np.isinf(w), np.isinf(their_w))
  s, t, alpha, beta, q, z = _arrays(linalg.scipy.ordqz(a, b, "ouc"))
  np.testing.assert_allclose(q @ s @ z.T, a, atol=1e-15)
  assert beta[0] == 0 and alpha[0] == 3
  # A singular pencil without a zero row: both determinants vanish for every λ.
  a, b = np.outer([1.0, 2], [1.0, 1]), np.outer([1.0, 2], [3.0, 1])
  _check_qz(a, b, *_arrays(linalg.scipy.qz(a, b)))


def test_scales(rng):
  """Matrices near to the ends of the range have the eigenvalues of others, scaled."""
  a, b = _general(rng, 5, 5), _general(rng, 5, 5)
  w = np.asarray(linalg.scipy.eigvals(a, b))
  for x, y in ((2.0**1000, 2.0**900), (2.0**-1000, 2.0**-900), (2.0**500, 2.0**-500)):
    scaled = np.asarray(linalg.scipy.eigvals(x * a, y * b))
    np.testing.assert_allclose(scaled, w * (x / y), rtol=1e-10)
    s, t, q, z = _arrays(linalg.scipy.qz(x * a, y * b))
    _check_qz(a, b, s / x, t / y, q, z)


def test_infinite_eigenvalue_of_a_pair(rng):
  v, u = _general(rng, 4, 4), _general(rng, 4, 4)
  a, b = u @ np.diag([1.0, 2, 3, 4]) @ v, u @ np.diag([1.0, 1, 1, 0]) @ v
  alpha, beta = np.asarray(linalg.scipy.eigvals(a, b, homogeneous_eigvals=True))
  ratio = np.sort((beta / alpha).real)
  np.testing.assert_allclose(ratio, [0, 1 / 3, 1 / 2, 1], atol=1e-12)


@pytest.mark.parametrize("output", ["real", "complex"])
@pytest.mark.parametrize("sort", [None, "iuc"])
def test_derivatives_of_factors(sort, output, rng):
  """Q S Zᴴ changes as A and Q T Zᴴ as B; the forms and the unitary factors stay such, to second
  order."""
  a, b, da, db = (_general(rng, 6, 6) for _ in range(4))

  def factors(x):
    pencil = a + x * da, b + x * db
    if sort is None:
      return linalg.scipy.qz(*pencil, output)
    s, t, _, _, q, z = linalg.scipy.ordqz(*pencil, sort, output)
    return s, t, q, z

  first = lambda x: jax.jvp(factors, (x,), (1.0,))[1]
  here, (slope, curve) = factors(0.0), jax.jvp(first, (0.0,), (1.0,))
  (s, t, q, z), (ds, dt, dq, dz), (s2, t2, q2, z2) = map(_arrays, (here, slope, curve))
  if output == "real":
    assert np.tril(s, -1).any()
  h = lambda x: x.conj().T
  for x, dx, x2, change in ((s, ds, s2, da), (t, dt, t2, db)):
    moved = dq @ x @ h(z) + q @ dx @ h(z) + q @ x @ h(dz)
    np.testing.assert_allclose(moved, change, atol=1e-10)
    second = (
        q2 @ x @ h(z) + q @ x2 @ h(z) + q @ x @ h(z2)
        + 2 * (dq @ dx @ h(z) + dq @ x @ h(dz) + q @ dx @ h(dz)))
    np.testing.assert_allclose(second, 0, atol=1e-8 * max(np.abs(second).max(), 1))
    np.testing.assert_array_equal(dx[x == 0], 0)
  for x, dx in ((q, dq), (z, dz)):
    np.testing.assert_allclose(h(x) @ dx, -h(h(x) @ dx), atol=1e-10)
  np.testing.assert_allclose(np.diagonal(dt).imag, 0, atol=1e-12)


def test_derivatives_of_eigenvalues(rng):
  """dw = yᴴ (dA - w dB) v / yᴴ B v, in every mode, and vectors move as differences say."""
  a, b, da, db = (_general(rng, 5, 5) for _ in range(4))
  at = lambda x: (a + x * da, b + x * db)
  w, y, v = _arrays(linalg.scipy.eig(a, b, left=True))
  expected = np.einsum("ij,ik,kj->j", y.conj(), da, v) - w * np.einsum(
      "ij,ik,kj->j", y.conj(), db, v)
  expected = expected / np.einsum("ij,ik,kj->j", y.conj(), b, v)
  for call in (lambda x: linalg.scipy.eigvals(*at(x)), lambda x: linalg.scipy.eig(*at(x))[0]):
    np.testing.assert_allclose(jax.jvp(call, (0.0,), (1.0,))[1], expected, rtol=1e-9)
  loss = lambda a, b: jnp.sum(jnp.abs(linalg.scipy.eigvals(a, b)))
  gradients = jax.grad(loss, (0, 1))(a, b)
  slope = sum(np.sum(x * dx) for x, dx in zip(gradients, (da, db), strict=True))
  np.testing.assert_allclose(slope, np.sum((w.conj() * expected).real / abs(w)), rtol=1e-9)
  step = 1e-5
  results = lambda x: linalg.scipy.eig(*at(x), left=True)
  found = _arrays(jax.jvp(results, (0.0,), (1.0,))[1])
  ahead, behind = _arrays(results(step)), _arrays(results(-step))
  for dx, x, before in zip(found, ahead, behind, strict=True):
    np.testing.assert_allclose(dx, (x - before) / (2 * step), rtol=1e-5, atol=1e-6)
  curve = jax.jvp(lambda x: jax.jvp(results, (x,), (1.0,))[1], (0.0,), (1.0,))[1]
  ahead, behind = (_arrays(jax.jvp(results, (x,), (1.0,))[1]) for x in (step, -step))
  for d2, x, before in zip(_arrays(curve), ahead, behind, strict=True):
    np.testing.assert_allclose(d2, (x - before) / (2 * step), rtol=1e-4, atol=1e-4)


def test_derivatives_at_infinite_eigenvalues(rng):
  """The pair of an infinite eigenvalue moves, and 1 / w = β / α with it."""
  a, b, da, db = (_general(rng, 4, 4) for _ in range(4))
  b[:, 0] = 0
  pairs = lambda x: linalg.scipy.eigvals(a + x * da, b + x * db, homogeneous_eigvals=True)
  (alpha, beta), (dalpha, dbeta) = _arrays(jax.jvp(pairs, (0.0,), (1.0,)))
  at = int(np.argmin(abs(beta)))
  assert beta[at] == 0 and not np.delete(beta == 0, at).any()
  # The reciprocal is an eigenvalue of (B, A): its vectors have B v = 0 and yᴴ B = 0.
  v, y = scipy.linalg.null_space(b)[:, 0], scipy.linalg.null_space(b.T)[:, 0]
  expected = (y @ db @ v) / (y @ a @ v)
  np.testing.assert_allclose((dbeta / alpha)[at], expected, rtol=1e-10)
  values = lambda x: linalg.scipy.eigvals(a + x * da, b + x * db)
  w, dw = _arrays(jax.jvp(values, (0.0,), (1.0,)))
  assert np.isinf(w[at]) and np.isnan(dw[at]) and np.isfinite(np.delete(dw, at)).all()


def _gensys(g0, g1, psi, pi, qz):
  """(G₁, impact) of Γ₀ y(t) = Γ₁ y(t - 1) + Ψ z(t) + Π η(t), whose η keeps y from exploding.

  Source: Sims, Solving linear rational expectations models, Computational Economics 20 (2002). The
  number of stable roots is that of the example.
  """
  s, t, q, z = qz(g0, g1)
  n, stable, h = len(g0), len(g0) - pi.shape[1], lambda x: x.conj().T
  q1, q2 = h(q)[:stable], h(q)[stable:]
  # Errors of expectation offset shocks to the unstable part: Q₂ (Ψ z + Π η) = 0.
  gain = jnp.linalg.solve((q2 @ pi).T, (q1 @ pi).T).T
  upper = lambda x: jnp.concatenate(
      [x[:stable, :stable], x[:stable, stable:] - gain @ x[stable:, stable:]], 1)
  left = jnp.concatenate([upper(s), jnp.eye(n)[stable:]])
  right = jnp.concatenate([upper(t), jnp.zeros((n - stable, n))])
  shocks = jnp.concatenate([q1 @ psi - gain @ (q2 @ psi), jnp.zeros((n - stable, psi.shape[1]))])
  return z @ jnp.linalg.solve(left, right) @ h(z), z @ jnp.linalg.solve(left, shocks)


def _new_keynesian(kappa):
  """Output x, inflation p and a demand shock d, with expectations e of x and of p.

  x = e_x - (1.5 p - e_p) + d, p = 0.99 e_p + κ x, d = 0.8 d(-1) + z, and x = e_x(-1) + η₁, p =
  e_p(-1) + η₂.
  """
  zero, one = jnp.zeros_like(kappa), jnp.ones_like(kappa)
  g0 = jnp.stack([jnp.stack(row) for row in (
      (one, 1.5 * one, -one, -one, -one), (-kappa, one, zero, zero, -0.99 * one),
      (zero, zero, one, zero, zero), (one, zero, zero, zero, zero),
      (zero, one, zero, zero, zero))])
  g1 = jnp.array([[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0.8, 0, 0], [0, 0, 0, 1, 0],
                  [0, 0, 0, 0, 1.0]])
  psi = jnp.array([[0, 0, 1.0, 0, 0]]).T
  pi = jnp.array([[0, 0, 0, 1.0, 0], [0, 0, 0, 0, 1.0]]).T
  return g0, g1, psi, pi


def test_rational_expectations():
  """Sims' solution of a linear model with rational expectations, and its derivatives.

  The roots |β / α| < 1 of Γ₀ y = Γ₁ y(-1) are stable.
  """
  stable = lambda alpha, beta: abs(beta) < abs(alpha)

  def ours(g0, g1):
    s, t, _, _, q, z = linalg.scipy.ordqz(g0, g1, stable)
    return s, t, q, z

  def theirs(g0, g1):
    s, t, _, _, q, z = scipy.linalg.ordqz(g0, g1, stable)
    return s, t, q, z

  solve = jax.jit(lambda kappa: _gensys(*_new_keynesian(kappa), ours))
  g, impact = solve(0.1)
  for x, y in zip((g, impact), _gensys(*map(np.asarray, _new_keynesian(0.1)), theirs), strict=True):
    np.testing.assert_allclose(x, y, atol=1e-12)
  # By undetermined coefficients x = a d and p = b d, where E d(+1) = 0.8 d.
  def response(kappa):
    matrix = np.array([[1 - 0.8, 1.5 - 0.8], [-kappa, 1 - 0.99 * 0.8]])
    return np.linalg.solve(matrix, [1.0, 0])

  np.testing.assert_allclose(impact[:3, 0], [*response(0.1), 1], atol=1e-12)
  slope = jax.jacfwd(solve)(0.1)[1][:2, 0]
  reverse = jax.jacrev(solve)(0.1)[1][:2, 0]
  step = 1e-6
  expected = (response(0.1 + step) - response(0.1 - step)) / (2 * step)
  np.testing.assert_allclose(slope, expected, rtol=1e-7)
  np.testing.assert_allclose(reverse, slope, rtol=1e-9)
  stack = jax.vmap(solve)(jnp.array([0.1, 0.2]))[1]
  np.testing.assert_allclose(stack[1, :2, 0], response(0.2), atol=1e-12)


@pytest.mark.parametrize("output", ["real", "complex"])
@pytest.mark.parametrize("sort", ["lhp", "rhp", "iuc", "ouc"])
def test_sorted_schur_forms(sort, output, rng):
  a = _general(rng, 7, 7) / 2
  t, z, count = _arrays(linalg.scipy.schur(a, output, sort=sort))
  their_t, _, their_count = scipy.linalg.schur(a, output, sort=sort)
  assert count == their_count
  np.testing.assert_allclose(np.diagonal(t), np.diagonal(their_t), atol=1e-12)
  np.testing.assert_allclose(z @ t @ z.conj().T, a, atol=1e-13)
  np.testing.assert_allclose(z.conj().T @ z, np.eye(7), atol=1e-13)


def test_schur_form_by_a_function(rng):
  """For a real form it takes real and imaginary parts, and chooses pairs as a whole."""
  a = np.stack([_general(rng, 6, 6) for _ in range(2)])
  call = lambda a: linalg.scipy.schur(a, sort=lambda x, y: y > 0.1)
  t, z, count = _arrays(jax.jit(call)(a))
  for i in range(2):
    theirs = scipy.linalg.schur(a[i], sort=lambda x, y: y > 0.1)
    assert count[i] == theirs[2] and count[i] % 2 == 0
    np.testing.assert_allclose(z[i] @ t[i] @ z[i].T, a[i], atol=1e-13)
  one = linalg.scipy.schur(a[0], "complex", sort=lambda w: w.imag > 0.1)
  assert one[2] == scipy.linalg.schur(a[0], "complex", sort=lambda w: w.imag > 0.1)[2]
  for x, y in zip(linalg.scipy.schur(a), linalg.schur(a), strict=True):
    np.testing.assert_array_equal(x, y)
  with pytest.raises(ValueError, match="sort must be"):
    linalg.scipy.schur(a, sort="left")


def test_derivatives_of_sorted_schur_forms(rng):
  a, da = _general(rng, 6, 6), _general(rng, 6, 6)
  call = lambda a: linalg.scipy.schur(a, sort="lhp")[:2]
  (t, z), (dt, dz) = _arrays(jax.jvp(call, (a,), (da,)))
  np.testing.assert_allclose(dz @ t @ z.T + z @ dt @ z.T + z @ t @ dz.T, da, atol=1e-11)
  np.testing.assert_array_equal(dt[t == 0], 0)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_fallbacks(dtype, rng):
  """On other platforms, quotients and eigenvectors give the same factors up to their errors."""
  n = 6
  a, b = _general(rng, n, n, dtype=dtype), _general(rng, n, n, dtype=dtype)
  fallback = lambda operation, *operands: _arrays(jax.jit(operation._rules.fallback)(*operands))
  s, t, q, z, alpha, beta, info = fallback(qz_p, a, b)
  _check_qz(a, b, s, t, q, z, 1e-12)
  assert info == 0
  np.testing.assert_allclose(
      np.sort_complex(alpha / beta), np.sort_complex(scipy.linalg.eigvals(a, b)), rtol=1e-9)
  select = (abs(alpha) < abs(beta)).astype(np.int32)
  s, t, q, z, alpha, beta, info = fallback(qz_reorder_p, s, t, q, z, select)
  _check_qz(a, b, s, t, q, z, 1e-11)
  np.testing.assert_array_equal(abs(alpha) < abs(beta), np.sort(select)[::-1] != 0)
  w, v, u = scipy.linalg.eig(a, b, left=True)
  alpha, beta, left, right, info = fallback(eig_left_generalized_p, a, b)
  alone = fallback(eig_generalized_p, a, b)
  np.testing.assert_allclose(alone[0] / alone[1], alpha / beta, rtol=1e-9)
  np.testing.assert_allclose(alone[2], right, atol=1e-9)
  order = [int(np.argmin(abs(w - x))) for x in alpha / beta]
  assert sorted(order) == list(range(n)) and info == 0
  for x, y in ((left, v), (right, u)):
    np.testing.assert_allclose(abs(np.sum(x.conj() * y[:, order], axis=0)), 1, rtol=1e-10)
  values = fallback(eigvals_generalized_p, a, b)
  np.testing.assert_allclose(
      np.sort_complex(values[0] / values[1]), np.sort_complex(w), rtol=1e-9)
  t, z = linalg.schur(a)
  select = (np.diagonal(t).real < 0).astype(np.int32)
  new_t, new_z, info = fallback(schur_reorder_p, t, z, select)
  np.testing.assert_allclose(new_z @ new_t @ new_z.conj().T, a, atol=1e-11)
  np.testing.assert_array_equal(np.diagonal(new_t).real < 0, np.sort(select)[::-1] != 0)
  assert not np.tril(new_t, -2).any()


def test_derivatives_of_stiff_blocks(rng):
  """A block of T with two equal elements has no derivative where B varies, and one by A alone."""
  a, b, change = np.array([[0, 1], [-1, 0.5]]), np.eye(2), rng.standard_normal((2, 2))
  by_b = jax.jvp(lambda b: linalg.scipy.qz(a, b), (b,), (change,))[1]
  assert all(np.isnan(x).any() for x in by_b)
  s, t, q, z = linalg.scipy.qz(a, b)
  ds, _, dq, dz = jax.jvp(lambda a: linalg.scipy.qz(a, b), (a,), (change,))[1]
  np.testing.assert_allclose(
      dq @ s @ z.mT + q @ ds @ z.mT + q @ s @ dz.mT, change, atol=1e-12)


@pytest.mark.parametrize("of_a, of_b", [(1, 1e-170), (1, 1e170), (1e-10, 1e10)])
def test_scales_of_ordered_forms(of_a, of_b, rng):
  a, b = rng.standard_normal((2, 4, 4))
  alpha, beta = map(np.asarray, linalg.scipy.ordqz(a, b, "lhp")[2:4])
  scaled, divisor = map(np.asarray, linalg.scipy.ordqz(of_a * a, of_b * b, "lhp")[2:4])
  np.testing.assert_allclose((scaled / of_a) / (divisor / of_b), alpha / beta, rtol=1e-10)
