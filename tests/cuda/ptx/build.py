"""Makes libcuda_on_cpu.so: handlers of kernels/cuda for the CPU, which run their kernels' PTX.

  python tests/cuda/ptx/build.py FOLDER XLA_INCLUDE cholesky lu

nvcc compiles the host's side as it stands, and the kernels to PTX, which translate.py makes C++ of.
That is compiled kernel by kernel when the library first launches one, by the command that is left
in the folder.
"""

import concurrent.futures
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import translate

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
LIBRARY = "libcuda_on_cpu.so"
# As cmake/cuda.cmake has it, but for the machine code.
NVCC = [
    "nvcc", "-std=c++20", "-gencode", "arch=compute_80,code=compute_80", "-O1",
    "--expt-relaxed-constexpr", "-fmad=false", "-diag-suppress", "1675",
    "-Xcompiler=-fPIC,-Wno-unknown-pragmas,-Wno-psabi,-ffp-contract=off", f"-I{ROOT}"]
HOST = [
    *(HERE / name for name in (
        "block.cc", "fibers.cc", "handlers.cc", "kernels.cc", "memory.cc", "runtime.cc")),
    ROOT / "tests/cuda/on_cpu/vendor.cc", ROOT / "kernels/cuda/handles.cc"]
# Fused and rounded as PTX says, and no more.
KERNEL = [
    "c++", "-std=c++20", "-O1", "-march=native", "-ffp-contract=off", "-fno-math-errno",
    "-fno-strict-aliasing", "-w", "-fPIC", "-shared", f"-I{HERE}"]
# What others of the files have functions for.
NEEDS = {
    "cholesky": ["triangular_solve"], "det": ["lu"], "eigh_tridiagonal": ["eigh"],
    "lu": ["triangular_solve"], "solve": ["lu"], "triangular_solve": ["lu"]}


def run(*command):
  done = subprocess.run(
      [str(x) for x in command], capture_output=True, text=True, check=False)
  if done.returncode != 0:
    raise RuntimeError(f"{shlex.join(map(str, command))}\n{done.stderr[-5000:]}")


def with_needs(names: list[str]) -> list[str]:
  """These files, and those that they cannot be linked without."""
  found, todo = [], [*names]
  while todo:
    name = todo.pop()
    if name not in found:
      found.append(name)
      todo += NEEDS.get(name, [])
  return sorted(found)


def build(folder: pathlib.Path, xla: str, names: list[str]) -> None:
  folder.mkdir(parents=True, exist_ok=True)
  include = [f"-isystem={xla}"]
  names = with_needs(names)
  objects, ptx, jobs = [], [], []
  for name in names:
    kept = folder / name
    kept.mkdir()
    objects.append(kept / f"{name}.o")
    ptx.append(kept / f"{name}.ptx")
    jobs.append([*NVCC, *include, "--keep", f"--keep-dir={kept}", "-c",
                 ROOT / f"kernels/cuda/{name}.cu", "-o", objects[-1]])
  for source in HOST:
    objects.append(folder / f"{source.stem}.host.o")
    jobs.append([*NVCC, *include, "-c", source, "-o", objects[-1]])
  with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for _ in pool.map(lambda job: run(*job), jobs):
      pass
  translate.main(folder, ptx)
  run("c++", "-shared", *objects, "-ldl", "-o", folder / LIBRARY)
  # Wherever the folder is copied to.
  (folder / "compile").write_text(
      'cd "$(dirname "$0")"\n'
      f'{shlex.join([*KERNEL, "-o"])} "$1.$$" "$1.cc" "$PWD/{LIBRARY}" && mv "$1.$$" "$1.so"\n')
  for name, text in zip(names, ptx):
    text.rename(folder / text.name)
    shutil.rmtree(folder / name)


if __name__ == "__main__":
  build(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:])
