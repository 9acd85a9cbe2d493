// Matrices that go to LAPACK one by one.
#pragma once

#include "kernels/cpu/batch.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/tuning.h"

namespace linalg {

// Calls body(first, last) on ranges of a batch of matrices of order n, `nanoseconds` being the
// estimated time of one, with the BLAS threads that it is to have.
template <class Body>
void ForEachByLapack(ffi::ThreadPool& pool, int64_t batch, int64_t n, double nanoseconds,
                     Body&& body) {
  lapack::Load();
  const BlasThreads threads(ThreadsFor(batch, n));
  ForEachRange(pool, batch, nanoseconds, body);
}

}  // namespace linalg
