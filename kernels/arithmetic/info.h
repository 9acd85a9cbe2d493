// What info says of a matrix beside LAPACK's numbers, which are not negative.
#pragma once

namespace linalg {

// It holds NaN or Inf.
inline constexpr int kNotFinite = -1;

// Its LU factors hold NaN.
inline constexpr int kHoldsNaN = -1;

}  // namespace linalg
