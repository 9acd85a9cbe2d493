// In place of the header of the same name: jobs run matrix after matrix, thread after thread.
// Shared memory, or global memory in its place, holds NaN at first; what lies behind it is watched.
#pragma once

#include <vector>

#include "kernels/cuda/job.h"

namespace linalg::cuda {

class SharedMemory {
 public:
  explicit SharedMemory(int64_t bytes) : bytes_(bytes), memory_(bytes + kWatched, kFill) {}
  ~SharedMemory() noexcept(false) {
    for (int i = 0; i < kWatched; ++i) {
      if (memory_[bytes_ + i] != kFill) throw std::logic_error("written behind shared memory");
    }
  }
  char* get() { return memory_.data(); }

 private:
  static constexpr int kWatched = 256;
  static constexpr char kFill = -1;

  int64_t bytes_;
  std::vector<char> memory_;
};

template <class Job>
void LaunchAlone(cudaStream_t, const Job& job, int64_t batch, const Slice& slice, int parts = 1) {
  constexpr int kThreads = 6;  // fewer than most batches of the tests
  const int matrices = parts > 1 ? kThreads / 2 : kThreads;
  const int64_t bytes = slice.bytes();
  if (bytes > SharedBytes()) throw std::length_error("too much shared memory");
  blockDim.x = kThreads;
  const auto each_thread = [](auto&& body) {
    for (threadIdx.x = 0; threadIdx.x < kThreads; ++threadIdx.x) body();
  };
  for (int64_t first = 0; first < batch; first += matrices) {
    SharedMemory memory(matrices * bytes);
    const int count = static_cast<int>(std::min<int64_t>(matrices, batch - first));
    const Block block{first, count, memory.get(), bytes};
    each_thread([&] { job.Load(block); });
    if constexpr (requires { job.Run(block); }) {
      each_thread([&] { job.Run(block); });
    } else {
      for (int i = 0; i < count; ++i) job.Run(block.Slice(i));
    }
    each_thread([&] { job.Store(block); });
  }
}

template <class Job>
void LaunchTeams(cudaStream_t, const Job& job, int64_t batch, int team_size, const Slice& slice) {
  if (team_size > Job::kMostThreads) throw std::logic_error("too many threads");
  if (slice.bytes() > SharedBytes()) throw std::length_error("too much shared memory");
  SharedMemory memory(slice.bytes());
  for (int64_t i = 0; i < batch; ++i) job.Run(Team(team_size), i, memory.get());
}

template <class Job>
void LaunchWarps(cudaStream_t, const Job& job, int64_t batch, const Slice& slice) {
  SharedMemory memory(slice.bytes());
  for (int64_t i = 0; i < batch; ++i) job.Run(WarpTeam<Job::Shape::kThreads>(), i, memory.get());
}

template <class Job>
void LaunchTeamsAnywhere(cudaStream_t stream, DeviceScratch&, const Job& job, int64_t batch,
                         int team_size, const Slice& slice) {
  if (slice.bytes() <= SharedBytes()) return LaunchTeams(stream, job, batch, team_size, slice);
  if (team_size > Job::kMostThreads) throw std::logic_error("too many threads");
  SharedMemory memory(slice.bytes());
  for (int64_t i = 0; i < batch; ++i) job.Run(Team(team_size), i, memory.get());
}

// From both ends: what one element's body reads of another's is not to be counted on.
template <class Body>
void ForEach(cudaStream_t, int64_t count, const Body& body) {
  for (int64_t i = 0; i < count; ++i) body(i % 2 == 0 ? i / 2 : count - 1 - i / 2);
}

template <class T>
void Transpose(cudaStream_t, int64_t batch, int64_t rows, int64_t cols, const T* source,
               int64_t source_size, T* target, int64_t target_size) {
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        target[b * target_size + j * rows + i] = source[b * source_size + i * cols + j];
      }
    }
  }
}

}  // namespace linalg::cuda
