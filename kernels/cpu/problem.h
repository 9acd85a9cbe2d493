// The one shape of the handlers.
//
// A handler reads a problem off its buffers: the batch, the sizes, the operands, and where results
// go, null where one is not wanted. The problem says which path its matrices take, and what each
// path makes of them:
//
//   Path path() const;                        by ChoosePath
//   void RunSmall(ffi::ThreadPool&) const;    by kernels/small: ForEachGroup of lanes.h
//   void RunBlocked(ffi::ThreadPool&) const;  by kernels/blocked: ForEachInTurn
//   void RunLapack(ffi::ThreadPool&) const;   by LAPACK: ForEachByLapack
//
// It lacks the paths that its matrices never take. One whose matrices may be without elements has
// IsEmpty() too, and RunEmpty() for the results that there are all the same.
#pragma once

#include <stdexcept>

#include "kernels/cpu/batch.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/spares.h"
#include "kernels/cpu/tuning.h"

namespace linalg {

template <class Problem>
void TakePath(ffi::ThreadPool& pool, const Problem& problem) {
  if constexpr (requires { problem.IsEmpty(); }) {
    if (problem.IsEmpty()) return problem.RunEmpty();
  }
  const Path path = problem.path();
  if constexpr (requires { problem.RunSmall(pool); }) {
    if (path == Path::kSmall) return problem.RunSmall(pool);
  }
  if constexpr (requires { problem.RunBlocked(pool); }) {
    if (path == Path::kBlocked) return problem.RunBlocked(pool);
  }
  if constexpr (requires { problem.RunLapack(pool); }) {
    if (path == Path::kLapack) return problem.RunLapack(pool);
  }
  throw std::logic_error("there are no kernels for this path");
}

// One matrix after another on each thread: calls body(work, i) for each, which takes so many
// nanoseconds, with what make() returns to work with, one after another.
template <class Make, class Body>
void ForEachInTurn(ffi::ThreadPool& pool, int64_t batch, double nanoseconds, Make&& make,
                   Body&& body) {
  Spares<decltype(make())> spares;
  ForEachRange(pool, batch, nanoseconds, [&](int64_t first, int64_t last) {
    spares.With(make, [&](auto& work) {
      for (int64_t i = first; i < last; ++i) body(work, i);
    });
  });
}

// With nothing to work with: body(i).
template <class Body>
void ForEachInTurn(ffi::ThreadPool& pool, int64_t batch, double nanoseconds, Body&& body) {
  ForEachRange(pool, batch, nanoseconds, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) body(i);
  });
}

// The same of matrices of order n by LAPACK, with the BLAS threads that it is to have.
template <class... Work>
void ForEachByLapack(ffi::ThreadPool& pool, int64_t batch, int64_t n, double nanoseconds,
                     Work&&... make_and_body) {
  lapack::Load();
  const BlasThreads threads(ThreadsFor(batch, n));
  ForEachInTurn(pool, batch, nanoseconds, make_and_body...);
}

}  // namespace linalg
