// Handles of cuSOLVER and cuBLAS, which take long to make. A handle is lent to one handler at a
// time, and kept for the next one on the same device and stream.
#pragma once

#include "kernels/cuda/vendor.h"

namespace linalg::cuda {

struct SolverHandle {
  vendor::Solver solver = nullptr;
  vendor::SolverParameters parameters = nullptr;
  vendor::JacobiParameters jacobi = nullptr;
};

// Takes a handle, or makes one, and gives it back. Loads the libraries first.
template <class Handle>
class Lent {
 public:
  explicit Lent(cudaStream_t stream);
  ~Lent();
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  const Handle& get() const { return handle_; }

 private:
  int device_ = 0;
  cudaStream_t stream_;
  Handle handle_{};
};

using LentSolver = Lent<SolverHandle>;
using LentBlas = Lent<vendor::Blas>;

}  // namespace linalg::cuda
