// Kernels that run a job over a batch, one matrix per thread or per team of threads, and passes
// over all elements of a batch.
#pragma once

#include "kernels/cuda/job.h"

namespace linalg::cuda {

// One matrix per thread. The block loads its matrices together, each thread works on one, and the
// block stores the results together. So global memory is read and written in whole lines. A job
// that runs on a block rather than on a slice distributes its `matrices` itself.
template <class Job>
__global__ void __launch_bounds__(kBlockThreads, kResidentThreads / kBlockThreads)
    RunThreads(const Job job, int64_t batch, int matrices, int64_t bytes) {
  extern __shared__ __align__(16) char memory[];
  const int64_t step = static_cast<int64_t>(gridDim.x) * matrices;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * matrices; first < batch; first += step) {
    const int64_t left = batch - first;
    const int count = left < matrices ? static_cast<int>(left) : matrices;
    const Block block{.first = first, .count = count, .memory = memory, .slice_bytes = bytes};
    job.Load(block);
    FinishCopies();
    __syncthreads();
    if constexpr (requires { job.Run(block); }) {
      job.Run(block);
    } else {
      if (static_cast<int>(threadIdx.x) < count) job.Run(block.Slice(threadIdx.x));
    }
    __syncthreads();
    job.Store(block);
    __syncthreads();
  }
}

// One matrix per team. If kGlobal is true, a block's slices are in `global` memory, and a job may
// take shared memory besides. Otherwise `global` is unused.
template <bool kGlobal, class Job>
__global__ void __launch_bounds__(Job::kMostThreads, kResidentThreads / Job::kMostThreads)
    RunTeams(const Job job, int64_t batch, int team_size, int64_t bytes, char* global) {
  extern __shared__ __align__(16) char memory[];
  __shared__ __align__(16) char reduction[kReductionBytes];
  const Team team(team_size, reduction);
  const int teams = blockDim.x / team_size, mine = threadIdx.x / team_size;
  const int64_t step = static_cast<int64_t>(gridDim.x) * teams;
  char* const slices = kGlobal ? global + blockIdx.x * teams * bytes : memory;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * teams + mine; i < batch; i += step) {
    if constexpr (requires { job.Run(team, i, slices, memory); }) {
      job.Run(team, i, slices + mine * bytes, memory);
    } else {
      job.Run(team, i, slices + mine * bytes);
    }
  }
}

// Each team of a warp's threads takes one matrix. The warp's teams work side by side. If a warp has
// more teams than there are matrices left, several work on the last matrix, to the same results.
template <class Job>
__global__ void __launch_bounds__(kBlockThreads, Job::Shape::kResident / kBlockThreads)
    RunWarps(const Job job, int64_t batch, int64_t bytes) {
  extern __shared__ __align__(16) char memory[];
  constexpr int kTeams = 32 / Job::Shape::kThreads;
  const WarpTeam<Job::Shape::kThreads> team;
  const int teams = blockDim.x / Job::Shape::kThreads, mine = threadIdx.x / Job::Shape::kThreads;
  const int64_t step = static_cast<int64_t>(gridDim.x) * teams;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * teams + mine / kTeams * kTeams;
       first < batch; first += step) {
    const int64_t i = first + mine % kTeams;
    job.Run(team, i < batch ? i : batch - 1, memory + mine * bytes);
  }
}

// Launches at most as many blocks as CUDA allows. Kernels go on from one matrix to the next.
template <class... Parameters, class... Arguments>
void Launch(cudaStream_t stream, int64_t blocks, int threads, int64_t bytes,
            void (*kernel)(Parameters...), const Arguments&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim =
      static_cast<unsigned>(std::min<int64_t>(blocks, std::numeric_limits<int>::max()));
  config.blockDim = threads;
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  Check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...),
        "launching a kernel");
}

// Teams per block, each with `bytes` of shared memory. A team of more than a warp has its own
// block.
inline int TeamsPerBlock(int64_t batch, int team_size, int64_t bytes) {
  if (team_size > 32) return 1;
  int teams = kBlockThreads / team_size;
  while (teams > 1 &&
         (teams * bytes > kBlockBytes || (batch + teams - 1) / teams < kBlocksWanted)) {
    teams /= 2;
  }
  return teams;
}

// Always sets the GPU's limit: the setting belongs to the kernel, which other threads launch too.
template <class Kernel>
void AllowShared(Kernel* kernel, int64_t bytes) {
  const int64_t most = SharedBytes();
  if (bytes > most) {
    throw std::length_error("a matrix is too large for the shared memory of this GPU");
  }
  Check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most)),
        "cudaFuncSetAttribute");
}

// `parts` of each matrix can be distributed. Each part gets a thread, up to the number in a block.
template <class Job>
void LaunchThreads(cudaStream_t stream, const Job& job, int64_t batch, const SharedLayout& layout,
                   int parts = 1) {
  if (batch == 0) return;
  const int matrices = TeamsPerBlock(batch, parts, layout.bytes());
  const int64_t bytes = matrices * layout.bytes();
  if (bytes > kBlockBytes) AllowShared(&RunThreads<Job>, bytes);
  Launch(stream, (batch + matrices - 1) / matrices, std::min(matrices * parts, kBlockThreads),
         bytes, &RunThreads<Job>, job, batch, matrices, layout.bytes());
}

template <class Job>
void LaunchTeams(cudaStream_t stream, const Job& job, int64_t batch, int team_size,
                 const SharedLayout& layout) {
  if (batch == 0) return;
  const int teams = TeamsPerBlock(batch, team_size, layout.bytes());
  const int64_t bytes = teams * layout.bytes();
  if (bytes + kReductionBytes > kBlockBytes) AllowShared(&RunTeams<false, Job>, bytes);
  Launch(stream, (batch + teams - 1) / teams, teams * team_size, bytes, &RunTeams<false, Job>, job,
         batch, team_size, layout.bytes(), nullptr);
}

// Slices lie so far apart that the teams of a warp, at the same offset of each, use different
// banks.
template <class Job>
void LaunchWarps(cudaStream_t stream, const Job& job, int64_t batch, const SharedLayout& layout) {
  if (batch == 0) return;
  constexpr int64_t kThreads = Job::Shape::kThreads, kWord = 4, kBanks = 32;
  const int64_t rounds = (layout.bytes() + kBanks * kWord - 1) / (kBanks * kWord);
  const int64_t bytes = (rounds * kBanks + kThreads % kBanks) * kWord;
  const int teams = std::max<int>(TeamsPerBlock(batch, kThreads, bytes), kBanks / kThreads);
  if (teams * bytes > kBlockBytes) AllowShared(&RunWarps<Job>, teams * bytes);
  Launch(stream, (batch + teams - 1) / teams, teams * kThreads, teams * bytes, &RunWarps<Job>, job,
         batch, bytes);
}

// LaunchTeams for slices in scratch memory, for at most kGlobalBlocks blocks. The job gets `bytes`
// of shared memory.
template <class Job>
void LaunchTeamsInGlobal(cudaStream_t stream, DeviceScratch& scratch, const Job& job, int64_t batch,
                         int team_size, const SharedLayout& layout, int64_t bytes = 0) {
  if (batch == 0) return;
  const int64_t blocks = std::min(batch, kGlobalBlocks);
  char* const global = scratch.Take<char>(blocks * layout.bytes());
  if (bytes + kReductionBytes > kBlockBytes) AllowShared(&RunTeams<true, Job>, bytes);
  Launch(stream, blocks, team_size, bytes, &RunTeams<true, Job>, job, batch, team_size,
         layout.bytes(), global);
}

// LaunchTeams, or LaunchTeamsInGlobal where slices are too large for shared memory.
template <class Job>
void LaunchTeamsAnywhere(cudaStream_t stream, DeviceScratch& scratch, const Job& job, int64_t batch,
                         int team_size, const SharedLayout& layout) {
  if (batch == 0) return;
  if (layout.bytes() <= SharedBytes()) {
    return LaunchTeams(stream, job, batch, team_size, layout);
  }
  LaunchTeamsInGlobal(stream, scratch, job, batch, team_size, layout);
}

template <class Body>
__global__ void __launch_bounds__(kForEachThreads, kResidentThreads / kForEachThreads)
    RunForEach(const Body body, int64_t count) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    body(i);
  }
}

// body(i) for i in [0, count)
template <class Body>
void ForEach(cudaStream_t stream, int64_t count, const Body& body) {
  if (count == 0) return;
  const int64_t blocks = std::min((count + kForEachThreads - 1) / kForEachThreads, kForEachBlocks);
  Launch(stream, blocks, kForEachThreads, 0, &RunForEach<Body>, body, count);
}

template <class E>
__global__ void __launch_bounds__(kTransposeThreads)
    RunTranspose(int64_t batch, int64_t rows, int64_t cols, const MatrixElements tiles,
                 const E* source, int64_t source_size, E* target, int64_t target_size) {
  __shared__ __align__(16) char memory[kTransposeTile * (kTransposeTile + 1) * sizeof(E)];
  E* const tile = reinterpret_cast<E*>(memory);
  constexpr int kPitch = kTransposeTile + 1;
  const int64_t row_tiles = (rows + kTransposeTile - 1) / kTransposeTile;
  const int64_t col_tiles = (cols + kTransposeTile - 1) / kTransposeTile;
  const int along = threadIdx.x % kTransposeTile, step = blockDim.x / kTransposeTile;
  const int64_t count = batch * row_tiles * col_tiles;
  for (int64_t block = blockIdx.x; block < count; block += gridDim.x) {
    const auto [matrix, row_tile, col_tile] = tiles(block);
    const int64_t i0 = row_tile * kTransposeTile, j0 = col_tile * kTransposeTile;
    const E* const from = source + matrix * source_size;
    E* const to = target + matrix * target_size;
    for (int i = threadIdx.x / kTransposeTile; i < kTransposeTile; i += step) {
      if (i0 + i < rows && j0 + along < cols) {
        tile[i * kPitch + along] = LoadGlobal(from + (i0 + i) * cols + j0 + along);
      }
    }
    __syncthreads();
    for (int j = threadIdx.x / kTransposeTile; j < kTransposeTile; j += step) {
      if (j0 + j < cols && i0 + along < rows) {
        StoreGlobal<E>(tile[along * kPitch + j], to + (j0 + j) * rows + i0 + along);
      }
    }
    __syncthreads();
  }
}

// Transposes row-major (rows, cols) matrices, which lie `source_size` elements apart, to ones that
// lie `target_size` apart.
template <class T>
void Transpose(cudaStream_t stream, int64_t batch, int64_t rows, int64_t cols, const T* source,
               int64_t source_size, T* target, int64_t target_size) {
  const int64_t row_tiles = (rows + kTransposeTile - 1) / kTransposeTile;
  const int64_t col_tiles = (cols + kTransposeTile - 1) / kTransposeTile;
  const int64_t tiles = batch * row_tiles * col_tiles;
  if (tiles == 0) return;
  Launch(stream, tiles, kTransposeThreads, 0, &RunTranspose<Element<T>>, batch, rows, cols,
         MatrixElements(row_tiles, col_tiles), AsElements(source), source_size, AsElements(target),
         target_size);
}

}  // namespace linalg::cuda
