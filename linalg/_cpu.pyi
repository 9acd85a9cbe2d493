def ffi_version() -> tuple[int, int]:
    """The version of XLA's FFI that the handlers were compiled with."""

def targets() -> dict[str, object]:
    """The handlers by target name, as capsules."""

def load() -> None:
    """Takes LAPACK from SciPy, unless that is done."""
