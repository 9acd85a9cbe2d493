// The secular equation of a divide and conquer step for a symmetric tridiagonal matrix.
//
// The eigenvalues of diag(d) + rho z zᵀ, rho > 0, are the roots of 1 / rho + Σ z² / (d - x). Each
// is found between its poles by rational interpolation (R.-C. Li, Solving secular equations stably
// and efficiently, LAPACK Working Note 89), within a bracket that bisection halves where
// interpolation does not. It is held as its offset from the nearest pole, so that differences from
// all poles are accurate. Then weights z are computed whose roots these are exactly (Gu and
// Eisenstat, SIAM J. Matrix Anal. Appl. 16, 1995). The eigenvectors of those are orthogonal to
// working precision, however close the roots are.
#pragma once

#include <limits>

#include "kernels/arithmetic/element.h"

namespace linalg {

// The root poles[origin] + offset.
struct SecularRoot {
  int origin;
  double offset;

  LINALG_INLINE double Value(const double* poles) const { return poles[origin] + offset; }
  // The root minus poles[j].
  LINALG_INLINE double Minus(const double* poles, int j) const {
    return (poles[origin] - poles[j]) + offset;
  }
};

// The sums of the equation at a point. `below` are the terms of poles up to i, `above` those of the
// others.
struct SecularSums {
  double below = 0, above = 0, below_slope = 0, above_slope = 0;

  LINALG_INLINE SecularSums(int count, int i, const double* poles, const double* z, double origin,
                            double offset) {
    for (int j = 0; j < count; ++j) {
      const double quotient = z[j] / ((poles[j] - origin) - offset);
      if (j <= i) {
        below = MulAdd(z[j], quotient, below);
        below_slope = MulAdd(quotient, quotient, below_slope);
      } else {
        above = MulAdd(z[j], quotient, above);
        above_slope = MulAdd(quotient, quotient, above_slope);
      }
    }
  }
};

// A step from a point towards the root. `value` and the sums are of the point; `low` and `high` are
// the poles i and i + 1 minus the point, or `high` is 0 for the last root.
LINALG_INLINE double SecularStep(const SecularSums& sums, double value, double low, double high) {
  const double slope = sums.below_slope + sums.above_slope;
  if (high == 0) return low * value / (value - slope * low);
  const double c = value - low * sums.below_slope - high * sums.above_slope;
  const double a = (low + high) * value - low * high * slope, b = low * high * value;
  const double root = Sqrt(Abs(a * a - 4 * b * c));
  return a <= 0 ? (a - root) / (2 * c) : 2 * b / (a + root);
}

// Root i of `count`. The poles are ascending, no two equal, and no weight z is zero.
LINALG_INLINE SecularRoot FindSecularRoot(int count, int i, const double* poles, const double* z,
                                          double rho) {
  constexpr double kEps = std::numeric_limits<double>::epsilon();
  constexpr int kMostSteps = 400;  // bisection alone takes fewer
  const double rest = 1 / rho;
  int origin = i;
  double low = 0, high = 0;
  if (i + 1 == count) {
    for (int j = 0; j < count; ++j) high = MulAdd(z[j], z[j], high);
    high *= rho * (1 + 4 * kEps);
  } else {
    high = 0.5 * (poles[i + 1] - poles[i]);
    const SecularSums sums(count, i, poles, z, poles[i], high);
    if (rest + sums.below + sums.above < 0) {
      origin = i + 1;
      low = -high;
      high = 0;
    }
  }
  double x = origin == i ? high : low, width = high - low;
  for (int step = 1; step <= kMostSteps; ++step) {
    const SecularSums sums(count, i, poles, z, poles[origin], x);
    const double value = rest + sums.below + sums.above;
    const double slope = sums.below_slope + sums.above_slope;
    // A bound on the rounding errors of `value`, as in LAPACK's laed4.
    const double error = 8 * (sums.above - sums.below) + rest + Abs(x) * slope;
    if (Abs(value) <= kEps * error) break;
    if (value < 0) {
      low = x;
    } else {
      high = x;
    }
    const double to_low = (poles[i] - poles[origin]) - x;
    const double to_high = i + 1 < count ? (poles[i + 1] - poles[origin]) - x : 0;
    double next = x + SecularStep(sums, value, to_low, to_high);
    const bool slow = step % 4 == 0 && high - low > 0.25 * width;
    if (step % 4 == 0) width = high - low;
    if (slow || !(next > low && next < high)) next = 0.5 * (low + high);
    if (!(next > low && next < high)) break;
    x = next;
  }
  return {origin, x};
}

// The weight of pole j for which `roots` are exact: the root of its square, with the sign of z.
template <class Roots>
LINALG_INLINE double ExactWeight(int count, int j, const double* poles, double z, Roots&& root) {
  double product = root(j).Minus(poles, j);
  for (int i = 0; i < count; ++i) {
    if (i != j) product *= root(i).Minus(poles, j) / (poles[i] - poles[j]);
  }
  const double size = Sqrt(Abs(product));
  return z < 0 ? -size : size;
}

}  // namespace linalg
