"""Makes a library of the handlers of kernels/cuda for the CPU, which run their kernels' PTX.

  python tests/ptx_emulator/build.py FOLDER XLA_INCLUDE [cholesky lu ...]
  python tests/ptx_emulator/build.py FOLDER XLA_INCLUDE --module BUILD

nvcc compiles all or some files of kernels/cuda: the host code to objects, and the kernels to PTX.
--module takes both from the folder of a module's build with LINALG_KEEP_PTX=ON instead.

translate.py converts the PTX to C++. The library compiles each kernel at its first launch, by the
command stored in the folder.
"""

import argparse
import concurrent.futures
import os
import pathlib
import shlex
import shutil
import subprocess

import translate

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
LIBRARY = "libptx_handlers.so"
# The flags are those of cmake/cuda.cmake, without the machine code.
NVCC = [
    "nvcc", "-std=c++20", "-gencode", "arch=compute_80,code=compute_80",
    "--expt-relaxed-constexpr", "-fmad=false", "-diag-suppress", "1675",
    "-Xcompiler=-fPIC,-Wno-unknown-pragmas,-Wno-psabi,-ffp-contract=off", f"-I{ROOT}"]
HOST = [
    *(HERE / name for name in (
        "alone.cc", "block.cc", "fibers.cc", "handlers.cc", "kernels.cc", "memory.cc", "runtime.cc",
        "vendor.cc")),
    ROOT / "kernels/cuda/handles.cc"]
# Operations are fused and rounded exactly as PTX says. Compiling a kernel takes longer than most
# tests run it, so it is not optimised and its headers are precompiled. Compilers other than GCC
# read the headers as they are.
KERNEL = [
    "c++", "-std=c++20", "-O0", "-march=native", "-ffp-contract=off", "-fno-math-errno",
    "-fno-strict-aliasing", "-w", "-fPIC"]
HEADER = HERE / "translated.h"
ALL = sorted(path.stem for path in (ROOT / "kernels/cuda").glob("*.cu"))
# Files whose functions other files use.
NEEDS = {
    "cholesky": ["triangular_solve"], "det": ["lu"], "eigh": ["eigh_panels"],
    "eigh_tridiagonal": ["eigh"],
    "lu": ["triangular_solve"], "solve": ["lu"], "svd": ["svd_blocks"],
    "svd_blocks": ["qr"], "triangular_solve": ["lu"]}


def run(*command):
  done = subprocess.run(
      [str(x) for x in command], capture_output=True, text=True, check=False)
  if done.returncode != 0:
    raise RuntimeError(f"{shlex.join(map(str, command))}\n{done.stderr[-5000:]}")


def with_needs(names: list[str]) -> list[str]:
  """Returns these files, and those that they need to link."""
  found, todo = [], [*names]
  while todo:
    name = todo.pop()
    if name not in found:
      found.append(name)
      todo += NEEDS.get(name, [])
  return sorted(found)


def compile_kernels(folder: pathlib.Path, include: str, names: list[str]):
  """Returns (jobs, objects, PTX) of these files of kernels/cuda."""
  jobs, objects, ptx = [], [], []
  for name in names:
    kept = folder / name
    kept.mkdir()
    objects.append(kept / f"{name}.o")
    ptx.append(kept / f"{name}.ptx")
    jobs.append([*NVCC, "-O1", include, "--keep", f"--keep-dir={kept}", "-c",
                 ROOT / f"kernels/cuda/{name}.cu", "-o", objects[-1]])
  return jobs, objects, ptx


def build(folder: pathlib.Path, xla: str, names: list[str], module: pathlib.Path | None) -> None:
  folder.mkdir(parents=True, exist_ok=True)
  for kernel in folder.glob("*.so"):  # compiled from other PTX
    kernel.unlink()
  include = f"-isystem={xla}"
  if module is None:
    jobs, objects, ptx = compile_kernels(folder, include, with_needs(names))
  else:
    # nvcc leaves out the name of a single architecture.
    kept = module / "ptx"
    several = [kept / f"{name}.compute_80.ptx" for name in ALL]
    jobs, ptx = [], several if several[0].exists() else [kept / f"{name}.ptx" for name in ALL]
    objects = ["-Wl,--whole-archive", module / "liblinalg_cuda_kernels.a", "-Wl,--no-whole-archive"]
  for source in HOST:
    objects.append(folder / f"{source.stem}.host.o")
    jobs.append([*NVCC, "-O2", include, "-c", source, "-o", objects[-1]])
  jobs.append([*KERNEL, "-x", "c++-header", HEADER, "-o", folder / f"{HEADER.name}.gch"])
  with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for _ in pool.map(lambda job: run(*job), jobs):
      pass
  for text in ptx:
    shutil.copy(text, folder / f"{text.name.partition('.')[0]}.ptx")
  translate.main(folder, sorted(folder.glob("*.ptx")))
  run("c++", "-shared", *objects, "-ldl", "-o", folder / LIBRARY)
  # Several processes may want a kernel, and one of them compiles it.
  compiler = shlex.join([*KERNEL, "-shared", "-I.", f"-I{HERE}", "-o"])
  (folder / "compile").write_text(
      'cd "$(dirname "$0")" && exec 9> "$1.lock" && flock 9 && { [ -e "$1.so" ] || {\n'
      f'{compiler} "$1.part" "$1.cc" "$PWD/{LIBRARY}" && mv "$1.part" "$1.so"; }} }}\n')
  for path in folder.iterdir():
    if path.is_dir():
      shutil.rmtree(path)


if __name__ == "__main__":
  parser = argparse.ArgumentParser(description="Makes the library that runs the kernels' PTX.")
  parser.add_argument("folder", type=pathlib.Path)
  parser.add_argument("xla_include")
  parser.add_argument("names", nargs="*", help="files of kernels/cuda; all, if none is named")
  parser.add_argument("--module", type=pathlib.Path, help="a build folder of the module")
  given = parser.parse_args()
  build(given.folder.resolve(), given.xla_include, given.names or ALL, given.module)
