"""JAX's own linear algebra, computed by this package's handlers."""
