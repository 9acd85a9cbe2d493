"""Finds why the last bits of a matrix's results depend on its batch."""

SUMS = "XLA sums a few arrays in other orders than many"
PRODUCTS = "XLA compiles products of complex numbers, or of small matrices, by the batch's size"
BATCHES = "XLA compiles products by the batch's size"
