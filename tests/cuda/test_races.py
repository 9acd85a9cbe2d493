"""Runs the algorithms of a team of CUDA threads on the CPU, by concurrent threads.

tests/cuda/phases runs one thread after another, which cannot show a missing barrier. Such a barrier
separates a value that every thread reads from the next phase, which writes it. ThreadSanitizer
reports two accesses without a barrier in between, in either order.
"""

import pytest

import sanitized

pytestmark = pytest.mark.extended

ELEMENTS = {"float32": "float", "complex128": "linalg::Complex<double>"}


def test_races(dtype, tmp_path):
  sanitizer = sanitized.Sanitizer(
      tmp_path, "thread", f"-DLINALG_TEST_ELEMENT={ELEMENTS[dtype.name]}")
  program = sanitizer.make("team_races", sanitized.ROOT / "tests/cuda/team_races.cc")
  racing = sanitizer.run(program, "--race")
  sanitized.check_race(racing)
  done = sanitizer.run(program)
  assert done.returncode == 0, done.stderr[-10000:]
