def levels() -> list[str]:
    """The levels of the instruction set that this machine has, the best first."""
