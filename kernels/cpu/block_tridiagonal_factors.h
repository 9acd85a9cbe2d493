// Factors of positive definite block-tridiagonal matrices that stay in lanes, for all steps of a
// group.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/block_tridiagonal.h"

namespace linalg {

// Consecutive steps of the systems of a group: the blocks and right-hand sides of the first system,
// and the elements from one system to the next.
template <class T>
struct StepsOfGroup {
  const T *diagonal, *lower, *b;
  int64_t diagonal_stride, lower_stride, b_stride;
};

// All steps of the systems from i on, with right-hand sides of `size` elements.
template <class T>
StepsOfGroup<T> AllSteps(const TridiagonalBlocks<T>& a, int64_t i, const T* b, int64_t size) {
  const int64_t stride = a.shape.steps * size;
  return {a.Diagonal(i), a.Lower(i), b + i * stride, a.stride(), a.lower_stride(), stride};
}

// The factors of all steps of a group, and the right-hand sides that they turn into solutions.
template <class E>
struct FactorsInLanes {
  using V = RealElement<E>;

  // The elements of a system with right-hand sides of so many columns.
  static int64_t Size(const BlockTridiagonalShape& shape, int64_t cols) {
    return shape.steps * (2 * shape.block() + shape.d * (cols + 1));
  }

  FactorsInLanes(int64_t n, int64_t k, int64_t steps, E* memory)
      : steps(steps),
        l(memory),
        adjoints(l + steps * n * n),
        y(adjoints + steps * n * n),
        reciprocals(reinterpret_cast<V*>(y + steps * n * k)),
        end(y + steps * (n * k + n)) {}

  // Factors, and solves with L. `lower` is a workspace of the blocks of a run.
  template <class T, class N, class M, bool kConjugate = false>
  LINALG_INLINE void Forward(N n, M k, const StepsOfGroup<T>& operands, E* lower,
                             FactorState<V>& state) const {
    Forward<T, N, M, kConjugate>(n, k, operands, lower, state, steps, nullptr, nullptr);
  }

  // Does so for the first `count` steps. If these follow others, Bᴴ of the step before them is
  // `start`, and its solution with L is `start_y`.
  template <class T, class N, class M, bool kConjugate>
  LINALG_INLINE void Forward(N n, M k, const StepsOfGroup<T>& operands, E* lower,
                             FactorState<V>& state, int64_t count, const E* start,
                             const E* start_y) const {
    const int64_t below = std::min(steps - 1, count), block = n * n, size = n * k;
    const int64_t run = BlocksOfRun(n);
    for (int64_t first = 0; first < count; first += run) {
      const int64_t last = std::min(count, first + run);
      const auto load = [=](const T* source, int64_t stride, int64_t end, int64_t each, E* target) {
        const int64_t moved = std::max<int64_t>(end - first, 0) * each;
        Prefetch<E>(source + first * each + moved, stride, moved);
        LoadElements(source + first * each, stride, moved, target);
      };
      load(operands.diagonal, operands.diagonal_stride, last, block, l + first * block);
      load(operands.lower, operands.lower_stride, std::min(below, last), block, lower);
      load(operands.b, operands.b_stride, last, size, y + first * size);
      for (int64_t t = first; t < last; ++t) {
        const E* const previous = t > 0 ? adjoints + (t - 1) * block : start;
        E *const own = l + t * block, *const own_y = y + t * size;
        V* const inverse = reciprocals + t * n;
        state.Add(n, t, small::FactorDiagonal(n, previous, own, inverse), own);
        if constexpr (kConjugate && kIsComplex<T>) {
          for (int64_t j = 0; j < size; ++j) own_y[j] = Conj(own_y[j]);
        }
        if (previous != nullptr) {
          const E* const before = t > 0 ? own_y - size : start_y;
          small::AddProduct<false, true>(n, k, n, previous, n, before, k, own_y, k);
        }
        small::SolveTriangle<false>(n, k, own, inverse, own_y);
        if (t < below) {
          small::FactorLowerAdjoint(n, own, inverse, lower + (t - first) * block,
                                    adjoints + t * block);
        }
      }
    }
  }

  // Forward for blocks of one row and one right-hand side. `adjoints` and y are what
  // EliminateScalars leaves.
  template <bool kConjugate, class T>
  LINALG_INLINE void ForwardScalars(const StepsOfGroup<T>& operands, FactorState<V>& state) const {
    LoadElements(operands.diagonal, operands.diagonal_stride, steps, l);
    LoadElements(operands.lower, operands.lower_stride, steps - 1, adjoints);
    LoadElements(operands.b, operands.b_stride, steps, y);
    if constexpr (kConjugate && kIsComplex<T>) {
      for (int64_t t = 0; t < steps; ++t) y[t] = Conj(y[t]);
    }
    small::EliminateScalars(steps, l, adjoints, y, [&](int64_t t, V pivot) {
      state.AddPivot(t, pivot);
      reciprocals[t] = pivot;
    });
  }

  // The solution of step t, after that of the next one.
  template <class N, class M>
  LINALG_INLINE void Back(N n, M k, int64_t t) const {
    const int64_t block = n * n, size = n * k;
    E* const own = y + t * size;
    if (t + 1 < steps) {
      small::AddProduct<false, false>(n, k, n, adjoints + t * block, n, own + size, k, own, k);
    }
    small::SolveTriangle<true>(n, k, l + t * block, reciprocals + t * n, own);
  }

  // Solves with both factors, and writes the solutions where `x` has those of the operands.
  template <class T, class N, class M>
  LINALG_INLINE void Solve(N n, M k, const StepsOfGroup<T>& operands, T* x,
                           FactorState<V>& state) const {
    const int64_t size = n * k, run = BlocksOfRun(n);
    Forward(n, k, operands, end, state);
    for (int64_t t = steps - 1; t >= 0; --t) {
      Back(n, k, t);
      if (t % run != 0) continue;
      StoreElements(y + t * size, std::min(steps - t, run) * size, operands.b_stride, x + t * size);
    }
  }

  int64_t steps;
  E* l;
  E* adjoints;  // Bᴴ of each step
  E* y;
  V* reciprocals;
  E* end;
};

}  // namespace linalg
