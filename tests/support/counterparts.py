"""The stock function that each of ours follows."""

import importlib

from linalg._catalogue import CATALOGUE


def _stock(full_name):
  module, _, name = full_name.rpartition(".")
  return getattr(importlib.import_module(module), name)


FOLLOWING = {x.name: x for x in CATALOGUE if x.module == "linalg" and x.counterpart}
# Our function and the stock function that it follows.
PAIRS = {name: (x.function, _stock(x.counterpart)) for name, x in FOLLOWING.items()}
