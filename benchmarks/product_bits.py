"""Finds the products of cuBLAS whose bits do not depend on the number of matrices in a call.

  pip install cupy-cuda13x
  python benchmarks/product_bits.py --output products.json

Factorisations by panels call gemmStridedBatched. Here each product of a batch is computed again in
smaller batches, with the pointers and strides that the first matrices have. A row of the JSON has
the shape of a product (rows, columns, inner), its dtype and transposition, and the batches whose
bits differ from those of the largest one.
"""

import argparse
import json
import pathlib
from typing import Any

import numpy as np

BATCHES = (640, 639, 132, 60, 40, 8, 2, 1)
WIDTHS = (8, 16, 32, 64)  # of a panel
ORDERS = (160, 352, 512, 1024)
# Elements of an operand of the largest batch.
LARGEST = 1 << 26
LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
# cublasOperation_t of the left and of the right factor.
TRANSPOSITIONS = {"N N": (0, 0), "N C": (0, 2), "C N": (2, 0)}


def shapes() -> list[tuple[int, int, int]]:
  """The trailing updates, and the products of reflectors, in the middle of a factorisation.

  For eigh, also the last join of divide and conquer, and a panel's products with all vectors.
  """
  found = []
  for n in ORDERS:
    found += [(n // 2, n, n // 2), (WIDTHS[-2], n, n // 2)]
    for width in WIDTHS:
      left = n // 2
      found += [(left, left, width), (width, left, left), (left, width, width)]
  return found


def bits(
    shape: tuple[int, int, int], dtype: np.dtype, transposed: tuple[int, int], batches: list[int]
) -> dict[int, bool]:
  """For each batch, whether its products have the bits of those in the first batch."""
  import cupy  # type: ignore[import-not-found]
  from cupy_backends.cuda.libs import cublas  # type: ignore[import-not-found]

  rows, cols, inner = shape
  product = getattr(cublas, f"{LETTERS[dtype.name]}gemmStridedBatched")
  handle = cupy.cuda.device.get_cublas_handle()
  rng = cupy.random.default_rng(0)
  most = batches[0]

  def random(*sizes: int) -> Any:
    x = rng.standard_normal(sizes, dtype=np.finfo(dtype).dtype)
    return (x + 1j * rng.standard_normal(sizes, dtype=x.dtype)).astype(dtype) if (
        dtype.kind == "c") else x

  # Column-major matrices: the last axis is the leading one.
  a = random(most, *((inner, rows) if transposed[0] == 0 else (rows, inner)))
  b = random(most, *((cols, inner) if transposed[1] == 0 else (inner, cols)))
  c = random(most, cols, rows)
  minus, one = np.array(-1, dtype), np.array(1, dtype)
  found, expected = {}, None
  for batch in batches:
    result = c.copy()
    product(
        handle, *transposed, rows, cols, inner, minus.ctypes.data, a.data.ptr, a.shape[-1],
        a[0].size, b.data.ptr, b.shape[-1], b[0].size, one.ctypes.data, result.data.ptr, rows,
        c[0].size, batch)
    if expected is None:
      expected = result
      reference = c[-1].T - _op(a[-1], transposed[0]) @ _op(b[-1], transposed[1])
      scale = inner * np.finfo(dtype).eps * float(cupy.abs(reference).max())
      assert float(cupy.abs(result[-1].T - reference).max()) <= 50 * scale
    found[batch] = bool((result[:batch] == expected[:batch]).all())
  return found


def _op(x: Any, transposed: int) -> Any:
  """The factor that cuBLAS reads in the memory of a row-major matrix."""
  return x.T if transposed == 0 else x.conj()


def main() -> None:
  parser = argparse.ArgumentParser(
      description="Finds the products of cuBLAS whose bits do not depend on the batch.")
  parser.add_argument("--dtypes", nargs="+", choices=LETTERS, default=list(LETTERS))
  parser.add_argument("--output", type=pathlib.Path, required=True, help="a JSON file")
  args = parser.parse_args()
  rows: list[dict[str, Any]] = []
  for name in args.dtypes:
    differing = 0
    for shape in shapes():
      for transposition, transposed in TRANSPOSITIONS.items():
        largest = max(shape[0] * shape[1], shape[0] * shape[2], shape[1] * shape[2])
        batches = [x for x in BATCHES if x * largest <= LARGEST]
        same = bits(shape, np.dtype(name), transposed, batches)
        differ = [batch for batch, is_same in same.items() if not is_same]
        differing += bool(differ)
        rows.append({
            "dtype": name, "shape": shape, "transposed": transposition, "batches": batches,
            "differ": differ})
        args.output.write_text(json.dumps(rows))
    count = sum(row["dtype"] == name for row in rows)
    print(f"{name}: {differing} of {count} products depend on the batch", flush=True)
  for row in rows:
    if row["differ"]:
      print(f"{row['dtype']} {row['shape']} {row['transposed']}: batches {row['differ']} of "
            f"{row['batches']} differ")


if __name__ == "__main__":
  main()
