"""A step of a random program, and the arithmetic of the references."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import mpmath
import numpy as np
import scipy.linalg

import linalg
import many_digits


class Double:
  """The references' decompositions in double precision."""

  inv, det, cholesky = np.linalg.inv, np.linalg.det, np.linalg.cholesky
  expm, log, sqrt, real, absolute = scipy.linalg.expm, np.log, np.sqrt, np.real, np.abs

  @staticmethod
  def eye(n):
    return np.eye(n)

  @staticmethod
  def eigh(a):
    return np.linalg.eigh((a + a.conj().T) / 2)

  @staticmethod
  def svd(a):
    return np.linalg.svd(a, full_matrices=False)

  @staticmethod
  def of_each(f, g):
    del g
    return f


class Many:
  """The references' decompositions by mpmath."""

  inv, det, cholesky = many_digits.inv, many_digits.det, many_digits.cholesky
  eigh, svd, expm = many_digits.eigh, many_digits.svd, many_digits.expm
  log, sqrt, real = (np.frompyfunc(f, 1, 1) for f in (mpmath.log, mpmath.sqrt, mpmath.re))
  absolute = np.frompyfunc(abs, 1, 1)

  @staticmethod
  def eye(n):
    return many_digits.exact(np.eye(n))

  @staticmethod
  def of_each(f, g):
    del f
    return np.frompyfunc(g, 1, 1)


def adjoint(a):
  return a.conj().T if isinstance(a, np.ndarray) else a.mT.conj()


def hermitian(a):
  return (a + adjoint(a)) / 2


@dataclasses.dataclass(frozen=True)
class Step:
  """One function of a program.

  Attributes:
    takes: the kind of matrices that it takes: "general", "hermitian", "positive", "lower". "any" is
      for steps that are put after others, and "same" is what they give.
    gives: the kind that it returns, or "end" if no step can follow.
    call: (library, matrices, constant) -> matrices. The constant is a square matrix.
    reference: (arithmetic, matrix, constant) -> matrix, for one matrix.
    stock: whether the library may be JAX's.
    loops: whether its derivative takes long to compile.
    real: whether it takes real matrices only.
  """

  takes: str
  gives: str
  call: Callable[..., Any]
  reference: Callable[..., Any]
  stock: bool = False
  loops: bool = False
  real: bool = False


def spectral(f, g):
  """The reference of a function f(A) of Hermitian matrices; g is f in many digits."""

  def of(b, a, c):
    del c
    w, v = b.eigh(a)
    return (v * b.of_each(f, g)(w)) @ adjoint(v)

  return of


def stacked(x, c, stack):
  return stack([x, jnp.broadcast_to(c, x.shape) if stack is jnp.concatenate else c], axis=-2)


def constant(c, x):
  return jnp.broadcast_to(c, x.shape)


def scalar(x):
  return x[..., None]


def of_dtype(x, like):
  return x.real.astype(like.dtype) if not jnp.iscomplexobj(like) else x.astype(like.dtype)


def size(x):
  return linalg.matrix_norm(x, keepdims=True).astype(x.dtype)


def norm(x):
  return size(x) / float(np.sqrt(x.shape[-1]))


def frobenius(b, a):
  return b.sqrt((b.absolute(a) ** 2).sum())


def norm_of(b, a):
  return frobenius(b, a) / float(np.sqrt(len(a)))
