"""Calls that a type checker must refuse. mypy and pyright read them. They are never run."""

import jax

import linalg


def wrong_arguments(a: jax.Array) -> None:
  """Each of these is an error, and an ignore that is not needed is one too."""
  linalg.cholesky(a, a)  # type: ignore[arg-type,call-arg]  # pyright: ignore[reportCallIssue]
  linalg.eigh(a, a)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
  linalg.inv(a, foo=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
  linalg.qr(a, pivot=True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
