"""`accelerate` switches given primitives in given threads and programs, and no others."""

import logging
import os
import pathlib
import re
import subprocess
import sys
import threading

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.lax import linalg as lax_linalg

import cases
import linalg
import selection
from linalg._accelerate import reroute, routes, switch

HANDLER = "linalg_cholesky"


@pytest.fixture(autouse=True)
def off_again():
  yield
  linalg.accelerate(False)


def matrix():
  return 4 * np.eye(3, dtype=np.float32)


def text(function=jnp.linalg.cholesky):
  """Returns the program that a function compiles to now."""
  return jax.jit(function).lower(matrix()).as_text()


class Spy:
  """A program that reports which handlers it was compiled with."""

  def __init__(self, caplog):
    self._caplog = caplog
    self._jitted = jax.jit(jnp.linalg.cholesky)

  def __call__(self):
    self._caplog.clear()
    with self._caplog.at_level(logging.DEBUG, "linalg.accelerate"):
      np.testing.assert_array_equal(self._jitted(matrix()), np.sqrt(matrix()))
    return [record.args[-1] for record in self._caplog.records]


def test_every_primitive_has_a_route():
  """JAX may add primitives. One that is not in the table is ignored."""
  names = {name.removesuffix("_p") for name in dir(lax_linalg) if name.endswith("_p")}
  assert names <= set(routes.ROUTES)


def test_primitives_of_other_libraries():
  """A primitive of the same name is another one."""

  class Other:
    name = "eigh"

  other = Other()
  general, _ = reroute._lowerings()
  general[other] = None
  try:
    assert reroute._of_jax("eigh") is lax_linalg.eigh_p
  finally:
    del general[other]


def test_nothing_by_import():
  assert HANDLER not in text()


def test_process_wide():
  linalg.accelerate()
  assert HANDLER in text()
  found = []
  thread = threading.Thread(target=lambda: found.append(text()))
  thread.start()
  thread.join()
  assert HANDLER in found[0]
  linalg.accelerate(False)
  assert HANDLER not in text()


def test_programs_across_the_switch(caplog):
  """One jitted function is compiled for each setting, and kept while nothing changes."""
  program = Spy(caplog)
  assert program() == []
  linalg.accelerate()
  assert program() == [HANDLER]
  linalg.accelerate()
  assert program() == []  # already compiled
  linalg.accelerate(False)
  assert program() == []
  linalg.accelerate()
  assert program() == [HANDLER]


def test_programs_across_the_context(caplog):
  program = Spy(caplog)
  assert program() == []
  with linalg.accelerated():
    assert program() == [HANDLER]
    with linalg.accelerated(False):
      assert HANDLER not in text()
    assert HANDLER in text()
  assert HANDLER not in text()
  with linalg.accelerated():
    assert program() == []  # already compiled
  linalg.accelerate()
  with linalg.accelerated(False):
    assert HANDLER not in text()


def test_neither_is_a_decorator():
  """A decorator would switch JAX's functions and lose the decorated one, so it is refused."""
  with pytest.raises(TypeError, match="must be bool, got <function"):
    linalg.accelerate(lambda a: a)
  with pytest.raises(TypeError, match="must be bool"), linalg.accelerated(products=1):
    pass
  assert HANDLER not in text()


def test_a_context_ends_with_an_error():
  with pytest.raises(ZeroDivisionError), linalg.accelerated():
    1 / 0  # noqa: B018
  assert HANDLER not in text()


def test_contexts_of_threads_are_their_own():
  """Two threads, one of them accelerated, take turns in the middle of each other's work."""
  barrier = threading.Barrier(2, timeout=60)
  found = {}

  def work(enabled):
    with linalg.accelerated(enabled):
      barrier.wait()
      found[enabled] = HANDLER in text(lambda a: jnp.linalg.cholesky(a))
      barrier.wait()

  threads = [threading.Thread(target=work, args=(enabled,)) for enabled in (False, True)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert found == {False: False, True: True}


def test_compiled_ahead_of_time():
  """Programs that were compiled earlier do not change, and still run."""
  before = jax.jit(jnp.linalg.cholesky).lower(matrix()).compile()
  with linalg.accelerated():
    during = jax.jit(jnp.linalg.cholesky).lower(matrix()).compile()
    np.testing.assert_array_equal(before(matrix()), np.sqrt(matrix()))
  np.testing.assert_array_equal(during(matrix()), np.sqrt(matrix()))
  assert HANDLER in during.as_text() and HANDLER not in before.as_text()


def test_one_primitive_at_a_time():
  """It works outside of `jit` too."""
  with linalg.accelerated():
    assert HANDLER in text()
    np.testing.assert_array_equal(jnp.linalg.cholesky(matrix()), np.sqrt(matrix()))
    with jax.disable_jit():
      np.testing.assert_array_equal(jnp.linalg.cholesky(matrix()), np.sqrt(matrix()))


def test_exported_programs_are_of_jax():
  """JAX supports its own targets for years, so programs exported before still run."""
  before = jax.export.export(jax.jit(jnp.linalg.cholesky))(matrix()).serialize()
  with linalg.accelerated():
    exported = jax.export.export(jax.jit(jnp.linalg.cholesky))(matrix())
    assert HANDLER not in exported.mlir_module()
    for program in (exported, jax.export.deserialize(before)):
      np.testing.assert_array_equal(jax.jit(program.call)(matrix()), np.sqrt(matrix()))
    assert HANDLER in text()


PLATFORMS = [("cuda", "rocm"), ("cpu", "cuda", "tpu")]


@pytest.mark.parametrize("platforms", PLATFORMS, ids="-".join)
def test_exports_for_several_platforms(platforms):
  """The exported program is the same, byte for byte, before, during and after acceleration."""
  a = jnp.ones((2, 3, 3))

  def exported(function):
    program = jax.export.export(jax.jit(function), platforms=platforms)(a)
    return re.sub(r"loc\(.*?\)|#loc.*\n", "", program.mlir_module())

  functions = [
      lambda a: a @ a, jnp.linalg.cholesky, jnp.linalg.qr,
      lambda a: lax_linalg.triangular_solve(a, a)]
  before = [exported(f) for f in functions]
  with linalg.accelerated(products=True):
    assert [exported(f) for f in functions] == before
  jax.clear_caches()
  assert [exported(f) for f in functions] == before


def test_exported_derivatives():
  """Exports call JAX's targets, although the program was traced while accelerated."""
  factor = lambda a: jnp.sum(jnp.linalg.cholesky(a) ** 3)
  gradient, hessian = (jax.jit(f(factor)) for f in (jax.grad, jax.hessian))
  several = {"lowering_platforms": ("cpu", "cuda")}
  with linalg.accelerated():
    assert "@linalg_cholesky" in gradient.lower(matrix()).as_text()
    for function in (gradient, hessian, jax.jit(jnp.linalg.qr)):
      exported = jax.export.export(function)(matrix())
      assert "@linalg_" not in exported.mlir_module()
      assert "@linalg_" not in function.trace(matrix()).lower(**several).as_text()
      for x, y in zip(
          jax.tree.leaves(exported.call(matrix())), jax.tree.leaves(function(matrix())),
          strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
  assert "@linalg_" not in gradient.lower(matrix()).as_text()


def test_lowered_for_another_platform():
  """A program lowered for a GPU calls the GPU handlers, even on a machine without a GPU."""
  if not cases.targets("cuda"):
    pytest.skip("this build has no handlers for CUDA")
  with linalg.accelerated():
    traced = jax.jit(jnp.linalg.qr).trace(jnp.ones((3, 3)))
    assert "linalg_qr" in traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "linalg_qr" not in traced.lower(lowering_platforms=("tpu",)).as_text()


def test_own_functions_do_not_change():
  """The package's functions do not change, nor call themselves when their fallback is JAX's
  function."""
  half = jnp.eye(3, dtype=jnp.float16)
  with linalg.accelerated(products=True):
    ours = jax.jit(linalg.cholesky).lower(matrix()).as_text()
    assert ours.count("@" + HANDLER) == 1
    tpu = jax.jit(linalg.cholesky).trace(matrix()).lower(lowering_platforms=("tpu",))
    assert HANDLER not in tpu.as_text()
    np.testing.assert_array_equal(linalg.cholesky(half), half)


@pytest.mark.cpu
def test_subsets():
  """JAX refuses subsets on CPUs and GPUs. The handlers of the CPU compute them."""
  a = jnp.asarray(np.random.default_rng(0).standard_normal((2, 7, 7)), jnp.float32)
  a = a + a.mT
  with linalg.accelerated():
    v, w = jax.jit(lambda a: lax_linalg.eigh(a, subset_by_index=(2, 5)))(a)
    u, s, vh = jax.jit(lambda a: lax_linalg.svd(
        a, full_matrices=False, subset_by_index=(1, 4)))(a)
    alone = jax.jit(lambda a: lax_linalg.svd(
        a, full_matrices=False, compute_uv=False, subset_by_index=(1, 4)))(a)
    np.testing.assert_allclose(a @ v, v * w[:, None], atol=1e-5)
    np.testing.assert_allclose(w, np.linalg.eigvalsh(a)[:, 2:5], atol=1e-5)
    for x in (s, alone):
      np.testing.assert_allclose(x, np.linalg.svd(a, compute_uv=False)[:, 1:4], atol=1e-5)
    np.testing.assert_allclose(a @ vh.mT, u * s[:, None], atol=1e-5)
    with pytest.raises(NotImplementedError, match="subset_by_index"):
      jax.jit(lambda a: lax_linalg.eigh(a, subset_by_index=(2, 2)))(a)


@pytest.mark.parametrize("function,reason", [
    (lambda a: lax_linalg.eigh(a, subset_by_index=(0, 3)), "linalg_eigh"),
    (lambda a: lax_linalg.eigh(a, implementation=lax_linalg.EighImplementation.QR),
     "its algorithm was chosen"),
    (lambda a: lax_linalg.svd(a, algorithm=lax_linalg.SvdAlgorithm.QR), "its algorithm was chosen"),
    (lambda a: lax_linalg.hessenberg(a), "has no packed form"),
    (lambda a: lax_linalg.cholesky(a[:0, :0]), "an operand is empty"),
    (lambda a: jnp.tensordot(a, a), "it is not a batch of products of matrices"),
    (lambda a: jnp.tile(a, (2, 2, 2)) @ jnp.tile(a, (2, 2, 2)), "on cpu: linalg_matmul"),
    (lambda a: lax_linalg.cholesky(jnp.eye(512)), "linalg_cholesky"),
    (lambda a: jnp.einsum("bij,bij->b", a[None], a[None]), "not a batch of products"),
    (lambda a: jnp.tensordot(jnp.ones((3, 2, 2), a.dtype), a, (0, 0)), "not a batch of products"),
    (lambda a: jnp.tile(a, (2, 6, 6)) @ jnp.tile(a, (6, 6)), "makes one large product"),
    (lambda a: jnp.tile(a, (6, 6)) @ jnp.tile(a, (6, 6)), "not a batch of products"),
    (lambda a: jnp.tensordot(jnp.ones((2, 2, 3, 3)), jnp.ones((2, 3, 3)), (3, 1)), "not a batch"),
    (lambda a: jnp.stack([a, a]) @ a, "XLA was chosen for these operands on cpu"),
    (lambda a: jnp.einsum("bij,bkl->bijkl", a[None], a[None]), "not a batch of products"),
    (lambda a: jnp.matmul(
        jnp.stack([a, a]), jnp.stack([a, a]), preferred_element_type="float64"), "another dtype"),
    (lambda a: jnp.tile(a, (2, 30, 30)) @ jnp.tile(a, (2, 30, 30)), "the matrices are not small"),
])
def test_log(function, reason, caplog):
  """The log says at DEBUG which implementation each primitive uses, and why."""
  with caplog.at_level(logging.DEBUG, "linalg.accelerate"), linalg.accelerated(products=True):
    text(function)
  assert reason in caplog.text


def test_what_stays_because_a_call_is_longer():
  """One matrix of the least sizes stays JAX's: the next size, and a batch, goes to a handler."""

  def calls(function, *operands):
    with linalg.accelerated():
      return "linalg_" in jax.jit(lambda *x: function(*x)).lower(*operands).as_text()

  pivots = lambda p: lax_linalg.lu_pivots_to_permutation(p, p.shape[-1])
  for shape, expected in (((10,), False), ((11,), True), ((2, 4), True)):
    assert calls(pivots, np.zeros(shape, np.int32)) == expected, shape
  for n, expected in ((2, False), (3, True)):
    r, w = np.eye(n, dtype=np.float32), np.ones(n, np.float32)
    assert calls(lax_linalg.cholesky_update, r, w) == expected, n
  # JAX itself has no batches of updates, whose bits would depend on the batch.
  with pytest.raises(NotImplementedError, match="cholesky_update"):
    jax.vmap(lax_linalg.cholesky_update)(np.ones((2, 2, 2)), np.ones((2, 2)))


def test_unknown_parameter(monkeypatch):
  """A primitive with an unknown parameter is left to JAX."""
  types = [jax.typeof(jnp.asarray(matrix()))]
  call = lambda parameters: switch._call(
      routes.ROUTES["cholesky"], "cpu", types, False, parameters)
  assert call({}).operation.name == HANDLER
  assert "other parameters" in call({"precision": "high"})


def test_sharded_matrices_stay_with_jax():
  """No handler takes a matrix that is sharded over devices; its type shows that."""
  mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
  with jax.set_mesh(mesh), linalg.accelerated():
    a = jax.device_put(np.eye(8), jax.P())
    b = jax.device_put(np.ones((8, 8)), jax.P(None, "x"))
    solve = jax.jit(lambda a, b: lax_linalg.triangular_solve(a, b, left_side=True))
    assert "linalg_triangular_solve" not in solve.lower(a, b).as_text()
    np.testing.assert_array_equal(solve(a, b), b)


def test_show_config(capsys):
  linalg.show_config()
  assert "nothing of JAX's own" in capsys.readouterr().out
  with linalg.accelerated(products=True):
    linalg.show_config()
  shown = capsys.readouterr().out
  assert "cholesky" in shown and "dot_general" in shown and "hessenberg" not in shown


SCRIPT = """
import sys, jax, jax.numpy as jnp
text = jax.jit(jnp.linalg.cholesky).lower(jnp.eye(3)).as_text()
products = jax.jit(jnp.matmul).lower(jnp.ones((2, 3, 4)), jnp.ones((2, 4, 4))).as_text()
print(__name__, sys.argv[1:], "linalg_cholesky" in text, "linalg_matmul" in products)
"""


@selection.extended_for("__main__ [] True True")
@pytest.mark.parametrize("options,expected", [
    (["script.py", "--products"], "__main__ ['--products'] True False"),
    (["--products", "-m", "script"], "__main__ [] True True"),
], ids=["script", "module"])
def test_run(options, expected, tmp_path):
  """`python -m linalg run`."""
  (tmp_path / "script.py").write_text(SCRIPT)
  root = pathlib.Path(linalg.__file__).parents[1]
  ran = subprocess.run(
      [sys.executable, "-m", "linalg", "run", *options], cwd=tmp_path, check=True, text=True,
      capture_output=True, env=os.environ | {"PYTHONPATH": str(root)})
  assert ran.stdout.strip() == expected


@pytest.mark.extended
def test_main_of_a_program_stays(tmp_path):
  """Threads and pickles look up the program's module after its last line has run."""
  (tmp_path / "package").mkdir()
  for name in ("script.py", "package/__main__.py"):
    (tmp_path / name).write_text("""
import atexit, pickle, sys
class Thing: pass
same = lambda: type(pickle.loads(pickle.dumps(Thing()))) is Thing
atexit.register(lambda: print(same(), __file__, sys.argv[0], __package__ or None))
""")
  root = pathlib.Path(linalg.__file__).parents[1]
  run = lambda *program: subprocess.run(
      [sys.executable, "-m", "linalg", "run", *program], cwd=tmp_path, text=True,
      capture_output=True, env=os.environ | {"PYTHONPATH": str(root)})
  assert run("script.py").stdout.strip() == "True script.py script.py None"
  main = tmp_path / "package/__main__.py"
  assert run("-m", "package").stdout.strip() == f"True {main} {main} package"
  absent = run("nosuch.py")
  assert absent.returncode == 2 and "there is no file nosuch.py" in absent.stderr
  assert "there is no code of a module nosuch" in run("-m", "nosuch").stderr


BESIDE_JAX = """
import threading, jax.numpy as jnp, numpy as np, linalg
barrier, found = threading.Barrier(2), []
def call(inv):
  barrier.wait()
  found.append(inv(np.eye(3)))
threads = [threading.Thread(target=call, args=(inv,)) for inv in (linalg.inv, jnp.linalg.inv)]
for x in threads: x.start()
for x in threads: x.join()
print(len(found))
"""


def test_first_calls_of_two_threads():
  """Two threads at once import LAPACK, for JAX's handlers and for this package's."""
  root = pathlib.Path(linalg.__file__).parents[1]
  ran = subprocess.run(
      [sys.executable, "-c", BESIDE_JAX], check=True, text=True, capture_output=True, timeout=100,
      env=os.environ | {"PYTHONPATH": str(root)})
  assert ran.stdout.split() == ["2"], ran.stderr


CACHED = """
import jax, jax.numpy as jnp, linalg
a = 4 * jnp.eye(3)
for enabled in (False, True, False):
  linalg.accelerate(enabled)
  print(jax.jit(jnp.linalg.cholesky)(a)[0, 0], end=" ")
"""


@pytest.mark.extended
def test_persistent_cache(tmp_path):
  """Programs with handlers and without have separate entries, which a second process finds."""
  root = pathlib.Path(linalg.__file__).parents[1]
  environment = os.environ | {
      "PYTHONPATH": str(root),
      "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
      "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
      "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
  kept = []
  for _ in range(2):
    ran = subprocess.run(
        [sys.executable, "-c", CACHED], check=True, text=True, capture_output=True,
        env=environment)
    assert ran.stdout.split() == ["2.0"] * 3
    kept.append({x.name for x in tmp_path.glob("*cholesky*cache")})
  assert len(kept[0]) == 2 and kept[0] == kept[1]
