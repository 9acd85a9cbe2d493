"""`linalg.distributed`: one matrix on several devices."""

import functools

import numpy as np

from linalg._catalogue.record import Function, Kind

EYE = np.eye(3)

_function = functools.partial(
    Function, module="linalg.distributed", no_cases="takes one matrix on several devices")
_shared, _tall, _definite, _square, _hermitian, _triangular, _stacks, _moves = (
    functools.partial(_function, kind=Kind("distributed", section)) for section in (
        "Matrices of any shape", "Tall matrices", "Positive definite matrices", "Square matrices",
        "Hermitian matrices", "Triangular matrices", "Stacks", "What a program moves"))

DISTRIBUTED: tuple[Function, ...] = (
    _shared("qr"),
    _shared("svd"),
    _shared("svdvals"),
    _shared("lstsq"),
    _shared("pinv"),
    _shared("polar"),
    _tall("randomized_svd", classes=("RandomizedSVDResult",),
          arguments=(EYE, 1, np.zeros(2, np.uint32))),
    _tall("newton_schulz"),
    _tall("gram_inverse_pth_root", arguments=(EYE, 2)),
    _definite("cholesky"),
    _definite("cho_factor", classes=("CholeskyFactor",)),
    _definite("cho_solve"),
    _square("solve"),
    _square("slogdet"),
    _square("det"),
    _square("inv"),
    _square("lu_factor", classes=("LUFactor",)),
    _square("lu_solve"),
    _hermitian("eigh"),
    _hermitian("eigvalsh"),
    _hermitian("eigh_generalized"),
    _hermitian("funm_hermitian", arguments=(EYE, np.sin)),
    _hermitian("inverse_pth_root", arguments=(EYE, 2)),
    _triangular("solve_triangular"),
    _stacks("batched", no_cases="takes a function"),
    _moves("report", classes=("Report",), no_cases="takes a compiled program"),
)
