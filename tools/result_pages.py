"""The parts of pages that tools/write_pages.py makes from files in benchmarks/results."""

import functools
import json
import math
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"

Row = dict[str, Any]


def newest(kind: str) -> pathlib.Path:
  """The newest file of a kind: its name ends with the kind and the date."""
  files = RESULTS.glob(f"*-{kind}-????-??-??.json")
  return max(files, key=lambda path: (path.stem[-10:], path.stem))


@functools.cache
def load(path: pathlib.Path) -> dict[str, Any]:
  return json.loads(path.read_text())


def table(header: Iterable[str], rows: Iterable[Iterable[str]], numbers_from: int = 1) -> str:
  header = list(header)
  rules = ["---" if i < numbers_from else "---:" for i in range(len(header))]
  lines = [header, rules, *map(list, rows)]
  text = "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"
  return text.replace("|  |", "| |")


def geometric_mean(values: Iterable[float]) -> float:
  logs = [math.log(x) for x in values]
  return math.exp(sum(logs) / len(logs)) if logs else math.nan


def described(found: dict[str, Any], path: pathlib.Path, folder: str = "..") -> str:
  machine, versions = found["machine"], found["versions"]
  cores = "one core" if machine["cores"] == 1 else f"{machine['cores']} cores"
  return (
      f"`{found['command']}`, {cores} of an {machine['cpu']}, jax "
      f"{versions['jax']}, {found['date'][:10]} ([results]({folder}/{path.relative_to(ROOT)})).\n")


# docs/roofline.md

TITLES = {
    "ours": "`linalg`", "stock": "stock JAX", "numpy": "NumPy", "torch": "PyTorch", "mkl": "MKL",
    "mkl_bypassed": "MKL, bypassed", "mkl_compact": "MKL, compact",
    "mkl_compact_bypassed": "MKL, compact, bypassed", "eigen": "Eigen"}
BEHIND = 1.05  # times as fast as ours from which another contender is listed
MOST_BEHIND = 10


class _Roofline:
  """The cells of the newest run, and the fraction of the bound that each contender reaches."""

  def __init__(self):
    self.path = newest("roofline")
    self.found = load(self.path)
    self.ceilings = self.found["ceilings"]
    self.cells = [cell for cell in self.found["cells"] if cell["op"] != "product"]
    self.cores = sorted({cell["cores"] for cell in self.cells})
    self.ops = list(dict.fromkeys(cell["op"] for cell in self.cells))
    self.shapes = sorted(
        {(cell["n"], cell["batch"]) for cell in self.cells}, key=lambda x: (x[1] == 1, x))

  def fraction(self, cell: Row, contender: str) -> float:
    of_cores = self.ceilings[str(cell["cores"])]
    bound = max(cell["flops"] / of_cores[cell["dtype"]][0], cell["bytes"] / of_cores["bytes"])
    return bound / cell["seconds"][contender][0]

  def of(self, cores: int, regime: str, dtypes: str) -> list[Row]:
    return [
        cell for cell in self.cells
        if cell["cores"] == cores and cell["regime"] == regime and cell["dtype"][0] in dtypes]


def _percent(fraction: float) -> str:
  return f"{100 * fraction:.0f}" if fraction >= 0.0995 else f"{100 * fraction:.2g}"


def _ratio(x: float) -> str:
  return f"{x:.2g}" if x < 99.5 else f"{x:.0f}"


def _cores(count: int) -> str:
  return "one core" if count == 1 else f"all {count} cores"


def roofline_bounds() -> str:
  run = _Roofline()
  dtypes = list(dict.fromkeys(cell["dtype"] for cell in run.cells))
  rows = [
      [_cores(cores), f"{run.ceilings[str(cores)]['bytes'] / 1e9:.1f}",
       *(f"{rate / 1e9:.0f} ({TITLES[name]})"
         for rate, name in (run.ceilings[str(cores)][dtype] for dtype in dtypes))]
      for cores in run.cores]
  head = ["", "copy, GB/s", *(f"product, {dtype}, GFLOP/s" for dtype in dtypes)]
  return f"{table(head, rows)}\n{described(run.found, run.path)}"


def _ours(run: _Roofline, cells: list[Row]) -> str:
  shapes = [x for x in run.shapes if any((cell["n"], cell["batch"]) == x for cell in cells)]
  dtypes = list(dict.fromkeys(cell["dtype"] for cell in cells))
  by_key = {(cell["op"], cell["n"], cell["batch"], cell["dtype"]): cell for cell in cells}

  def text(op, shape, dtype):
    cell = by_key.get((op, *shape, dtype))
    return _percent(run.fraction(cell, "ours")) if cell and "ours" in cell["seconds"] else "–"

  rows = [
      [f"`{op}`", *(" / ".join(text(op, shape, dtype) for dtype in dtypes) for shape in shapes)]
      for op in run.ops]
  head = [" / ".join(dtypes), *(
      f"n = {n}, one" if batch == 1 else f"n = {n}, {batch}" for n, batch in shapes)]
  return table(head, rows)


REGIMES = {"warm": "Calls back to back", "cold": "Calls between other programs"}


def roofline_ours() -> str:
  """The percentages that we reach, by the number of cores and the regime."""
  run = _Roofline()
  parts = [
      f"{title}, {_cores(cores)}:\n\n{_ours(run, cells)}"
      for regime, title in REGIMES.items() for cores in run.cores
      if (cells := run.of(cores, regime, "f"))]
  if of_complex := run.of(run.cores[-1], "warm", "c"):
    parts.append(
        f"Complex, back to back, {_cores(run.cores[-1])}:\n\n{_ours(run, of_complex)}")
  return "\n".join(parts)


def roofline_others() -> str:
  """For each contender and operation, the mean percentage, and its time over ours."""
  run = _Roofline()
  parts = []
  for regime, title in REGIMES.items():
    for cores in run.cores:
      cells = [cell for cell in run.of(cores, regime, "f") if "ours" in cell["seconds"]]

      def text(op, name, cells=cells):
        both = [cell for cell in cells if cell["op"] == op and name in cell["seconds"]]
        if not both:
          return "–"
        mean = _percent(geometric_mean(run.fraction(cell, name) for cell in both))
        ratio = geometric_mean(
            cell["seconds"][name][0] / cell["seconds"]["ours"][0] for cell in both)
        return mean if name == "ours" else f"{mean} ({_ratio(ratio)})"

      rows = [[of, *(text(op, name) for op in run.ops)] for name, of in TITLES.items()
              if any(name in cell["seconds"] for cell in cells)]
      head = ["", *(f"`{op}`" for op in run.ops)]
      parts.append(f"{title}, {_cores(cores)}:\n\n{table(head, rows)}")
  return "\n".join(parts)


def roofline_behind() -> str:
  """The cells in which another contender is the fastest."""
  run = _Roofline()
  found = []
  cells = [cell for cell in run.cells if "ours" in cell["seconds"]]
  for cell in cells:
    ours = cell["seconds"]["ours"][0]
    name = min(cell["seconds"], key=lambda x: cell["seconds"][x][0])
    if ours / cell["seconds"][name][0] >= BEHIND:
      found.append((ours / cell["seconds"][name][0], name, cell))
  found.sort(key=lambda x: -x[0])
  rows = [
      [f"`{cell['op']}`", f"n = {cell['n']}, {cell['batch']}", cell["dtype"],
       f"{_cores(cell['cores'])}, {cell['regime']}", TITLES[name],
       _percent(run.fraction(cell, "ours")), _percent(run.fraction(cell, name)), _ratio(ratio)]
      for ratio, name, cell in found[:MOST_BEHIND]]
  head = ["", "matrices", "dtype", "", "fastest", "ours, %", "fastest, %", "times as fast"]
  return (
      f"In {len(found)} of {len(cells)} cells another contender is at least {BEHIND:g} times as "
      f"fast as `linalg`. The {len(rows)} largest:\n\n{table(head, rows, numbers_from=5)}")


def roofline_missing() -> str:
  """Whose rows are missing, and why."""
  run = _Roofline()
  failures: dict[str, list[str]] = {}
  for cell in run.found["cells"]:
    for name, reason in cell.get("failed", {}).items():
      failures.setdefault(name, []).append(reason)
  of_reason: dict[str, list[str]] = {}
  for name, why in run.found["missing"].items():
    title, _, cores = name.partition(", ")
    names = of_reason.setdefault(why.capitalize(), [""])
    names[-1] += f"{', ' if names[-1] else ''}{TITLES.get(title, title)} ({cores})"
    names += [""] * (names[-1].count("(") == 4)
  lines = [f"- {why}, some rows:\n" + "\n".join(f"  - {name}" for name in names)
           for why, names in of_reason.items()]
  lines += [f"- {TITLES[name]}: {len(reasons)} cells failed, the first with “{reasons[0]}”."
            for name, reasons in failures.items()]
  return "\n".join(lines or ["No contender lacks a row that it could have."]) + "\n"


ROOFLINE = {
    "roofline-bounds": roofline_bounds, "roofline-ours": roofline_ours,
    "roofline-others": roofline_others, "roofline-behind": roofline_behind,
    "roofline-missing": roofline_missing}

# README.md

GPU = "nvidia-h100-80gb-hbm3-2026-11-22.json"
SLOW_GPU = "nvidia-h200-forward-2026-11-28.json"
SMALL_SIZES = range(2, 33)
SPEEDS = (
    ("cholesky", 8, 4096), ("eigh", 8, 4096), ("grad eigh", 6, 4096), ("qr", 128, 16),
    ("solve", 1024, 1))
PROGRAMS = {
    "lineax QR, 1024 of 12 by 6": "lineax: 1024 least-squares problems of 12 by 6, by QR",
    "grad tinygp, 512 of 24": "tinygp: gradients of 512 Gaussian processes of 24 points",
    "diffrax Kvaerno5, 256 of 3":
        "diffrax: Robertson's reaction from 256 initial states, by Kvaerno5"}


class _Readme:
  """The newest file of benchmarks/readme.py."""

  def __init__(self):
    self.path = newest("readme")
    self.found = load(self.path)
    self.link = f"[results](benchmarks/results/{self.path.name})"
    self.machine = f"{self.found['machine']['cores']} cores of an {self.found['machine']['cpu']}"
    self.date = self.found["date"][:10]

  def cells(self, **chosen: Any) -> list[Row]:
    return [cell for cell in self.found["cells"]
            if all(cell[key] == value for key, value in chosen.items())]


def speedup(cell: Row) -> float:
  return cell["speedup"]["stock"]["median"]


def _three(x: float) -> str:
  """Three significant digits, without an exponent."""
  return f"{x:.0f}" if x >= 99.95 else f"{x:#.3g}".rstrip(".")


def _is_small(cell: Row) -> bool:
  """Whether a cell counts in the first number of README.md."""
  return cell["batch"] == 4096 and cell["n"] in SMALL_SIZES and " " not in cell["op"]


def readme_small() -> str:
  run = _Readme()
  small = [cell for cell in run.found["cells"] if _is_small(cell)]
  ops, sizes = ({cell[key] for cell in small} for key in ("op", "n"))
  f32, f64 = (
      _three(geometric_mean(speedup(cell) for cell in small if cell["dtype"] == dtype))
      for dtype in ("f32", "f64"))
  return (
      f"- **Batches of small matrices are fast.** On {run.machine} they are {f32} times as fast as "
      f"stock JAX in float32,\n  and {f64} times in float64. These are geometric means of "
      f"{len(ops)} operations on 4096 matrices of n = {min(sizes)} to {max(sizes)}\n"
      f"  ({run.link}).")


def readme_clients() -> str:
  run = _Readme()
  rows = []
  for name, title in PROGRAMS.items():
    times = run.found["clients"][name]
    stock, ours = (_three(1e3 * times["seconds"][key]) for key in ("jax", "ours"))
    rows.append([title, stock, ours])
  return (
      "Libraries that call JAX become faster too. "
      "[Most of those measured](docs/accelerate.md) gain less than these. Times of one compiled\n"
      f"call without and with `accelerate()` (float64, {run.machine}, {run.date}, {run.link}):\n\n"
      + table(["Program", "Stock JAX, ms", "Accelerated, ms"], rows))


def _speed_row(title: str, pair: list[Row]) -> list[str]:
  """The times in float32, and the ratios in both dtypes."""
  f32, f64 = sorted(pair, key=lambda cell: cell["dtype"])
  times = (_three(1e3 * f32["seconds"][name]) for name in ("stock", "ours"))
  return [title, *times, f"{_three(speedup(f32))} / {_three(speedup(f64))}"]


def readme_speed() -> str:
  run = _Readme()
  rows = []
  for op, n, batch in SPEEDS:
    kind = f"gradient through `{op.split()[1]}`" if " " in op else f"`{op}`"
    count = "one matrix" if batch == 1 else f"{batch} matrices"
    pair = run.cells(op=op, n=n, batch=batch)
    rows.append(_speed_row(f"{kind}, {count}, n = {n}", pair))
  gpu = [cell for cell in load(RESULTS / GPU)["cells"] if (cell["op"], cell["n"]) == ("eigh", 8)]
  rows.append(_speed_row("`eigh` on an H100, 20000 matrices, n = 8", gpu))
  return (
      f"The figure is for 4096 matrices of n = 8. The table has median times of one compiled call "
      "in float32, and medians of the\nratios of calls made in turn. The CPU is "
      f"{run.machine} with AVX-512, {run.date} ({run.link}; the last row's are\n"
      f"[here](benchmarks/results/{GPU})). [Speed on a CPU](docs/speed_cpu.md) has all tables and "
      "their commands,\n[speed on GPUs](docs/cuda_speed.md) those of GPUs, and "
      "[the roofline](docs/roofline.md) other libraries and the machine's bounds.\n\n"
      + table(["Operation", "Stock JAX, ms", "linalg, ms", "Times as fast, float32 / float64"],
              rows))


def readme_slower() -> str:
  run = _Readme()
  lone = sorted(
      speedup(cell) for cell in run.cells(batch=1) if cell["n"] <= 12)
  sizes = sorted({cell["n"] for cell in run.cells(batch=1) if cell["n"] <= 12})
  names = ", ".join(dict.fromkeys(f"`{cell['op']}`" for cell in run.cells(batch=1, n=sizes[0])))
  titles = {"f32": "float32", "f64": "float64"}
  det = {titles[cell["dtype"]]: speedup(cell) for cell in run.cells(op="det", n=2, batch=4096)}
  slower = min(det, key=lambda dtype: det[dtype])
  (gpu,) = (
      speedup(cell) for cell in load(RESULTS / SLOW_GPU)["cells"]
      if (cell["op"], cell["n"], cell["dtype"]) == ("cholesky", 128, "f64"))
  return (
      f"- One matrix of n = {sizes[0]} or {sizes[-1]} runs at {_ratio(lone[0])} to "
      f"{_ratio(lone[-1])} times stock JAX's speed in {names}.\n"
      f"- `det` of 2 by 2 matrices in {slower}, which stock JAX computes by a formula, runs at "
      f"{_ratio(det[slower])} times its speed.\n"
      f"- `cholesky` of n = 128 in float64 on an H200 ran at {_ratio(gpu)} times the speed of "
      f"cuSOLVER's batched routine ([results](benchmarks/results/{SLOW_GPU}); changed and not "
      "timed since).\n"
      "- On TPUs and on AMD's or Apple's GPUs the functions call stock JAX.")


README = {
    "readme-small": readme_small, "readme-clients": readme_clients, "readme-speed": readme_speed,
    "readme-slower": readme_slower}

# docs/speed_recursions.md, docs/peers.md


def _contenders(kind: str, columns: list[str], name: Callable[[Row], str]) -> str:
  """A row for each cell: the time with the package, and how many times as fast it is as others."""
  path = newest(kind)
  found = load(path)
  rows = []
  for cell in found["cells"]:
    ratios = [cell["speedup"].get(column, {}).get("median") for column in columns]
    if any(ratios):
      rows.append([
          name(cell), _three(1e3 * cell["seconds"]["ours"]),
          *("–" if ratio is None else _three(ratio) for ratio in ratios)])
  header = ["", "`linalg`, ms", *(column[0].upper() + column[1:] for column in columns)]
  return table(header, rows) + "\n" + described(found, path)


def _gradient(cell: Row) -> str:
  return ", with gradient" if cell["gradient"] else ""


def recursions_block_tridiagonal() -> str:
  return _contenders(
      "block-tridiagonal", ["stock scan", "solvax, cyclic", "by factor", "ours, general"],
      lambda cell: f"d = {cell['d']}, {cell['batch']} × {cell['steps']}{_gradient(cell)}")


def recursions_long() -> str:
  """One system of many blocks, on one thread and on two."""
  cells = [cell for cell in load(newest("block-tridiagonal"))["cells"] if cell["threads"]]
  rows = []
  for one in cells:
    (two,) = (
        cell for cell in cells
        if cell["threads"] == 2 and all(cell[key] == one[key] for key in ("d", "gradient")))
    if one["threads"] == 1:
      times = [1e3 * cell["seconds"]["ours"] for cell in (one, two)]
      rows.append([f"d = {one['d']}{_gradient(one)}", *map(_three, (*times, times[0] / times[1]))])
  return table(["", "one thread, ms", "two threads, ms", "Times as fast"], rows)


def recursions_kalman() -> str:
  return _contenders(
      "kalman", ["scan", "scan, accelerated", "dynamax", "dynamax, accelerated"],
      lambda cell: f"{cell['function']}, {cell['batch']} × {cell['steps']}{_gradient(cell)}")


def recursions_densities() -> str:
  return _contenders(
      "densities", ["stock", "apart"],
      lambda cell: f"n = {cell['program'].removeprefix('density_')}{_gradient(cell)}")


def recursions_subset() -> str:
  return _contenders(
      "subset", ["whole"], lambda cell: f"`{cell['operation']}`, {cell['dtype']}{_gradient(cell)}")


def peers_factors() -> str:
  return _contenders(
      "cholesky-factors", ["cholops", "again"],
      lambda cell: f"{cell['change']}, {cell['batch']} × n = {cell['n']}{_gradient(cell)}")


RECURSIONS = {
    "peers-factors": peers_factors,
    "recursions-block-tridiagonal": recursions_block_tridiagonal,
    "recursions-long": recursions_long, "recursions-kalman": recursions_kalman,
    "recursions-densities": recursions_densities, "recursions-subset": recursions_subset}

# docs/distributed_spectra.md

SPECTRA_TITLES = {"gradient of eigh": "gradient of a function of `eigh`"}


def _last_runs(kind: str) -> tuple[list[Row], str]:
  """The cells of each program in the last run that has it, and where they come from."""
  runs = {path: load(path) for path in RESULTS.glob(f"*-{kind}-*.json")}
  runs = dict(sorted(runs.items(), key=lambda run: run[1]["date"]))
  of_program = {cell["program"]: path for path, run in runs.items() for cell in run["cells"]}
  cells = [
      cell for path, run in runs.items() for cell in run["cells"]
      if "skipped" not in cell and of_program[cell["program"]] == path]
  used = [described(runs[path], path) for path in runs if path in of_program.values()]
  return cells, "\n".join(used)


def spectra_counts() -> str:
  """The words and memory of a device, and the processor time of compilation."""
  cells, sources = _last_runs("distributed-spectra")
  rows = [
      [SPECTRA_TITLES.get(cell["program"], f"`{cell['program']}`"), str(cell["devices"]),
       f"{cell['n']}, {cell['dtype']}", f"{cell['words']:.1f}", f"{cell['held']:.1f}",
       str(cell["messages"]), f"{cell['compiling']:.0f}"]
      for cell in cells]
  head = ["Program", "P", "n, dtype", "Received", "Held", "Messages", "Compiled, s"]
  words = {(cell["program"], cell["devices"], cell["n"]): cell["words"] for cell in cells}
  ratios = [
      words[key] / words["eigh", *key[1:]] for key in words if key[0] == "gradient of eigh"]
  return (
      f"{table(head, rows)}\nThe gradient receives at most {max(ratios):.2f} times what `eigh` "
      f"does.\n\n{sources}")


def spectra_work() -> str:
  """The processor time of all devices over that of one stock call."""
  cells, sources = _last_runs("distributed-work")
  seconds = {
      (cell["program"], cell["n"], cell["dtype"], cell["devices"]): cell["processor_seconds"]
      for cell in cells}
  sizes = sorted({(cell["n"], cell["dtype"]) for cell in cells})
  most = max(cell["devices"] for cell in cells)

  def text(name, size):
    ours, stock = ((name, *size, devices) for devices in (most, 1))
    if not {ours, stock} <= seconds.keys():
      return "–"
    return f"{seconds[ours] / seconds[stock]:.1f} ({seconds[ours]:.2f} s)"

  names = dict.fromkeys(cell["program"] for cell in cells)
  rows = [[f"`{name}`", *(text(name, size) for size in sizes)] for name in names]
  head = ["", *(f"n = {n}, {dtype}" for n, dtype in sizes)]
  return f"{table(head, rows)}\n{sources}"


SPECTRA = {"spectra-counts": spectra_counts, "spectra-work": spectra_work}
