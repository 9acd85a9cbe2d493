"""What a type checker must know of the public functions: read by mypy and pyright, and not run."""

from typing import assert_type

import jax
from jax import export

import linalg
import linalg.lax
import linalg.scipy

Arrays2 = tuple[jax.Array, jax.Array]
Arrays3 = tuple[jax.Array, jax.Array, jax.Array]
Arrays4 = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


def decompositions(a: jax.Array, flag: bool, mode: str) -> None:
  assert_type(linalg.cholesky(a), jax.Array)
  assert_type(linalg.cholesky(a, upper=True, symmetrize_input=False), jax.Array)
  assert_type(linalg.cholesky_ex(a), Arrays2)
  assert_type(linalg.cho_factor(a), tuple[jax.Array, bool])
  assert_type(linalg.cho_solve((a, True), a), jax.Array)
  assert_type(linalg.lu(a), Arrays3)
  assert_type(linalg.lu_ex(a), Arrays4)
  assert_type(linalg.lu_factor(a), Arrays2)
  assert_type(linalg.lu_solve((a, a), a), jax.Array)
  assert_type(linalg.lu_pivots_to_permutation(a, 3), jax.Array)
  assert_type(linalg.eigh(a), linalg.EighResult)
  assert_type(linalg.eigh(a, "U"), linalg.EighResult)
  assert_type(linalg.eigh(a).eigenvalues, jax.Array)
  assert_type(linalg.eigh_ex(a), Arrays3)
  assert_type(linalg.eigvalsh(a), jax.Array)
  assert_type(linalg.schur(a), Arrays2)
  assert_type(linalg.schur_ex(a, "complex"), Arrays3)
  assert_type(linalg.rsf2csf(a, a), Arrays2)
  assert_type(linalg.polar(a), Arrays2)
  assert_type(linalg.slogdet(a), linalg.SlogdetResult)
  assert_type(linalg.slogdet(a).logabsdet, jax.Array)
  assert_type(linalg.lu_slogdet(linalg.lu_factor(a)), linalg.SlogdetResult)
  assert_type(linalg.cho_logdet(linalg.cho_factor(a)), jax.Array)
  assert_type(linalg.householder_product(a, a), jax.Array)
  assert_type(linalg.ormqr(a, a, a, left=False), jax.Array)


def flags_that_change_the_result(a: jax.Array, flag: bool, mode: str) -> None:
  assert_type(linalg.qr(a), linalg.QRResult)
  assert_type(linalg.qr(a, "complete"), linalg.QRResult)
  assert_type(linalg.qr(a, "r"), jax.Array)
  assert_type(linalg.qr(a, pivoting=True), Arrays3)
  assert_type(linalg.qr(a, mode="r", pivoting=True), Arrays2)
  assert_type(linalg.svd(a), linalg.SVDResult)
  assert_type(linalg.svd(a, False), linalg.SVDResult)
  assert_type(linalg.svd(a, full_matrices=False, hermitian=True).U, jax.Array)
  assert_type(linalg.svd(a, compute_uv=False), jax.Array)
  assert_type(linalg.svd(a, False, False), jax.Array)
  assert_type(linalg.svd(a, compute_uv=flag), linalg.SVDResult | jax.Array)
  assert_type(linalg.svd_ex(a), Arrays4)
  assert_type(linalg.svd_ex(a, compute_uv=False), Arrays2)
  assert_type(linalg.svdvals(a), jax.Array)
  assert_type(linalg.svdvals_ex(a), Arrays2)
  assert_type(linalg.eig(a), linalg.EigResult)
  assert_type(linalg.eig(a, left=True), Arrays3)
  assert_type(linalg.eig_ex(a), Arrays3)
  assert_type(linalg.eig_ex(a, left=True), Arrays4)
  assert_type(linalg.eigvals(a), jax.Array)
  assert_type(linalg.eigvals_ex(a), Arrays2)
  assert_type(linalg.hessenberg(a), jax.Array)
  assert_type(linalg.hessenberg(a, calc_q=True), Arrays2)
  assert_type(linalg.eigh_tridiagonal(a, a), Arrays2)
  assert_type(linalg.eigh_tridiagonal(a, a, eigvals_only=True), jax.Array)
  assert_type(linalg.eigh_generalized(a, a), Arrays2)
  assert_type(linalg.eigh_generalized(a, eigvals_only=True), jax.Array)
  assert_type(linalg.eigh_generalized(a, a, True, True), jax.Array)


def composed(a: jax.Array) -> None:
  assert_type(linalg.solve(a, a, assume_a="pos"), jax.Array)
  assert_type(linalg.solve_ex(a, a), Arrays2)
  assert_type(linalg.inv(a), jax.Array)
  assert_type(linalg.inv_ex(a), Arrays2)
  assert_type(linalg.det(a), jax.Array)
  assert_type(linalg.lstsq(a, a), Arrays4)
  assert_type(linalg.pinv(a, rtol=1e-3), jax.Array)
  assert_type(linalg.matrix_rank(a), jax.Array)
  assert_type(linalg.cond(a), jax.Array)
  assert_type(linalg.norm(a, 2, axis=(0, 1)), jax.Array)
  assert_type(linalg.vector_norm(a, ord=3), jax.Array)
  assert_type(linalg.matrix_norm(a), jax.Array)
  assert_type(linalg.expm(a), jax.Array)
  assert_type(linalg.sqrtm(a), jax.Array)
  assert_type(linalg.matrix_power(a, 3), jax.Array)
  assert_type(linalg.funm_hermitian(a, lambda w: w), jax.Array)
  assert_type(linalg.inverse_pth_root(a, 4, epsilon=1e-12), jax.Array)
  assert_type(linalg.triangular_solve(a, a, lower=True), jax.Array)
  assert_type(linalg.solve_triangular(a, a, trans="T"), jax.Array)
  assert_type(linalg.tridiagonal_solve(a, a, a, a), jax.Array)
  assert_type(linalg.tridiagonal_solve_ex(a, a, a, a), Arrays2)
  assert_type(linalg.cholesky_update(a, a, downdate=True), jax.Array)
  assert_type(linalg.cholesky_update_ex(a, a), Arrays2)
  assert_type(linalg.matmul(a, a, precision="highest"), jax.Array)
  assert_type(linalg.congruence(a, a), jax.Array)
  assert_type(linalg.congruence(a, a, a, adjoint_a=True), jax.Array)
  assert_type(linalg.diagonal(a, offset=1), jax.Array)
  assert_type(linalg.block_diag(a, a), jax.Array)
  assert_type(linalg.tensorinv(a), jax.Array)
  assert_type(linalg.tensorsolve(a, a), jax.Array)
  assert_type(linalg.checked(linalg.eigh)(a), linalg.EighResult)
  assert_type(linalg.__version__, str)


def in_the_place_of_jax(a: jax.Array) -> None:
  """The types are those of JAX's functions."""
  assert_type(linalg.scipy.cholesky(a, True), jax.Array)
  assert_type(linalg.scipy.lu(a), Arrays3)
  assert_type(linalg.scipy.lu(a, True), Arrays2)
  assert_type(linalg.scipy.eigh(a), Arrays2)
  assert_type(linalg.scipy.eigh(a, eigvals_only=True), jax.Array)
  assert_type(linalg.scipy.svd(a), Arrays3)
  assert_type(linalg.scipy.svd(a, compute_uv=False), jax.Array)
  assert_type(linalg.scipy.qr(a, mode="economic"), Arrays2)
  assert_type(linalg.lax.eigh(a), Arrays2)
  assert_type(linalg.lax.lu(a), Arrays3)
  assert_type(linalg.lax.svd(a, compute_uv=False), jax.Array)
  assert_type(linalg.lax.eig(a), list[jax.Array])


def of_scipy(a: jax.Array) -> None:
  assert_type(linalg.scipy.pinvh(a), jax.Array)
  assert_type(linalg.scipy.pinvh(a, return_rank=True), Arrays2)
  assert_type(linalg.scipy.orth(a, size=2), jax.Array)
  assert_type(linalg.scipy.null_space(a), jax.Array)
  assert_type(linalg.scipy.expm_frechet(a, a, compute_expm=True), Arrays2)
  assert_type(linalg.scipy.logm(a), jax.Array)
  assert_type(linalg.scipy.funm(a, lambda x: x), jax.Array | Arrays2)
  assert_type(linalg.scipy.solve_banded((1, 1), a, a), jax.Array)
  assert_type(linalg.scipy.solveh_banded(a, a, lower=True), jax.Array)
  assert_type(linalg.scipy.cholesky_banded(a), jax.Array)
  assert_type(linalg.scipy.cho_solve_banded((a, False), a), jax.Array)
  assert_type(linalg.scipy.fractional_matrix_power(a, 0.5), jax.Array)
  assert_type(linalg.scipy.solve_sylvester(a, a, a), jax.Array)
  assert_type(linalg.scipy.solve_continuous_are(a, a, a, a), jax.Array)
  assert_type(linalg.scipy.solve_discrete_are(a, a, a, a, None, a), jax.Array)
  assert_type(linalg.scipy.solve_continuous_lyapunov(a, a), jax.Array)
  assert_type(linalg.scipy.solve_discrete_lyapunov(a, a), jax.Array)
  assert_type(linalg.scipy.ldl(a, lower=False), Arrays3)
  assert_type(linalg.scipy.solve_toeplitz((a, a), a), jax.Array)
  assert_type(linalg.scipy.matmul_toeplitz(a, a), jax.Array)


def around_them(a: jax.Array) -> None:
  assert_type(linalg.eigh_gauge_error(lambda w, v: w.sum(), a), jax.Array)
  assert_type(linalg.include_dir(), str)
  assert_type(linalg.export_disabled_checks(), list[export.DisabledSafetyCheck])
  linalg.show_config()
  linalg.accelerate(products=True)
  with linalg.accelerated():
    linalg.accelerate(False)


def wrong_arguments(a: jax.Array) -> None:
  """Each of these is an error, and an ignore that is not needed is one too."""
  linalg.cholesky(a, a)  # type: ignore[arg-type,call-arg]  # pyright: ignore[reportCallIssue]
  linalg.eigh(a, a)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
  linalg.inv(a, foo=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
  linalg.qr(a, pivot=True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
