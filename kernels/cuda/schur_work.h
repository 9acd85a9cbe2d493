// The arrays of a team that makes Schur forms, or eigenvectors from them.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/team/multishift.h"

namespace linalg::cuda {

// The matrices' rows are `ld` apart.
template <class E>
struct SchurOffsets {
  Offset<E> z, t, taus, partial;
  int ld;

  __device__ __forceinline__ team::SchurWork<E> In(char* slice) const {
    return {.z = z.In(slice),
            .t = t.In(slice),
            .ld = ld,
            .taus = taus.In(slice),
            .partial = partial.In(slice)};
  }
};

// Without `vectors` T takes the operand's place.
template <class E>
SchurOffsets<E> TakeSchurWork(SharedLayout& layout, int n, int team_size, bool vectors) {
  const int64_t ld = n | 1;
  ToInt(n * ld);  // a team counts elements in 32 bits
  return {.z = layout.Take<E>(1 + n * ld),
          .t = layout.Take<E>(vectors ? n * ld : 0),
          .taus = layout.Take<E>(n),
          .partial = layout.Take<E>(team_size),
          .ld = ToInt(ld)};
}

// A job whose Schur forms are made by many shifts at a time, with windows in shared memory.
template <class E, class Job>
struct WithMultishift {
  static constexpr int kMostThreads = Job::kMostThreads;
  Job job;

  __device__ void Run(const Team& team, int64_t i, char* slice, char* shared) const {
    job.RunWith(team, i, slice,
                team::MultishiftIteration<E>{.work = {.memory = reinterpret_cast<E*>(shared)}});
  }
};

// Runs a job that makes Schur forms of n by n matrices. Complex ones in global memory take many
// shifts at a time.
template <class E, class Job>
void LaunchSchur(cudaStream_t stream, DeviceScratch& scratch, const Job& job, int64_t batch, int n,
                 const SharedLayout& layout) {
  const int team_size = LargeTeamSize(n);
  if constexpr (kComplexElement<E>) {
    const int64_t elements = team::MultishiftWork<E>::Elements(team_size), shared = SharedBytes();
    const int64_t bytes = elements * static_cast<int64_t>(sizeof(E));
    if (layout.bytes() > shared && bytes <= shared && n >= kMultishiftSchur) {
      return LaunchTeamsInGlobal(stream, scratch, WithMultishift<E, Job>{job}, batch, team_size,
                                 layout, bytes);
    }
  }
  LaunchTeamsAnywhere(stream, scratch, job, batch, team_size, layout);
}

}  // namespace linalg::cuda
