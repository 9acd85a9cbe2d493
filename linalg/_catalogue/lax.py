"""`linalg.lax`: functions whose signature or result differs from `linalg`'s."""

import functools

import jax.numpy as jnp

from linalg._catalogue.invariants import in_order, singular, spectral, triangular
from linalg._catalogue.record import Function, Kind

OTHERWISE = Kind("lax", "With another signature or result than in linalg")

_function = functools.partial(
    Function, kind=OTHERWISE, module="linalg.lax", no_cases="a function of linalg in another form")

LAX_FUNCTIONS: tuple[Function, ...] = (
    _function(
        "cholesky",
        calls={
            "": lambda m, a, p, b: m.cholesky(p),
            "of a triangle": lambda m, a, p, b: m.cholesky(p, symmetrize_input=False),
        }),
    _function(
        "cholesky_update",
        calls={
            "": lambda m, a, p, b: m.cholesky_update(
                m.cholesky(p.real).mT, jnp.ones(p.shape[0], p.real.dtype)),
        }),
    _function(
        "eig", results={"eig(a)": "list[Array]"},
        calls={
            "": lambda m, a, p, b: [
                in_order(m.eig(a)[0]), *(jnp.abs(v).sum() for v in m.eig(a)[1:])],
            "right": lambda m, a, p, b: [
                in_order(x) if x.ndim == 1 else jnp.abs(x).sum()
                for x in m.eig(a, compute_left_eigenvectors=False)],
            "of values": lambda m, a, p, b: [in_order(x) for x in m.eig(
                a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)],
        }),
    _function(
        "eigh", results={"eigh(a)": "Arrays2"},
        calls={
            "": lambda m, a, p, b: spectral(*m.eigh(p)[::-1]),
            "of a triangle": lambda m, a, p, b: spectral(
                *m.eigh(p, lower=False, symmetrize_input=False)[::-1]),
            "by name": lambda m, a, p, b: spectral(
                *m.eigh(p, implementation=m.EighImplementation.QR)[::-1]),
        }),
    _function(
        "lu", results={"lu(a)": "Arrays3"},
        calls={"": lambda m, a, p, b: m.lu(a)}),
    _function(
        "qr",
        calls={
            "": lambda m, a, p, b: m.qr(b),
            "thin": lambda m, a, p, b: m.qr(b, full_matrices=False),
            "pivoted": lambda m, a, p, b: m.qr(b, full_matrices=False, pivoting=True),
        }),
    _function(
        "schur",
        calls={
            "": lambda m, a, p, b: triangular(*m.schur(p)),
            "of values": lambda m, a, p, b: [
                in_order(jnp.diagonal(t)) for t in m.schur(p, compute_schur_vectors=False)],
        }),
    _function(
        "svd", results={"svd(a, compute_uv=False)": "Array"},
        calls={
            "full": lambda m, a, p, b: singular(*m.svd(b)),
            "": lambda m, a, p, b: singular(*m.svd(b, full_matrices=False)),
            "of values": lambda m, a, p, b: m.svd(b, compute_uv=False),
            "by name": lambda m, a, p, b: m.svd(b, compute_uv=False, algorithm=m.SvdAlgorithm.QR),
        }),
)
