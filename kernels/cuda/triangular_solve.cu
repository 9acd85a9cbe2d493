// Substitution: triangular systems, and those of given Cholesky and LU factors.
//
// Small matrices stay in shared memory. One thread takes a matrix with all of its right-hand sides,
// or a team takes up to kColumnsOfTeam of them. Larger matrices take cuBLAS's trsm, in place in the
// output. It reads a row-major matrix as its transpose, so the triangle and the side flip and the
// operation stays.
#include "kernels/cuda/substitution.h"
#include "kernels/cuda/substitution_path.h"

#include "kernels/cuda/handles.h"
#include "kernels/cuda/lu_factors.h"
#include "kernels/cuda/passes.h"
#include "kernels/handlers.h"
#include "kernels/small/solve.h"
#include "kernels/team/solve.h"

namespace linalg::cuda {
namespace {

using With = GivenFactors::With;

// A batch of systems in a kernel's integers.
template <class E>
struct SubstitutionProblem {
  GivenFactors given;
  int n, rows, cols;
  const E* a;
  int64_t a_stride;
  const E* b;
  E* x;

  __device__ int Nrhs() const { return given.triangle.left_side ? cols : rows; }
};

template <class E>
struct SmallSubstitution {
  using V = RealElement<E>;
  SubstitutionProblem<E> problem;
  SharedArray<E> matrix, rhs;
  SharedArray<int32_t> pivots;

  __device__ void Load(const Block& block) const {
    matrix.Load(problem.a, block);
    rhs.Load(problem.b, block);
    const GivenFactors& given = problem.given;
    if (given.pivots != nullptr) pivots.Load(given.pivots, block);
  }
  __device__ void Run(char* slice) const {
    const GivenFactors& given = problem.given;
    const int n = problem.n;
    E* const factors = matrix.In(slice);
    E* const solution = rhs.In(slice);
    if (given.with == With::kTriangle) {
      small::TriangularSolve(given.triangle, n, factors, problem.rows, problem.cols, solution);
    } else if (given.with == With::kCholesky) {
      small::CholeskySolve(n, factors, given.triangle.lower, problem.cols, solution);
    } else {
      small::LuSolve(n, factors, pivots.In(slice), given.triangle.transpose,
                     given.triangle.conjugate, problem.cols, solution);
    }
  }
  __device__ void Store(const Block& block) const { rhs.Store(problem.x, block); }
};

// The arrays of a matrix that a team solves with.
template <class E>
struct FactorOffsets {
  Offset<E> matrix;
  Offset<int32_t> pivots;
  int ld;

  FactorOffsets(SharedLayout& layout, int n)
      : matrix(layout.Take<E>(int64_t{n} * (n | 1))), pivots(layout.Take<int32_t>(n)), ld(n | 1) {}
};

// A team takes a matrix and a part of its right-hand sides.
template <class E>
struct TeamSubstitution {
  static constexpr int kMostThreads = kBlockThreads;
  SubstitutionProblem<E> problem;
  FactorOffsets<E> offsets;
  Offset<E> solution;
  int ld_solution;
  int most, parts;  // right-hand sides at a time, and how many times

  __device__ void Run(const Team& team, int64_t index, char* slice) const {
    const GivenFactors& given = problem.given;
    const int64_t i = index / parts;
    const int n = problem.n, first = static_cast<int>(index % parts) * most;
    const int left = problem.Nrhs() - first, count = left < most ? left : most;
    const int ld = offsets.ld;
    E* const a = offsets.matrix.In(slice);
    E* const x = solution.In(slice);
    LoadMatrix(team, problem.a + i * problem.a_stride, n, n, a, ld);
    // A right-hand side is a column of b or of bᵀ, whose rows are this far apart.
    const bool left_side = given.triangle.left_side;
    const int64_t pitch = left_side ? problem.cols : n;
    const int64_t offset = i * problem.rows * problem.cols + first * (left_side ? 1 : pitch);
    const auto at = [&](int row, int col) -> E& {
      return left_side ? x[row * ld_solution + col] : x[col * ld_solution + row];
    };
    const int rows = left_side ? n : count, cols = left_side ? count : n;
    team::Move<E>(
        team, rows, cols,
        [&](int row, int col) { return LoadGlobal(problem.b + offset + row * pitch + col); },
        [&](int row, int col, E y) { at(row, col) = y; });
    const int* steps = nullptr;
    if (given.with == With::kLu) {
      LoadArray(team, n, given.pivots + i * given.pivots_stride, offsets.pivots.In(slice));
      steps = offsets.pivots.In(slice);
    }
    const team::Passes passes =
        given.with == With::kTriangle ? team::TriangularPasses(given.triangle)
        : given.with == With::kCholesky
            ? team::CholeskyPasses(given.triangle.lower)
            : team::LuPasses(steps, given.triangle.transpose, given.triangle.conjugate);
    team::SolveInPasses(team, passes, n, a, ld, count, x, ld_solution);
    team::Move<E>(team, rows, cols, at, [&](int row, int col, E y) {
      StoreGlobal<E>(y, problem.x + offset + row * pitch + col);
    });
  }
};

template <class E>
struct ConjugateAll {
  E* x;

  __device__ void operator()(int64_t i) const { StoreGlobal<E>(Conj(LoadGlobal(x + i)), x + i); }
};

// Permutes the rows of b: x[i] = b[permutation[i]], or the inverse.
template <class E>
struct PermuteRows {
  const E* b;
  E* x;
  const int32_t* permutation;
  int64_t stride;  // from one system's permutation to the next
  int64_t n, cols;
  MatrixElements elements;
  bool back;

  __device__ void operator()(int64_t place) const {
    const auto [matrix, i, j] = elements(place);
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
  VendorTriangles(cudaStream_t stream, DeviceScratch& scratch, const Systems<T>& systems)
      : stream_(stream), lent_(stream), systems_(systems) {
    if (UseBatchedRoutine(systems.batch, systems.n)) {
      a_ =
          MakePointers(stream, scratch, const_cast<T*>(systems.a), systems.a_stride, systems.batch);
      x_ = MakePointers(stream, scratch, systems.x, systems.size(), systems.batch);
    }
  }

  void Solve(const TwoTriangles& triangles) {
    Solve(triangles.first);
    Solve(triangles.second);
  }
  void Solve(const Triangle& triangle) {
    const bool transpose = triangle.transpose, conjugate = triangle.conjugate && kIsComplex<T>;
    // BLAS has no conjugate without transposition. It is the solve of conj(b), conjugated.
    const bool conjugate_b = conjugate && !transpose;
    const auto side = triangle.left_side ? vendor::kRight : vendor::kLeft;
    const auto uplo = triangle.lower ? vendor::kUpper : vendor::kLower;
    const auto op = !transpose ? vendor::kPlain : conjugate ? vendor::kAdjoint : vendor::kTranspose;
    const auto diagonal = triangle.unit_diagonal ? vendor::kUnit : vendor::kNonUnit;
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
      ForEach(stream_, systems_.batch * systems_.size(),
              ConjugateAll<E>{.x = AsElements(systems_.x)});
    }
  }

  cudaStream_t stream_;
  LentBlas lent_;
  const Systems<T>& systems_;
  T** a_ = nullptr;
  T** x_ = nullptr;
};

template <class T>
void VendorSubstitute(cudaStream_t stream, DeviceScratch& scratch, const GivenFactors& given,
                      const Systems<T>& systems) {
  using E = Element<T>;
  const Triangle& triangle = given.triangle;
  const int64_t count = systems.batch * systems.size();
  VendorTriangles<T> triangles(stream, scratch, systems);
  if (given.with == With::kTriangle) {
    Copy(stream, count, systems.b, systems.x);
    triangles.Solve(triangle);
    return;
  }
  if (given.with == With::kCholesky) {
    Copy(stream, count, systems.b, systems.x);
    triangles.Solve(CholeskyTriangles(triangle.lower));
    return;
  }
  const int64_t n = systems.n;
  const int64_t permutations = given.pivots_stride == 0 ? 1 : systems.batch;
  int32_t* const permutation = scratch.Take<int32_t>(permutations * n);
  PivotsToPermutation(stream, permutations, n, n, given.pivots, permutation);
  const auto permute = [&](const T* b, bool back) {
    if (b == systems.x) {  // in place
      T* const copy = scratch.Take<T>(count);
      Copy(stream, count, b, copy);
      b = copy;
    }
    ForEach(stream, count,
            PermuteRows<E>{.b = AsElements(b),
                           .x = AsElements(systems.x),
                           .permutation = permutation,
                           .stride = given.pivots_stride == 0 ? 0 : n,
                           .n = n,
                           .cols = systems.cols,
                           .elements = {n, systems.cols},
                           .back = back});
  };
  if (triangle.transpose) {
    Copy(stream, count, systems.b, systems.x);
  } else {
    permute(systems.b, /*back=*/false);
  }
  triangles.Solve(LuTriangles(triangle.transpose, triangle.conjugate, given.column_major));
  if (triangle.transpose) permute(systems.x, /*back=*/true);
}

// It is in the unnamed namespace, like the type of the problem that its lambdas hold.
template <class T>
void SubstituteOnPath(cudaStream_t stream, DeviceScratch& scratch, const GivenFactors& given,
                      const Systems<T>& systems) {
  using E = Element<T>;
  const int64_t n = systems.n, rows = systems.rows, cols = systems.cols;
  if (systems.batch * systems.size() == 0) return;
  const int64_t nrhs = given.triangle.left_side ? cols : rows;
  const SubstitutionProblem<E> problem{.given = given,
                                       .n = ToInt(n),
                                       .rows = ToInt(rows),
                                       .cols = ToInt(cols),
                                       .a = AsElements(systems.a),
                                       .a_stride = systems.a_stride,
                                       .b = AsElements(systems.b),
                                       .x = AsElements(systems.x)};
  SharedLayout layout(sizeof(Real<T>));
  const auto thread = [&] {
    const SmallSubstitution<E> job{.problem = problem,
                                   .matrix = {n * n, systems.a_stride, layout.Take<E>(n * n)},
                                   .rhs = {systems.size(), layout.Take<E>(systems.size())},
                                   .pivots = {n, given.pivots_stride, layout.Take<int32_t>(n)}};
    LaunchThreads(stream, job, systems.batch, layout);
  };
  const auto free_bytes = [&] {
    SharedLayout factors(sizeof(Real<T>));
    static_cast<void>(FactorOffsets<E>(factors, ToInt(n)));
    return SharedBytes() - factors.bytes();
  };
  const auto team = [&] {
    const int64_t most = RhsOfTeam<T>(n, nrhs, free_bytes());
    const int ld_solution = ToInt(most | 1), parts = ToInt((nrhs + most - 1) / most);
    const FactorOffsets<E> offsets(layout, problem.n);
    const TeamSubstitution<E> job{.problem = problem,
                                  .offsets = offsets,
                                  .solution = layout.Take<E>(n * ld_solution),
                                  .ld_solution = ld_solution,
                                  .most = ToInt(most),
                                  .parts = parts};
    LaunchTeams(stream, job, systems.batch * parts, PanelTeamSize(n, layout.bytes()), layout);
  };
  LaunchOnPath(SubstitutionPath<T>(n, nrhs, systems.size(), given.column_major, free_bytes),
               On{GpuPath::kThread, thread}, On{GpuPath::kTeam, team},
               On{GpuPath::kVendor, [&] { VendorSubstitute(stream, scratch, given, systems); }});
}

void TriangularSolve(cudaStream_t stream, DeviceScratch scratch, ffi::AnyBuffer a, ffi::AnyBuffer b,
                     Result x, bool left_side, bool lower, bool transpose_a, bool conjugate_a,
                     bool unit_diagonal) {
  const GivenFactors given{.with = With::kTriangle,
                           .triangle = {.lower = lower,
                                        .transpose = transpose_a,
                                        .conjugate = conjugate_a,
                                        .unit_diagonal = unit_diagonal,
                                        .left_side = left_side}};
  DispatchDtype(b.element_type(), [&]<class T>(std::type_identity<T>) {
    Substitute(stream, scratch, given, ReadSystems<T>(a, b, x, left_side));
  });
}

}  // namespace

template <class T>
void Substitute(cudaStream_t stream, DeviceScratch& scratch, const GivenFactors& given,
                const Systems<T>& systems) {
  SubstituteOnPath(stream, scratch, given, systems);
}

template void Substitute<float>(cudaStream_t, DeviceScratch&, const GivenFactors&,
                                const Systems<float>&);
template void Substitute<double>(cudaStream_t, DeviceScratch&, const GivenFactors&,
                                 const Systems<double>&);
template void Substitute<std::complex<float>>(cudaStream_t, DeviceScratch&, const GivenFactors&,
                                              const Systems<std::complex<float>>&);
template void Substitute<std::complex<double>>(cudaStream_t, DeviceScratch&, const GivenFactors&,
                                               const Systems<std::complex<double>>&);

}  // namespace linalg::cuda

LINALG_HANDLER_AND_CAPTURED(linalg_triangular_solve, linalg::cuda::TriangularSolve);
