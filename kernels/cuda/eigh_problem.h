// Hermitian eigenproblems, shared by the handlers.
#pragma once

#include "kernels/arithmetic/hermitian.h"
#include "kernels/cuda/job.h"

namespace linalg::cuda {

template <class E>
struct EighProblem {
  using V = RealElement<E>;
  int n;
  HermitianPart part;
  const E* a;
  E* vectors;  // or null, if only values are wanted
  V* values;
  int32_t* info;

  // The problem of the matrices from `first` on.
  EighProblem From(int64_t first) const {
    EighProblem rest = *this;
    const int64_t size = static_cast<int64_t>(n) * n;
    rest.a += first * size;
    if (vectors != nullptr) rest.vectors += first * size;
    rest.values += first * n;
    rest.info += first;
    return rest;
  }
};

template <class T>
void SolveEigh(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
               const EighProblem<Element<T>>& problem);

}  // namespace linalg::cuda
