"""`subset_by_index`: residuals, clusters at the cut, failures, bits and derivatives.

Orders are above those that are decomposed whole. A few values are found one by one, and more by
divide and conquer.
"""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import linalg
import matrices
from linalg._catalogue import checks
from linalg._factorizations import eigh, eigh_tridiagonal, svd

ONE_IN = 5

N = 132
# The order for singular values.
M = 100
# Few and many, at both ends and inside, one, and all but one.
RANGES = [(0, 5), (N - 6, N), (47, 53), (N - 1, N), (10, 106), (0, N - 1)]


def _check_eigh(a, start, stop, *results):
  """LAPACK's limits for A V = V diag(w) and Vᴴ V = I, and for the values."""
  w, v, alone = map(checks.wide, results)
  # The norm may be near the end of the range.
  largest = np.abs(checks.wide(a)).max((-2, -1), keepdims=True)
  scale = np.where(largest == 0, 1, largest)
  scaled, w, alone = checks.wide(a) / scale, w / scale[..., 0], alone / scale[..., 0]
  eps = checks.eps(results[1])
  norm = checks.norm1(scaled)
  residual = checks.norm1(scaled @ v - v * w[..., None, :])
  assert np.all(residual <= 30 * N * eps * norm)
  assert checks.orthogonality(np.asarray(results[1])) <= 30
  assert np.all(np.diff(w) >= 0)
  expected = np.linalg.eigvalsh(scaled)[..., start:stop]
  for values in (w, alone):
    assert np.all(np.abs(values - expected) <= 30 * eps * norm[..., None] * np.sqrt(N))


def _subset(start, stop):
  return jax.jit(lambda a: (
      *linalg.eigh(a, subset_by_index=(start, stop)),
      linalg.eigvalsh(a, subset_by_index=(start, stop))))


@pytest.mark.parametrize(("start", "stop"), RANGES, ids=str)
def test_matrix_types(start, stop, dtype, rng):
  """LAPACK's types of spectra in one batch: the cut goes through their clusters."""
  a = np.stack(list(matrices.hermitian_types(rng, N, dtype).values())).astype(dtype)
  _check_eigh(a, start, stop, *_subset(start, stop)(a))


def test_clusters(dtype, rng):
  """Equal, nearly equal and glued eigenvalues on both sides of the cut."""
  wilkinson = np.diag(np.abs(np.arange(21.0) - 10)) + np.eye(21, k=1) + np.eye(21, k=-1)
  glued = np.zeros((N, N))
  glued[:126, :126] = np.kron(np.eye(6), wilkinson)
  glued += 1e-8 * (np.eye(N, k=21) + np.eye(N, k=-21))
  spectra = [np.ones(N), 1 + 1e-15 * np.arange(N), np.repeat(np.arange(12.0), 11),
             np.where(np.arange(N) < N - 2, 0, 1)]
  a = np.stack([*(matrices.with_eigenvalues(rng, x, dtype) for x in spectra), glued]).astype(dtype)
  for start, stop in ((3, 8), (N - 5, N - 2), (15, 40), (N - 4, N)):
    _check_eigh(a, start, stop, *_subset(start, stop)(a))


@pytest.mark.parametrize("n", [128, 129])
def test_no_values_and_all(n, rng):
  a = matrices.hermitian(rng, (2,), n, np.float64)
  w, v, info = linalg.eigh_ex(a, subset_by_index=(4, 4))
  assert w.shape == (2, 0) and v.shape == (2, n, 0) and not info.any()
  assert linalg.eigvalsh(a, subset_by_index=(0, 0)).shape == (2, 0)
  for x, y in zip(linalg.eigh(a, subset_by_index=(0, n)), linalg.eigh(a), strict=True):
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("function, largest, part", [
    (linalg.eigh, 128, "linalg_eigh_subset"), (linalg.eigvalsh, 128, "linalg_eigvalsh_subset"),
    (linalg.svdvals, 64, "linalg_svdvals_subset"),
    (lambda a, **how: linalg.svd(a, full_matrices=False, **how), 64, "linalg_svd_subset")])
def test_small_matrices_are_decomposed_whole(function, largest, part):
  for n in (largest, largest + 1):
    program = jax.make_jaxpr(lambda a: function(a, subset_by_index=(3, 8)))(np.eye(n))
    assert (part in str(program)) == (n > largest)


def test_triangles(rng):
  """Only the named triangle is read."""
  a = matrices.general(rng, (), N, N, np.complex128)
  for uplo, triangle in (("L", np.tril), ("U", np.triu)):
    part = triangle(a, -1 if uplo == "L" else 1)
    whole = part + part.conj().T + np.diag(np.diag(a).real)
    w = linalg.eigvalsh(a, uplo, symmetrize_input=False, subset_by_index=(3, 8))
    np.testing.assert_allclose(w, np.linalg.eigvalsh(whole)[3:8], rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [4, 40])
def test_bits_and_failures(count, dtype, rng):
  """A matrix that is not finite has NaN and info. The others have the bits that they have alone."""
  a = matrices.hermitian(rng, (5,), N, dtype)
  spoilt = a.copy()
  spoilt[2, 3, 3] = np.nan
  spoilt[4, 0, 1] = np.inf
  how = {"subset_by_index": (N - count, N)}
  w, v, info = linalg.eigh_ex(spoilt, **how)
  np.testing.assert_array_equal(info, [0, 0, -1, 0, -1])
  assert np.isnan(w[2::2]).all() and np.isnan(v[2::2]).all()
  for i in (0, 1, 3):
    alone = linalg.eigh_ex(a[i], **how)
    np.testing.assert_array_equal(w[i], alone[0])
    np.testing.assert_array_equal(v[i], alone[1])
  s, info = linalg.svdvals_ex(spoilt, subset_by_index=(0, count))
  np.testing.assert_array_equal(info, [0, 0, -1, 0, -1])
  np.testing.assert_array_equal(s[1], linalg.svdvals(a[1], subset_by_index=(0, count)))


@pytest.mark.parametrize("shape", [(M, M), (130, M), (M, 130)], ids=str)
@pytest.mark.parametrize(("start", "stop"), [(0, 5), (M - 5, M), (30, 36), (10, 80)], ids=str)
def test_svd(start, stop, shape, dtype, rng):
  """Clusters, zeros and wide ranges of singular values; the cut goes through them."""
  spectra = [
      np.sort(np.abs(rng.standard_normal(M)))[::-1], np.ones(M), 10.0 ** -np.linspace(0, 15, M),
      np.where(np.arange(M) < 33, 1, 0), np.zeros(M), 1 + 1e-15 * np.arange(M)[::-1]]
  a = np.stack([matrices.with_singular_values(rng, x, *shape, dtype) for x in spectra])
  a = np.concatenate([a, matrices.general(rng, (1,), *shape, dtype)]).astype(dtype)
  chosen = {"subset_by_index": (start, stop)}
  (u, s, vh), alone = jax.jit(lambda a: (
      linalg.svd(a, full_matrices=False, **chosen), linalg.svdvals(a, **chosen)))(a)
  eps, size = checks.eps(u), max(shape)
  norm = checks.norm1(checks.wide(a))
  u, s, vh, alone = map(checks.wide, (u, s, vh, alone))
  forward = checks.wide(a) @ checks.adjoint(vh) - u * s[..., None, :]
  backward = checks.adjoint(checks.wide(a)) @ u - checks.adjoint(vh) * s[..., None, :]
  for residual in (forward, backward):
    assert np.all(checks.norm1(residual) <= 30 * size * eps * norm)
  eye = np.eye(stop - start)
  for q in (u, checks.adjoint(vh)):
    assert np.all(checks.norm1(checks.adjoint(q) @ q - eye) <= 30 * size * eps)
  expected = np.linalg.svd(checks.wide(a), compute_uv=False)[..., start:stop]
  for values in (s, alone):
    assert np.all(np.diff(values) <= 0)
    assert np.all(np.abs(values - expected) <= 30 * np.sqrt(size) * eps * norm[..., None])


def _compare_with_fallbacks(both, *operands):
  """`both(call)` with `call` the handler of an operation, and its fallback."""
  ours, theirs = (jax.jit(lambda *x, call=call: both(call, *x))(*operands) for call in (
      lambda p: p, lambda p: p._rules.fallback))
  for x, y in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
    assert x.shape == y.shape and x.dtype == y.dtype
    np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-10)


def _projector(v):
  return v[..., :, None, :] * v[..., None, :, :].conj()


# The whole decomposition, cut, on platforms without the handlers. The columns of a solution belong
# to values, whatever the phases of the vectors.
FALLBACK_RANGES = [(0, 3), (4, 2), (6, 3)]


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_fallbacks(dtype, rng):
  a, b = (matrices.hermitian(rng, (2,), 9, dtype) for _ in range(2))
  for start, count in FALLBACK_RANGES:
    how = {"start": start, "count": count, "lower": False, "symmetrize": False}

    def both(call, a, b, how=how, count=count):
      w, v, *rest = call(eigh.eigh_subset_p)(a, **how)
      values = call(eigh.eigvalsh_subset_p)(a, **how)
      own, vectors, *others, _ = call(eigh.eigh_subset_factored_p)(a, **how)
      x = call(eigh.eigh_subset_solve_p)(a, *others[3:], own, vectors, b[..., :count], **how)
      return w, _projector(v), rest, values, _projector(vectors), jax.tree.leaves(x)

    _compare_with_fallbacks(both, a, b)


@pytest.mark.parametrize("shape", [(7, 7), (9, 7), (7, 9)], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_fallbacks_of_svd(shape, dtype, rng):
  a = matrices.general(rng, (2,), *shape, dtype)
  b, c = (matrices.general(rng, (2,), size, 3, dtype) for size in shape)
  for start, count in FALLBACK_RANGES:
    how = {"start": min(start, 7 - count), "count": count}

    def both(call, a, b, c, how=how, count=count):
      of_svd = lambda u, s, vh, *rest: (u[..., :, None, :] * vh.mT[..., None, :, :], s, rest)
      u, s, vh, *others, info = call(svd.svd_subset_factored_p)(a, **how)
      x = call(svd.svd_subset_solve_p)(
          a, *others[3:], s, u, vh, b[..., :count], c[..., :count], **how)
      return (
          of_svd(u, s, vh, *others[:3], info), x, of_svd(*call(svd.svd_subset_p)(a, **how)),
          call(svd.svdvals_subset_p)(a, **how))

    _compare_with_fallbacks(both, a, b, c)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_fallbacks_of_tridiagonal(dtype, rng):
  d, e = _diagonals(rng, 9, dtype, (2,))
  b = matrices.general(rng, (2,), 9, 3, dtype)
  for start, count in FALLBACK_RANGES:
    how = {"start": start, "count": count}

    def both(call, d, e, b, how=how, count=count):
      w, v, *rest = call(eigh_tridiagonal.eigh_tridiagonal_subset_p)(d, e, **how)
      x = call(eigh_tridiagonal.eigh_tridiagonal_subset_solve_p)(d, e, w, v, b[..., :count], **how)
      values = call(eigh_tridiagonal.eigvalsh_tridiagonal_subset_p)(d, e, **how)
      return w, _projector(v), rest, jax.tree.leaves(x), values

    _compare_with_fallbacks(both, d.real, e, b)


def _rotation(rng, dtype):
  c = matrices.general(rng, (), N, N, dtype)
  return c + c.conj().T


def _loss(c, decompose):
  """Depends on the values, and on the projector onto each vector."""

  def loss(a):
    w, v = decompose(a)
    form = jnp.sum(v.conj() * (c @ v), axis=-2).real
    return jnp.sum(jnp.sin(w) + jnp.cos(w) * form)

  return loss


def _near(x, y, limit):
  x, y = checks.wide(x), checks.wide(y)
  assert np.max(np.abs(x - y)) <= limit * np.max(np.abs(y))


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize(("start", "stop"), [(N - 5, N), (30, 60)], ids=str)
def test_derivatives(start, stop, dtype, rng):
  """First and second derivatives are those of the whole decomposition."""
  a, da = (matrices.hermitian(rng, (), N, dtype) for _ in range(2))
  c = _rotation(rng, dtype)
  whole = _loss(c, lambda a: tuple(x[..., start:stop] for x in linalg.eigh(a)))
  part = _loss(c, lambda a: linalg.eigh(a, subset_by_index=(start, stop)))

  def derivatives(loss):
    gradient = jax.grad(loss)
    forward = lambda a: jax.jvp(loss, (a,), (da,))[1]
    return jax.jit(lambda a: (
        gradient(a), forward(a), jax.jvp(gradient, (a,), (da,))[1], jax.grad(forward)(a)))(a)

  for x, y in zip(derivatives(part), derivatives(whole), strict=True):
    _near(x, y, 1e-10)


def test_derivatives_of_values(rng):
  a, da = (matrices.hermitian(rng, (), N, np.float64) for _ in range(2))
  functions = {
      "eigvalsh": (lambda a: linalg.eigvalsh(a, subset_by_index=(90, 97)),
                   lambda a: linalg.eigvalsh(a)[..., 90:97]),
      "svdvals": (lambda a: linalg.svdvals(a, subset_by_index=(3, 10)),
                  lambda a: linalg.svdvals(a)[..., 3:10])}
  for part, whole in functions.values():
    x, y = (jax.jit(lambda a, f=f: jax.jvp(
        jax.grad(lambda a: jnp.sum(jnp.sin(f(a)))), (a,), (da,)))(a) for f in (part, whole))
    for first, second in zip(x, y, strict=True):
      _near(first, second, 1e-10)


def _svd_loss(chosen):
  """A function of chosen singular triples that does not depend on their phases."""
  cut = slice(*chosen)

  def loss(a, part):
    u, s, vh = linalg.svd(a, full_matrices=False, subset_by_index=chosen if part else None)
    if not part:
      u, s, vh = u[:, cut], s[cut], vh[cut]
    return jnp.sum(jnp.cos(s) * (u[3] * vh[:, 5] + u[0] * u[0].conj() + u[1] * u[2].conj()).real)

  return loss


@pytest.mark.parametrize("chosen", [(2, 7), (M - 4, M), (10, 60)], ids=str)
@pytest.mark.parametrize("shape", [(M, M), (110, M), (M, 110)], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_derivatives_of_svd(shape, chosen, dtype, rng):
  """First and second derivatives are those of the whole decomposition."""
  a, da = (matrices.general(rng, (), *shape, dtype) for _ in range(2))
  loss = _svd_loss(chosen)

  def derivatives(part):
    gradient = jax.grad(lambda a: loss(a, part))
    return jax.jit(lambda a: (
        gradient(a), jax.jvp(lambda a: loss(a, part), (a,), (da,))[1],
        jax.jvp(gradient, (a,), (da,))[1]))(a)

  for x, y in zip(derivatives(True), derivatives(False), strict=True):
    _near(x, y, 1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_single_precision_of_svd_derivatives(dtype, rng):
  """They are those of float64 to rounding, times the condition of the vectors."""
  a, da = (matrices.general(rng, (), 110, M, dtype) for _ in range(2))
  loss = _svd_loss((2, 7))
  derivative = jax.jit(lambda a, da: jax.jvp(
      jax.grad(lambda a: loss(a, True)), (a,), (da,)))
  found = derivative(a, da)
  for x, y in zip(found, derivative(*(checks.wide(x) for x in (a, da))), strict=True):
    _near(x, y, 1e-2)


def test_equal_singular_values(rng):
  """A cut through equal values keeps the split as it is. Zeros have no finite quotients."""
  values = np.concatenate([np.linspace(9, 2, 40), np.ones(30), np.zeros(30)])
  a = matrices.with_singular_values(rng, values, 110, M, np.float64)
  da = matrices.general(rng, (), 110, M, np.float64)
  for chosen in ((35, 45), (65, 75)):
    (u, s, vh), (du, ds, dvh) = jax.jit(lambda a, da, chosen=chosen: jax.jvp(
        lambda a: tuple(linalg.svd(a, full_matrices=False, subset_by_index=chosen)),
        (a,), (da,)))(a, da)
    u, s, v, du, dv = (np.asarray(x) for x in (u, s, vh.T, du, dvh.T))
    np.testing.assert_allclose(ds, np.diag(u.T @ da @ v), atol=1e-12)
    # The rule of the whole decomposition, for bases that have the chosen vectors in them.
    everything = np.linalg.svd(a)
    full_u, full_v = everything[0], everything[2].T
    p, q = full_u.T @ da @ v, full_v.T @ da.T @ u
    size = np.concatenate([values, np.zeros(10)])
    small = 8 * 10 * np.finfo(float).eps * 9
    inverse = lambda x: np.where(abs(x) <= small, 0, 1 / np.where(abs(x) <= small, 1, x))
    q_all = np.concatenate([q, np.zeros((10, q.shape[1]))])
    row = s[None, :]
    together = (p + q_all) * inverse(row - size[:, None])
    apart = (p - q_all) * inverse(row + size[:, None])
    of_u, of_v = (together + apart) / 2, ((together - apart) / 2)[:M]
    of_u[M:] = p[M:] * inverse(row)
    np.testing.assert_allclose(du, full_u @ of_u, atol=1e-9)
    np.testing.assert_allclose(dv, full_v @ of_v, atol=1e-9)


def _diagonals(rng, n, dtype, batch=()):
  real = np.finfo(dtype).dtype
  d, e = matrices.general(rng, batch, 1, n, real), matrices.general(rng, batch, 1, n - 1, dtype)
  return d[..., 0, :].astype(dtype), e[..., 0, :]


def _dense(d, e):
  of = lambda d, e: np.diag(d) + np.diag(e, 1) + np.diag(e.conj(), -1)
  return np.stack([of(*x) for x in zip(d, e, strict=True)])


@pytest.mark.parametrize(("start", "stop"), RANGES, ids=str)
def test_tridiagonal(start, stop, dtype, rng):
  """Random matrices, a constant one, Wilkinson's and one that falls apart."""
  d, e = _diagonals(rng, N, dtype, (4,))
  d[1], e[1] = 2, -1
  d[2], e[2] = np.abs(np.arange(N) - N / 2), 1
  e[3, ::3] = 0
  how = {"subset_by_index": (start, stop)}
  w, v = jax.jit(lambda d, e: linalg.eigh_tridiagonal(d, e, **how))(d, e)
  alone = linalg.eigh_tridiagonal(d, e, eigvals_only=True, **how)
  by_select = linalg.eigh_tridiagonal(
      d, e, eigvals_only=True, select="i", select_range=(start, stop - 1))
  np.testing.assert_array_equal(alone, by_select)
  _check_eigh(_dense(d, e), start, stop, w, v, alone)


def test_small_tridiagonal_matrices_are_decomposed_whole():
  for n in (32, 33):
    d = np.ones(n)
    for only in (True, False):
      program = jax.make_jaxpr(lambda d, only=only: linalg.eigh_tridiagonal(
          d, d[1:], eigvals_only=only, subset_by_index=(3, 8)))(d)
      assert ("tridiagonal_subset" in str(program)) == (n > 32)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize(("start", "stop"), [(N - 5, N), (30, 60)], ids=str)
def test_derivatives_of_tridiagonal(start, stop, dtype, rng):
  """First and second derivatives are those of the whole decomposition."""
  pair, change = _diagonals(rng, N, dtype), _diagonals(rng, N, dtype)
  c = _rotation(rng, dtype)
  cut = slice(start, stop)
  whole = _loss(c, lambda x: tuple(y[..., cut] for y in linalg.eigh_tridiagonal(*x)))
  part = _loss(c, lambda x: linalg.eigh_tridiagonal(*x, subset_by_index=(start, stop)))
  values = lambda x: jnp.sum(jnp.sin(
      linalg.eigh_tridiagonal(*x, eigvals_only=True, subset_by_index=(start, stop))))
  all_values = lambda x: jnp.sum(jnp.sin(linalg.eigh_tridiagonal(*x, eigvals_only=True)[cut]))

  def derivatives(loss):
    return jax.jit(lambda x: jax.jvp(jax.grad(loss), (x,), (change,)))(pair)

  for ours, theirs in ((part, whole), (values, all_values)):
    for x, y in zip(*(jax.tree.leaves(derivatives(f)) for f in (ours, theirs)), strict=True):
      _near(x, y, 1e-8)


def test_tridiagonal_failures(rng):
  d, e = _diagonals(rng, 40, np.float64, (3,))
  spoilt = d.copy()
  spoilt[1, 3] = np.inf
  w, v = linalg.eigh_tridiagonal(spoilt, e, subset_by_index=(0, 2))
  assert np.isnan(w[1]).all() and np.isnan(v[1]).all()
  alone = linalg.eigh_tridiagonal(d[2], e[2], subset_by_index=(0, 2))
  for x, y in zip((w[2], v[2]), alone, strict=True):
    np.testing.assert_array_equal(x, y)
  assert linalg.eigh_tridiagonal(d, e, subset_by_index=(4, 4))[1].shape == (3, 40, 0)


@pytest.mark.parametrize("how, text", [
    ({"subset_by_index": (3, 2)}, "subset_by_index must be"),
    ({"select": "i", "select_range": (0, 3)}, r"0 <= first <= last < 3, got \(0, 3\)"),
    ({"select": "i"}, "select_range must be"),
    ({"select": "i", "select_range": (0, 1), "subset_by_index": (0, 1)}, "only one of select"),
])
def test_wrong_ranges_of_tridiagonal(how, text):
  with pytest.raises(ValueError, match=text):
    linalg.eigh_tridiagonal(jnp.ones(3), jnp.ones(2), **how)


def test_derivatives_in_many_digits(rng):
  """dw and dV of the largest pair, with the sign of the vector, against 30 digits."""
  n = 74
  values = np.concatenate([np.linspace(-1, 1, n - 1), [2]])
  a = matrices.with_eigenvalues(rng, values, np.float64)
  da = matrices.hermitian(rng, (), n, np.float64)
  (w, v), (dw, dv) = jax.jvp(
      lambda a: tuple(eigh.eigh_subset_p(
          a, lower=True, symmetrize=True, start=n - 1, count=1)[:2]), (a,), (da,))
  with mpmath.workdps(30):
    wide, change = mpmath.matrix(a.tolist()), mpmath.matrix(da.tolist())
    start = mpmath.matrix(np.asarray(v)[:, 0].tolist())
    # One inverse iteration doubles the 15 digits.
    x = mpmath.lu_solve(wide - mpmath.mpf(float(w[0])) * mpmath.eye(n), start)
    x /= mpmath.norm(x) * mpmath.sign((x.T * start)[0])
    value, slope = (x.T * wide * x)[0], (x.T * change * x)[0]
    # The bordered system of (A - w I) dx = (dw - dA) x and xᵀ dx = 0.
    bordered = mpmath.zeros(n + 1)
    bordered[:n, :n] = wide - value * mpmath.eye(n)
    bordered[:n, n], bordered[n, :n] = x, x.T
    right = mpmath.matrix(n + 1, 1)
    right[:n, 0] = slope * x - change * x
    dx = np.array(mpmath.lu_solve(bordered, right).tolist(), float)[:n, 0]
  assert abs(dw[0] - float(slope)) <= 1e-13
  np.testing.assert_allclose(dv[:, 0], dx, rtol=0, atol=1e-12)


def test_cut_through_equal_values(rng):
  """Derivatives are those of keeping the split, and second derivatives of the values are NaN."""
  values = np.concatenate([np.zeros(50), np.arange(1.0, N - 49)])
  a = matrices.with_eigenvalues(rng, values, np.float64)
  da = matrices.hermitian(rng, (), N, np.float64)
  chosen = {"subset_by_index": (46, 53)}
  (w, v), (dw, dv) = jax.jit(lambda a, da: jax.jvp(
      lambda a: tuple(linalg.eigh(a, **chosen)), (a,), (da,)))(a, da)
  coupling = np.asarray(v).T @ da @ np.asarray(v)
  np.testing.assert_allclose(dw, np.diag(coupling), atol=1e-12)
  # Components in the space of the equal values are zero; the others have the usual quotients.
  everything, vectors = np.linalg.eigh(a)
  gaps = np.asarray(w)[None, :] - everything[:, None]
  equal = np.abs(gaps) < 1e-8
  quotients = vectors.T @ da @ np.asarray(v) / np.where(equal, 1, gaps)
  expected = vectors @ np.where(equal, 0, quotients)
  np.testing.assert_allclose(dv, expected, atol=1e-10)
  second = jax.jit(lambda a: jax.jvp(lambda a: jax.jvp(
      lambda a: linalg.eigvalsh(a, **chosen), (a,), (da,))[1], (a,), (da,))[1])(a)
  assert np.isnan(second[:4]).all() and np.isfinite(second[5:]).all()


def test_pencils(rng):
  """The generalised problem has a subset too, by either parameter."""
  a = matrices.hermitian(rng, (2,), N, np.float64)
  b = a @ a.swapaxes(-1, -2) + N * np.eye(N)
  w, v = linalg.eigh_generalized(a, b, subset_by_index=(20, 26))
  assert np.max(np.abs(a @ v - b @ (v * w[:, None, :]))) <= 1e-10
  np.testing.assert_allclose(w, linalg.eigh_generalized(a, b)[0][:, 20:26], atol=1e-13)
  np.testing.assert_array_equal(w, linalg.eigh_generalized(a, b, eigvals=(20, 25))[0])


def test_lists():
  """A list is a pair too."""
  a = np.diag(np.arange(4.0))
  for function in (linalg.eigh, linalg.eigvalsh, linalg.svdvals, linalg.eigh_generalized):
    x, y = (jax.tree.leaves(function(a, subset_by_index=i)) for i in ([0, 3], (0, 3)))
    np.testing.assert_array_equal(x[0], y[0])
  with pytest.raises(TypeError, match="takes subset_by_index as an option"):
    linalg.eigh(a, subset_by_index=[[0], 3])


@pytest.mark.parametrize("wrong", [(1, 0), (-1, 3), (0, N + 1), 3, (1, 2, 3), (0.5, 2)], ids=str)
def test_wrong_ranges(wrong):
  a = np.eye(N)
  for function in (linalg.eigh, linalg.eigvalsh, linalg.svdvals, linalg.eigh_generalized):
    with pytest.raises(ValueError, match="subset_by_index must be"):
      function(a, subset_by_index=wrong)
  with pytest.raises(ValueError, match="needs full_matrices=False"):
    linalg.svd(a, subset_by_index=(0, 2))


@pytest.mark.parametrize("count", [2, 20])
def test_derivatives_of_parts_at_all_scales(count, rng):
  """Few values are found one by one, and many by divide and conquer."""
  a, da = rng.standard_normal((2, 90, 80))

  def tangents(scale):
    f = lambda a: linalg.svd(a, full_matrices=False, subset_by_index=(0, count))
    u, s, vh = jax.jvp(f, (a * scale,), (da * scale,))[1]
    return u, s / scale, vh

  for found, expected in zip(tangents(2.0**450), tangents(1.0), strict=True):
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_tangents_of_nan_stay_alone(rng):
  """A tangent with NaN changes no bit of its neighbours' derivatives, nor of later calls."""
  a, da = rng.standard_normal((2, 5, 131, 131))
  a = a + np.swapaxes(a, -1, -2)
  f = jax.jit(lambda a, da: jax.jvp(
      lambda a: tuple(linalg.eigh(a, subset_by_index=(0, 3))), (a,), (da,))[1])
  expected = f(a, da)
  spoilt = da.copy()
  spoilt[1] = np.nan
  found = f(a, spoilt)
  others = [0, 2, 3, 4]
  for x, y in zip(found, expected, strict=True):
    assert np.isnan(x[1]).any()
    np.testing.assert_array_equal(x[np.array(others)], y[np.array(others)])
  for x, y in zip(f(a, da), expected, strict=True):
    np.testing.assert_array_equal(x, y)
