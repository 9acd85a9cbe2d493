// The divisors in derivatives of eigenvectors and singular vectors.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/arithmetic/element.h"

namespace linalg {

// Fᵢⱼ = 1 / (wⱼ - wᵢ) for the n eigenvalues or singular values `w`. F is 0 where the gap is within
// 8 √n eps ‖A‖: the two vectors are not determined there. OfSum has wⱼ + wᵢ instead, with the same
// limit.
template <class V>
class ReciprocalGaps {
 public:
  LINALG_INLINE ReciprocalGaps(int n, const V* w) : w_(w) {
    V norm{};
    for (int i = 0; i < n; ++i) norm = Magnitude(w[i]) > norm ? Magnitude(w[i]) : norm;
    const double eps = std::numeric_limits<Lane<V>>::epsilon();
    equal_ = Number<V>(8 * std::sqrt(static_cast<double>(n)) * eps) * norm;
  }

  LINALG_INLINE V operator()(int i, int j) const { return Reciprocal(w_[j] - w_[i]); }
  LINALG_INLINE V OfSum(int i, int j) const { return Reciprocal(w_[j] + w_[i]); }

 private:
  LINALG_INLINE V Reciprocal(V gap) const {
    return Magnitude(gap) <= equal_ ? V{} : Broadcast<V>(1) / gap;
  }

  const V* w_;
  V equal_;
};

}  // namespace linalg
