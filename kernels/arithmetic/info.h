// The project's negative values of info. LAPACK's values are not negative.
#pragma once

namespace linalg {

// The matrix holds NaN or Inf.
inline constexpr int kNotFinite = -1;

// The LU factors of the matrix hold NaN.
inline constexpr int kHoldsNaN = -1;

}  // namespace linalg
