"""Times contestants in turn: one sample of each in every round.

A slow phase of the machine then slows them all, and the ratio of one round keeps its meaning.
"""

import gc
import math
import random
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import other_threads

MIN_ROUNDS = 3
SAMPLE_SECONDS = 2e-3  # a sample repeats its call for at least this long
WARM_UP_SECONDS = 20e-3  # untimed calls before, which also allocate memory
LONGEST_WAIT_SECONDS = 0.5  # for threads of the previous contestant

Clock = Callable[[], float]


def _seconds(call: Callable[[], Any], calls: int, clock: Clock = time.perf_counter) -> float:
  start = clock()
  for _ in range(calls):
    call()
  return clock() - start


def _calls_per_sample(call: Callable[[], Any], clock: Clock) -> int:
  """Expects that `call` has been called, since the first call may compile."""
  start = time.perf_counter()
  while time.perf_counter() - start < WARM_UP_SECONDS:
    call()
  calls = 1
  while _seconds(call, calls, clock) < SAMPLE_SECONDS:
    calls *= 2
  return calls


def wait_for_threads() -> float:
  """Waits at most LONGEST_WAIT_SECONDS until no other thread of this process works.

  Returns the seconds. It does not wait without /proc, nor if JAX's programs run on a GPU.
  OpenBLAS's threads spin for about 100 ms after a call, on a processor that the next contestant
  needs.
  """
  start = time.perf_counter()
  at_rest = 0
  here = jax.default_backend() == "cpu" and other_threads.TASKS.exists()
  while here and at_rest < 2 and time.perf_counter() - start < LONGEST_WAIT_SECONDS:
    at_rest = 0 if other_threads.one_works() else at_rest + 1
    time.sleep(0.5e-3)
  return time.perf_counter() - start


def measure(
    contestants: dict[str, Callable[[], Any]], max_rounds: int, max_seconds: float,
    slow: float = math.inf, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
  """The seconds of a call: for each contestant, one sample in each round.

  Waits for threads do not count in `max_seconds`. A contestant whose call takes more than `slow`
  seconds has one sample. `clock` is read before and after the calls of a sample.
  """
  samples: dict[str, list[float]] = {}
  calls = {}
  for name, call in contestants.items():
    call()  # compiles
    seconds = math.inf if slow == math.inf else _seconds(call, 1, clock)
    samples[name] = [seconds] if slow < seconds < math.inf else []
    if not samples[name]:
      calls[name] = _calls_per_sample(call, clock)
  order = list(calls)
  gc.collect()
  gc.disable()
  try:
    start = time.perf_counter()
    waited = 0.0
    for done in range(max_rounds if order else 0):
      if done >= MIN_ROUNDS and time.perf_counter() - start - waited > max_seconds:
        break
      random.shuffle(order)
      for name in order:
        waited += wait_for_threads()
        contestants[name]()  # untimed, since another contestant has filled the caches
        samples[name].append(_seconds(contestants[name], calls[name], clock) / calls[name])
  finally:
    gc.enable()
  return samples


def rounded(x: float) -> float:
  return float(f"{x:.4g}")


def summarise(samples: dict[str, list[float]]) -> dict[str, Any]:
  """Median times, and the median and quartiles over rounds of each rival's time over ours."""
  speedup = {}
  for rival in [name for name in samples if name != "ours"]:
    ratios = np.divide(samples[rival], samples["ours"])
    q1, median, q3 = map(rounded, np.percentile(ratios, [25, 50, 75]))
    speedup[rival] = {"median": median, "q1": q1, "q3": q3}
  return {
      "rounds": max(map(len, samples.values())),
      "seconds": {name: rounded(np.median(times)) for name, times in samples.items()},
      "speedup": speedup,
  }
