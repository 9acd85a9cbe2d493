"""Factorisations of `linalg.scipy`: RQ, QR after changes, band matrices, cosines and sines."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import linalg
import linalg.scipy
import matrices


def _general(rng, m, n, dtype=np.float64):
  return matrices.general(rng, (), m, n, np.dtype(dtype))


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (0, 3), (3, 0)], ids=str)
def test_rq(shape, dtype, rng):
  """Shapes and factors are SciPy's, up to signs."""
  a = _general(rng, *shape, dtype)
  close = lambda x, y: np.testing.assert_allclose(x, y, atol=20 * np.finfo(dtype).eps * 5)
  for mode in ("full", "economic"):
    r, q = linalg.scipy.rq(a, mode=mode)
    close(r @ q, a)
    close(q @ q.conj().T, np.eye(len(q)))
    if a.size:
      theirs = scipy.linalg.rq(a, mode=mode)
      assert (r.shape, q.shape) == tuple(x.shape for x in theirs)
      close(abs(r), abs(theirs[0]))
  np.testing.assert_array_equal(linalg.scipy.rq(a, mode="r"), linalg.scipy.rq(a)[0])
  with pytest.raises(ValueError, match="rq: mode must be"):
    linalg.scipy.rq(a, mode="raw")


def _compare(ours, theirs):
  (q, r), (their_q, their_r) = ours, theirs
  assert (q.shape, r.shape) == (their_q.shape, their_r.shape)
  np.testing.assert_allclose(q @ r, their_q @ their_r, atol=1e-13)
  np.testing.assert_allclose(abs(r), abs(their_r), atol=1e-13)
  np.testing.assert_allclose(q.conj().T @ q, np.eye(q.shape[1]), atol=1e-13)


@pytest.mark.parametrize("mode", ["full", "economic"])
def test_updates(mode, rng):
  q, r = scipy.linalg.qr(_general(rng, 6, 4), mode=mode)
  ours, theirs = linalg.scipy, scipy.linalg
  for k in ((), (2,)):
    u, v = rng.standard_normal((6, *k)), rng.standard_normal((4, *k))
    _compare(ours.qr_update(q, r, u, v), theirs.qr_update(q, r, u, v))
  for k, row, column in ((-2, (4,), (6, 2)), (0, (2, 4), (6,)), (4, (4,), (6, 2))):
    u, v = rng.standard_normal(row), rng.standard_normal(column)
    _compare(ours.qr_insert(q, r, u, k), theirs.qr_insert(q, r, u, k))
    _compare(ours.qr_insert(q, r, v, k, "col"), theirs.qr_insert(q, r, v, k, "col"))
  for k, p in ((-1, 1), (0, 2), (1, 4), (0, 6)):
    _compare(ours.qr_delete(q, r, k, p), theirs.qr_delete(q, r, k, p))
  for k, p in ((-1, 1), (0, 2)):
    _compare(ours.qr_delete(q, r, k, p, "col"), theirs.qr_delete(q, r, k, p, "col"))


def test_updates_of_dependent_columns(rng):
  """The factors stay orthonormal where an inserted column is a combination of others."""
  a = _general(rng, 6, 3)
  q, r = linalg.qr(a)
  q, r = linalg.scipy.qr_insert(q, r, a[:, 0] + a[:, 1], 3, "col")
  np.testing.assert_allclose(q.T @ q, np.eye(4), atol=1e-14)
  np.testing.assert_allclose(q @ r, np.c_[a, a[:, 0] + a[:, 1]], atol=1e-13)


def test_wrong_updates(rng):
  q, r = linalg.qr(_general(rng, 5, 4))
  for call, error, text in (
      (lambda: linalg.scipy.qr_update(q, r, np.ones(4), np.ones(4)), ValueError, "Incompatible"),
      (lambda: linalg.scipy.qr_update(r, q, np.ones(4), np.ones(4)), ValueError, "Q and R must"),
      (lambda: linalg.scipy.qr_insert(q, r, np.ones(4), 6), ValueError, "k must be from -5 to 5"),
      (lambda: linalg.scipy.qr_insert(q, r, np.ones(4), 0, "rows"), ValueError, "which must be"),
      (lambda: linalg.scipy.qr_delete(q, r, 1, 5), ValueError, "p must be from 1 to 4"),
      (lambda: linalg.scipy.qr_delete(q, r, 1.5), TypeError, "k must be an integer")):
    with pytest.raises(error, match=text):
      call()


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("lower", [True, False])
def test_eig_banded(lower, dtype, rng):
  ab = _general(rng, 3, 7, dtype)
  for options in ({}, {"select": "i", "select_range": (1, 3)},
                  {"select": "v", "select_range": (-1, 1)}):
    w, v = linalg.scipy.eig_banded(ab, lower, **options)
    their_w, their_v = scipy.linalg.eig_banded(ab, lower, **options)
    np.testing.assert_allclose(w, their_w, atol=1e-13)
    np.testing.assert_allclose(abs(v), abs(their_v), atol=1e-11)
    np.testing.assert_allclose(
        linalg.scipy.eigvals_banded(ab, lower, **options), their_w, atol=1e-13)


def test_eigenvalues_in_an_interval(rng):
  """Under `jit` their number is fixed, and NaN follows."""
  ab = _general(rng, 3, 6)
  find = lambda ab: linalg.scipy.eig_banded(ab, select="v", select_range=(-2, 1), max_ev=5)
  stack = np.stack([ab, 0 * ab + 5])
  w, v = jax.jit(find)(stack)
  expected = scipy.linalg.eig_banded(ab, eigvals_only=True, select="v", select_range=(-2, 1))
  count = len(expected)
  assert 0 < count < 5
  np.testing.assert_allclose(w[0, :count], expected, atol=1e-13)
  assert np.isnan(w[0, count:]).all() and np.isnan(v[0, :, count:]).all()
  np.testing.assert_array_equal(w, jax.vmap(find)(stack)[0])
  with pytest.raises(TypeError, match="max_ev"):
    jax.jit(lambda ab: linalg.scipy.eigvals_banded(ab, select="v", select_range=(-2, 1)))(ab)
  with pytest.raises(ValueError, match="must be within 0 and 5"):
    linalg.scipy.eig_banded(ab, select="i", select_range=(2, 6))
  with pytest.raises(ValueError, match="select must be"):
    linalg.scipy.eig_banded(ab, select="b")


def _unitary(rng, m, dtype):
  return matrices.unitary(rng, m, np.dtype(dtype))


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("m, p, q", [(2, 1, 1), (5, 2, 3), (6, 2, 1), (6, 1, 2), (6, 4, 5),
                                     (6, 5, 4)])
def test_cossin(m, p, q, dtype, rng):
  """The angles are SciPy's, and so is the order of columns, also of a permutation."""
  for x in (_unitary(rng, m, dtype), np.eye(m, dtype=dtype)[rng.permutation(m)]):
    u, d, vh = map(np.asarray, linalg.scipy.cossin(x, p, q))
    np.testing.assert_allclose(d, scipy.linalg.cossin(x, p, q)[1], atol=1e-14)
    np.testing.assert_allclose(u @ d @ vh, x, atol=1e-14)
    for y, k in ((u, p), (vh, q)):
      np.testing.assert_allclose(y @ y.conj().T, np.eye(m), atol=1e-14)
      assert not y[:k, k:].any() and not y[k:, :k].any()
  swapped = [np.asarray(y) for y in linalg.scipy.cossin(x, p, q, swap_sign=True)]
  np.testing.assert_allclose(swapped[1], scipy.linalg.cossin(x, p, q, swap_sign=True)[1],
                             atol=1e-14)
  np.testing.assert_allclose(swapped[0] @ swapped[1] @ swapped[2], x, atol=1e-14)


def test_cossin_of_small_angles(rng):
  """Sines and cosines near to 0 cost no orthogonality, and are right to eps."""
  p = 10
  powers = 10.0 ** -np.linspace(0, 18, p)
  for theta in (np.sort(powers), np.sort(np.pi / 2 - powers), np.full(p, np.pi / 4),
                np.repeat([1e-9, np.pi / 2 - 1e-9], 5)):
    c, s = np.diag(np.cos(theta)), np.diag(np.sin(theta))
    u, v = (scipy.linalg.block_diag(_unitary(rng, p, float), _unitary(rng, p, float))
            for _ in range(2))
    x = u @ np.block([[c, -s], [s, c]]) @ v
    (u1, u2), found, (v1, v2) = jax.tree.map(
        np.asarray, linalg.scipy.cossin(x, p, p, separate=True))
    np.testing.assert_allclose(found, theta, atol=1e-14)
    c, s = np.cos(found), np.sin(found)
    for block, product in (
        (x[:p, :p], (u1 * c) @ v1), (x[p:, :p], (u2 * s) @ v1), (x[:p, p:], -(u1 * s) @ v2),
        (x[p:, p:], (u2 * c) @ v2)):
      np.testing.assert_allclose(product, block, atol=1e-14)
    for y in (u1, u2, v1, v2):
      np.testing.assert_allclose(y @ y.T, np.eye(p), atol=1e-14)


@pytest.mark.parametrize("p, q", [(2, 2), (3, 2), (3, 4), (1, 3)])
def test_derivatives_of_cossin(p, q, rng):
  """The change of U D Vᴴ is that of X, and the factors stay unitary, for any blocks."""
  m = 5
  x = _unitary(rng, m, complex)
  skew = _general(rng, m, m, complex)
  dx = x @ (skew - skew.conj().T)
  factors = lambda x: linalg.scipy.cossin(x, p, q)
  (u, d, vh), (du, dd, dvh) = jax.tree.map(
      np.asarray, jax.jvp(factors, (jnp.asarray(x),), (jnp.asarray(dx),)))
  np.testing.assert_allclose(du @ d @ vh + u @ dd @ vh + u @ d @ dvh, dx, atol=1e-12)
  for y, dy in ((u, du), (vh.conj().T, dvh.conj().T)):
    change = y.conj().T @ dy
    np.testing.assert_allclose(change, -change.conj().T, atol=1e-12)
  # U and V may turn together in each pair and in each space of ones: no change of D sees it.
  assert abs(dd).max() > 1e-3


def test_blocks_of_cossin(rng):
  x = np.stack([_unitary(rng, 5, float), np.full((5, 5), np.nan)])
  blocks = x[:, :2, :3], x[:, :2, 3:], x[:, 2:, :3], x[:, 2:, 3:]
  for y, z in zip(linalg.scipy.cossin(blocks), linalg.scipy.cossin(x, 2, 3), strict=True):
    np.testing.assert_array_equal(y, z)
  for k, option in ((0, "compute_u"), (2, "compute_vh")):
    for separate in (False, True):
      found = linalg.scipy.cossin(x, 2, 3, separate, **{option: False})[k]
      assert {y.shape for y in jax.tree.leaves(found)} == {(2, 0, 0)}
  theta = linalg.scipy.cossin(x, 2, 3, separate=True)[1]
  assert np.isfinite(theta[0]).all() and np.isnan(theta[1]).all()
  for args, text in (((x, 0, 3), "p must be"), ((x, 2, 5), "q must be"),
                     ((blocks[:2],), "the four blocks"),
                     ((blocks[1:2] + blocks[:1] + blocks[2:],), "Incompatible")):
    with pytest.raises(ValueError, match=text):
      linalg.scipy.cossin(*args)


@pytest.mark.usefixtures("standard_promotion")
def test_lists_of_cossin(rng):
  """A list is a matrix, or holds the blocks, which may have one shape and several dtypes."""
  x = _unitary(rng, 4, float)
  blocks = [x[:2, :2], x[:2, 2:].astype(complex), x[2:, :2].tolist(), x[2:, 2:]]
  u, d, vh = map(np.asarray, linalg.scipy.cossin(blocks))
  assert (u.dtype, d.dtype, vh.dtype) == (complex, float, complex)
  np.testing.assert_allclose(u @ d @ vh, x, atol=1e-14)
  for y, z in zip(linalg.scipy.cossin(x.tolist(), 2, 1), linalg.scipy.cossin(x, 2, 1), strict=True):
    np.testing.assert_array_equal(y, z)
  for wrong in (["x"] * 4, (None,) * 4, [object()] * 4):
    with pytest.raises(TypeError, match="cossin requires ndarray or scalar arguments"):
      linalg.scipy.cossin(wrong)


def test_signs_of_rq(dtype, rng):
  a = matrices.general(rng, (2,), 3, 5, dtype)
  for x, found in zip(a, zip(*linalg.scipy.rq(a), strict=True), strict=True):
    for y, known in zip(found, scipy.linalg.rq(x), strict=True):
      np.testing.assert_allclose(y, known, atol=50 * np.finfo(dtype).eps)


def test_derivatives_of_cossin_at_the_ends(rng):
  """Angles of 0 and π/2 have no derivative."""
  change = rng.standard_normal((4, 4))
  tangents = jax.jvp(lambda x: linalg.scipy.cossin(x, 2, 2), (np.eye(4),), (change,))[1]
  assert all(np.isnan(x).any() for x in tangents)
