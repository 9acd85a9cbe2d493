// Prints the largest n of square matrices whose QR goes by panels, and of those that a block takes
// in global memory. Then the columns of the first panel at the former. The arguments are the batch
// and the bytes of an element.
#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/qr_path.h"

int main(int, char** arguments) {
  using linalg::cuda::GpuPath;
  const int64_t batch = std::atoll(arguments[1]), size = std::atoll(arguments[2]);
  constexpr int64_t kShared = 227 << 10;
  int64_t by_panels = 0, by_blocks = 0;
  for (int64_t n = 1; n <= 10'000; ++n) {
    const auto path = linalg::cuda::QrPath(
        {.m = n, .n = n, .q_cols = n, .count = n, .pivoted = false}, size, batch, kShared);
    if (path == GpuPath::kPanels) by_panels = n;
    if (path == GpuPath::kBlock) by_blocks = n;
  }
  std::printf("%ld %ld %d\n", static_cast<long>(by_panels), static_cast<long>(by_blocks),
              linalg::cuda::QrPanelColumns(by_panels, size, kShared));
}
