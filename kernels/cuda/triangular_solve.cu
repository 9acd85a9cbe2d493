// Substitution: triangular systems, and those of given Cholesky and LU factors.
//
// Small matrices stay in shared memory, one per thread with all of its right-hand sides, or one per
// team with up to kColumnsOfTeam of them. Larger ones go to cuBLAS's trsm, in place in the output:
// to it a row-major matrix is its transpose, so the triangle and the side flip and the operation
// stays.
#include "kernels/cuda/substitution.h"

#include "kernels/cuda/handles.h"
#include "kernels/cuda/lu_factors.h"
#include "kernels/cuda/passes.h"
#include "kernels/handlers.h"
#include "kernels/small/solve.h"
#include "kernels/team/lu.h"
#include "kernels/team/triangular.h"

namespace linalg::cuda {
namespace {

using With = Substitution::With;

template <class E>
struct SmallSubstitution {
  using V = RealElement<E>;
  Substitution of;
  const E* a;
  const E* b;
  E* x;
  int n, rows, cols;
  Staged matrix, rhs, steps;

  __device__ void Load(int64_t first, int count, char* memory, int64_t bytes) const {
    matrix.Load(a, first, count, memory, bytes);
    rhs.Load(b, first, count, memory, bytes);
    if (of.pivots != nullptr) steps.Load(of.pivots, first, count, memory, bytes);
  }
  __device__ void Run(char* slice) const {
    E* const factors = At<E>(slice, matrix.offset);
    E* const solution = At<E>(slice, rhs.offset);
    if (of.with == With::kTriangle) {
      small::TriangularSolve(
          Triangle{of.lower, of.transpose, of.conjugate, of.unit_diagonal, of.left_side}, n,
          factors, rows, cols, solution);
    } else if (of.with == With::kCholesky) {
      small::CholeskySolve(n, factors, of.lower, cols, solution);
    } else {
      small::LuSolve(n, factors, At<int32_t>(slice, steps.offset), false, of.transpose,
                     of.conjugate, cols, solution);
    }
  }
  __device__ void Store(int64_t first, int count, char* memory, int64_t bytes) const {
    rhs.Store(x, first, count, memory, bytes);
  }
};

// A team takes a matrix and a part of its right-hand sides.
template <class E>
struct TeamSubstitution {
  static constexpr int kMostThreads = kBlockThreads;
  Substitution of;
  const E* a;
  const E* b;
  E* x;
  int n, rows, cols;
  int64_t a_stride;
  int ld, ld_rhs, rhs, steps;
  int most, parts;  // right-hand sides at a time, and how many times

  __device__ void Run(const Team& team, int64_t index, char* slice) const {
    const int64_t i = index / parts;
    const int sides = of.left_side ? cols : rows;
    const int first = static_cast<int>(index % parts) * most;
    const int count = sides - first < most ? sides - first : most;
    E* const factors = At<E>(slice, 0);
    E* const solution = At<E>(slice, rhs);
    LoadMatrix(team, a + i * a_stride, n, n, factors, ld);
    const int64_t offset = i * rows * cols;
    ForEachSide(team, first, count, [&](int row, int side, int64_t place) {
      solution[row * ld_rhs + side] = LoadGlobal(b + offset + place);
    });
    if (of.with == With::kTriangle) {
      const bool transpose = of.transpose == of.left_side;
      team::ApplyOperation(team, n, factors, ld, transpose, of.conjugate);
      team::Substitute(team, n, factors, ld, of.lower != transpose, of.unit_diagonal, count,
                       solution, ld_rhs);
    } else if (of.with == With::kCholesky) {
      if (!of.lower) team::ApplyOperation(team, n, factors, ld, true, true);
      team::Substitute(team, n, factors, ld, true, false, count, solution, ld_rhs);
      team::ApplyOperation(team, n, factors, ld, true, true);
      team::Substitute(team, n, factors, ld, false, false, count, solution, ld_rhs);
    } else {
      int32_t* const pivots = At<int32_t>(slice, steps);
      team.Phase([&](int thread) {
        for (int k = thread; k < n; k += team.size())
          pivots[k] = of.pivots[i * of.pivots_stride + k];
      });
      team::ApplyOperation(team, n, factors, ld, of.transpose, of.conjugate);
      if (!of.transpose) team::ApplyPivots(team, n, pivots, false, count, solution, ld_rhs);
      team::Substitute(team, n, factors, ld, true, !of.transpose, count, solution, ld_rhs);
      team::Substitute(team, n, factors, ld, false, of.transpose, count, solution, ld_rhs);
      if (of.transpose) team::ApplyPivots(team, n, pivots, true, count, solution, ld_rhs);
    }
    ForEachSide(team, first, count, [&](int row, int side, int64_t place) {
      StoreGlobal<E>(solution[row * ld_rhs + side], x + offset + place);
    });
  }

 private:
  // body(row, side, place) for the elements of a part of the right-hand sides, in the order in
  // which they lie in memory.
  template <class Body>
  __device__ void ForEachSide(const Team& team, int first, int count, Body&& body) const {
    team.Phase([&](int thread) {
      for (int e = thread; e < n * count; e += team.size()) {
        if (of.left_side) {
          const int row = e / count, side = e % count;
          body(row, side, static_cast<int64_t>(row) * cols + first + side);
        } else {
          const int side = e / n, row = e % n;
          body(row, side, static_cast<int64_t>(first + side) * n + row);
        }
      }
    });
  }
};

template <class E>
struct ConjugateAll {
  E* x;

  __device__ void operator()(int64_t i) const { StoreGlobal<E>(Conj(LoadGlobal(x + i)), x + i); }
};

// The rows of b in another order: x[i] = b[permutation[i]], or the other way round.
template <class E>
struct PermuteRows {
  const E* b;
  E* x;
  const int32_t* permutation;
  int64_t stride;  // from one system's permutation to the next
  int64_t n, cols;
  bool back;

  __device__ void operator()(int64_t place) const {
    const int64_t matrix = place / (n * cols), i = place / cols % n, j = place % cols;
    const int64_t other = (matrix * n + permutation[matrix * stride + i]) * cols + j;
    if (back) {
      StoreGlobal<E>(LoadGlobal(b + place), x + other);
    } else {
      StoreGlobal<E>(LoadGlobal(b + other), x + place);
    }
  }
};

// Solves with one triangle of each matrix, in place in x.
template <class T>
class VendorTriangles {
 public:
  VendorTriangles(cudaStream_t stream, Scratch& scratch, const Systems<T>& systems)
      : stream_(stream), lent_(stream), systems_(systems) {
    if (UseBatchedRoutine(systems.batch, systems.n)) {
      a_ =
          MakePointers(stream, scratch, const_cast<T*>(systems.a), systems.a_stride, systems.batch);
      x_ = MakePointers(stream, scratch, systems.x, systems.size(), systems.batch);
    }
  }

  void Solve(bool lower, bool transpose, bool conjugate, bool unit_diagonal,
             bool left_side = true) {
    conjugate = conjugate && kIsComplex<T>;
    // What BLAS lacks, a conjugate without transposition, is the solve of conj(b).
    const bool conjugate_b = conjugate && !transpose;
    const auto side = left_side ? vendor::kRight : vendor::kLeft;
    const auto uplo = lower ? vendor::kUpper : vendor::kLower;
    const auto op = !transpose ? vendor::kPlain : conjugate ? vendor::kAdjoint : vendor::kTranspose;
    const auto diagonal = unit_diagonal ? vendor::kUnit : vendor::kNonUnit;
    const int rows = ToInt(systems_.rows), cols = ToInt(systems_.cols), n = ToInt(systems_.n);
    if (conjugate_b) Conjugate();
    if (a_ != nullptr) {
      vendor::TrsmBatched<T>(lent_.get(), side, uplo, op, diagonal, cols, rows, a_, n, x_, cols,
                             ToInt(systems_.batch));
    } else {
      for (int64_t i = 0; i < systems_.batch; ++i) {
        vendor::Trsm(lent_.get(), side, uplo, op, diagonal, cols, rows,
                     systems_.a + i * systems_.a_stride, n, systems_.x + i * systems_.size(), cols);
      }
    }
    if (conjugate_b) Conjugate();
  }

 private:
  void Conjugate() {
    using E = Element<T>;
    if constexpr (kIsComplex<T>) {
      ForEach(stream_, systems_.batch * systems_.size(), ConjugateAll<E>{AsElements(systems_.x)});
    }
  }

  cudaStream_t stream_;
  LentBlas lent_;
  const Systems<T>& systems_;
  T** a_ = nullptr;
  T** x_ = nullptr;
};

template <class T>
void VendorSubstitute(cudaStream_t stream, Scratch& scratch, const Substitution& of,
                      const Systems<T>& systems) {
  using E = Element<T>;
  const int64_t count = systems.batch * systems.size();
  VendorTriangles<T> triangles(stream, scratch, systems);
  if (of.with == With::kTriangle) {
    Copy(stream, count, systems.b, systems.x);
    triangles.Solve(of.lower, of.transpose, of.conjugate, of.unit_diagonal, of.left_side);
    return;
  }
  if (of.with == With::kCholesky) {
    // a = L Lᴴ with a lower factor, a = Uᴴ U with an upper one.
    Copy(stream, count, systems.b, systems.x);
    triangles.Solve(of.lower, !of.lower, !of.lower, false);
    triangles.Solve(of.lower, of.lower, of.lower, false);
    return;
  }
  const int n = ToInt(systems.n);
  const int64_t permutations = of.pivots_stride == 0 ? 1 : systems.batch;
  int32_t* const permutation = scratch.Take<int32_t>(permutations * n);
  PivotsToPermutation(stream, permutations, n, n, of.pivots, permutation);
  const int64_t stride = of.pivots_stride == 0 ? 0 : n;
  // The column-major factors are row-major ones of the transpose.
  const bool transpose = of.transpose != of.column_major;
  if (!of.transpose) {
    const T* b = systems.b;
    if (b == systems.x) {  // in place
      T* const copy = scratch.Take<T>(count);
      Copy(stream, count, b, copy);
      b = copy;
    }
    ForEach(stream, count,
            PermuteRows<E>{AsElements(b), AsElements(systems.x), permutation, stride, n,
                           systems.cols, false});
    triangles.Solve(!of.column_major, transpose, of.conjugate, true);
    triangles.Solve(of.column_major, transpose, of.conjugate, false);
    return;
  }
  Copy(stream, count, systems.b, systems.x);
  triangles.Solve(of.column_major, transpose, of.conjugate, false);
  triangles.Solve(!of.column_major, transpose, of.conjugate, true);
  T* const solved = scratch.Take<T>(count);
  Copy(stream, count, systems.x, solved);
  ForEach(stream, count,
          PermuteRows<E>{AsElements(static_cast<const T*>(solved)), AsElements(systems.x),
                         permutation, stride, n, systems.cols, true});
}

ffi::Error TriangularSolve(cudaStream_t stream, ffi::ScratchAllocator allocator, ffi::AnyBuffer a,
                           ffi::AnyBuffer b, ffi::Result<ffi::AnyBuffer> x, bool left_side,
                           bool lower, bool transpose_a, bool conjugate_a, bool unit_diagonal) {
  return Guard("linalg_triangular_solve", [&] {
    Scratch scratch(allocator);
    const Substitution substitution{.with = With::kTriangle,
                                    .lower = lower,
                                    .transpose = transpose_a,
                                    .conjugate = conjugate_a,
                                    .unit_diagonal = unit_diagonal,
                                    .left_side = left_side};
    DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
      Substitute(stream, scratch, substitution, ReadSystems<T>(a, b, x, left_side));
    });
  });
}

}  // namespace

template <class T>
void Substitute(cudaStream_t stream, Scratch& scratch, const Substitution& of,
                const Systems<T>& systems) {
  using E = Element<T>;
  const int64_t n = systems.n, rows = systems.rows, cols = systems.cols;
  if (systems.batch * systems.size() == 0) return;
  const int64_t sides = of.left_side ? cols : rows, most = std::min(sides, kColumnsOfTeam);
  const E* const a = AsElements(systems.a);
  const E* const b = AsElements(systems.b);
  E* const x = AsElements(systems.x);
  Slice slice(sizeof(Real<T>));
  if (!of.column_major &&
      (n * n + systems.size()) * static_cast<int64_t>(sizeof(T)) <= kAloneBytes) {
    const Staged matrix(n * n, systems.a_stride, slice.Take<E>(n * n));
    const Staged rhs(systems.size(), systems.size(), slice.Take<E>(systems.size()));
    const Staged steps(n, of.pivots_stride, slice.Take<int32_t>(n));
    const SmallSubstitution<E> job{of,          a,           b,      x,   ToInt(n),
                                   ToInt(rows), ToInt(cols), matrix, rhs, steps};
    return LaunchAlone(stream, job, systems.batch, slice);
  }
  if (!of.column_major && n <= kTeamTriangular) {
    const int ld = ToInt(n | 1), ld_rhs = ToInt(most | 1), parts = ToInt((sides + most - 1) / most);
    slice.Take<E>(n * ld);
    const int rhs = slice.Take<E>(n * ld_rhs), steps = slice.Take<int32_t>(n);
    if (slice.bytes() <= SharedBytes()) {
      const TeamSubstitution<E> job{
          of, a,      b,   x,     ToInt(n),    ToInt(rows), ToInt(cols), systems.a_stride,
          ld, ld_rhs, rhs, steps, ToInt(most), parts};
      return LaunchTeams(stream, job, systems.batch * parts, TeamSize(n), slice);
    }
  }
  VendorSubstitute(stream, scratch, of, systems);
}

template void Substitute(cudaStream_t, Scratch&, const Substitution&, const Systems<float>&);
template void Substitute(cudaStream_t, Scratch&, const Substitution&, const Systems<double>&);
template void Substitute(cudaStream_t, Scratch&, const Substitution&,
                         const Systems<std::complex<float>>&);
template void Substitute(cudaStream_t, Scratch&, const Substitution&,
                         const Systems<std::complex<double>>&);

}  // namespace linalg::cuda

LINALG_HANDLER(linalg_triangular_solve, linalg::cuda::TriangularSolve);
