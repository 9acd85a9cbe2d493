"""SciPy's names of LAPACK routines. They are checked as in SciPy, and choose nothing."""

from collections.abc import Sequence

# Routines that find all eigenvalues only.
_OF_WHOLE_MATRICES = ("ev", "evd", "gv", "gvd")
_OF_WHOLE_TRIDIAGONALS = ("sterf", "stev", "stevd")


def check_driver(name: str, driver: str | None, drivers: Sequence[str]) -> None:
  if driver is None:
    return
  if not isinstance(driver, str):
    raise TypeError(f"{name}: the driver must be a string, got {driver!r}.")
  if driver not in drivers:
    raise ValueError(f"{name}: the driver must be one of {', '.join(drivers)}, got {driver!r}.")


def check_driver_of_eigh(
    name: str, driver: str | None, *, generalized: bool, subset: bool
) -> None:
  drivers = ("gv", "gvd", "gvx") if generalized else ("ev", "evd", "evr", "evx")
  check_driver(name, driver, drivers)
  if subset and driver in _OF_WHOLE_MATRICES:
    raise ValueError(f"{name}: the driver {driver!r} takes no subset.")


def check_driver_of_tridiagonal(
    name: str, driver: str | None, *, vectors: bool, subset: bool
) -> None:
  check_driver(name, driver, ("auto", "stemr", "stebz", *_OF_WHOLE_TRIDIAGONALS))
  if subset and driver in _OF_WHOLE_TRIDIAGONALS:
    raise ValueError(f"{name}: the driver {driver!r} takes select='a' alone, and no subset.")
  if vectors and driver == "sterf":
    raise ValueError(f"{name}: the driver 'sterf' finds no eigenvectors.")
