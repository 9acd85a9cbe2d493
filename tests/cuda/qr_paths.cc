// Prints, for a batch and the bytes of an element, the largest n whose QR a block each does in
// global memory, and whether there is a smaller one, beyond shared memory, that the vendor does.
#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/tuning.h"

int main(int, char** arguments) {
  using linalg::cuda::GpuPath;
  const int64_t batch = std::atoll(arguments[1]), size = std::atoll(arguments[2]);
  const auto path = [=](int64_t n) {
    const int64_t bytes = n * (n | 1) * size;
    return linalg::cuda::ChooseQr(false, n, 2 * bytes, bytes, batch, 227 << 10);
  };
  int64_t largest = 0, least_vendors = 0;
  for (int64_t n = 1; n <= 5000; ++n) {
    if (path(n) == GpuPath::kBlock) largest = n;
    if (path(n) == GpuPath::kVendor && least_vendors == 0) least_vendors = n;
  }
  std::printf("%ld %ld\n", static_cast<long>(largest), static_cast<long>(least_vendors));
}
