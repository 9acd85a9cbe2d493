// Delayed rotations of neighbouring rows. The rotations of several sweeps of a QL or QR iteration
// are applied to the vectors together.
#pragma once

#include <algorithm>

#include "kernels/arithmetic/columns.h"
#include "kernels/arithmetic/rotation.h"
#include "kernels/small/tridiagonalise.h"

namespace linalg::small {

// Rotates rows i and i + 1 of z for all i in [first, last), downwards if kDown, else upwards, in
// kBlock registers of columns. The row that moves along stays in registers.
template <bool kDown, int kBlock, class Row, class V>
LINALG_INLINE void RotateRows(V* z, int stride, int first, int last, const V* sine,
                              const V* shear) {
  using T = Lane<V>;
  constexpr int kStep = kColumns<V, Row>;
  Row y[kBlock];
  const auto at = [&](int i, int b) { return reinterpret_cast<T*>(z + i * stride + b * kStep); };
  const int begin = kDown ? first : last, end = kDown ? last : first;
#pragma GCC unroll 8
  for (int b = 0; b < kBlock; ++b) y[b] = LoadUnaligned<Row>(at(begin, b));
  for (int i = begin; i != end;) {
    const int next = kDown ? i + 1 : i - 1, upper = kDown ? i : next;
    const ShearedRotation<Row> rotation{Widen<Row>(sine[upper]), Widen<Row>(shear[upper])};
#pragma GCC unroll 8
    for (int b = 0; b < kBlock; ++b) {
      StoreUnaligned(rotation.Rotate(LoadUnaligned<Row>(at(next, b)), y[b]), at(i, b));
    }
    i = next;
  }
#pragma GCC unroll 8
  for (int b = 0; b < kBlock; ++b) StoreUnaligned(y[b], at(end, b));
}

// Sweeps whose rotations are applied together while a block of columns is in the cache. A CUDA
// thread, with one lane and no registers of columns, has no cache to gain from it.
template <class Row>
inline constexpr int kPendingSweeps = kLanesOf<Row> == 1 ? 1 : 8;

// Ignores the rotations, if no vectors are wanted.
struct WithoutRotations {
  template <class V>
  LINALG_INLINE void Add(int, V, V) const {}
  LINALG_INLINE void EndSweep(int, int) const {}
  LINALG_INLINE void Apply() const {}
};

// The rotations of the n rows of z, `stride` apart, which start as the identity. Each sweep goes
// down the rows if kDown, else up. `sine` and `shear` are workspaces of kPendingSweeps<Row> * n
// elements.
template <bool kDown, class Row, class V>
class PendingRotations {
 public:
  LINALG_INLINE PendingRotations(V* z, int n, int stride, V* sine, V* shear)
      : z_(z), n_(n), stride_(stride), sine_(sine), shear_(shear) {
    for (int i = 0; i < n * stride; ++i) z[i] = V{};
    for (int i = 0; i < n; ++i) z[i * stride + i] = Number<V>(1);
  }

  LINALG_INLINE void Add(int i, V sine, V shear) {
    sine_[pending_ * n_ + i] = sine;
    shear_[pending_ * n_ + i] = shear;
  }

  // Ends the sweep, which rotated rows `first` to `last`.
  LINALG_INLINE void EndSweep(int first, int last) {
    firsts_[At(pending_)] = first;
    lasts_[At(pending_)] = last;
    ++sweeps_;
    if (++pending_ == kPendingSweeps<Row>) Apply();
  }

  LINALG_ONCE void Apply() {
    constexpr int kStep = kColumns<V, Row>;
    ForEachHalvingBlock<8>(0, PaddedColumns<V, Row>(n_) / kStep, [&](auto block, int begin) {
      constexpr int kBlock = decltype(block)::value;
      for (int k = 0; k < pending_; ++k) {
        // z is zero beyond a band: each sweep adds one diagonal beside that of the identity.
        const int before = sweeps_ - pending_ + k;
        int first = firsts_[At(k)], last = lasts_[At(k)];
        if (kDown) {
          first = std::max(first, begin * kStep - before - 1);
        } else {
          last = std::min(last, (begin + kBlock) * kStep + before);
        }
        if (last > first) {
          RotateRows<kDown, kBlock, Row>(z_ + begin * kStep, stride_, first, last, sine_ + k * n_,
                                         shear_ + k * n_);
        }
      }
    });
    pending_ = 0;
  }

 private:
  // A constant index for a single sweep: a variable one would move the arrays of a CUDA thread to
  // local memory.
  static constexpr int At(int sweep) { return kPendingSweeps<Row> == 1 ? 0 : sweep; }

  V* z_;
  int n_, stride_;
  V *sine_, *shear_;
  int pending_ = 0, sweeps_ = 0;
  int firsts_[kPendingSweeps<Row>], lasts_[kPendingSweeps<Row>];
};

}  // namespace linalg::small
