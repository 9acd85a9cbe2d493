"""jax-linalg's handlers for GPUs, built with CUDA 12: `import linalg` finds them here."""
