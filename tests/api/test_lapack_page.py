"""docs/lapack.md: it has the routines that SciPy wraps, and names functions that are here."""

import pathlib
import re

import scipy.linalg.lapack

import linalg
import linalg.scipy

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "lapack.md").read_text()
# The cells of each row: LAPACK's names, and functions here.
ROWS = re.findall(r"^\| ([^|]*?(?:\\\|[^|]*?)*) \| (.*) \|$", PAGE, re.M)


def _routines() -> set[str]:
  """The names of SciPy's wrappers, without the dtype."""
  return {
      name[1:] for name in dir(scipy.linalg.lapack)
      if re.fullmatch(r"[dz][a-z]\w*", name) and not re.search(r"_lwork$|^dlamch$", name)}


def test_every_routine_of_scipy():
  named = {name for routines, _ in ROWS for name in re.findall(r"`(\w+)`", routines)}
  routines = _routines()
  assert len(routines) > 100  # SciPy may move them
  assert routines <= named, sorted(routines - named)


def test_every_function_is_here():
  found = [
      match for _, here in ROWS for match in re.findall(r"`(linalg\.\w+\.)?(\w+)[`(]", here)]
  assert len(found) > 50
  missing = [
      name for module, name in found
      if not hasattr(linalg.scipy if module else linalg, name) and name != "jit"]
  assert not missing
