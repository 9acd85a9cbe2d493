// Spreads a batch over XLA's intra-op thread pool.
//
// The pool may be busy with other handlers that wait in turn. So no thread here waits for a task
// that has not started. The calling thread takes chunks from the same queue as its helpers, and
// waits only for chunks that some thread has begun. A helper that starts late finds the queue empty
// and leaves. All of them share the queue, so it outlives the call.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "xla/ffi/api/ffi.h"

namespace linalg {

// Estimated length of a chunk: short enough to balance, long enough to hide the cost of the queue.
inline constexpr double kChunkNanoseconds = 25e3;
// The least work of a thread: a hand-off costs microseconds, more where the pool's threads sleep
// (benchmarks/crossovers/cpu_threads.json).
inline constexpr double kLeastShareNanoseconds = 12.5e3;

namespace internal {

struct ChunkQueue {
  explicit ChunkQueue(int64_t chunks) : chunks(chunks) {}

  // Runs chunks until the queue is empty.
  template <class Body>
  void Drain(Body* body) {
    int64_t finished = 0;
    for (int64_t chunk; (chunk = next.fetch_add(1, std::memory_order_relaxed)) < chunks;) {
      try {
        (*body)(chunk);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(error_mutex);
        if (!error) error = std::current_exception();
      }
      ++finished;
    }
    if (finished > 0) done.fetch_add(finished, std::memory_order_release);
  }

  const int64_t chunks;
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> done{0};
  std::mutex error_mutex;
  std::exception_ptr error;
};

}  // namespace internal

// The threads worth using. The pool grows with the number of virtual devices, the machine does not.
// A program may have no pool.
inline int64_t UsableThreads(const ::xla::ffi::ThreadPool& pool) {
  static const int64_t hardware = std::max(1u, std::thread::hardware_concurrency());
  return std::clamp<int64_t>(pool.num_threads(), 1, hardware);
}

// Computes with subnormal numbers as long as this object lives. XLA's threads flush them to zero.
class SubnormalNumbers {
 public:
#if defined(__x86_64__)
  SubnormalNumbers() : saved_(_mm_getcsr()) {
    if (saved_ & kFlush) _mm_setcsr(saved_ & ~kFlush);
  }
  ~SubnormalNumbers() {
    if (saved_ & kFlush) _mm_setcsr(saved_);
  }

 private:
  static constexpr unsigned kFlush = 0x8040;  // flush results to zero, take operands as zero
  unsigned saved_;
#elif defined(__aarch64__)
  SubnormalNumbers() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved_));
    if (saved_ & kFlush) __asm__ volatile("msr fpcr, %0" : : "r"(saved_ & ~kFlush) : "memory");
  }
  ~SubnormalNumbers() {
    if (saved_ & kFlush) __asm__ volatile("msr fpcr, %0" : : "r"(saved_) : "memory");
  }

 private:
  static constexpr uint64_t kFlush = uint64_t{1} << 24;  // operands and results, both as zero
  uint64_t saved_;
#else
  SubnormalNumbers() {}
#endif
};

namespace internal {

// A body of ForEachRange, with its type erased.
struct RangeBody {
  void* object;
  void (*call)(void* object, int64_t first, int64_t last);

  void operator()(int64_t first, int64_t last) const {
    const SubnormalNumbers subnormal_numbers;
    call(object, first, last);
  }
};

// Compiled once for all bodies: it takes a compiler longer than many of them.
inline void ForEachRange(::xla::ffi::ThreadPool& pool, int64_t batch, double nanoseconds,
                         RangeBody body, int64_t most_threads) {
  if (batch == 0) return;
  const double total = nanoseconds * static_cast<double>(batch);
  // Brief calls do not ask for the number of threads, which takes as long as a tiny matrix.
  if (total < 2 * kLeastShareNanoseconds) return body(0, batch);
  // The time may be infinite, or too long for an integer. Then all threads have enough work.
  const double shares = std::min(static_cast<double>(batch), total / kLeastShareNanoseconds);
  const int64_t threads =
      std::min({UsableThreads(pool), batch, most_threads, static_cast<int64_t>(shares)});
  if (threads <= 1) return body(0, batch);
  const int64_t usual = static_cast<int64_t>(kChunkNanoseconds / nanoseconds) + 1;
  const int64_t size = std::min(usual, (batch + threads - 1) / threads);
  const auto run_chunk = [=](int64_t chunk) {
    body(chunk * size, std::min(batch, (chunk + 1) * size));
  };
  const auto queue = std::make_shared<ChunkQueue>((batch + size - 1) / size);
  for (int64_t helper = 1; helper < threads; ++helper) {
    try {
      pool.Schedule([queue, chunk = &run_chunk] { queue->Drain(chunk); });
    } catch (const std::bad_alloc&) {
      break;  // earlier helpers hold run_chunk, so this call must continue and wait for them
    }
  }
  queue->Drain(&run_chunk);
  while (queue->done.load(std::memory_order_acquire) != queue->chunks) std::this_thread::yield();
  // The exception must end with this call, not with a late helper.
  if (queue->error) std::rethrow_exception(std::move(queue->error));
}

}  // namespace internal

// Calls body(first, last) on ranges that cover [0, batch), on at most `most_threads`, with gradual
// underflow. `nanoseconds` estimates the time of one element. Returns when all ranges are done, and
// rethrows the first exception that a range threw.
template <class Body>
void ForEachRange(::xla::ffi::ThreadPool& pool, int64_t batch, double nanoseconds, Body&& body,
                  int64_t most_threads = std::numeric_limits<int64_t>::max()) {
  const auto call = [](void* object, int64_t first, int64_t last) {
    (*static_cast<std::remove_reference_t<Body>*>(object))(first, last);
  };
  void* const object = const_cast<void*>(static_cast<const void*>(std::addressof(body)));
  internal::ForEachRange(pool, batch, nanoseconds, {.object = object, .call = call}, most_threads);
}

}  // namespace linalg
