"""Advice for matrices that several devices share. {name} stands for the function's name."""

FITS = (
    ": jax.device_put(a, jax.devices()[0]) or, on Explicit axes, "
    "jax.sharding.reshard(a, jax.P())")
ON_ONE_DEVICE = "linalg.{name}, of a matrix that fits on a device" + FITS
STACK = "of a stack, linalg.distributed.batched(linalg.{name}); or " + ON_ONE_DEVICE
VALUES = "linalg.distributed.svdvals; " + STACK
BY_XLA = "jax.numpy.{name}: XLA shards sums and products"
BY_XLA_LINALG = "jax.numpy.linalg.{name}: XLA shards sums and products"
