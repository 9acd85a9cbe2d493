// Hermitian eigenproblems, shared by the handlers.
#pragma once

#include <functional>

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

// Matrices that are ready for their reduction.
template <class E>
struct ScaledHermitian {
  // Writes `count` matrices from `first` on, row-major with both triangles, of a norm near 1. The
  // identity replaces a matrix that is not finite.
  std::function<void(int64_t first, int64_t count, E* target)> copy;
  const RealElement<E>* inverses;  // of the scales
};

// Whether this GPU has the shared memory for panels of n by n matrices: eigh_panels.cu.
template <class T>
bool EighPanelsFit(int64_t n);

// Solves panel by panel, for matrices whose info is complete but for failures of the iteration.
template <class T>
void SolveEighByPanels(cudaStream_t stream, DeviceScratch& scratch, int64_t batch,
                       const EighProblem<Element<T>>& problem,
                       const ScaledHermitian<Element<T>>& matrices);

}  // namespace linalg::cuda
