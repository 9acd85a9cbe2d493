"""Faults around the handlers raise an error with a message, and later calls are right.

Each scenario runs in its own process, from `support/fault_scenarios.py`.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import quick
import selection

SUPPORT = pathlib.Path(__file__).parents[1] / "support"
SECONDS = 300


def _run(scenario, *arguments, prefix=(), seconds=SECONDS, **environment):
  inherited = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
  try:
    done = subprocess.run(
        [*prefix, sys.executable, str(SUPPORT / "fault_scenarios.py"), scenario,
         *map(str, arguments)],
        env=inherited | environment, capture_output=True, text=True, timeout=seconds, check=False)
  except subprocess.TimeoutExpired:
    pytest.fail(f"{scenario} was not done after {seconds} s")
  assert done.returncode == 0 and "done" in done.stdout, done.stdout + done.stderr[-5000:]


def _memory():
  """Returns the free memory in bytes."""
  try:
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
  except OSError:
    return 0
  (available,) = (line for line in lines if line.startswith("MemAvailable"))
  return int(available.split()[1]) << 10


@pytest.mark.skipif(sys.platform != "linux", reason="needs LD_PRELOAD")
@pytest.mark.extended
@selection.all_dtypes
@pytest.mark.timeout(1800)
def test_no_memory(dtype, tmp_path):
  """Catches threads that continue after their call has ended, and exceptions that leave a
  handler."""
  compiler = shutil.which("c++")
  if compiler is None:
    pytest.skip("needs a C++ compiler, c++")
  library = tmp_path / "libfailing.so"
  subprocess.run(
      [compiler, "-std=c++20", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra",
       str(SUPPORT / "failing_allocations.cc"), "-o", str(library)], check=True)
  # Each virtual device adds a thread to XLA's pool, so there are helpers on any machine.
  _run("no_memory", dtype.name, LD_PRELOAD=str(library), seconds=1700,
       XLA_FLAGS=f"{quick.FLAGS} --xla_force_host_platform_device_count=4")


def test_no_scipy():
  """Catches a failure to load LAPACK that is not reported, or that later calls do not survive."""
  _run("no_scipy")


@pytest.mark.extended
@pytest.mark.parametrize("scenario", ["broken_scipy", "interrupted", "shutdown", "writes_nothing"])
def test_scenario(scenario):
  _run(scenario)


@pytest.mark.extended
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_child_process(method):
  """Catches locks and threads that a child does not have. JAX supports no child forked after
  use."""
  _run("child_process", method)


@pytest.mark.extended
def test_other_lapack():
  """Catches functions that only OpenBLAS has, where they are assumed of every LAPACK.

  LINALG_TEST_LAPACK names libraries whose LAPACK and BLAS routines have Fortran's names.
  """
  libraries = os.environ.get("LINALG_TEST_LAPACK")
  if not libraries:
    pytest.skip("LINALG_TEST_LAPACK names no libraries")
  _run("other_lapack", *libraries.split(os.pathsep))


@pytest.mark.extended
@pytest.mark.timeout(1300)
def test_one_processor(tmp_path):
  """Catches a wait for threads that do not exist, and bits that depend on the number of threads."""
  taskset = shutil.which("taskset")
  if taskset is None:
    pytest.skip("needs taskset")
  results, first = tmp_path / "results.npz", min(os.sched_getaffinity(0))
  _run("one_processor", results)
  _run("one_processor", results, prefix=(taskset, "-c", str(first)))
  _run("one_processor", results, XLA_FLAGS=f"{quick.FLAGS} --xla_cpu_multi_thread_eigen=false")


@pytest.fixture
def half_a_processor():
  """A Linux control group that is limited to half of one processor's time."""
  groups = dict(
      line.split(":", 2)[1:] for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines())
  root = pathlib.Path("/sys/fs/cgroup")
  # "" has every controller of version 2
  controllers = next((x for x in groups if "cpu" in x.split(",")), "")
  group = root / controllers / groups[controllers].lstrip("/") / f"linalg_test_{os.getpid()}"
  try:
    group.mkdir()
  except (OSError, KeyError) as error:
    pytest.skip(f"needs leave to make a control group: {error}")
  try:
    try:
      if controllers:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text("50000")
      else:
        (group / "cpu.max").write_text("50000 100000")
    except OSError as error:
      pytest.skip(f"needs a control group whose processor time can be limited: {error}")
    yield group
    statistics = dict(x.split() for x in (group / "cpu.stat").read_text().splitlines())
    assert int(statistics["nr_throttled"]) > 0, statistics
  finally:
    group.rmdir()


@pytest.mark.extended
@pytest.mark.timeout(1300)
@pytest.mark.skipif(sys.platform != "linux", reason="needs control groups")
def test_limited_time(tmp_path, half_a_processor):
  """Catches a busy wait that uses up the time of the threads that it waits for.

  There are as many threads as processors, and all are stopped for half of each tenth of a second.
  """
  results = tmp_path / "results.npz"
  _run("one_processor", results)
  enter = f'echo $$ > "{half_a_processor}/cgroup.procs" && exec "$@"'
  _run("one_processor", results, prefix=("sh", "-c", enter, "sh"), seconds=900)


@pytest.mark.extended
@pytest.mark.skipif(sys.platform != "linux", reason="needs namespaces of mounts")
def test_nothing_known_of_the_machine():
  """Catches a read of processors, memory nodes or control groups where a container lacks these
  files."""
  hide = ("mount -t tmpfs none /sys && mount --bind /dev/null /proc/cpuinfo && "
          'mount --bind /dev/null /proc/self/cgroup && exec "$@"')
  hidden = ("unshare", "--mount", "sh", "-c", hide, "sh")
  if not shutil.which("unshare") or subprocess.run([*hidden, "true"], check=False).returncode:
    pytest.skip("needs unshare, and leave to mount")
  _run("works", prefix=hidden)


@pytest.mark.extended
@pytest.mark.timeout(1300)
@pytest.mark.skipif(sys.platform != "linux", reason="maps memory as Linux does")
@pytest.mark.parametrize("kind, gibibytes", [("operands", 4), ("results", 14), ("matrix", 4)])
def test_large_operands(kind, gibibytes):
  """Catches an offset or a count of 32 bits."""
  if _memory() < gibibytes << 30:
    pytest.skip(f"needs {gibibytes} GiB of memory")
  _run("large_operands", kind, seconds=1200)
