// Banded systems, banded Cholesky factors, and solves with them: one thread per matrix, whatever
// its size. Neighbouring threads read neighbouring words.
#include "kernels/small/banded.h"

#include "kernels/cuda/launch.h"
#include "kernels/handlers.h"
#include "kernels/systems.h"

namespace linalg::cuda {
namespace {

// Lays out the rows for elimination, element by element.
template <class E>
struct LayBandedRows {
  BandedSystems<E> systems;
  small::BandedRows rows;
  E* target;

  __device__ void operator()(int64_t place) const {
    const int64_t batch = systems.batch, width = systems.Width();
    const int64_t matrix = place % batch, slot = place / batch % width;
    const int row = static_cast<int>(place / batch / width);
    const int64_t col = rows.First(row) + slot, diagonal = row - col + systems.above;
    E x{};
    if (col <= rows.Last(row)) {
      x = LoadGlobal(systems.Diagonal(diagonal) + matrix * systems.Stride(diagonal) + col);
    }
    StoreGlobal<E>(x, target + place);
  }
};

template <class E>
struct SolveBandedSystems {
  BandedSystems<E> systems;
  small::BandedRows rows;
  E* matrices;
  E* x;

  __device__ void operator()(int64_t i) const {
    const int64_t batch = systems.batch;
    systems.info[i] = static_cast<int32_t>(small::SolveBanded<E, StridedVector<E>>(
        rows, {matrices + i, batch}, static_cast<int>(systems.cols), {x + i, batch}));
  }
};

void BandedSolve(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer upper,
                 ffi::AnyBuffer lower, ffi::AnyBuffer b, Result x, Result info) {
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    const BandedSystems<T> given = ReadBandedSystems<T>(upper, lower, b, x, info);
    using E = Element<T>;
    const BandedSystems<E> systems{.batch = given.batch,
                                   .n = given.n,
                                   .below = given.below,
                                   .above = given.above,
                                   .cols = given.cols,
                                   .upper = AsElements(given.upper),
                                   .lower = AsElements(given.lower),
                                   .b = AsElements(given.b),
                                   .x = AsElements(given.x),
                                   .info = given.info};
    const int64_t batch = given.batch, n = given.n, rhs_size = n * given.cols;
    if (batch == 0) return;
    ToInt(rhs_size);
    ToInt(n + given.Width());  // past the last column of any row
    const small::BandedRows rows{ToInt(n), ToInt(given.below), ToInt(given.above)};
    T* const matrices = scratch.Take<T>(batch * n * given.Width());
    T* const work = scratch.Take<T>(batch * rhs_size);
    ForEach(stream, batch * n * given.Width(),
            LayBandedRows<E>{.systems = systems, .rows = rows, .target = AsElements(matrices)});
    Transpose(stream, 1, batch, rhs_size, given.b, 0, work, 0);
    ForEach(stream, batch,
            SolveBandedSystems<E>{.systems = systems,
                                  .rows = rows,
                                  .matrices = AsElements(matrices),
                                  .x = AsElements(work)});
    Transpose(stream, 1, rhs_size, batch, static_cast<const T*>(work), 0, given.x, 0);
  });
}

// The columns of lower triangles from the diagonal down, 0 below the last row.
template <class E>
struct LayBandedColumns {
  BandedTriangles shape;
  const E* source;
  E* target;

  __device__ void operator()(int64_t place) const {
    const int64_t matrix = place % shape.batch, diagonal = place / shape.batch % shape.width;
    const int64_t col = place / shape.batch / shape.width;
    E x{};
    if (col < shape.Count(diagonal)) {
      x = LoadGlobal(source + matrix * shape.size() + shape.Begin(diagonal) + col);
    }
    StoreGlobal<E>(shape.lower ? x : Conj(x), target + place);
  }
};

template <class E>
struct FactorBandedColumns {
  BandedTriangles shape;
  E* columns;
  int32_t* info;

  __device__ void operator()(int64_t i) const {
    info[i] = static_cast<int32_t>(small::BandedCholesky<E, StridedVector<E>>(
        static_cast<int>(shape.n), static_cast<int>(shape.width), {columns + i, shape.batch}));
  }
};

// The factors from their columns.
template <class E>
struct StoreBandedFactors {
  BandedTriangles shape;
  const E* columns;
  const int32_t* info;
  E* target;

  __device__ void operator()(int64_t place) const {
    const int64_t matrix = place / shape.size(), row = place % shape.size() / shape.n;
    const int64_t diagonal = shape.lower ? row : shape.width - 1 - row;
    const int64_t col = place % shape.n - (shape.lower ? 0 : shape.Corner(diagonal));
    E x{};
    if (col >= 0 && col < shape.Count(diagonal)) {
      x = LoadGlobal(columns + (col * shape.width + diagonal) * shape.batch + matrix);
      if (!shape.lower) x = Conj(x);
    }
    StoreGlobal<E>(info[matrix] != 0 ? NaN<E>() : x, target + place);
  }
};

void CholeskyBanded(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer ab, Result factor,
                    Result info, bool lower) {
  const BandedTriangles shape = ReadBandedTriangles(ab, lower, "ab");
  const int64_t batch = shape.batch, n = shape.n, width = shape.width;
  DispatchDtype(ab.element_type(), [&]<class T>(std::type_identity<T>) {
    using E = Element<T>;
    const T* const source = Elements<T>(ab, batch, {width, n}, "ab");
    T* const target = Elements<T>(factor, batch, {width, n}, "the factor");
    int32_t* const failed = Elements<int32_t>(info, batch, {}, "info");
    if (batch == 0) return;
    ToInt(n);
    ToInt(width);
    E* const columns = AsElements(scratch.Take<T>(batch * shape.size()));
    ForEach(stream, batch * shape.size(),
            LayBandedColumns<E>{.shape = shape, .source = AsElements(source), .target = columns});
    ForEach(stream, batch,
            FactorBandedColumns<E>{.shape = shape, .columns = columns, .info = failed});
    ForEach(stream, batch * shape.size(),
            StoreBandedFactors<E>{
                .shape = shape, .columns = columns, .info = failed, .target = AsElements(target)});
  });
}

template <class E>
struct SolveBandedFactored {
  BandedTriangles shape;
  int cols;
  E* columns;
  E* x;

  __device__ void operator()(int64_t i) const {
    small::SolveBandedCholesky<E, StridedVector<E>>(
        static_cast<int>(shape.n), static_cast<int>(shape.width), {columns + i, shape.batch}, cols,
        {x + i, shape.batch});
  }
};

void CholeskyBandedSolve(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer factor,
                         ffi::AnyBuffer b, Result x, bool lower) {
  const BandedTriangles shape = ReadBandedTriangles(factor, lower, "the factor");
  const int64_t batch = shape.batch, n = shape.n, width = shape.width;
  const int64_t cols = SplitBatch(b, 2, "b").cols;
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    using E = Element<T>;
    const T* const source = Elements<T>(factor, batch, {width, n}, "the factor");
    const T* const rhs = Elements<T>(b, batch, {n, cols}, "b");
    T* const target = Elements<T>(x, batch, {n, cols}, "x");
    if (batch == 0) return;
    ToInt(n * cols);
    ToInt(width);
    E* const columns = AsElements(scratch.Take<T>(batch * shape.size()));
    T* const work = scratch.Take<T>(batch * n * cols);
    ForEach(stream, batch * shape.size(),
            LayBandedColumns<E>{.shape = shape, .source = AsElements(source), .target = columns});
    Transpose(stream, 1, batch, n * cols, rhs, 0, work, 0);
    ForEach(stream, batch,
            SolveBandedFactored<E>{
                .shape = shape, .cols = ToInt(cols), .columns = columns, .x = AsElements(work)});
    Transpose(stream, 1, n * cols, batch, static_cast<const T*>(work), 0, target, 0);
  });
}

}  // namespace
}  // namespace linalg::cuda

LINALG_HANDLER(linalg_banded_solve, linalg::cuda::BandedSolve);
LINALG_HANDLER(linalg_cholesky_banded, linalg::cuda::CholeskyBanded);
LINALG_HANDLER(linalg_cholesky_banded_solve, linalg::cuda::CholeskyBandedSolve);
