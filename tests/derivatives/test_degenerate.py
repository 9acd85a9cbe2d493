"""Derivatives where the textbook's formula divides by zero.

Stock JAX gives NaN at equal eigenvalues and at reflectors that are the identity. A gradient that is
finite there must also be right. test_determinants.py has determinants.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import derivatives
import linalg
import matrices
import selection
from linalg._catalogue import checks
from quick import quick_jit

COMPILES = True
ONE_IN = 3


VALUES = {
    "identity": np.ones(5),
    "zero": np.zeros(5),
    "two pairs": np.array([1, 1, 2.5, 4, 4]),
    "triple": np.array([-2, 3, 3, 3, 10.0]),
    "opposite": np.array([-1, -1, 0, 1, 1]),
}


def _degenerate(rng, dtype):
  """Returns each of VALUES as a diagonal matrix and in a random unitary basis."""
  u = matrices.unitary(rng, 5, dtype)
  turned = np.stack([(u * w) @ u.conj().T for w in VALUES.values()])
  straight = np.stack([np.diag(w) for w in VALUES.values()])
  return np.concatenate([turned, straight]).astype(dtype)


def _hermitian(rng, batch, dtype):
  return matrices.hermitian(rng, batch, 5, dtype)


@cases.each_double
def test_spectral_sums_at_equal_eigenvalues(dtype, rng):
  """d Σ f(w) = tr(f'(A) dA), from eigh and from eigvalsh."""
  a = _degenerate(rng, dtype)
  direction = _hermitian(rng, a.shape[:1], dtype)
  values = lambda function: lambda a: jnp.sum(jnp.sin(function(a)) + function(a) ** 3, axis=-1)
  w, v = np.linalg.eigh(a)
  derivative = (v * (np.cos(w) + 3 * w**2)[:, None, :]) @ checks.adjoint(v)
  expected = np.trace(derivative @ direction, axis1=-2, axis2=-1).real
  for function in (linalg.eigvalsh, lambda a: linalg.eigh(a).eigenvalues):
    f = values(function)
    gradient, slope, curvature = quick_jit(lambda a: (
        jax.grad(lambda a: jnp.sum(f(a)))(a), jax.jvp(f, (a,), (direction,))[1],
        jax.jvp(lambda a: jax.jvp(f, (a,), (direction,))[1], (a,), (direction,))[1]))(a)
    scale = 1e-12 * np.abs(derivative).max()
    np.testing.assert_allclose(slope, expected, rtol=0, atol=100 * scale)
    np.testing.assert_allclose(gradient, derivative.conj(), rtol=0, atol=10 * scale)
    assert np.isnan(curvature).all()


def test_second_derivatives_of_eigenvalues(rng):
  """For a symmetric function they are right, or NaN where eigenvalues are equal, in all modes."""
  a = np.stack([np.eye(3), np.diag([1.0, 2, 3]), np.diag([1.0, 1 + 1e-16, 3])])
  direction = matrices.hermitian(rng, (), 3, np.float64)
  inverse = np.linalg.inv(a)
  expected = -np.trace(inverse @ direction @ inverse @ direction, axis1=1, axis2=2)
  expected[[0, 2]] = np.nan

  def curvatures(a):
    f = lambda t: jnp.sum(jnp.log(linalg.eigvalsh(a + t * direction)))
    slope = jax.grad(f)
    along = lambda g: jax.jvp(g, (0.0,), (1.0,))[1]
    return jax.grad(slope)(0.0), along(slope), along(lambda t: jax.jvp(f, (t,), (1.0,))[1])

  for found in quick_jit(jax.vmap(curvatures))(a):
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_second_derivatives_of_factors():
  """At equal values those through vectors are NaN, and first ones are not; others are right."""
  a = np.stack([np.diag([2.0, 2, 5]), np.diag([1.0, 2, 3])])
  e = np.broadcast_to(np.array([[1.0, 2, 3], [2, -1, 1], [3, 1, 2]]), a.shape)
  functions = {
      "eigh": lambda a: jnp.sum(linalg.eigh(a)[0] ** 3, axis=-1),
      "projector": lambda a: linalg.eigh(a)[1][..., 0, 2] * linalg.eigh(a)[1][..., 1, 2],
      "svd": lambda a: jnp.sum(linalg.svd(a)[1] ** 3, axis=-1),
      "svdvals": lambda a: jnp.sum(linalg.svdvals(a) ** 3, axis=-1),
      "least": lambda a: linalg.matrix_norm(a, ord=-2),
      "cond": linalg.cond,
  }
  # The nuclear norm is smooth here, and so is a value that differs from all others.
  right = {
      "nuclear": lambda a: linalg.matrix_norm(a, ord="nuc"),
      "largest": lambda a: linalg.matrix_norm(a, ord=2),
  }

  @quick_jit
  def derivatives(a):
    first = lambda f: lambda a: jax.jvp(f, (a,), (e,))[1]
    both = lambda f: (first(f)(a), first(first(f))(a))
    return {name: both(f) for name, f in (functions | right).items()}

  found = derivatives(a)
  for name in functions:
    slope, curvature = found[name]
    assert np.isfinite(slope).all(), name
    np.testing.assert_array_equal(np.isnan(curvature), [True, False], name)
  np.testing.assert_allclose(found["nuclear"][1], 0, atol=1e-13)
  # λ″ = 2 Σ cᵢ² / (λ - λᵢ)
  np.testing.assert_allclose(found["largest"][1], [2 * 10 / 3, 2 * (9 / 2 + 1)], rtol=1e-13)


def test_second_derivatives_of_each_value():
  """A value that differs from all others has one beside equal values, in forward mode."""
  e = np.array([[1.0, 2, 0], [2, -1, 3], [0, 3, 2]])
  eye = np.eye(3)
  functions = (
      linalg.eigvalsh, lambda a: linalg.eigh(a)[0], linalg.eigvals, linalg.svdvals,
      lambda a: linalg.svd(a)[1], lambda a: linalg.svd(a, compute_uv=False, hermitian=True),
      lambda a: linalg.eigh_generalized(a, eye)[0],
      lambda a: linalg.eigh_generalized(a, eye, eigvals_only=True),
      lambda a: linalg.eigh_tridiagonal(jnp.diag(a), jnp.diag(a, 1))[0],
      lambda a: linalg.eigh_tridiagonal(jnp.diag(a), jnp.diag(a, 1), eigvals_only=True))
  slope = lambda f: lambda a: jax.jvp(f, (a,), (e,))[1]
  curvatures = quick_jit(lambda a: [
      jnp.sort(jax.jvp(slope(f), (a,), (e,))[1].real) for f in functions])(np.diag([2.0, 2, 5]))
  for found in curvatures:
    # λ″ = 2 Σ cᵢ² / (λ - λᵢ), and sort puts NaN last.
    np.testing.assert_allclose(found, [6, np.nan, np.nan], rtol=1e-12)


def test_second_derivatives_at_opposite_eigenvalues():
  """The singular values of a Hermitian matrix have them where only its eigenvalues' sizes agree."""
  a = np.stack([np.diag([1.0, -1, 3]), np.diag([1.0, 1, 3])])
  e = np.broadcast_to(np.array([[1.0, 2, 3], [2, -1, 1], [3, 1, 2]]), a.shape)
  sums = lambda a: jnp.sum(linalg.svd(a, compute_uv=False, hermitian=True) ** 3, axis=-1)
  slope = lambda a: jax.jvp(sums, (a,), (e,))[1]
  w = np.diagonal(a[0])
  # d²|λ|³ = 6 |λ| (λ′)² + 3 λ |λ| λ″, where λ″ = 2 Σ eᵢⱼ² / (λ - λⱼ)
  with np.errstate(divide="ignore"):
    inverse = np.where(np.eye(3), 0, 1 / (w[:, None] - w))
  second = 2 * np.sum(e[0] ** 2 * inverse, axis=1)
  expected = np.sum(6 * np.abs(w) * np.diagonal(e[0]) ** 2 + 3 * w * np.abs(w) * second)
  _, found = quick_jit(lambda a: jax.jvp(slope, (a,), (e,)))(a)
  np.testing.assert_allclose(found, [expected, np.nan], rtol=1e-12)


@cases.each_double
def test_projectors_at_equal_eigenvalues(dtype, rng):
  """dP = Σ (P dA Q + Q dA P) / (λ_P - λ_Q) over the other eigenspaces Q, and dI = 0."""
  a = _degenerate(rng, dtype)
  direction = _hermitian(rng, a.shape[:1], dtype)
  values = np.concatenate([list(VALUES.values())] * 2)
  # The projectors onto the eigenspaces of the least and of the greatest eigenvalue, and the
  # identity.
  masks = np.stack(
      [values == values[:, :1], values == values[:, -1:], np.ones_like(values)], axis=1)
  masks = masks.astype(dtype)

  def projectors(a):
    v = linalg.eigh(a).eigenvectors
    return jnp.einsum("bik,bpk,bjk->bpij", v, masks, v.conj())

  cotangent = _hermitian(rng, (len(a), 3), dtype)

  @quick_jit
  def derivatives(a):
    loss = lambda a: jnp.sum((cotangent * projectors(a)).real)
    return jax.jvp(projectors, (a,), (direction,))[1], jax.grad(loss)(a)

  slope, gradient = derivatives(a)
  w, v = np.linalg.eigh(a)
  rotated = checks.adjoint(v) @ direction @ v
  gap = values[:, :, None] - values[:, None, :]
  with np.errstate(divide="ignore"):
    inverse = np.where(gap == 0, 0, 1 / gap)
  for p in range(3):
    mask = masks[:, p].real
    difference = mask[:, :, None] - mask[:, None, :]
    expected = v @ (rotated * difference * inverse) @ checks.adjoint(v)
    np.testing.assert_allclose(
        slope[:, p], expected, rtol=0, atol=1e-11 * np.abs(expected).max(initial=1))
  along = np.sum((cotangent * slope).real, axis=(1, 2, 3))
  back = np.sum((gradient * direction).real, axis=(1, 2))
  np.testing.assert_allclose(back, along, rtol=0, atol=1e-11 * np.abs(along).max())


@cases.each_double
def test_nearly_equal_eigenvalues(dtype, rng):
  """A resolved gap must be used: masking it would give a wrong derivative without an error."""
  gap = 1e-6
  u = matrices.unitary(rng, 3, dtype)
  a = (u * np.array([1, 1 + gap, 3])) @ u.conj().T
  direction = _hermitian(rng, (), dtype)[:3, :3]
  projector = lambda a: (v := linalg.eigh(a).eigenvectors[:, :1]) @ v.mT.conj()
  slope = jax.jvp(projector, (a,), (direction,))[1]
  rotated = u.conj().T @ direction @ u
  pair = rotated[0, 1] / -gap * np.outer(u[:, 0], u[:, 1].conj())
  np.testing.assert_allclose(slope, pair + pair.conj().T, rtol=0, atol=1e-2 / gap * 1e-3)
  assert np.abs(slope).max() > 1e-2 / gap


SINGULAR_VALUES = {
    "unitary": np.ones(4),
    "two pairs": np.array([3.0, 3, 1, 1]),
    "triple": np.array([5.0, 2, 2, 2]),
    "near": np.array([2 + 1e-5, 2, 1, 0.5]),
}
SVD_SHAPES = [(4, 4), (6, 4), (4, 6)]


def _with_values(rng, shape, dtype, values):
  return np.stack([
      matrices.with_singular_values(rng, s, *shape, dtype) for s in values]).astype(dtype)


def _difference(function, a, direction, step=1e-3):
  """The derivative of a NumPy function, by central differences of sixth order."""
  points = [function(a + k * step * direction) for k in range(-3, 4)]
  return np.tensordot(derivatives.STENCIL, points, 1) / step


def _assert_derivatives(function, a, direction, expected, rng, tolerance):
  """Forward mode gives `expected`, and reverse mode its transpose."""
  cotangent = matrices.general(rng, expected.shape, 1, 1, expected.dtype)[..., 0, 0]

  @quick_jit
  def both(a):
    value, pullback = jax.vjp(function, a)
    return jax.jvp(function, (a,), (direction,))[1], pullback(cotangent.astype(value.dtype))[0]

  slope, gradient = both(a)
  scale = np.abs(expected).max(initial=1)
  np.testing.assert_allclose(slope, expected, rtol=0, atol=tolerance * scale)
  along = np.sum((cotangent * slope).real)
  back = np.sum((gradient * direction).real)
  np.testing.assert_allclose(back, along, rtol=0, atol=1e-9 * max(abs(along), scale))


@cases.each_double
@pytest.mark.parametrize("full_matrices", [False, True], ids=["thin", "full"])
@pytest.mark.parametrize("shape", SVD_SHAPES, ids=str)
def test_polar_factor_at_equal_singular_values(shape, full_matrices, dtype, rng):
  """The relative rotation of U and V is determined here, but their common one is not."""
  k = min(shape)
  a = _with_values(rng, shape, dtype, SINGULAR_VALUES.values())
  direction = matrices.general(rng, a.shape[:1], *shape, dtype)

  def polar(a, svd):
    u, _, vh = svd(a, full_matrices=full_matrices)
    return u[..., :k] @ vh[..., :k, :]

  expected = _difference(lambda a: polar(a, np.linalg.svd), a, direction)
  _assert_derivatives(lambda a: polar(a, linalg.svd), a, direction, expected, rng, 1e-9)


@cases.each_double
@pytest.mark.parametrize("shape", SVD_SHAPES, ids=str)
def test_subspaces_at_equal_singular_values(shape, dtype, rng):
  """Returns projectors onto the singular spaces of the largest values and onto both null spaces."""
  values = [SINGULAR_VALUES["two pairs"], SINGULAR_VALUES["unitary"]]
  a = _with_values(rng, shape, dtype, values)
  direction = matrices.general(rng, a.shape[:1], *shape, dtype)

  def projectors(a, svd):
    u, s, vh = svd(a, full_matrices=True)
    v = vh.mT.conj()
    largest = (s > s[..., :1] - 0.5).astype(u.dtype)
    spaces = [
        (x[..., :4] * largest[..., None, :]) @ x[..., :4].mT.conj() for x in (u, v)]
    null = [x[..., 4:] @ x[..., 4:].mT.conj() for x in (u, v)]
    library = np if svd is np.linalg.svd else jnp
    return library.concatenate([x.reshape(len(a), -1) for x in (*spaces, *null)], axis=-1)

  expected = _difference(lambda a: projectors(a, np.linalg.svd), a, direction)
  _assert_derivatives(lambda a: projectors(a, linalg.svd), a, direction, expected, rng, 1e-8)


@cases.each_double
@pytest.mark.parametrize("shape", SVD_SHAPES, ids=str)
def test_sums_of_singular_values(shape, dtype, rng):
  """Nuclear and other Schatten norms at equal values, with and without the vectors."""
  a = _with_values(rng, shape, dtype, SINGULAR_VALUES.values())
  direction = matrices.general(rng, a.shape[:1], *shape, dtype)
  sums = lambda s: (s + s**3).sum(-1)
  expected = _difference(lambda a: sums(np.linalg.svd(a, compute_uv=False)), a, direction)
  for values in (linalg.svdvals, lambda a: linalg.svd(a).S,
                 lambda a: linalg.svd(a, full_matrices=False).S):
    _assert_derivatives(lambda a, f=values: sums(f(a)), a, direction, expected, rng, 1e-9)


@cases.each_double
@pytest.mark.parametrize("shape", SVD_SHAPES, ids=str)
def test_svd_of_rank_deficient_matrices(shape, dtype, rng):
  """Derivatives are finite at zero singular values, and right for the space of the others."""
  values = [np.array([3, 2, 0, 0.0]), np.zeros(4), np.array([1, 1, 0, 0.0])]
  a = _with_values(rng, shape, dtype, values)
  direction = matrices.general(rng, a.shape[:1], *shape, dtype)
  for full_matrices in (False, True):
    function = lambda a, full=full_matrices: tuple(linalg.svd(a, full))
    tangents = quick_jit(lambda a, f=function: jax.jvp(f, (a,), (direction,))[1])(a)
    assert all(np.isfinite(x).all() for x in tangents)

  def leading(a, svd):
    u, _, vh = svd(a, full_matrices=False)
    return u[..., :2] @ vh[..., :2, :]

  slope = jax.jvp(lambda a: leading(a, linalg.svd), (a,), (direction,))[1]
  expected = _difference(lambda a: leading(a, np.linalg.svd), a, direction, 1e-4)
  for i in (0, 2):
    np.testing.assert_allclose(slope[i], expected[i], rtol=0, atol=1e-8)


def test_svd_of_a_hermitian_matrix(rng):
  """The derivative for hermitian=True is that of eigh, whichever sign the eigenvalues have."""
  a = matrices.hermitian(rng, (3,), 4, np.complex128)
  direction = matrices.hermitian(rng, (3,), 4, np.complex128)

  def invariants(a, svd):
    u, s, vh = svd(a, hermitian=True)
    polar, value = u @ vh, (u * s[..., None, :].astype(u.dtype)) @ vh
    library = np if svd is np.linalg.svd else jnp
    return library.concatenate([polar, value], axis=-1)

  expected = _difference(lambda a: invariants(a, np.linalg.svd), a, direction)
  _assert_derivatives(lambda a: invariants(a, linalg.svd), a, direction, expected, rng, 1e-8)


@cases.each_double
def test_general_matrices_with_equal_eigenvalues(dtype, rng):
  """d Σ f(w) = tr(f'(A) dA) for a diagonalizable A, and projectors onto eigenspaces are right."""
  values = np.array([2, 2, 2, -1.0])
  x = matrices.well_conditioned(rng, (), 4, dtype)
  a = x @ np.diag(values) @ np.linalg.inv(x)
  direction = matrices.general(rng, (), 4, 4, dtype)
  derivative = x @ np.diag(3 * values**2) @ np.linalg.inv(x)
  for function in (linalg.eigvals, lambda a: linalg.eig(a).eigenvalues):
    slope = jax.jvp(lambda a, f=function: jnp.sum(f(a) ** 3), (a,), (direction,))[1]
    np.testing.assert_allclose(slope, np.trace(derivative @ direction), rtol=1e-9)

  def projector(a):
    w, v = linalg.eig(a)
    return (v * (w.real > 0)[None].astype(v.dtype)) @ jnp.linalg.inv(v)

  slope = jax.jvp(projector, (a,), (direction,))[1]
  p = x @ np.diag(values > 0) @ np.linalg.inv(x)
  q = np.eye(4) - p
  expected = (p @ direction @ q + q @ direction @ p) / 3
  np.testing.assert_allclose(slope, expected, rtol=0, atol=1e-10)


@cases.each_double
def test_generalised_eigenvalues_that_are_equal(dtype, rng):
  """d Σ w³ = 3 tr((B⁻¹ A)² d(B⁻¹ A)) at A = 2 B, where every eigenvalue is 2."""
  b = matrices.positive_definite(rng, (), 4, dtype)
  da, db = matrices.hermitian(rng, (2,), 4, dtype)
  cubes = lambda a, b: jnp.sum(linalg.eigh_generalized(a, b)[0] ** 3)
  slope = jax.jvp(cubes, (2 * b, b), (da, db))[1]
  expected = 12 * np.trace(np.linalg.solve(b, da - 2 * db)).real
  np.testing.assert_allclose(slope, expected, rtol=1e-10)


@cases.each_double
def test_tridiagonal_matrices_with_equal_eigenvalues(dtype):
  """The derivative by an off-diagonal element that is zero."""
  d, e = np.ones(3, dtype), np.zeros(2, dtype)
  cubes = lambda d, e: jnp.sum(linalg.eigh_tridiagonal(d, e)[0] ** 3)
  gradients = jax.grad(cubes, (0, 1))(d, e)
  np.testing.assert_allclose(gradients[0], 3 * np.ones(3))
  np.testing.assert_allclose(gradients[1], np.zeros(2), atol=1e-14)


@cases.each_double
@pytest.mark.parametrize("output", ["real", "complex"])
def test_schur_form_with_equal_eigenvalues(output, dtype, rng):
  """Traces of powers of T are those of A. No gap between equal eigenvalues is a divisor."""
  a = np.stack([np.eye(4), np.diag([1, 1, 2, 2]), np.kron(np.eye(2), [[1, 2], [-3, 1]])])
  a = a.astype(dtype)
  direction = matrices.general(rng, (3,), 4, 4, dtype)

  def trace(a):
    t, z = linalg.schur(a, output)
    return jnp.einsum("bij,bjk,bki->b", t, t, t), z

  (_, z), (slope, dz) = jax.jvp(trace, (a,), (direction,))
  expected = 3 * np.trace(a @ a @ direction, axis1=-2, axis2=-1)
  np.testing.assert_allclose(slope, expected, rtol=0, atol=1e-11)
  skew = checks.adjoint(np.asarray(z)) @ dz
  np.testing.assert_allclose(skew + checks.adjoint(skew), np.zeros_like(skew), atol=1e-12)


TRIANGULAR = [(3, 3), (5, 3), (3, 5), (4, 1)]


@cases.each_double
@pytest.mark.parametrize("shape", TRIANGULAR, ids=str)
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr_of_an_upper_triangle(mode, shape, dtype, rng):
  """Every reflector is the identity here, and the formula for their complement divides by zero."""
  a = np.triu(matrices.general(rng, (2,), *shape, dtype)) + 2 * np.eye(*shape)
  index = np.arange(min(shape))
  a[:, index, index] = a[:, index, index].real
  direction = matrices.general(rng, (2,), *shape, dtype)
  function = lambda a: tuple(linalg.qr(a, mode))

  @quick_jit
  def derivatives(a):
    gradient = jax.grad(lambda a: sum(jnp.sum(jnp.abs(x - 1) ** 2) for x in function(a)))
    return *jax.jvp(function, (a,), (direction,)), gradient(a)

  (q, r), (dq, dr), gradient = derivatives(a)
  close = lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=1e-12 * np.abs(x).max())
  close(direction, dq @ r + q @ dr)
  skew = checks.adjoint(q) @ dq
  np.testing.assert_allclose(skew + checks.adjoint(skew), np.zeros_like(skew), atol=1e-12)
  assert np.all(np.tril(dr, -1) == 0)
  along = np.sum((q - 1).conj() * dq, axis=(1, 2)) + np.sum((r - 1).conj() * dr, axis=(1, 2))
  back = np.sum(gradient * direction, axis=(1, 2))
  close(back.real, 2 * along.real)


@pytest.mark.parametrize("n", [4, 40])
def test_qr_of_a_nearly_singular_matrix(n, rng):
  """Q is a function of all columns but the last, however small the last element of R is."""
  a, direction, weights = rng.standard_normal((3, n, n))
  near = a[:, :-1] @ rng.standard_normal(n - 1) / np.sqrt(n)
  a[:, -1] = near + 1e-13 * rng.standard_normal(n)
  apart = np.concatenate([a[:, :-1], np.linalg.qr(a)[0][:, -1:]], axis=1)
  direction, weights = (np.stack([x, x]) for x in (direction, weights))
  q = lambda a: linalg.qr(a)[0]
  loss = lambda a: jnp.sum(weights * q(a))
  along = lambda f, a: jax.jvp(f, (a,), (direction,))

  @quick_jit
  def derivatives(a):
    first, second = along(lambda a: along(q, a)[1], a)
    gradients = along(jax.grad(loss), a)
    turned = jax.grad(lambda a: jnp.sum(direction * jax.grad(loss)(a)))(a)
    return first, second, *(x[..., :-1] for x in (*gradients, turned))

  for x, y in derivatives(np.stack([a, apart])):
    np.testing.assert_allclose(x, y, rtol=0, atol=1e-11 * np.abs(y).max())


def test_second_derivatives_of_complete_qr_of_an_upper_triangle(rng):
  """They agree in all modes, though the factors of the reflectors' formula are singular."""
  direction = matrices.general(rng, (), 4, 3, np.float64)
  f = lambda t: jnp.sum(jnp.cos(linalg.qr(2 * jnp.eye(4, 3) + t * direction, "complete")[0]))
  slope = jax.grad(f)
  along = lambda g: lambda t: jax.jvp(g, (t,), (1.0,))[1]
  forward, *others = quick_jit(
      lambda t: (along(along(f))(t), along(slope)(t), jax.grad(slope)(t)))(0.0)
  assert np.isfinite(forward)
  np.testing.assert_allclose(others, forward, rtol=1e-12)


@cases.each_double
def test_raw_qr_of_an_upper_triangle(dtype, rng):
  """A reflector that is the identity has no direction, but a finite derivative."""
  a = np.triu(matrices.general(rng, (), 4, 3, dtype).real).astype(dtype)
  tangents = jax.jvp(lambda a: tuple(linalg.qr(a, mode="raw")), (a,), (np.ones_like(a),))[1]
  assert all(np.isfinite(x).all() for x in tangents)


# Functions whose first result is NaN for the matrix that fails, and has a derivative.
FAILING = [
    function for function in cases.CATALOGUE
    if function.fails and function.module != "linalg.distributed"
    and function.name not in ("eigh_gauge_error", "lu_factor", "matrix_rank")]
QUICK = ("expm", "solve", "scipy.solve_continuous_are")


@pytest.mark.parametrize("function", [
    pytest.param(x, id=x.full_name, marks=() if x.full_name in QUICK else pytest.mark.extended)
    for x in FAILING])
def test_derivatives_where_a_result_is_nan(function, rng):
  """They are NaN too. The derivative of `where` would be 0."""
  a, direction = cases.failing_matrix(function)[None], matrices.hermitian(rng, (1,), 3, np.float64)
  f = lambda a: cases.failing(function, a)
  value, slope, gradient = quick_jit(lambda a: (
      *jax.jvp(f, (a,), (direction,)), jax.grad(lambda a: jnp.sum(f(a).real))(a)))(a)
  assert all(np.isnan(x).any() for x in (value, slope, gradient))


@selection.one_in(3)
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
@cases.each(cases.DIFFERENTIABLE_CASES)
def test_empty(case, batch, rng):
  """Matrices without elements have derivatives of their shapes. Indices -1 and -2 do not exist."""
  operands = [np.asarray(x) for x in case.operands(rng, batch, 0, 0, np.float64)]
  function, moving = cases.of_inexact(lambda *x: case.invariant(case.results(*x)), operands)
  results, tangents = jax.jvp(function, moving, moving)
  assert [x.shape for x in tangents] == [x.shape for x in results]
  assert all(np.all(np.asarray(x) == 0) for x in tangents)
  loss = lambda *moving: sum(jnp.sum(x.real) for x in function(*moving))
  gradients = jax.grad(loss, tuple(range(len(moving))))(*moving)
  assert [x.shape for x in gradients] == [x.shape for x in moving]


@cases.each_double
def test_one_by_one(dtype, rng):
  """The derivatives of every operation at n = 1 are those of a scalar's functions."""
  a = matrices.positive_definite(rng, (), 1, dtype).real.astype(dtype)
  x, one = a[0, 0].real, np.ones((1, 1), dtype)
  expected = {
      "cholesky": (linalg.cholesky, 1 / (2 * np.sqrt(x))),
      "lu": (lambda a: linalg.lu(a)[0], 1),
      "qr": (lambda a: jnp.abs(linalg.qr(a).R), 1),
      "complete": (lambda a: jnp.abs(linalg.qr(a, "complete").R), 1),
      "pivoted": (lambda a: jnp.abs(linalg.qr(a, pivoting=True)[1]), 1),
      "raw": (lambda a: jnp.abs(linalg.qr(a, mode="raw").Q), 1),
      "eigh": (lambda a: linalg.eigh(a).eigenvalues, 1),
      "eigvalsh": (linalg.eigvalsh, 1),
      "eig": (lambda a: linalg.eig(a).eigenvalues, 1),
      "eigvals": (linalg.eigvals, 1),
      "schur": (lambda a: linalg.schur(a)[0], 1),
      "hessenberg": (linalg.hessenberg, 1),
      "svd": (lambda a: linalg.svd(a).S, 1),
      "svdvals": (linalg.svdvals, 1),
      "eigh_tridiagonal": (lambda a: linalg.eigh_tridiagonal(a[0], a[0, :0])[0], 1),
      "eigh_generalized": (lambda a: linalg.eigh_generalized(one, a)[0], -1 / x**2),
      "solve": (lambda a: linalg.solve(a, one), -1 / x**2),
      "inv": (linalg.inv, -1 / x**2),
      "det": (linalg.det, 1),
      "slogdet": (lambda a: linalg.slogdet(a).logabsdet, 1 / x),
      "triangular_solve": (lambda a: linalg.triangular_solve(a, one), -1 / x**2),
      "cho_solve": (lambda a: linalg.cho_solve((a, True), one), -2 / x**3),
      "lu_solve": (lambda a: linalg.lu_solve((a, np.zeros(1, np.int32)), one), -1 / x**2),
  }
  slopes = quick_jit(lambda a: {
      name: jax.jvp(f, (a,), (one,))[1] for name, (f, _) in expected.items()})(a)
  gradients = quick_jit(lambda a: {
      name: jax.grad(lambda a, f=f: jnp.sum(f(a).real))(a) for name, (f, _) in expected.items()})(a)
  for name, (_, value) in expected.items():
    np.testing.assert_allclose(jnp.ravel(slopes[name]), [value], rtol=1e-12, err_msg=name)
    np.testing.assert_allclose(jnp.ravel(gradients[name]), [value], rtol=1e-12, err_msg=name)


def test_close_eigenvalues_in_float32(rng):
  """A gap far above rounding is not a repeated eigenvalue, however large the matrix is."""
  n = 256
  u = matrices.unitary(rng, n, np.float64)
  w = np.linspace(1, 2, n)
  w[1] = w[0] + 4e-4
  a = (u * w) @ u.T
  direction = matrices.hermitian(rng, (), n, np.float64)

  def projector(a):
    v = linalg.eigh(a).eigenvectors[:, :1]
    return v @ v.T

  slope = lambda dtype: np.asarray(jax.jvp(
      projector, (a.astype(dtype),), (direction.astype(dtype),))[1])
  expected = slope(np.float64)
  error = np.abs(slope(np.float32) - expected).max()
  assert error <= 0.02 * np.abs(expected).max()


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_singular_pencil(dtype, rng):
  """qz of a singular pencil has no derivative. The pencil beside it keeps its own."""
  a, b, da = (rng.standard_normal((2, 3, 3)).astype(dtype) for _ in range(3))
  a[1, :, 2] = b[1, :, 2] = 0
  tangents = jax.jvp(lambda a: tuple(linalg.scipy.qz(a, b)), (a,), (da,))[1]
  for tangent in tangents:
    assert np.isfinite(tangent[0]).all()
    assert np.isnan(tangent[1]).all()


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_procrustes_of_low_rank(dtype, rng):
  """The rotation is not determined, so its derivative is NaN. Its value and neighbours stay."""
  a, b, da = (rng.standard_normal((2, 4, 3)).astype(dtype) for _ in range(3))
  a[1, :, 2] = 0
  value, tangent = jax.jvp(
      lambda a: linalg.scipy.orthogonal_procrustes(a, b)[0], (a,), (da,))
  np.testing.assert_allclose(
      np.swapaxes(value.conj(), -1, -2) @ value, np.tile(np.eye(3), (2, 1, 1)), atol=1e-13)
  assert np.isfinite(tangent[0]).all()
  assert np.isnan(tangent[1]).all()


@pytest.mark.parametrize("n", [3, 33])  # a kernel, and its formula
def test_qr_without_a_last_column(n, rng):
  """Q and R of a real square A do not depend on 1 / R's last element, which is 0 here."""
  a, da = rng.standard_normal((2, n, n))
  a[:, -1] = 0
  weights = rng.standard_normal((2, n, n))
  f = lambda a: sum(jnp.sum(c * x) for c, x in zip(weights, linalg.qr(a), strict=True))
  step = 1e-6
  difference = (f(a + step * da) - f(a - step * da)) / (2 * step)
  forward = jax.jvp(f, (a,), (da,))[1]
  backward = jnp.sum(jax.grad(f)(jnp.asarray(a)) * da)
  np.testing.assert_allclose([forward, backward], [difference] * 2, rtol=1e-6)
