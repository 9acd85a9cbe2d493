"""The emulator detects faults: each is put into a kernel, and a test must fail.

A fault omits one line of the PTX, or moves it to another address or other threads (`Fault` in
block.h). Every executed barrier, wait for copies and mask is tried, and some stores to shared
memory.
"""

import ctypes
import itertools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from linalg.structured import _kalman_operations as kalman

pytestmark = pytest.mark.extended

# These must equal the values in block.h.
NO_BARRIER, NO_WAIT, HALF_OF_MASK, NEXT_ELEMENT, TOO_LITTLE = range(1, 6)
STORES = 8  # how many of the kernel's stores are tried
_names = (f"faulty_{i}" for i in itertools.count())


class Run(NamedTuple):
  """A kernel of float32 or complex64, and a call that launches it.

  `error` maps operands and results to an error in units of the precision. `blocks` limits the
  blocks, so that a block goes on from one matrix to the next. `spare` is how many barriers are not
  needed. They separate phases that touch different data, or data of one thread, such as a matrix
  stored before the next is loaded.
  """

  kernel: str
  target: str
  n: int
  batch: int
  operands: Callable[..., list[np.ndarray]]
  results: Callable[[int], list[tuple[tuple[int, ...], Any]]]
  error: Callable[..., float]
  attributes: dict[str, bool] = {}  # noqa: RUF012
  blocks: int = 1
  spare: int = 0
  shared: int = 227  # KiB of shared memory
  stores: str = "st.shared.f32"  # the stores that are tried


def _general(rng, batch, n):
  return [rng.standard_normal((batch, n, n), dtype=np.float32)]


def _definite(rng, batch, n):
  (x,) = _general(rng, batch, n)
  return [x @ x.mT + n * np.eye(n, dtype=np.float32)]


def _hermitian(rng, batch, n):
  (x,) = _general(rng, batch, n)
  return [x + x.mT]


def _system(rng, batch, n):
  return [*_general(rng, batch, n), rng.standard_normal((batch, n, 3), dtype=np.float32)]


def _vector_system(rng, batch, n):
  return [*_general(rng, batch, n), rng.standard_normal((batch, n, 1), dtype=np.float32)]


def _of_cholesky(a, factor, info):
  assert not info.any()
  return factor @ factor.mT - a


def _of_upper_cholesky(a, factor, info):
  return _of_cholesky(a, factor.mT, info)


def _of_lu(a, lu, pivots, permutation, info):
  assert not info.any()
  n = a.shape[-1]
  for steps, order in zip(pivots, permutation, strict=True):
    rows = np.arange(n)
    for i, j in enumerate(steps):
      rows[[i, j]] = rows[[j, i]]
    np.testing.assert_array_equal(rows, order)
  assert np.abs(np.tril(lu, -1)).max() <= 1  # the pivots are the largest
  exchanged = np.take_along_axis(a, permutation[..., None].astype(int), 1)
  return (np.tril(lu, -1) + np.eye(n)) @ np.triu(lu) - exchanged


def _of_qr(a, q, r):
  return np.maximum(np.abs(q @ r - a), np.abs(q.mT @ q - np.eye(a.shape[-1])))


def _of_eigh(a, w, v, info):
  assert not info.any()
  return np.maximum(np.abs((v * w[:, None]) @ v.mT - a), np.abs(v.mT @ v - np.eye(a.shape[-1])))


def _factors_and_tangent(rng, batch, n):
  (x,) = _general(rng, batch, n)
  return [*np.linalg.svd(x), *_general(rng, batch, n)]


def _of_svd_jvp(u, s, vh, da, du, ds, dvh):
  """Errors of the tangent of A that they imply, and of the orthogonality of the factors."""
  v = vh.mT
  changed = (du * s[:, None]) @ vh + (u * ds[:, None]) @ vh + (u * s[:, None]) @ dvh
  turns = [x + x.mT for x in (u.mT @ du, v.mT @ dvh.mT)]
  gaps = np.abs(s[:, :, None] - s[:, None]) + np.eye(s.shape[-1])
  return gaps.min() * np.maximum(np.abs(changed - da), np.abs(turns).max(0))


def _blocks(rng, batch, n):
  (x,) = _definite(rng, 3 * batch, n)
  (y,) = _general(rng, 2 * batch, n)
  return [x.reshape(batch, 3, n, n), y.reshape(batch, 2, n, n) / 4]


def _of_blocks(diagonal, lower, factor, below, logdet, info):
  assert not info.any()
  own = factor @ factor.mT - diagonal
  own[:, 1:] += below @ below.mT
  off = below @ factor[:, :-1].mT - lower
  logs = 2 * np.log(np.diagonal(factor, 0, 2, 3)).sum((1, 2))
  return np.concatenate([own.ravel(), off.ravel(), logdet - logs])


STEPS = 1024  # from which on chunks share a system


def _long_system(rng, batch, n):
  shapes = [(STEPS, n), (STEPS - 1, n), (STEPS - 1, n), (STEPS, 1)]
  diagonal, lower, upper, b = (
      rng.standard_normal((batch, steps, n, cols), dtype=np.float32)
      for (steps, cols) in shapes)
  return [lower, diagonal, upper, b]


def _of_long_solve(lower, diagonal, upper, b, x, info):
  """Elimination without chunks, which replaces wrong results, has residuals beyond the limit."""
  assert not info.any()
  rest, scale = b - diagonal @ x, np.abs(b) + np.abs(diagonal) @ np.abs(x)
  for here, there, a in ((slice(1, None), slice(-1), lower), (slice(-1), slice(1, None), upper)):
    rest[:, here] -= a @ x[:, there]
    scale[:, here] += np.abs(a) @ np.abs(x[:, there])
  return np.abs(lower).max() * rest / scale.max((2, 3), keepdims=True)


SERIES = 4  # steps of a Kalman smoother


def _series(rng, batch, n):
  """Operands of the filter, with F, Q and d for each step, and a mask."""
  m = 2

  def normal(*shape):
    return rng.standard_normal((batch, *shape), dtype=np.float32)

  def covariance(*shape):
    x = normal(*shape, shape[-1])
    return x @ x.mT / 4 + np.eye(shape[-1], dtype=np.float32)

  f = normal(SERIES, n, n)
  f *= np.float32(0.9) / np.linalg.norm(f, 2, (-2, -1), keepdims=True)
  seen = (rng.random((batch, SERIES, m)) < 0.7).astype(np.float32)
  return [normal(SERIES, m), f, covariance(SERIES, n), normal(1, m, n), covariance(1, m),
          normal(n), covariance(n), normal(1, n), normal(SERIES, m), seen]


def _moments(rng, batch, n, scale=1):
  operands = _series(rng, batch, n)
  operands[6] *= np.float32(scale)
  return [*operands, *map(np.asarray, kalman.filter_p(*operands)[:2])]


def _of_unknown_states(rng, batch, n):
  """The last steps back are those of Rauch, Tung and Striebel."""
  return _moments(rng, batch, n, scale=1000)


def _smoothed(f, q, b, means, covs):
  """The moments by gains (Rauch, Tung and Striebel, 1965)."""
  mean, cov = means[:, -1], covs[:, -1]
  smoothed, smoothed_covs = [mean], [cov]
  for t in reversed(range(SERIES - 1)):
    p, fp = covs[:, t], f[:, t] @ covs[:, t]
    ahead = jnp.einsum("bij,bj->bi", f[:, t], means[:, t]) + b[:, 0]
    predicted = fp @ f[:, t].mT + q[:, t]
    gain = jnp.linalg.solve(predicted, fp).mT
    mean = means[:, t] + jnp.einsum("bij,bj->bi", gain, mean - ahead)
    cov = p + gain @ (cov - predicted) @ gain.mT
    smoothed.append(mean)
    smoothed_covs.append(cov)
  return jnp.stack(smoothed[::-1], 1), jnp.stack(smoothed_covs[::-1], 1)


def _of_smoother(y, f, q, h, r, mean, cov, b, d, seen, means, covs, *found):
  return _differences(found, _smoothed(f, q, b, means, covs))


def _differences(found, expected):
  return np.concatenate([
      np.ravel(x - y) / max(1, np.abs(y).max()) for x, y in zip(found, expected, strict=True)])


def _known(rng, batch, n):
  """The operands of derivatives of smoothed moments."""
  operands = _moments(rng, batch, n)
  known = [operands[i] for i in (1, 2, 7, 10, 11)]
  return known + [np.asarray(x, np.float32) for x in _smoothed(*known)]


def _symmetric(rng, like):
  x = rng.standard_normal(like.shape, dtype=np.float32)
  return x + x.mT


def _smoother_tangents(rng, batch, n):
  known = _known(rng, batch, n)
  f, q, b, means, covs = known[:5]
  return [*known, rng.standard_normal(f.shape, dtype=np.float32), _symmetric(rng, q),
          *(rng.standard_normal(x.shape, dtype=np.float32) for x in (b, means)),
          _symmetric(rng, covs)]


def _of_smoother_jvp(*given):
  known, directions, found = given[:5], given[7:12], given[12:]
  return _differences(found, jax.jvp(_smoothed, known, directions)[1])


def _smoother_cotangents(rng, batch, n):
  known = _known(rng, batch, n)
  return [*known, rng.standard_normal(known[5].shape, dtype=np.float32), _symmetric(rng, known[6])]


def _of_smoother_vjp(*given):
  expected = list(jax.vjp(_smoothed, *given[:5])[1](given[7:9]))
  for i in (1, 4):
    expected[i] = (expected[i] + expected[i].mT) / 2
  return _differences(given[9:], expected)


def _of_solve(a, b, x, info):
  assert not info.any()
  return (a @ x - b) / np.linalg.cond(a)[:, None, None]


def _definite_system(rng, batch, n):
  return [*_definite(rng, batch, n), rng.standard_normal((batch, n, 3), dtype=np.float32)]


def _of_positive_solve(a, b, x, logdet, factor, info):
  assert not info.any()
  logs = 2 * np.log(np.diagonal(factor, 0, 1, 2)).sum(1)
  return np.concatenate([(a @ x - b).ravel(), (factor @ factor.mT - a).ravel(), logdet - logs])


F, C, I = np.float32, np.complex64, np.int32
HERMITIAN = {"lower": True, "symmetrize": False}


def _cholesky(kernel, n, batch, spare, blocks=1, attributes=HERMITIAN):
  error = _of_cholesky if attributes["lower"] else _of_upper_cholesky
  return Run(kernel, "linalg_cholesky", n, batch, _definite,
             lambda n: [((n, n), F), ((), I)], error, attributes, blocks, spare)


def _lu(kernel, n, batch, spare, blocks=1):
  return Run(kernel, "linalg_lu", n, batch, _general,
             lambda n: [((n, n), F), ((n,), I), ((n,), I), ((), I)], _of_lu, {}, blocks, spare)


def _qr(kernel, n, batch, spare, blocks=1, shared=227):
  return Run(kernel, "linalg_qr", n, batch, _general,
             lambda n: [((n, n), F), ((n, n), F)], _of_qr, {}, blocks, spare, shared)


def _reflectors(rng, batch, n):
  (x,) = _general(rng, batch, n)
  packed, taus = zip(*(scipy.linalg.qr(y, mode="raw")[0] for y in x), strict=True)
  return [np.ascontiguousarray(packed), np.stack(taus)]


def _of_product(a, taus, q):
  for x, scales, made in zip(a, taus, q, strict=True):
    expected = np.eye(len(x))
    for k in reversed(range(len(x))):
      v = np.append([1.0], x[k + 1:, k])
      expected[k:] -= scales[k] * np.outer(v, v @ expected[k:])
    made -= expected
  return q


def _householder_product(kernel, n, batch, spare, blocks=1, shared=227):
  return Run(kernel, "linalg_householder_product", n, batch, _reflectors,
             lambda n: [((n, n), F)], _of_product, {}, blocks, spare, shared)


def _eigh(kernel, n, batch, spare, blocks=1, shared=227):
  return Run(kernel, "linalg_eigh", n, batch, _hermitian,
             lambda n: [((n,), F), ((n, n), F), ((), I)], _of_eigh, HERMITIAN, blocks, spare,
             shared)


def _solve(kernel, n, batch, spare, blocks=1):
  return Run(kernel, "linalg_solve", n, batch, _system,
             lambda n: [((n, 3), F), ((), I)], _of_solve, {}, blocks, spare)


def _positive_solve(kernel, n, batch, spare, blocks=1):
  return Run(
      kernel, "linalg_positive_solve_logdet_factor", n, batch, _definite_system,
      lambda n: [((n, 3), F), ((), F), ((n, n), F), ((), I)], _of_positive_solve, {}, blocks, spare)


def _vector_solve(kernel, n, batch, spare, blocks=1):
  return Run(kernel, "linalg_solve", n, batch, _vector_system,
             lambda n: [((n, 1), F), ((), I)], _of_solve, {}, blocks, spare)


def _well_conditioned(rng, batch, n):
  u, _, vh = np.linalg.svd(*_general(rng, batch, n))
  return [(u * np.linspace(1, 2, n, dtype=np.float32)) @ vh]


def _some_singular(rng, batch, n):
  """All but the first have a column of zeros, for pivots that are exactly zero."""
  (x,) = _well_conditioned(rng, batch, n)
  x[1:, :, n // 3] = 0
  return [x]


def _of_cofactors(a, det, cofactors):
  """A column of zeros has cofactors that do not depend on it, and the others are zero."""
  n = a.shape[-1]
  regular = a.copy()
  regular[1:, :, n // 3] = np.arange(1, n + 1)
  expected = np.linalg.inv(regular).mT * np.linalg.det(regular)[:, None, None]
  expected[1:] *= np.arange(n) == n // 3
  assert not det[1:].any() and abs(det[0] / np.linalg.det(a[0]) - 1) < 1e-4
  return (cofactors - expected) / np.abs(expected).max((1, 2), keepdims=True)


def _cofactors(kernel, n, batch, spare):
  return Run(kernel, "linalg_det_cofactors", n, batch, _some_singular,
             lambda n: [((), F), ((n, n), F)], _of_cofactors, {}, 1, spare)


def _block_cholesky(kernel, n, batch, spare, blocks=1):
  return Run(
      kernel, "linalg_block_tridiagonal_cholesky", n, batch, _blocks,
      lambda n: [((3, n, n), F), ((2, n, n), F), ((), F), ((), I)], _of_blocks, {}, blocks, spare)


def _long_solve(kernel, n, batch, spare):
  return Run(
      kernel, "linalg_block_tridiagonal_solve", n, batch, _long_system,
      lambda n: [((STEPS, n, 1), F), ((), I)], _of_long_solve, {}, 1, spare)


def _smoother(kernel, n, batch, spare, operands=_moments):
  return Run(kernel, "linalg_kalman_smoother", n, batch, operands,
             lambda n: [((SERIES, n), F), ((SERIES, n, n), F)], _of_smoother, {}, 1, spare)


def _smoother_jvp(kernel, n, batch, spare):
  return Run(kernel, "linalg_kalman_smoother_jvp", n, batch, _smoother_tangents,
             lambda n: [((SERIES, n), F), ((SERIES, n, n), F)], _of_smoother_jvp, {}, 1, spare)


def _smoother_vjp(kernel, n, batch, spare):
  return Run(
      kernel, "linalg_kalman_smoother_vjp", n, batch, _smoother_cotangents,
      lambda n: [((SERIES, n, n), F), ((SERIES, n, n), F), ((1, n), F), ((SERIES, n), F),
                 ((SERIES, n, n), F)], _of_smoother_vjp, {}, 1, spare)


def _near_diagonal(rng, batch, n):
  (x,) = _general(rng, batch, n)
  return [x / 32 + np.diag(np.arange(1, n + 1, dtype=np.float32))]


def _of_svd(a, u, s, vh, info):
  assert not info.any()
  products = np.tril(u.mT @ u, -1) * s[:, :1, None]
  return np.maximum(np.abs((u * s[:, None]) @ vh - a), np.abs(products))


def _svd(kernel, n, batch, spare):
  return Run(kernel, "linalg_svd", n, batch, _near_diagonal,
             lambda n: [((n, n), F), ((n,), F), ((n, n), F), ((), I)], _of_svd, {}, 1, spare)


def _complex(rng, batch, n):
  return [np.stack(_general(rng, 2 * batch, n)[0].reshape(2, batch, n, n), -1).view(C)[..., 0]]


def _of_schur(a, t, z, info):
  assert not info.any() and not np.tril(t, -1).any()
  adjoint = z.conj().mT
  return np.maximum(np.abs(z @ t @ adjoint - a), np.abs(adjoint @ z - np.eye(a.shape[-1])))


def _schur(kernel, n, batch, spare, shared):
  return Run(kernel, "linalg_schur", n, batch, _complex,
             lambda n: [((n, n), C), ((n, n), C), ((), I)], _of_schur, {}, 1, spare, shared,
             "st.shared.v2.f32")


def _svd_jvp(kernel, n, batch, spare):
  return Run(kernel, "linalg_svd_jvp", n, batch, _factors_and_tangent,
             lambda n: [((n, n), F), ((n,), F), ((n, n), F)], _of_svd_jvp, {}, 1, spare)


# These run at every change: threads, threads of a warp that hold rows, and teams of a warp and a
# block. The others include teams of a part of a warp.
QUICK = [
    _cholesky("RunThreads.*SmallCholeskyIfE", 5, 1030, 1, blocks=64),
    _cholesky("RunWarps.*WarpCholeskyIfLi32E", 20, 3, 2),
    _cholesky("RunTeams.*TeamCholeskyIfE", 72, 2, 1),
    _cholesky("RunTeams.*FactorCholeskyPanelIfE", 300, 2, 1),
    _block_cholesky("RunTeams.*TeamFactorIfE", 12, 3, 5),
    _eigh("RunTeams.*ReduceEighIfLb1E", 20, 2, 7)]
OTHERS = [
    _cholesky("RunTeams.*CopyHermitianPartIfE", 130, 2, 0,
              attributes={"lower": True, "symmetrize": True}),
    _cholesky("RunTeams.*FinishCholeskyPanelsIfE", 130, 2, 0,
              attributes={"lower": False, "symmetrize": False}),
    _cholesky("RunTeams.*TeamCholeskyIfE", 33, 3, 1),
    _lu("RunThreads.*SmallLuIfE", 5, 1030, 1, blocks=64),
    _lu("RunWarps.*WarpLuIfLi32E", 20, 3, 5),
    _lu("RunTeams.*TeamLuIfE", 65, 2, 6),
    _lu("RunTeams.*TeamLuIfE", 72, 2, 7),
    _lu("RunTeams.*FactorLuPanelIfLi2E", 130, 2, 0),
    _lu("RunTeams.*ExchangeAndSolveIfE", 130, 2, 2),
    _cofactors("RunTeams.*TeamCofactorsIfLb1E", 20, 3, 8),
    _cofactors("RunTeams.*TeamCofactorsIfLb1E", 50, 2, 10),
    _qr("RunTeamsILb0E.*TeamQrIfE", 15, 513, 9, blocks=64),
    _qr("RunTeamsILb0E.*TeamQrIfE", 20, 2, 9),
    _eigh("RunTeams.*ReduceEighIfLb1E", 12, 513, 7, blocks=64),
    _eigh("RunTeams.*RotateEighIfE", 12, 513, 3, blocks=64),
    _eigh("RunTeams.*RotateEighIfE", 20, 2, 3),
    _eigh("RunTeams.*ReduceEighPanelIfE", 65, 2, 4, shared=16),
    _eigh("RunTeams.*SolveEighLeafIfE", 65, 2, 3, shared=16),
    _eigh("RunTeams.*DeflateEighIfE", 65, 2, 0, shared=16),
    _qr("RunTeams.*QrPanelIfE", 44, 2, 3, shared=5),
    _householder_product("RunTeams.*QrPanelIfE", 44, 2, 2, shared=5),
    _solve("RunWarps.*WarpSolveIfLi32E.*SolvedE1", 20, 3, 6),
    _solve("RunTeams.*TeamSolveIfLb0E", 65, 2, 5),
    _long_solve("RunTeams.*TeamReduceChunkIfE", 5, 1, 9),
    _long_solve("RunTeams.*TeamJoinChunksIfE", 5, 1, 11),
    _positive_solve("RunTeams.*TeamPositiveSolveIfE", 26, 3, 4),
    _positive_solve("RunTeams.*TeamPositiveSolveIfE", 75, 2, 4),
    _svd("RunTeams.*RotatePairsIfE", 66, 4, 4),
    _svd("RunTeams.*SortValuesIfE", 66, 4, 0),
    _vector_solve("RunTeams.*VectorSubstitutionIfE", 130, 2, 1),
    _svd_jvp("RunTeams.*SvdDerivativeIfLb0E", 32, 2, 5),
    _schur("RunTeams.*WithMultishift.*ComplexIfE.*TeamSchur", 66, 1, 25, shared=70),
    _smoother("RunTeams.*TeamSmootherIfE", 5, 3, 2),
    _smoother("RunTeams.*TeamSmootherIfE", 5, 3, 3, _of_unknown_states),
    _smoother_jvp("RunTeams.*TeamSmootherTangentIfE", 5, 3, 4),
    _smoother_vjp("RunTeams.*TeamSmootherAdjointIfE", 5, 3, 3)]


@pytest.fixture
def faulty(library, handlers, monkeypatch):
  """Returns a function that makes a Run and describes errors in the results."""
  listed = dict(line.split() for line in (library / "kernels.txt").read_text().splitlines())

  class Faulty:
    def set(self, run, fault, line):
      (self.kernel,) = [x for x in listed if re.search(run.kernel, x)]
      handlers.set_fault(self.kernel.encode(), fault, line)

    def reached(self, fault, opcode=""):
      """Returns the lines of such opcodes at which the run could have had the fault."""
      lines = (ctypes.c_int * 100_000)()
      count = handlers.lines_reached(fault, lines, len(lines))
      source = library / f"{listed[self.kernel].rpartition('_')[0]}.ptx"
      text = source.read_text().splitlines()
      return [line for line in lines[:count] if opcode in text[line - 1]]

    def error(self, run):
      monkeypatch.setenv("LINALG_PTX_BLOCKS", str(run.blocks))
      monkeypatch.setenv("LINALG_PTX_SHARED", str(run.shared))
      operands = run.operands(np.random.default_rng(0), run.batch, run.n)
      name = next(_names)
      jax.ffi.register_ffi_target(
          name, jax.ffi.pycapsule(handlers.handler_of(run.target.encode())), platform="cpu")
      results = jax.ffi.ffi_call(name, [
          jax.ShapeDtypeStruct((run.batch, *shape), dtype) for shape, dtype in run.results(run.n)])(
              *operands, **{key: np.bool_(x) for key, x in run.attributes.items()})
      wide_dtypes = {np.dtype(F): float, np.dtype(C): complex}
      wide = [np.asarray(x).astype(wide_dtypes.get(x.dtype, x.dtype))
              for x in (*operands, *results)]
      return np.abs(run.error(*wide)).max() / (
          run.n * np.abs(operands[0]).max() * np.finfo(F).eps)

    def is_caught(self, run):
      """Whether the run fails, or its results are wrong."""
      try:
        return not self.error(run) <= 10
      except (jax.errors.JaxRuntimeError, AssertionError):
        return True

  yield Faulty()
  handlers.set_fault(b"", 0, 0)


def _id(run):
  return f"{run.kernel}-{run.n}"


def _missed(run, faulty, rng):
  """Describes the mutants that no check notices; empty if these are spare barriers."""
  faulty.set(run, 0, 0)
  assert faulty.error(run) <= 10
  mutants = [(TOO_LITTLE, 0)]
  for fault in (NO_BARRIER, NO_WAIT, HALF_OF_MASK):
    mutants += [(fault, line) for line in faulty.reached(fault)]
  # Only stores are tried. A load from the wrong address need not show. For example, a check for NaN
  # loads all elements.
  stores = faulty.reached(NEXT_ELEMENT, run.stores)
  mutants += [
      (NEXT_ELEMENT, int(line))
      for line in rng.choice(stores, min(STORES, len(stores)), replace=False)]
  missed = []
  for fault, line in mutants:
    faulty.set(run, fault, line)
    if not faulty.is_caught(run):
      missed.append((fault, line))
  barriers = sum(fault == NO_BARRIER for fault, _ in missed)
  if barriers == len(missed) and barriers <= run.spare:
    return ""
  return f"of {len(mutants)} nobody noticed these (fault, line): {missed}"


@pytest.mark.parametrize("run", QUICK, ids=_id)
def test_quick(run, faulty, rng):
  assert not _missed(run, faulty, rng)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("run", OTHERS, ids=_id)
def test_others(run, faulty, rng):
  assert not _missed(run, faulty, rng)
