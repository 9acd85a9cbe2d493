"""`linalg.structured`: structured systems, and recursions over blocks."""

from linalg._catalogue.record import Function

STRUCTURED_FUNCTIONS: tuple[Function, ...] = ()
