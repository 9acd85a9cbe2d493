"""Whose signature each function has, as docs/functions.md says, and that stock function."""

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
# The module that some functions follow, those functions, and who else has the names.
ROWS = [
    (follows, re.findall(r"`(\w+)`", functions), [x for x in namesakes.split(", ") if x.strip()])
    for follows, functions, namesakes in re.findall(
        r"^\| (jax[\w.]+) \| ([^|]+) \| ([^|]*)\|$", SECTION, re.MULTILINE)]
FOLLOWED = {name: follows for follows, functions, _ in ROWS for name in functions}
# Our function and the stock function that it follows.
PAIRS = {
    name: (getattr(linalg, name), getattr(MODULES[follows], name))
    for name, follows in FOLLOWED.items()
} | {"eigh_generalized": (linalg.eigh_generalized, jax.scipy.linalg.eigh)}
