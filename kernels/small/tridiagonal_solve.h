// Tridiagonal systems, one per lane: elimination with partial pivoting (LAPACK's gtsv).
#pragma once

#include "kernels/arithmetic/divisor.h"
#include "kernels/arithmetic/info.h"

namespace linalg::small {

// Divides by a pivot, as Divisor does. The reciprocal of a complex pivot of usual size takes one
// division, where Divisor takes two that wait for each other, and the pivots wait for it.
template <class E>
class PivotDivisor {
  using V = RealElement<E>;

 public:
  PivotDivisor() = default;
  LINALG_INLINE explicit PivotDivisor(E pivot) {
#if !defined(__CUDACC__)  // not measured on GPUs
    if constexpr (kComplexElement<E>) {
      // |pivot|² and its reciprocal are normal numbers.
      using T = Lane<V>;
      constexpr T kLarge = sizeof(T) == 4 ? T(0x1p60) : T(0x1p500);
      const V one = Broadcast<V>(1), larger = Larger(Abs(pivot.re), Abs(pivot.im));
      const auto usual = (larger >= Broadcast<V>(1 / kLarge)) & (larger <= Broadcast<V>(kLarge));
      const V inverse_square = one / NormAdd(pivot, V{});
      scale_ = one;
      inverse_ = {pivot.re * inverse_square, -pivot.im * inverse_square};
      if (!Any(usual == Mask<V>{})) return;
      const Divisor<E> divisor(pivot);
      scale_ = usual ? one : divisor.scale();
      inverse_ = Choose(usual, inverse_, divisor.inverse());
      return;
    }
#endif
    const Divisor<E> divisor(pivot);
    scale_ = divisor.scale();
    inverse_ = divisor.inverse();
  }

  LINALG_INLINE E Divide(E x) const { return Mul(inverse_, scale_ * x); }
  LINALG_INLINE V scale() const { return scale_; }
  LINALG_INLINE E inverse() const { return inverse_; }

 private:
  V scale_;
  E inverse_;
};

// The system's diagonals: lower[i] is A(i, i-1), upper[i] is A(i, i+1). lower[0] and upper[n-1] are
// not read. `second` is a workspace for the second superdiagonal, which row exchanges fill. A
// Pointer is an E* or a strided pointer.
template <class Pointer>
struct Tridiagonal {
  Pointer lower, diagonal, upper, second;
};

// Replaces the row-major `x` (n, cols) by A⁻¹ x, and the diagonals by U's. Without `perturb`, all
// of `lower` is overwritten too. Returns info: 0, the 1-based index of the first zero pivot, or
// kHoldsNaN where a pivot is NaN. x is NaN if info is not 0. `perturb` raises pivots smaller than
// eps max |U| to that size.
template <class E, class Pointer = E*>
LINALG_INLINE RealElement<E> SolveTridiagonal(int n, Tridiagonal<Pointer> a, bool perturb, int cols,
                                              Pointer x) {
  using V = RealElement<E>;
  const E zero = FromReal<E>(V{});
  const V one = Broadcast<V>(1);
  V info{}, largest{};
  Mask<V> undefined = V{} != V{}, scaled = undefined;
  if (n > 0) a.upper[n - 1] = zero;
  // The row that is eliminated next is in registers: each step waits for the one before.
  E diagonal = n > 0 ? E(a.diagonal[0]) : zero, upper = n > 0 ? E(a.upper[0]) : zero;
  for (int i = 0; i < n; ++i) {
    const Pointer row = x + i * cols;
    E second = zero, next = zero, beside = zero;
    PivotDivisor<E> divisor;
    if (i + 1 < n) {
      E head = a.lower[i + 1], middle = a.diagonal[i + 1], tail = a.upper[i + 1];
      const auto exchanged = Magnitude(diagonal) < Magnitude(head);
      if (Any(exchanged)) {
        ExchangeWhere(exchanged, diagonal, head);
        ExchangeWhere(exchanged, upper, middle);
        ExchangeWhere(exchanged, second, tail);
        for (int j = 0; j < cols; ++j) ExchangeWhere(exchanged, row[j], row[cols + j]);
      }
      const auto singular = Magnitude(diagonal) == V{};
      divisor = PivotDivisor<E>(diagonal);
      const E factor = Choose(singular, zero, divisor.Divide(head));
      next = NegMulAdd(factor, upper, middle);
      beside = NegMulAdd(factor, second, tail);
      for (int j = 0; j < cols; ++j) row[cols + j] = NegMulAdd(factor, row[j], row[cols + j]);
    }
    const V pivot = Magnitude(diagonal);
    if (perturb) {
      for (const V size : {pivot, Magnitude(upper), Magnitude(second)}) {
        largest = Larger(size, largest);
      }
    } else {
      // The place of the element that was eliminated keeps the reciprocal for the way back.
      if (i + 1 == n) divisor = PivotDivisor<E>(diagonal);
      a.lower[i] = divisor.inverse();
      scaled |= divisor.scale() != one;
    }
    undefined |= IsNaN(diagonal);
    const auto first = (pivot == V{}) & (info == V{});
    info = first ? Number<V>(i + 1) : info;
    a.diagonal[i] = diagonal;
    a.upper[i] = upper;
    a.second[i] = second;
    diagonal = next;
    upper = beside;
  }
  if (perturb) {
    V least = Broadcast<V>(std::numeric_limits<Lane<V>>::epsilon()) * largest;
    least = largest == V{} ? Broadcast<V>(std::numeric_limits<Lane<V>>::min()) : least;
    for (int i = 0; i < n; ++i) {
      const auto small = Magnitude(a.diagonal[i]) < least;
      const V signed_least = Re(a.diagonal[i]) < V{} ? -least : least;
      a.diagonal[i] = Choose(small, FromReal<E>(signed_least), a.diagonal[i]);
    }
    info = V{};
  }
  info = undefined ? Broadcast<V>(kHoldsNaN) : info;
  const auto substitute = [&](auto divide) {
    // The unknown of the row below comes last, since it is known last.
    if (cols == 1) {  // both unknowns below stay in registers
      E below = zero, last = zero;
      for (int i = n - 1; i >= 0; --i) {
        E sum = x[i];
        if (i + 2 < n) sum = NegMulAdd(E(a.second[i]), last, sum);
        if (i + 1 < n) sum = NegMulAdd(E(a.upper[i]), below, sum);
        last = below;
        below = divide(i, sum);
        x[i] = below;
      }
      return;
    }
    for (int i = n - 1; i >= 0; --i) {
      const Pointer row = x + i * cols;
      for (int j = 0; j < cols; ++j) {
        E sum = row[j];
        if (i + 2 < n) sum = NegMulAdd(E(a.second[i]), E(row[2 * cols + j]), sum);
        if (i + 1 < n) sum = NegMulAdd(E(a.upper[i]), E(row[cols + j]), sum);
        row[j] = divide(i, sum);
      }
    }
  };
  // A scale is 1 but for tiny pivots. Multiplying by 1 changes no bit.
  if (perturb || Any(scaled)) {
    substitute([&](int i, E sum) { return Divisor<E>(a.diagonal[i]).Divide(sum); });
  } else {
    substitute([&](int i, E sum) { return Mul(a.lower[i], sum); });
  }
  FillNaN(info != V{}, static_cast<int64_t>(n) * cols, x);
  return info;
}

}  // namespace linalg::small
