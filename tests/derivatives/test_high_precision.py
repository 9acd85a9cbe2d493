"""First and second derivatives agree with many digits to the last places.

Central differences in double precision show eight digits. A rule with cancellation may lose the
others. Functions of the catalogue are compared at matrices that are hard for a rule:
`hard_operands.py`.
"""

import dataclasses

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import cases
import digits_of_derivatives
import hard_operands
import linalg
import linalg.distributed as dist
import linalg.structured
import matrices
import selection
from digits_of_derivatives import GRAM
from quick import quick_jit
from sharded import make_mesh

ALL_DTYPES = True
ONE_DTYPE = True
COMPILES = True
N = 4
DIGITS = 100
STEP = mpmath.mpf(10) ** -25


def _exact(x):
  return mpmath.matrix([[mpmath.mpmathify(complex(y)) for y in row] for row in np.atleast_2d(x)])


def _spectral(function):
  """V f(w) Vᴴ."""

  def of(a):
    w, v = mpmath.eighe(a)
    return v * mpmath.diag([function(x) for x in w]) * v.H

  return of


def _polar(a):
  u, _, vh = mpmath.svd_c(a)
  return u * vh


def _positive_qr(a):
  """The factors with a positive diagonal of R, which are smooth."""
  q, r = mpmath.qr(a, mode="skinny")
  phase = mpmath.diag([r[k, k] / abs(r[k, k]) for k in range(r.cols)])
  return q * phase, phase.H * r


def _our_qr(a):
  q, r = linalg.qr(a)
  phase = jnp.sign(jnp.diagonal(r))
  return q * phase[None], phase.conj()[:, None] * r


def _largest_projector(w, v):
  return v[..., -1:] * v[..., -1:].mT.conj()


def _column(values):
  return mpmath.matrix(list(values))


def _projector(a):
  w, v = mpmath.eighe(a)
  last = max(range(len(w)), key=lambda k: w[k])
  return v[:, last] * v[:, last].H


def _cosh(a):
  return (mpmath.expm(a) + mpmath.expm(-a)) / 2


def _eigenvalues(a):
  w, _ = mpmath.eig(a)
  return _column(sorted(w, key=lambda x: (float(mpmath.re(x)), float(mpmath.im(x)))))


def _our_eigenvalues(a):
  w = linalg.eigvals(a)
  return w[jnp.lexsort((w.imag, w.real))]


# Each entry has this package's function, the function in many digits, and the kind of operand.
FUNCTIONS = {
    "cholesky": (linalg.cholesky, mpmath.cholesky, "positive"),
    "inv": (linalg.inv, mpmath.inverse, "general"),
    "solve": (lambda a: linalg.solve(a, a[::-1]),
              lambda a: mpmath.inverse(a) * mpmath.eye(N)[::-1, :] * a, "general"),
    "det": (linalg.det, mpmath.det, "general"),
    "slogdet": (lambda a: linalg.slogdet(a)[1], lambda a: mpmath.log(abs(mpmath.det(a))),
                "general"),
    "qr": (_our_qr, _positive_qr, "tall"),
    "eigvalsh": (linalg.eigvalsh, lambda a: _column(sorted(mpmath.eighe(a, eigvals_only=True))),
                 "positive"),
    "eigh": (lambda a: _largest_projector(*linalg.eigh(a)), _projector, "positive"),
    "eigvals": (_our_eigenvalues, _eigenvalues, "general"),
    "svdvals": (linalg.svdvals,
                lambda a: _column(sorted(mpmath.svd_c(a, compute_uv=False), reverse=True)), "tall"),
    "polar": (lambda a: linalg.polar(a)[0], _polar, "tall"),
    "polar_of_equal": (lambda a: linalg.polar(a)[0], _polar, "equal_tall"),
    "sqrtm": (linalg.sqrtm, _spectral(mpmath.sqrt), "positive"),
    "expm": (linalg.expm, mpmath.expm, "small"),
    "logm": (linalg.scipy.logm, _spectral(mpmath.log), "positive"),
    "funm": (lambda a: linalg.scipy.funm(a, jnp.cosh), _cosh, "small"),
    "funm_hermitian": (lambda a: linalg.funm_hermitian(a, jnp.log), _spectral(mpmath.log), "equal"),
    "inverse_pth_root": (lambda a: linalg.inverse_pth_root(a, 4),
                         _spectral(lambda x: x ** mpmath.mpf(-0.25)), "equal"),
}


def _operand(kind, rng, dtype):
  """The operand, and a direction in which it keeps its kind."""
  hermitian = lambda x: (x + x.conj().T) / 2
  shape = (5, 3) if kind.endswith("tall") else (N, N)
  direction = matrices.general(rng, (), *shape, dtype)
  if kind in ("positive", "equal"):
    direction = hermitian(direction)
  if kind == "equal":
    # The dtype holds these numbers exactly, so rounding does not separate equal eigenvalues.
    return np.diag([2, 2, 2, 5]).astype(dtype), direction
  if kind == "equal_tall":
    return 2 * np.eye(5, 3, dtype=dtype), direction
  if kind == "positive":
    return hermitian(matrices.positive_definite(rng, (), N, dtype)), direction
  if kind == "tall":
    return matrices.well_conditioned(rng, (), 5, dtype)[:, :3], direction
  a = matrices.well_conditioned(rng, (), N, dtype)
  return (a / 8 if kind == "small" else a).astype(dtype), direction


def _leaves(results):
  return results if isinstance(results, tuple) else (results,)


@selection.one_in(2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives(name, dtype, rng):
  ours, exact, kind = FUNCTIONS[name]
  a, direction = _operand(kind, rng, dtype)
  first = lambda x: jax.jvp(ours, (x,), (jnp.asarray(direction),))[1]
  found = quick_jit(lambda x: jax.jvp(first, (x,), (jnp.asarray(direction),)))(a)
  with mpmath.workdps(DIGITS):
    points = [
        [_exact_array(y) for y in _leaves(exact(_exact(a) + k * STEP * _exact(direction)))]
        for k in (-1, 0, 1)]
    derivatives = (
        [(y - x) / (2 * STEP) for x, _, y in zip(*points)],
        [(z - 2 * y + x) / STEP**2 for x, y, z in zip(*points)])
  for order, (actual, expected) in enumerate(zip(found, derivatives), 1):
    for x, y in zip(_leaves(actual), expected, strict=True):
      y = np.array(y, complex)
      error = np.abs(np.asarray(x).reshape(y.shape) - y).max() / np.abs(y).max()
      assert error <= 64 * np.finfo(dtype).eps, (order, error / np.finfo(dtype).eps)


def _exact_array(x):
  """An array of mpmath's numbers, of one dimension where they are a column."""
  if not isinstance(x, mpmath.matrix):
    return np.array(x)
  rows = np.array(x.tolist(), object)
  return rows[:, 0] if x.cols == 1 else rows


# The results at these kinds have no derivative, or no value by what the docstring says.
WITHOUT = {
    **{(name, "nearly_defective"): "eigenvalues or singular values are equal" for name in (
        "eigh", "eigvalsh", "eigh_tridiagonal", "eigvalsh_tridiagonal", "eig_banded",
        "eigvals_banded", "svd", "svd_thin", "svdvals", "lstsq", "matrix_norm_2")},
    **{(name, kind): "a reflector is the identity"
       for name in ("qr_complete", "qr_raw", "hessenberg", "hessenberg_h")
       for kind in ("triangular", "nearly_defective") if kind == "triangular" or "qr" in name},
    **{(name, kind): "a change of another scale is added" for name in ("qr_update", "qr_insert")
       for kind in hard_operands.GRADED},
    **{("qr_delete", kind): "the remaining rows are dependent"
       for kind in ("triangular", "nearly_defective")},
    ("signm", "graded"): "an eigenvalue is on the imaginary axis to rounding",
    ("solve_sylvester", "small"): "sums of eigenvalues are below `tol`",
    ("gram_inverse_pth_root", "nearly_singular"): "the Gram matrix is singular to rounding",
}
WITHOUT_IN_SINGLE = {
    (name, kind): reason for kind in hard_operands.GRADED for name, reason in {
        "svd": "a singular value is 0 to rounding", "svd_thin": "a singular value is 0 to rounding",
        "solve_continuous_lyapunov": "sums of eigenvalues are 0 to rounding",
        "solve_discrete_lyapunov": "products of eigenvalues are 1 to rounding"}.items()}
WITHOUT_IN_SINGLE["signm", "nearly_singular"] = WITHOUT["signm", "graded"]
# An error of some roundings for the function itself, and its second derivative multiplies it.
LIMITS = {"funm": 3000, "solve_continuous_are": 3000, "solve_discrete_are": 3000}
DIFFERENTIABLE = [case for case in cases.TABLE if case.differentiable]
# One of each kind of rule runs by default: most of the time goes to compilation.
QUICK = ("inv", "cholesky", "det", "eigh", "pinv", "polar", "congruence")


def test_every_function_has_an_oracle():
  assert {case.name for case in DIFFERENTIABLE} | {GRAM} == set(digits_of_derivatives.ORACLES)


def _at_hard_matrices():
  for case in DIFFERENTIABLE:
    for dtype in case.dtypes:
      quick = case.name in QUICK and dtype is np.float64
      yield pytest.param(
          case, dtype, id=f"{case.name}-{np.dtype(dtype).name}",
          marks=() if quick else pytest.mark.extended)


@pytest.mark.parametrize("case, dtype", list(_at_hard_matrices()))
def test_hard_matrices(case, dtype, rng):
  """Errors in every mode are a small multiple of what a rounding of the matrix does."""
  without = WITHOUT | (WITHOUT_IN_SINGLE if np.finfo(dtype).bits == 32 else {})
  kinds = [kind for kind in hard_operands.KINDS if (case.name, kind) not in without]
  found = digits_of_derivatives.errors(case, kinds, dtype, rng)
  assert set(found) == set(kinds) and not _beyond(found, LIMITS.get(case.name, 100))


def _beyond(found, limit):
  return {
      (kind, mode): error for kind, errors in found.items() for mode, error in errors.items()
      if not error <= limit}


def _each(function):
  """A function of single matrices, for stacks of them."""
  return lambda *operands: jax.lax.map(
      lambda one: function(*one, axes="x"), tuple(map(jnp.asarray, operands)))


# Functions of matrices that two devices share, and the case whose results they have.
DISTRIBUTED = {
    "qr": ("qr", lambda a: dist.qr(a, axes="x")),
    "svd": ("svd_thin", lambda a: dist.svd(a, axes="x")),
    "svdvals": ("svdvals", lambda a: dist.svdvals(a, axes="x")),
    "lstsq": ("lstsq", lambda a, b: dist.lstsq(a, b, axes="x")),
    "pinv": ("pinv", lambda a: dist.pinv(a, axes="x")),
    "polar": ("polar", lambda a: dist.polar(a, axes="x")),
    "gram_inverse_pth_root": (GRAM, lambda a: dist.gram_inverse_pth_root(a, 4, axes="x")),
    "cholesky": ("cholesky", _each(dist.cholesky)),
    "cho_solve": ("solve_pos", _each(
        lambda a, b, axes: dist.cho_solve(dist.cho_factor(a, axes=axes), b))),
    "solve": ("solve", _each(dist.solve)),
    "lu_solve": ("solve", _each(
        lambda a, b, axes: dist.lu_solve(dist.lu_factor(a, axes=axes), b))),
    "slogdet": ("slogdet", _each(lambda a, axes: tuple(dist.slogdet(a, axes=axes)))),
    "inv": ("inv", _each(dist.inv)),
    "solve_triangular": ("triangular_solve", _each(
        lambda a, b, axes: dist.solve_triangular(a, b, lower=True, axes=axes))),
}


AXES = (("x",), ("y",))
# Functions of matrices of any shape, which a mesh of 4 x 2 devices shares.
IN_A_GRID = {
    "eigh": ("eigh", lambda a: tuple(dist.eigh(a, axes=AXES))),
    "eigvalsh": ("eigvalsh", lambda a: dist.eigvalsh(a, axes=AXES)),
    "eigh_generalized": (
        "eigh_generalized", lambda a, b: tuple(dist.eigh_generalized(a, b, axes=AXES))),
    "funm_hermitian": ("funm_hermitian", lambda a: dist.funm_hermitian(a, jnp.sin, axes=AXES)),
    "inverse_pth_root": ("inverse_pth_root", lambda a: dist.inverse_pth_root(a, 4, axes=AXES)),
    "qr": ("qr", lambda a: dist.qr(a, axes=AXES)),
    "svd": ("svd_thin", lambda a: dist.svd(a, axes=AXES)),
    "svdvals": ("svdvals", lambda a: dist.svdvals(a, axes=AXES)),
    "pinv": ("pinv", lambda a: dist.pinv(a, axes=AXES)),
    "polar": ("polar", lambda a: dist.polar(a, axes=AXES)),
}
# docs/distributed_limits.md: their second derivatives are not those of close eigenvalues.
OF_CLOSE, CLOSE = ("funm_hermitian", "inverse_pth_root"), ("clustered", "nearly_defective")


@pytest.mark.extended
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("name, devices", [
    *((name, (2,)) for name in DISTRIBUTED), *((name, (4, 2)) for name in IN_A_GRID)],
    ids=lambda x: x if isinstance(x, str) else "x".join(map(str, x)))
def test_distributed(name, devices, dtype, rng):
  """The errors are those of the function on one device."""
  of, call = (DISTRIBUTED if len(devices) == 1 else IN_A_GRID)[name]
  case = dataclasses.replace(cases.named("polar" if of == GRAM else of), name=of, call=call)
  kinds = [kind for kind in hard_operands.KINDS if (of, kind) not in WITHOUT]
  count = np.prod(devices)
  with jax.set_mesh(make_mesh(devices, ("x", "y")[: len(devices)], devices=jax.devices()[:count])):
    found = digits_of_derivatives.errors(case, kinds, dtype, rng)
  assert set(found) == set(kinds)
  for kind in CLOSE if len(devices) == 2 and name in OF_CLOSE else ():
    found[kind] = {
        mode: error for mode, error in found[kind].items()
        if mode in ("value", "forward", "reverse")}
  assert not _beyond(found, 100)
