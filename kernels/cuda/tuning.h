// The crossovers of the CUDA handlers. Measurements and estimates are in benchmarks/crossovers/, in
// the file that a comment names. Constants without a file follow from the kernels.
#pragma once

#include <cstdint>
#include <type_traits>

namespace linalg::cuda {

// Bytes that one thread takes of a matrix and its right-hand sides: cuda_thread.json.
template <class E>
inline constexpr int64_t kThreadBytes = sizeof(E) == 4 ? 576 : 1152;
template <class E>
inline constexpr int64_t kThreadCholeskyBytes = sizeof(E) == 4 ? 784 : 1152;
inline constexpr int64_t kThreadTriangularBytes = 1152;
// Bytes of all arrays that one thread works in: cuda_thread_iterations.json.
inline constexpr int64_t kThreadQrBytes = 1664;
inline constexpr int64_t kThreadSvdBytes = 768;
inline constexpr int64_t kThreadEighBytes = 1536;
// The largest n of determinants with cofactors or inverses by a thread. In float64; matrices of
// other dtypes have no more bytes. Not measured against a team.
inline constexpr int64_t kThreadCofactors = 12;

// Rows in registers of a thread of a warp, and the largest side: cuda_warp.json.
template <class E>
inline constexpr int kRowsOfThread = sizeof(E) == 4 ? 2 : 1;
template <class E>
inline constexpr int kWarpLu = sizeof(E) == 4   ? 64
                               : sizeof(E) == 8 ? 32
                                                : 16;
template <class E>
inline constexpr int kWarpCholesky = sizeof(E) <= 8 ? 32 : 16;

// The largest n, or shorter side, of a team in shared memory: cuda_team.json.
inline constexpr int64_t kTeamCholesky = 128;
inline constexpr int64_t kTeamLu = 128;
inline constexpr int64_t kTeamTriangular = 128;
inline constexpr int64_t kTeamEigh = 128;
// Bytes of a team's larger arrays with which all of its arrays fit on every GPU: cuda_team.json.
inline constexpr int64_t kTeamAnywhereBytes = 64 << 10;
// Right-hand sides that a team takes at a time, at most and at least: cuda_team.json.
inline constexpr int64_t kColumnsOfTeam = 64;
inline constexpr int64_t kLeastColumnsOfTeam = 16;
// Right-hand sides of a team that factors the matrix too: cuda_team.json.
inline constexpr int64_t kColumnsOfSolve = 128;

// Columns of a panel of Cholesky, and of a group of panels. Products of the columns before a group
// are wider, so cuBLAS loads fewer bytes for each: cuda_panels_cholesky.json.
inline constexpr int kCholeskyPanel = 32;
inline constexpr int64_t kCholeskyGroup = 128;
// Rows of a panel below its diagonal block that a thread block takes, in at most 48 KiB:
// cuda_panels_cholesky.json.
template <class E>
inline constexpr int kCholeskyPanelRows = sizeof(E) > 8   ? 56
                                          : sizeof(E) > 4 ? 128
                                                          : 256;
// The largest n / batch for Cholesky by panels: cuda_panels_cholesky.json.
inline constexpr int64_t kPanelsCholeskyRatio = 512;

// The largest shorter side for LU by panels, and the rows for which 512 threads have registers:
// cuda_panels_lu.json.
inline constexpr int64_t kPanelsLu = 1024;
inline constexpr int64_t kPanelsLuRows = 2048;
// The largest n for substitution by panels: cuda_panels_lu.json.
inline constexpr int64_t kPanelsSubstitution = 1024;
// Columns of LU, or rows of substitution, that are finished before a product updates the rest:
// cuda_panels_lu.json.
template <class E>
inline constexpr int kLuPanel = std::is_floating_point_v<E> ? 64 : 32;
template <class E>
inline constexpr int kSubstitutionPanel = std::is_floating_point_v<E> ? 64 : 32;
// Shared memory in which LU and substitution by panels work. Every GPU has more.
inline constexpr int64_t kPanelsBytes = 96 << 10;

// Scratch memory for rotations that are noted before they are applied: cuda_eigh_notes.json.
inline constexpr int64_t kEighNotesBytes = int64_t{512} << 20;
// eigh by panels: the largest n, and the largest n / batch: cuda_panels_eigh.json.
inline constexpr int64_t kPanelsEigh = 1024;
inline constexpr int64_t kPanelsEighRatio = 64;
// Columns of a panel, and the largest leaf of divide and conquer: cuda_panels_eigh.json.
inline constexpr int kEighPanel = 32;
inline constexpr int kEighLeaf = 32;

// SVD by a team: the largest shorter side, and bytes of matrix and vectors: cuda_svd.json.
inline constexpr int64_t kTeamSvd = 64;
inline constexpr int64_t kTeamSvdBytes = 160 << 10;
// SVD by a block in global memory: elements of U, or of V of a wide matrix: cuda_svd.json.
inline constexpr int64_t kGlobalSvdElements = 260 * 260;
// The longest side for the vendor's Jacobi method: cuda_svd_routines.json.
inline constexpr int64_t kVendorJacobiSvd = 1024;
// The least shorter side for the polar decomposition, with vectors and without:
// cuda_svd_routines.json.
template <class T>
inline constexpr int64_t kPolarSvd = sizeof(T) == 4   ? 192
                                     : sizeof(T) == 8 ? 160
                                                      : 65;
inline constexpr int64_t kPolarSvdvals = 128;

// Jacobi's method by blocks: the largest shorter side, and the least batch: cuda_svd.json.
inline constexpr int64_t kJacobiBlocksSvd = 1024;
inline constexpr int64_t kJacobiBlocksBatch = 4;
// Sweeps over the rows of a pair of blocks in each round: cuda_svd.json.
inline constexpr int kSweepsOfPair = 2;
// Scratch memory of the matrices that are rotated together.
inline constexpr int64_t kJacobiBlocksBytes = int64_t{2} << 30;

// Bytes of a matrix for QR by a team, and its shorter side without pivoting: cuda_qr.json.
inline constexpr int64_t kTeamQrBytes = 160 << 10;
inline constexpr int64_t kTeamQr = 128;
// Bytes of a matrix for QR in global memory, where no panel fits, per matrix of the batch and at
// most: cuda_qr.json.
inline constexpr int64_t kGlobalQrBytesOfBatch = 64 << 10;
inline constexpr int64_t kGlobalQrBytes = 4 << 20;

// QR by panels: rows of a matrix, per matrix of the batch and at most; bytes of a panel in shared
// memory; columns of a panel, at most and at least: cuda_qr.json.
inline constexpr int64_t kPanelQrRowsOfBatch = 512;
inline constexpr int64_t kPanelQrRows = 3072;
inline constexpr int64_t kPanelQrBytes = 224 << 10;
inline constexpr int kPanelQrColumns = 32;
inline constexpr int kLeastPanelQrColumns = 8;
// Panels whose reflectors are joined before they change the columns beyond them: cuda_qr.json.
inline constexpr int64_t kPanelsOfBlock = 4;
// Scratch memory of matrices that go through their panels together.
inline constexpr int64_t kPanelScratchBytes = int64_t{2} << 30;

// The least batch of larger matrices that take a block each in global memory: cuda_global.json.
inline constexpr int64_t kGlobalBatch = 24;
// The largest n of general eigenproblems by a team, whatever the batch: cuda_global.json.
inline constexpr int64_t kTeamEig = 64;
// The least n of complex Schur forms in global memory with many shifts at a time:
// cuda_multishift.json.
inline constexpr int64_t kMultishiftSchur = 48;
// Blocks that work in global memory at a time, and their threads: cuda_global.json.
inline constexpr int64_t kGlobalBlocks = 2 * 132;
inline constexpr int kGlobalThreads = 256;

// Least rows and largest batch of tridiagonal systems of many threads: cuda_tridiagonal.json.
inline constexpr int64_t kLongTridiagonal = 64;
inline constexpr int64_t kFewTridiagonal = 4096;
// Runs of rows that a thread joins at each level of the reduction: cuda_tridiagonal.json.
inline constexpr int kTridiagonalRuns = 8;

// Bytes of a block of a block-tridiagonal system that one thread takes, and columns of right-hand
// sides that it takes at a time: cuda_block_tridiagonal.json.
inline constexpr int64_t kThreadBlockTridiagonalBytes = 128;
inline constexpr int64_t kColumnsOfThread = 4;

// The steps from which chunks of a general block-tridiagonal system share the GPU:
// cuda_block_tridiagonal.json.
inline constexpr int64_t kLongBlockTridiagonal = 1024;
// The largest batch of long banded systems that are solved as block-tridiagonal ones, in chunks.
// Not measured.
inline constexpr int64_t kFewBanded = 64;
// The largest batch of banded Cholesky factors, and of solves with them, by a team for each matrix;
// right-hand sides of a team; and the diagonals for which a warp is enough: cuda_banded.json.
inline constexpr int64_t kTeamBanded = 4096;
inline constexpr int64_t kBandedColumns = 16;
inline constexpr int64_t kWarpBanded = 64;
// The most diagonals for which the size of a ring is computed, so that it has 32 bits. No GPU has
// shared memory for so many.
inline constexpr int64_t kWidestBand = 512;
// In units of roundings of a block's row. A smaller pivot may be zero in another order of
// operations. A larger residual after a correction is not from rounding. Not measured.
inline constexpr int kPivotOfChunks = 16;
inline constexpr int kResidualOfChunks = 64;

// A matrix of more bytes is alone in a multiprocessor of 227 KiB: cuda_team_size.json.
inline constexpr int64_t kWholeMultiprocessorBytes = 227 * 1024 / 2;

// Threads of a block, unless its team is larger.
inline constexpr int kBlockThreads = 128;
// Threads of a multiprocessor that registers must suffice for: 128 each, or ptxas spills some.
inline constexpr int kResidentThreads = 512;
// Shared memory of a block of several teams, so that several blocks share a multiprocessor.
inline constexpr int64_t kBlockBytes = 48 << 10;
// Blocks of several teams that a batch is spread over, so that no multiprocessor is idle.
inline constexpr int64_t kBlocksWanted = 256;

// Bytes of pivots and permutation that are exchanged in shared memory.
inline constexpr int64_t kPermutationBytes = kBlockBytes / 2;
// Threads that load and store a permutation, at most: one of them exchanges.
inline constexpr int kPermutationThreads = 32;
// Threads that read the diagonal of a factor.
inline constexpr int kDiagonalThreads = 32;

// Threads of a block of a pass over all elements of a batch, and its blocks at most.
inline constexpr int kForEachThreads = 256;
inline constexpr int64_t kForEachBlocks = 1 << 14;

// Sides of the tiles in which matrices are transposed, and threads for each.
inline constexpr int kTransposeTile = 32;
inline constexpr int kTransposeThreads = 256;

// The largest n / batch for the vendor's batched LU, as stock JAX has it.
inline constexpr int64_t kBatchedRoutineRatio = 128;

}  // namespace linalg::cuda
