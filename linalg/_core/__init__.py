"""What every operation stands on: calls of handlers, operands, checks, algebra, derivative rules.

This layer knows no operation.
"""
