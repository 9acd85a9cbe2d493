// Substitution with given factors, shared by every handler that solves.
#pragma once

#include <string>

#include "kernels/cuda/job.h"

namespace linalg::cuda {

// A batch of systems; one `a` of rank 2 serves them all.
template <class T>
struct Systems {
  const T* a;
  const T* b;
  T* x;
  int64_t batch, n, rows, cols;
  int64_t a_stride;  // from one system's matrix to the next: 0 if they share it

  int64_t size() const { return rows * cols; }
};

template <class T>
Systems<T> ReadSystems(const ffi::AnyBuffer& a, const ffi::AnyBuffer& b,
                       ffi::Result<ffi::AnyBuffer>& x, bool left_side) {
  const BatchShape matrix = SplitSquareBatch(a, "a");
  const BatchShape rhs = SplitBatch(b, 2, "b");
  const int64_t n = matrix.rows;
  if ((left_side ? rhs.rows : rhs.cols) != n) {
    throw BadArgument("b", std::string("have as many ") + (left_side ? "rows" : "columns") +
                               " as the triangular matrix");
  }
  const bool shared = a.dimensions().size() == 2;
  if (!shared && matrix.batch != rhs.batch) throw BadArgument("b", "have the batch size of a");
  return {Elements<T>(a, matrix.batch * n * n, "a"),
          Elements<T>(b, rhs.batch * rhs.size(), "b"),
          Elements<T>(x, rhs.batch * rhs.size(), "x"),
          rhs.batch,
          n,
          rhs.rows,
          rhs.cols,
          shared ? 0 : n * n};
}

// What the row-major `a` holds, and what is solved with it.
struct Substitution {
  enum class With { kTriangle, kCholesky, kLu };

  With with = With::kTriangle;
  bool lower = false;
  bool transpose = false;
  bool conjugate = false;
  bool unit_diagonal = false;
  bool left_side = true;
  // Of LU factors: their exchanges, `pivots_stride` apart from one system's to the next.
  const int32_t* pivots = nullptr;
  int64_t pivots_stride = 0;
  // Factors beyond kTeamTriangular as the vendor's LU leaves them.
  bool column_major = false;
};

// So many right-hand sides of one matrix a team takes at a time.
inline constexpr int64_t kColumnsOfTeam = 64;

template <class T>
void Substitute(cudaStream_t stream, Scratch& scratch, const Substitution& substitution,
                const Systems<T>& systems);

}  // namespace linalg::cuda
