// How many threads work on a matrix.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/tuning.h"

namespace linalg::cuda {

// Threads of a team for matrices whose longer side is n.
inline int TeamSize(int64_t n) {
  if (n <= 4) return 4;
  if (n <= 8) return 8;
  if (n <= 16) return 16;
  return n <= 32 ? 32 : 128;
}

// Threads for Cholesky, LU and solves of matrices that take so many bytes. A warp is enough where a
// multiprocessor holds a dozen matrices, for panels have few barriers: cuda_team_size.json.
inline int PanelTeamSize(int64_t n, int64_t bytes) {
  if (n <= 16) return TeamSize(n);
  int size = bytes <= 19 << 10 ? 32 : bytes <= 38 << 10 ? 64 : 128;
  // More threads share a long side: each has four of its elements.
  while (size < 128 && n > 4 * size) size *= 2;
  return size;
}

// Threads for kernels that take any n.
inline int LargeTeamSize(int64_t n) { return n <= 128 ? TeamSize(n) : kGlobalThreads; }

// The team size of QR and SVD, whose threads share the columns and then the rows:
// cuda_team_size.json.
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

// Threads for eigh of matrices that take so many bytes. A warp's threads take two rows each before
// another warp pays, unless so few matrices share a multiprocessor that it would lack warps:
// cuda_team_size.json.
inline int EighTeamSize(int64_t n, int64_t bytes) {
  if (n <= 32) return TeamSize(n);
  if (bytes <= 227 * 1024 / 6) return 32;
  return bytes <= 227 * 1024 / 3 ? 64 : 128;
}

// The shape of jobs for threads of a warp: at most kSize rows and columns, kRows rows per thread.
// The rows take 64 registers, or 128 where kSize is above 32.
template <class E, int kSize>
struct WarpShape {
  static constexpr int kRows = kRowsOfThread<E>, kThreads = kSize / kRows;
  // Threads of a multiprocessor that registers must suffice for.
  static constexpr int kResident = kSize > 32 ? kResidentThreads / 2 : kResidentThreads;
};

// launch(size): with the smallest compiled number of rows and columns, up to kMost, that is at
// least `needed`.
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

}  // namespace linalg::cuda
