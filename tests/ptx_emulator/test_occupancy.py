"""How many blocks of each kernel a multiprocessor of an H100 holds.

The limits are the threads and shared memory of the launches, and the registers that ptxas assigns.
The option `-s` prints the table of docs/cuda.md.
"""

import re
import shutil
import subprocess
from typing import NamedTuple

import numpy as np
import pytest

import ptx_calls

pytestmark = pytest.mark.extended


class Launch(NamedTuple):
  kernel: str
  threads: int  # per block
  nbytes: int  # of shared memory per block


class Tier(NamedTuple):
  """A handler's path for matrices of a dtype, and the expected blocks per multiprocessor of each
  kernel."""

  target: str
  n: int
  blocks: dict[str, int]
  dtype: str = "float32"
  batch: int = 0  # 0: one that fills blocks


TIERS = [
    Tier("cholesky", 8, {"SmallCholesky": 6}),
    Tier("cholesky", 32, {"WarpCholesky": 8}),
    Tier("cholesky", 64, {"TeamCholesky": 6}),
    Tier("cholesky", 128, {"TeamCholesky": 3}),
    Tier("cholesky", 112, {"TeamCholesky": 2}, "float64"),
    Tier("lu", 8, {"SmallLu": 5}),
    Tier("lu", 32, {"WarpLu": 8}),
    Tier("lu", 64, {"WarpLu": 4}),
    Tier("lu", 128, {"TeamLu": 3}),
    Tier("lu", 112, {"TeamLu": 2}, "float64"),
    Tier("solve", 8, {"SmallSolve": 6}),
    Tier("solve", 32, {"WarpSolve": 6}),
    Tier("solve", 128, {"TeamSolve": 1}),
    Tier("inv", 32, {"WarpSolve": 6}),
    Tier("inv", 64, {"WarpSolve": 6}),
    Tier("qr", 8, {"SmallQr": 6}),
    Tier("qr", 32, {"TeamQr": 10}),
    Tier("qr", 64, {"TeamQr": 10}),
    Tier("qr", 128, {"TeamQr": 3}),
    Tier("eigh", 8, {"SmallEigh": 6}),
    Tier("eigh", 32, {"ReduceEigh": 4, "RotateEigh": 4}),
    Tier("eigh", 64, {"ReduceEigh": 6, "RotateEigh": 5}),
    Tier("eigh", 128, {"ReduceEigh": 3, "RotateEigh": 3}),
    Tier("eigh", 192, {"ReduceEighPanel": 2, "SolveEighLeaf": 16, "DeflateEigh": 6}),
    Tier("eigh", 512, {"ReduceEighPanel": 2, "SolveEighLeaf": 16, "DeflateEigh": 6}, batch=8),
    Tier("cholesky_banded", 16, {"TeamBandedCholesky": 8}, batch=1024),
    Tier("cholesky_banded_solve", 16, {"TeamBandedSolve": 4}, batch=1024),
    Tier("svd", 6, {"SmallSvd": 9}),
    Tier("svd", 32, {"TeamSvd": 4}),
    Tier("svd", 64, {"TeamSvd": 6}),
    Tier("svd_jvp", 32, {"SvdDerivative": 6}),
    Tier("svd_vjp", 32, {"SvdDerivative": 5})]

# Compute capability 9.0: CUDA Programming Guide, technical specifications.
ARCH = "sm_90"
MOST_BLOCKS, MOST_WARPS, REGISTERS, SHARED_BYTES = 32, 64, 1 << 16, 228 << 10
RESERVED_BYTES = 1 << 10  # shared memory that the system reserves in each block
WARP = 32


def _up(x: int, unit: int) -> int:
  return -(-x // unit) * unit


def blocks_on_multiprocessor(threads: int, registers: int, nbytes: int) -> dict[str, int]:
  """Returns the blocks that each resource allows, by the formula of NVIDIA's occupancy
  calculator."""
  warps = _up(threads, WARP) // WARP
  # Each quarter of the multiprocessor has a quarter of the registers, and whole warps.
  warps_by_registers = 4 * (REGISTERS // 4 // _up(registers * WARP, 256))
  return {
      "registers": warps_by_registers // warps,
      "shared memory": SHARED_BYTES // _up(nbytes + RESERVED_BYTES, 128),
      "threads": min(MOST_BLOCKS, MOST_WARPS // warps)}


def _job(kernel):
  """Returns the job's name in a mangled kernel, which is in an unnamed namespace."""
  space = re.search(r"(\d+)_GLOBAL__N__", kernel)
  if space is None:
    return kernel
  # The space's name may end with digits, and those of the job's length follow.
  rest = kernel[space.end(1) + int(space[1]):]
  length = re.match(r"E?(\d+)", rest)
  return rest[length.end():][:int(length[1])]


@pytest.fixture
def launches(handlers, tmp_path, monkeypatch):
  """Returns a function from a tier to its launches, job -> Launch, for a batch that fills
  blocks."""
  file = tmp_path / "launches"
  monkeypatch.setenv("LINALG_PTX_GEOMETRY", str(file))
  monkeypatch.setenv("LINALG_PTX_ENDS", "1")  # for products, which do run

  def of(tier):
    file.unlink(missing_ok=True)
    batch = tier.batch or (1 << 15 if tier.n <= 16 else 1 << 10 if tier.n <= 64 else 3)
    ptx_calls.call(handlers, f"linalg_{tier.target}", tier.n, np.dtype(tier.dtype), batch)
    lines = [line.split() for line in file.read_text().splitlines()]
    return {_job(name): Launch(name, int(threads), int(nbytes)) for name, threads, nbytes in lines}

  return of


@pytest.fixture
def registers(library, tmp_path):
  """Returns a function from kernel names to ptxas's register counts.

  Kernels call no functions, so each compiles alone.
  """
  if shutil.which("ptxas") is None:
    pytest.skip("needs ptxas")

  def of(kernels):
    found = {}
    for i, path in enumerate(sorted(library.glob("*.ptx"))):
      head, *entries = re.split(r"(?=^(?:\.visible |\.weak )?\.entry )", path.read_text(),
                                flags=re.M)
      kept = [x for x in entries if re.search(r"\.entry (\w+)", x)[1] in kernels]
      if not kept:
        continue
      part = tmp_path / f"{i}.ptx"
      part.write_text(head + "".join(kept))
      done = subprocess.run(
          ["ptxas", f"-arch={ARCH}", "-v", part, "-o", tmp_path / "out.cubin"],
          capture_output=True, text=True, check=False)
      assert done.returncode == 0, done.stderr
      found |= {
          name: int(count) for name, count in re.findall(
              r"Compiling entry function '(\w+)'.*?Used (\d+) registers", done.stderr, re.S)}
    return found

  return of


def test_blocks_on_a_multiprocessor(launches, registers):
  launched = [(tier, launches(tier)) for tier in TIERS]
  taken = registers({x.kernel for _, found in launched for x in found.values()})
  print("\n| | n | kernel | threads | registers | shared memory | blocks | all threads | limit |")
  few = []
  for tier, found in launched:
    for job, least in tier.blocks.items():
      kernel, threads, nbytes = found[job]
      limits = blocks_on_multiprocessor(threads, taken[kernel], nbytes)
      limit = min(limits, key=limits.__getitem__)
      blocks = limits[limit]
      print(f"| `{tier.target}` {tier.dtype} | {tier.n} | {job} | {threads} | {taken[kernel]} | "
            f"{nbytes} | {blocks} | {blocks * threads} | {limit} |")
      if blocks < least:
        few.append((tier, job, limits))
  assert not few
