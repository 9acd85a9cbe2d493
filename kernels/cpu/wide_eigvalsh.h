// Eigenvalues of large Hermitian matrices in single precision. Rounding errors add up in LAPACK's
// QL iteration, so LAPACK reduces the matrix, and the iteration runs in float64.
#pragma once

#include <algorithm>
#include <memory>

#include "kernels/arithmetic/scale.h"
#include "kernels/blocked/tile.h"
#include "kernels/cpu/lapack.h"
#include "kernels/small/root_free_ql.h"

namespace linalg {

// sytrd (hetrd) and QL, of float32 or complex64.
template <class T>
class WideEigvalsh {
  using R = Real<T>;

 public:
  explicit WideEigvalsh(int64_t n)
      : n_(ToInt(n)),
        beside_(Scratch<R>(n)),
        taus_(Scratch<T>(n)),
        work_(Scratch<T>(lapack::SytrdWork(n))),
        wide_(Scratch<double>(2 * n)) {}

  // The eigenvalues of the lower triangle `a`, which is overwritten. Returns LAPACK's info.
  int operator()(T* a, R* w) {
    RowExtent<blocked::Register<R>> extent;
    ForEachColumn(a, [&](const R* column, int64_t count) { extent.Add(column, count); });
    R unscale;
    const R scale = extent.Scale(unscale);
    ForEachColumn(a, [&](R* column, int64_t count) {
      for (int64_t i = 0; i < count; ++i) column[i] *= scale;
    });
    lapack::Sytrd('L', n_, a, w, beside_.get(), taus_.get(), work_.get());
    const auto info = static_cast<int>(small::RootFreeQl(w, beside_.get(), n_, wide_.get()));
    std::sort(w, w + n_);
    for (int i = 0; i < n_; ++i) w[i] *= unscale;
    return info;
  }

 private:
  // Calls body(column, count) for each column of the lower triangle.
  template <class Body>
  void ForEachColumn(T* a, Body&& body) {
    for (int64_t j = 0; j < n_; ++j) {
      body(reinterpret_cast<R*>(a + j * n_ + j), (n_ - j) * kPartsOf<T>);
    }
  }

  int n_;
  std::unique_ptr<R[]> beside_;
  std::unique_ptr<T[]> taus_, work_;
  std::unique_ptr<double[]> wide_;
};

}  // namespace linalg
