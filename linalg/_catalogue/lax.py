"""`linalg.lax`: functions whose signature or result differs from `linalg`'s."""

import functools

from linalg._catalogue.record import Function, Kind

OTHERWISE = Kind("lax", "With another signature or result than in linalg")

_function = functools.partial(Function, kind=OTHERWISE, module="linalg.lax")

LAX_FUNCTIONS: tuple[Function, ...] = (
    _function("cholesky"),
    _function("cholesky_update"),
    _function("eig", results={"eig(a)": "list[Array]"}),
    _function("eigh", results={"eigh(a)": "Arrays2"}),
    _function("lu", results={"lu(a)": "Arrays3"}),
    _function("qr"),
    _function("schur"),
    _function("svd", results={"svd(a, compute_uv=False)": "Array"}),
)
