// Eigenvalues of Hermitian tridiagonal matrices by bisection, one thread for each.
#pragma once

#include "kernels/arithmetic/info.h"
#include "kernels/arithmetic/scale.h"
#include "kernels/cuda/job.h"
#include "kernels/small/bisection.h"
#include "kernels/team/largest.h"

namespace linalg::cuda {

// Scales a matrix by a power of two, and makes the elements beside its diagonal real.
template <class E>
struct PrepareSturm {
  static constexpr int kMostThreads = kBlockThreads;
  using V = RealElement<E>;
  int64_t n;
  const V* diagonal;
  const E* beside;
  small::SturmRow<V>* rows;
  V* inverses;  // of the scales
  int32_t* info;

  __device__ void Run(const Team& team, int64_t matrix, char*) const {
    const V* const d = diagonal + matrix * n;
    const E* const e = beside + matrix * (n - 1);
    const V largest_d = team::LargestComponent<V>(team, n, [&](int64_t i) { return d[i]; });
    const V largest_e =
        team::LargestComponent<V>(team, n - 1, [&](int64_t i) { return LoadGlobal(e + i); });
    const V largest = largest_d > largest_e ? largest_d : largest_e;
    V inverse;
    const V scale = PowerOfTwoScale(largest, inverse);
    team.Phase([&](int thread) {
      for (int64_t i = thread; i < n; i += team.size()) {
        const E before = i == 0 ? E{} : LoadGlobal(e + i - 1);
        rows[matrix * n + i] = small::ScaledSturmRow(scale, d[i], before);
      }
      if (thread != 0) return;
      inverses[matrix] = inverse;
      info[matrix] = team::IsFinite(largest) ? 0 : kNotFinite;
    });
  }
};

template <class E>
struct FindEigenvalue {
  PrepareSturm<E> prepared;
  RealElement<E>* values;

  __device__ void operator()(int64_t place) const {
    using V = RealElement<E>;
    const int64_t n = prepared.n, matrix = place / n;
    values[place] = prepared.info[matrix] != 0
                        ? NaN<V>()
                        : prepared.inverses[matrix] *
                              small::BisectEigenvalue(n, prepared.rows + matrix * n, place % n);
  }
};

}  // namespace linalg::cuda
