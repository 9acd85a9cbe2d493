// Eigenvalues alone of large Hermitian matrices in single precision, without the errors that add up
// in LAPACK's QL iteration: the matrix is reduced by LAPACK, and iterated for in float64.
#pragma once

#include <algorithm>
#include <bit>
#include <memory>

#include "kernels/arithmetic/scale.h"
#include "kernels/cpu/lapack.h"
#include "kernels/small/root_free_ql.h"

namespace linalg {

// sytrd (hetrd), then QL, of float32 or complex64.
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

  // The eigenvalues of the lower triangle `a`, which is overwritten; returns as LAPACK's info.
  int operator()(T* a, R* w) {
    Extent<Element<T>> extent;
    ForEachElement(a, [&](T x) { extent.Add(std::bit_cast<Element<T>>(x)); });
    R unscale;
    const R scale = extent.Scale(unscale);
    ForEachElement(a, [&](T& x) { x *= scale; });
    lapack::Sytrd('L', n_, a, w, beside_.get(), taus_.get(), work_.get());
    const auto info = static_cast<int>(small::RootFreeQl(w, beside_.get(), n_, wide_.get()));
    std::sort(w, w + n_);
    for (int i = 0; i < n_; ++i) w[i] *= unscale;
    return info;
  }

 private:
  template <class Body>
  void ForEachElement(T* a, Body&& body) {
    for (int64_t j = 0; j < n_; ++j) std::for_each(a + j * n_ + j, a + (j + 1) * n_, body);
  }

  int n_;
  std::unique_ptr<R[]> beside_;
  std::unique_ptr<T[]> taus_, work_;
  std::unique_ptr<double[]> wide_;
};

}  // namespace linalg
