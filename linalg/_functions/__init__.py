"""The functions that are composed of factorizations, one concept per file."""
