// Substitution: triangular systems, and those of given Cholesky and LU factors.
//
// Small matrices stay in shared memory. One thread takes a matrix with all of its right-hand sides,
// or a team takes up to kColumnsOfTeam of them. Larger matrices are solved in place in the output,
// a panel at a time: teams solve with the blocks on the diagonal, and cuBLAS updates the rest. The
// largest, and few of them, take cuBLAS's trsm. It reads a row-major matrix as its transpose, so
// the triangle and the side flip and the operation stays.
#include "kernels/cuda/substitution.h"
#include "kernels/cuda/substitution_path.h"

#include "kernels/cuda/handles.h"
#include "kernels/cuda/lu_factors.h"
#include "kernels/cuda/panels.h"
#include "kernels/cuda/passes.h"
#include "kernels/handlers.h"
#include "kernels/small/solve.h"
#include "kernels/team/solve.h"

namespace linalg::cuda {
namespace {

using With = GivenFactors::With;

// A batch of systems in a kernel's integers. Rows and matrices of `a`, and those of b and x, lie so
// far apart.
template <class E>
struct SubstitutionProblem {
  GivenFactors given;
  int n, rows, cols;
  const E* a;
  int a_pitch;
  int64_t a_stride;
  const E* b;
  E* x;
  int b_pitch;
  int64_t b_stride;

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
    const E* const matrix = problem.a + i * problem.a_stride;
    team::Move<E>(
        team, n, n,
        [&](int row, int col) { return LoadGlobal(matrix + row * problem.a_pitch + col); },
        [&](int row, int col, E y) { a[row * ld + col] = y; });
    // A right-hand side is a column of b or of bᵀ.
    const bool left_side = given.triangle.left_side;
    const int64_t pitch = problem.b_pitch;
    const int64_t offset = i * problem.b_stride + first * (left_side ? 1 : pitch);
    const auto at = [&](int row, int col) -> E& {
      return left_side ? x[row * ld_solution + col] : x[col * ld_solution + row];
    };
    const int rows = left_side ? n : count, cols = left_side ? count : n;
    team::Move<E>(
        team, rows, cols,
        [&](int row, int col) { return LoadGlobal(problem.b + offset + row * pitch + col); },
        [&](int row, int col, E y) { at(row, col) = y; });
    const int* steps = nullptr;
    if (given.with == With::kLu && given.pivots != nullptr) {
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

template <class T>
void ConjugateSolutions(cudaStream_t stream, const Systems<T>& systems) {
  if constexpr (kIsComplex<T>) {
    ForEach(stream, systems.batch * systems.size(),
            ConjugateAll<Element<T>>{.x = AsElements(systems.x)});
  }
}

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
    if (conjugate_b) ConjugateSolutions(stream_, systems_);
    if (a_ != nullptr) {
      vendor::TrsmBatched<T>(lent_.get(), side, uplo, op, diagonal, cols, rows, a_, n, x_, cols,
                             ToInt(systems_.batch));
    } else {
      for (int64_t i = 0; i < systems_.batch; ++i) {
        vendor::Trsm(lent_.get(), side, uplo, op, diagonal, cols, rows,
                     systems_.a + i * systems_.a_stride, n, systems_.x + i * systems_.size(), cols);
      }
    }
    if (conjugate_b) ConjugateSolutions(stream_, systems_);
  }

 private:
  cudaStream_t stream_;
  LentBlas lent_;
  const Systems<T>& systems_;
  T** a_ = nullptr;
  T** x_ = nullptr;
};

// One right-hand side, with both factors in one launch. A block of threads takes a matrix that it
// reads once from global memory, in steps of kRows unknowns: one warp solves for them. Where the
// rows of the triangle are those of the matrix, a warp first sums along each row over the unknowns
// that are known. Otherwise each thread then updates unknowns of its own.
template <class E>
class VectorSubstitution {
 public:
  static constexpr int kMostThreads = kGlobalThreads;

  VectorSubstitution(SharedLayout& layout, const SubstitutionProblem<E>& problem,
                     const int32_t* permutation, int64_t permutation_stride)
      : problem_(problem),
        permutation_(permutation),
        permutation_stride_(permutation_stride),
        x_(layout.Take<E>(problem.n)),
        block_(layout.Take<E>(kRows * kPitch)) {}

  __device__ void Run(const Team& team, int64_t i, char* slice) const {
    const GivenFactors& given = problem_.given;
    const int n = problem_.n;
    E* const x = x_.In(slice);
    const int32_t* const order =
        permutation_ == nullptr ? nullptr : permutation_ + i * permutation_stride_;
    const bool back = given.triangle.transpose;
    const auto place = [&](int k, bool exchanged) {
      return i * problem_.b_stride + (order != nullptr && exchanged ? order[k] : k);
    };
    team.Phase([&](int thread) {
      for (int k = thread; k < n; k += team.size()) x[k] = LoadGlobal(problem_.b + place(k, !back));
    });
    const E* const a = problem_.a + i * problem_.a_stride;
    const bool both = given.with != With::kTriangle;
    const TwoTriangles triangles =
        given.with == With::kCholesky ? CholeskyTriangles(given.triangle.lower)
        : both ? LuTriangles(back, given.triangle.conjugate, /*column_major=*/false)
               : TwoTriangles{given.triangle, given.triangle};
    const SubstitutionPass first = PassWith(triangles.first), second = PassWith(triangles.second);
    for (int pass = 0; pass < (both ? 2 : 1); ++pass) {
      Solve(team, pass == 0 ? first : second, a, x, block_.In(slice));
    }
    team.Phase([&](int thread) {
      for (int k = thread; k < n; k += team.size()) {
        StoreGlobal<E>(x[k], problem_.x + place(k, back));
      }
    });
  }

 private:
  static constexpr int kRows = 32, kPitch = kRows + 1;
  static constexpr int kRowsOfWarp = kRows / (kMostThreads / 32);
  static constexpr unsigned kWholeWarp = 0xffffffffu;

  // Unknowns from `first` on.
  struct Range {
    int first, end;
  };

  static __device__ __forceinline__ E Load(SubstitutionPass pass, const E* a) {
    const E x = LoadGlobal(a);
    return pass.conjugate ? Conj(x) : x;
  }

  __device__ void Solve(const Team& team, SubstitutionPass pass, const E* a, E* x, E* block) const {
    const int n = problem_.n, pitch = problem_.a_pitch, steps = (n + kRows - 1) / kRows;
    const bool transposes = pass.transpose, forward = pass.lower;
    for (int step = 0; step < steps; ++step) {
      const int first = (forward ? step : steps - 1 - step) * kRows;
      const Range own{first, first + kRows < n ? first + kRows : n};
      const Range before{0, own.first}, after{own.end, n};
      team.Phase([&](int thread) {
        for (int e = thread; e < kRows * kRows; e += team.size()) {
          const int row = first + e / kRows, col = first + e % kRows;
          if (row >= n || col >= n) continue;
          block[(transposes ? col - first : row - first) * kPitch +
                (transposes ? row - first : col - first)] = Load(pass, a + row * pitch + col);
        }
        if (!transposes) SubtractKnown(pass, a, own, forward ? before : after, x);
      });
      team.Phase([&](int thread) {
        if (thread < 32) SolveBlock(pass.unit_diagonal, forward, block, own, x);
      });
      if (!transposes) continue;
      const Range rest = forward ? after : before;
      team.Phase([&](int thread) {
        for (int j = rest.first + thread; j < rest.end; j += team.size()) {
          E y = x[j];
#pragma unroll 8
          for (int k = own.first; k < own.end; ++k) {
            y = NegMulAdd(Load(pass, a + k * pitch + j), x[k], y);
          }
          x[j] = y;
        }
      });
    }
  }

  __device__ void SubtractKnown(SubstitutionPass pass, const E* a, Range own, Range known,
                                E* x) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int first = own.first + static_cast<int>(threadIdx.x) / 32 * kRowsOfWarp;
    const E* row[kRowsOfWarp];
    E sum[kRowsOfWarp];
    LINALG_UNROLL
    for (int r = 0; r < kRowsOfWarp; ++r) {
      row[r] = a + (first + r < own.end ? first + r : own.first) * problem_.a_pitch;
      sum[r] = E{};
    }
#pragma unroll 2
    for (int j = known.first + lane; j < known.end; j += 32) {
      const E y = x[j];
      LINALG_UNROLL
      for (int r = 0; r < kRowsOfWarp; ++r) {
        sum[r] = NegMulAdd(Load(pass, row[r] + j), y, sum[r]);
      }
    }
    LINALG_UNROLL
    for (int r = 0; r < kRowsOfWarp; ++r) {
      for (int offset = 16; offset > 0; offset /= 2) {
        sum[r] = sum[r] + ShuffleXor(kWholeWarp, sum[r], offset);
      }
      if (lane == 0 && first + r < own.end) x[first + r] = x[first + r] + sum[r];
    }
  }

  // A thread of the warp has one unknown.
  static __device__ void SolveBlock(bool unit_diagonal, bool forward, const E* block, Range own,
                                    E* x) {
    const int lane = static_cast<int>(threadIdx.x) % 32, size = own.end - own.first;
    const int mine = lane < size ? lane : 0;
    const E* const row = block + mine * kPitch;
    const Divisor<E> divisor(unit_diagonal ? FromReal<E>(RealElement<E>(1)) : row[mine]);
    E y = lane < size ? x[own.first + lane] : E{};
    for (int step = 0; step < size; ++step) {
      const int k = forward ? step : size - 1 - step;
      const E solved = unit_diagonal ? y : divisor.Divide(y);
      if (mine == k) y = solved;
      const E known = From(solved, k);
      if (forward ? mine > k : mine < k) y = NegMulAdd(row[k], known, y);
    }
    if (lane < size) x[own.first + lane] = y;
  }

  static __device__ __forceinline__ E From(E x, int lane) {
    if constexpr (kComplexElement<E>) {
      return {__shfl_sync(kWholeWarp, x.re, lane), __shfl_sync(kWholeWarp, x.im, lane)};
    } else {
      return __shfl_sync(kWholeWarp, x, lane);
    }
  }

  SubstitutionProblem<E> problem_;
  const int32_t* permutation_;
  int64_t permutation_stride_;
  Offset<E> x_, block_;
};

template <class E>
void LaunchTeamSubstitution(cudaStream_t stream, const SubstitutionProblem<E>& problem,
                            int64_t batch, int64_t nrhs, int64_t most) {
  SharedLayout layout(sizeof(RealElement<E>));
  const int ld_solution = ToInt(most | 1), parts = ToInt((nrhs + most - 1) / most);
  const FactorOffsets<E> offsets(layout, problem.n);
  const TeamSubstitution<E> job{.problem = problem,
                                .offsets = offsets,
                                .solution = layout.Take<E>(int64_t{problem.n} * ld_solution),
                                .ld_solution = ld_solution,
                                .most = ToInt(most),
                                .parts = parts};
  LaunchTeams(stream, job, batch * parts, PanelTeamSize(problem.n, layout.bytes()), layout);
}

// Solves with one triangle of each matrix, in place in x, a panel of kSubstitutionPanel unknowns at
// a time.
template <class T>
class TrianglesByPanels {
  using E = Element<T>;

 public:
  TrianglesByPanels(cudaStream_t stream, DeviceScratch&, const Systems<T>& systems)
      : stream_(stream), lent_(stream), systems_(systems) {}

  void Solve(const TwoTriangles& triangles) {
    Solve(triangles.first);
    Solve(triangles.second);
  }
  void Solve(const Triangle& triangle) {
    constexpr int64_t kPanel = kSubstitutionPanel<E>;
    // cuBLAS has no conjugate without transposition. It is the solve of conj(b), conjugated.
    const bool conjugate_b = kIsComplex<T> && triangle.conjugate && !triangle.transpose;
    const int64_t n = systems_.n, panels = (n + kPanel - 1) / kPanel;
    // Products with all known unknowns are deep, and write a panel once. For few right-hand sides
    // they would have too few elements to share out.
    const bool looks_back = systems_.nrhs() >= kPanel;
    if (conjugate_b) ConjugateSolutions(stream_, systems_);
    for (int64_t step = 0; step < panels; ++step) {
      const bool forward = triangle.Forward();
      const int64_t first = (forward ? step : panels - 1 - step) * kPanel;
      const int64_t end = std::min(first + kPanel, n);
      Triangle block = triangle;
      block.conjugate = triangle.conjugate && triangle.transpose;
      const Range own{first, end}, before{0, first}, after{end, n};
      if (looks_back) Update(triangle, forward ? before : after, own);
      SolvePanel(block, own);
      if (!looks_back) Update(triangle, own, forward ? after : before);
    }
    if (conjugate_b) ConjugateSolutions(stream_, systems_);
  }

 private:
  struct Range {
    int64_t first, end;

    int64_t size() const { return end - first; }
  };

  // The unknowns from `first` on, of every right-hand side.
  int64_t Unknowns(int64_t first) const { return first * (systems_.left_side ? systems_.cols : 1); }

  void SolvePanel(const Triangle& triangle, Range own) const {
    const int64_t n = systems_.n, size = own.size();
    E* const x = AsElements(systems_.x) + Unknowns(own.first);
    const SubstitutionProblem<E> problem{.given = {.with = With::kTriangle, .triangle = triangle},
                                         .n = ToInt(size),
                                         .rows = ToInt(systems_.left_side ? size : systems_.rows),
                                         .cols = ToInt(systems_.left_side ? systems_.cols : size),
                                         .a = AsElements(systems_.a) + own.first * (n + 1),
                                         .a_pitch = ToInt(n),
                                         .a_stride = systems_.a_stride,
                                         .b = x,
                                         .x = x,
                                         .b_pitch = ToInt(systems_.cols),
                                         .b_stride = systems_.size()};
    const int64_t nrhs = systems_.nrhs();
    LaunchTeamSubstitution(stream_, problem, systems_.batch, nrhs, std::min(nrhs, kColumnsOfTeam));
  }

  // Subtracts the part of the known unknowns from others.
  void Update(const Triangle& triangle, Range known, Range others) const {
    if (known.size() == 0) return;
    const int64_t n = systems_.n, solved = known.size(), count = others.size();
    const int64_t first = known.first, rest = others.first;
    const bool left = systems_.left_side;
    // op(a) is read in the rows `rest` and the columns `first`, or from the right the other way.
    const bool rest_down = left != triangle.transpose;
    Submatrix<const T> a{.data = systems_.a + (rest_down ? rest * n + first : first * n + rest),
                         .ld = n,
                         .stride = systems_.a_stride};
    if (triangle.transpose) a = triangle.conjugate ? a.Adjoint() : a.Transposed();
    const auto unknowns = [&](int64_t from) {
      return Submatrix<T>{
          .data = systems_.x + Unknowns(from), .ld = systems_.cols, .stride = systems_.size()};
    };
    const Submatrix<T> x = unknowns(first), y = unknowns(rest);
    if (left) {
      Multiply<T>(lent_.get(), systems_.batch, count, systems_.cols, solved, T(-1), a, x.Read(),
                  T(1), y);
    } else {
      Multiply<T>(lent_.get(), systems_.batch, systems_.rows, count, solved, T(-1), x.Read(), a,
                  T(1), y);
    }
  }

  cudaStream_t stream_;
  LentBlas lent_;
  const Systems<T>& systems_;
};

// The order of the rows after the exchanges, or null if there are none to make.
template <class T>
const int32_t* Permutation(cudaStream_t stream, DeviceScratch& scratch, const GivenFactors& given,
                           const Systems<T>& systems) {
  if (given.pivots == nullptr || given.permutation != nullptr) return given.permutation;
  const int64_t n = systems.n, count = given.pivots_stride == 0 ? 1 : systems.batch;
  int32_t* const permutation = scratch.Take<int32_t>(count * n);
  PivotsToPermutation(stream, count, n, n, given.pivots, permutation);
  return permutation;
}

// Solves in several launches, with Triangles<T> for each triangle.
template <template <class> class Triangles, class T>
void SubstituteInSteps(cudaStream_t stream, DeviceScratch& scratch, const GivenFactors& given,
                       const Systems<T>& systems) {
  using E = Element<T>;
  const Triangle& triangle = given.triangle;
  const int64_t count = systems.batch * systems.size();
  Triangles<T> triangles(stream, scratch, systems);
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
  const int32_t* const permutation = Permutation(stream, scratch, given, systems);
  const int64_t stride = given.pivots_stride == 0 ? 0 : n;
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
                           .stride = stride,
                           .n = n,
                           .cols = systems.cols,
                           .elements = {n, systems.cols},
                           .back = back});
  };
  const bool exchanges = permutation != nullptr;
  if (exchanges && !triangle.transpose) {
    permute(systems.b, /*back=*/false);
  } else {
    Copy(stream, count, systems.b, systems.x);
  }
  triangles.Solve(LuTriangles(triangle.transpose, triangle.conjugate, given.column_major));
  if (exchanges && triangle.transpose) permute(systems.x, /*back=*/true);
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
                                       .a_pitch = ToInt(n),
                                       .a_stride = systems.a_stride,
                                       .b = AsElements(systems.b),
                                       .x = AsElements(systems.x),
                                       .b_pitch = ToInt(cols),
                                       .b_stride = systems.size()};
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
    LaunchTeamSubstitution(stream, problem, systems.batch, nrhs,
                           RhsOfTeam<T>(n, nrhs, free_bytes()));
  };
  const auto panels = [&] {
    if (nrhs == 1) {
      const VectorSubstitution<E> job(layout, problem, Permutation(stream, scratch, given, systems),
                                      given.pivots_stride);
      return LaunchTeams(stream, job, systems.batch, kGlobalThreads, layout);
    }
    SubstituteInSteps<TrianglesByPanels>(stream, scratch, given, systems);
  };
  const auto vendor = [&] { SubstituteInSteps<VendorTriangles>(stream, scratch, given, systems); };
  const bool in_panels = !given.column_major && SharedBytes() >= kPanelsBytes &&
                         (given.any_pivots || UseBatchedRoutine(systems.batch, n));
  const auto path =
      SubstitutionPath<T>(n, nrhs, systems.size(), given.column_major, in_panels, free_bytes);
  LaunchOnPath(path, On{GpuPath::kThread, thread}, On{GpuPath::kTeam, team},
               On{GpuPath::kPanels, panels}, On{GpuPath::kVendor, vendor});
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
