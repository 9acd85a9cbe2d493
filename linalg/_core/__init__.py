"""The base of every operation: handler calls, operands, checks, algebra, derivative mechanisms.

This layer knows no operation.
"""
