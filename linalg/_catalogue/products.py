"""Norms, products, and parts and arrangements of matrices."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import scipy.linalg

import linalg
from linalg._catalogue import checks, sharded
from linalg._catalogue.case import Case
from linalg._catalogue.distance import composed
from linalg._catalogue.operands import (
  general,
  square,
  two_square,
  two_vectors,
  unitary_beside,
  vector,
)
from linalg._catalogue.record import NO_SINGULAR_VALUES, Behaviour, Function, Kind
from linalg._catalogue.timed import GENERAL, Timed, called
from linalg._catalogue.why import PRODUCTS, SUMS

EYE = np.eye(3)
NORMS = Kind("products", "Norms")
PRODUCT = Kind("products", "Products")
PARTS = Kind("products", "Parts and arrangements")

IN_RANGE = "neither overflows nor underflows on the way; a subgradient at 0"
RANGE = Behaviour(
    "neither overflow nor underflow on the way; a subgradient at 0",
    ("values/test_norms.py::test_range", "values/test_norms.py::test_gradient_at_zero"))
OF_STOCK = Behaviour(
    "", ("api/test_names.py::test_result_types", "api/test_array_api.py::test_values"))
FULL_PRECISION = "A X Aᴴ + Q, by the handlers of `matmul`, in full precision"


def _norm_oracle(order):
  return lambda a: (np.linalg.norm(a, order) if a.size else 0.0,)

def _matrix_norm(library, order):
  return lambda a: library.matrix_norm(a, ord=order)

def _vector_norm(library, order):
  return lambda x: library.vector_norm(x, ord=order, axis=-1)

def _product_ratio(operands, results):
  # |C - A B| / (n |A| |B| eps), element by element.
  (a, b), (c,) = map(checks.wide, operands), results
  scale = max(a.shape[-1], 1) * (np.abs(a) @ np.abs(b)) * checks.eps(c)
  return checks.worst(np.abs(checks.wide(c) - a @ b), scale)

def _two_triples(rng, batch, m, n, dtype):
  return two_vectors(rng, batch, m, 3, dtype)

PRODUCTS_AND_NORMS: tuple[Function, ...] = (
    Function(
        "norm", NORMS, differs=IN_RANGE, behaviours=(RANGE,), sharded=sharded.BY_XLA_LINALG,
        results={"norm(a, 2, axis=(0, 1))": "Array"},
        calls={
            "": lambda m, a: m.norm(a),
            "of vectors": lambda m, a: m.norm(a, axis=1, keepdims=True),
            "0": lambda m, a: m.norm(a, 0, axis=1),
        },
        fails=NO_SINGULAR_VALUES._replace(call=lambda a: linalg.norm(a, 2, (-2, -1))),
        cases=(
            composed("norm", lambda a: linalg.norm(a, axis=(-2, -1)), general, (2,),
                     _norm_oracle("fro"), lambda a: jnp.linalg.norm(a, axis=(-2, -1)),
                     rectangular=True, varying={0: SUMS}),
        )),
    Function(
        "vector_norm", NORMS, differs=IN_RANGE, behaviours=(RANGE,), sharded=sharded.BY_XLA_LINALG,
        results={"vector_norm(a, ord=3)": "Array"},
        cases=tuple(
            composed(f"vector_norm_{order}", _vector_norm(linalg, order), vector, (1,),
                     _norm_oracle(order), _vector_norm(jnp.linalg, order), 4, empty=order > 1,
                     variant=order != 3, varying={0: SUMS})
            for order in (3, 2, 0.5, -1))),
    Function(
        "matrix_norm", NORMS, differs=IN_RANGE,
        behaviours=(Behaviour(
            "neither overflow nor underflow on the way; finite derivatives at equal singular "
            "values, and a subgradient at 0",
            ("values/test_norms.py::test_gradient_of_matrix_norms",)),),
        sharded=sharded.VALUES,
        fails=NO_SINGULAR_VALUES._replace(call=lambda a: linalg.matrix_norm(a, ord="nuc")),
        cases=(
            *(composed(f"matrix_norm_{order}", _matrix_norm(linalg, order), general, (2,),
                       _norm_oracle(order), _matrix_norm(jnp.linalg, order), 2, rectangular=True,
                       variant=order != 2, varying={} if order == 2 else {0: SUMS})
              for order in (2, "nuc", 1, np.inf)),
            composed("matrix_norm_-2", _matrix_norm(linalg, -2), square, (2,),
                     lambda a: (np.linalg.norm(a, -2),), _matrix_norm(jnp.linalg, -2), 20,
                     empty=False, variant=True),
        )),
    Function(
        "matmul", PRODUCT, differs="batches of small matrices by a handler",
        behaviours=(Behaviour(
            "the same bits in any batch, where the handlers are called, for small matrices",
            ("values/test_matmul.py::test_bits_do_not_depend_on_the_batch",
             "values/test_matmul.py::test_the_handlers_are_called")),),
        sharded=sharded.BY_XLA, results={'matmul(a, a, precision="highest")': "Array"},
        cases=(
            Case("matmul", linalg.matmul, two_square, (2, 2), _product_ratio,
                 lambda a, b: (a @ b,), jnp.linalg.matmul, closed_form=3, xla=True,
                 matrix="general", of_matrix=lambda a: (a, unitary_beside(a)),
                 timed=Timed((GENERAL, GENERAL), lambda n: 2 * n**3,
                             called("matmul", "numpy", "torch", "cupy"))),
        )),
    Function(
        "congruence", PRODUCT,
        behaviours=(Behaviour(FULL_PRECISION, ("values/test_matmul.py::test_congruence",)),),
        sharded="a @ x @ a.conj().mT + q: XLA shards sums and products",
        results={
            "congruence(a, a)": "Array", "congruence(a, a, a, adjoint_a=True)": "Array"},
        cases=(
            composed("congruence", linalg.congruence, two_square, (2, 2),
                     lambda a, x: (a @ x @ a.conj().T,), lambda a, x: a @ x @ a.mT.conj()),
            composed("congruence_adjoint",
                     lambda a, x: linalg.congruence(a, x, a, adjoint_a=True), two_square, (2, 2),
                     lambda a, x: (a.conj().T @ x @ a + a,),
                     lambda a, x: a.mT.conj() @ x @ a + a, variant=True),
        )),
    Function(
        "multi_dot", PRODUCT, behaviours=(OF_STOCK,), sharded=sharded.BY_XLA_LINALG,
        arguments=([EYE, EYE],), calls={"": lambda m, a: m.multi_dot([a[0], a[1], a[0]])},
        no_cases="takes no batch"),
    Function(
        "outer", PRODUCT, behaviours=(OF_STOCK,), sharded=sharded.BY_XLA,
        calls={"": lambda m, a: m.outer(a[0, 0], a[0, 1])}, no_cases="takes no batch"),
    Function(
        "cross", PRODUCT, behaviours=(OF_STOCK,), sharded=sharded.BY_XLA,
        calls={"": lambda m, a: m.cross(a[..., :3], a[..., :3] + 1)},
        cases=(
            composed("cross", linalg.cross, _two_triples, (1, 1), lambda x, y: (np.cross(x, y),),
                     jnp.linalg.cross, empty=False, varying={0: PRODUCTS}),
        )),
    Function(
        "vecdot", PRODUCT, behaviours=(OF_STOCK,), sharded=sharded.BY_XLA,
        cases=(
            composed("vecdot", linalg.vecdot, two_vectors, (1, 1), lambda x, y: (np.vdot(x, y),),
                     jnp.linalg.vecdot, 20, varying={0: SUMS}),
        )),
    Function(
        "tensordot", PRODUCT, behaviours=(OF_STOCK,), sharded=sharded.BY_XLA,
        calls={"": lambda m, a: m.tensordot(a, a, axes=([1, 2], [1, 2]))},
        no_cases="takes no batch"),
    Function(
        "diagonal", PARTS, behaviours=(OF_STOCK,), sharded=sharded.BY_XLA,
        results={"diagonal(a, offset=1)": "Array"},
        cases=(
            composed("diagonal", lambda a: linalg.diagonal(a, offset=1), general, (2,),
                     lambda a: (np.diagonal(a, 1),), lambda a: jnp.linalg.diagonal(a, offset=1),
                     rectangular=True),
        )),
    Function(
        "trace", PARTS, behaviours=(OF_STOCK,), sharded=sharded.BY_XLA,
        cases=(
            composed("trace", linalg.trace, general, (2,), lambda a: (np.trace(a),),
                     jnp.linalg.trace, 20, rectangular=True, varying={0: SUMS}),
        )),
    Function(
        "matrix_transpose", PARTS, behaviours=(OF_STOCK,), sharded=sharded.BY_XLA,
        cases=(
            composed("matrix_transpose", linalg.matrix_transpose, general, (2,), lambda a: (a.T,),
                     jnp.linalg.matrix_transpose, rectangular=True),
        )),
    Function(
        "block_diag", PARTS,
        behaviours=(Behaviour("batched", ("values/test_matrix_functions.py::test_block_diag",)),),
        sharded="jax.scipy.linalg.block_diag", results={"block_diag(a, a)": "Array"},
        calls={"": lambda m, a, p, b: m.block_diag(a, b)},
        cases=(
            composed("block_diag", linalg.block_diag, two_square, (2, 2),
                     lambda a, b: (scipy.linalg.block_diag(a, b),),
                     jax.vmap(jax.scipy.linalg.block_diag), zeros=True),
        )),
)
