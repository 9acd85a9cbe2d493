"""Results in JAX without the signs, bases and order that a decomposition leaves open."""

import jax.numpy as jnp


def spectral(w, v):
  """The eigenvalues, and V diag(w) Vᴴ."""
  return w, v * w[..., None, :].astype(v.dtype) @ v.mT.conj()


def singular(u, s, vh):
  """The singular values, and U diag(s) Vᴴ."""
  k = s.shape[-1]
  return s, u[..., :k] * s[..., None, :].astype(u.dtype) @ vh[..., :k, :]


def in_order(w):
  return jnp.sort(w, axis=-1)


def triangular(t, z):
  """The part of T below its diagonal, and Z T Zᴴ."""
  return jnp.triu(t) - t, z @ t @ z.mT.conj()
