"""jax-linalg's handlers for GPUs, built with CUDA 13: `import linalg` finds them here."""
