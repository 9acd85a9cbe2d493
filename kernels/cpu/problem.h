// The shape of every handler.
//
// A handler reads a problem off its buffers: the batch, the sizes, the operands, and where results
// go, null where one is not wanted. The problem chooses its path and runs on it:
//
//   CpuPath path() const;
//   void RunInLanes(ffi::ThreadPool&) const;   kernels/small: ForEachGroup of lanes.h, or
//                                              ForEachRange or ForEachInTurn one matrix at a time
//   void RunInTiles(ffi::ThreadPool&) const;   kernels/blocked: ForEachInTurn, or ForEachInTasks
//   void RunByLapack(ffi::ThreadPool&) const;  LAPACK: ForEachByLapack
//
// The path must not depend on the batch, so that a matrix gives the same bits in any batch. The
// constants that it depends on are in tuning.h.
//
// A problem lacks the paths that its matrices never take. Matrices without elements, or no matrices
// at all, may fit no path. Then the problem has IsEmpty(), and RunEmpty() for results that still
// have elements.
#pragma once

#include <stdexcept>

#include "kernels/blocked/tasks.h"
#include "kernels/cpu/batch.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/object_pool.h"
#include "kernels/cpu/tuning.h"

namespace linalg {

// The code that works on a matrix: kernels/small in lanes, kernels/blocked in tiles, or LAPACK.
enum class CpuPath { kLane, kTile, kLapack };

template <class Problem>
void RunOnPath(ffi::ThreadPool& pool, const Problem& problem) {
  if constexpr (requires { problem.IsEmpty(); }) {
    if (problem.IsEmpty()) return problem.RunEmpty();
  }
  const CpuPath path = problem.path();
  if constexpr (requires { problem.RunInLanes(pool); }) {
    if (path == CpuPath::kLane) return problem.RunInLanes(pool);
  }
  if constexpr (requires { problem.RunInTiles(pool); }) {
    if (path == CpuPath::kTile) return problem.RunInTiles(pool);
  }
  if constexpr (requires { problem.RunByLapack(pool); }) {
    if (path == CpuPath::kLapack) return problem.RunByLapack(pool);
  }
  throw std::logic_error("there are no kernels for this path");
}

// Each thread takes one matrix after another and calls body(work, i), which takes about
// `nanoseconds`. A thread makes its `work` once, by make(), and uses it for all its matrices.
template <class Make, class Body>
void ForEachInTurn(ffi::ThreadPool& pool, int64_t batch, double nanoseconds, Make&& make,
                   Body&& body) {
  ObjectPool<decltype(make())> pooled;
  ForEachRange(pool, batch, nanoseconds, [&](int64_t first, int64_t last) {
    pooled.With(make, [&](auto& work) {
      for (int64_t i = first; i < last; ++i) body(work, i);
    });
  });
}

// The overload without `work` calls body(i).
template <class Body>
void ForEachInTurn(ffi::ThreadPool& pool, int64_t batch, double nanoseconds, Body&& body) {
  ForEachRange(pool, batch, nanoseconds, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) body(i);
  });
}

// Returns a runner of tasks on at most `threads` threads. One of the pool's threads may call it.
inline blocked::RunTasks TasksOn(ffi::ThreadPool& pool, int64_t threads) {
  if (threads <= 1) return blocked::RunInTurn;
  return [&pool, threads](int64_t count, const blocked::Task& task) {
    const auto run = [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) task(i);
    };
    // Each task claims two chunks' time, so that no thread's chunk holds two tasks.
    ForEachRange(pool, count, 2 * kChunkNanoseconds, run, threads);
  };
}

// Extends ForEachInTurn to matrices that several threads can share. body(work, i, run_tasks) gives
// the same bits however its tasks run.
//
// Each thread takes whole matrices as long as all threads have one. Large matrices that are left
// over are shared by the idle threads.
template <class Make, class Body>
void ForEachInTasks(ffi::ThreadPool& pool, int64_t batch, double nanoseconds, Make&& make,
                    Body&& body) {
  ObjectPool<decltype(make())> pooled;
  const auto run = [&](int64_t begin, int64_t end, const blocked::RunTasks& run_tasks) {
    ForEachRange(pool, end - begin, nanoseconds, [&](int64_t first, int64_t last) {
      pooled.With(make, [&](auto& work) {
        for (int64_t i = begin + first; i < begin + last; ++i) body(work, i, run_tasks);
      });
    });
  };
  const int64_t threads = UsableThreads(pool);
  const int64_t alone = nanoseconds < kSharedNanoseconds ? batch : batch / threads * threads;
  run(0, alone, blocked::RunInTurn);
  if (alone < batch) run(alone, batch, TasksOn(pool, threads / (batch - alone)));
}

// Loads LAPACK, and sets its BLAS threads for matrices of order n as long as this object lives.
class LapackOnThreads {
 public:
  LapackOnThreads(int64_t batch, int64_t n) : threads_((lapack::Load(), ThreadsFor(batch, n))) {}

 private:
  BlasThreads threads_;
};

// Calls ForEachInTurn for matrices of order n that LAPACK handles.
template <class Make, class Body>
void ForEachByLapack(ffi::ThreadPool& pool, int64_t batch, int64_t n, double nanoseconds,
                     Make&& make, Body&& body) {
  const LapackOnThreads lapack(batch, n);
  ForEachInTurn(pool, batch, nanoseconds, make, body);
}
template <class Body>
void ForEachByLapack(ffi::ThreadPool& pool, int64_t batch, int64_t n, double nanoseconds,
                     Body&& body) {
  const LapackOnThreads lapack(batch, n);
  ForEachInTurn(pool, batch, nanoseconds, body);
}

}  // namespace linalg
