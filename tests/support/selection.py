"""A test's choice of dtypes and of slow cases, which conftest.py reads.

A test has the decorator, or its module sets the name in capitals to True:

- `one_dtype`: the dtype hardly matters. float32 by default, complex128 with `extended`.
- `all_dtypes`: arithmetic matters. Two dtypes by default, the other two with `extended`.
- both: float32 by default, the other three with `extended`.
- `compiles`: it compiles a program for each case. Slow cases and variants are `extended`.
- `extended_for(*values)`: it takes long for these values of a parameter, so they are `extended`.
- `in_turn(count, of)`: for each case, or another parameter, so many of the tests run by default.
  The cases take the values of the other parameters in turn. The rest are `extended`.
- `one_in(count)`: one in so many of the test's values of parameters runs by default. The option
  `--turn` says which one. The rest are `extended`.
"""

import collections
import functools


def _choose(name, test, value=True):
  setattr(test, name, value)
  return test


one_dtype = functools.partial(_choose, "one_dtype")
all_dtypes = functools.partial(_choose, "all_dtypes")
compiles = functools.partial(_choose, "compiles")


def extended_for(*values):
  return lambda test: _choose("extended_for", test, frozenset(values))


def is_extended_value(item):
  """Whether the test takes long for a value of the item's parameters."""
  values = getattr(getattr(item, "function", None), "extended_for", ())
  parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
  return bool(values) and any(
      name in values for x in parameters
      if isinstance(name := getattr(x, "name", getattr(x, "__name__", x)), str))


def in_turn(count, of="case"):
  return lambda test: _choose("in_turn", test, (count, of))


def one_in(count):
  return lambda test: _choose("one_in", test, count)


def left_by_counting(items, turn):
  """Returns the items of tests with `one_in` that do not run in this turn."""
  tests = collections.defaultdict(list)
  for item in items:
    function, module = getattr(item, "function", None), getattr(item, "module", None)
    count = chooses("one_in", function, module)
    if count and hasattr(item, "callspec"):
      assert 30 % count == 0, "turns 0 to 29 run each test equally often"
      tests[function, count].append(item)
  # The second term keeps the choice from falling on one dtype alone.
  return [
      item for (_, count), some in tests.items() for i, item in enumerate(some)
      if len(some) > 1 and (i + i // count - turn) % count]


def left_by_turns(items):
  """Returns the items of tests with `in_turn` that are not their case's turn."""
  tests = collections.defaultdict(lambda: collections.defaultdict(list))
  for item in items:
    if hasattr(getattr(item, "function", None), "in_turn"):
      one = item.callspec.params[item.function.in_turn[1]]
      tests[item.function][getattr(one, "name", one)].append(item)
  left = []
  for test, cases in tests.items():
    count = test.in_turn[0]
    for turn, some in enumerate(cases.values()):
      chosen = {(turn * count + i) % len(some) for i in range(count)}
      left += [item for i, item in enumerate(some) if i not in chosen]
  return left


def chooses(name: str, function: object, module: object) -> bool:
  """Whether a test, or all tests of its module, made this choice."""
  return getattr(function, name, False) or getattr(module, name.upper(), False)
