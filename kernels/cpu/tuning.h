// Every cut-off of the CPU handlers, the one choice of path, and what the cost estimates are made
// of that decide about threads: an algorithm counts its operations where it stands. What is one
// algorithm's own stands with it: the sides of blocks, panels and pieces in kernels/blocked, the
// sizes of memory that is asked for in huge pages or kept in kernels/aligned_memory.h and
// kept_memory.h, and of the chunks that threads take in batch.h, which is installed alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/arithmetic/registers.h"
#include "kernels/cpu/blas_threads.h"
#include "kernels/ffi.h"

namespace linalg {

// From this n on, one matrix alone may use the user's BLAS threads. Below it, and in a batch,
// LAPACK runs on one thread per matrix, so that a matrix gives the same bits alone and in any
// batch.
inline constexpr int64_t kThreadedLapackSize = 256;

inline BlasThreads::Count ThreadsFor(int64_t batch, int64_t n) {
  return batch == 1 && n >= kThreadedLapackSize ? BlasThreads::Count::kUsers
                                                : BlasThreads::Count::kOne;
}

// Nanoseconds of one LAPACK call of `flops` operations: a fixed cost and a rate between that of
// tiny and of large matrices. Only the order of magnitude matters.
inline double LapackNanoseconds(double flops) { return 200.0 + 0.25 * flops; }

// The cut-offs of each operation. kSmall… is the largest n that goes to the algorithms of
// kernels/small, kBlocked… the largest in tiles, kLeast… the least. The ratios beside them are of
// times: of stock JAX, which calls LAPACK, over ours where nothing else is said; in float32 /
// float64 where there are two. The machines: X, Intel Xeon with AVX-512, two cores, 22 and 23
// November 2026, others on it, but batches of 256 on 21 November, quiet; E, AMD EPYC with AVX-512,
// two cores, 23 November 2026, others on it but where it is said to be quiet. Two ways of ours, or
// ours and LAPACK's, were timed in turn in one process where nothing else is said; stock JAX by
// benchmarks/run.py --ops … --sizes … --batches ….

// Cholesky factors: in batches of 256 the time of one per lane over that of tiles is, at n = 44,
// 48, 60 and 64, in float64 0.7, 0.7, 0.6 and 0.7, in complex64 0.5, 0.6, 0.6 and 0.7, in
// complex128 0.6 to 0.75; of single matrices 1.1 to 1.6 in float64 and 1.4 to 2.3 in complex64 (E,
// quiet). LAPACK's over tiles' is 3.0 / 2.2 at n = 128 to 256 (X).
inline constexpr int64_t kSmallCholesky = 64;

// Their derivatives: the time of one per lane over that of tiles is, in batches of 256 / of single
// matrices, 0.2 to 0.5 / 0.9 to 1.25 at n = 48 and 0.4 to 1.3 / 1.1 to 1.5 at 64, where rows meet
// in the cache; of those along matrices that need not be Hermitian, 0.5 to 0.7 / 1.3 to 2.5 at 36
// and 0.6 to 0.8 / 2 to 3.5 at 48 (float32, float64, complex64; E, quiet, 26 November).
inline constexpr int64_t kSmallCholeskyDerivative = 48;
inline constexpr int64_t kSmallFullCholeskyDerivative = 32;

// Cholesky factors that are updated, by the bytes of a matrix: the time of one per lane over that
// of rows is, in batches, in float32 0.1 at n = 8, 0.2 to 0.4 at 16, 0.4 to 0.5 at 32 and 0.4 to
// 0.7 at 64, in float64 0.25, 0.3, 0.8 and 1.2, in complex64 0.2, 0.4 to 0.6, 0.6 and 1.0 to 1.2,
// in complex128 0.3 to 0.5, 0.5, 1.0 to 1.1 and 0.8 to 1.95 (E, quiet, 26 November, the least of
// 50).
inline constexpr int64_t kSmallCholeskyUpdateBytes = 12 << 10;

// LU factors, determinants and inverses: 5.0 / 4.7 in batches of 256 at n = 32
// (benchmarks/results/intel-xeon-processor-2026-11-21.json). In tiles, in batches of 32, LAPACK's
// time over theirs is, at n = 33, 48, 64, 128, 256 and 512, for lu in float32 2.7, 2.9, 3.2, 3.2,
// 4.7 and 2.8, in float64 2.0, 3.0, 2.2, 2.8, 1.8 and 1.7; for solve 2.5 to 3.3; for inv 2.2 to 6;
// for single matrices 1.2 at 33, 1.7 at 64 and 2 to 4 from 128 on (X).
inline constexpr int64_t kSmallLu = 32;

// Substitution, and systems with it: 3.3 / 2.5 in batches of 256 at n = 32. Systems with more
// right-hand sides than one matrix per lane is for have in tiles, at n = 31 and 32 with 9 to 64 of
// them, 1.4 to 2.6 in batches of 64 and 1.3 to 1.7 for single ones (E, one build after the other).
// A single system of more fused multiply-adds than kSmallTriangularOperations is faster in BLAS, or
// in tiles, which have vectors for it. In tiles: trsm's time over theirs is with 4, 32 and 256
// right-hand sides, at n = 33, 64, 128, 256 and 512, in float32 1.5 to 2.4, 2.6 to 3.9 and 1.5
// to 3.2, in float64 1.5 to 4.4, 1.5 to 2.6 and 1.5 to 3.1, in complex64 1.3 to 3.5, 1.3 to 3.4
// and 1.2 to 3.2, in complex128 1.5 to 2.7, 1.0 to 2.4 and 0.9 to 2.4, each less from n = 256 on;
// at n = 4 to 32, with as many as one per lane is not for, 1.1 to 9. trsv with one right-hand side
// takes 0.2 to 1.2 of their time, and trsm 0.6 at n = 2. What is least of the triangle's sides,
// transposed and not (E, one thread: the class alone, with its copies, against the OpenBLAS of
// SciPy 1.17). Of single systems, which two threads share, it is with 2 to 64 sides 2.6 to 24 at n
// = 1024 and 2048, with as many as n 1.6 and 1.5 in float64 and 2.5 and 1.8 in float32, at n =
// 512 1.0 in complex64, and with 512 at 1024 1.2 in complex128 (E; the least of seven calls each).
inline constexpr int64_t kSmallTriangular = 32;
inline constexpr double kSmallTriangularOperations = 8192;
inline constexpr int64_t kLeastBlockedTriangular = 4;
inline constexpr int64_t kLeastBlockedRhs = 2;
inline constexpr int64_t kMostBlockedRhs = 4096;

// QR factors: 4.6 / 4.6 in batches of 256 at n = 64. With Q, in batches of 32, the time of one per
// lane, or of one at a time in registers, over that of tiles is 1.0 / 1.0 at n = 64 and 68, 1.1
// / 1.3 at 96 and 1.7 / 2.0 at 128; of 80 by 16 matrices 1.5 / 1.4; but of matrices of 24, 40
// and 64 by 128 0.6, 0.9 and 1.0 / 0.7, 0.8 and 1.1. LAPACK's over theirs is 4.4 / 2.9 at n = 160,
// 3.4 / 2.4 at 256, 2.2 / 1.8 at 512 and 2.3 / 1.5 at 1024; of 512 by 64 matrices 3.3 / 3.5, of 64
// by 512 ones 7.7 / 4.5; in complex128 2.4 at n = 160 and 1.5 at 512. Of tall ones with 16 columns
// it is 1.0 to 1.4, with fewer less than 1 from 512 rows on. Single matrices have the same ratios
// from n = 128 on, and 1.1 at 80 (X). Of single matrices that two threads share it is 3.7 / 3.1 at
// n = 512, 4.7 / 2.5 at 1024 and 3.0 / 2.2 at 2048, in complex64 and complex128 1.7 and 2.5 at
// 1024; of 100000 by 64 matrices 1.8 / 2.2, of 20000 by 256 ones 2.6 / 1.8, of 64 by 20000 ones 4.9
// in float64; but of 100000 by 32, 24 and 16 ones in float64 1.1, 0.9 and 0.6, without Q about 0.5,
// and of 16 by 100000 ones 1.0 and 0.7 (E; the least of five calls each).
inline constexpr int64_t kSmallQr = 72;
inline constexpr int64_t kSmallQrOfFewRows = 128, kFewQr = 48;
// Panels are most of what there is of a matrix with as few columns, and of one with as few rows
// what tiles reach beyond it: those of more bytes are LAPACK's.
inline constexpr int64_t kBlockedFewQrBytes = 8 << 20;
// Tall ones of fewer columns than these, and than one for so many rows, do not fill a block.
inline constexpr int64_t kNarrowQrColumns = 16, kNarrowQrRows = 16;
// Up to this, kernels/small takes a matrix per lane; above, one at a time with its columns in
// registers, to the same bits. Up to n = 32 that takes 1.3 to 3.4 times as long as one matrix per
// lane, at 48 as long (E, 21 November).
inline constexpr int64_t kSmallQrPerLane = 48;
// Products with Q: the time of one per lane over that of tiles is, in float32 / float64 / complex64
// with as many reflectors as rows, in batches of 256, times one column 0.2 / 0.2 / 0.2 at n = 32
// and 0.2 / 0.3 / 0.1 at 48, times n columns 0.9 / 0.8 / 1.0 and 1.1 / 1.0 / 0.9; of single
// matrices times one column 1.1 / 1.1 / 1.1 and 1.5 / 1.5 / 1.8, times n columns 0.8 to 0.95. JAX's
// ormqr, which calls LAPACK's, takes 5 to 37 times as long in batches at n = 6 to 24, 3.3 to 10 at
// 40 and 48, and 28 to 68 there times one column (AMD EPYC with AVX-512, two cores, 24 November
// 2026). Of larger matrices, times few columns, the time of tiles over that of one per lane is in
// batches of 64, times one column, 4.2 / 2.5 / 3.8 at n = 56, 2.9 / 2.2 / 2.9 at 96 and 2.1 / 1.4
// / 2.9 at 128, and 3.1 / 2.6 / 4.1 of 16 reflectors there; times 8 columns 1.8 / 1.05 / 1.6 at 96,
// times 16 about 1 at 64; of single matrices 0.3 to 0.9, or 20 to 110 microseconds more (E, quiet,
// 25 November).
inline constexpr int64_t kSmallOrmqr = 48;
inline constexpr int64_t kSmallOrmqrOfFewColumns = 128, kFewOrmqrColumns = 8;
// With pivots: 3.8 / 4.7 in batches at n = 32, 0.8 / 3.8 at 48 (X).
inline constexpr int64_t kSmallPivotedQr = 32;
// Up to this many reflectors LAPACK's blocked routines call the unblocked ones, after some
// bookkeeping that takes longer than a tiny matrix: those are called directly. 128 is the crossover
// point that LAPACK's ILAENV names.
inline constexpr int64_t kUnblockedReflectors = 128;

// Eigenvalues and eigenvectors of Hermitian matrices: in batches of 16 and 64 the time of one per
// lane over that of tiles is, with vectors, in float64 0.9 to 1.1 at n = 64, 1.1 to 2 at 80 and 1.2
// to 1.5 at 96, in complex128 1.0 at 64 and 80 and 1.1 to 1.3 at 96; in float32 and complex64,
// whose tridiagonal matrices are solved in double precision, 0.85 and 0.9 at 96; of single
// matrices 1.2 to 1.5 at 48 and 1.2 to 2.1 at 96. Of eigenvalues alone it is 0.5 to 0.9 at 96 and
// about 1 at 112 and 128. LAPACK's over theirs is, on one thread, with vectors / without, 2.9 / 2.2
// in float64 and 2.3 / 2.5 in complex128 at n = 128; 2.4 / 1.9 and 1.8 / 1.8 at 256; 2.0 / 1.6
// and 1.6 / 1.6 at 512; 1.4 / 1.5 and 1.5 / 1.6 at 1024; with vectors, in batches of 16, 2.4 in
// float32 and 2.8 in complex64 at 128, and 2.1 and 1.9 at 256 (E). Of single matrices, which two
// threads share, JAX's time over tiles' is, with vectors / without, in float64 1.3 / 2.7 at n =
// 512, 1.35 / 2.3 at 1024 and 1.4 / 3.5 at 2048, in float32 1.15 / 2.6, 1.3 / 2.5 and 1.1 / 3.4,
// with vectors in complex64 1.3 and in complex128 1.6 at 1024 (E, quiet, 25 November). Beyond,
// tiles take more than twice LAPACK's memory.
inline constexpr int64_t kSmallEigh = 96;
inline constexpr int64_t kSmallEighDouble = 72;
inline constexpr int64_t kSmallEigvalsh = 96;
inline constexpr int64_t kBlockedEigh = 2048;
// From this n on, eigenvalues are refined: with vectors by these, without, where those of float32
// and complex64 are iterated for in float64, at the cost of 1.1 to 1.35 times the time in batches
// at n = 16 to 64. Below 16 the errors that add up are about as large as LAPACK's (E).
inline constexpr int64_t kLeastRefinedEigh = 8;
inline constexpr int64_t kLeastRefinedEigvalsh = 16;
// Of tridiagonal matrices: LAPACK's time over tiles' is, on one thread, with vectors / without, in
// float32 4.2 / 1.9 at n = 48, 4.4 / 2.9 at 128, 3.6 / 3.3 at 256 and 2.7 / 3.3 at 512, in
// float64 3.6 / 1.6, 3.2 / 1.8, 2.3 / 1.7 and 1.9 / 1.8; without vectors it is 0.9 at 20 to 32 (E).
inline constexpr int64_t kLeastBlockedTridiagonal = 40;

// Eigenvalues of other matrices, and Schur forms: 5.8 / 4.0 in batches at n = 32, 3.1 / 2.0 at 64;
// Hessenberg forms: 5.3 / 2.7 at 32, 2.5 / 0.7 at 64. Single matrices are level or faster (X).
inline constexpr int64_t kSmallEig = 64;
inline constexpr int64_t kSmallHessenberg = 32;

// Singular values and vectors, one per lane: the time of tiles over that of QR iteration is, on one
// thread, in batches / of single matrices, in float32 4.4 / 0.96 at n = 24, 2.8 / 0.70 at 30, 2.1
// / 0.68 at 32 and 2.1 / 0.60 at 44, in float64 2.6 / 0.77 at 20, 2.1 / 0.71 at 24 and 1.6 / 0.56
// at 28, in complex64 3.4 / 0.88 at 24, 2.5 / 0.73 at 30 and 1.4 / 0.71 at 32, in complex128 2.2
// / 0.81 at 20, 2.0 / 0.80 at 24 and 1.6 / 0.66 at 28 (AMD EPYC with AVX-512, 25 November 2026,
// quiet, the least of five; the classes alone, with their copies). LAPACK's time over tiles' is, on
// one thread, with vectors / without, 2.2 to 3.4 / 1.6 to 5 at n = 48 to 128 in float32, 2.5 to 6
// / 1.8 to 6 in float64, 1.5 to 2.3 / 2.3 to 3.6 at 256 and 512; of tall matrices with 8 columns or
// more, and of wide ones, 1.8 to 8 / 1.7 to 10, with 4 columns 0.2 (200,000 rows) to 2.2, with
// fewer 0.5 to 0.9 (E). Of single matrices, which two threads share, JAX's over tiles' is in
// float64 2.3 / 2.3 at n = 512, 1.8 / 1.55 at 1024 and 1.5 / 1.7 at 2048, in float32 1.9 / 2.0, 1.8
// / 1.9 and 1.15 / 2.35 (E, quiet, 25 November).
inline constexpr int64_t kSmallSvd = 32;
inline constexpr int64_t kSmallSvdComplex64 = 31;
inline constexpr int64_t kSmallSvdFloat64 = 24;
inline constexpr int64_t kSmallSvdComplex128 = 24;
inline constexpr int64_t kLeastBlockedSvd = 8;
inline constexpr int64_t kBlockedSvd = 2048;
inline constexpr int64_t kBlockedSvdBytes = 64 << 20;
// Singular values alone: 8.2 / 2.6 in batches at n = 32 (X); one per lane over tiles, in batches,
// is 0.5 at 32 and 0.3 at 40 in float32, 0.3 at 24 and 0.9 at 32 in float64 (E).
inline constexpr int64_t kSmallSvdvals = 32;
inline constexpr int64_t kSmallSvdvalsDouble = 24;
// Up to this n one-sided Jacobi finds those of float32 and complex64 sooner than QR iteration, in
// 0.6 of the time at n = 8 in float32 and 0.4 at n = 4, batches of 4096 (X, quiet).
inline constexpr int64_t kJacobiSvdvals = 8;
// With vectors, up to this shorter side: the time of one-sided Jacobi over that of QR iteration is,
// in batches / of single matrices, in float32 1.0 / 0.87 at n = 8, 1.14 / 1.06 at 10, 1.4 / 1.3 to
// 1.5 at 16 and 1.7 to 2.2 / 1.4 to 1.7 at 24, in float64 1.1 / 0.91 at 6, 1.2 / 0.98 at 7, 1.6 to
// 1.7 / 1.6 to 1.7 at 16 and 1.7 to 1.9 / 1.8 at 24, in complex64 1.2 / 0.8 at 6, 1.3 / 0.84 at 7
// and 1.8 / 1.6 at 16, in complex128 1.0 / 0.74 at 4, 1.2 / 0.9 at 5 and 2.2 / 1.9 at 16 (as the
// figures of tiles above).
inline constexpr int64_t kJacobiSvd = 9;
inline constexpr int64_t kJacobiSvdComplex64 = 6;
inline constexpr int64_t kJacobiSvdFloat64 = 6;
inline constexpr int64_t kJacobiSvdComplex128 = 4;

template <class T>
inline constexpr bool kIsDouble = std::is_same_v<Real<T>, double>;

// The cut-off for numbers T, given one for each dtype.
template <class T>
constexpr int64_t ForDtype(int64_t float32, int64_t complex64, int64_t float64,
                           int64_t complex128) {
  if (kIsDouble<T>) return kIsComplex<T> ? complex128 : float64;
  return kIsComplex<T> ? complex64 : float32;
}

// A group of matrices that takes more memory than this runs in registers of half the width, and so
// in half of it.
inline constexpr int64_t kWideGroupBytes = 48 << 10;
// The same of singular vectors, of which few passes reach more than the second-level cache holds:
// full width is 1.1 times as fast up to n = 30, and 0.8 at 32 in float32 (as above).
inline constexpr int64_t kWideSvdGroupBytes = 420 << 10;

// A group of at most so many bytes is worked on upon the stack.
inline constexpr int64_t kStackBytes = 8192;

// Sides of the blocks of passes over a matrix, which the first-level cache holds.
inline constexpr int64_t kCacheBlock = 16;

// A matrix in tiles that takes one thread less than this is left to it. Shared by two threads, of
// one matrix n = 256, 384 and 512 take, of the time that one thread takes, LU 1.23, 0.94 and 0.79
// in float32 and 1.12, 1.14 and 0.73 in float64, Cholesky 2.2, 1.8 and 0.83 and 1.13, 0.84 and
// 0.74, inverses 0.91, 0.75 and 0.68 and 0.75, 0.72 and 0.65 (AMD EPYC with AVX-512, two cores, 23
// November 2026; one build after the other).
inline constexpr double kSharedNanoseconds = 700e3;

// A call that takes less than this is over before a processor runs at full speed with its widest
// registers.
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

// The same of LU factors.
template <class T>
double BlockedLuNanoseconds(int64_t rows, int64_t cols) {
  const double m = static_cast<double>(rows), k = static_cast<double>(std::min(rows, cols));
  return BlockedNanoseconds<T>(m * static_cast<double>(cols) * k / 4);
}

// The same of eigenvalues, and of eigenvectors if they are wanted.
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
