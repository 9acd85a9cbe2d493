"""The stock function whose signature each function has, from docs/functions.md."""

import pathlib
import re

import jax.lax.linalg
import jax.numpy.linalg
import jax.scipy.linalg

import linalg

_PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "functions.md").read_text()
SECTION = _PAGE[_PAGE.index("## Whose signatures"):].partition("\n## ")[0]
MODULES = {
    "jax.numpy.linalg": jax.numpy.linalg,
    "jax.scipy.linalg": jax.scipy.linalg,
    "jax.lax.linalg": jax.lax.linalg,
}
# The module that some functions follow, those functions, and the other modules that have the names.
ROWS = [
    (follows, re.findall(r"`(\w+)`", functions), [x for x in namesakes.split(", ") if x.strip()])
    for follows, functions, namesakes in re.findall(
        r"^\| (jax[\w.]+) \| ([^|]+) \| ([^|]*)\|$", SECTION, re.MULTILINE)]
FOLLOWED = {name: follows for follows, functions, _ in ROWS for name in functions}
# This package's function and the stock function that it follows.
PAIRS = {
    name: (getattr(linalg, name), getattr(MODULES[follows], name))
    for name, follows in FOLLOWED.items()
} | {"eigh_generalized": (linalg.eigh_generalized, jax.scipy.linalg.eigh)}
