"""Times and checks cuSOLVER's drivers of SVD and of symmetric eigenproblems, within a minute.

  python benchmarks/cuda_routines.py RESULTS.jsonl [SECONDS]

Each cell is one JSON line, written as it ends. A child process runs the cells. If a cell hangs or
crashes, a new child goes on after it.
"""

import ctypes
import glob
import importlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from typing import Any

OUTPUT = sys.argv[1]
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 and not sys.argv[2].startswith("-") else 60.0
CELL_SECONDS = 6.0  # a hung cell: its process is killed
CAP = 2.0  # predicted seconds beyond which a cell is skipped
LETTERS = {"float32": "S", "float64": "D", "complex128": "Z"}
DATA_TYPE = {"float32": 0, "float64": 1, "complex128": 5}  # CUDA_R_32F, CUDA_R_64F, CUDA_C_64F


def cells() -> list[dict[str, Any]]:
  """Returns the cells, small ones first."""
  found: list[dict[str, Any]] = [
      dict(op="svd", driver="gesvdjBatched", n=n, dtype=dtype, kind="random", batch=1000)
      for n in (16, 32) for dtype in ("float32", "float64")]
  for n in (64, 128, 176, 256, 352, 512, 1024):
    if n not in (176, 352):
      for dtype in ("float32", "float64", "complex128"):
        for kind in ("random", "decades"):
          for driver in ("Xgesvdp", "Xgesvd", "gesvdj"):
            found.append(dict(op="svd", driver=driver, n=n, dtype=dtype, kind=kind, batch=1))
        if n != 64:
          for driver in ("Xgesvd", "gesvdj", "Xgesvdp"):
            found.append(dict(op="svd", driver=driver, n=n, dtype=dtype, kind="random", batch=1,
                              values=True))
        if n <= 512 and dtype != "complex128":
          found.append(dict(op="svd", driver="gesvdaStridedBatched", n=n, dtype=dtype,
                            kind="random", batch=40))
    for dtype in ("float32", "float64"):
      found.append(dict(op="eigh", driver="Xsyevd", n=n, dtype=dtype, kind="random", batch=1))
      found.append(dict(op="eigh", driver="XsyevBatched", n=n, dtype=dtype, kind="random",
                        batch=40))
      found.append(dict(op="eigh", driver="XsyevBatched", n=n, dtype=dtype, kind="random",
                        batch=640))
  # Rectangular matrices, and whether Xgesvdp takes wide ones.
  for m, n in ((1024, 64), (64, 1024), (1024, 256)):
    for driver in ("Xgesvdp", "Xgesvd", "gesvdj"):
      found.append(dict(op="svd", driver=driver, m=m, n=n, dtype="float32", kind="random", batch=1))
  for m, n in ((512, 128), (128, 512)):
    found.append(dict(op="svd", driver="Xgesvdp", m=m, n=n, dtype="float32", kind="random", batch=1,
                      full=True))
  # Matrices that are singular, zero, or hold a single element.
  for kind in ("rank_half", "zero", "ones"):
    for dtype in ("float32", "float64"):
      found.append(dict(op="svd", driver="Xgesvdp", n=128, dtype=dtype, kind=kind, batch=1))
  # The most expensive ones of each size come last.
  order = {id(c): i for i, c in enumerate(found)}
  return sorted(found, key=lambda c: (
      max(c["n"], c.get("m", 0)) >= 1024, c["dtype"] == "complex128" and c["n"] >= 512,
      order[id(c)]))


def write(line):
  with open(OUTPUT, "a") as file:
    file.write(json.dumps(line) + "\n")
    file.flush()
    os.fsync(file.fileno())


# --- the parent -------------------------------------------------------------------------------


def parent():
  end = time.monotonic() + SECONDS
  open(OUTPUT, "w").close()
  at, count, crashes = 0, len(cells()), 0
  while at < count and time.monotonic() < end - 4 and crashes < 5:
    child = subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), OUTPUT, "--child", str(at), "--seconds",
         str(end - time.monotonic())], stdout=subprocess.PIPE, text=True)
    state = {"at": at, "since": time.monotonic() + 20}  # starting may take long

    def follow(child=child, state=state):
      for line in child.stdout or ():
        if line.startswith("cell "):
          state.update(at=int(line.split()[1]), since=time.monotonic())

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    reason = None
    while child.poll() is None:
      time.sleep(0.05)
      if time.monotonic() > end:
        reason = "the time is over"
      elif time.monotonic() > state["since"] + CELL_SECONDS:
        reason = f"longer than {CELL_SECONDS} s"
      if reason:
        child.kill()
        child.wait()
    reader.join(2)
    if child.returncode == 0:
      break
    write({"cell": state["at"], "failed": reason or f"exit status {child.returncode}",
           **cells()[min(state["at"], count - 1)]})
    crashes += 1
    at = state["at"] + 1
  write({"finished": True, "seconds": round(SECONDS - (end - time.monotonic()), 1)})


# --- the child --------------------------------------------------------------------------------


def load(name, soname):
  """Returns the library that CuPy has opened, or else one of the wheels or of a toolkit."""
  try:
    with open("/proc/self/maps") as file:
      opened = re.findall(rf"(/\S*{name}\.so\S*)", file.read())
    if opened:
      return ctypes.CDLL(opened[0]), opened[0]
  except OSError:
    pass
  folders = [f"{x}/nvidia" for x in sys.path]
  found = [y for x in folders for y in glob.glob(f"{x}/*/lib/{soname}")]
  for path in [soname, *found, f"/usr/local/cuda/lib64/{soname}"]:
    try:
      return ctypes.CDLL(path), path
    except OSError:
      continue
  raise OSError(f"no {soname}")


class Solver:

  def __init__(self):
    cp = self.cp = importlib.import_module("cupy")
    cp.linalg.qr(cp.eye(2))  # opens the libraries
    self.lib, self.path = load("libcusolver", "libcusolver.so.12")
    self.handle = ctypes.c_void_p()
    self.params = ctypes.c_void_p()
    self.jacobi = ctypes.c_void_p()
    self.check("cusolverDnCreate", self.lib.cusolverDnCreate(ctypes.byref(self.handle)))
    self.check("cusolverDnCreateParams",
               self.lib.cusolverDnCreateParams(ctypes.byref(self.params)))
    self.check("cusolverDnCreateGesvdjInfo",
               self.lib.cusolverDnCreateGesvdjInfo(ctypes.byref(self.jacobi)))
    self.info = cp.zeros(1024, dtype="int32")
    self.exact = {}

  def check(self, name, status):
    if status != 0:
      raise RuntimeError(f"{name} failed with status {status}")

  def call(self, name, *arguments):
    """Calls with Python integers as 64-bit ones, unless they are wrapped."""
    wrapped = []
    for x in arguments:
      if isinstance(x, int):
        wrapped.append(ctypes.c_int64(x))
      elif hasattr(x, "data") and hasattr(x.data, "ptr"):
        wrapped.append(ctypes.c_void_p(x.data.ptr))
      else:
        wrapped.append(x)
    self.check(name, getattr(self.lib, name)(*wrapped))

  def version(self):
    found = []
    for part in range(3):
      value = ctypes.c_int()
      self.lib.cusolverGetProperty(ctypes.c_int(part), ctypes.byref(value))
      found.append(value.value)
    return found


def c_int(x):
  return ctypes.c_int(x)


def svd_matrix(cp, m, n, dtype, kind, seed=1):
  """Returns a matrix in double precision, rounded to the dtype, and its singular values or None."""
  generator = cp.random.default_rng(seed)
  k = min(m, n)
  wide = "complex128" if dtype == "complex128" else "float64"

  def normal(*shape):
    x = generator.standard_normal(shape)
    return x + 1j * generator.standard_normal(shape) if wide == "complex128" else x

  if kind == "random":
    return normal(m, n).astype(dtype), None
  if kind == "zero":
    return cp.zeros((m, n), dtype=dtype), cp.zeros(k)
  if kind == "ones":
    s = cp.zeros(k)
    s[0] = (m * n) ** 0.5
    return cp.ones((m, n), dtype=dtype), s
  if kind == "rank_half":
    return (normal(m, k // 2) @ normal(k // 2, n)).astype(dtype), None
  s = cp.logspace(0, -10, k)
  u = cp.linalg.qr(normal(m, k))[0]
  v = cp.linalg.qr(normal(n, k))[0]
  return ((u * s) @ v.conj().T).astype(dtype), s


def timed(cp, once, prepare, budget):
  """Returns seconds for one call in the better of two loops, and the first call's seconds."""
  sync = cp.cuda.Device().synchronize
  prepare()
  sync()
  start = time.perf_counter()
  once()
  sync()
  first = time.perf_counter() - start
  if first > 0.8:
    return first, first, 1
  # The first call loads kernels. The second says how many calls fit.
  prepare()
  sync()
  start = time.perf_counter()
  once()
  sync()
  second = time.perf_counter() - start
  best, calls = second, 1
  count = max(1, min(20, int(budget / 2 / max(second, 1e-5))))
  if second > budget:
    return best, first, calls
  for _ in range(2):
    total = 0.0
    for _ in range(count):
      prepare()
      sync()
      start = time.perf_counter()
      once()
      sync()
      total += time.perf_counter() - start
      calls += 1
    best = min(best, total / count)
  return best, first, calls


def svd_cell(solver, cell):
  cp = solver.cp
  dtype, driver, n = cell["dtype"], cell["driver"], cell["n"]
  m = cell.get("m", n)
  batch, k = cell["batch"], min(m, cell["n"])
  vectors, full = not cell.get("values"), cell.get("full", False)
  a, exact = svd_matrix(cp, m, n, dtype, cell["kind"])
  real = "float32" if dtype == "float32" else "float64"
  letter = LETTERS[dtype]
  # Xgesvd takes tall matrices only: a wide one goes as its transpose.
  flipped = driver == "Xgesvd" and m < n
  source = cp.asfortranarray(a.T if flipped else a)
  rows, cols = (n, m) if flipped else (m, n)
  if batch > 1:
    # The layout of a batch of column-major matrices.
    whole = cp.random.default_rng(2).standard_normal((batch, n, m)).astype(dtype)
    whole[0] = a.T
  else:
    whole = source.T  # row-major (cols, rows), which holds the column-major matrix
    whole = cp.ascontiguousarray(whole)[None]
  work_a = cp.empty_like(whole)
  s = cp.zeros((batch, k), dtype=real)
  u = cp.zeros((batch, rows if full else k, rows), dtype=dtype)
  v = cp.zeros((batch, cols, k) if driver == "Xgesvd" else (batch, cols if full else k, cols),
               dtype=dtype)
  code, real_code = c_int(DATA_TYPE[dtype]), c_int(DATA_TYPE[real])
  info = solver.info[:max(batch, 1)]
  extra = {}
  h_err = ctypes.c_double(-1.0)
  h = solver.handle
  vector = c_int(int(vectors))

  if driver in ("Xgesvdp", "Xgesvd"):
    device, host = ctypes.c_size_t(), ctypes.c_size_t()
    if driver == "Xgesvdp":
      head = [h, solver.params, vector, c_int(int(not full)), rows, cols]
      arrays = [code, work_a, rows, real_code, s, code, u, rows, code, v, cols, code]
    else:
      job = ctypes.c_byte(ord("S" if vectors else "N"))
      head = [h, solver.params, job, job, rows, cols]
      arrays = [code, work_a, rows, real_code, s, code, u, rows, code, v, k, code]
    solver.call(f"cusolverDn{driver}_bufferSize", *head, *arrays, ctypes.byref(device),
                ctypes.byref(host))
    buffer = cp.empty(max(device.value, 1), dtype="uint8")
    on_host = ctypes.create_string_buffer(max(host.value, 1))
    extra["device_bytes"], extra["host_bytes"] = device.value, host.value
    tail = [ctypes.c_void_p(buffer.data.ptr), device, on_host, host, info]
    if driver == "Xgesvdp":
      tail.append(ctypes.byref(h_err))

    def once():
      solver.call(f"cusolverDn{driver}", *head, *arrays, *tail)
  elif driver in ("gesvdj", "gesvdjBatched"):
    size = ctypes.c_int()
    name = f"cusolverDn{letter}{driver}"
    head = [h, vector] + ([c_int(1)] if driver == "gesvdj" else []) + [c_int(rows), c_int(cols)]
    arrays = [work_a, c_int(rows), s, u, c_int(rows), v, c_int(cols)]
    last = [solver.jacobi] + ([c_int(batch)] if driver == "gesvdjBatched" else [])
    solver.call(f"{name}_bufferSize", *head, *arrays, ctypes.byref(size), *last)
    buffer = cp.empty(max(size.value, 1), dtype=dtype)
    extra["device_bytes"] = buffer.nbytes

    def once():
      solver.call(name, *head, *arrays, buffer, size, info, *last)
  else:
    size = ctypes.c_int()
    name = f"cusolverDn{letter}gesvdaStridedBatched"
    head = [h, vector, c_int(k), c_int(rows), c_int(cols)]
    arrays = [work_a, c_int(rows), rows * cols, s, k, u, c_int(rows), rows * k, v, c_int(cols),
              cols * k]
    solver.call(f"{name}_bufferSize", *head, *arrays, ctypes.byref(size), c_int(batch))
    buffer = cp.empty(max(size.value, 1), dtype=dtype)
    norms = (ctypes.c_double * batch)()
    extra["device_bytes"] = buffer.nbytes

    def once():
      solver.call(name, *head, *arrays, buffer, size, info, norms, c_int(batch))

  def prepare():
    work_a[...] = whole

  best, first, calls = timed(cp, once, prepare, 0.25)
  infos = cp.asnumpy(info)
  if driver == "Xgesvdp":
    extra["h_err_sigma"] = h_err.value
  # The factors of the first matrix, in double precision.
  wide = "complex128" if dtype == "complex128" else "float64"
  given = source.astype(wide)
  left = u[0, :k].T.astype(wide)
  right_h = v[0].T.astype(wide) if driver == "Xgesvd" else v[0, :k].astype(wide).conj()
  values = s[0].astype("float64")
  norm = float(cp.linalg.norm(given)) or 1.0
  eps = {"float32": 2.0**-23, "float64": 2.0**-52}[real]
  eye = cp.eye(k)
  residual = float(cp.linalg.norm(given - (left * values) @ right_h)) / norm / eps
  out = dict(s_max=float(values.max()), s_min=float(values.min()),
             sorted=bool((values[1:] <= values[:-1]).all()))
  if vectors:
    out.update(
        residual_eps=residual,
        orthogonality_u_eps=float(cp.linalg.norm(left.conj().T @ left - eye)) / eps,
        orthogonality_v_eps=float(cp.linalg.norm(right_h @ right_h.conj().T - eye)) / eps)
  if full:
    whole_u, whole_v = u[0].astype(wide), v[0].astype(wide)
    out.update(
        orthogonality_full_u_eps=float(
            cp.linalg.norm(whole_u @ whole_u.conj().T - cp.eye(rows))) / eps,
        orthogonality_full_v_eps=float(
            cp.linalg.norm(whole_v @ whole_v.conj().T - cp.eye(cols))) / eps)
  place = (m, n, dtype, cell["kind"])
  if exact is None and batch == 1 and k <= 512:
    if place not in solver.exact:
      solver.exact[place] = cp.linalg.svd(given, compute_uv=False)
    exact = solver.exact[place]
  if exact is not None:
    # Relative to the largest one.
    scale = float(exact.max()) or 1.0
    out["values_eps"] = float(cp.abs(values - exact).max()) / scale / eps
  return dict(seconds=best, seconds_first=first, calls=calls,
              seconds_per_matrix=best / batch, info_nonzero=int((infos != 0).sum()),
              info0=int(infos[0]), **out, **extra)


def eigh_cell(solver, cell, known):
  cp = solver.cp
  n, dtype, driver, batch = cell["n"], cell["dtype"], cell["driver"], cell["batch"]
  if driver == "XsyevBatched" and batch > 40:
    # The number of matrices that fit the time, by the time of 40.
    before = known.get(("XsyevBatched", dtype, n))
    if before:
      batch = min(batch, max(40, int(40 * 1.2 / max(before, 1e-6))))
      batch = batch // 40 * 40
      if batch <= 40:
        return dict(skipped="as many as of the batch of 40", batch=batch)
  whole = cp.random.default_rng(3).standard_normal((batch, n, n), dtype="float32").astype(dtype)
  whole = (whole + whole.transpose(0, 2, 1)) / 2
  work_a = cp.empty_like(whole)
  w = cp.zeros((batch, n), dtype=dtype)
  code = c_int(DATA_TYPE[dtype])
  info = solver.info[:max(batch, 1)]
  device, host = ctypes.c_size_t(), ctypes.c_size_t()
  head = [solver.handle, solver.params, c_int(1), c_int(0), n]
  arrays = [code, work_a, n, code, w, code]
  count = [batch] if driver == "XsyevBatched" else []
  solver.call(f"cusolverDn{driver}_bufferSize", *head, *arrays, ctypes.byref(device),
              ctypes.byref(host), *count)
  free = cp.cuda.runtime.memGetInfo()[0]
  if device.value > free * 0.8:
    return dict(skipped="memory", device_bytes=device.value)
  buffer = cp.empty(max(device.value, 1), dtype="uint8")
  on_host = ctypes.create_string_buffer(max(host.value, 1))

  def once():
    solver.call(f"cusolverDn{driver}", *head, *arrays, ctypes.c_void_p(buffer.data.ptr), device,
                on_host, host, info, *count)

  def prepare():
    work_a[...] = whole

  best, first, calls = timed(cp, once, prepare, 0.25)
  infos = cp.asnumpy(info)
  a = whole[-1].astype("float64")
  vectors = work_a[-1].astype("float64").T
  values = w[-1].astype("float64")
  eps = {"float32": 2.0**-23, "float64": 2.0**-52}[dtype]
  residual = float(cp.linalg.norm(a @ vectors - vectors * values) / cp.linalg.norm(a)) / eps
  orthogonality = float(cp.linalg.norm(vectors.T @ vectors - cp.eye(n))) / eps
  result = dict(seconds=best, seconds_first=first, calls=calls, batch=batch,
                seconds_per_matrix=best / batch, residual_eps=residual,
                orthogonality_eps=orthogonality, info_nonzero=int((infos != 0).sum()),
                device_bytes=device.value, host_bytes=host.value)
  # Whether a matrix has the same bits alone in a batch of two.
  if driver == "XsyevBatched" and batch == 40 and n <= 512:
    both = work_a[:2].copy(), w[:2].copy()
    work_a[:2] = whole[:2]
    pair = [solver.handle, solver.params, c_int(1), c_int(0), n, *arrays]
    solver.call("cusolverDnXsyevBatched", *pair, ctypes.c_void_p(buffer.data.ptr), device, on_host,
                host, info, 2)
    cp.cuda.Device().synchronize()
    result["same_bits_in_batch_of_2"] = bool(
        (work_a[:2] == both[0]).all() and (w[:2] == both[1]).all())
  return result


def child(begin, seconds):
  end = time.monotonic() + seconds
  solver = Solver()
  cp = solver.cp
  if begin == 0:
    device = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    write(dict(device=device, cupy=cp.__version__, cusolver=solver.version(), path=solver.path,
               driver=cp.cuda.runtime.driverGetVersion(),
               runtime=cp.cuda.runtime.runtimeGetVersion(),
               cells=len(cells()), python=sys.version.split()[0]))
  known, before = {}, {}
  for i, cell in enumerate(cells()):
    if i < begin:
      continue
    if time.monotonic() > end - 1.5:
      break
    print("cell", i, flush=True)
    line: dict[str, Any] = dict(cell=i, **cell)
    key = (cell["op"], cell["driver"], cell["dtype"], cell["kind"], cell["batch"],
           cell.get("values"))
    started = time.monotonic()
    # By the time of the size before, and the cost of the other matrices of a cell.
    if key in before and "m" not in cell:
      n, t = before[key]
      if 2 * t * (cell["n"] / n) ** 2.3 > 2 * CAP:
        write(dict(line, skipped="too long", predicted=t * (cell["n"] / n) ** 2.3))
        continue
    try:
      result = svd_cell(solver, cell) if cell["op"] == "svd" else eigh_cell(solver, cell, known)
      line.update(result)
      if "seconds" in result:
        if "m" not in cell:
          before[key] = cell["n"], result["seconds"]
        if cell["driver"] == "XsyevBatched":
          known.setdefault(("XsyevBatched", cell["dtype"], cell["n"]), result["seconds"])
    except Exception as error:  # noqa: BLE001  # the next cells go on
      line["failed"] = f"{type(error).__name__}: {error}"[:300]
      write(line)
      try:
        cp.cuda.Device().synchronize()
      except Exception:  # noqa: BLE001
        # The context is lost.
        os._exit(3)
      continue
    line["cell_seconds"] = round(time.monotonic() - started, 3)
    write(line)
    cp.get_default_memory_pool().free_all_blocks()
  # The drivers that this cuSOLVER has.
  if time.monotonic() < end - 2:
    try:
      import mmap
      with open(solver.path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        names = set(re.findall(
            rb"cusolverDnX(?:gesv|gesdd|syev|polar|stedc|geev|larft)\w*", data))
      write({"symbols": sorted(x.decode() for x in names)})
    except (OSError, ValueError) as error:
      write({"symbols": str(error)})
  os._exit(0)


if __name__ == "__main__":
  if "--child" in sys.argv:
    child(int(sys.argv[sys.argv.index("--child") + 1]),
          float(sys.argv[sys.argv.index("--seconds") + 1]))
  else:
    parent()
