"""A test's choice of dtypes and of slow cases, which conftest.py reads.

A test has the decorator, or its module sets the name in capitals to True:

- `one_dtype`: the dtype hardly matters. float32 by default, complex128 with `extended`.
- `all_dtypes`: arithmetic matters. Two dtypes by default, the other two with `extended`.
- both: float32 by default, the other three with `extended`.
- `compiles`: it compiles a program for each case. Slow cases and variants are `extended`.
"""

import functools


def _choose(name, test):
  setattr(test, name, True)
  return test


one_dtype = functools.partial(_choose, "one_dtype")
all_dtypes = functools.partial(_choose, "all_dtypes")
compiles = functools.partial(_choose, "compiles")


def chooses(name: str, function: object, module: object) -> bool:
  """Whether a test, or all tests of its module, made this choice."""
  return getattr(function, name, False) or getattr(module, name.upper(), False)
