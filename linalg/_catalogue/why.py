"""Reasons why the last bits of a result depend on the batch."""

SUMS = "XLA sums a few arrays in other orders than many"
PRODUCTS = "XLA compiles products of complex numbers, or of small matrices, by the batch's size"
BATCHES = "XLA compiles products by the batch's size"
