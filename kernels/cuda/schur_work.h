// What Schur forms and eigenvectors that are made of them have in common: the places of a team's
// arrays.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/team/schur.h"

namespace linalg::cuda {

// Places in a slice, for matrices whose rows are `ld` apart.
struct SchurPlaces {
  int ld, z, t, taus, partial;
};

// The arrays of team::SchurWork; without `vectors` T takes the operand's place.
template <class E>
SchurPlaces TakeSchurWork(Slice& slice, int n, int team_size, bool vectors) {
  const int64_t ld = n | 1;
  return {ToInt(ld), slice.Take<E>(1 + n * ld), slice.Take<E>(vectors ? n * ld : 0),
          slice.Take<E>(n), slice.Take<E>(team_size)};
}

template <class E>
__device__ __forceinline__ team::SchurWork<E> SchurWorkAt(char* slice, const SchurPlaces& places) {
  return {At<E>(slice, places.z), At<E>(slice, places.t), places.ld, At<E>(slice, places.taus),
          At<E>(slice, places.partial)};
}

}  // namespace linalg::cuda
