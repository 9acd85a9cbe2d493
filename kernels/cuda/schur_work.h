// The arrays of a team that makes Schur forms, or eigenvectors from them.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/team/schur.h"

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
  return {.z = layout.Take<E>(1 + n * ld),
          .t = layout.Take<E>(vectors ? n * ld : 0),
          .taus = layout.Take<E>(n),
          .partial = layout.Take<E>(team_size),
          .ld = ToInt(ld)};
}

}  // namespace linalg::cuda
