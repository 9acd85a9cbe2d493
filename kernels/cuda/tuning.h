// Every cut-off of the CUDA handlers, and their choice of paths. Those that are called measured are
// from an H100 (batches of 20000 to 200000 matrices, 22 November 2026); the others are estimates
// from the sizes of its registers and shared memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

namespace linalg::cuda {

// A matrix of at most so many bytes, with what is solved with it, is worked on by one thread.
// Measured against threads of a warp that hold rows in registers: at n = 8 a thread takes 0.4 to
// 0.8 of their time, in float32 at n = 12 as much for LU and 0.7 for Cholesky, at n = 16 1.4 to 3
// times. Substitution is not done so.
template <class E>
inline constexpr int64_t kThreadBytes = sizeof(E) == 4 ? 576 : 1152;
template <class E>
inline constexpr int64_t kThreadCholeskyBytes = sizeof(E) == 4 ? 784 : 1152;
inline constexpr int64_t kThreadTriangularBytes = 1152;
// QR, SVD and eigh by one thread hold several arrays for each matrix: at most so many bytes
// together. Measured: QR takes 0.4 of a team's time at n = 10 and 0.75 at n = 14, SVD 0.6 at n = 6
// and 1.5 at n = 8; eigh's cut-off is an estimate.
inline constexpr int64_t kThreadQrBytes = 1664;
inline constexpr int64_t kThreadSvdBytes = 768;
inline constexpr int64_t kThreadEighBytes = 1536;

// Such threads have so many rows each, in 64 registers, or in 128 from n = 33 on, and take LU, and
// what is solved with it, up to so many rows and columns. Measured against a team that goes panel
// by panel in shared memory: at n = 16 to 32 they take 0.3 to 0.45 of its time for LU and inverses
// in float32 and 0.4 to 0.65 in float64; at n = 48 as much for LU and 0.6 for inverses, at n = 64
// 0.78 and 0.53.
template <class E>
inline constexpr int kRowsOfThread = sizeof(E) == 4 ? 2 : 1;
template <class E>
inline constexpr int kWarpLu = sizeof(E) == 4   ? 64
                               : sizeof(E) == 8 ? 32
                                                : 16;
// Cholesky factors: 0.55 to 0.8 of the time at n = 17 to 32 in float32 and 0.85 to 0.97 in float64,
// but 1.8 times at n = 48.
template <class E>
inline constexpr int kWarpCholesky = sizeof(E) <= 8 ? 32 : 16;

// The largest n of square matrices that a team of threads works on in shared memory, and the
// largest shorter side of others; beyond, and where the GPU has not that much, the vendor's
// routines. An H100 has 227 KiB for a block, and holds a matrix of n = 128 in all dtypes but
// complex128, and there one of n = 119; other GPUs have 163 or 99 KiB.
inline constexpr int64_t kTeamCholesky = 128;
inline constexpr int64_t kTeamLu = 128;
inline constexpr int64_t kTeamTriangular = 128;
// What a team's larger arrays may take for it to be known, before the GPU is, that all of them fit.
inline constexpr int64_t kTeamAnywhereBytes = 64 << 10;
// Right-hand sides of one matrix that a team takes at a time: at most so many where the factors are
// given, and where there is not room for as many as that, at least so many.
inline constexpr int64_t kColumnsOfTeam = 64;
inline constexpr int64_t kLeastColumnsOfTeam = 16;
// And where a matrix is factored for them.
inline constexpr int64_t kColumnsOfSolve = 128;
// eigh as far as shared memory goes, too: in float64 n = 128 takes most of a multiprocessor's, in
// complex128 there is room for n = 117.
inline constexpr int64_t kTeamEigh = 128;
// Rotations and sweeps of the QL iteration that are noted before they are applied. Random matrices
// of n = 16 to 128 take 1.3 to 1.0 n² rotations in float32, 1.4 to 1.15 n² in float64, and 2.0 to
// 2.6 n sweeps; where there is no room, the team goes on by itself.
inline int64_t RecordedRotations(int64_t n) { return n * n + n * n / 4 + 8 * n; }
inline int64_t RecordedSweeps(int64_t n) { return 3 * n + 8; }
// Scratch memory for the notes, a matrix's being somewhat larger than the matrix: a larger batch is
// worked on piece by piece, each of which waits for a whole chain of steps.
inline constexpr int64_t kEighNotesBytes = int64_t{512} << 20;

// SVD of matrices whose shorter side is within this, which fill at most so many bytes with their
// vectors.
inline constexpr int64_t kTeamSvd = 64;
inline constexpr int64_t kTeamSvdBytes = 160 << 10;
// A block each in global memory takes those whose U, or V of a wide one, has at most so many
// elements.
inline constexpr int64_t kGlobalSvdElements = 260 * 260;
// The vendor's Jacobi method up to this longer side, as stock JAX chooses it.
inline constexpr int64_t kVendorJacobiSvd = 1024;

// QR of matrices that fill at most so many bytes of shared memory, of any shape.
inline constexpr int64_t kTeamQrBytes = 160 << 10;

// From this batch on, matrices that are larger than a team takes in shared memory are worked on by
// a block each in global memory; below, one after another by the vendor's routine, which has no
// batched one.
inline constexpr int64_t kGlobalBatch = 24;

// The largest n of general eigenproblems that a team works on whatever the batch.
inline constexpr int64_t kTeamEig = 64;

// QR in such a batch goes there if a matrix has at most so many bytes for each matrix of the batch,
// and at most so many whatever the batch: an estimate, below what a model says (docs/cuda.md).
inline constexpr int64_t kGlobalQrBytesOfBatch = 64 << 10;
inline constexpr int64_t kGlobalQrBytes = 4 << 20;

// Blocks that work in global memory at a time, two on each multiprocessor of an H200, and their
// threads.
inline constexpr int64_t kGlobalBlocks = 2 * 132;
inline constexpr int kGlobalThreads = 256;

// Tridiagonal systems of at least so many rows, in a batch of at most so many, have many threads
// each, which takes several launches and some four times the memory traffic of a thread each.
inline constexpr int64_t kLongTridiagonal = 64;
inline constexpr int64_t kFewTridiagonal = 4096;
// Runs of rows that a thread joins, one after another, at each level of the reduction: a smaller
// number makes more levels, of two launches each.
inline constexpr int kTridiagonalRuns = 8;

// What works on a matrix: a thread, threads of a warp that hold its rows, a team of threads in
// shared memory, a block in shared or global memory, or several launches, of the vendor's routines
// or ours.
enum class GpuPath { kThread, kWarp, kTeam, kBlock, kVendor, kSteps };

// The paths of matrices of numbers E. `bytes` are those of what one thread works in, of a team all
// but its smaller arrays, and `shared` those that a block may have; fits() is whether all that a
// team works in fits in there, and asked of no matrix that is too large for a team anyway.
template <class E, class Fits>
GpuPath ChooseCholesky(int64_t n, Fits&& fits) {
  if (n * n * static_cast<int64_t>(sizeof(E)) <= kThreadCholeskyBytes<E>) return GpuPath::kThread;
  if (n <= kWarpCholesky<E>) return GpuPath::kWarp;
  return n <= kTeamCholesky && fits() ? GpuPath::kTeam : GpuPath::kVendor;
}

// Of LU, and determinants.
template <class E, class Fits>
GpuPath ChooseLu(int64_t rows, int64_t cols, int64_t bytes, Fits&& fits) {
  if (bytes <= kThreadBytes<E>) return GpuPath::kThread;
  if (std::max(rows, cols) <= kWarpLu<E>) return GpuPath::kWarp;
  return std::min(rows, cols) <= kTeamLu && fits() ? GpuPath::kTeam : GpuPath::kVendor;
}

// With `cols` right-hand sides, or columns of the inverse. One matrix for the whole batch,
// `shared`, is factored once, which takes steps.
template <class E, class Fits>
GpuPath ChooseSolve(int64_t n, int64_t cols, bool shared, Fits&& fits) {
  if (shared) return GpuPath::kSteps;
  const int64_t bytes = (n * n + n * cols) * static_cast<int64_t>(sizeof(E));
  if (bytes > kThreadBytes<E> && cols > kColumnsOfSolve) return GpuPath::kSteps;
  const GpuPath path = ChooseLu<E>(n, n, bytes, fits);
  return path == GpuPath::kVendor ? GpuPath::kSteps : path;
}

// Right-hand sides that a team takes at a time, where there is room for so many.
inline int64_t RhsOfTeam(int64_t nrhs, int64_t room) {
  return std::min({nrhs, kColumnsOfTeam, room});
}

// Of given factors, which go to cuBLAS where they are column-major; room() is the number of
// right-hand sides that there is room for beside them.
template <class Room>
GpuPath ChooseSubstitution(int64_t n, int64_t nrhs, int64_t bytes, bool column_major, Room&& room) {
  if (column_major) return GpuPath::kVendor;
  if (bytes <= kThreadTriangularBytes) return GpuPath::kThread;
  const int64_t least = std::min(nrhs, kLeastColumnsOfTeam);
  return n <= kTeamTriangular && RhsOfTeam(nrhs, room()) >= least ? GpuPath::kTeam
                                                                  : GpuPath::kVendor;
}

// The iteration of a thread wants a last row. Eigenvalues alone have the same cut-off, and the same
// bits.
template <class Fits>
GpuPath ChooseEigh(int64_t n, int64_t bytes, Fits&& fits) {
  if (n > 0 && bytes <= kThreadEighBytes) return GpuPath::kThread;
  return n <= kTeamEigh && fits() ? GpuPath::kTeam : GpuPath::kVendor;
}

// `u_size` is the number of elements of U, or V of a wide matrix.
inline GpuPath ChooseSvd(int64_t m, int64_t n, int64_t alone_bytes, int64_t bytes, int64_t u_size,
                         int64_t batch, int64_t shared) {
  if (m == n && alone_bytes <= kThreadSvdBytes) return GpuPath::kThread;
  if (std::min(m, n) <= kTeamSvd && bytes <= std::min(kTeamSvdBytes, shared)) return GpuPath::kTeam;
  return batch >= kGlobalBatch && u_size <= kGlobalSvdElements ? GpuPath::kBlock : GpuPath::kVendor;
}

// With column pivoting, which the vendor has not, or without; of `count` reflectors.
inline GpuPath ChooseQr(bool pivoted, int64_t count, int64_t alone_bytes, int64_t bytes,
                        int64_t batch, int64_t shared) {
  if (!pivoted && alone_bytes <= kThreadQrBytes) return GpuPath::kThread;
  if (bytes <= std::min(kTeamQrBytes, shared)) return GpuPath::kTeam;
  const bool many =
      batch >= kGlobalBatch && bytes <= std::min(batch * kGlobalQrBytesOfBatch, kGlobalQrBytes);
  return pivoted || count == 0 || many ? GpuPath::kBlock : GpuPath::kVendor;
}

// Tridiagonal systems with `cols` right-hand sides; pivots are perturbed by elimination alone.
inline GpuPath ChooseTridiagonal(int64_t n, int64_t cols, int64_t batch, bool perturb) {
  const bool is_long = n >= kLongTridiagonal && batch <= kFewTridiagonal && cols > 0;
  return is_long && !perturb ? GpuPath::kSteps : GpuPath::kThread;
}

// Left eigenvectors are not the vendor's. Hessenberg and Schur forms have a team each, in shared or
// global memory, and nothing to choose.
inline GpuPath ChooseEig(int64_t n, bool left, int64_t batch) {
  if (n <= kTeamEig) return GpuPath::kTeam;
  return left || batch >= kGlobalBatch ? GpuPath::kBlock : GpuPath::kVendor;
}

// Of products: by tiles in shared memory, or a thread for each element.
template <class Fits>
GpuPath ChooseMatmul(Fits&& fits) {
  return fits() ? GpuPath::kTeam : GpuPath::kThread;
}

// What works on the matrices of a path.
template <class Body>
struct On {
  GpuPath path;
  Body run;
};
template <class Body>
On(GpuPath, Body) -> On<Body>;

// Does what works on a matrix of that path. An operation names those that it has; for it to be sent
// to another is an error.
template <class... Bodies>
void LaunchOnPath(GpuPath path, const On<Bodies>&... ways) {
  const auto take = [&](const auto& way) {
    if (way.path != path) return false;
    way.run();
    return true;
  };
  if (!(take(ways) || ...)) throw std::logic_error("there are no kernels for this path");
}

// Threads of a team for matrices whose longer side is n.
inline int TeamSize(int64_t n) {
  if (n <= 4) return 4;
  if (n <= 8) return 8;
  if (n <= 16) return 16;
  return n <= 32 ? 32 : 128;
}

// The same for Cholesky, LU and what is solved with them, of matrices that take so many bytes: few
// barriers, and much to do between them, so that a warp is enough where a multiprocessor holds a
// dozen of the matrices; of fewer each has more threads.
inline int PanelTeamSize(int64_t n, int64_t bytes) {
  if (n <= 16) return TeamSize(n);
  int size = bytes <= 19 << 10 ? 32 : bytes <= 38 << 10 ? 64 : 128;
  // A long side is shared by more: a thread has four of its elements.
  while (size < 128 && n > 4 * size) size *= 2;
  return size;
}

// The same in kernels for any n.
inline int LargeTeamSize(int64_t n) { return n <= 128 ? TeamSize(n) : kGlobalThreads; }

// The same for QR and for SVD, whose threads share the columns and then the rows. Measured in
// float32 at n = 16 to 128: the next smaller team takes longer at the end of its range, from 32
// threads on. A team of 64 has a block to itself: two in one, as they were measured, wait for each
// other at its barriers.
//
// A multiprocessor's 227 KiB hold a single matrix of more than half of that: it has then all the
// threads that there may be, eight warps rather than four. Not measured.
inline constexpr int64_t kWholeMultiprocessorBytes = 227 * 1024 / 2;
inline int SvdTeamSize(int64_t rows, int64_t cols, int64_t bytes) {
  if (rows * cols <= 16 * 16) return TeamSize(rows < cols ? rows : cols);
  if (rows * cols <= 32 * 32) return 32;
  if (bytes > kWholeMultiprocessorBytes) return kGlobalThreads;
  return rows * cols <= 64 * 64 ? 64 : 128;
}
inline int QrTeamSize(int64_t rows, int64_t cols, int64_t bytes) {
  const bool halved = rows * cols > 16 * 16 && rows * cols <= 48 * 48;
  return SvdTeamSize(rows, cols, bytes) / (halved ? 2 : 1);
}

// The same for eigh, given the bytes of a matrix: the threads of a warp have two rows each before
// another warp gains anything, unless so few matrices fit into a multiprocessor's 227 KiB that it
// would be short of warps.
inline int EighTeamSize(int64_t n, int64_t bytes) {
  if (n <= 32) return TeamSize(n);
  if (bytes <= 227 * 1024 / 6) return 32;
  return bytes <= 227 * 1024 / 3 ? 64 : 128;
}

// Threads of a block, unless its team is larger.
inline constexpr int kBlockThreads = 128;
// Threads of a multiprocessor that registers must suffice for, 128 each: ptxas, where it is not
// told so, takes fewer and spills some.
inline constexpr int kResidentThreads = 512;

// What jobs for threads of a warp are made with: of at most kSize rows and columns, each thread
// holding kRows of them.
template <class E, int kSize>
struct WarpShape {
  static constexpr int kRows = kRowsOfThread<E>, kThreads = kSize / kRows;
  // Threads of a multiprocessor that registers must suffice for.
  static constexpr int kResident = kSize > 32 ? kResidentThreads / 2 : kResidentThreads;
};

// launch(size): with the compiled number of rows and columns, at most kMost, that is enough for
// `needed` of them.
template <int kMost, class Launch>
void WithWarpShape(int64_t needed, Launch&& launch) {
  if (needed <= 16) {
    launch(std::integral_constant<int, 16>{});
  } else if (needed <= 32) {
    launch(std::integral_constant<int, std::min(kMost, 32)>{});
  } else {
    launch(std::integral_constant<int, kMost>{});
  }
}

// A block takes fewer teams than it has threads for rather than more shared memory than this, so
// that several blocks share a multiprocessor; and rather than leave multiprocessors idle.
inline constexpr int64_t kBlockBytes = 48 << 10;
inline constexpr int64_t kBlocksWanted = 256;

// Pivots become a permutation in shared memory where both take at most this.
inline constexpr int64_t kPermutationBytes = kBlockBytes / 2;
// Threads that load and store it, at most: one of them exchanges.
inline constexpr int kPermutationThreads = 32;
// Threads that read the diagonal of a factor.
inline constexpr int kDiagonalThreads = 32;

// Threads of a block of a pass over all elements of a batch, and blocks of one at most.
inline constexpr int kForEachThreads = 256;
inline constexpr int64_t kForEachBlocks = 1 << 14;

// Sides of the tiles in which matrices are transposed, and threads for each.
inline constexpr int kTransposeTile = 32;
inline constexpr int kTransposeThreads = 256;

// The vendor's batched LU and Cholesky, rather than one matrix after another, as stock JAX chooses.
// potrfBatched too, whatever the size: that it gave NaN for large ill-conditioned matrices which
// potrf factors (pytorch issue 53879) was before CUDA 11.3, and one after another takes a hundred
// times as long at n = 100. A GPU test looks for it, test_ill_conditioned_cholesky: where it fails,
// leave those sizes to potrf here.
inline bool UseBatchedRoutine(int64_t batch, int64_t n) { return batch > 1 && n / batch <= 128; }

// The vendor's SVD by Jacobi's method rather than by QR iteration, of this longer side.
inline bool UseJacobiRoutine(int64_t longer) { return longer <= kVendorJacobiSvd; }

}  // namespace linalg::cuda
