"""`import linalg` loads one module, registers its targets, and imports nothing else."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import types

import jax
import numpy as np
import pytest
from jaxlib.mlir import ir

import cut_offs
import linalg
import target_table
from linalg._core import targets
from target_table import TARGETS

ROOT = pathlib.Path(__file__).parents[2]


def _run(code, **environment):
  return subprocess.run(
      [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True,
      timeout=120)


SIGNATURES = targets._cpu.signatures()
# The operations of the modules, including those in tuples.
OPERATIONS = list(dict.fromkeys(
    operation for name, module in sorted(sys.modules.items()) if name.startswith("linalg.")
    for value in vars(module).values()
    for operation in (value if isinstance(value, tuple) else (value,))
    if isinstance(operation, linalg.ffi.Operation)))


def test_targets_are_the_handlers():
  """Catches a handler that nothing registers, and one that the export list lacks."""
  exported = {check.is_custom_call() for check in linalg.export_disabled_checks()}
  assert SIGNATURES.keys() == targets._cpu.targets().keys() == TARGETS.keys() <= exported


def test_every_target_is_called():
  """Catches a handler that no operation calls any more."""
  assert SIGNATURES.keys() <= {operation.name for operation in OPERATIONS}


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="of a Python without the GIL")
def test_free_threads():
  """Catches a module that turns the GIL on. eig of this order loads SciPy's modules."""
  done = _run(
      "import sys, numpy as np, linalg; linalg.eig(np.eye(130)); print(sys._is_gil_enabled())")
  assert done.stdout == "False\n", done.stdout + done.stderr


def test_a_target_is_in_the_same_file_on_every_backend():
  files = [
      {target: path.stem for path in (ROOT / "kernels" / folder).iterdir()
       for target in re.findall(
           r"^LINALG_(?:CPU_)?HANDLER(?:_AND_CAPTURED)?\((linalg_\w+),", path.read_text(), re.M)}
      for folder in ("cpu", "cuda")]
  assert files[0].keys() == SIGNATURES.keys()
  assert files[1].keys() == {name for name, target in TARGETS.items() if target.cuda}
  assert files[0] == files[0] | files[1]


def test_cut_offs_in_the_documents():
  """The pages have the numbers of kernels/cpu/tuning.h."""
  constants = cut_offs.CONSTANTS
  small = lambda name: constants[f"kLane{name}"]
  (most,) = {constants[f"kTile{name}"] for name in ("Eigh", "Svd")}
  page = (ROOT / "docs" / "kernels.md").read_text()
  rows = [
      f"| Cholesky | {small('Cholesky')} |",
      f"| LU, and what is built on it | {small('Lu')} |",
      f"| QR | {small('Qr')}, with few rows {small('QrOfFewRows')} |",
      f"| eigenvectors | {small('Eigh')}, in double precision {small('EighDouble')} |",
      f"| eigenvalues alone | {small('Eigvalsh')} |",
      f"| singular vectors | {small('Svd')}, in complex64 {small('SvdComplex64')}, in float64 "
      f"{small('SvdFloat64')}, in complex128 {small('SvdComplex128')} |",
      f"| singular values alone | {small('Svdvals')}, in double precision "
      f"{small('SvdvalsDouble')} |",
      f"| substitution | {small('Triangular')}, from n = {constants['kLeastTileTriangular']} on "
      "only with few right-hand sides |"]
  assert "\n".join(rows) in page
  words = " ".join(page.split())
  assert f"eigenvalues and singular values to n = {most}" in words
  tridiagonal = constants["kLeastTileTridiagonal"]
  assert f"Tridiagonal eigenproblems are in tiles from n = {tridiagonal} on" in words
  details = " ".join((ROOT / "docs" / "details.md").read_text().split())
  assert f"one such matrix (n ≥ {constants['kThreadedLapackSize']}) may use" in details


def test_page_about_cuda():
  """The page has every target that only the CPU has, and the sizes of the tuning files."""
  page = (ROOT / "docs" / "cuda.md").read_text()
  section = page.partition("These targets exist on the CPU only.")[2].partition("\n\nThe vendor")[0]
  named = re.findall(r"`(linalg_\w+)`", section)
  assert sorted(named) == sorted(name for name, target in TARGETS.items() if not target.cuda)
  text = (ROOT / "kernels" / "cuda" / "tuning.h").read_text()
  constants = {
      name: eval(value) for name, value in re.findall(r"\b(k\w+) = ([\d <*]+);", text)}  # 64 << 10
  of_floats = dict(re.findall(r"\b(k\w+) = sizeof\(E\) == 4 \? (\d+) : 1152;", text))
  # The first row of each function: `qr` with pivoting has one of its own.
  rows = dict(reversed(re.findall(r"^\| `(\w+)`[^|]* \| (.*) \|$", page, re.M)))
  for row, words in {
      "cholesky": f"up to 1152 bytes, in float32 {of_floats['kThreadCholeskyBytes']} |",
      "lu": f"up to 1152 bytes, in float32 {of_floats['kThreadBytes']} |",
      "triangular_solve": f"both operands up to {constants['kThreadTriangularBytes']} bytes",
      "qr": f"up to {constants['kThreadQrBytes']} bytes",
      "eigh": f"up to {constants['kThreadEighBytes']} bytes",
      "svd": f"up to {constants['kThreadSvdBytes']} bytes",
      "eig": f"n ≤ {constants['kTeamEig']}, QR iteration",
      "solve": f"up to {constants['kColumnsOfSolve']} right-hand sides",
      "tridiagonal_solve": (
          f"n < {constants['kLongTridiagonal']} or batch > {constants['kFewTridiagonal']}"),
  }.items():
    assert words in rows[row], row
  for row, name in (("cholesky", "Cholesky"), ("eigh", "Eigh"), ("triangular_solve", "Triangular")):
    assert f"`kTeam`: n ≤ {constants[f'kTeam{name}']}" in rows[row], row
  assert f"shorter side ≤ {constants['kTeamLu']}" in rows["lu"]
  assert (f"shorter side ≤ {constants['kTeamSvd']}, with the vectors up to "
          f"{constants['kTeamSvdBytes'] >> 10} KiB") in rows["svd"]
  assert f"gesvdj up to {constants['kVendorJacobiSvd']}" in rows["svd"]
  assert f"and {constants['kPolarSvdvals']} without vectors" in rows["svd"]
  polar = re.search(r"kPolarSvd = \D+4\s+\? (\d+)\s+: \D+8 \? (\d+)\s+: (\d+);", text)
  assert ("a shorter side of {} in float32, {} in float64 and complex64, {} in complex128"
          .format(*polar.groups())) in rows["svd"]
  assert f"`kTeam`: up to {constants['kTeamQrBytes'] >> 10} KiB" in rows["qr"]
  for row in ("qr", "svd", "eig"):
    assert f"`kBlock` for batch ≥ {constants['kGlobalBatch']}" in rows[row], row
  assert f"n / batch ≤ {constants['kBatchedRoutineRatio']}" in page


@pytest.mark.parametrize(
    "operation", [x for x in OPERATIONS if x.name in SIGNATURES], ids=lambda x: x.name)
def test_signature(operation):
  """A call passes what the table of targets declares."""
  operands = [np.zeros((4,) * rank, np.float32) for rank in operation._rules.ranks]
  calls = []

  def visit(op):
    if op.name == "stablehlo.custom_call":
      calls.append(op.opview)
    return ir.WalkResult.ADVANCE

  sizes = {"count": 4} if "count" in operation.attributes else {}
  lowered = jax.jit(lambda *x: operation(*x, **sizes)).lower(*operands)
  lowered.compiler_ir("stablehlo").operation.walk(visit)
  (call,) = (x for x in calls if x.call_target_name.value == operation.name)
  # Handlers take sizes from shapes. Attributes may only repeat them.
  attributes = {
      x.name: {"i1": bool, "i64": int}.get(str(x.attr.type))
      for x in call.attributes["mhlo.backend_config"]
      if x.name != "permutation_size"}
  target = TARGETS[operation.name]
  signature = f"{' '.join(target.operands)} > {' '.join(target.results)}"
  assert SIGNATURES[operation.name] == (signature, attributes)
  assert (len(call.operands), len(call.results)) == (len(target.operands), len(target.results))
  assert operation._rules.ranks == tuple(map(target_table.rank, target.operands))


@pytest.mark.parametrize("built, installed, fits", [
    ((0, 3), (0, 3), True), ((0, 3), (0, 7), True), ((0, 3), (0, 2), False),
    ((0, 3), (1, 0), False), ((1, 0), (0, 9), False)])
def test_version_guard(built, installed, fits):
  if fits:
    targets.check_ffi_version(built, installed)
  else:
    with pytest.raises(ImportError, match=r"Install a jaxlib at least as new"):
      targets.check_ffi_version(built, installed)


def test_built_for_the_oldest_ffi():
  """One build loads under every supported jaxlib, because its headers are the oldest one's."""
  project = tomllib.loads((ROOT / "pyproject.toml").read_text())
  (oldest,) = (x for x in project["project"]["dependencies"] if x.startswith("jax>="))
  assert f"jaxlib=={oldest.removeprefix('jax>=')}" in project["build-system"]["requires"]
  built, installed = targets.ffi_versions()
  assert built <= installed


def test_import_is_light():
  """SciPy and the command line's imports wait until they are needed."""
  result = _run(
      "import jax, sys; before = set(sys.modules); import linalg, json;"
      "print(json.dumps(sorted(set(sys.modules) - before)))")
  assert result.returncode == 0, result.stderr
  imported = {name.split(".")[0] for name in json.loads(result.stdout)}
  assert not imported & {"scipy", "rich", "matplotlib", "pytest", "hypothesis"}


def test_best_level_is_loaded():
  expected = os.environ.get("LINALG_ISA", targets.usable_levels()[0])
  assert targets.isa == expected
  assert targets._cpu.__name__ == f"linalg._cpu_{expected}"


def test_best_of_several_levels(monkeypatch):
  """A wheel has a module for each level, and a machine may lack the instructions of some."""
  built = {"linalg._cpu_v4", "linalg._cpu_v3", "linalg._cpu_v2"}
  monkeypatch.delenv("LINALG_ISA", raising=False)
  monkeypatch.setattr(targets, "_isa", types.SimpleNamespace(levels=lambda: ["v3", "v2", "v1"]))
  monkeypatch.setattr(targets, "importlib", types.SimpleNamespace(
      import_module=lambda name: name,
      util=types.SimpleNamespace(find_spec=lambda name: name in built)))
  assert targets.usable_levels() == ["v3", "v2"]
  assert targets._load_cpu() == ("v3", "linalg._cpu_v3")
  monkeypatch.setenv("LINALG_ISA", "v2")
  assert targets._load_cpu() == ("v2", "linalg._cpu_v2")
  monkeypatch.setenv("LINALG_ISA", "v4")
  with pytest.raises(ImportError, match="built for this machine are v3, v2, and it could run v3"):
    targets._load_cpu()


def test_cuda_plugin(monkeypatch):
  """The CUDA wheel's module is found by name and used if its version matches."""
  plugin = {"jax_linalg_cuda13", "jax_linalg_cuda13._cuda"}
  versions = {"jax-linalg-cuda13": targets.__version__}
  loaded = []

  def load(found):
    monkeypatch.setattr(targets, "importlib", types.SimpleNamespace(
        import_module=lambda name: loaded.append(name) or types.SimpleNamespace(
            set_library_directories=lambda folders: None, runtime_version=lambda: (13, 0)),
        metadata=types.SimpleNamespace(version=versions.__getitem__),
        util=types.SimpleNamespace(find_spec=lambda name: (name in found) or None)))
    return targets._load_cuda()

  assert load(set()) is None
  assert load(plugin) is not None
  assert load(plugin | {"linalg._cuda"}) is not None
  assert loaded == ["jax_linalg_cuda13._cuda", "linalg._cuda"]
  versions["jax-linalg-cuda13"] = "0.0.1"
  with pytest.warns(UserWarning, match=r"jax-linalg-cuda13 0\.0\.1 is left out"):
    assert load(plugin) is None
  # The plugin for CUDA 12 is taken where it is the only one, or where jax's plugin is for CUDA 12.
  older = {"jax_linalg_cuda12", "jax_linalg_cuda12._cuda"}
  versions |= {"jax-linalg-cuda12": targets.__version__, "jax-linalg-cuda13": targets.__version__}
  loaded.clear()
  load(older)
  load(plugin | older)
  monkeypatch.setattr(targets, "_cuda_plugins", lambda: [12])
  load(plugin | older)
  assert loaded == [f"jax_linalg_cuda{x}._cuda" for x in (12, 13, 12)]


def test_cuda_packages():
  """The two packages of the CUDA module differ in their version of CUDA alone."""
  project, settings = {}, {}
  for major in (12, 13):
    text = (ROOT / f"packaging/cuda{major}/pyproject.toml").read_text()
    read = tomllib.loads(text.replace(f"cuda{major}", "cuda").replace(f"CUDA {major}", "CUDA"))
    project[major], settings[major] = read["project"], read["tool"]["scikit-build"]
    assert settings[major]["cmake"]["define"].pop("CMAKE_CUDA_ARCHITECTURES").startswith("80-real")
  assert project[12] == project[13]
  assert settings[12] == settings[13]


@pytest.mark.parametrize("level", targets.usable_levels())
def test_each_level(level):
  """Each level that this machine supports loads, reports itself, and factors in lanes and in
  tiles."""
  result = _run(
      "import jax; jax.config.update('jax_enable_x64', True); import linalg, numpy as np;"
      "a = np.random.default_rng(0).standard_normal((67, 9, 9)); a = a @ a.mT + np.eye(9);"
      "l = linalg.cholesky(a); assert abs(l @ l.mT - a).max() < 1e-12;"
      "assert (linalg.cholesky(a[3]) == l[3]).all();"
      "linalg.show_config()", LINALG_ISA=level)
  assert result.returncode == 0, result.stderr
  assert re.search(rf"^instruction set: +{level} ", result.stdout, re.M)


def test_unknown_level():
  result = _run("import linalg", LINALG_ISA="v9")
  assert result.returncode != 0
  assert "ImportError: linalg has no module for LINALG_ISA=v9: built" in result.stderr


def test_show_config(capsys):
  linalg.show_config()
  lines = dict(line.split(":", 1) for line in capsys.readouterr().out.splitlines())
  assert list(lines) == [
      "instruction set", "LAPACK", "batches", "XLA FFI", "JAX", "CUDA", "accelerated"]
  assert jax.__version__ in lines["JAX"]


def test_a_source_tree_that_is_not_installed(tmp_path):
  """One plain error says what to do, without the error of the missing module."""
  shutil.copytree(ROOT / "linalg", tmp_path / "linalg", ignore=shutil.ignore_patterns("*.so"))
  # Remove the finder that an editable install puts before the path.
  script = """if True:
    import sys
    sys.meta_path[:] = [x for x in sys.meta_path if x.__module__.startswith("_frozen_importlib")]
    import linalg
  """
  result = subprocess.run(
      [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True,
      env=os.environ | {"PYTHONPATH": str(tmp_path)}, timeout=120)
  assert result.returncode != 0
  assert "pip install -e ." in result.stderr.splitlines()[-1]
  assert "direct cause" not in result.stderr and "During handling" not in result.stderr


def _sections(module, *options):
  readelf = shutil.which("readelf")
  if readelf is None:
    pytest.skip("needs readelf")
  return subprocess.run(
      [readelf, "-W", *options, module], capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(sys.platform != "linux", reason="of ELF files")
@pytest.mark.parametrize("name", ["_isa", *(f"_cpu_{x}" for x in targets.usable_levels())])
def test_what_a_module_is_linked_with(name):
  """Catches a build machine's path, exported symbols that may clash, and memory that is writable
  and executable."""
  (module,) = pathlib.Path(targets._cpu.__file__).parent.glob(f"{name}.*.so")
  dynamic = _sections(module, "--dynamic")
  assert "RPATH" not in dynamic and "RUNPATH" not in dynamic and "TEXTREL" not in dynamic
  needed = {line.split("[")[1].split(".so")[0] for line in dynamic.splitlines() if "NEEDED" in line}
  assert not {x for x in needed if not x.startswith("ld-linux")} - {
      "libc", "libdl", "libgcc_s", "libm", "libpthread", "libstdc++"}
  symbols = [line.split() for line in _sections(module, "--dyn-syms").splitlines()]
  exported = {x[-1] for x in symbols if len(x) == 8 and x[6].isdigit()}
  assert exported == {f"PyInit_{name}"}
  (stack,) = (x for x in _sections(module, "--segments").splitlines() if "GNU_STACK" in x)
  assert " RW " in stack and "GNU_RELRO" in _sections(module, "--segments")
