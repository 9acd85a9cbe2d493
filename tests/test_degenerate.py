"""Derivatives where the textbook's formula divides by zero.

Stock JAX gives NaN at equal eigenvalues and at reflectors that are the identity. A gradient that is
finite there must also be right.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import checks
import linalg
import matrices

each_dtype = pytest.mark.parametrize(
    "dtype", [np.float64, np.complex128], ids=lambda dtype: dtype.__name__)


def _adjugate(a):
  """By cofactors: right for every rank."""
  n = a.shape[-1]
  result = np.empty_like(a)
  for i, j in np.ndindex(n, n):
    minor = np.delete(np.delete(a, i, 0), j, 1)
    result[j, i] = (-1) ** (i + j) * (np.linalg.det(minor) if n > 1 else 1)
  return result


def _gradient_of_det(a):
  holomorphic = np.iscomplexobj(a)
  return np.asarray(jax.jit(jax.vmap(jax.grad(linalg.det, holomorphic=holomorphic)))(a))


def _assert_adjugate(gradient, a):
  for one, g in zip(a, gradient, strict=True):
    expected = _adjugate(one).T
    scale = max(np.abs(expected).max(), np.abs(one).max() ** (len(one) - 1))
    np.testing.assert_allclose(g, expected, rtol=0, atol=1e-12 * scale)


@each_dtype
@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_det_whose_last_pivot_is_zero(n, dtype, rng):
  """det A A⁻¹ is 0 * inf where A is singular; the adjugate is finite."""
  a = matrices.general(rng, (5,), n, n, dtype)
  a[0, :, -1] = 0
  a[1, -1] = 0
  if n > 1:
    # Small integers: the elimination is exact.
    a[2] = np.triu(np.ones((n, n)))
    a[2, -1] = a[2, 0]
    a[3] = np.diag(np.arange(n)[::-1])[::-1]
  else:
    a[2:4] = 0
  _assert_adjugate(_gradient_of_det(a), a)


@each_dtype
@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_det_of_any_zero_pivot(n, dtype, rng):
  """A matrix of rank n - 1 has an adjugate that is not zero, wherever the zero pivot stands."""
  a = matrices.general(rng, (n,), n, n, dtype)
  for k in range(n):
    a[k, :, k] = 0
  _assert_adjugate(_gradient_of_det(a), a)


@each_dtype
@pytest.mark.parametrize("n", [2, 3, 5])
def test_det_of_lower_rank(n, dtype, rng):
  """Of rank n - 2 the gradient is zero (and of an empty sum of products, at n = 2, too)."""
  a = np.zeros((2, n, n), dtype)
  a[1, :, : n - 2] = matrices.general(rng, (), n, n - 2, dtype)
  _assert_adjugate(_gradient_of_det(a), a)


@each_dtype
def test_det_of_numerical_rank(dtype, rng):
  """Singular up to rounding: 1 / pivot is huge, and its product with the determinant is not."""
  a = matrices.general(rng, (4,), 5, 5, dtype)
  a[:, :, 1] = a[:, :, 0] * 3 - a[:, :, 4] / 7
  gradient = _gradient_of_det(a)
  for one, g in zip(a, gradient, strict=True):
    expected = _adjugate(one).T
    np.testing.assert_allclose(g, expected, rtol=0, atol=1e-11 * np.abs(expected).max())


VALUES = {
    "identity": np.ones(5),
    "zero": np.zeros(5),
    "two pairs": np.array([1, 1, 2.5, 4, 4]),
    "triple": np.array([-2, 3, 3, 3, 10.0]),
    "opposite": np.array([-1, -1, 0, 1, 1]),
}


def _degenerate(rng, dtype):
  """Each of VALUES, as a diagonal matrix and turned by a random unitary one."""
  u = matrices.unitary(rng, 5, dtype)
  turned = np.stack([(u * w) @ u.conj().T for w in VALUES.values()])
  straight = np.stack([np.diag(w) for w in VALUES.values()])
  return np.concatenate([turned, straight]).astype(dtype)


def _hermitian(rng, batch, dtype):
  return matrices.hermitian(rng, batch, 5, dtype)


@each_dtype
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
    gradient, slope, curvature = jax.jit(lambda a: (
        jax.grad(lambda a: jnp.sum(f(a)))(a), jax.jvp(f, (a,), (direction,))[1],
        jax.jvp(lambda a: jax.jvp(f, (a,), (direction,))[1], (a,), (direction,))[1]))(a)
    scale = 1e-12 * np.abs(derivative).max()
    np.testing.assert_allclose(slope, expected, rtol=0, atol=100 * scale)
    np.testing.assert_allclose(gradient, derivative.conj(), rtol=0, atol=10 * scale)
    assert np.isfinite(curvature).all()


@each_dtype
def test_projectors_at_equal_eigenvalues(dtype, rng):
  """dP = Σ (P dA Q + Q dA P) / (λ_P - λ_Q) over the other eigenspaces Q; of all of them dI = 0."""
  a = _degenerate(rng, dtype)
  direction = _hermitian(rng, a.shape[:1], dtype)
  values = np.concatenate([list(VALUES.values())] * 2)
  # The projectors onto the eigenspaces of the least, and of the greatest eigenvalue; and the whole.
  masks = np.stack(
      [values == values[:, :1], values == values[:, -1:], np.ones_like(values)], axis=1)

  def projectors(a):
    v = linalg.eigh(a).eigenvectors
    return jnp.einsum("bik,bpk,bjk->bpij", v, masks, v.conj())

  cotangent = _hermitian(rng, (len(a), 3), dtype)

  @jax.jit
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
    difference = masks[:, p, :, None].astype(float) - masks[:, p, None, :]
    expected = v @ (rotated * difference * inverse) @ checks.adjoint(v)
    np.testing.assert_allclose(
        slope[:, p], expected, rtol=0, atol=1e-11 * np.abs(expected).max(initial=1))
  along = np.sum((cotangent * slope).real, axis=(1, 2, 3))
  back = np.sum((gradient * direction).real, axis=(1, 2))
  np.testing.assert_allclose(back, along, rtol=0, atol=1e-11 * np.abs(along).max())


@each_dtype
def test_nearly_equal_eigenvalues(dtype, rng):
  """A gap that is resolved must be used: masking it would be silently wrong."""
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


TRIANGULAR = [(3, 3), (5, 3), (3, 5), (4, 1)]


@each_dtype
@pytest.mark.parametrize("shape", TRIANGULAR, ids=str)
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr_of_an_upper_triangle(mode, shape, dtype, rng):
  """Every reflector is the identity there: their complement's formula divides by zero."""
  a = np.triu(matrices.general(rng, (2,), *shape, dtype)) + 2 * np.eye(*shape)
  index = np.arange(min(shape))
  a[:, index, index] = a[:, index, index].real
  direction = matrices.general(rng, (2,), *shape, dtype)
  function = lambda a: tuple(linalg.qr(a, mode))

  @jax.jit
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


@each_dtype
def test_raw_qr_of_an_upper_triangle(dtype, rng):
  """A reflector that is the identity has no direction to move in, and a finite derivative."""
  a = np.triu(matrices.general(rng, (), 4, 3, dtype).real).astype(dtype)
  tangents = jax.jvp(lambda a: tuple(linalg.qr(a, mode="raw")), (a,), (np.ones_like(a),))[1]
  assert all(np.isfinite(x).all() for x in tangents)


@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
@pytest.mark.parametrize("case", cases.DIFFERENTIABLE_CASES, ids=lambda case: case.name)
def test_empty(case, batch, rng):
  """Matrices without elements have derivatives of their shapes: indices -1 and -2 are not there."""
  operands = [np.asarray(x) for x in case.operands(rng, batch, 0, 0, np.float64)]
  inexact = [k for k, x in enumerate(operands) if np.issubdtype(x.dtype, np.inexact)]

  def function(*moving):
    given = dict(zip(inexact, moving, strict=True))
    results = jax.tree.leaves(
        case.invariant(case.results(*(given.get(k, x) for k, x in enumerate(operands)))))
    return [x for x in results if jnp.issubdtype(x.dtype, jnp.inexact)]

  moving = [operands[k] for k in inexact]
  results, tangents = jax.jvp(function, moving, moving)
  assert [x.shape for x in tangents] == [x.shape for x in results]
  assert all(np.all(np.asarray(x) == 0) for x in tangents)
  loss = lambda *moving: sum(jnp.sum(x) for x in function(*moving))
  gradients = jax.grad(loss, tuple(range(len(moving))))(*moving)
  assert [x.shape for x in gradients] == [x.shape for x in moving]


@each_dtype
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
      "solve": (lambda a: linalg.solve(a, one), -1 / x**2),
      "inv": (linalg.inv, -1 / x**2),
      "det": (linalg.det, 1),
      "slogdet": (lambda a: linalg.slogdet(a).logabsdet, 1 / x),
      "triangular_solve": (lambda a: linalg.triangular_solve(a, one), -1 / x**2),
      "cho_solve": (lambda a: linalg.cho_solve((a, True), one), -2 / x**3),
      "lu_solve": (lambda a: linalg.lu_solve((a, np.zeros(1, np.int32)), one), -1 / x**2),
  }
  slopes = jax.jit(lambda a: {
      name: jax.jvp(f, (a,), (one,))[1] for name, (f, _) in expected.items()})(a)
  gradients = jax.jit(lambda a: {
      name: jax.grad(lambda a, f=f: jnp.sum(f(a).real))(a) for name, (f, _) in expected.items()})(a)
  for name, (_, value) in expected.items():
    np.testing.assert_allclose(jnp.ravel(slopes[name]), [value], rtol=1e-12, err_msg=name)
    np.testing.assert_allclose(jnp.ravel(gradients[name]), [value], rtol=1e-12, err_msg=name)


def test_close_eigenvalues_in_float32(rng):
  """A gap far above rounding is no repeated eigenvalue, however large the matrix is."""
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda dtype: dtype.__name__)
def test_gradient_of_det_out_of_range(dtype):
  """Products of pivots that leave the range on the way to a gradient that is in it."""
  large = 2.0 ** int(np.log2(float(np.finfo(dtype).max)) * 0.6)
  for diagonal in ([large, large, 1 / large, 1 / large], [1 / large, large, 1 / large, large]):
    diagonal = np.array(diagonal, dtype)
    gradient = np.diag(jax.grad(linalg.det)(np.diag(diagonal)))
    np.testing.assert_allclose(gradient, 1 / diagonal, rtol=16 * np.finfo(dtype).eps)
