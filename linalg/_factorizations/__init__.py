"""The operations that have handlers: one file for each factorization or solve.

A file holds the operation, its derivative rule and its public functions.
"""
