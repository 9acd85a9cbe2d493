"""Calls of the code that tests/cuda/team_phases.cc compiles, by teams of several sizes in all
orders."""

import ctypes

import numpy as np

TEAMS = (1, 4, 32, 128)
ORDERS = (0, 1, 2)


def padded(a, fill=np.nan):
  """A copy with rows an odd number of elements apart, as in shared memory."""
  rows, cols = a.shape
  copy = np.full((rows, cols | 1), fill, a.dtype)
  copy[:, :cols] = a
  return copy


def integers(size):
  return np.full(size, -7, np.int32)


def call(library, name, dtype, *arguments):
  function = getattr(library, f"{name}_{np.dtype(dtype).name}")
  return function(*(
      x.ctypes.data_as(ctypes.c_void_p) if isinstance(x, np.ndarray) else
      None if x is None else ctypes.c_int(int(x)) for x in arguments))


def in_all_orders(run, teams=TEAMS):
  """The results of `run(team, order)` for each size of a team: the same bits in every order."""
  for team in teams:
    first, *others = [run(team, order) for order in ORDERS]
    for other in others:
      for x, y in zip(first, other, strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), f"a race, with {team} threads"
    yield first
