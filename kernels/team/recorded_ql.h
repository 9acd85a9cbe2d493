// Implicit QL of a real symmetric tridiagonal matrix by one thread, in float64, with a record of
// its rotations for the eigenvectors.
//
// The sweeps' scalars are a long chain of roots and quotients, for which one thread per matrix is
// enough. In float64 the sweeps add no rounding errors to the eigenvalues of a float32 matrix.
#pragma once

#include "kernels/arithmetic/tridiagonal.h"
#include "kernels/team/team.h"

namespace linalg::team {

// The rotations of a sweep: of rows `last` and last - 1, down to first + 1 and `first`.
struct QlSweep {
  int16_t first, last;
};

// Sweeps and their rotations, one after another. A rotation is stored as minus the tangent of half
// its angle.
template <class V>
struct QlRecord {
  V* shears;
  int64_t most_rotations;  // at least n - 1
  QlSweep* sweeps;
  int most_sweeps;
};

// The sweeps made so far, and the off-diagonal elements that have not vanished.
struct QlProgress {
  int sweeps, left;
};

// Iterates on the tridiagonal matrix of diagonal d and off-diagonal e (n - 1), of norm about 1, for
// results of type V. It stops when the matrix is diagonal or the record is full. Without kRecord it
// stops after record.most_sweeps.
template <bool kRecord, class V>
LINALG_INLINE QlProgress RecordedQl(double* d, double* e, int n, const QlRecord<V>& record) {
  // Elements that a number of type V cannot tell from zero. For float32 far smaller ones are kept,
  // which costs next to nothing.
  constexpr double kEps =
      std::numeric_limits<V>::epsilon() * (std::is_same_v<V, double> ? 1 : 0x1p-10);
  const auto vanishes = [&](int i) {
    if (Abs(e[i]) > NegligibleBeside(d[i], d[i + 1], kEps)) return false;
    e[i] = 0;
    return true;
  };
  int sweeps = 0;
  int64_t rotations = 0;
  for (int first = 0;; ++sweeps) {
    while (first < n - 1 && vanishes(first)) ++first;
    if (first >= n - 1) return {sweeps, 0};
    int last = first + 1;
    while (last < n - 1 && !vanishes(last)) ++last;
    if (sweeps == record.most_sweeps) break;
    if constexpr (kRecord) {
      if (rotations + last - first > record.most_rotations) break;
      record.sweeps[sweeps] = {static_cast<int16_t>(first), static_cast<int16_t>(last)};
    }
    double g = QlStart(d[first], d[first + 1], e[first], d[last]);
    double sine = 1, cosine = 1, p = 0, d_above = d[last];
    for (int i = last - 1; i >= first; --i) {
      const double d_here = d[i];
      const QlStep<double> step(sine, cosine, g, p, e[i], d_here, d_above);
      if constexpr (kRecord) {
        record.shears[rotations++] =
            -static_cast<V>(step.sine) / (V(1) + static_cast<V>(step.cosine));
      }
      if (i + 1 < last) e[i + 1] = step.beside;
      d[i + 1] = step.diagonal;
      sine = step.sine;
      cosine = step.cosine;
      g = step.g;
      p = step.p;
      d_above = d_here;
    }
    e[first] = g;
    d[first] = d_above - p;
  }
  int left = 0;
  for (int i = 0; i < n - 1; ++i) left += e[i] != 0;
  return {sweeps, left};
}

// Sorts in ascending order. After the iteration, the values are nearly sorted.
LINALG_INLINE void SortAscending(double* d, int n) {
  for (int i = 1; i < n; ++i) {
    const double x = d[i];
    int j = i;
    for (; j > 0 && x < d[j - 1]; --j) d[j] = d[j - 1];
    d[j] = x;
  }
}

}  // namespace linalg::team
