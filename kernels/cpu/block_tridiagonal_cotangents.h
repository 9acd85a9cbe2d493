// The transpose of the derivative of solutions x and of log det A, for the steps of a group.
//
// Let x̄ and t be the cotangents of x and of log det A, y = A⁻¹ x̄, and S the blocks of A⁻¹. The
// cotangent of a block on A's diagonal is t S - (y xᴴ + x yᴴ) / 2. That of one below it is twice as
// much: both triangles add. A is factored again, in one pass: factors in memory would take two
// more.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/block_tridiagonal_factors.h"

namespace linalg {

// Where the cotangents of the first system of a group go, and the elements from one to the next.
template <class T>
struct CotangentsOfGroup {
  T *diagonal, *lower, *b;
  int64_t diagonal_stride, lower_stride, b_stride;
};

template <class E>
struct CotangentsInLanes {
  using V = RealElement<E>;

  // The elements of a system with right-hand sides of so many columns.
  static int64_t Size(const BlockTridiagonalShape& shape, int64_t cols) {
    return FactorsInLanes<E>::Size(shape, cols) + (shape.steps + 1) * shape.d * cols +
           (BlocksOfRun(shape.d) + 4) * shape.block();
  }

  CotangentsInLanes(int64_t n, int64_t k, int64_t steps, E* memory)
      : factors(n, k, steps, memory),
        solution(factors.end),
        inverse(solution + steps * n * k),
        work(inverse + n * n),
        halves(work + 3 * n * n),
        lower(halves + n * k),
        end(lower + BlocksOfRun(n) * n * n) {}

  // Goes back over the first `count` steps, which were factored with the conjugate of x̄. If there
  // is one more, its y and `inverse` are known. Conjugates of cotangents are gradients.
  template <class T, class N, class M>
  LINALG_INLINE void Back(N n, M k, V logdet, int64_t count,
                          const CotangentsOfGroup<T>& targets) const {
    const int64_t below = std::min(factors.steps - 1, count), block = n * n, size = n * k;
    const int64_t run = BlocksOfRun(n);
    for (int64_t t = count - 1; t >= 0; --t) {
      factors.Back(n, k, t);
      E *const own = factors.l + t * block, *const beside = factors.adjoints + t * block;
      const E *const y = factors.y + t * size, *const x = solution + t * size;
      small::InverseBlocksStep</*kAdjoint=*/true>(n, own, factors.reciprocals + t * n,
                                                  t < below ? beside : nullptr, inverse, work);
      Diagonal(n, k, logdet, y, x, own);
      if (t < below) {
        Lower(n, k, logdet, work + 2 * block, y, y + size, x, x + size, beside);
      }
      if (t % run == 0) Store(n, k, t, count, targets);
    }
  }

  // The cotangent of a block on the diagonal, from `inverse`.
  template <class N, class M>
  LINALG_INLINE void Diagonal(N n, M k, V logdet, const E* y, const E* x, E* target) const {
    const int64_t size = n * k;
    for (int j = 0; j < size; ++j) halves[j] = Broadcast<V>(0.5f) * x[j];
    small::OuterProductsCotangent<true>(n, k, logdet, inverse, y, halves, halves, y, target);
    small::MirrorLower(n, target);
  }

  // That of a block below it. `product` is minus the block of A⁻¹, and y and x are those of the
  // step and of the next one.
  template <class N, class M>
  LINALG_INLINE void Lower(N n, M k, V logdet, const E* product, const E* y, const E* next_y,
                           const E* x, const E* next_x, E* target) const {
    small::OuterProductsCotangent<false>(n, k, Broadcast<V>(-2) * logdet, product, next_y, x,
                                         next_x, y, target);
  }

  FactorsInLanes<E> factors;
  E *solution, *inverse, *work, *halves;  // halves holds x / 2 at a step
  E* lower;                               // of a run
  E* end;

 private:
  // Writes the results of a run, which begins with step t.
  template <class T, class N, class M>
  LINALG_INLINE void Store(N n, M k, int64_t t, int64_t steps,
                           const CotangentsOfGroup<T>& targets) const {
    const int64_t below = std::min(factors.steps - 1, steps), block = n * n, size = n * k;
    const int64_t run = BlocksOfRun(n), count = std::min(steps - t, run);
    if (t > 0) {  // the run before
      Prefetch<E, true>(targets.diagonal + (t - run) * block, targets.diagonal_stride, run * block);
      Prefetch<E, true>(targets.lower + (t - run) * block, targets.lower_stride, run * block);
    }
    E* const y = factors.y + t * size;
    const auto conjugate = [&] {
      if constexpr (!kIsComplex<T>) return;
      for (int64_t j = 0; j < count * size; ++j) y[j] = Conj(y[j]);
    };
    conjugate();
    StoreElements(y, count * size, targets.b_stride, targets.b + t * size);
    conjugate();  // the step before takes y
    StoreElements(factors.l + t * block, count * block, targets.diagonal_stride,
                  targets.diagonal + t * block);
    StoreElements(factors.adjoints + t * block,
                  std::max<int64_t>(std::min(count, below - t), 0) * block, targets.lower_stride,
                  targets.lower + t * block);
  }
};

// Does the same for long systems, in chunks.
template <class T>
void SolveLogdetVjpInChunks(ffi::ThreadPool& pool, const TridiagonalBlocks<T>& a, int64_t cols,
                            const T* x, const T* x_ct, const Real<T>* logdet_ct,
                            const BlockResults<T>& a_ct, T* b_ct);

}  // namespace linalg
