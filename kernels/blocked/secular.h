// The secular equation of divide and conquer. Its roots are the eigenvalues of a diagonal matrix
// plus a rank-one update, or the singular values of a diagonal matrix with one full row. Solves for
// a register of roots at a time, and computes the weights for which those roots are exact.
//
// Follows LAPACK's laed4 (Li, Solving secular equations stably and efficiently, 1993), with
// bisection as a safeguard. Each root is stored as its distance from the closer pole. So its
// distances from all poles are accurate to the last places (Gu and Eisenstat, A divide-and-conquer
// algorithm for the symmetric tridiagonal eigenproblem, 1995).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/blocked/strips.h"
#include "kernels/blocked/tile.h"

namespace linalg::blocked {

// The diagonal elements are the poles or, for singular values, their squares. Difference subtracts
// two elements. Root is the root at distance `tau` from a pole.
struct PlainPoles {
  template <class V>
  static LINALG_INLINE V Difference(V x, V y) {
    return x - y;
  }
  template <class V>
  static LINALG_INLINE V Root(V pole, V tau) {
    return pole + tau;
  }
};
struct SquaredPoles {
  template <class V>
  static LINALG_INLINE V Difference(V x, V y) {
    return (x - y) * (x + y);
  }
  template <class V>
  static LINALG_INLINE V Root(V pole, V tau) {
    return Sqrt(MulAdd(pole, pole, tau));
  }
};

// The secular function 1/rho + Σ weight² / (pole - x) at a register of points. Its zeros are the
// eigenvalues of diag(poles) + rho weights weightsᵀ. The terms below and above each zero are summed
// separately.
template <class Poles, class R>
class Secular {
  using V = Register<R>;

 public:
  struct Value {
    V below{}, above{};              // sums of terms
    V below_slope{}, above_slope{};  // sums of their derivatives
    V error{};                       // a bound of the sums' rounding errors, in ε
  };

  Secular(int64_t count, R inverse_rho, const R* poles, const R* weights)
      : count_(count), inverse_rho_(inverse_rho), poles_(poles), weights_(weights) {}

  // The value at origin + tau. Terms up to pole `split` are those below; in all lanes `split` is
  // between `first` and `last`.
  Value At(V origin, V tau, V split, int64_t first, int64_t last) const {
    Value f;
    const auto term = [&](int64_t i, auto&& add) {
      const V weight = Widen<V>(weights_[i]);
      add(weight, weight / (Poles::Difference(Widen<V>(poles_[i]), origin) - tau));
    };
    const auto add_below = [&](V weight, V ratio) {
      f.below = MulAdd(weight, ratio, f.below);
      f.below_slope = MulAdd(ratio, ratio, f.below_slope);
      f.error = f.error - f.below;
    };
    const auto add_above = [&](V weight, V ratio) {
      f.above = MulAdd(weight, ratio, f.above);
      f.above_slope = MulAdd(ratio, ratio, f.above_slope);
      f.error = f.error + f.above;
    };
    for (int64_t i = 0; i <= first; ++i) term(i, add_below);
    for (int64_t i = count_ - 1; i > last; --i) term(i, add_above);
    for (int64_t i = first + 1; i <= last; ++i) {
      const auto is_below = Number<V>(i) <= split;
      term(i, [&](V weight, V ratio) {
        add_below(weight, is_below ? ratio : V{});
        add_above(weight, is_below ? V{} : ratio);
      });
    }
    return f;
  }

  V Sum(const Value& f) const { return Widen<V>(inverse_rho_) + f.below + f.above; }
  V Bound(const Value& f, V tau) const {
    return f.error + Number<V>(8) * (f.above - f.below) + Widen<V>(2 * inverse_rho_) +
           Abs(tau) * (f.below_slope + f.above_slope);
  }

 private:
  int64_t count_;
  R inverse_rho_;
  const R *poles_, *weights_;
};

// The zero of c x² - a x + b between its poles, or beyond both where `last` holds.
template <class V>
LINALG_INLINE V RationalZero(V a, V b, V c, Mask<V> last) {
  const V two = Number<V>(2), size = Sqrt(Abs(MulAdd(a, a, Number<V>(-4) * b * c)));
  const V root = last ? -size : size;
  const auto cancels = last ? a < V{} : a > V{};
  return (cancels ? two * b : a - root) / (cancels ? a + root : two * c);
}

// Finds the zeros [first_root, last_root) of the secular function with count > 1 ascending poles.
// `first_root` must begin a register. Each zero is stored as itself and as its distance `taus` from
// the pole `origins`. Returns how many zeros did not converge.
template <class Poles, class R>
int FindRoots(int64_t first_root, int64_t last_root, int64_t count, R rho, const R* poles,
              const R* weights, R* roots, R* origins, R* taus) {
  using V = Register<R>;
  constexpr int kLanes = kLanesOf<V>;
  constexpr int kMostSteps = 100, kTrustedSteps = 8;
  constexpr R kEps = std::numeric_limits<R>::epsilon() / 2;
  const V half = Number<V>(0.5);
  const Secular<Poles, R> secular(count, 1 / rho, poles, weights);
  R total = 0;
  for (int64_t i = 0; i < count; ++i) total = MulAdd(weights[i], weights[i], total);
  int failed = 0;
  for (int64_t j0 = first_root; j0 < last_root; j0 += kLanes) {
    // Each root lies between two neighbouring poles; the last lies above both.
    V split, left, right, left_weight, right_weight;
    for (int lane = 0; lane < kLanes; ++lane) {
      const int64_t i = std::min(j0 + lane, count - 2);
      split[lane] = static_cast<R>(i);
      left[lane] = poles[i];
      right[lane] = poles[i + 1];
      left_weight[lane] = weights[i];
      right_weight[lane] = weights[i + 1];
    }
    const auto last = RowNumbers<R>(j0 / kLanes) > Number<V>(count - 2);
    const int64_t first_split = std::min(j0, count - 2);
    const int64_t last_split = std::min(j0 + kLanes - 1, count - 2);
    const auto at = [&](V origin, V tau) {
      return secular.At(origin, tau, split, first_split, last_split);
    };
    const V gap = Poles::Difference(right, left), end = last ? Widen<V>(rho * total) : gap;
    V tau = half * end;
    auto f = at(last ? right : left, tau);
    V value = secular.Sum(f);
    const auto beyond = value < V{};
    const auto from_right = last | beyond;
    const V origin = from_right ? right : left;
    V low = beyond ? (last ? tau : -tau) : V{};
    V high = beyond ? (last ? end : V{}) : tau;
    // Start: the zero of the function whose other terms keep their value at the middle.
    {
      const V left_square = left_weight * left_weight, right_square = right_weight * right_weight;
      const V to_left = last ? -gap - tau : -tau, to_right = last ? -tau : gap - tau;
      const V c = value - left_square / to_left - right_square / to_right;
      const V a = MulAdd(c, from_right ? -gap : gap, left_square + right_square);
      const V b = from_right ? -(right_square * gap) : left_square * gap;
      const V zero = RationalZero(a, b, c, last);
      tau = (zero > low) & (zero < high) ? zero : half * (low + high);
    }
    const V left_end = Poles::Difference(left, origin),
            right_end = Poles::Difference(right, origin);
    auto open = Number<V>(0) == Number<V>(0);
    for (int step = 0;; ++step) {
      f = at(origin, tau);
      value = secular.Sum(f);
      open = open & ~(Abs(value) <= Number<V>(kEps) * secular.Bound(f, tau));
      if (!Any(open)) break;
      if (step == kMostSteps) {
        for (int lane = 0; lane < kLanes; ++lane) failed += open[lane] != 0;
        break;
      }
      low = open & (value < V{}) ? tau : low;
      high = open & (value >= V{}) ? tau : high;
      const V slope = f.below_slope + f.above_slope;
      const V to_left = left_end - tau, to_right = right_end - tau;
      const V near = from_right ? right_weight / to_right : left_weight / to_left;
      const V weighted = MulAdd(from_right ? -gap : gap, near * near,
                                MulAdd(from_right ? -to_left : -to_right, slope, value));
      const V middle = Abs(value - to_left * f.below_slope - to_right * f.above_slope);
      const V c = last ? middle : weighted;
      const V a = MulAdd(to_left + to_right, value, -(to_left * to_right * slope));
      V change = RationalZero(a, to_left * to_right * value, c, last);
      change = value * change < V{} ? change : -value / slope;
      V next = tau + change;
      if (step >= kTrustedSteps && step % 2 == 0) next = half * (low + high);
      next = (next > low) & (next < high) ? next : half * (low + high);
      // Stops where the interval contains no further number.
      open = open & (next != tau) & (next != low) & (next != high);
      tau = open ? next : tau;
      if (!Any(open)) break;
    }
    StoreUnaligned(Poles::Root(origin, tau), roots + j0);
    StoreUnaligned(origin, origins + j0);
    StoreUnaligned(tau, taus + j0);
  }
  return failed;
}

// Recomputes the weights [first, last) for which the computed zeros are exact (Löwner's formula).
template <class Poles, class R>
void RecomputeWeights(int64_t first, int64_t last, int64_t count, const R* poles, const R* origins,
                      const R* taus, R* weights) {
  using V = Register<R>;
  constexpr int kLanes = kLanesOf<V>;
  const V one = Number<V>(1);
  const int64_t tail = count / kLanes * kLanes;
  const auto exists = RowNumbers<R>(tail / kLanes) < Number<V>(count);
  for (int64_t i = first; i < last; ++i) {
    const V pole = Widen<V>(poles[i]);
    const auto ratio = [&](int64_t j) {
      const V difference = Poles::Difference(pole, LoadUnaligned<V>(poles + j));
      const V to_root = Poles::Difference(pole, Load<R>(origins + j)) - Load<R>(taus + j);
      return to_root / (difference == V{} ? -one : difference);
    };
    V product = one;
    for (int64_t j = 0; j < tail; j += kLanes) product = product * ratio(j);
    if (tail < count) product = product * (exists ? ratio(tail) : one);
    const R square = Reduce(product, [](auto a, auto b) { return a * b; });
    weights[i] = std::copysign(std::sqrt(square), weights[i]);
  }
}

}  // namespace linalg::blocked
