"""Functions of square matrices: f(A)."""

import math

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import scipy.linalg

import linalg
from linalg._catalogue import sharded
from linalg._catalogue.distance import composed
from linalg._catalogue.operands import general, hermitian, positive_definite, square
from linalg._catalogue.record import (
    NO_SCHUR_FORM,
    NO_SPECTRUM,
    SINGULAR,
    Behaviour,
    Failure,
    Function,
    Kind,
)
from linalg._catalogue.timed import GENERAL, Timed, called
from linalg._catalogue.why import PRODUCTS

EYE = np.eye(3)
KIND = Kind("functions_of_matrices")


def _expm(a):
  return scipy.linalg.expm(a) if a.size else a

def _scaled(rng, batch, m, n, dtype):
  (a,) = general(rng, batch, n, n, dtype)
  return (a * dtype.type(2 / np.sqrt(max(n, 1))),)

def _spectral(function):
  def oracle(a):
    w, v = np.linalg.eigh(a)
    return ((v * function(w)) @ v.conj().T,)

  return oracle

FUNCTIONS: tuple[Function, ...] = (
    Function(
        "expm", KIND,
        behaviours=(Behaviour(
            "each matrix scaled by itself; Fréchet derivative",
            ("values/test_matrix_functions.py::test_expm",)),),
        sharded=sharded.STACK,
        calls={"": lambda m, a, p, b: m.expm(a / 4)},
        fails=Failure(math.nan, "has no LU factors: they would hold NaN."),
        cases=(
            composed("expm", linalg.expm, _scaled, (2,), lambda a: (_expm(a),),
                     jax.scipy.linalg.expm, 10, varying={0: PRODUCTS}, stock_hangs=True,
                     timed=Timed((GENERAL,), lambda n: 16 * n**3,
                                 called("linalg.matrix_exp", "torch"))),
        )),
    Function(
        "sqrtm", KIND,
        behaviours=(Behaviour(
            "batched; derivative at equal eigenvalues",
            ("values/test_matrix_functions.py::test_sqrtm",)),),
        sharded=sharded.STACK,
        calls={"": lambda m, a, p, b: m.sqrtm(p)},
        fails=NO_SCHUR_FORM,
        cases=(
            composed("sqrtm", linalg.sqrtm, positive_definite, (2,),
                     lambda a: (_spectral(np.sqrt)(a)[0] + 0j,), jax.vmap(jax.scipy.linalg.sqrtm),
                     10),
        )),
    Function(
        "matrix_power", KIND,
        behaviours=(Behaviour("", (
            "api/test_names.py::test_result_types", "api/test_array_api.py::test_values")),),
        sharded=sharded.STACK, arguments=(EYE, 2), results={"matrix_power(a, 3)": "Array"},
        calls={
            "": lambda m, a: m.matrix_power(a, 2),
            "of 0": lambda m, a: m.matrix_power(a, 0),
            "of -1": lambda m, a: m.matrix_power(a, -1),
        },
        fails=SINGULAR._replace(call=lambda a: linalg.matrix_power(a, -2)),
        cases=(
            composed("matrix_power", lambda a: linalg.matrix_power(a, 3), square, (2,),
                     lambda a: (np.linalg.matrix_power(a, 3),),
                     lambda a: jnp.linalg.matrix_power(a, 3)),
            composed("matrix_power_-2", lambda a: linalg.matrix_power(a, -2), square, (2,),
                     lambda a: (np.linalg.matrix_power(a, -2),),
                     lambda a: jnp.linalg.matrix_power(a, -2), 100, variant=True),
        )),
    Function(
        "funm_hermitian", KIND,
        behaviours=(Behaviour(
            "first and second derivatives exact at any spectrum, and by parameters of the function",
            ("values/test_matrix_functions.py::test_funm_hermitian",
             "values/test_matrix_functions.py::test_parameters_of_a_function")),),
        arguments=(EYE, jnp.exp),
        results={"funm_hermitian(a, lambda w: w)": "Array"},
        fails=NO_SPECTRUM,
        cases=(
            composed("funm_hermitian", lambda a: linalg.funm_hermitian(a, jnp.sin), hermitian, (2,),
                     _spectral(np.sin), condition=20),
        )),
    Function(
        "inverse_pth_root", KIND,
        behaviours=(Behaviour(
            "first and second derivatives exact at any spectrum; of zero matrices, and of those "
            "that rounding has made indefinite, with `epsilon`",
            ("values/test_hermitian_functions.py::test_zero_matrix",
             "values/test_hermitian_functions.py::test_indefinite_by_rounding",
             "values/test_hermitian_functions.py::test_derivatives_of_a_clamped_matrix")),),
        arguments=(EYE, 2),
        results={"inverse_pth_root(a, 4, epsilon=1e-12)": "Array"},
        fails=NO_SPECTRUM,
        cases=(
            composed("inverse_pth_root", lambda a: linalg.inverse_pth_root(a, 4), positive_definite,
                     (2,), _spectral(lambda w: w**-0.25), condition=20),
        )),
)
