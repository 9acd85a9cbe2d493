// Tridiagonal systems by orthogonal reduction, for many threads per system.
//
// Eliminating the inner unknowns of a run of rows leaves two rows. Neighbouring runs are then
// joined in the same way (structured orthogonal factorisation: S. J. Wright, Stable parallel
// algorithms for two-point boundary value problems, SIAM J. Sci. Stat. Comput. 13, 1992).
//
// Rotations are needed for stability: multipliers of at most 1 let the elements of such rows grow
// exponentially. They also handle singular runs, on which cyclic reduction fails.
#pragma once

#include "kernels/arithmetic/divisor.h"
#include "kernels/arithmetic/rotation.h"
#include "kernels/arithmetic/scale.h"

namespace linalg::small {

// A row in four unknowns: before the run, its first, its last, and behind it.
template <class E>
struct EndRow {
  E before, first, last, behind, rhs;
};

// The two rows that represent a run of at least two rows.
template <class E>
struct Run {
  EndRow<E> row[2];
};

// A row that also has the two interface unknowns between neighbouring runs. They are the last one
// of the left run and the first one of the right run.
template <class E>
struct InterfaceRow {
  E left, right;
  EndRow<E> ends;
};

template <class E>
LINALG_INLINE void Rotate(const GivensRotation<E>& rotation, EndRow<E>& x, EndRow<E>& y) {
  rotation.Apply(x.before, y.before);
  rotation.Apply(x.first, y.first);
  rotation.Apply(x.last, y.last);
  rotation.Apply(x.behind, y.behind);
  rotation.Apply(x.rhs, y.rhs);
}

template <class E>
LINALG_INLINE void Rotate(const GivensRotation<E>& rotation, InterfaceRow<E>& x,
                          InterfaceRow<E>& y) {
  rotation.Apply(x.left, y.left);
  rotation.Apply(x.right, y.right);
  Rotate(rotation, x.ends, y.ends);
}

// Scales a row by a power of two, so that its largest coefficient is near 1. Rotations mix rows,
// and small coefficients would not survive beside large ones.
template <class E>
LINALG_INLINE EndRow<E> Equilibrate(const EndRow<E>& row) {
  using V = RealElement<E>;
  V largest{}, inverse;
  for (const V size :
       {Magnitude(row.before), Magnitude(row.first), Magnitude(row.last), Magnitude(row.behind)}) {
    largest = Larger(size, largest);
  }
  const V scale = PowerOfTwoScale(largest, inverse);
  return {scale * row.before, scale * row.first, scale * row.last, scale * row.behind,
          scale * row.rhs};
}

// Joins the following run to `run`. Calls store(0, row) and store(1, row) with the rows of the
// interface unknowns. The first row has both of them, the second only the right one.
template <class E, class Store>
LINALG_INLINE void JoinRuns(Run<E>& run, Run<E> next, Store&& store) {
  Rotate(GivensRotation<E>(run.row[0].last, run.row[1].last), run.row[0], run.row[1]);
  Rotate(GivensRotation<E>(next.row[0].before, next.row[1].before), next.row[0], next.row[1]);
  const auto row_before = [](const EndRow<E>& row) {
    return InterfaceRow<E>{row.last, row.behind, {row.before, row.first, E{}, E{}, row.rhs}};
  };
  const auto row_behind = [](const EndRow<E>& row) {
    return InterfaceRow<E>{row.before, row.first, {E{}, E{}, row.last, row.behind, row.rhs}};
  };
  InterfaceRow<E> u = row_before(run.row[0]), x = row_behind(next.row[0]);
  Rotate(GivensRotation<E>(u.left, x.left), u, x);
  store(0, u);
  InterfaceRow<E> v = row_before(run.row[1]), y = row_behind(next.row[1]);
  Rotate(GivensRotation<E>(v.right, y.right), v, y);
  Rotate(GivensRotation<E>(v.right, x.right), v, x);
  store(1, v);
  run = {{x.ends, y.ends}};
}

// Joins the ends of a run that is the whole system. The interface consists of its last unknown
// (left) and its first (right).
template <class E>
LINALG_INLINE void CloseRun(Run<E> run, InterfaceRow<E> (&interface)[2]) {
  Rotate(GivensRotation<E>(run.row[0].last, run.row[1].last), run.row[0], run.row[1]);
  for (int k = 0; k < 2; ++k) {
    interface[k] = {run.row[k].last, run.row[k].first, {E{}, E{}, E{}, E{}, run.row[k].rhs}};
  }
}

// Solves for the interface unknowns, given those at the ends of the joined runs.
template <class E>
LINALG_INLINE void SolveInterface(const InterfaceRow<E> (&interface)[2], E before, E first, E last,
                                  E behind, E& left, E& right) {
  const auto rest = [&](const EndRow<E>& row) {
    const E x = NegMulAdd(row.first, first, NegMulAdd(row.before, before, row.rhs));
    return NegMulAdd(row.behind, behind, NegMulAdd(row.last, last, x));
  };
  right = Divisor<E>(interface[1].right).Divide(rest(interface[1].ends));
  left = Divisor<E>(interface[0].left)
             .Divide(NegMulAdd(interface[0].right, right, rest(interface[0].ends)));
}

}  // namespace linalg::small
