// The cut-offs of the CPU handlers, and the cost estimates that several of them share. A handler
// chooses its path by them, next to its problem.
//
// A comment names the file of benchmarks/crossovers/ that holds the measurements. Block sizes of
// one algorithm are in its own file in kernels/blocked. Sizes of huge pages and of kept memory are
// in kernels/aligned_memory.h and kept_memory.h, and chunks of threads in batch.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/arithmetic/registers.h"
#include "kernels/cpu/blas_threads.h"
#include "kernels/ffi.h"

namespace linalg {

// From this n on, one matrix alone may use the user's BLAS threads. Otherwise LAPACK runs on one
// thread per matrix, so that a matrix has the same bits alone and in any batch.
inline constexpr int64_t kThreadedLapackSize = 256;

inline BlasThreads::Count ThreadsFor(int64_t batch, int64_t n) {
  return batch == 1 && n >= kThreadedLapackSize ? BlasThreads::Count::kUsers
                                                : BlasThreads::Count::kOne;
}

// Nanoseconds of one LAPACK call of `flops` operations: a fixed cost, and a rate between that of
// tiny and of large matrices. Only the order of magnitude matters.
inline double LapackNanoseconds(double flops) { return 200.0 + 0.25 * flops; }

// Prefixes: kLane is the largest n in lanes, kTile the largest in tiles, kLeast the least.

// Cholesky factors: cpu_cholesky.json.
inline constexpr int64_t kLaneCholesky = 64;
// Derivatives along Hermitian matrices, and along any: cpu_cholesky_derivative.json.
inline constexpr int64_t kLaneCholeskyDerivative = 48;
inline constexpr int64_t kLaneFullCholeskyDerivative = 32;
// Bytes of a matrix whose Cholesky factor is updated: cpu_cholesky_update.json.
inline constexpr int64_t kLaneCholeskyUpdateBytes = 12 << 10;

// LU factors, determinants and inverses: cpu_lu.json.
inline constexpr int64_t kLaneLu = 32;

// Triangular solves, and systems with them: cpu_triangular.json.
inline constexpr int64_t kLaneTriangular = 32;
// The limit of fused multiply-adds of a system. A single system with more is faster in vectors of
// its columns.
inline constexpr double kLaneTriangularOperations = 8192;
// The order and the right-hand sides from which tiles pay off.
inline constexpr int64_t kLeastTileTriangular = 4;
inline constexpr int64_t kLeastTileRhs = 2;
inline constexpr int64_t kMostTileRhs = 4096;
// The right-hand sides that one small system solves one by one:
// benchmarks/results/amd-epyc-routed-tiny-2026-11-28.json.
inline constexpr int64_t kFewRhsOfOne = 4;

// States and observations of Kalman filters: not measured yet.
inline constexpr int64_t kLaneKalman = 12;

// QR factors: cpu_qr.json, as the constants down to kLaneQrPerLane.
inline constexpr int64_t kLaneQr = 72;
// Matrices with few rows, or with too few columns for a block, stay in lanes up to a larger n.
inline constexpr int64_t kLaneQrOfFewRows = 128, kFewQr = 48;
// Beyond these bytes, matrices with so few rows or columns are mostly panel, and LAPACK's.
inline constexpr int64_t kTileFewQrBytes = 8 << 20;
// Matrices with fewer columns than these, and than one for so many rows, do not fill a block.
inline constexpr int64_t kNarrowQrColumns = 16, kNarrowQrRows = 16;
// Larger ones are factored one at a time with columns in registers, to the same bits.
inline constexpr int64_t kLaneQrPerLane = 48;
// Column-pivoted QR: cpu_qr_pivoted.json.
inline constexpr int64_t kLanePivotedQr = 32;
// Reflectors up to which LAPACK's unblocked routines are called directly. This is the crossover of
// LAPACK's ILAENV, up to which the blocked routines call them too, after some bookkeeping.
inline constexpr int64_t kUnblockedReflectors = 128;
// Products with Q, of any number of vectors and of few: cpu_ormqr.json.
inline constexpr int64_t kLaneOrmqr = 48;
inline constexpr int64_t kLaneOrmqrOfFewColumns = 128, kFewOrmqrColumns = 8;
// The columns that one matrix alone multiplies one by one.
inline constexpr int64_t kFewOrmqrColumnsOfOne = 3;

// Hermitian eigenvectors, in double precision too, and eigenvalues alone: cpu_eigh.json.
inline constexpr int64_t kLaneEigh = 96;
inline constexpr int64_t kLaneEighDouble = 72;
inline constexpr int64_t kLaneEigvalsh = 96;
// Above it, tiles take more than twice LAPACK's memory.
inline constexpr int64_t kTileEigh = 2048;
// From this n on, eigenvalues are refined, with vectors and without: cpu_eigh_refined.json.
inline constexpr int64_t kLeastRefinedEigh = 8;
inline constexpr int64_t kLeastRefinedEigvalsh = 16;
// Eigenvalues and eigenvectors of tridiagonal matrices: cpu_eigh_tridiagonal.json.
inline constexpr int64_t kLeastTileTridiagonal = 40;

// General eigenvalues and Schur forms: cpu_eig.json.
inline constexpr int64_t kLaneEig = 64;
// Hessenberg forms: cpu_eig.json.
inline constexpr int64_t kLaneHessenberg = 32;

// Singular vectors, by the longer side: cpu_svd.json.
inline constexpr int64_t kLaneSvd = 32;
inline constexpr int64_t kLaneSvdComplex64 = 31;
inline constexpr int64_t kLaneSvdFloat64 = 24;
inline constexpr int64_t kLaneSvdComplex128 = 24;
// The shorter side and the bytes in tiles: cpu_svd.json.
inline constexpr int64_t kLeastTileSvd = 8;
inline constexpr int64_t kTileSvd = 2048;
inline constexpr int64_t kTileSvdBytes = 64 << 20;
// Singular values alone: cpu_svdvals.json.
inline constexpr int64_t kLaneSvdvals = 32;
inline constexpr int64_t kLaneSvdvalsDouble = 24;
// Values by one-sided Jacobi, of the single precisions: cpu_jacobi_svd.json.
inline constexpr int64_t kJacobiSvdvals = 8;
// Vectors by one-sided Jacobi, by the shorter side: cpu_jacobi_svd.json.
inline constexpr int64_t kJacobiSvd = 9;
inline constexpr int64_t kJacobiSvdComplex64 = 6;
inline constexpr int64_t kJacobiSvdFloat64 = 6;
inline constexpr int64_t kJacobiSvdComplex128 = 4;

template <class T>
inline constexpr bool kIsDouble = std::is_same_v<Real<T>, double>;

// The crossover for elements T, given one for each dtype.
template <class T>
constexpr int64_t ForDtype(int64_t float32, int64_t complex64, int64_t float64,
                           int64_t complex128) {
  if (kIsDouble<T>) return kIsComplex<T> ? complex128 : float64;
  return kIsComplex<T> ? complex64 : float32;
}

// Bytes of a group of matrices beyond which it runs in registers of half the width.
inline constexpr int64_t kWideGroupBytes = 48 << 10;
// That limit for singular vectors, few of whose passes leave the second-level cache:
// cpu_svd_group.json.
inline constexpr int64_t kWideSvdGroupBytes = 420 << 10;

// Bytes of a group up to which it is on the stack.
inline constexpr int64_t kStackBytes = 8192;

// The side of a block that the first-level cache holds.
inline constexpr int64_t kCacheBlock = 16;

// A matrix in tiles that takes less time than this stays on one thread: cpu_shared.json.
inline constexpr double kSharedNanoseconds = 700e3;

// A shorter call ends before a processor runs its widest registers at full speed.
inline constexpr double kBriefNanoseconds = 1e3;

// Nanoseconds of one register's group of small matrices: `count` registers moved in and out, and
// `operations` fused multiply-adds.
inline double SmallNanoseconds(int lanes, int64_t count, double operations) {
  return 20.0 + static_cast<double>(count) * lanes * 0.1 + 0.3 * operations;
}

// Nanoseconds of `operations` fused multiply-adds of numbers T in tiles.
template <class T>
double BlockedNanoseconds(double operations) {
  constexpr double kParts = sizeof(T) / sizeof(Real<T>);
  return 200.0 + 0.01 * kParts * kParts * sizeof(Real<T>) * operations;
}

// Nanoseconds of LU factors in tiles.
template <class T>
double BlockedLuNanoseconds(int64_t rows, int64_t cols) {
  const double m = static_cast<double>(rows), k = static_cast<double>(std::min(rows, cols));
  return BlockedNanoseconds<T>(m * static_cast<double>(cols) * k / 4);
}

// Nanoseconds of eigenvalues in tiles, and of eigenvectors if they are wanted.
template <class T>
double BlockedEighNanoseconds(int64_t n, bool vectors) {
  const double order = static_cast<double>(n);
  return (vectors ? 3 : 1) * BlockedNanoseconds<T>((order + 100) * order * order);
}

// Calls body with n as a constant where it is tiny, so that its loops are unrolled and its
// registers stay registers.
template <class Body>
void DispatchSize(int64_t n, Body&& body) {
  switch (n) {
    case 2:
      return body(std::integral_constant<int, 2>());
    case 3:
      return body(std::integral_constant<int, 3>());
    case 4:
      return body(std::integral_constant<int, 4>());
    default:
      return body(ToInt(n));
  }
}

}  // namespace linalg
