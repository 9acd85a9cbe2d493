// Prints the largest n whose QR uses a block per matrix in global memory. Also prints whether the
// vendor takes a smaller n that exceeds shared memory. The arguments are the batch and the bytes of
// an element.
#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/qr_path.h"

int main(int, char** arguments) {
  using linalg::cuda::GpuPath;
  const int64_t batch = std::atoll(arguments[1]), size = std::atoll(arguments[2]);
  const auto path = [=](int64_t n) {
    return linalg::cuda::QrPath({.m = n, .n = n, .q_cols = n, .count = n, .pivoted = false}, size,
                                batch, 227 << 10);
  };
  int64_t largest = 0, least_vendors = 0;
  for (int64_t n = 1; n <= 5000; ++n) {
    if (path(n) == GpuPath::kBlock) largest = n;
    if (path(n) == GpuPath::kVendor && least_vendors == 0) least_vendors = n;
  }
  std::printf("%ld %ld\n", static_cast<long>(largest), static_cast<long>(least_vendors));
}
