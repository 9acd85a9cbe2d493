// Tests how kernels/cpu passes work to XLA's threads. The pool is busy or late, refuses work, or
// has no memory for it. ForEachRange promises to run each element once and to touch nothing after
// its return. The caller sees all work done, and the first exception is thrown again.
// test_sanitized.py compiles this with sanitizers. --race makes two threads write the same
// elements.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "kernels/cpu/batch.h"
#include "kernels/cpu/blas_threads.h"
#include "kernels/cpu/object_pool.h"
#include "tests/support/stand_in_xla.h"

unsigned std::thread::hardware_concurrency() noexcept { return 4; }

namespace {

// How many more allocations of this thread succeed; a negative number means all.
thread_local int allocations_left = -1;

}  // namespace

[[gnu::noinline]] void* operator new(size_t size) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  if (void* const memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace linalg {
namespace {

void Expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::_Exit(1);
}

struct Pool {
  explicit Pool(int threads) : context(threads) {}

  ::xla::ffi::ThreadPool pool() {
    return *::xla::ffi::CtxDecoding<::xla::ffi::ThreadPool>::Decode(stand_in::Api(), &context,
                                                                    diagnostic);
  }

  XLA_FFI_ExecutionContext context;
  ::xla::ffi::DiagnosticEngine diagnostic;
};

// Counts are not atomic: ForEachRange must make every thread's writes visible.
void CountEach(Pool& pool, int64_t batch, double nanoseconds) {
  std::vector<int> counts(batch);
  auto threads = pool.pool();
  ForEachRange(threads, batch, nanoseconds, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) ++counts[i];
  });
  for (const int count : counts) Expect(count == 1, "an element that was not worked on once");
}

void ManyCallers(Pool& pool) {
  std::vector<std::thread> callers;
  for (int i = 0; i < 6; ++i) {
    callers.emplace_back([&, i] {
      for (int64_t batch = 0; batch < 60; ++batch) CountEach(pool, batch * 37 + i, 3e3);
    });
  }
  for (std::thread& caller : callers) caller.join();
}

// Calls run on the pool's own threads, which are too few: each waits for chunks that others have
// begun.
void CallersOfThePool(Pool& pool) {
  for (int i = 0; i < 20; ++i) {
    pool.context.Schedule([&] { CountEach(pool, 500, 1e4); });
  }
  pool.context.WaitUntilIdle();
}

// Helpers that begin after the call find no work and do not touch its memory.
void LateHelpers(Pool& pool) {
  pool.context.Pause(true);
  CountEach(pool, 400, 1e4);
  pool.context.Pause(false);
  pool.context.WaitUntilIdle();
}

void NoPool(Pool& pool) {
  pool.context.Refuse(true);
  CountEach(pool, 400, 1e4);
  pool.context.Refuse(false);
}

// Work whose cost estimate overflows an integer is shared like any long work.
void EndlessWork(Pool& pool) {
  auto threads = pool.pool();
  for (const double nanoseconds : {1e300, std::numeric_limits<double>::infinity()}) {
    std::atomic<int> ranges = 0;
    ForEachRange(threads, 400, nanoseconds, [&](int64_t, int64_t) { ++ranges; });
    Expect(ranges == 400, "long work that was not shared");
  }
}

void Exceptions(Pool& pool) {
  auto threads = pool.pool();
  for (int64_t bad = 0; bad < 400; bad += 57) {
    std::string found;
    try {
      ForEachRange(threads, 400, 1e4, [&](int64_t first, int64_t last) {
        if (first <= bad && bad < last) throw std::runtime_error("this one");
      });
    } catch (const std::runtime_error& error) {
      found = error.what();
    }
    Expect(found == "this one", "an exception that was lost");
  }
}

// Each allocation of a call fails in turn while its helpers wait. Scheduled helpers must not
// outlive the call.
void NoMemory(Pool& pool) {
  bool enough = false;
  for (int k = 0; !enough; ++k) {
    std::vector<int> counts(400);
    const auto call = [&] {
      auto threads = pool.pool();
      ForEachRange(threads, 400, 1e4, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) ++counts[i];
      });
    };
    pool.context.Pause(true);
    bool refused = false;
    allocations_left = k;
    try {
      call();
    } catch (const std::bad_alloc&) {
      refused = true;
    }
    enough = allocations_left > 0;
    allocations_left = -1;
    pool.context.Pause(false);
    pool.context.WaitUntilIdle();
    for (const int count : counts) {
      Expect(count == (refused ? 0 : 1), "work that was not done, or done after the call");
    }
    Expect(k < 100, "allocations without end");
  }
}

std::atomic<int> users_threads = 8;
std::atomic<int> alone = 0, most_beside = 0;

void BlasThreadCounts() {
  SetBlasThreadFunctions([] { return users_threads.load(); },
                         [](int count) { users_threads = count; });
  AllowUsersBlasThreads(true);
  std::vector<std::thread> callers;
  for (int i = 0; i < 6; ++i) {
    callers.emplace_back([i] {
      for (int j = 0; j < 500; ++j) {
        const BlasThreads threads(i == 0 ? BlasThreads::Count::kUsers : BlasThreads::Count::kOne);
        if (i > 0) Expect(users_threads == 1, "BLAS's threads beside the pool's");
        Expect(UsersBlasThreads() == 8, "another number than the user's");
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  Expect(users_threads == 8, "the user's number was not put back");
}

void SpareObjects(Pool& pool) {
  std::atomic<int> made = 0;
  ObjectPool<std::vector<int>> pool_of_vectors;
  auto threads = pool.pool();
  ForEachRange(threads, 300, 1e4, [&](int64_t first, int64_t last) {
    const auto make = [&] {
      ++made;
      return std::vector<int>(1);
    };
    pool_of_vectors.With(make, [&](std::vector<int>& x) {
      for (int64_t i = first; i < last; ++i) ++x[0];
    });
  });
  Expect(made <= 4, "more spare objects than threads");
}

void Race(Pool& pool) {
  int count = 0;
  auto threads = pool.pool();
  for (int i = 0; i < 100; ++i) {
    ForEachRange(threads, 1000, 1e4, [&](int64_t first, int64_t last) {
      for (int64_t j = first; j < last; ++j) ++count;
      std::this_thread::yield();
    });
  }
}

}  // namespace
}  // namespace linalg

int main(int count, char** arguments) {
  using namespace linalg;
  Pool pool(4);
  if (count > 1 && std::strcmp(arguments[1], "--race") == 0) {
    Race(pool);
    return 0;
  }
  EndlessWork(pool);
  Pool one(1), two(2);
  for (Pool* each : {&pool, &two, &one}) {
    ManyCallers(*each);
    CallersOfThePool(*each);
    LateHelpers(*each);
    NoPool(*each);
    Exceptions(*each);
    NoMemory(*each);
    SpareObjects(*each);
  }
  BlasThreadCounts();
  std::puts("done");
}
