// Products of small matrices, c = op(a) op(b).
//
// A block loads the operands of several products to shared memory, transposed as needed. Each
// thread computes tiles of products in registers, and the block stores the products together. So
// global memory is read and written once, in whole lines. Operands that do not fit in shared memory
// are read from global memory. linalg/_core/tuning.py leaves matrices of more than a few rows and
// columns to XLA.
#include "kernels/cuda/launch.h"
#include "kernels/handlers.h"
#include "kernels/matmul_shape.h"

namespace linalg::cuda {
namespace {

template <class E>
struct Operand {
  const E* data;
  int64_t stride;  // from one product's to the next: 0 if they share it
  int rows, cols;  // as it lies
  bool transpose, conjugate;
};

// Each element is one chain of fused products in the order of the depth.
template <class E>
struct Products {
  int64_t batch;
  int m, n, depth;
  Operand<E> a, b;
  E* c;

  // Conjugating b is the same as conjugating a instead, and the product.
  __device__ __forceinline__ E Left(E x) const { return a.conjugate != b.conjugate ? Conj(x) : x; }
  __device__ __forceinline__ E Finished(E sum) const { return b.conjugate ? Conj(sum) : sum; }
};

// One operand of every product that a block computes. In shared memory it is transposed already,
// and its rows are `ld` apart.
template <class E>
struct SharedOperand {
  SharedOperand(const Operand<E>& operand, int rows, int ld, SharedLayout& layout)
      : offset(layout.Take<E>(static_cast<int64_t>(rows) * ld)),
        ld(ld),
        cols(operand.cols),
        size(operand.rows * operand.cols),
        row_step(operand.transpose ? 1 : ld),
        col_step(operand.transpose ? ld : 1),
        by_size(size),
        by_cols(cols) {}

  Offset<E> offset;
  int ld, cols, size, row_step, col_step;
  Divider by_size, by_cols;

  __device__ __forceinline__ void Load(const Operand<E>& operand, const Block& block) const {
    for (unsigned e = threadIdx.x; e < static_cast<unsigned>(block.count * size); e += blockDim.x) {
      const unsigned matrix = by_size(e), i = e - matrix * size, row = by_cols(i),
                     col = i - row * cols;
      CopyGlobal(operand.data + (block.first + matrix) * operand.stride + i,
                 offset.In(block.Slice(matrix)) + row * row_step + col * col_step);
    }
  }
};

// Each thread computes kRows by kCols elements of a product. A tile that would leave the matrix
// starts further up or to the left, and stores only its own elements.
template <class E>
struct TiledProducts {
  static constexpr int kRows = 4, kCols = sizeof(E) > 8 ? 2 : 4;

  TiledProducts(SharedLayout& layout, const Products<E>& products)
      : products(products),
        a(products.a, products.m, products.depth | 1, layout),
        b(products.b, products.depth, std::max(products.n, kCols) | 1, layout),
        c(int64_t{products.m} * products.n, layout.Take<E>(int64_t{products.m} * products.n)),
        col_tiles((products.n + kCols - 1) / kCols),
        tiles((products.m + kRows - 1) / kRows * col_tiles),
        by_tiles(tiles),
        by_col_tiles(col_tiles),
        by_depth(products.depth) {}

  Products<E> products;
  SharedOperand<E> a, b;
  SharedArray<E> c;
  int col_tiles, tiles;
  Divider by_tiles, by_col_tiles, by_depth;

  __device__ void Load(const Block& block) const {
    a.Load(products.a, block);
    b.Load(products.b, block);
    if (products.n < kCols) ClearRest(block);
  }

  __device__ void Run(const Block& block) const {
    for (unsigned k = threadIdx.x; k < static_cast<unsigned>(block.count * tiles);
         k += blockDim.x) {
      const unsigned matrix = by_tiles(k), tile = k - matrix * tiles, row = by_col_tiles(tile);
      Tile(block.Slice(matrix), row * kRows, (tile - row * col_tiles) * kCols);
    }
  }

  __device__ void Store(const Block& block) const { c.Store(products.c, block); }

 private:
  // Clears the columns that a tile takes beyond those of a narrow b.
  __device__ __forceinline__ void ClearRest(const Block& block) const {
    const auto rows = static_cast<unsigned>(block.count * products.depth);
    for (unsigned e = threadIdx.x; e < rows; e += blockDim.x) {
      const unsigned matrix = by_depth(e), row = e - matrix * products.depth;
      E* const x = b.offset.In(block.Slice(matrix)) + row * b.ld;
      for (int j = products.n; j < kCols; ++j) x[j] = E{};
    }
  }

  __device__ __forceinline__ void Tile(char* slice, int own_row, int own_col) const {
    const int m = products.m, n = products.n;
    const int first_row = std::max(std::min(own_row, m - kRows), 0);
    const int first_col = std::max(std::min(own_col, n - kCols), 0);
    const E* left[kRows];
    for (int i = 0; i < kRows; ++i) {
      left[i] = a.offset.In(slice) + std::min(first_row + i, m - 1) * a.ld;
    }
    const E* right = b.offset.In(slice) + first_col;
    E sum[kRows][kCols] = {};
    for (int k = 0; k < products.depth; ++k, right += b.ld) {
      for (int i = 0; i < kRows; ++i) {
        const E x = -products.Left(left[i][k]);
        for (int j = 0; j < kCols; ++j) sum[i][j] = NegMulAdd(x, right[j], sum[i][j]);
      }
    }
    E* const target = c.In(slice) + first_row * n + first_col;
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kCols; ++j) {
        const int row = first_row + i, col = first_col + j;
        if (row >= own_row && row < m && col >= own_col && col < n) {
          target[i * n + j] = products.Finished(sum[i][j]);
        }
      }
    }
  }
};

// One thread computes each element, from global memory.
template <class E>
struct ProductElement {
  Products<E> products;
  MatrixElements elements;

  __device__ void operator()(int64_t place) const {
    const auto [matrix, i, j] = elements(place);
    const auto at = [&, matrix = matrix](const Operand<E>& x, int64_t row, int64_t col) {
      return LoadGlobal(x.data + matrix * x.stride +
                        (x.transpose ? col * x.cols + row : row * x.cols + col));
    };
    E sum{};
    for (int k = 0; k < products.depth; ++k) {
      sum = NegMulAdd(-products.Left(at(products.a, i, k)), at(products.b, k, j), sum);
    }
    StoreGlobal<E>(products.Finished(sum), products.c + place);
  }
};

void Multiply(cudaStream_t stream, const ffi::AnyBuffer& a, const ffi::AnyBuffer& b, Result& c,
              bool transpose_a, bool transpose_b, bool conjugate_a, bool conjugate_b) {
  const MatmulShape shape = ReadMatmulShape(a, b, *c, transpose_a, transpose_b);
  DispatchDtype(a.element_type(), [&]<class T>(std::type_identity<T>) {
    using E = Element<T>;
    const auto operand = [](const ffi::AnyBuffer& buffer, const BatchShape& shape, int64_t stride,
                            bool transpose, bool conjugate, std::string_view name) -> Operand<E> {
      const T* const data = Elements<T>(buffer, shape.batch, {shape.rows, shape.cols}, name);
      return {.data = AsElements(data),
              .stride = stride,
              .rows = ToInt(shape.rows),
              .cols = ToInt(shape.cols),
              .transpose = transpose,
              .conjugate = kComplexElement<E> && conjugate};
    };
    const Products<E> products{
        .batch = shape.c.batch,
        .m = ToInt(shape.m),
        .n = ToInt(shape.n),
        .depth = ToInt(shape.depth),
        .a = operand(a, shape.a, shape.a_stride, transpose_a, conjugate_a, "a"),
        .b = operand(b, shape.b, shape.b_stride, transpose_b, conjugate_b, "b"),
        .c = AsElements(Elements<T>(c, shape.c.batch, {shape.m, shape.n}, "c"))};
    const int64_t elements = products.batch * shape.m * shape.n;
    if (elements == 0) return;
    constexpr int64_t kUnit = sizeof(RealElement<E>);
    // This keeps sizes far below the limit of int before any becomes one.
    const int64_t bytes = (shape.a.size() + shape.b.size() + shape.m * shape.n) * sizeof(T);
    const auto fits = [&] {
      return bytes <= SharedBytes() && FitsInShared<TiledProducts<E>>(kUnit, products);
    };
    const auto in_tiles = [&] {
      SharedLayout layout(kUnit);
      const TiledProducts<E> job(layout, products);
      LaunchThreads(stream, job, products.batch, layout, job.tiles);
    };
    LaunchOnPath(
        fits() ? GpuPath::kTeam : GpuPath::kThread, On{GpuPath::kTeam, in_tiles},
        On{GpuPath::kThread, [&] {
             ForEach(stream, elements,
                     ProductElement<E>{.products = products, .elements = {products.m, products.n}});
           }});
  });
}

void Matmul(cudaStream_t stream, ffi::AnyBuffer a, ffi::AnyBuffer b, Result c, bool conjugate_a,
            bool conjugate_b) {
  Multiply(stream, a, b, c, false, false, conjugate_a, conjugate_b);
}

void MatmulTransposeA(cudaStream_t stream, ffi::AnyBuffer a, ffi::AnyBuffer b, Result c,
                      bool conjugate_a, bool conjugate_b) {
  Multiply(stream, a, b, c, true, false, conjugate_a, conjugate_b);
}

void MatmulTransposeB(cudaStream_t stream, ffi::AnyBuffer a, ffi::AnyBuffer b, Result c,
                      bool conjugate_a, bool conjugate_b) {
  Multiply(stream, a, b, c, false, true, conjugate_a, conjugate_b);
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_matmul, linalg::cuda::Matmul, LINALG_CAPTURED);
LINALG_HANDLER(linalg_matmul_transpose_a, linalg::cuda::MatmulTransposeA, LINALG_CAPTURED);
LINALG_HANDLER(linalg_matmul_transpose_b, linalg::cuda::MatmulTransposeB, LINALG_CAPTURED);
